"""muddle fit: reading, notes, output."""

import contextlib
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import muddle
from muddle.cli import fitting
from muddle.cli.output import Notes
from muddle.estimators.pool import MEAN
from muddle.tables.read import TextOptions
from muddle.training.jobs import Silent

FAST = ("--preset", "fast", "--device", "cpu")
ROWS = [f"{i % 7},{i * i % 23},{i % 7 + 0.5}" for i in range(2, 52)]


def fit(shell, data, target, *options, stdin=None):
    return shell.ok("fit", data, "--target", target, *FAST, *options, stdin=stdin)


def read(shell, name, target="price", task=None, **columns):
    """The training table of a file, and the notes."""
    notes = Notes(quiet=True)
    columns = fitting.Columns([target], **columns)
    path = str(shell.folder / name)
    return fitting.read_training(path, TextOptions(), columns, task, notes), notes.texts


def test_summary_has_scores_members_columns_file_and_the_next_command(shell):
    result = fit(shell, "homes.csv", "price", "-o", "model.muddle", "--report", "page.html")
    first = result.stdout.splitlines()[0]
    assert first == "homes.csv: 90 rows, 5 features, target 'price': regression"
    for part in ("R²", "RMSE", "MAE", "Intervals of 90 % contain", "configuration", "area"):
        assert part in result.stdout
    assert "Next: muddle predict model.muddle NEW.csv --interval 0.9" in result.stdout
    assert "task guessed: regression, as the target has 90 values" in result.stderr
    assert "column 'key'" in result.stderr
    assert "identifier" in result.stderr
    assert (shell.folder / "model.muddle").stat().st_size > 1000
    # The page may take long: what the fit found is printed before it.
    assert result.stdout.splitlines()[-1] == "Wrote page.html"
    assert "Writing page.html" in result.stderr
    page = (shell.folder / "page.html").read_text(encoding="utf-8")
    assert "<title>price of homes.csv</title>" in page
    assert "to predict &#39;price&#39;" in page


def test_several_targets_are_one_model_with_a_column_of_predictions_each(shell):
    table = shell.read("homes.csv")
    shell.write(table.assign(rent=(table["price"] / 50).round(2)), "t.csv")
    options = ("--target", "rent", "-o", "m.muddle", "--report", "page.html")
    result = fit(shell, "t.csv", "price", *options)
    assert result.stdout.startswith("t.csv: 90 rows, 5 features, targets 'price', 'rent': reg")
    scores = [
        line.split() for line in result.stdout.splitlines() if line.startswith(("price ", "r"))
    ]
    assert [row[0] for row in scores] == ["price", "rent"]
    assert all(float(row[1]) > 0.5 for row in scores)
    page = (shell.folder / "page.html").read_text(encoding="utf-8")
    assert "<title>price and rent of t.csv</title>" in page
    assert shell.json("info", "m.muddle")["target"] == "price, rent"
    result = shell.ok("predict", "m.muddle", "t.csv", "--interval", 0.9, "-o", "p.csv")
    assert result.stderr == ""  # the targets are known, and no new columns
    names = ["prediction_price", "prediction_rent"]
    assert shell.read("p.csv").columns.tolist()[:2] == names
    loaded = muddle.load_model(shell.folder / "m.muddle")
    expected = loaded.predict(table.drop(columns="price"))
    np.testing.assert_allclose(shell.read("p.csv")[names], expected, rtol=1e-6)
    for command in ("evaluate", "explain"):
        said = shell.fails(command, "m.muddle", "t.csv")
        assert said.startswith("the model must predict one target, got one that predicts 2.")


@pytest.mark.parametrize(
    ("write", "unit"),
    [
        ("${:,.2f}".format, "$"),
        ("-${:.2f}".format, "$"),
        ("{:.2f} %".format, "%"),
        (lambda v: f"{v:,.2f} €".translate(str.maketrans(",.", ".,")), "€"),
    ],
)
def test_a_target_of_amounts_is_read_as_numbers_with_a_note(shell, write, unit):
    table = shell.read("homes.csv").assign(price=lambda t: t["price"] * 10)
    sign = -1 if write(1).startswith("-") else 1
    shell.write(table.assign(price=table["price"].map(write)), "t.csv")
    training, notes = read(shell, "t.csv")
    assert training.task == "regression"
    np.testing.assert_allclose(training.y, sign * table["price"], atol=0.0051)
    assert any(f"'price' is read as numbers, without {unit}: " in note for note in notes)
    assert read(shell, "t.csv", task="classification")[0].y[0] == write(table["price"][0])


def test_a_few_amounts_that_repeat_are_classes(shell):
    shell.write(pd.DataFrame({"x": np.arange(60), "y": ["$5", "$10", "$20"] * 20}), "t.csv")
    training, _ = read(shell, "t.csv", "y")
    assert training.task == "classification"
    assert set(training.y) == {"$5", "$10", "$20"}


def test_amounts_are_scored_as_numbers(shell):
    table = shell.read("homes.csv")
    expected = shell.json("evaluate", "price.muddle", "homes.csv")["scores"]
    shell.write(table.assign(price=table["price"].map("${:,.2f}".format)), "t.csv")
    assert shell.json("evaluate", "price.muddle", "t.csv")["scores"] == pytest.approx(expected)


def test_weights_that_are_shown_add_to_100_with_others_and_the_mean_named():
    weights = [0.0, 0.3, 0.2, 0.1, 0.1, 0.1, 0.05, 0.03, 0.12]
    scores = [0.5] * 8 + [np.nan]
    board = pd.DataFrame({"configuration": [*"abcdefgh", MEAN], "iteration": 1, "score": scores})
    board = board.astype({"iteration": "Int64"}).assign(weight=weights)
    board.loc[[2, 8], "iteration"] = pd.NA
    rows = fitting.list_members(board)
    assert [row["configuration"] for row in rows] == [*"bcdef", "2 others", MEAN]
    assert [row["iteration"] for row in rows] == [1, None, 1, 1, 1, None, None]
    assert [row["weight"] for row in rows[-2:]] == pytest.approx([0.08, 0.12])
    assert fitting.round_weights([1 / 3, 1 / 3, 1 / 3]) == [34, 33, 33]
    assert fitting.round_weights([1.0]) == [100]
    assert [row["configuration"] for row in fitting.list_members(board[:6])] == [*"bcdef"]


def test_bar_moves_before_the_training_and_shows_no_score(monkeypatch):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80)
    monkeypatch.setattr(fitting, "make_console", lambda stderr: console)
    with fitting.show_bar() as show:
        assert "preparing" in shown.getvalue()
        with show(10, "first round") as reporter:
            reporter.advance(5, np.nan, -np.inf)
            reporter.progress.refresh()
        reporter.progress.refresh()
    text = shown.getvalue()
    assert text.index("preparing") < text.index("first round") < text.index("finishing")
    assert "50%" in text
    assert "inf" not in text


def test_json_is_the_whole_standard_output_and_an_old_model_is_replaced(shell, monkeypatch):
    monkeypatch.setenv("HOME", str(shell.folder))
    before = (shell.folder / "price.muddle").read_bytes()
    facts = json.loads(fit(shell, "dear.csv", "dear", "--output=~/price.muddle", "--json").stdout)
    assert facts["task"] == "classification"
    assert facts["classes"] == ["no", "yes"]
    assert facts["origin"]["target"] == "dear"
    assert facts["size"] == (shell.folder / "price.muddle").stat().st_size
    assert set(facts["scores"]) == {"accuracy", "auc", "log_loss", "calibration_error"}
    assert 0.5 < facts["scores"]["accuracy"] <= 1
    assert facts["importances"][0]["column"] == "area"
    # Words can be nothing else, so no other task is proposed.
    (guessed,) = [note for note in facts["notes"] if "task guessed" in note]
    assert guessed == "task guessed: classification, as the target is not a number."
    assert (shell.folder / "price.muddle").read_bytes() != before


def test_model_is_the_one_that_python_fits_to_the_same_table(shell):
    text = (shell.folder / "homes.csv").read_text()
    result = fit(shell, "-", "price", "-o", "m.muddle", "--seed", 3, "--quiet", stdin=text)
    assert result.stderr == ""
    table = shell.read("homes.csv")
    X, y = table.drop(columns="price"), table["price"]
    preprocessor = muddle.TablePreprocessor(scaling="robust+clip")
    same = muddle.MuddleRegressor(
        preset="fast", device="cpu", random_state=3, preprocessor=preprocessor
    )
    with pytest.warns(UserWarning, match="identifier"):
        same.fit(X, y)
    loaded = muddle.load_model(shell.folder / "m.muddle")
    np.testing.assert_allclose(loaded.predict(X), same.predict(X), rtol=1e-5)


@pytest.mark.parametrize("form", ["csv", "parquet", "feather"])
def test_every_format_gives_the_training_table_of_the_csv(shell, form):
    table = shell.read("homes.csv")
    path = shell.folder / f"t.{form}"
    if form == "csv":
        table.to_csv(path, index=False, sep=";", decimal=",", na_rep="#DIV/0!")
    else:
        pytest.importorskip("pyarrow")
        getattr(table, f"to_{form}")(path)
    expected, _ = read(shell, "homes.csv")
    found, notes = read(shell, path.name)
    pd.testing.assert_frame_equal(found.X, expected.X, check_dtype=False)
    np.testing.assert_array_equal(found.y, expected.y)
    separator, decimal = notes if form == "csv" else ("", "")
    assert (separator == "separator guessed: ';'.") == (form == "csv")
    assert decimal.startswith("decimal comma guessed") == (form == "csv")


def test_a_stated_task_is_not_guessed(shell):
    shell.write(pd.DataFrame({"x": np.arange(60) % 7, "y": [0, 1] * 30}), "t.csv")
    guessed, stated = (read(shell, "t.csv", "y", task)[0] for task in (None, "regression"))
    assert (guessed.task, bool(guessed.reason)) == ("classification", True)
    assert (stated.task, stated.reason) == ("regression", "")


def test_rows_without_a_target_are_left_out_and_counted_and_integers_stay_integers(shell):
    table = shell.read("homes.csv").assign(price=np.arange(90) % 2).astype({"price": object})
    table.loc[:3, "price"] = ["", "NA", "?", "sold"]
    shell.write(table, "gaps.csv")
    training, notes = read(shell, "gaps.csv", missing=["sold"])
    assert len(training.X) == len(training.y) == 86
    assert training.y.dtype.kind == "i"
    assert "4 of 90 rows left out: they have no 'price'." in notes


def test_dropped_weight_and_target_columns_are_no_features_and_are_remembered(shell):
    table = shell.read("homes.csv").assign(count=2.0)
    table.loc[0, "count"] = 0
    shell.write(table, "t.csv")
    options = ("--drop", "key", "--drop", "sold", "--weight", "count", "-o", "m.muddle")
    assert "identifier" not in fit(shell, "t.csv", "price", *options).stderr
    info = shell.json("info", "m.muddle")
    assert [row["column"] for row in info["columns"]] == ["area", "kind", "zip"]
    assert info["training"]["weight"] == "count"
    assert info["training"]["dropped"] == ["key", "sold"]
    assert shell.ok("predict", "m.muddle", "t.csv").stderr == ""  # all columns are known


@pytest.fixture
def asked(monkeypatch):
    """The arguments of a fit, which then ends with an error."""
    given = {}

    def end(self, X, y, sample_weight=None):
        given.update(self.get_params(deep=False), weights=sample_weight)
        raise ValueError("enough seen")

    monkeypatch.setattr(muddle.MuddleRegressor, "fit", end)
    return given


def test_options_reach_the_estimator(shell, asked):
    table = shell.read("homes.csv").assign(count=np.arange(90.0))
    shell.write(table, "t.csv")
    options = ("--preset", "best", "--time-limit", 7, "--device", "cuda:5", "--seed", 3)
    options += ("--without-rows",)
    said = shell.fails(
        "fit", "t.csv", "--target", "price", "--weight", "count", *options, "-o", "m.muddle"
    )
    assert said == "enough seen"
    names = ("preset", "time_limit", "device", "random_state", "keep_rows")
    assert [asked[name] for name in names] == ["best", 7, "cuda:5", 3, False]
    np.testing.assert_array_equal(asked["weights"], table["count"])


def test_a_long_table_is_noted_where_nothing_limits_the_fit(shell, asked, monkeypatch):
    monkeypatch.setattr(fitting, "MANY_ROWS", 80)
    for options, noted in ((), True), (("--time-limit", 9), False), (("--preset", "fast"), False):
        result = shell("fit", "homes.csv", "--target", "price", *options, "-o", "m.muddle")
        assert ("a fit to 90 rows may take long: --time-limit" in result.stderr) == noted


def test_categorical_columns_are_levels_as_they_are_written(shell):
    rows = [f"{1 + i % 3}.0,{i * i % 17},{i % 3 + i / 100}" for i in range(60)]
    shell.write("\n".join(["code,z,y", *rows]), "t.csv")
    fit(shell, "t.csv", "y", "--categorical", "code", "-o", "m.muddle")
    loaded = muddle.load_model(shell.folder / "m.muddle")
    assert loaded.preprocessor_.describe().loc["code", "treatment"] == "3 levels as 0/1"
    shell.ok("predict", "m.muddle", "t.csv", "-o", "p.csv")
    table = pd.read_csv(shell.folder / "t.csv", dtype={"code": str})
    np.testing.assert_allclose(
        shell.read("p.csv")["prediction"], loaded.predict(table[["code", "z"]]), rtol=1e-6
    )


def test_findings_about_the_table_are_notes(shell):
    table = shell.read("homes.csv")
    shell.write(table.assign(fee=table["price"] * 0.03), "leak.csv")
    result = fit(shell, "leak.csv", "price", "-o", "m.muddle")
    assert "Column 'fee' almost determines the target" in result.stderr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("{:.0f} €".format, "is text, though every field is a number with a unit, such as '0 €'."),
        (lambda i: "-" if i == 3 else str(i), "is text because of '-' in 1 row(s). If it means"),
        ("{:.0f}".format, None),
    ],
)
def test_texts_that_look_like_numbers_are_noted(shell, values, said):
    shell.write(
        pd.DataFrame({"z": list(map(values, range(30))), "price": np.arange(30.0)}), "t.csv"
    )
    _, notes = read(shell, "t.csv")
    assert (said is None) == (notes == [])
    assert said is None or f"column 'z' {said}" in notes[0]


def test_words_that_make_classes_of_numbers_are_named(shell):
    for i, word in ((60, "yes"), (495, "many")):
        table = pd.DataFrame({"x": np.arange(i), "price": np.arange(i) % 12}, dtype=object)
        table.loc[[7, 40], "price"] = word
        shell.write(table, "t.csv")
        training, notes = read(shell, "t.csv")
        assert training.task == "classification"
        assert (
            f"the target 'price' has classes because of '{word}' in 2 rows, first in line 9 of "
            f"{shell.folder / 't.csv'}; all other values are numbers. If it means a missing value, "
            f"pass --missing '{word}'; if the target is an amount or a count, correct the value "
            "and pass --task regression." in notes
        )
        assert not any("because" in note for note in read(shell, "t.csv", missing=[word])[1])
    table["price"] = np.where(np.arange(len(table)) % 2, "1,5", "2,25")
    shell.write(table.to_csv(index=False, sep=";").replace("0;2,25", "0.5;2,25", 1), "t.csv")
    notes = " ".join(read(shell, "t.csv")[1])
    assert "such as '2,25'. If it is 2.25, pass --decimal ','." in notes


def test_notes_name_options_and_a_text_column_once(shell):
    table = shell.read("homes.csv")
    numbers = np.arange(len(table)).astype(str)
    numbers[5] = "none so far"
    table["number"] = numbers
    shell.write(table.assign(date=[f"{i % 28 + 1:02}.03.2024" for i in range(len(table))]), "t.csv")
    notes = shell.json("fit", "t.csv", "--target", "price", *FAST, "-o", "m.muddle")["notes"]
    (said,) = (note for note in notes if "'number'" in note)
    assert "because of 'none so far' in 1 row(s)" in said
    (said,) = (note for note in notes if "'date'" in note)
    assert said.endswith("write them as 2024-01-31.")
    for text in notes:
        assert not re.search("TablePreprocessor|Muddle|pandas|sklearn|leaderboard_", text)


def test_columns_with_decimal_commas_beside_decimal_points_are_named_and_can_be_read(shell):
    i = np.arange(60)
    sizes = [f"{size:.2f}".replace(".", ",") for size in 2 + i * 7 % 60 / 10]
    few = np.array(["0,5", "1,5"])[i % 2]
    table = pd.DataFrame({"size": sizes, "few": few, "dense": 1 + i * i % 23 / 1000})
    table["rare"] = np.where(i == 7, "1,5", i)
    table["price"] = i * 7 % 60 + 0.25
    shell.write(table.to_csv(index=False, sep=";"), "t.csv")
    notes = shell.json("fit", "t.csv", "--target", "price", *FAST, "-o", "m.muddle")["notes"]
    for name, example in (("size", "2,00"), ("few", "0,5"), ("rare", "1,5")):
        (said,) = (note for note in notes if f"'{name}'" in note)
        assert f"look like numbers with a decimal comma, such as '{example}'" in said
        assert "pass --decimal ','" in said
        assert "pandas" not in said
    options = ("--target", "price", *FAST, "--decimal", ",", "-o", "m.muddle")
    notes = " ".join(shell.json("fit", "t.csv", *options)["notes"])
    assert "columns 'price', 'dense' have decimal points, such as '0.25', and are read wi" in notes
    held = {row["column"]: row["holds"] for row in shell.json("info", "m.muddle")["columns"]}
    assert held == dict.fromkeys(("size", "few", "dense", "rare"), "number")
    predict = ("predict", "m.muddle", "t.csv", "--decimal", ",")
    assert "column 'dense' has decimal points" in shell.ok(*predict, "-o", "p.csv").stderr
    assert shell.ok(*predict, "--chunk-rows", 7).stdout == shell.ok(*predict).stdout


def test_a_guess_of_the_decimal_sign_can_be_refused(shell):
    rows = "".join(f"{i},{i:03};{2 * i + i % 3}\n" for i in range(1, 60))
    shell.write("x;price\n" + rows, "t.csv")
    assert "'1,001' is read as 1.001" in " ".join(read(shell, "t.csv")[1])
    fit(shell, "t.csv", "price", "-o", "m.muddle", "--decimal", ".")
    predicted = shell.ok("predict", "m.muddle", "-", stdin="x\n30030\n").stdout.splitlines()[1]
    assert 30 < float(predicted) < 90


def test_file_without_a_header_names_columns_by_position(shell):
    shell.write("\n".join(ROWS), "t.csv")
    fit(shell, "t.csv", "2", "--no-header", "-o", "m.muddle")
    assert [row["column"] for row in shell.json("info", "m.muddle")["columns"]] == ["0", "1"]
    assert len(shell.ok("predict", "m.muddle", "t.csv", "--no-header").stdout.splitlines()) == 51
    assert "pass --no-header" in read(shell, "t.csv", "2.5")[1][0]


def test_lines_tell_the_progress_of_a_fit_and_the_time_left(capsys, monkeypatch):
    now = iter([0.0, 4.0, 20.0])
    monkeypatch.setattr(fitting.time, "monotonic", lambda: next(now))
    with fitting.show_lines(100, "first round") as reporter:
        reporter.advance(10, 0.5, 0.1)
        reporter.advance(40, 0.4, 0.2)
    assert capsys.readouterr().err == "first round: 50 %, about 20 s left\n"


def test_fit_reports_to_the_command_and_not_to_tqdm(shell, monkeypatch):
    began = []

    @contextlib.contextmanager
    def show(n_net_iterations, label):
        began.append(label)
        yield Silent()

    monkeypatch.setattr(fitting, "show_lines", show)
    fit(shell, "homes.csv", "price", "-o", "m.muddle")
    assert began == ["MuddleRegressor: first round"]
    assert muddle.load_model(shell.folder / "m.muddle").verbose is False


def make_visits(shell):
    """Visits of 12 patients in order of their days; the target is the patient's."""
    rng = np.random.default_rng(0)
    patient = rng.permutation(np.repeat(np.arange(12), 6))
    effect = rng.normal(size=12)[patient]
    table = {
        "patient": [f"P{code:02}" for code in patient],
        "day": [f"2024-{1 + row // 28:02}-{1 + row % 28:02}" for row in range(72)],
        "dose": rng.normal(size=72).round(3),
        "level": (effect + 0.05 * rng.normal(size=72)).round(3),
    }
    table["answer"] = (effect + table["dose"] + 0.1 * rng.normal(size=72)).round(3)
    shell.write(pd.DataFrame(table), "visits.csv")


def test_groups_and_time_decide_how_rows_are_held_out(shell):
    make_visits(shell)
    result = fit(shell, "visits.csv", "answer", "--groups", "patient", "-o", "m.muddle")
    assert "72 rows, 3 features" in result.stdout
    assert "Out-of-fold scores (5 folds of 12 groups)" in result.stdout
    facts = shell.json("info", "m.muddle")
    assert facts["folds"] == "5 folds of 12 groups"
    assert "patient" not in [column["column"] for column in facts["columns"]]
    assert shell.ok("predict", "m.muddle", "visits.csv").stderr == ""
    facts = json.loads(
        fit(shell, "visits.csv", "answer", "--time", "day", "--json", "-o", "t.muddle").stdout
    )
    assert facts["folds"] == "5 folds forward in time"
    assert "5 folds forward in time" in shell.ok("info", "t.muddle").stdout


def test_groups_and_time_that_cannot_be_used_are_refused(shell):
    make_visits(shell)
    ask = ("fit", "visits.csv", "--target", "answer", "-o", "m.muddle")
    said = shell.fails(*ask, "--groups", "patient", "--time", "day")
    assert said.startswith("--groups and --time exclude each other")
    assert "Did you mean 'patient'?" in shell.fails(*ask, "--groups", "patent")
    assert "another column than --target" in shell.fails(*ask, "--time", "answer")
    table = shell.read("visits.csv")
    table.loc[3, "patient"] = None
    shell.write(table, "gap.csv")
    said = shell.fails("fit", "gap.csv", *ask[2:], "--groups", "patient")
    assert said.startswith(
        "--groups must be a column without gaps, got none of 'patient' in line 5"
    )
    said = shell.fails(*ask, "--groups", "day")
    assert said.startswith("--groups must hold rows together, got 72 groups of one row each.")
