"""The script that compares training schemes."""

import importlib.util
from pathlib import Path

import pytest

from muddle_bench.ranking import read_table

PATH = Path(__file__).resolve().parents[4] / "scripts" / "study_schemes.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("study_schemes", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_every_scheme_is_a_setting_of_both_nets_and_changes_it(script, task):
    for net in script.NETS:
        configs = [script.make_config(task, net, scheme) for scheme in script.SCHEMES]
        assert len(set(configs)) == len(script.SCHEMES)
        assert {config.width for config in configs} == {1024}
        assert {config.head for config in configs} == {"linear" if net == "plain" else "all"}


def test_schemes_are_compared_with_the_net_without_them(script, tables, tmp_path, capsys):
    out = tmp_path / "schemes.csv.gz"
    options = ["--datasets", "hills", "--data-home", str(tables), "--width", "8"]
    script.main([*options, "--out", str(out)])
    table = read_table(out)
    assert len(table) == 2 * len(script.SCHEMES)
    assert (table["status"] == "ok").all()
    found = script.summarise(table)
    assert found["scheme"].tolist()[:2] == ["none", "cosine"]
    assert set(found["net"]) == {"MLR-2", "plain"}
    assert "won against none" in capsys.readouterr().out
