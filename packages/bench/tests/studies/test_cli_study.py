"""muddle study: its output, its files, its errors."""

import json
from functools import partial

import pytest
from typer.testing import CliRunner

from muddle.cli.app import make_app
from muddle_bench.methods.method import Request
from muddle_bench.methods.registry import known_methods
from muddle_bench.run.sweep import Summary
from muddle_bench.studies import running
from muddle_bench.studies.points import STUDIES, all_variants
from muddle_bench.studies.study_tables import read_study

SLUMP = ["--dataset", "concrete-slump-test-3"]


def call(*arguments):
    return CliRunner().invoke(make_app(), [str(argument) for argument in arguments])


@pytest.fixture
def small(monkeypatch, plugin, data_folder):
    """The commands with small nets, on the paper's data."""
    monkeypatch.setattr(running, "run_points", partial(running.run_points, plugin=plugin))
    return ["--data-home", data_folder, "--threads", 1, "--quiet"]


def test_all_studies_are_listed():
    listed = json.loads(call("study", "list", "--json").stdout)
    assert [row["study"] for row in listed] == list(STUDIES)
    assert "permutations" in call("study", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dependence", "widht"], "Did you mean 'width'?"),
        (["ablation", "--dataset", "ionosfere"], "Did you mean 'ionosphere'?"),
        (["dependence", "width", "--dataset", "servo"], "There are points on concrete-slump"),
        (["all", "--together", "--jobs", "2"], "without jobs: got jobs=2"),
        (["table", "no/such/folder"], "there is no folder no/such/folder"),
        (["record", "slump"], "no data set named 'slump'"),
        (["all", "--splits", "ten"], "must be a count"),
    ],
)
def test_a_wrong_argument_ends_with_one_line_that_helps(arguments, said):
    result = call("study", *arguments)
    assert result.exit_code == (2 if "ten" in arguments else 1)
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_must_fit_the_command(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, said in (
        (["table", empty, "--out", tmp_path], "no records of studies"),
        (["figures", empty, "--out", tmp_path], "there are no tables of studies"),
        (["figures", tmp_path / "none"], "there is no folder"),
        (["all", "--folder", tmp_path, "--fresh"], "--fresh needs a new or empty folder"),
    ):
        result = call("study", *arguments)
        assert result.exit_code == 1
        assert said in result.stderr


def test_a_study_runs_from_the_command_to_its_table(small, tmp_path):
    runs, out = tmp_path / "runs", tmp_path / "tables"
    command = ["study", "dependence", "label_noise", *SLUMP, "--together", "-f", runs, *small]
    for splits, said in ((2, "10 ok"), (2, "Nothing to do")):
        result = call(*command, "--splits", splits)
        assert result.exit_code == 0, result.output
        assert said in result.stdout
    table = call("study", "table", runs, "--out", out)
    assert "label_noise: 10 rows without a score" in table.stderr
    rows = read_study(out, "label_noise")
    done = rows[rows["n_splits"] == 2]
    assert list(done["value"]) == ["0", "0.01", "0.03", "0.1", "0.3"]
    assert done["n_nets"].eq(6).all()
    assert done["difference"].notna().all()
    drawn = call("study", "figures", out, "--out", tmp_path / "figures")
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "figures" / "label_noise.svg").stat().st_size > 1000
    # The default of one study is that of another.
    assert read_study(out, "width")["score"].notna().sum() == 1


@pytest.mark.parametrize(("given", "wanted"), [([], "float32"), (["reduced"], "reduced")])
def test_precision_chooses_the_methods(monkeypatch, tmp_path, given, wanted):
    found = {}

    def run_benchmark(cells, store, **settings):
        found.update(settings)
        return Summary(0, 0, 0)

    monkeypatch.setattr(running, "run_benchmark", run_benchmark)
    option = ["--precision", *given] if given else []
    assert call("study", "all", "-f", tmp_path, *option).exit_code == 0
    known = known_methods(tuple(found["plugins"]))
    for name in all_variants():
        assert known[name].make(Request("regression", seed=0)).config.precision == wanted


def test_the_history_of_one_net_is_asked_for_as_given(monkeypatch, tmp_path):
    asked = {}

    def write(out, dataset, **options):
        asked.update(options, out=out, dataset=dataset)
        return out / "training_record.csv"

    monkeypatch.setattr(running, "write_training_record", write)
    result = call("study", "record", "servo", "--out", tmp_path, "--data-home", tmp_path)
    assert result.stdout.strip() == str(tmp_path / "training_record.csv")
    assert asked == {"out": tmp_path, "dataset": "servo", "device": "cpu", "data_home": tmp_path}
