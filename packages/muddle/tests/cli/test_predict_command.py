"""muddle predict: chunks, columns, formats, and what new rows may be like."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import muddle
from muddle.cli.models import predict_writing


def predict(shell, *options, model="price.muddle", data="new.csv", stdin=None):
    return shell.ok("predict", model, data, *options, stdin=stdin)


def rows_of(shell, name="new.csv"):
    return shell.read(name, dtype={"zip": str})


def test_predictions_are_those_of_the_model(shell):
    predict(shell, "-o", "p.csv")
    expected = muddle.load(shell.folder / "price.muddle").predict(rows_of(shell))
    found = shell.read("p.csv")
    assert found.columns.tolist() == ["prediction"]
    np.testing.assert_allclose(found["prediction"], expected, rtol=1e-9)


def test_intervals_and_quantiles_are_columns(shell):
    predict(shell, "--interval", 0.8, "--quantile", 0.1, "--quantile", 0.5, "-o", "p.csv")
    model, rows = muddle.load(shell.folder / "price.muddle"), rows_of(shell)
    found = shell.read("p.csv")
    names = ["prediction", "lower", "upper", "quantile_0.1", "quantile_0.5"]
    assert found.columns.tolist() == names
    bounds, quantiles = model.predict_interval(rows, 0.8), model.predict(rows, quantiles=[0.1, 0.5])
    expected = np.column_stack([model.predict(rows), bounds, quantiles])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_classes_and_probabilities_are_columns(shell):
    predict(shell, "--proba", "-o", "p.csv", model="dear.muddle")
    model, rows = muddle.load(shell.folder / "dear.muddle"), rows_of(shell)
    found = shell.read("p.csv")
    assert found.columns.tolist() == ["prediction", "probability_no", "probability_yes"]
    assert found["prediction"].tolist() == model.predict(rows).tolist()
    np.testing.assert_allclose(found.iloc[:, 1:], model.predict_proba(rows), rtol=1e-9)


@pytest.mark.parametrize("chunk_rows", [1, 7, 89, 90])
def test_chunks_give_the_output_of_the_whole(shell, chunk_rows):
    options = ("--interval", 0.9, "--keep-all")
    predict(shell, *options, "-o", "whole.csv")
    predict(shell, *options, "--chunk-rows", chunk_rows, "-o", "chunks.csv")
    whole, chunks = shell.read("whole.csv", dtype=str), shell.read("chunks.csv", dtype=str)
    pd.testing.assert_frame_equal(
        whole.iloc[:, :5],
        chunks.iloc[:, :5],
    )
    # Products of other sizes round differently in the last digits of single precision.
    np.testing.assert_allclose(
        whole.iloc[:, 5:].astype(float), chunks.iloc[:, 5:].astype(float), rtol=1e-5
    )


def test_columns_have_one_type_in_all_chunks(shell):
    """A chunk in which all codes look like numbers is not read as numbers."""
    letters = ["a1", "17", "b2", "018"]
    rows = [f"{letters[i % 4]},{i * i % 23},{i % 4 + i / 100}" for i in range(60)]
    (shell.folder / "t.csv").write_text("\n".join(["code,z,y", *rows]))
    shell.ok("fit", "t.csv", "--target", "y", "--preset", "fast", "-o", "m.muddle", "--quiet")
    whole = predict(shell, model="m.muddle", data="t.csv")
    single = predict(shell, "--chunk-rows", 1, model="m.muddle", data="t.csv")
    np.testing.assert_allclose(
        [float(line) for line in whole.stdout.split()[1:]],
        [float(line) for line in single.stdout.split()[1:]],
        rtol=1e-5,
    )
    assert single.stderr == ""


def test_a_chunk_is_read_when_the_one_before_it_has_been_predicted(shell, monkeypatch):
    """So no more than one is in memory."""
    happened = []
    original = predict_writing.each_prepared

    def each_prepared(*arguments):
        for chunk, rows in original(*arguments):
            happened.append(f"read {len(rows)}")
            yield chunk, rows

    def answer(loaded, rows, wanted):
        happened.append(f"predicted {len(rows)}")
        return pd.DataFrame({"prediction": np.zeros(len(rows))})

    monkeypatch.setattr(predict_writing, "each_prepared", each_prepared)
    monkeypatch.setattr(predict_writing, "answer", answer)
    predict(shell, "--chunk-rows", 40, "-o", "p.csv")
    assert happened == [f"{what} {n}" for n in (40, 40, 10) for what in ("read", "predicted")]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_the_file(shell):
    """A table of 27 MB takes no more than one of 4 MB, where chunks have 4 MB."""
    code = (
        "import sys; from muddle.cli import main\n"
        "sys.argv = ['muddle', 'predict', 'price.muddle', '-', '-q', '--runtime', 'numpy',\n"
        "            '-o', 'p.csv', '--chunk-rows', '2000']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*[line for line in open('/proc/self/status') if 'VmHWM' in line])\n"
    )
    header, *lines = (shell.folder / "new.csv").read_text().splitlines()
    padding = "x" * 2000  # in a column that the model ignores
    peaks = []
    for n_times in (25, 150):
        rows = [f"{line},{padding}" for line in lines] * n_times
        ended = subprocess.run(
            [sys.executable, "-c", code],
            input="\n".join([f"{header},padding", *rows]),
            capture_output=True,
            text=True,
            cwd=shell.folder,
            check=True,
        )
        peaks.append(int(ended.stdout.split()[1]) / 1024)
        assert len(shell.read("p.csv")) == 90 * n_times
    assert peaks[1] - peaks[0] < 15  # MB


def test_standard_input_to_standard_output(shell):
    text = (shell.folder / "new.csv").read_text()
    through = predict(shell, "--keep", "key", data="-", stdin=text).stdout
    predict(shell, "--keep", "key", "-o", "p.csv")
    assert through == (shell.folder / "p.csv").read_text()


def test_standard_output_has_rows_before_the_input_ends(shell):
    """A pipe that stays open gets its answers as chunks are full."""
    command = [sys.executable, "-m", "muddle", "predict", "price.muddle", "-", "--chunk-rows", "60"]
    with subprocess.Popen(
        [*command, "--runtime", "numpy", "-q"],
        cwd=shell.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        lines = (shell.folder / "new.csv").read_text().splitlines(keepends=True)
        process.stdin.write("".join(lines[:1] + lines[1:81] * 5))
        process.stdin.flush()
        assert process.stdout.readline() == "prediction\n"
        assert float(process.stdout.readline()) > 0
        process.stdin.close()
        assert len(process.stdout.read().splitlines()) == 80 * 5 - 1
    assert process.returncode == 0


def test_a_reader_that_closes_the_pipe_ends_it_quietly(shell):
    """As in `muddle predict ... | head -1`."""
    command = [sys.executable, "-m", "muddle", "predict", "price.muddle", "new.csv"]
    with subprocess.Popen(
        [*command, "--chunk-rows", "50", "--runtime", "numpy", "-q"],
        cwd=shell.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize("name", ["p.tsv", "p.csv.gz", "p.parquet", "p.feather"])
def test_output_formats_hold_the_same(shell, name):
    if "csv" not in name and "tsv" not in name:
        pytest.importorskip("pyarrow")
    predict(shell, "--keep", "zip", "--chunk-rows", 40, "-o", name)
    predict(shell, "--keep", "zip", "--chunk-rows", 40, "-o", "p.csv")
    expected = shell.read("p.csv", dtype={"zip": str})
    if name.endswith("sv") or name.endswith("gz"):
        found = shell.read(name, dtype={"zip": str}, sep="\t" if "tsv" in name else ",")
    else:
        found = getattr(pd, f"read_{name[2:]}")(shell.folder / name)
    assert found["zip"].tolist() == expected["zip"].tolist()
    np.testing.assert_array_equal(found["prediction"], expected["prediction"])


@pytest.mark.parametrize("form", ["parquet", "feather"])
def test_typed_files_are_predicted_in_chunks_and_keep_their_types(shell, form):
    pytest.importorskip("pyarrow")
    table = rows_of(shell).assign(number=pd.array([None, *range(89)], dtype="Int64"))
    getattr(table, f"to_{form}")(shell.folder / f"new.{form}")
    options = ("--keep", "number", "--chunk-rows", 17, "-o", f"p.{form}")
    predict(shell, *options, data=f"new.{form}")
    found = getattr(pd, f"read_{form}")(shell.folder / f"p.{form}", dtype_backend="pyarrow")
    assert str(found["number"].dtype) == "int64[pyarrow]"
    assert found["number"].isna().sum() == 1
    predict(shell, "-o", "p.csv")
    np.testing.assert_allclose(
        found["prediction"].to_numpy(dtype=float), shell.read("p.csv")["prediction"], rtol=1e-5
    )


def test_json_on_the_standard_output_is_a_list_of_rows(shell):
    result = predict(shell, "--keep", "key", "--chunk-rows", 40, "--json")
    rows = json.loads(result.stdout)
    assert len(rows) == 90
    assert rows[3]["key"] == "H0003"
    predict(shell, "-o", "p.csv", "--chunk-rows", 40)
    assert rows[3]["prediction"] == shell.read("p.csv")["prediction"][3]


def test_json_with_a_file_tells_what_was_written(shell):
    facts = json.loads(predict(shell, "-o", "p.csv", "--json").stdout)
    assert facts == {"output": "p.csv", "rows": 90, "notes": []}


def test_what_was_written_is_said_unless_quiet(shell):
    assert predict(shell, "-o", "p.csv").stdout == "Wrote p.csv: 90 rows\n"
    quiet = predict(shell, "-o", "p.csv", "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("", "")


def test_columns_may_stand_in_another_order_with_others_beside_them(shell):
    table = rows_of(shell)
    table[table.columns[::-1]].assign(extra=1).to_csv(shell.folder / "other.csv", index=False)
    result = predict(shell, "-o", "p.csv", data="other.csv")
    assert result.stderr == "Note: column 'extra' was not there in fit and will be ignored.\n"
    predict(shell, "-o", "q.csv")
    np.testing.assert_array_equal(shell.read("p.csv"), shell.read("q.csv"))


def test_the_target_may_be_there_or_not(shell):
    result = predict(shell, "-o", "p.csv", data="homes.csv")
    assert result.stderr == ""


def test_a_column_that_the_model_ignores_may_be_missing(shell):
    rows_of(shell).drop(columns="key").to_csv(shell.folder / "other.csv", index=False)
    predict(shell, "-o", "p.csv", data="other.csv")
    predict(shell, "-o", "q.csv")
    np.testing.assert_array_equal(shell.read("p.csv"), shell.read("q.csv"))


def test_new_levels_are_noted_once_and_later_chunks_counted(shell):
    table = rows_of(shell)
    table.loc[::10, "kind"] = "castle"
    table.to_csv(shell.folder / "other.csv", index=False)
    result = predict(shell, "-o", "p.csv", "--chunk-rows", 20, data="other.csv")
    first, second, *_ = result.stderr.splitlines()
    assert "'kind': 2 new (e.g. 'castle')" in first
    assert second.startswith("Note: the same in 4 later chunks of rows")


def test_drift_is_noted(shell):
    table = rows_of(shell)
    table["area"] += 300
    table.to_csv(shell.folder / "other.csv", index=False)
    result = predict(shell, "-o", "p.csv", "--chunk-rows", 30, data="other.csv")
    assert "area" in result.stderr
    assert predict(shell, "-o", "p.csv").stderr == ""


def test_texts_that_meant_a_gap_in_fit_mean_one_again(shell):
    table = rows_of(shell)
    table.astype({"area": object}).fillna("n.a.").to_csv(shell.folder / "marked.csv", index=False)
    target = shell.read("homes.csv")["price"]
    table.astype({"area": object}).fillna("n.a.").assign(price=target).to_csv(
        shell.folder / "train.csv", index=False
    )
    options = ("--target", "price", "--preset", "fast", "--quiet", "-o", "m.muddle")
    shell.ok("fit", "train.csv", *options, "--missing", "n.a.")
    predict(shell, "-o", "p.csv", model="m.muddle", data="marked.csv")
    predict(shell, "-o", "q.csv")
    np.testing.assert_allclose(shell.read("p.csv"), shell.read("q.csv"), rtol=1e-5)


@pytest.mark.parametrize(("model", "option"), [("price", "--interval=0.9"), ("dear", "--proba")])
def test_numpy_gives_the_same_answers(shell, model, option):
    for runtime in ("torch", "numpy"):
        predict(
            shell, option, "--runtime", runtime, "-o", f"{runtime}.csv", model=f"{model}.muddle"
        )
    torch, numpy = shell.read("torch.csv"), shell.read("numpy.csv")
    assert torch.columns.tolist() == numpy.columns.tolist()
    numbers = torch.select_dtypes("number").columns
    np.testing.assert_allclose(numpy[numbers], torch[numbers], rtol=1e-4, atol=1e-5)


def test_numpy_imports_neither_torch_nor_scikit_learn(shell):
    code = (
        "import sys; from muddle.cli import main\n"
        "sys.argv = ['muddle', 'predict', 'price.muddle', 'new.csv', '--runtime', 'numpy']\n"
        "try: main()\n"
        "finally: assert not {'torch', 'sklearn', 'scipy'} & set(sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=shell.folder
    )
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 91


def test_blank_lines_are_left_out_and_counted(shell):
    text = (shell.folder / "new.csv").read_text()
    (shell.folder / "blank.csv").write_text(text + "\n\n")
    result = predict(shell, "-o", "p.csv", data="blank.csv")
    assert len(shell.read("p.csv")) == 90
    assert "2 blank lines left out." in result.stderr
