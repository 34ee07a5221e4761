"""muddle predict: chunks, columns, formats, and rows unlike those of the training table."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import muddle
from muddle.cli import predicting


def predict(shell, *options, model="price.muddle", data="new.csv", stdin=None):
    return shell.ok("predict", model, data, *options, stdin=stdin)


@pytest.fixture
def same(shell):
    """Claims that two commands write the same predictions."""

    def compare(first, second, **tolerance):
        predict(shell, "-o", "first.csv", *first.pop("options", ()), **first)
        predict(shell, "-o", "second.csv", *second.pop("options", ()), **second)
        one, two = shell.read("first.csv"), shell.read("second.csv")
        assert one.columns.tolist() == two.columns.tolist()
        numbers = one.select_dtypes("number").columns
        np.testing.assert_allclose(one[numbers], two[numbers], **tolerance)

    return compare


def test_predictions_intervals_and_quantiles_are_those_of_the_model(shell):
    predict(shell, "--interval", 0.8, "--quantile", 0.1, "--quantile", 0.5, "-o", "p.csv")
    model, rows = muddle.load_model(shell.folder / "price.muddle"), shell.read("new.csv")
    found = shell.read("p.csv")
    names = ["prediction", "lower", "upper", "quantile_0.1", "quantile_0.5"]
    assert found.columns.tolist() == names
    bounds, quantiles = model.predict_interval(rows, 0.8), model.predict(rows, quantiles=[0.1, 0.5])
    expected = np.column_stack([model.predict(rows), bounds, quantiles])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_classes_and_probabilities_are_columns(shell):
    predict(shell, "--proba", "-o", "p.csv", model="dear.muddle")
    model, rows = muddle.load_model(shell.folder / "dear.muddle"), shell.read("new.csv")
    found = shell.read("p.csv")
    assert found.columns.tolist() == ["prediction", "probability_no", "probability_yes"]
    assert found["prediction"].tolist() == model.predict(rows).tolist()
    np.testing.assert_allclose(found.iloc[:, 1:], model.predict_proba(rows), rtol=1e-9)


def test_sets_of_classes_are_a_column_per_class(shell):
    predict(shell, "--set", 0.8, "-o", "p.csv", model="dear.muddle")
    model, rows = muddle.load_model(shell.folder / "dear.muddle"), shell.read("new.csv")
    found = shell.read("p.csv")
    assert found.columns.tolist() == ["prediction", "in_set_no", "in_set_yes"]
    assert (found.iloc[:, 1:] == model.predict_set(rows, 0.8)).all(axis=None)
    assert "--set must lie between 0 and 1, got 80. Did you mean 0.8?" in shell.fails(
        "predict", "dear.muddle", "new.csv", "--set", 80
    )
    said = shell.fails("predict", "price.muddle", "new.csv", "--set", 0.8)
    assert said == "--set is for classes, and this model predicts numbers. Use --interval."


@pytest.mark.parametrize("chunk_rows", [1, 40, 90])
def test_chunks_give_the_output_of_the_whole(shell, same, chunk_rows):
    # Products of other sizes round differently in the last digits of single precision.
    options = ("--interval", 0.9, "--keep-all")
    chunks = (*options, "--chunk-rows", chunk_rows)
    same({"options": options}, {"options": chunks}, rtol=1e-5)
    kept = [shell.read(name)[["kind", "zip", "key"]] for name in ("first.csv", "second.csv")]
    pd.testing.assert_frame_equal(*kept)


def test_columns_have_one_type_in_all_chunks(shell, same):
    letters = ["a1", "17", "b2", "018"]
    rows = [f"{letters[i % 4]},{i * i % 23},{i % 4 + i / 100}" for i in range(24)]
    shell.write("\n".join(["code,z,y", *rows]), "t.csv")
    shell.ok("fit", "t.csv", "--target", "y", "--preset", "fast", "-o", "m.muddle", "--quiet")
    where = {"model": "m.muddle", "data": "t.csv"}
    same(where, {**where, "options": ("--chunk-rows", 1)}, rtol=1e-5)


def test_a_chunk_is_read_after_the_one_before_it_was_predicted(shell, monkeypatch):
    """So no more than one is in memory."""
    happened = []
    original = predicting.each_prepared

    def each_prepared(*arguments):
        for chunk, rows in original(*arguments):
            happened.append(f"read {len(rows)}")
            yield chunk, rows

    def predict_rows(file, rows, outputs):
        happened.append(f"predicted {len(rows)}")
        return pd.DataFrame({"prediction": np.zeros(len(rows))})

    monkeypatch.setattr(predicting, "each_prepared", each_prepared)
    monkeypatch.setattr(predicting, "predict_rows", predict_rows)
    predict(shell, "--chunk-rows", 40, "-o", "p.csv")
    assert happened == [f"{verb} {n}" for n in (40, 40, 10) for verb in ("read", "predicted")]


@pytest.fixture
def start(shell):
    """Starts `muddle predict` in a process of its own, without torch."""

    def start_process(data, chunk_rows, **pipes):
        code = (
            "import sys; from muddle.cli import main\n"
            "try: main()\n"
            "finally: assert not {'torch', 'sklearn', 'scipy'} & set(sys.modules)\n"
        )
        options = [data, "--chunk-rows", str(chunk_rows), "-q"]
        command = [sys.executable, "-c", code, "predict", "price.muddle", *options]
        return subprocess.Popen(command, cwd=shell.folder, text=True, **pipes)

    return start_process


def test_standard_output_has_rows_before_the_input_ends_and_without_torch(shell, start):
    with start("-", 60, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        lines = (shell.folder / "new.csv").read_text().splitlines(keepends=True)
        process.stdin.write("".join(lines[:1] + lines[1:81] * 5))
        process.stdin.flush()
        assert process.stdout.readline() == "prediction\n"
        assert float(process.stdout.readline()) > 0
        process.stdin.close()
        assert len(process.stdout.read().splitlines()) == 80 * 5 - 1
    assert process.returncode == 0


def test_a_reader_that_closes_the_pipe_ends_it_quietly(start):
    with start("new.csv", 50, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize("form", ["parquet", "feather"])
def test_typed_files_are_predicted_in_chunks_and_keep_their_types(shell, form):
    pytest.importorskip("pyarrow")
    table = shell.read("new.csv").assign(number=pd.array([None, *range(89)], dtype="Int64"))
    getattr(table, f"to_{form}")(shell.folder / f"new.{form}")
    options = ("--keep", "number", "--chunk-rows", 40, "-o", f"p.{form}")
    predict(shell, *options, data=f"new.{form}")
    found = getattr(pd, f"read_{form}")(shell.folder / f"p.{form}", dtype_backend="pyarrow")
    assert str(found["number"].dtype) == "int64[pyarrow]"
    assert found["number"].isna().sum() == 1
    predict(shell, "-o", "p.csv")
    np.testing.assert_allclose(
        found["prediction"].to_numpy(dtype=float), shell.read("p.csv")["prediction"], rtol=1e-5
    )


def test_json_is_a_list_of_rows_or_tells_which_file_was_written(shell):
    rows = json.loads(predict(shell, "--keep", "key", "--chunk-rows", 40, "--json").stdout)
    assert len(rows) == 90
    assert rows[3]["key"] == "H0003"
    facts = json.loads(predict(shell, "-o", "p.csv", "--chunk-rows", 40, "--json").stdout)
    assert facts == {"output": "p.csv", "rows": 90, "notes": []}
    assert predict(shell, "-o", "p.csv").stdout == "Wrote p.csv: 90 rows\n"
    assert predict(shell, "-o", "p.csv", "--quiet").output == ""
    assert rows[3]["prediction"] == shell.read("p.csv")["prediction"][3]


def test_columns_are_found_by_name(shell, same):
    table = shell.read("new.csv").drop(columns="key")  # which the model ignores
    shell.write(table[table.columns[::-1]].assign(extra=1, price=2), "other.csv")
    same({}, {"data": "other.csv"})
    said = predict(shell, "-o", "p.csv", data="other.csv").stderr
    assert said == "Note: column 'extra' was not in the training table; ignoring.\n"


def test_drift_is_noted_and_new_levels_once_with_the_number_of_later_chunks(shell):
    table = shell.read("new.csv")
    table.loc[::10, "kind"] = "castle"
    table["area"] += 300
    shell.write(table, "other.csv")
    result = predict(shell, "-o", "p.csv", "--chunk-rows", 20, data="other.csv")
    first, second, third, *_ = result.stderr.splitlines()
    assert "castle" in first
    assert second.startswith("Note: the same in 4 later chunks of rows")
    assert third.startswith("Note: Column 'area' has other values than in training")
    assert predict(shell, "-o", "p.csv").stderr == ""
    # One chunk, in which the prediction and the interval give the same warning.
    result = predict(shell, "--interval", 0.9, "-o", "p.csv", data="other.csv")
    assert "castle" in result.stderr
    assert "later chunk" not in result.stderr


def test_texts_that_meant_a_gap_in_fit_mean_one_again(shell, same):
    marked = shell.read("homes.csv").astype({"area": object}).fillna({"area": "n.a."})
    shell.write(marked, "marked.csv")
    options = ("--target", "price", "--preset", "fast", "--quiet", "-o", "m.muddle")
    shell.ok("fit", "marked.csv", *options, "--missing", "n.a.")
    same({}, {"model": "m.muddle", "data": "marked.csv"}, rtol=1e-5)


def test_kept_columns_are_written_as_in_the_file_and_blank_lines_counted(shell, same):
    text = (shell.folder / "new.csv").read_text()
    shell.write(text.replace(",", ";").replace(".", ",") + "\n\n", "german.csv")
    same({}, {"data": "german.csv"})
    result = predict(shell, "--keep", "area", "--json", data="german.csv")
    assert "," in json.loads(result.stdout)[1]["area"]
    assert "2 blank lines left out." in result.stderr


def test_formulas_are_neutralised_on_request_and_numbers_are_not(shell):
    texts = ["=1+1", "+1", "-1,5", "-x", "@a", "H7", "-2.5e3", "=cmd|' /C calc'!A0", "a=b", ""]
    shell.write(shell.read("new.csv")[: len(texts)].assign(**{"=n": texts}), "t.csv")
    options = ("--keep", "=n", "--keep", "area", "--escape-formulas")
    predict(shell, *options, "-o", "p.csv", data="t.csv")
    found = pd.read_csv(shell.folder / "p.csv", dtype=str, keep_default_na=False)
    assert found.columns.tolist() == ["'=n", "area", "prediction"]
    escaped = {"=1+1", "-x", "@a", "=cmd|' /C calc'!A0"}
    assert found["'=n"].tolist() == [f"'{t}" if t in escaped else t for t in texts]
    assert not found[["area", "prediction"]].map(lambda text: text.startswith("'")).any(axis=None)
    predict(shell, "--keep", "=n", "-o", "p.csv", data="t.csv")
    assert shell.read("p.csv")["=n"][0] == "=1+1"
