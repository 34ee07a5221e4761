"""muddle fit: what it reads, says and writes."""

import contextlib
import gzip
import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import muddle
from muddle.cli.models import fit as fit_command
from muddle.cli.models import fit_progress
from muddle.cli.models.printing import format_seconds, format_size
from muddle.training.jobs import Silent

FAST = ("--preset", "fast", "--device", "cpu")


def fit(shell, data, target, *options, stdin=None):
    return shell.ok("fit", data, "--target", target, *FAST, *options, stdin=stdin)


def test_summary_names_scores_members_columns_file_and_the_next_command(shell):
    result = fit(shell, "homes.csv", "price", "-o", "model.muddle")
    first = result.stdout.splitlines()[0]
    assert first == "homes.csv: 90 rows, 5 features, target 'price': regression"
    for part in ("R²", "RMSE", "MAE", "Intervals of 90 % hold", "configuration", "area"):
        assert part in result.stdout
    assert "Next: muddle predict model.muddle NEW.csv --interval 0.9" in result.stdout
    assert "task guessed: regression, as the target has 90 values" in result.stderr
    assert "column 'key' is an identifier" in result.stderr
    assert (shell.folder / "model.muddle").stat().st_size > 1000


def test_json_is_all_of_the_standard_output(shell):
    facts = json.loads(fit(shell, "dear.csv", "dear", "-o", "m.muddle", "--json").stdout)
    assert facts["task"] == "classification"
    assert facts["classes"] == ["no", "yes"]
    assert facts["origin"]["target"] == "dear"
    assert facts["size"] == (shell.folder / "m.muddle").stat().st_size
    assert set(facts["scores"]) == {"accuracy", "auc", "log_loss", "calibration_error"}
    assert 0.5 < facts["scores"]["accuracy"] <= 1
    assert facts["importances"][0]["column"] == "area"
    assert any("task guessed: classification" in note for note in facts["notes"])


def test_model_is_the_one_that_python_fits_to_the_same_table(shell):
    fit(shell, "homes.csv", "price", "-o", "m.muddle", "--seed", 3)
    table = shell.read("homes.csv", dtype={"zip": str})
    X, y = table.drop(columns="price"), table["price"]
    preprocessor = muddle.TablePreprocessor(scaling="robust+clip")
    same = muddle.MuddleRegressor(
        preset="fast", device="cpu", random_state=3, preprocessor=preprocessor
    )
    with pytest.warns(UserWarning, match="identifier"):
        same.fit(X, y)
    loaded = muddle.load(shell.folder / "m.muddle")
    np.testing.assert_allclose(loaded.predict(X), same.predict(X), rtol=1e-5)


@pytest.mark.parametrize("form", ["tsv", "semicolon", "csv.gz", "parquet", "feather", "stdin"])
def test_every_format_gives_the_model_of_the_csv(shell, form):
    table = shell.read("homes.csv", dtype={"zip": str})
    name, stdin = f"table.{form}", None
    path = shell.folder / name
    if form == "tsv":
        table.to_csv(path, sep="\t", index=False)
    elif form == "semicolon":
        name = "table.csv"
        table.to_csv(shell.folder / name, sep=";", index=False)
    elif form == "csv.gz":
        path.write_bytes(gzip.compress((shell.folder / "homes.csv").read_bytes()))
    elif form == "stdin":
        name, stdin = "-", (shell.folder / "homes.csv").read_text()
    else:
        pytest.importorskip("pyarrow")
        getattr(table, f"to_{form}")(path)
    fit(shell, name, "price", "-o", "other.muddle", stdin=stdin)
    rows = table.drop(columns="price")
    expected = muddle.load(shell.folder / "price.muddle").predict(rows)
    found = muddle.load(shell.folder / "other.muddle").predict(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "options", "task"),
    [
        ([0, 1], (), "classification"),
        ([1.5, 2.5, 7.25], (), "regression"),
        (["True", "False"], (), "classification"),
        ([0, 1], ("--task", "regression"), "regression"),
        (["a", "b", "c"], (), "classification"),
    ],
)
def test_task_is_guessed_unless_stated(shell, values, options, task):
    target = [values[i % len(values)] for i in range(60)]
    table = pd.DataFrame({"x": np.arange(60) % 7, "z": np.arange(60) ** 2, "y": target})
    table.to_csv(shell.folder / "t.csv", index=False)
    facts = json.loads(fit(shell, "t.csv", "y", "-o", "m.muddle", "--json", *options).stdout)
    assert facts["task"] == task
    assert any("task guessed" in note for note in facts["notes"]) == (not options)


def test_rows_without_a_target_are_left_out_and_counted(shell):
    table = shell.read("homes.csv", dtype={"zip": str})
    table["price"] = table["price"].astype(object)
    table.loc[:3, "price"] = ["", "NA", "?", "sold"]
    table.to_csv(shell.folder / "gaps.csv", index=False)
    options = ("-o", "m.muddle", "--json", "--missing", "sold")
    facts = json.loads(fit(shell, "gaps.csv", "price", *options).stdout)
    assert facts["origin"]["rows"] == 86
    assert "4 of 90 rows left out: they have no 'price'." in facts["notes"]


def test_whole_numbers_stay_whole_numbers_where_rows_without_a_target_were_left_out(shell):
    rows = [f"{i % 7},{i * i},{'' if i == 5 else i % 2}" for i in range(40)]
    (shell.folder / "t.csv").write_text("\n".join(["x,z,y", *rows]))
    facts = json.loads(fit(shell, "t.csv", "y", "-o", "m.muddle", "--json").stdout)
    assert facts["classes"] == [0, 1]


def test_dropped_weight_and_target_columns_are_no_features_and_are_remembered(shell):
    table = shell.read("homes.csv", dtype={"zip": str}).assign(count=2.0)
    table.loc[0, "count"] = 0
    table.to_csv(shell.folder / "t.csv", index=False)
    options = ("--drop", "key", "--drop", "sold", "--weight", "count", "-o", "m.muddle")
    result = fit(shell, "t.csv", "price", *options)
    assert "identifier" not in result.stderr
    info = shell.json("info", "m.muddle")
    assert [row["column"] for row in info["columns"]] == ["area", "kind", "zip"]
    assert info["training"]["weight"] == "count"
    assert info["training"]["dropped"] == ["key", "sold"]
    assert shell.ok("predict", "m.muddle", "t.csv").stderr == ""  # none of them is a surprise


@pytest.fixture
def asked(monkeypatch):
    """What a fit would be given, which then ends with an error."""
    given = {}

    def end(self, X, y, sample_weight=None):
        given.update(self.get_params(deep=False), weights=sample_weight)
        raise ValueError("enough seen")

    monkeypatch.setattr(muddle.MuddleRegressor, "fit", end)
    return given


def test_options_reach_the_estimator(shell, asked):
    table = shell.read("homes.csv", dtype={"zip": str}).assign(count=np.arange(90.0))
    table.to_csv(shell.folder / "t.csv", index=False)
    options = ("--preset", "best", "--time-limit", 7, "--device", "cuda:5", "--seed", 3)
    said = shell.fails(
        "fit", "t.csv", "--target", "price", "--weight", "count", *options, "-o", "m.muddle"
    )
    assert said == "enough seen"
    names = ("preset", "time_limit", "device", "random_state")
    assert [asked[name] for name in names] == ["best", 7, "cuda:5", 3]
    np.testing.assert_array_equal(asked["weights"], table["count"])


@pytest.mark.parametrize(
    ("options", "noted"), [((), True), (("--time-limit", 9), False), (("--preset", "fast"), False)]
)
def test_a_long_table_is_noted_where_nothing_bounds_the_fit(
    shell, asked, monkeypatch, options, noted
):
    monkeypatch.setattr(fit_command, "MANY_ROWS", 80)
    result = shell("fit", "homes.csv", "--target", "price", *options, "-o", "m.muddle")
    assert ("90 rows may take long: --time-limit SECONDS bounds it." in result.stderr) == noted


def test_categorical_columns_are_levels_as_they_are_written(shell):
    rows = [f"{1 + i % 3}.0,{i * i % 17},{i % 3 + i / 100}" for i in range(60)]
    (shell.folder / "t.csv").write_text("\n".join(["code,z,y", *rows]))
    fit(shell, "t.csv", "y", "--categorical", "code", "-o", "m.muddle")
    loaded = muddle.load(shell.folder / "m.muddle")
    assert loaded.preprocessor_.describe().loc["code", "treatment"] == "3 levels as 0/1"
    shell.ok("predict", "m.muddle", "t.csv", "-o", "p.csv")
    np.testing.assert_allclose(
        shell.read("p.csv")["prediction"],
        loaded.predict(shell.read("t.csv", dtype={"code": str})[["code", "z"]]),
        rtol=1e-6,
    )


def test_codes_with_zeros_in_front_are_no_numbers(shell):
    (kind,) = [
        row["holds"]
        for row in shell.json("info", "price.muddle")["columns"]
        if row["column"] == "zip"
    ]
    assert kind == "text"


def test_findings_about_the_table_are_notes(shell):
    table = shell.read("homes.csv", dtype={"zip": str})
    table["fee"] = table["price"] * 0.03
    table.to_csv(shell.folder / "leak.csv", index=False)
    result = fit(shell, "leak.csv", "price", "-o", "m.muddle")
    assert "Column 'fee' almost determines the target" in result.stderr


def test_report_is_written_beside_the_model(shell):
    pytest.importorskip("matplotlib")
    result = fit(shell, "homes.csv", "price", "-o", "m.muddle", "--report", "page.html")
    assert "Wrote page.html" in result.stdout
    assert "<html" in (shell.folder / "page.html").read_text(encoding="utf-8")


def test_a_tilde_that_the_shell_leaves_is_the_home_folder(shell, monkeypatch):
    monkeypatch.setenv("HOME", str(shell.folder))
    fit(shell, "homes.csv", "price", "--output=~/home.muddle", "--report=~/home.html")
    assert {"home.muddle", "home.html"} <= {path.name for path in shell.folder.iterdir()}


def test_sizes_and_times_are_in_units_of_their_own():
    sizes = [format_size(n) for n in (999, 1000, 250_000, 3_210_000, 5 * 10**12)]
    assert sizes == ["999 bytes", "1.0 kB", "250 kB", "3.2 MB", "5000 GB"]
    times = [format_seconds(seconds) for seconds in (1.23, 12.3, 99, 150)]
    assert times == ["1.2 s", "12 s", "99 s", "2 min"]


def test_a_model_that_is_there_is_replaced(shell):
    before = (shell.folder / "dear.muddle").read_bytes()
    fit(shell, "homes.csv", "price", "-o", "dear.muddle")
    assert (shell.folder / "dear.muddle").read_bytes() != before
    assert shell.json("info", "dear.muddle")["task"] == "regression"


def test_file_without_a_header_names_columns_by_position(shell):
    rows = [f"{i % 7},{i * i % 23},{i % 7 + 0.5}" for i in range(50)]
    (shell.folder / "t.csv").write_text("\n".join(rows))
    fit(shell, "t.csv", "2", "--no-header", "-o", "m.muddle")
    assert [row["column"] for row in shell.json("info", "m.muddle")["columns"]] == ["0", "1"]
    assert len(shell.ok("predict", "m.muddle", "t.csv", "--no-header").stdout.splitlines()) == 51


def test_a_first_line_of_numbers_gets_a_note(shell):
    rows = [f"{i % 7},{i * i % 23},{i % 7 + 0.5}" for i in range(2, 50)]
    (shell.folder / "t.csv").write_text("\n".join(rows))
    result = fit(shell, "t.csv", "2.5", "-o", "m.muddle")
    assert "say --no-header" in result.stderr


def test_quiet_says_neither_notes_nor_progress(shell):
    result = fit(shell, "homes.csv", "price", "-o", "m.muddle", "--quiet")
    assert result.stderr == ""


def test_larger_table_with_strings_and_gaps_works_first_time(shell):
    rng = np.random.default_rng(0)
    n_rows = 3000
    table = pd.DataFrame(rng.normal(size=(n_rows, 10)).round(4)).add_prefix("n")
    for name in ("s0", "s1"):
        table[name] = rng.choice([f"level {i}" for i in range(40)], n_rows)
    table["y"] = (table["n0"] + table["n1"] * (table["s0"] < "level 2")).round(4)
    table = table.mask(rng.random(table.shape) < 0.05)
    table.to_csv(shell.folder / "large.csv", index=False)
    result = fit(shell, "large.csv", "y", "--time-limit", "20", "-o", "m.muddle", "--json")
    facts = json.loads(result.stdout)
    assert facts["scores"]["r2"] > 0.3
    assert facts["seconds"] < 60


def test_lines_tell_how_far_a_fit_is_and_the_time_left(capsys, monkeypatch):
    now = iter([0.0, 4.0, 20.0])
    monkeypatch.setattr(fit_progress.time, "monotonic", lambda: next(now))
    with fit_progress.show_lines(100, "first round") as reporter:
        reporter.advance(10, 0.5, 0.1)
        reporter.advance(40, 0.4, 0.2)
    assert capsys.readouterr().err == "first round: 50 %, about 20 s left\n"


def test_bar_counts_what_the_fit_reports(monkeypatch):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100)
    monkeypatch.setattr(fit_progress, "make_console", lambda **_: console)
    with fit_progress.show_bar(100, "first round") as reporter:
        reporter.advance(100, 0.5, 0.1)
        reporter.say("two groups")
    assert "first round" in stream.getvalue()
    assert "100%" in stream.getvalue()
    assert "two groups" in stream.getvalue()


def test_fit_reports_to_the_command_and_not_to_tqdm(shell, monkeypatch):
    began = []

    @contextlib.contextmanager
    def show(n_net_iterations, label):
        began.append(label)
        yield Silent()

    monkeypatch.setattr(fit_progress, "show_lines", show)
    fit(shell, "homes.csv", "price", "-o", "m.muddle")
    assert began == ["MuddleRegressor: first round"]
    assert muddle.load(shell.folder / "m.muddle").verbose is False
