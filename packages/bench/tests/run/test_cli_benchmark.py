"""muddle methods, benchmark and report: what they print, what they write, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from muddle.cli.app import make_app
from muddle_bench.cli import fit_columns, format_seconds, read_splits

CHEAP = ["--method", "ols", "--method", "ridge", "--method", "cart", "--method", "baseline"]
HILLS = ["benchmark", "run", "--dataset", "hills", "--recipe", "clean"]


@pytest.fixture(autouse=True)
def _keep_children(lasting_children):
    """One worker process serves all tests here."""


@pytest.fixture
def where(tables, plugin, tmp_path):
    """Options of a run in a new folder."""
    places = ["--folder", tmp_path / "runs", "--data-home", tables, "--plugin", plugin]
    return [*places, "--threads", 1]


def run(*arguments, **options):
    arguments = [str(argument) for argument in arguments]
    return CliRunner().invoke(make_app(), arguments, prog_name="muddle", **options)


def succeed(*arguments, **options):
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result


def fail(*arguments):
    """The line of an error that a user can act on."""
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line.removeprefix("Error: ")


@pytest.fixture(scope="module")
def records(tables, plugin, tmp_path_factory):
    """Four methods on both tables, three splits; one of the plugin's fails, one is skipped."""
    folder = tmp_path_factory.mktemp("runs") / "cheap"
    datasets = ["--dataset", "hills", "--dataset", "trees", "--recipe", "clean"]
    own = ["--method", "bad-raise", "--method", "lacking", "--plugin", plugin]
    places = ["--folder", folder, "--data-home", tables, "--threads", 1]
    succeed("benchmark", "run", *datasets, *CHEAP, *own, "--splits", 3, *places)
    return folder


@pytest.fixture(scope="module")
def table(records, tmp_path_factory):
    out = tmp_path_factory.mktemp("tables") / "cheap.csv.gz"
    result = succeed("benchmark", "export", records, out)
    assert result.stdout == f"27 records in {out}\n"
    return out


@pytest.fixture
def copy(table, tmp_path):
    """A folder with the same records, which a test may change, and their files by name."""
    succeed("benchmark", "import", table, tmp_path / "runs")
    return {path.parent.name + path.stem: path for path in (tmp_path / "runs").rglob("*.json")}


@pytest.fixture
def edit(table, tmp_path):
    """Writes a changed copy of the table."""

    def write(change):
        path = tmp_path / "changed.csv"
        change(pd.read_csv(table, dtype=str, keep_default_na=False)).to_csv(path, index=False)
        return path

    return write


def test_methods_are_listed_with_what_they_need(plugin):
    header, *lines = succeed("methods", "--plugin", plugin).stdout.splitlines()
    assert header.split() == ["method", "family", "tasks", "what", "it", "is"]
    by_name = {line.split()[0]: line.rstrip() for line in lines if line}
    assert by_name["ols"].split()[:3] == ["ols", "GLM", "regression"]
    assert by_name["lacking"].endswith("skipped: needs no_such_package: pip it")
    n_methods, n_ready = (int(word) for word in lines[-1].split() if word.isdigit())
    assert n_methods == len(by_name) - 1
    assert n_ready < n_methods
    rows = json.loads(
        succeed("methods", "--task", "classification", "--json", "--plugin", plugin).stdout
    )
    states = {row["method"]: row["state"] for row in rows}
    assert states["qda"] == "ready"
    assert states["lacking"] == "skipped: needs no_such_package: pip it"
    assert "ols" not in states
    assert "no_such_plugin" in fail("methods", "--plugin", "no_such_plugin.py")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", 3), ("0-2", [0, 1, 2]), ("4-4", [4]), ("7,3", [7, 3]), ("0-1, 5", [0, 1, 5])],
)
def test_splits_are_how_many_or_which(text, expected):
    assert read_splits(text) == expected


@pytest.mark.parametrize("text", ["", "some", "5-3", "5-3,7", "1,", "-1", "1.5", "0..4"])
def test_splits_that_name_none_are_wrong_usage(text):
    result = run("benchmark", "run", "--suite", "smoke", f"--splits={text}")
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert "a range (0-4) or a list (3,7)" in said


def test_a_run_keeps_one_record_per_cell_and_a_second_one_has_nothing_to_do(where, tmp_path):
    folder = tmp_path / "runs"
    command = [*HILLS, "--method", "ols", "--method", "baseline", *where]
    first = succeed(*command, "--splits", "3,5")
    assert first.stdout == (f"Next: muddle benchmark rank {folder}, or muddle report {folder}\n")
    assert first.stderr.splitlines()[0] == "4 cells to run, 0 finished before"
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")}
    assert sorted(path.stem for path in times) == ["3", "3", "5", "5"]

    again = succeed(*command, "--splits", "3,5")
    assert again.stdout.startswith(
        f"Nothing to do: {folder} has a record of each of the 4 cells.\n"
    )
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")} == times

    more = succeed(*command, "--splits", "3-5", "--quiet")
    assert more.stderr == ""
    assert more.stdout.startswith(f"2 ok, 4 there before, in {folder}\n")


def test_records_lie_in_runs_and_fresh_refuses_a_full_folder(tables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [*HILLS, "--method", "baseline", "--splits", 1, "--threads", 1, "--fresh"]
    succeed(*command, "--data-home", tables)
    assert len(list((tmp_path / "runs" / "own").rglob("*.json"))) == 1
    line = fail(*command, "--data-home", tables)
    assert line.startswith("--fresh needs a new or empty folder, and runs/own holds files.")
    assert "--folder" in line


def test_a_cell_that_failed_is_run_again_on_request_only(where, tmp_path):
    command = [*HILLS, "--method", "bad-raise", "--method", "lacking", "--splits", 1, *where]
    first = succeed(*command)
    # All failed or skipped: there is nothing to rank.
    assert first.stdout == (
        f"Reasons for cells without a score: muddle benchmark status {tmp_path / 'runs'}\n"
    )
    assert "failed: bad-raise on hills, split 0: ValueError: of all things, this" in first.stderr
    assert succeed(*command, "--quiet").stdout.startswith("1 skipped, 1 there before")
    again = succeed(*command, "--retry", "failed", "--quiet").stdout
    assert again.startswith("1 failed, 1 skipped, in ")


def test_debug_raises_errors_and_keeps_no_record(where, tmp_path):
    result = run(*HILLS, "--method", "bad-raise", "--splits", 1, "--debug", *where)
    assert str(result.exception) == "of all\nthings, this"
    assert not list((tmp_path / "runs").rglob("*.json"))
    command = ["benchmark", "run", "--suite", "smok", *where]
    assert "Did you mean 'smoke'?" in fail(*command)
    assert isinstance(run(*command, "--debug").exception, ValueError)
    assert isinstance(run("--debug", *command).exception, ValueError)


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(where, notes, wait_until_gone):
    (notes / "pid").unlink(missing_ok=True)
    options = ["--method", "bad-hang-with-child", "--splits", "1", "--quiet", *where]
    process = subprocess.Popen(
        [sys.executable, "-m", "muddle", *map(str, [*HILLS, *options])],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        while not (notes / "pid").exists() and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert said == "Stopped. Finished cells are kept: the same command continues.\n"
    assert wait_until_gone(int((notes / "pid").read_text()))  # the method had started it


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a suite (--suite smoke, regression, classification, all, own) or data sets"),
        (["--dataset", "hils"], "no data set named 'hils'. Did you mean 'hills'?"),
        (["--dataset", "hills", "--recipe", "clean", "--method", "rige"], "Did you mean 'ridge'?"),
        (["--dataset", "hills"], "recipe='published' is for the data sets of the paper"),
        (["--suite", "smoke", "--jobs", 0], "jobs must be at least 1"),
        (["--suite", "smoke", "--splits", 0], "splits must be at least 1"),
        (["--suite", "smoke", "--threads", 0], "threads must be at least 1"),
        (["--suite", "smoke", "--time-limit", -1], "time_limit must be above 0"),
        (["--suite", "smoke", "--max-rows", 5], "the smallest has"),
        (["--suite", "own", "--recipe", "clean", "--part", "development"], "the development part"),
    ],
)
def test_a_run_that_cannot_start_says_why_and_writes_nothing(where, tmp_path, arguments, said):
    assert said in fail("benchmark", "run", *where, *arguments)
    assert not (tmp_path / "runs").exists()


def test_status_counts_the_states_of_each_method_and_gives_reasons(records):
    lines = succeed("benchmark", "status", records).stdout.splitlines()
    rows = [line.split() for line in lines]
    assert rows[0] == ["method", "ok", "failed", "timeout", "skipped", "stale", "missing"]
    assert ["baseline", "6", "0", "0", "0", "0", "0"] in rows
    assert ["ols", "3", "0", "0", "0", "0", "0"] in rows
    assert ["bad-raise", "0", "3", "0", "0", "0", "0"] in rows
    assert ["lacking", "0", "0", "0", "6", "0", "0"] in rows
    assert "27 records: 18 ok, 3 failed, 6 skipped" in lines
    assert ["bad-raise", "3", "ValueError:", "of", "all", "things,", "this"] in rows


def change_record(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_status_tells_missing_stale_and_damaged(copy, tmp_path):
    folder = tmp_path / "runs"
    copy["ols0"].unlink()
    change_record(copy["ridge1"], fingerprint="0" * 12)
    copy["cart2"].write_text("{")
    for number in range(3):
        change_record(copy[f"bad-raise{number}"], reason=f"ran out after {number} rows")
    told = json.loads(succeed("benchmark", "status", folder, "--json").stdout)
    by_name = {row.pop("method"): row for row in told["methods"]}
    assert (by_name["ols"]["ok"], by_name["ols"]["missing"]) == (2, 1)
    assert (by_name["ridge"]["ok"], by_name["ridge"]["stale"]) == (2, 1)
    assert len(told["damaged"]) == 1
    assert str(copy["cart2"]) in told["damaged"][0]
    # Reasons that differ only in numbers are told once.
    assert {row["method"]: (row["cells"], row["reason"]) for row in told["reasons"]} == {
        "bad-raise": (3, "ran out after 0 rows"),
        "lacking": (6, "needs no_such_package: pip it"),
    }
    assert "damaged, so not counted as finished" in succeed("benchmark", "status", folder).stderr
    quick = json.loads(succeed("benchmark", "status", folder, "--json", "--quick").stdout)
    assert not any(row["stale"] for row in quick["methods"])


def test_status_of_a_folder_without_records(tmp_path):
    assert succeed("benchmark", "status", tmp_path).stdout == (
        f"There are no records in {tmp_path}.\n"
    )


@pytest.mark.parametrize("command", ["status", "export"])
def test_a_folder_that_is_not_there_is_an_error(tmp_path, command):
    more = [tmp_path / "out.csv"] if command == "export" else []
    line = fail("benchmark", command, tmp_path / "nothing", *more)
    assert line.startswith(f"there is no folder {tmp_path / 'nothing'}. `muddle benchmark run`")


def test_import_keeps_what_is_there_unless_told_to_replace(copy, edit, tmp_path):
    folder = tmp_path / "runs"

    def change(frame):
        frame.loc[frame["method"] == "ols", ["r2", "fingerprint"]] = ["0.5", "0" * 12]
        return frame

    kept = succeed("benchmark", "import", edit(change), folder)
    assert kept.stdout == f"24 the same, 3 kept as they were, in {folder}\n"
    assert kept.stderr.count("Warning: kept, but of another configuration: ols on hills") == 3
    replaced = succeed("benchmark", "import", edit(change), folder, "--replace")
    assert replaced.stdout == f"3 replaced, 24 the same, in {folder}\n"
    # One record of another configuration among three is worth a warning.
    change_record(copy["ols0"], fingerprint="1" * 12)
    exported = succeed("benchmark", "export", folder, tmp_path / "out.csv")
    assert "records of ols (regression) come from more than one configuration" in exported.stderr


def test_a_table_of_another_kind_is_an_error(tmp_path, records):
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    assert "other.csv, line 1" in fail("benchmark", "import", other, tmp_path / "runs")
    assert "must have the columns recipe, task" in fail("benchmark", "rank", other)
    assert "is a .csv or .csv.gz file" in fail("benchmark", "export", records, tmp_path / "x.txt")


def test_rank_shows_a_board_per_task(table, records):
    text = succeed("benchmark", "rank", table).stdout
    assert run("benchmark", "rank", records).stdout == text
    assert "left out, never finished: 3 failed: bad-raise" in text
    boards = {}
    for block in text.strip().split("\n\n"):
        title, *lines = block.splitlines()
        boards[title] = [line.split() for line in lines]
    assert list(boards) == [
        "regression, R² (higher is better): 3 pairs of data set and split, 1 data set",
        "classification, accuracy (higher is better): 3 pairs of data set and split, 1 data set",
    ]
    regression, classification = boards.values()
    assert " ".join(regression[0]) == (
        "method family rank mean 95 % interval P90 P95 P98 PMA wins fit s"
    )
    methods = [row[0] for row in regression[1:5]]
    assert set(methods) == {"ols", "ridge", "cart", "baseline"}
    assert methods[-1] == "baseline"
    assert regression[4][:3] == ["baseline", "Baseline", "4.00"]
    assert {row[0] for row in classification[1:3]} == {"cart", "baseline"}


def test_rank_numbers_are_those_of_the_ranking_for_any_metric(table):
    from muddle_bench.ranking import rank_methods, read_table

    expected = rank_methods(read_table(table), "r2")
    (board,) = json.loads(
        succeed("benchmark", "rank", table, "--metric", "r2", "--json").stdout
    ).values()
    assert [row["method"] for row in board["rows"]] == expected["method"].tolist()
    np.testing.assert_allclose([row["mean"] for row in board["rows"]], expected["mean"])
    assert (board["task"], board["n_pairs"]) == ("regression", 3)
    text = succeed("benchmark", "rank", table, "--metric", "log_loss").stdout
    assert text.startswith("classification, log-loss (lower is better): 3 pairs")
    assert "PMA" not in text  # has no meaning for a loss
    assert "Did you mean 'log_loss'?" in fail("benchmark", "rank", table, "--metric", "logloss")


def rank_r2(path, *options):
    return succeed("benchmark", "rank", path, "--metric", "r2", *options).stdout


def lose(status):
    """Change one cell of ols."""

    def change(frame):
        last = (frame["method"] == "ols") & (frame["split"] == "2")
        frame.loc[last, ["status", "reason", "r2"]] = [status, "bad luck", ""]
        return frame

    return change


def stop(frame):
    return frame[(frame["split"] != "2") | ~frame["method"].isin(["ols", "ridge"])]


@pytest.mark.parametrize(
    ("change", "options", "n_pairs", "note"),
    [
        (lose("failed"), [], 3, "failed or timed out, and ranked with the baseline's score: ols 1"),
        (stop, [], 2, "1 of 3 pairs left out: not run yet for some methods"),
        (lose("skipped"), [], 3, "left out, lacks 1 of 3 pairs: 1 skipped: ols"),
        (lose("skipped"), [0.5], 2, "1 of 3 pairs left out: missing for some methods"),
        (lambda frame: frame[frame["split"] == "0"], [], 1, ""),
    ],
)
def test_rank_notes_what_it_filled_in_or_left_out(edit, change, options, n_pairs, note):
    options = ["--max-missing", *options] if options else []
    text = rank_r2(edit(change), *options)
    assert text.startswith(f"regression, R² (higher is better): {n_pairs} pair")
    assert note in text
    assert ("interval" in text) == (n_pairs > 1)
    (board,) = json.loads(rank_r2(edit(change), "--json", *options)).values()
    assert len(board["left_out_pairs"]) == ("pairs left out" in note)
    assert {row["method"] for row in board["rows"]} >= {"ridge", "cart", "baseline"}


def test_rank_of_families_names_the_members_that_were_chosen(table, edit):
    text = succeed("benchmark", "rank", table, "--families", "--metric", "r2").stdout
    header, *rows = [line.split() for line in text.splitlines()[1:]]
    assert header[0] == "family"
    assert header[-2:] == ["members", "chosen"]
    by_family = {row[0]: row for row in rows if row}
    assert by_family["TREE"][-2:] == ["cart", "1"]
    others = succeed(
        "benchmark", "rank", table, "--families", "--metric", "r2", "--choose", "other-splits"
    ).stdout
    assert "cart 3" in others  # chosen for each pair instead of each data set
    own = edit(lambda frame: frame.replace({"method": {"cart": "own"}, "family": {"TREE": "Own"}}))
    assert "Own" in rank_r2(own, "--families", "--members", "all")
    assert "Own" not in rank_r2(own, "--families", "--members", "published")
    for option in (["--choose", "test"], ["--members", "all"]):
        assert "add --families" in fail("benchmark", "rank", table, *option)


def test_rank_writes_one_table_with_all_columns_as_csv_or_tex(table, tmp_path):
    line = fail("benchmark", "rank", table, "-o", tmp_path / "board.csv")
    assert line == "a file holds one table: choose it with --metric (r2 or accuracy)."
    line = fail("benchmark", "rank", table, "--metric", "r2", "-o", tmp_path / "board.txt")
    assert line == "--output must end in .csv or .tex, got 'board.txt'."
    assert not list(tmp_path.iterdir())
    out = tmp_path / "board.csv"
    result = succeed("benchmark", "rank", table, "--metric", "r2", "-o", out)
    assert result.stdout == f"4 rows in {out}\n"
    board = pd.read_csv(out)
    assert len(board) == 4
    assert {"std_difference", "rank_low", "shared_fit", "imputed"} <= set(board)
    tex = tmp_path / "new" / "board.tex"
    succeed("benchmark", "rank", table, "--metric", "r2", "--output", tex)
    assert tex.read_text().startswith(r"\begin{tabular}")


def test_rank_of_two_recipes_wants_a_choice_and_nothing_without_a_score_is_ranked(table, edit):
    both = edit(lambda frame: pd.concat([frame, frame.assign(recipe="published")]))
    assert "Choose: --recipe clean." in fail("benchmark", "rank", both)
    chosen = succeed("benchmark", "rank", both, "--recipe", "clean").stdout
    assert chosen == succeed("benchmark", "rank", table).stdout
    line = fail("benchmark", "rank", table, "--recipe", "published")
    assert line == "no record has the recipe published; there is clean."
    line = fail("benchmark", "rank", edit(lambda frame: frame[frame["method"] == "bad-raise"]))
    assert line == "none of the 3 records has a score. `muddle benchmark status` shows why."


@pytest.mark.parametrize("command", [["benchmark", "rank"], ["report"]])
def test_a_source_that_is_not_there_or_empty_is_an_error(tmp_path, command):
    assert "there is no exported table" in fail(*command, tmp_path / "nothing.csv")
    line = fail(*command, tmp_path)
    assert line == f"there are no records in {tmp_path}. `muddle benchmark run` makes them."


def test_ranking_and_listing_do_not_import_torch(table, tables):
    code = (
        "import sys; from muddle.cli.app import make_app\n"
        f"for words in (['benchmark', 'rank', {str(table)!r}], "
        f"['methods'], ['datasets', '--data-home', {str(tables)!r}]):\n"
        "    make_app()(words, standalone_mode=False)\n"
        "assert 'torch' not in sys.modules\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "baseline" in ended.stdout
    assert "servo" in ended.stdout


def test_a_narrow_terminal_gets_the_columns_that_matter_most():
    rows = [{"method": "m" * 20, "family": "GBDT", "rank": "1.00", "mean": "0.900", "P98": "5%"}]
    assert fit_columns(rows, 80) == ["method", "family", "rank", "mean", "P98"]
    assert fit_columns(rows, 20 + 2 + 6 + 2 + 4 + 2 + 5) == ["method", "family", "rank", "mean"]
    assert fit_columns(rows, 20 + 2 + 6 + 2 + 4 + 2 + 4) == ["method", "rank", "mean"]
    assert fit_columns(rows, 5) == ["method", "rank", "mean"]  # these always
    assert [format_seconds(s) for s in (272.346, 1.3, 0.004)] == ["272.35", "1.30", "<0.01"]
    assert format_seconds(float("nan")) == ""


def test_report_writes_the_page_and_its_tables(records, tmp_path):
    page = tmp_path / "page.html"
    options = ["--title", "Hills & trees", "--command", "muddle benchmark run --suite mine"]
    result = succeed("report", records, "--output", page, *options)
    assert result.stdout == f"{page}, its tables in {tmp_path / 'page_tables'}\n"
    html = page.read_text()
    assert "Hills &amp; trees" in html
    assert "muddle benchmark run --suite mine" in html
    assert list((tmp_path / "page_tables").glob("*.csv"))
    line = fail("report", records, "--output", tmp_path / "page.pdf")
    assert "the page must be an HTML file" in line
