"""The script that compares the flagship with other methods, and its speed benchmark."""

import importlib.util
import sys
from pathlib import Path

import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from muddle_bench.methods.method import Method

ROOT = Path(__file__).resolve().parents[4]


def load(folder, name):
    """A script as a module, with the modules beside it that it imports."""
    path = ROOT / folder / f"{name}.py"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path.parent))
        for module in ("speed", "textbook"):
            patch.delitem(sys.modules, module, raising=False)
        spec = importlib.util.spec_from_file_location(f"{folder}_{name}", path)
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look up their module
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def evidence():
    return load("scripts", "flagship_evidence")


@pytest.fixture
def timing():
    return load("benchmarks", "flagship")


def make_records(scores):
    """Records of muddle and a rival: {(data set, split): (ours, theirs)}."""
    rows = []
    for (dataset, split), pair in scores.items():
        for method, score in zip(("muddle", "rival"), pair, strict=True):
            if score is not None:
                rows.append((dataset, split, method, score, 1.0))
    return pd.DataFrame(rows, columns=["dataset", "split", "method", "r2", "fit_seconds"])


def test_duels_count_pairs_of_both_and_halve_ties_in_two_halves_of_data_sets(evidence):
    halves = [evidence.find_half(name) for name in ("abalone", "adult", "hills")]
    assert halves == ["development", "evaluation", "own"]
    records = pd.DataFrame({"dataset": ["abalone", "hills"]})
    parts = evidence.split_by_half(records)
    assert {half: len(part) for half, part in parts.items()} == {"development": 1, "all": 2}
    records = make_records(
        {("a", 0): (0.9, 0.8), ("a", 1): (0.5, 0.5), ("b", 0): (0.1, 0.2), ("b", 1): (0.7, None)}
    )
    board = evidence.compare(records, "regression")
    assert board.loc["rival", ["won by muddle, %", "pairs"]].tolist() == [50.0, 3]
    # Means and ranks are of splits that both have: a 0.7 and 0.65, b 0.1 and 0.2.
    assert board.loc["muddle", "mean r2"] == pytest.approx(0.4)
    assert board.loc["rival", "mean r2"] == pytest.approx(0.425)
    assert board["rank"].to_dict() == {"muddle": 1.5, "rival": 1.5}


def test_a_table_without_the_flagship_is_refused(evidence, tmp_path):
    table = pd.read_csv(ROOT / "results" / "benchmark_published.csv.gz")
    table.head(50).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(SystemExit, match="has no scores of muddle"):
        evidence.main([str(tmp_path / "other.csv")])


def test_the_recorded_evidence_is_that_of_the_records(evidence, capsys):
    evidence.main([str(ROOT / "results" / "benchmark_clean.csv.gz")])
    assert capsys.readouterr().out == (ROOT / "results" / "flagship.txt").read_text("utf-8")


def test_the_table_in_the_readme_is_that_of_the_records(evidence):
    table = evidence.read_table(ROOT / "results" / "benchmark_clean.csv.gz")
    boards = {task: evidence.compare(own, task) for task, own in table.groupby("task")}
    names = {
        "**muddle**": "muddle",
        "RealMLP-TD, 5 folds": "realmlp-5",
        "CatBoost": "catboost",
        "XGBoost": "xgboost",
    }
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:2] == "| "]
    shown = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows if len(row) == 10}
    for name, method in names.items():
        numbers, classes = boards["regression"].loc[method], boards["classification"].loc[method]
        won = ["" if name == "**muddle**" else f"{board['won by muddle, %']:.0f} %"
               for board in (numbers, classes)]  # fmt: skip
        assert shown[name] == [
            *(f"{numbers['rank']:.1f}", f"{numbers['mean r2']:.3f}", won[0]),
            *(f"{classes['rank']:.1f}", f"{classes['mean auc']:.3f}", won[1]),
            *(f"{classes[f'mean {metric}']:.3f}" for metric in ("accuracy", "log_loss", "ece")),
        ]


def test_ratios_are_medians_over_turns(timing):
    table = timing.make_table("classification", 30)
    seconds = {"muddle": [1.0, 2.0, 9.0], "realmlp-5": [4.0, 1.0, 3.0]}
    row = timing.describe_row(table, seconds)
    assert (row["muddle_s"], row["realmlp-5_s"], row["muddle_ratio"]) == (2.0, 3.0, 2.0)
    assert (row["rows"], row["columns"], row["task"]) == (30, 10, "classification")
    assert "muddle_ratio" not in timing.describe_row(table, {"muddle": [1.0]})
    assert set(table.y) == {0, 1}


def test_speed_takes_turns_on_all_tables(timing, tables, tmp_path, monkeypatch, capsys):
    fitted = []

    class Told(Ridge):
        def fit(self, X, y):
            fitted.append((self.alpha, len(y)))
            return self

    ours = Method("muddle", "Flagship", lambda request: Told(alpha=1.0))
    theirs = Method("realmlp-5", "NN-today", lambda request: Told(alpha=2.0))
    monkeypatch.setattr(timing, "choose_methods", lambda *_: [ours, theirs])
    out = tmp_path / "speed.csv"
    options = ["--rows", "40", "--datasets", "hills", "servo", "--repeats", "2", "--commit", "abc"]
    timing.main([*options, "--data-home", str(tables), "--threads", "1", "--out", str(out)])
    assert [alpha for alpha, _ in fitted] == [1.0, 2.0] * 7  # warm-up, then three tables twice
    assert [n_rows for _, n_rows in fitted] == [60] * 2 + [40] * 8 + [48] * 4
    table = pd.read_csv(out)
    assert table["table"].tolist() == ["made up", "made up", "hills"]
    assert (table["muddle_ratio"] > 0).all()
    assert (table["commit"] == "abc").all()
    text = capsys.readouterr().out
    assert "servo skipped: it is not in" in text
    assert "median over 3 tables: muddle" in text
