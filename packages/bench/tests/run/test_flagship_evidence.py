"""Scripts about the flagship (intervals, ablation, speed), each run on settings of a second."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from muddle_bench.methods.method import Method
from muddle_bench.run.cells import Job, Settings
from muddle_bench.run.splits import prepare

ROOT = Path(__file__).resolve().parents[4]


def load(folder, name):
    """A script as a module, with those beside it that it imports."""
    path = ROOT / folder / f"{name}.py"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path.parent))
        for module in ("evidence", "pool_variants", "speed", "textbook"):
            patch.delitem(sys.modules, module, raising=False)
        spec = importlib.util.spec_from_file_location(f"{folder}_{name}", path)
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)  # where dataclasses look for their types
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def intervals():
    return load("scripts", "compare_intervals")


@pytest.fixture(scope="module")
def evidence():
    return load("scripts", "evidence")


@pytest.fixture
def timing():
    return load("benchmarks", "flagship")


# Cells and rows


def test_every_other_data_set_is_for_development(evidence):
    assert evidence.half_of("abalone") == "development"
    assert evidence.half_of("adult") == "evaluation"
    assert evidence.half_of("hills") == "own"


def test_data_sets_not_named_are_those_of_the_paper_up_to_a_size(evidence, tables):
    chosen = evidence.choose_datasets(None, "regression", 200, tables)
    assert chosen == [
        *("concrete-slump-test-1", "concrete-slump-test-2", "concrete-slump-test-3", "servo")
    ]
    assert evidence.choose_datasets(["hills"], "regression", 1, tables) == ["hills"]


@pytest.mark.parametrize(
    ("dataset", "task"), [("hills", "regression"), ("trees", "classification")]
)
def test_cells_are_those_of_the_benchmark(evidence, tables, dataset, task):
    settings = Settings(data_home=str(tables))
    problem = prepare(Job("clean", task, dataset, 3, "a", ("a",), ("",), settings), "table")
    cell = evidence.read_cell(dataset, 3, tables)
    assert (cell.task, cell.n_classes) == (task, problem.n_classes)
    assert cell.categorical == problem.categorical
    pd.testing.assert_frame_equal(cell.train, problem.train)
    pd.testing.assert_frame_equal(cell.test, problem.test)
    for name in ("y_train", "y_test", "seen"):
        np.testing.assert_array_equal(getattr(cell, name), getattr(problem, name))


def test_a_line_left_half_written_is_cut_off(evidence, tmp_path):
    path = tmp_path / "new" / "rows.csv"
    for number in (1, 2):
        evidence.add_row(path, ["a", "b"], {"a": number, "b": 0.5})
    path.write_text(path.read_text() + "3,0")
    assert evidence.read_rows(path, ["a", "b"])["a"].tolist() == [1, 2]
    assert path.read_text() == "a,b\n1,0.5\n2,0.5\n"
    with pytest.raises(SystemExit, match="must have the columns a, c, got a, b"):
        evidence.read_rows(path, ["a", "c"])


# Intervals


def test_interval_scores_by_hand(intervals):
    bounds = np.array([[0.0, 2.0], [0.0, 2.0], [1.0, 5.0], [1.0, 5.0]])
    found = intervals.score_intervals(bounds, np.array([1.0, 2.5, 0.0, 5.0]), unit=2.0)
    assert found["coverage"] == 0.5
    assert found["width"] == pytest.approx(3 / 2)
    assert found["interval_score"] == pytest.approx((3 + 20 * (0.5 + 1.0) / 4) / 2)


def test_quantiles_are_moved_by_the_conformal_rank_of_their_misses(intervals):
    said = np.tile([-1.0, 1.0], (9, 1))
    target = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.5, -2.0, 3.0, 7.0])
    on_test = np.array([[10.0, 12.0], [12.0, 10.0]])
    # 9 rows: the ceil(10 · 0.8) = 8th smallest miss is 2, the 9th is 6.
    wider = intervals.widen_quantiles(target, said, on_test, 0.8)
    np.testing.assert_allclose(wider, [[8.0, 14.0], [8.0, 14.0]])
    np.testing.assert_allclose(
        intervals.widen_quantiles(target, said, on_test, 0.9), [[4.0, 18.0]] * 2
    )


def test_conformal_quantiles_cover_new_rows(intervals):
    rng = np.random.default_rng(0)
    target, new = rng.normal(size=2000), rng.normal(size=2000)
    said = np.tile([-0.5, 0.5], (2000, 1))
    low, high = intervals.widen_quantiles(target, said, said, 0.9).T
    assert np.mean((low <= new) & (new <= high)) == pytest.approx(0.9, abs=0.02)


def test_summary_of_intervals_by_hand(intervals):
    key = ["dataset", "split", "method", "coverage", "width"]
    rows = pd.DataFrame(
        [
            ("abalone", 0, "muddle", 0.8, 1.0),
            ("abalone", 1, "muddle", 1.0, 1.0),
            ("abalone", 0, "catboost-cqr", 0.9, 2.0),
            ("adult", 0, "muddle", 0.8, 2.0),
            ("adult", 0, "catboost-cqr", 0.9, 1.0),
        ],
        columns=key,
    ).assign(interval_score=lambda rows: rows["width"], seconds=1.0)
    table = intervals.summarise(rows)
    ours = table.loc[("all", "muddle")]
    assert ours["coverage"] == pytest.approx(0.85)  # data sets count alike, not splits
    assert ours["width ratio"] == pytest.approx(1.0)  # a half and twice
    assert (ours["splits"], ours["sets narrower"]) == (3, 1)
    assert table.loc[("development", "muddle"), "width ratio"] == pytest.approx(0.5)
    assert table.loc[("evaluation", "muddle"), "coverage"] == pytest.approx(0.8)
    assert table.loc[("all", "catboost-cqr"), "width ratio"] == 1.0


# Speed


def test_ratios_are_medians_over_turns(timing):
    table = timing.make_table("classification", 30)
    seconds = {"muddle": [1.0, 2.0, 9.0], "realmlp-5": [4.0, 1.0, 3.0]}
    row = timing.describe_row(table, seconds)
    assert (row["muddle_s"], row["realmlp-5_s"], row["muddle_ratio"]) == (2.0, 3.0, 2.0)
    assert (row["rows"], row["columns"], row["task"]) == (30, 10, "classification")
    assert "muddle_ratio" not in timing.describe_row(table, {"muddle": [1.0]})
    assert set(table.y) == {0, 1}


def test_on_a_gpu_our_seconds_stand_alone(timing, monkeypatch, capsys):
    names = [method.name for method in timing.choose_methods(["fast", "default"], "cuda")]
    assert names == ["muddle-fast", "muddle"]
    monkeypatch.setattr(timing, "missing_package", lambda method: "needs pytabkit")
    assert [method.name for method in timing.choose_methods(["fast"], "cpu")] == ["muddle-fast"]
    assert "realmlp-5 skipped: needs pytabkit" in capsys.readouterr().out


def test_speed_takes_turns_on_made_up_and_real_tables(
    timing, tables, tmp_path, monkeypatch, capsys
):
    fitted = []

    class Told(Ridge):
        def fit(self, X, y):
            fitted.append((self.alpha, len(y), getattr(X, "shape", None)))
            return self

    ours = Method("muddle", "Flagship", lambda request: Told(alpha=1.0))
    theirs = Method("realmlp-5", "NN-today", lambda request: Told(alpha=2.0))
    monkeypatch.setattr(timing, "choose_methods", lambda *_: [ours, theirs])
    out = tmp_path / "speed.csv"
    options = ["--rows", "40", "--datasets", "hills", "servo", "--repeats", "2", "--commit", "abc"]
    timing.main([*options, "--data-home", str(tables), "--threads", "1", "--out", str(out)])
    assert [alpha for alpha, *_ in fitted] == [1.0, 2.0] * 7  # warm-up, then three tables twice
    assert [n_rows for _, n_rows, _ in fitted] == [60] * 2 + [40] * 8 + [48] * 4
    table = pd.read_csv(out)
    assert table["table"].tolist() == ["made up", "made up", "hills"]
    assert (table["muddle_ratio"] > 0).all()
    assert (table["commit"] == "abc").all()
    text = capsys.readouterr().out
    assert "servo skipped: it is not in" in text
    assert "median over 3 tables: muddle" in text


# ------------------------------------------------------------------ beside other methods


def make_records(scores):
    """Records of muddle and a rival: {(data set, split): (ours, theirs)}."""
    rows = []
    for (dataset, split), pair in scores.items():
        for method, score in zip(("muddle", "rival"), pair, strict=True):
            if score is not None:
                rows.append((dataset, split, method, score, 1.0))
    return pd.DataFrame(rows, columns=["dataset", "split", "method", "r2", "fit_seconds"])


def test_duels_count_pairs_of_both_and_halve_ties():
    compare = load("scripts", "compare_flagship")
    records = make_records(
        {("a", 0): (0.9, 0.8), ("a", 1): (0.5, 0.5), ("b", 0): (0.1, 0.2), ("b", 1): (0.7, None)}
    )
    assert compare.duel(compare.widen(records, "r2"), "rival") == (50.0, 3)
    board = compare.compare(records, "regression")
    assert board.loc["rival", "won by muddle, %"] == 50.0
    assert board.loc["rival", "pairs"] == 3
    # Means and ranks are of splits that both have: a 0.7 and 0.65, b 0.1 and 0.2.
    assert board.loc["muddle", "mean r2"] == pytest.approx(0.4)
    assert board.loc["rival", "mean r2"] == pytest.approx(0.425)
    assert board["rank"].to_dict() == {"muddle": 1.5, "rival": 1.5}


def test_a_table_without_the_flagship_is_refused(tmp_path):
    compare = load("scripts", "compare_flagship")
    table = pd.read_csv(ROOT / "results" / "benchmark_published.csv.gz")
    table.head(50).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(SystemExit, match="has no scores of muddle"):
        compare.main([str(tmp_path / "other.csv")])


def test_the_table_in_the_readme_is_that_of_the_records():
    compare = load("scripts", "compare_flagship")
    table = compare.read_table(ROOT / "results" / "benchmark_clean.csv.gz")
    boards = {task: compare.compare(own, task) for task, own in table.groupby("task")}
    names = {
        "**muddle**": "muddle",
        "RealMLP-TD, 5 folds": "realmlp-5",
        "CatBoost": "catboost",
        "XGBoost": "xgboost",
    }
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, section = text.split("**The flagship beside everybody else.**")
    section, _ = section.split("Settings were chosen")
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    said = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    for name, method in names.items():
        numbers, classes = boards["regression"].loc[method], boards["classification"].loc[method]
        is_ours = method == "muddle"
        assert said[name] == [
            f"{numbers['rank']:.1f}",
            f"{numbers['mean r2']:.3f}",
            "" if is_ours else f"{numbers['won by muddle, %']:.0f} %",
            f"{classes['rank']:.1f}",
            f"{classes['mean auc']:.3f}",
            "" if is_ours else f"{classes['won by muddle, %']:.0f} %",
            f"{classes['mean accuracy']:.3f}",
            f"{classes['mean log_loss']:.3f}",
            f"{classes['mean ece']:.3f}",
        ]
