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
from muddle_bench.run import sweep, workers

CATALOGUE = """
[hills]
file = "hills.csv"
target = "height"
task = "regression"
[trees]
file = "trees.csv"
target = "kind"
task = "classification"
"""
PLUGIN = """
import time
from pathlib import Path

from sklearn.dummy import DummyRegressor

from muddle_bench.methods.method import Method

HERE = Path(__file__).parent


class Broken(DummyRegressor):
    def fit(self, X, y):
        if not (HERE / "mended").exists():
            raise RuntimeError("out of order")
        return super().fit(X, y)


class Hanging(DummyRegressor):
    def fit(self, X, y):
        (HERE / "hanging").touch()
        time.sleep(600)


ONLY = {"tasks": ("regression",)}
METHODS = [
    Method("broken", "Own", lambda request: Broken(), title="raises", **ONLY),
    Method("hanging", "Own", lambda request: Hanging(), title="never ends", **ONLY),
    Method(
        "lacking", "Own", lambda request: DummyRegressor(), title="lacks",
        packages=("no_such_package",), install="pip install it", **ONLY,
    ),
]
"""
CHEAP = ["--method", "ols", "--method", "ridge", "--method", "cart", "--method", "baseline"]
HILLS = ["benchmark", "run", "--dataset", "hills", "--recipe", "clean"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A data folder with two tables of 40 rows: hills (numbers) and trees (two classes)."""
    home = tmp_path_factory.mktemp("home")
    (home / "raw").mkdir()
    (home / "catalogue.toml").write_text(CATALOGUE)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    hills = pd.DataFrame({"width": X[:, 0], "slope": X[:, 1], "height": X @ [2.0, -1.0]})
    hills["height"] += 0.3 * rng.normal(size=40)
    hills.round(3).to_csv(home / "raw" / "hills.csv", index=False)
    kinds = np.where(X[:, 0] + 0.5 * rng.normal(size=40) > 0, "ash", "birch")
    trees = pd.DataFrame({"girth": X[:, 0], "age": X[:, 1], "kind": kinds})
    trees.round(3).to_csv(home / "raw" / "trees.csv", index=False)
    return home


@pytest.fixture(scope="module", autouse=True)
def lasting_children():
    """One worker process serves all tests here: starting one takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (workers, sweep):
            patch.setattr(module, "stop_children", lambda: None)
        yield
    workers.stop_children()


@pytest.fixture(scope="module")
def plugin_file(tmp_path_factory):
    """One for all: a process takes two plugins of the same name for a mistake."""
    path = tmp_path_factory.mktemp("plugin") / "own_methods.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture
def plugin(plugin_file):
    yield plugin_file
    for name in ("mended", "hanging"):
        plugin_file.with_name(name).unlink(missing_ok=True)


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
def records(home, plugin_file, tmp_path_factory):
    """Four methods on both tables, three splits; one of the plugin's fails, one is skipped."""
    folder = tmp_path_factory.mktemp("runs") / "cheap"
    tables = ["--dataset", "hills", "--dataset", "trees", "--recipe", "clean"]
    own = ["--method", "broken", "--method", "lacking", "--plugin", plugin_file]
    where = ["--folder", folder, "--data-home", home, "--threads", 1]
    succeed("benchmark", "run", *tables, *CHEAP, *own, "--splits", 3, *where)
    return folder


@pytest.fixture(scope="module")
def table(records, tmp_path_factory):
    out = tmp_path_factory.mktemp("tables") / "cheap.csv.gz"
    result = succeed("benchmark", "export", records, out)
    assert result.stdout == f"24 records in {out}\n"
    return out


# muddle methods


def test_methods_are_listed_with_what_they_need(plugin):
    text = succeed("methods", "--plugin", plugin).stdout
    header, *lines = text.splitlines()
    assert header.split() == ["method", "family", "tasks", "what", "it", "is"]
    by_name = {line.split()[0]: line.rstrip() for line in lines if line}
    assert "GLM        regression" in by_name["ols"]
    assert by_name["lacking"].endswith("lacks; skipped: needs no_such_package: pip install it")
    n_methods, n_ready = (int(word) for word in lines[-1].split() if word.isdigit())
    assert n_methods == len(by_name) - 1
    assert n_ready < n_methods

    rows = json.loads(succeed("methods", "--json", "--plugin", plugin).stdout)
    states = {row["method"]: row["state"] for row in rows}
    assert states["ols"] == "ready"
    assert states["lacking"] == "skipped: needs no_such_package: pip install it"
    rows = json.loads(succeed("methods", "--task", "classification", "--json").stdout)
    names = {row["method"] for row in rows}
    assert "qda" in names
    assert "ols" not in names


def test_a_plugin_that_is_not_there_is_an_error():
    assert "no_such_plugin" in fail("methods", "--plugin", "no_such_plugin.py")


# muddle benchmark run


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


def test_a_run_keeps_one_record_per_cell_and_a_second_one_has_nothing_to_do(home, tmp_path):
    folder = tmp_path / "runs"
    where = ["--folder", folder, "--data-home", home, "--threads", 1]
    command = [*HILLS, "--method", "ols", "--method", "baseline", *where]
    first = succeed(*command, "--splits", "3,5")
    assert first.stdout == (f"Next: muddle benchmark rank {folder}, or muddle report {folder}\n")
    assert first.stderr.splitlines()[0] == "4 cells to run, 0 finished before"
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.json"))
    assert len(paths) == 4
    assert {path.stem for path in paths} == {"3", "5"}
    times = [path.stat().st_mtime_ns for path in sorted(folder.rglob("*.json"))]

    again = succeed(*command, "--splits", "3,5")
    assert again.stdout.startswith(
        f"Nothing to do: {folder} has a record of each of the 4 cells.\n"
    )
    assert [path.stat().st_mtime_ns for path in sorted(folder.rglob("*.json"))] == times

    more = succeed(*command, "--splits", "3-5", "--quiet")
    assert more.stderr == ""
    assert more.stdout.startswith(f"2 ok, 4 there before, in {folder}\n")


def test_records_lie_in_runs_by_default(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    succeed(*HILLS, "--method", "baseline", "--splits", 1, "--threads", 1, "--data-home", home)
    assert len(list((tmp_path / "runs" / "own").rglob("*.json"))) == 1


def test_fresh_refuses_a_folder_that_holds_files(home, tmp_path):
    command = [*HILLS, "--method", "baseline", "--splits", 1, "--threads", 1, "--data-home", home]
    folder = tmp_path / "runs"
    folder.mkdir()
    succeed(*command, "--folder", folder, "--fresh")
    line = fail(*command, "--folder", folder, "--fresh")
    assert line.startswith(f"--fresh needs a new or empty folder, and {folder} holds files.")
    assert "--folder" in line


def test_a_cell_that_failed_is_run_again_on_request_only(home, plugin, tmp_path):
    folder = tmp_path / "runs"
    where = ["--folder", folder, "--data-home", home, "--plugin", plugin, "--threads", 1]
    command = [*HILLS, "--method", "broken", "--splits", 1, *where]
    first = succeed(*command)
    assert f"Reasons for cells without a score: muddle benchmark status {folder}" in first.stdout
    assert "failed: broken on hills, split 0: RuntimeError: out of order" in first.stderr
    (plugin.parent / "mended").touch()
    assert "Nothing to do" in succeed(*command).stdout
    assert succeed(*command, "--retry", "failed", "--quiet").stdout.startswith("1 ok")
    assert "Nothing to do" in succeed(*command, "--retry", "failed").stdout


def test_a_run_in_which_all_is_skipped_points_to_the_reasons_and_not_to_a_ranking(
    home, plugin, tmp_path
):
    where = ["--folder", tmp_path / "runs", "--data-home", home, "--plugin", plugin]
    ended = succeed(*HILLS, "--method", "lacking", "--splits", 1, "--threads", 1, *where)
    assert ended.stdout == (
        f"Reasons for cells without a score: muddle benchmark status {tmp_path / 'runs'}\n"
    )


def test_a_cell_past_the_time_limit_is_a_record(home, plugin, tmp_path):
    folder = tmp_path / "runs"
    where = ["--folder", folder, "--data-home", home, "--plugin", plugin, "--threads", 1]
    command = [*HILLS, "--method", "hanging", "--splits", 1, "--time-limit", 0.3, *where]
    assert succeed(*command, "--quiet").stdout.startswith(f"1 timeout, in {folder}\n")
    (reason,) = json.loads(succeed("benchmark", "status", folder, "--json").stdout)["reasons"]
    assert (reason["method"], reason["cells"]) == ("hanging", 1)
    assert "0.3" in reason["reason"]


@pytest.mark.parametrize("before", [[], ["--debug"]])
def test_debug_raises_what_the_method_raised_and_keeps_no_record(home, plugin, tmp_path, before):
    where = ["--folder", tmp_path / "runs", "--data-home", home, "--plugin", plugin]
    options = ["--method", "broken", "--splits", 1, "--threads", 1, "--debug"]
    result = run(*before, *HILLS, *options, *where)
    assert isinstance(result.exception, RuntimeError)
    assert str(result.exception) == "out of order"
    assert not list((tmp_path / "runs").rglob("*.json"))


def test_debug_of_a_run_lets_errors_through_that_are_one_line_otherwise(tmp_path):
    command = ["benchmark", "run", "--suite", "smok", "--folder", tmp_path / "runs"]
    assert "Did you mean 'smoke'?" in fail(*command)
    assert isinstance(run(*command, "--debug").exception, ValueError)
    assert isinstance(run("--debug", *command).exception, ValueError)


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(home, plugin, tmp_path):
    command = [*HILLS, "--method", "hanging", "--splits", "1", "--plugin", plugin, "--quiet"]
    command += ["--folder", tmp_path / "runs", "--data-home", home, "--threads", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "muddle", *map(str, command)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        while not (plugin.parent / "hanging").exists() and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert said == "Stopped. Finished cells are kept: the same command continues.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a suite (--suite smoke, regression, classification, all) or data sets"),
        (["--suite", "smok"], "Did you mean 'smoke'?"),
        (["--dataset", "hils"], "no data set named 'hils'. Did you mean 'hills'?"),
        (["--dataset", "hills", "--recipe", "clean", "--method", "rige"], "Did you mean 'ridge'?"),
        (["--dataset", "hills"], "recipe='published' is for the data sets of the paper"),
        (["--dataset", "hills", "--recipe", "clean", "--method", "qda"], "'qda' cannot be paired"),
        (["--suite", "smoke", "--jobs", 0], "jobs must be at least 1"),
        (["--suite", "smoke", "--splits", 0], "splits must be at least 1"),
        (["--suite", "smoke", "--threads", 0], "threads must be at least 1"),
        (["--suite", "smoke", "--time-limit", -1], "time_limit must be above 0"),
        (["--suite", "smoke", "--max-rows", 5], "the smallest has"),
    ],
)
def test_a_run_that_cannot_start_says_why_and_writes_nothing(home, tmp_path, arguments, said):
    where = ["--folder", tmp_path / "runs", "--data-home", home]
    assert said in fail("benchmark", "run", *arguments, *where)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["benchmark", "go"],
        ["benchmark", "run", "--suit", "smoke"],
        ["benchmark", "run", "--suite", "smoke", "--recipe", "cleen"],
        ["benchmark", "run", "--suite", "smoke", "--retry", "fail"],
        ["benchmark", "status"],
        ["benchmark", "export", "runs"],
        ["benchmark", "rank", "runs", "--choose", "best"],
        ["methods", "--task", "ranking"],
        ["report"],
    ],
)
def test_wrong_usage_of_the_benchmark_ends_with_2(arguments):
    assert run(*arguments).exit_code == 2


# muddle benchmark status


def test_status_counts_the_states_of_each_method_and_gives_reasons(records):
    lines = succeed("benchmark", "status", records).stdout.splitlines()
    rows = [line.split() for line in lines]
    header = ["method", "ok", "failed", "timeout", "skipped", "stale", "missing"]
    assert rows[0] == header
    assert ["baseline", "6", "0", "0", "0", "0", "0"] in rows
    assert ["ols", "3", "0", "0", "0", "0", "0"] in rows
    assert ["broken", "0", "3", "0", "0", "0", "0"] in rows
    assert ["lacking", "0", "0", "0", "3", "0", "0"] in rows
    assert "24 records: 18 ok, 3 failed, 3 skipped" in lines
    assert ["broken", "3", "RuntimeError:", "out", "of", "order"] in rows


def test_status_tells_missing_stale_and_damaged(records, tmp_path, table):
    folder = tmp_path / "runs"
    succeed("benchmark", "import", table, folder)
    paths = {path.parent.name + path.stem: path for path in folder.rglob("*.json")}
    paths["ols0"].unlink()
    changed = json.loads(paths["ridge1"].read_text()) | {"fingerprint": "0" * 12}
    paths["ridge1"].write_text(json.dumps(changed))
    paths["cart2"].write_text("{")
    result = succeed("benchmark", "status", folder, "--json")
    told = json.loads(result.stdout)
    by_name = {row.pop("method"): row for row in told["methods"]}
    assert (by_name["ols"]["ok"], by_name["ols"]["missing"]) == (2, 1)
    assert (by_name["ridge"]["ok"], by_name["ridge"]["stale"]) == (2, 1)
    assert len(told["damaged"]) == 1
    assert str(paths["cart2"]) in told["damaged"][0]
    assert "damaged, so not counted as finished" in succeed("benchmark", "status", folder).stderr
    quick = json.loads(succeed("benchmark", "status", folder, "--json", "--quick").stdout)
    assert not any(row["stale"] for row in quick["methods"])


def test_reasons_that_differ_in_numbers_only_are_told_once(records, tmp_path, table):
    folder = tmp_path / "runs"
    succeed("benchmark", "import", table, folder)
    for path in folder.rglob("broken/*.json"):
        told = json.loads(path.read_text()) | {"reason": f"ran out after {path.stem} rows"}
        path.write_text(json.dumps(told))
    reasons = json.loads(succeed("benchmark", "status", folder, "--json").stdout)["reasons"]
    assert {row["method"]: row["cells"] for row in reasons} == {"broken": 3, "lacking": 3}
    assert reasons[0]["reason"] == "ran out after 0 rows"


def test_status_of_a_folder_without_records(tmp_path):
    assert succeed("benchmark", "status", tmp_path).stdout == (
        f"There are no records in {tmp_path}.\n"
    )


@pytest.mark.parametrize("command", ["status", "export"])
def test_a_folder_that_is_not_there_is_an_error(tmp_path, command):
    more = [tmp_path / "out.csv"] if command == "export" else []
    line = fail("benchmark", command, tmp_path / "nothing", *more)
    assert line.startswith(f"there is no folder {tmp_path / 'nothing'}. `muddle benchmark run`")


# muddle benchmark export, import


def test_a_table_that_is_imported_is_exported_as_it_was(table, tmp_path):
    folder, copy = tmp_path / "runs", tmp_path / "copy.csv.gz"
    assert succeed("benchmark", "import", table, folder).stdout == f"24 added, in {folder}\n"
    assert succeed("benchmark", "import", table, folder).stdout == f"24 the same, in {folder}\n"
    succeed("benchmark", "export", folder, copy)
    assert copy.read_bytes() == table.read_bytes()


def test_import_keeps_what_is_there_unless_told_to_replace(table, tmp_path):
    folder, other = tmp_path / "runs", tmp_path / "other.csv"
    succeed("benchmark", "import", table, folder)
    changed = pd.read_csv(table, dtype=str, keep_default_na=False)
    changed.loc[changed["method"] == "ols", ["r2", "fingerprint"]] = ["0.5", "0" * 12]
    changed.to_csv(other, index=False)
    kept = succeed("benchmark", "import", other, folder)
    assert kept.stdout == f"21 the same, 3 kept as they were, in {folder}\n"
    assert kept.stderr.count("Warning: kept, but of another configuration: ols on hills") == 3
    replaced = succeed("benchmark", "import", other, folder, "--replace")
    assert replaced.stdout == f"3 replaced, 21 the same, in {folder}\n"
    # One record of another configuration among three is worth a warning.
    (path,) = folder.rglob("ols/0.json")
    told = json.loads(path.read_text()) | {"fingerprint": "1" * 12}
    path.write_text(json.dumps(told))
    exported = succeed("benchmark", "export", folder, tmp_path / "out.csv")
    assert "records of ols (regression) come from more than one configuration" in exported.stderr


def test_a_table_of_another_kind_is_an_error(tmp_path, records):
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    assert "other.csv, line 1" in fail("benchmark", "import", other, tmp_path / "runs")
    assert "must have the columns recipe, task" in fail("benchmark", "rank", other)
    assert "is a .csv or .csv.gz file" in fail("benchmark", "export", records, tmp_path / "x.txt")


# muddle benchmark rank


def read_board(text):
    """Header and rows of each board, split at blanks, by the line above it."""
    boards = {}
    for block in text.strip().split("\n\n"):
        title, *lines = block.splitlines()
        boards[title] = [line.split() for line in lines]
    return boards


def test_rank_shows_a_board_per_task(table):
    boards = read_board(succeed("benchmark", "rank", table).stdout)
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
    assert {row[0] for row in classification[1:]} == {"cart", "baseline"}


def test_rank_numbers_are_those_of_the_ranking(table):
    from muddle_bench.ranking import rank_methods, read_table

    expected = rank_methods(read_table(table), "r2")
    (board,) = json.loads(
        succeed("benchmark", "rank", table, "--metric", "r2", "--json").stdout
    ).values()
    assert [row["method"] for row in board["rows"]] == expected["method"].tolist()
    np.testing.assert_allclose([row["mean"] for row in board["rows"]], expected["mean"])
    assert (board["task"], board["n_pairs"]) == ("regression", 3)


def test_rank_of_a_folder_is_rank_of_its_table(records, table):
    assert run("benchmark", "rank", records).stdout == run("benchmark", "rank", table).stdout


def test_rank_says_who_was_left_out_and_what_was_filled_in(table):
    text = succeed("benchmark", "rank", table, "--metric", "r2").stdout
    assert "left out, never finished: 3 failed: broken" in text
    assert "left out, never finished: 3 skipped: lacking" in text
    board = json.loads(succeed("benchmark", "rank", table, "--json").stdout)["r2"]
    assert {row["method"] for row in board["left_out"]} == {"broken", "lacking"}


def test_rank_tells_cells_that_count_as_the_baseline(table, tmp_path):
    lost = pd.read_csv(table, dtype=str, keep_default_na=False)
    first = (lost["method"] == "ols") & (lost["split"] == "0")
    lost.loc[first, ["status", "reason", "r2"]] = ["failed", "bad luck", ""]
    lost.to_csv(tmp_path / "lost.csv", index=False)
    text = succeed("benchmark", "rank", tmp_path / "lost.csv", "--metric", "r2").stdout
    assert "failed or timed out, and ranked with the baseline's score: ols 1" in text


def test_rank_of_an_unfinished_run_counts_the_pairs_it_leaves_out(table, tmp_path):
    part = pd.read_csv(table, dtype=str, keep_default_na=False)
    last = part["split"] == "2"
    part = part[~(last & part["method"].isin(["ols", "ridge"]))]
    part.to_csv(tmp_path / "part.csv", index=False)
    command = ["benchmark", "rank", tmp_path / "part.csv", "--metric", "r2"]
    text = succeed(*command).stdout
    assert text.startswith("regression, R² (higher is better): 2 pairs")
    assert "1 of 3 pairs left out: not run yet for some methods" in text
    (board,) = json.loads(succeed(*command, "--json").stdout).values()
    assert [pair["split"] for pair in board["left_out_pairs"]] == [2]


def test_max_missing_decides_whether_a_method_or_its_pairs_are_left_out(table, tmp_path):
    part = pd.read_csv(table, dtype=str, keep_default_na=False)
    ols = (part["method"] == "ols") & (part["split"] == "2")
    part.loc[ols, ["status", "reason", "r2"]] = ["skipped", "needs luck", ""]
    part.to_csv(tmp_path / "part.csv", index=False)
    command = ["benchmark", "rank", tmp_path / "part.csv", "--metric", "r2"]
    strict = succeed(*command).stdout
    assert "3 pairs" in strict
    assert "left out, lacks 1 of 3 pairs: 1 skipped: ols" in strict
    lenient = succeed(*command, "--max-missing", 0.5).stdout
    assert "2 pairs" in lenient
    assert not any(line.startswith("ols ") for line in strict.splitlines())
    assert any(line.startswith("ols ") for line in lenient.splitlines())
    assert "1 of 3 pairs left out: missing for some methods" in lenient


def test_one_pair_alone_has_no_interval(table, tmp_path):
    one = pd.read_csv(table, dtype=str, keep_default_na=False)
    one[one["split"] == "0"].to_csv(tmp_path / "one.csv", index=False)
    text = succeed("benchmark", "rank", tmp_path / "one.csv", "--metric", "r2").stdout
    assert text.startswith("regression, R² (higher is better): 1 pair of data set and split,")
    assert "interval" not in text


def test_rank_by_another_metric(table):
    text = succeed("benchmark", "rank", table, "--metric", "log_loss").stdout
    assert text.startswith("classification, log-loss (lower is better): 3 pairs")
    assert "PMA" not in text  # has no meaning for a loss
    assert "Did you mean 'log_loss'?" in fail("benchmark", "rank", table, "--metric", "logloss")
    text = succeed("benchmark", "rank", table, "--metric", "ece").stdout
    assert text.startswith("classification, calibration error (lower is better): 3 pairs")


def test_rank_of_families_names_the_members_that_were_chosen(table):
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


def test_members_of_the_paper_only(table, tmp_path):
    frame = pd.read_csv(table, dtype=str, keep_default_na=False)
    own = frame[frame["method"] == "cart"].assign(method="own", family="Own")
    pd.concat([frame, own]).to_csv(tmp_path / "own.csv", index=False)
    command = ["benchmark", "rank", tmp_path / "own.csv", "--families", "--metric", "r2", "--json"]

    def families(*more):
        (board,) = json.loads(succeed(*command, *more).stdout).values()
        return {row["family"] for row in board["rows"]}

    assert families() - families("--members", "published") == {"Own"}


def test_options_of_families_without_families_are_an_error(table):
    for option in (["--choose", "test"], ["--members", "all"]):
        assert "add --families" in fail("benchmark", "rank", table, *option)


def test_rank_writes_a_table_with_all_columns(table, tmp_path):
    out = tmp_path / "board.csv"
    result = succeed("benchmark", "rank", table, "--metric", "r2", "-o", out)
    assert result.stdout == f"4 rows in {out}\n"
    board = pd.read_csv(out)
    assert len(board) == 4
    assert {"std_difference", "rank_low", "shared_fit", "imputed"} <= set(board)
    tex = tmp_path / "new" / "board.tex"
    succeed("benchmark", "rank", table, "--metric", "r2", "--output", tex)
    assert tex.read_text().startswith(r"\begin{tabular}")


def test_a_file_of_a_board_is_one_csv_or_tex(table, tmp_path):
    line = fail("benchmark", "rank", table, "-o", tmp_path / "board.csv")
    assert line == "a file holds one table: choose it with --metric (r2 or accuracy)."
    line = fail("benchmark", "rank", table, "--metric", "r2", "-o", tmp_path / "board.txt")
    assert line == "--output must end in .csv or .tex, got 'board.txt'."
    assert not list(tmp_path.iterdir())


def test_rank_of_two_recipes_wants_a_choice(table, tmp_path):
    frame = pd.read_csv(table, dtype=str, keep_default_na=False)
    both = tmp_path / "both.csv"
    pd.concat([frame, frame.assign(recipe="published")]).to_csv(both, index=False)
    assert "Choose: --recipe clean." in fail("benchmark", "rank", both)
    chosen = succeed("benchmark", "rank", both, "--recipe", "clean").stdout
    assert chosen == succeed("benchmark", "rank", table).stdout
    line = fail("benchmark", "rank", table, "--recipe", "published")
    assert line == "no record has the recipe published; there is clean."


def test_rank_where_nothing_has_a_score_points_to_the_status(table, tmp_path):
    frame = pd.read_csv(table, dtype=str, keep_default_na=False)
    frame[frame["method"] == "broken"].to_csv(tmp_path / "bad.csv", index=False)
    line = fail("benchmark", "rank", tmp_path / "bad.csv")
    assert line == "none of the 3 records has a score. `muddle benchmark status` shows why."


@pytest.mark.parametrize("command", [["benchmark", "rank"], ["report"]])
def test_a_source_that_is_not_there_or_empty_is_an_error(tmp_path, command):
    assert "there is no exported table" in fail(*command, tmp_path / "nothing.csv")
    line = fail(*command, tmp_path)
    assert line == f"there are no records in {tmp_path}. `muddle benchmark run` makes them."


def test_ranking_a_table_does_not_import_torch(table):
    code = (
        "import sys; from muddle.cli import main\n"
        f"sys.argv = ['muddle', 'benchmark', 'rank', {str(table)!r}]\n"
        "try: main()\n"
        "finally: assert 'torch' not in sys.modules\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "baseline" in ended.stdout


def test_a_narrow_terminal_gets_the_columns_that_matter_most():
    rows = [{"method": "m" * 20, "family": "GBDT", "rank": "1.00", "mean": "0.900", "P98": "5%"}]
    assert fit_columns(rows, 80) == ["method", "family", "rank", "mean", "P98"]
    assert fit_columns(rows, 20 + 2 + 6 + 2 + 4 + 2 + 5) == ["method", "family", "rank", "mean"]
    assert fit_columns(rows, 20 + 2 + 6 + 2 + 4 + 2 + 4) == ["method", "rank", "mean"]
    assert fit_columns(rows, 5) == ["method", "rank", "mean"]  # these always
    assert [format_seconds(s) for s in (272.346, 1.3, 0.004)] == ["272.35", "1.30", "<0.01"]
    assert format_seconds(float("nan")) == ""


# muddle report


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_report_writes_the_page_and_its_tables(records, table, tmp_path, kind):
    page = tmp_path / "page.html"
    source = records if kind == "folder" else table
    options = ["--title", "Hills & trees", "--command", "muddle benchmark run --suite mine"]
    result = succeed("report", source, "--output", page, *options)
    assert result.stdout == f"{page}, its tables in {tmp_path / 'page_tables'}\n"
    html = page.read_text()
    assert "Hills &amp; trees" in html
    assert "muddle benchmark run --suite mine" in html
    assert list((tmp_path / "page_tables").glob("*.csv"))


def test_a_page_is_html(table, tmp_path):
    line = fail("report", table, "--output", tmp_path / "page.pdf")
    assert "the page must be an HTML file" in line
