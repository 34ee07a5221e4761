"""The script that compares training schemes."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from muddle_bench.ranking import read_table
from muddle_bench.run.splits import prepare_split

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


def test_fits_are_run_once_and_compared_with_the_net_without_the_scheme(
    script, tables, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(
        script, "SCHEMES", {name: script.SCHEMES[name] for name in ("", "plateau", "dropout")}
    )
    cells, out = tmp_path / "cells", tmp_path / "schemes.csv.gz"
    options = ["--cells", str(cells), "--data-home", str(tables), "--width", "8"]
    options += ["--datasets", "hills"]
    script.main([*options, "--splits", "0"])
    assert "hills 0: 6 fits" in capsys.readouterr().out
    # A scheme that is added later is fitted alone, beside what is there.
    schemes = {**script.SCHEMES, "embedding": {"embedding": 2}}
    monkeypatch.setattr(script, "SCHEMES", schemes)
    script.main([*options, "--splits", "0", "1", "--out", str(out)])
    told = capsys.readouterr().out
    assert "hills 0: 2 fits" in told
    assert "hills 1: 8 fits" in told
    assert "won against none" in told
    table = read_table(out)
    assert len(table) == 2 * 8
    assert (table["status"] == "ok").all()
    assert table.groupby("split")["r2"].nunique().eq(8).all()  # each is another net
    found = script.summarise(table)
    assert found["scheme"].tolist() == ["none", "plateau", "dropout", "embedding"] * 2
    assert found["net"].tolist() == ["MLR-2"] * 4 + ["plain"] * 4
    assert (found["splits"] == 2).all()


def test_tasks_are_pooled_by_the_mean_over_splits_of_each_data_set(script):
    rows = [
        # R² of `a` rises by 0.1 and 0.3, of `b` falls by 0.1; the area of `c` stays.
        *(("regression", "a", 0, 0.5, 0.6), ("regression", "a", 1, 0.5, 0.8)),
        *(("regression", "b", 0, 0.5, 0.4), ("classification", "c", 0, 0.9, 0.9)),
    ]
    table = pd.DataFrame(
        [
            {"task": task, "dataset": dataset, "split": split, "method": method}
            | ({"r2": score, "auc": np.nan} if task == "regression" else {"auc": score, "r2": 0.0})
            for task, dataset, split, *scores in rows
            for method, score in zip(("MLR-2", "MLR-2, cosine"), scores, strict=True)
        ]
    )
    (found,) = script.pool_tasks(table).to_dict("records")
    assert found == {
        **{"net": "MLR-2", "scheme": "cosine", "better": 1, "worse": 1, "data sets": 3},
        "median difference": 0.0,
    }
    renamed = table.assign(method=table["method"].replace("MLR-2, cosine", "plain"))
    (nets,) = script.pool_tasks(renamed).to_dict("records")
    assert (nets["scheme"], nets["better"], nets["worse"]) == ("less plain", 1, 1)
    (alone,) = script.pool_tasks(table[table["dataset"] == "a"]).to_dict("records")
    assert alone["median difference"] == pytest.approx(0.2)


def test_embeddings_are_fitted_where_a_column_has_levels(script, tables):
    with_levels = prepare_split("hills", "clean", str(tables), 0, "table")
    without = prepare_split("trees", "clean", str(tables), 0, "table")
    assert "plain, embedding" in script.list_variants(with_levels)
    assert "plain, embedding" not in script.list_variants(without)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["hills", "trees"])
def test_every_scheme_works_with_both_nets(script, tables, tmp_path, dataset):
    path = tmp_path / "cell.npz"
    script.run_cell(path, dataset, 0, tables, width=8, max_iter=5)
    with np.load(path) as cell:
        named = {name: part for name, part in cell.items() if not name.endswith("seconds")}
    assert len(named) >= 2 * len(script.SCHEMES) - 2
    assert len({part.tobytes() for part in named.values()}) == len(named)
    assert all(np.isfinite(part).all() for part in named.values())
