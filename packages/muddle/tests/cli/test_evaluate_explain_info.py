"""muddle evaluate, explain and info."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score

import muddle
from muddle.cli import fitting
from muddle.cli.predicting import match_labels


def load(shell, name):
    return muddle.load_model(shell.folder / f"{name}.muddle")


def test_scores_of_numbers_are_those_of_scikit_learn(shell):
    table, model = shell.read("homes.csv"), load(shell, "price")
    found = shell.json("evaluate", "price.muddle", "homes.csv", "--interval", 0.8)
    rows = table.drop(columns="price")
    predicted = model.predict(rows)
    assert found["rows"] == 90
    assert found["scores"]["r2"] == pytest.approx(r2_score(table["price"], predicted))
    assert found["scores"]["mae"] == pytest.approx(mean_absolute_error(table["price"], predicted))
    rmse = np.sqrt(np.mean((table["price"] - predicted) ** 2))
    assert found["scores"]["rmse"] == pytest.approx(rmse)
    lower, upper = model.predict_interval(rows, 0.8).T
    inside = (table["price"] >= lower) & (table["price"] <= upper)
    assert found["interval"]["level"] == 0.8
    assert found["interval"]["coverage"] == pytest.approx(inside.mean())
    assert found["interval"]["mean_width"] == pytest.approx(np.mean(upper - lower))
    printed = shell.ok("evaluate", "price.muddle", "homes.csv").stdout
    assert "Intervals of 90 % contain" in printed


def test_scores_of_classes_are_those_of_scikit_learn(shell):
    table, model = shell.read("dear.csv"), load(shell, "dear")
    found = shell.json("evaluate", "dear.muddle", "dear.csv")
    rows = table.drop(columns="dear")
    probabilities, predicted = model.predict_proba(rows), model.predict(rows)
    scores = found["scores"]
    assert scores["accuracy"] == pytest.approx(np.mean(predicted == table["dear"]))
    area = roc_auc_score(table["dear"] == "yes", probabilities[:, 1])
    assert scores["auc"] == pytest.approx(area)
    assert scores["log_loss"] == pytest.approx(log_loss(table["dear"], probabilities))
    assert 0 <= scores["calibration_error"] < 0.3
    counts = pd.crosstab(table["dear"], predicted).reindex(columns=["no", "yes"], fill_value=0)
    assert found["confusion"] == {"classes": ["no", "yes"], "counts": counts.to_numpy().tolist()}
    printed = shell.ok("evaluate", "dear.muddle", "dear.csv").stdout
    assert printed.startswith("dear.csv: 90 rows, classification\n")
    assert "Confusion matrix: true class (rows), predicted class (columns)" in printed


def test_target_may_have_another_name_and_gaps(shell):
    table = shell.read("homes.csv").rename(columns={"price": "paid"})
    shell.write(pd.concat([table, table[:5].assign(paid=np.nan)]), "other.csv")
    found = shell.json("evaluate", "price.muddle", "other.csv", "--target", "paid")
    assert found["scores"] == shell.json("evaluate", "price.muddle", "homes.csv")["scores"]
    assert "5 of 95 rows left out: they have no 'paid'." in found["notes"]
    said = shell.fails("evaluate", "price.muddle", "other.csv")
    assert said.endswith("('price' in the training table). Name it with --target.")
    said = shell.fails("evaluate", "price.muddle", "other.csv", "--target", "payed")
    assert "Did you mean 'paid'?" in said


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("dear", "dear.csv", "be a class of the model ('no', 'yes'), got 'much' in line 2, and 2 "),
        ("dear", "dear.csv", "of 90 rows have no known class. Leave these rows out."),
        ("price", "homes.csv", "must be finite numbers, got 'much' in line 2 of other.csv."),
    ],
)
def test_targets_that_the_model_does_not_know(shell, name, data, said):
    table = shell.read(data).astype({name: object})
    table.loc[:1, name] = "much"
    shell.write(table, "other.csv")
    assert said in shell.fails("evaluate", f"{name}.muddle", "other.csv")


def test_labels_that_are_written_differently_are_not_to_be_left_out(shell):
    table = shell.read("dear.csv")
    shell.write(table.assign(dear=table["dear"].str.upper()), "other.csv")
    said = shell.fails("evaluate", "dear.muddle", "other.csv")
    assert "('no', 'yes'), got 'YES' in line 2, and 90 of 90 rows have no known class." in said
    assert "Did you mean 'yes'? The labels are written differently than in the training" in said
    assert "out" not in said
    assert "--task regression" not in said


def test_numbers_that_are_no_classes_may_be_amounts(shell):
    table = pd.DataFrame({"x": np.arange(60), "y": np.arange(60) % 3})
    shell.write(table, "t.csv")
    shell.ok("fit", "t.csv", "--target", "y", "--preset", "fast", "-o", "m.muddle", "--quiet")
    shell.write(table.assign(y=7), "other.csv")
    said = shell.fails("evaluate", "m.muddle", "other.csv")
    assert said.endswith("amount or a count, fit the model again with --task regression.")


@pytest.mark.parametrize("command", ["predict", "evaluate", "explain"])
def test_a_bad_row_is_named_by_its_line(shell, command):
    text = (shell.folder / "homes.csv").read_text().splitlines()
    for line, field, value, said in (
        (5, 0, "inf", "got inf in column 'area', line 5 of other.csv. Leave such fields empty"),
        (7, 3, "later", "got the text 'later' in line 7 of other.csv."),
    ):
        fields = text[line - 1].split(",")
        fields[field] = value
        lines = [*text[: line - 1], ",".join(fields), *text[line:]]
        lines[2] = ",".join([*lines[2].split(",")[:-1], ""])  # a row without a target before it
        shell.write("\n".join(lines), "other.csv")
        assert said in shell.fails(command, "price.muddle", "other.csv")


def test_numbers_as_classes_are_found_whatever_their_spelling(shell):
    rows = [f"{i % 7},{i * i % 23},{int(i % 7 > 2)}" for i in range(60)]
    shell.write("\n".join(["x,z,y", *rows]), "t.csv")
    shell.ok("fit", "t.csv", "--target", "y", "--preset", "fast", "-o", "m.muddle", "--quiet")
    shell.write(shell.read("t.csv").astype({"y": float}), "floats.csv")
    whole = shell.json("evaluate", "m.muddle", "t.csv")
    assert shell.json("evaluate", "m.muddle", "floats.csv")["scores"] == whole["scores"]
    assert whole["confusion"]["classes"] == [0, 1]


def test_a_label_with_leading_zeros_differs_from_its_number():
    found = match_labels(["007", "7", "7.0", 7, "07", "x"], np.array(["007", "7", "x"]))
    assert found.tolist() == [0, 1, 1, 1, -1, 2]


@pytest.mark.parametrize(("name", "data"), [("price", "homes.csv"), ("dear", "dear.csv")])
def test_importances_are_the_increase_of_the_error_when_a_column_is_shuffled(shell, name, data):
    found = shell.json("explain", f"{name}.muddle", data, "--repeats", 1, "--seed", 4)
    table, model = shell.read(data), load(shell, name)
    X, y = table.drop(columns=name), table[name]
    order = np.random.default_rng(4).permutation(len(X))
    shuffled = X.assign(area=X["area"].to_numpy()[order])
    if name == "price":
        errors = [np.mean((model.predict(rows) - y) ** 2) / np.var(y) for rows in (X, shuffled)]
    else:
        errors = [log_loss(y, model.predict_proba(rows)) for rows in (X, shuffled)]
    by_column = {row["column"]: row["importance"] for row in found["importances"]}
    assert by_column["area"] == pytest.approx(errors[1] - errors[0], rel=1e-6)
    assert by_column["key"] == 0  # the model ignores it
    assert found["importances"][0]["column"] == "area"
    values = [row["importance"] for row in found["importances"]]
    assert values == sorted(values, reverse=True)


def test_importances_of_the_fit_need_no_rows(shell):
    found = shell.json("explain", "price.muddle")
    model = load(shell, "price")
    by_column = {row["column"]: row["importance"] for row in found["importances"]}
    names = model.feature_names_in_.tolist()
    assert [by_column[name] for name in names] == pytest.approx(model.feature_importances_.tolist())
    without = shell.json("explain", "price.muddle", "new.csv")
    assert without["importances"] == found["importances"]
    assert "new.csv has no column of targets" in without["notes"][0]


def test_rows_are_drawn_at_random_with_a_note(shell):
    found = shell.json("explain", "price.muddle", "homes.csv", "--max-rows", 30, "--repeats", 1)
    assert found["from"] == "homes.csv, 30 rows"
    assert found["notes"] == ["30 of 90 rows drawn at random: --max-rows uses more."]


def test_columns_shuffled_once_have_no_deviation():
    found = fitting.rank_importances(["a", "b"], np.array([0.1, 0.2]), np.zeros(2))
    assert [(row["column"], row["deviation"]) for row in found] == [("b", None), ("a", None)]


def test_new_levels_are_noted_once_and_not_with_every_shuffle(shell, monkeypatch):
    monkeypatch.setattr(fitting, "LINE_EVERY", 0.0)
    table = shell.read("homes.csv")
    table.loc[[3, 7], "kind"] = ["barn", "mill"]  # shuffled, the other one comes first
    shell.write(table, "odd.csv")
    result = shell.ok("explain", "price.muddle", "odd.csv", "--repeats", 3)
    notes = [line for line in result.stderr.splitlines() if line.startswith("Note:")]
    said = "X holds values that the columns did not have in fit, taken as unknown"
    assert notes == [f"Note: {said}: column 'kind': 2 new (e.g. 'barn')."]
    assert "shuffling columns: 100 %, about 0 s left" in result.stderr


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot_is_written_in_the_format_of_its_name(shell, suffix, start):
    pytest.importorskip("matplotlib")
    result = shell.ok("explain", "price.muddle", "--plot", f"p.{suffix}", "--top", 3)
    assert (shell.folder / f"p.{suffix}").read_bytes().startswith(start)
    assert result.stdout.splitlines()[-1] == f"Wrote p.{suffix}"
    assert result.stdout.splitlines()[-2] == "and 2 more"


def test_plot_that_cannot_be_written(shell):
    for path, said in ("p.doc", "--plot must end in"), ("nowhere/p.png", "must exist"):
        assert said in shell.fails("explain", "price.muddle", "--plot", path)


@pytest.mark.parametrize("command", ["predict", "evaluate", "explain"])
def test_a_device_that_does_not_exist_is_an_error(shell, command):
    said = shell.fails(command, "price.muddle", "homes.csv", "--device", "cuda:99")
    assert "--device cuda:99" in said


# --- muddle explain --rows -----------------------------------------------------------------------


def test_rows_are_explained_as_in_python(shell):
    found = shell.json("explain", "price.muddle", "new.csv", "--rows", "--max-rows", 4)
    model = load(shell, "price")
    rows = shell.read("new.csv")
    places = [row["line"] - 2 for row in found["rows"]]
    assert len(places) == 4
    assert "rows drawn at random: --max-rows explains more." in found["notes"][0]
    expected = model.explain(rows.iloc[places])
    for row, values, predicted in zip(
        found["rows"], expected.values, expected.predictions, strict=True
    ):
        assert row["prediction"] == pytest.approx(predicted)
        assert row["base"] == pytest.approx(expected.base_values[0])
        by_column = {one["column"]: one["value"] for one in row["changes"]}
        named = [by_column[name] for name in expected.feature_names]
        assert named == pytest.approx(values.tolist(), rel=1e-6, abs=1e-6)
        sizes = [abs(one["value"]) for one in row["changes"]]
        assert sizes == sorted(sizes, reverse=True)


def test_rows_of_classes_are_explained_by_the_class_that_is_predicted(shell):
    common = ("explain", "dear.muddle", "dear.csv", "--rows", "--max-rows", 9)
    found = shell.json(*common)["rows"]
    assert {row["output"] for row in found} == {"no", "yes"}
    assert all(row["probability"] >= 0.5 for row in found)
    other = shell.json(*common, "--of", "yes", "--log-odds")["rows"]
    assert {row["output"] for row in other} == {"yes"}
    for row, same in zip(found, other, strict=True):
        assert row["line"] == same["line"]
        assert (row["output"] == "yes") == (same["log_odds"] >= 0)
    printed = shell.ok(*common[:-1], 1, "--top", 2).stdout.splitlines()
    assert printed[0] == "dear.csv, 1 row: changes of the probability by column"
    assert printed[1].split() == ["line", "output", "probability", "changes"]
    assert " others " in printed[2]


def test_all_values_are_written_and_a_background_is_read(shell):
    shell.ok("explain", "price.muddle", "new.csv", "--rows", "--max-rows", 2, "-o", "v.csv")
    table = shell.read("v.csv")
    assert list(table) == ["line", "column", "data", "value", "standard_error"]
    assert len(table) == 2 * 5
    model, homes = load(shell, "price"), shell.read("homes.csv")
    found = shell.json(
        "explain", "price.muddle", "new.csv", "--rows", "--max-rows", 1, "--background", "homes.csv"
    )
    homes = homes.drop(columns="price")
    base = model.explain(homes[:1], background=homes).base_values[0]
    assert found["rows"][0]["base"] == pytest.approx(base)


def test_several_targets_have_a_line_each(shell):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    table["up"], table["down"] = table["a"] + table["b"], -table["a"]
    shell.write(table, "two.csv")
    shell.ok(
        *("fit", "two.csv", "--target", "up", "--target", "down", "--preset", "fast"),
        *("-o", "two.muddle", "--quiet"),
    )
    common = ("explain", "two.muddle", "two.csv", "--rows", "--max-rows", 2)
    found = shell.json(*common)["rows"]
    assert [row["output"] for row in found] == ["up", "down"] * 2
    assert len(shell.json(*common, "--of", "down")["rows"]) == 2
    assert "--plot shows one of 'up', 'down': name it with --of." in shell.fails(
        *common, "--plot", "p.png"
    )


@pytest.mark.parametrize(("n_rows", "of"), [(1, ()), (5, ("--of", "no"))])
def test_pictures_of_rows_are_written(shell, n_rows, of):
    pytest.importorskip("matplotlib")
    name = "dear" if of else "price"
    result = shell.ok(
        *("explain", f"{name}.muddle", f"{'dear' if of else 'new'}.csv", "--rows", *of),
        *("--max-rows", n_rows, "--plot", "rows.svg"),
    )
    assert result.stdout.splitlines()[-1] == "Wrote rows.svg"
    assert (shell.folder / "rows.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("price.muddle", "--rows"), "--rows explains the rows of DATA: pass a table."),
        (("price.muddle", "new.csv", "--of", "x"), "--of goes with --rows"),
        (("price.muddle", "new.csv", "--log-odds"), "--log-odds goes with --rows"),
        (("price.muddle", "new.csv", "--rows", "--of", "x"), "--of is for classes or several"),
        (("price.muddle", "new.csv", "--rows", "--log-odds"), "--log-odds is for classes"),
        (("dear.muddle", "dear.csv", "--rows", "--of", "yed"), "got 'yed'. Did you mean 'yes'?"),
        (("price.muddle", "new.csv", "--rows", "-o", "v.doc"), "the output must end in .csv"),
        (("price.muddle", "new.csv", "--max-rows", 1), "--max-rows must be at least 2"),
        (
            ("price.muddle", "new.csv", "--rows", "--max-seconds", 0),
            "--max-seconds must be above 0, got --max-seconds 0",
        ),
        (
            ("price.muddle", "new.csv", "--rows", "--max-seconds", 1e-9),
            "background rows. Lower --max-rows, or raise --max-seconds.",
        ),
    ],
)
def test_rows_that_cannot_be_explained_are_one_clear_error(shell, options, said):
    assert said in shell.fails("explain", *options)


def test_info_has_columns_training_and_versions(shell):
    facts = shell.json("info", "price.muddle")
    assert facts["estimator"] == "MuddleRegressor"
    assert facts["target"] == "price"
    assert facts["size"] == (shell.folder / "price.muddle").stat().st_size
    needed = {row["column"]: row["needed"] for row in facts["columns"]}
    assert needed == {"area": True, "kind": True, "zip": True, "sold": True, "key": False}
    holds = {row["column"]: row["holds"] for row in facts["columns"]}
    assert holds["zip"] == "text"  # codes with leading zeros
    assert facts["training"]["rows"] == 90
    assert facts["training"]["file"] == "homes.csv"
    assert facts["training"]["scores"]["r2"] > 0
    assert facts["versions"]["muddle"] == muddle.__version__


def test_info_is_printed_without_torch_and_pandas(shell):
    code = (
        "import sys; from muddle.cli import main\n"
        "sys.argv = ['muddle', 'info', 'price.muddle']\n"
        "try: main()\n"
        "finally: assert not {'torch', 'pandas', 'sklearn'} & set(sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=shell.folder
    )
    assert ended.returncode == 0, ended.stderr
    for part in ("MuddleRegressor, regression", "90 rows of homes.csv", "ignored: ", "R² 0."):
        assert part in ended.stdout


def test_models_saved_by_python_without_names_work_by_position(shell):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    model = muddle.MLRRegressor(width=16, max_iter=5, random_state=0).fit(X, X[:, 0])
    model.save(shell.folder / "m.muddle")
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    shell.write(table, "t.csv")
    result = shell.ok("predict", "m.muddle", "t.csv", "-o", "p.csv")
    assert result.stderr == ""
    np.testing.assert_allclose(shell.read("p.csv")["prediction"], model.predict(X), rtol=1e-5)
    said = shell.fails("predict", "m.muddle", shell.write(table[["a", "b"]], "two.csv"))
    assert "must have the 3 columns of the training table in the same order" in said
    assert "got a MLRRegressor, which has no" in shell.fails(
        "predict", "m.muddle", "t.csv", "--interval=.9"
    )
    shell.write(table.assign(y=X[:, 0]), "y.csv")
    found = shell.json("explain", "m.muddle", "y.csv", "--target", "y", "--repeats", 1)
    assert found["importances"][0]["column"] == "x0"
    assert "interval" not in shell.json("evaluate", "m.muddle", "y.csv", "--target", "y")
    assert "has no importances from its fit" in shell.fails("explain", "m.muddle")
