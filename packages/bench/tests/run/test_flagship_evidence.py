"""Scripts about the flagship (intervals, ablation, speed), each run on settings of a second."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import Ridge

from muddle import MuddleClassifier, MuddleRegressor
from muddle.flagship import base as flagship
from muddle.flagship.fitting import fit_pool
from muddle.flagship.pool import BASE, Candidate, Plan
from muddle.training import trainer
from muddle.training.stopping import Deadline
from muddle_bench.methods.registry import Method
from muddle_bench.ranking import COLUMNS
from muddle_bench.run.cells import Job, Settings
from muddle_bench.run.problems import prepare

ROOT = Path(__file__).resolve().parents[4]
TASKS = [("hills", "regression"), ("trees", "classification")]
KINDS = [("hills", MuddleRegressor), ("trees", MuddleClassifier)]
CPU = torch.device("cpu")
SHORT = replace(BASE, max_iter=15, batch_size=256, width=16)
PLAN = Plan((Candidate("bins", "bins", SHORT), Candidate("plain", "plain", SHORT)), 2)


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


@pytest.fixture
def ablation(monkeypatch):
    module = load("scripts", "ablate_flagship")
    monkeypatch.setattr(module, "make_plan", lambda *_, **__: PLAN)
    return module


@pytest.fixture(scope="module")
def evidence():
    return load("scripts", "evidence")


@pytest.fixture(scope="module")
def variants():
    return load("scripts", "pool_variants")


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


def test_quantiles_that_are_too_far_apart_are_moved_in_until_they_meet(intervals):
    said = np.tile([-3.0, 3.0], (9, 1))
    bounds = intervals.widen_quantiles(np.zeros(9), said, np.array([[0.0, 8.0], [0.0, 4.0]]), 0.9)
    np.testing.assert_allclose(bounds, [[3.0, 5.0], [2.0, 2.0]])


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


def test_intervals_of_catboost_are_skipped_where_it_is_not(intervals, monkeypatch, capsys):
    monkeypatch.setattr(intervals.importlib.util, "find_spec", lambda name: None)
    assert list(intervals.choose_methods("fast", "cpu", None)) == ["muddle-fast"]
    assert "catboost-cqr skipped: needs catboost" in capsys.readouterr().out


def test_interrupted_intervals_repeat_no_row(intervals, tables, tmp_path, monkeypatch, capsys):
    asked = []

    def wide(cell):
        asked.append((cell.dataset, cell.split))
        return np.tile([-100.0, 100.0], (len(cell.y_test), 1))

    monkeypatch.setattr(intervals, "choose_methods", lambda *_: {"muddle": wide, "a": wide})
    out = tmp_path / "intervals.csv"
    options = ["--datasets", "hills", "--data-home", str(tables), "--out", str(out)]
    intervals.main([*options, "--splits", "1"])
    intervals.main([*options, "--splits", "2"])
    assert asked == [("hills", 0)] * 2 + [("hills", 1)] * 2
    rows = pd.read_csv(out)
    assert (rows["coverage"] == 1.0).all()
    assert rows["method"].tolist() == ["muddle", "a"] * 2
    intervals.main(["--summary", "--out", str(out)])
    assert len(asked) == 4
    assert capsys.readouterr().out.count("sets") == 3
    with pytest.raises(SystemExit, match="trees has classes"):
        intervals.main(["--datasets", "trees", *options[2:]])


def test_intervals_of_the_flagship_are_asked_at_the_nominal_coverage(
    intervals, evidence, tables, monkeypatch
):
    cell = evidence.read_cell("hills", 0, tables)
    monkeypatch.setattr(flagship, "make_plan", lambda *_, **__: replace(PLAN, n_rounds=1))
    method = intervals.choose_methods("fast", "cpu", ["muddle-fast"])["muddle-fast"]
    model = MuddleRegressor(preset="fast", random_state=0, device="cpu")
    model.fit(cell.train, cell.y_train)
    np.testing.assert_array_equal(method(cell), model.predict_interval(cell.test, 0.9))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_catboost_is_judged_by_rows_that_its_models_have_not_seen(intervals, evidence, tables):
    pytest.importorskip("catboost")
    cell = evidence.read_cell("hills", 0, tables)
    said, on_test = intervals.cross_fit_catboost(cell, intervals.QUANTILES, n_outputs=2)
    assert (said.shape, on_test.shape) == ((48, 2), (12, 2))
    assert said[:, 0].mean() < cell.y_train.mean() < said[:, 1].mean()
    moved = replace(cell, y_train=cell.y_train + 1000 * (np.arange(48) == 7))
    there, _ = intervals.cross_fit_catboost(moved, "RMSE", n_outputs=1)
    assert there[7, 0] < 100
    for method in (intervals.bound_by_quantiles, intervals.bound_by_residuals):
        bounds = method(cell)
        assert np.isfinite(bounds).all()
        assert (bounds[:, 0] <= bounds[:, 1]).all()


# Ablation


def make_run(variants, name, said, test, seconds=(1.0, 10.0)):
    """Rounds of one end of a cycle and two rows each."""
    out_of_fold = np.array(said, dtype=float)[:, None, :, None]
    on_test = np.array(test, dtype=float)[:, None, None, None]
    return variants.Run(name, out_of_fold, on_test, np.array(seconds))


def test_members_are_chosen_by_hand(variants):
    labels = np.array([[1.0], [-1.0]])
    predicted = np.array([[[0.5], [-0.5]], [[1.5], [-1.5]], [[0.0], [3.0]]])
    np.testing.assert_array_equal(variants.weigh_equally(predicted, labels, None), [1 / 3] * 3)
    np.testing.assert_array_equal(variants.choose_best(predicted[1:], labels, None), [1, 0])
    np.testing.assert_array_equal(variants.choose_greedily(predicted, labels, None), [0.5, 0.5, 0])
    heavy = np.array([1.0, 1e-6])
    assert variants.choose_best(np.array([[[0.9], [5]], [[0.5], [-1]]]), labels, heavy)[0] == 1


def test_candidates_that_do_not_count_get_no_further_round(variants):
    labels = np.array([[1.0], [-1.0]])
    good = make_run(variants, "good", [[1, -1], [0.5, -0.5]], [1, 3])
    bad = make_run(variants, "bad", [[-9, 9], [1, -1]], [100, 200])
    variant = variants.Variant("pool", ("good", "bad"), 2, weigh=variants.choose_best)
    answer = variants.answer_variant(variant, [good, bad], labels, None)
    np.testing.assert_allclose(answer.out_of_fold, [[0.75], [-0.75]])
    np.testing.assert_allclose(answer.test, [[2.0]])
    assert answer.seconds == 12.0
    first = replace(variant, n_rounds=1)
    answer = variants.answer_variant(first, [good, bad], labels, None)
    assert (answer.test.item(), answer.seconds) == (1.0, 2.0)
    assert (
        variants.answer_variant(replace(variant, candidates=("lost",)), [good], labels, None)
        is None
    )


def test_variants_name_what_is_left_out(variants):
    plan = replace(PLAN, n_rounds=3)
    found = {variant.name: variant for variant in variants.list_variants(plan, variants.GROUPS)}
    assert list(found)[:2] == ["pool", "1 round"]
    assert found["without bins"].candidates == ("plain",)
    assert found["only bins"].candidates == ("bins",)
    assert found["only bins, last iteration"].last_only
    assert not found["only bins"].last_only
    assert found["last iterations only"].candidates == ("bins", "plain")
    assert found["2 rounds"].n_rounds == 2
    assert "3 rounds" not in found
    assert {variant.n_rounds for name, variant in found.items() if "round" not in name} == {3}
    assert [one.name for one in variants.list_variants(plan, ())] == ["1 round"]


@pytest.mark.parametrize(
    ("dataset", "kind"), [("hills", MuddleRegressor), ("trees", MuddleClassifier)]
)
def test_the_ablation_learns_what_the_estimator_learns(
    ablation, evidence, tables, dataset, kind, monkeypatch
):
    seen = {}

    def capture(lesson, plan, **more):
        seen["lesson"] = lesson
        return fit_pool(lesson, plan, **more)

    monkeypatch.setattr(flagship, "make_plan", lambda *_, **__: replace(PLAN, n_rounds=1))
    monkeypatch.setattr(flagship, "fit_pool", capture)
    cell = evidence.read_cell(dataset, 0, tables)
    model = kind(random_state=0, device="cpu").fit(cell.train, cell.y_train)
    exercise = ablation.read_exercise(cell)
    for name in ("matrix", "labels", "strata"):
        np.testing.assert_array_equal(
            getattr(exercise.lesson, name), getattr(seen["lesson"], name), err_msg=name
        )
    assert exercise.lesson.n_numbers == seen["lesson"].n_numbers
    assert (exercise.lesson.normal is None) == (seen["lesson"].normal is None)
    np.testing.assert_array_equal(exercise.test, model._matrix(cell.test))


def test_the_pool_of_the_ablation_is_the_pool_of_the_estimator(
    ablation, variants, evidence, tables
):
    exercise = ablation.read_exercise(evidence.read_cell("hills", 2, tables))
    runs = ablation.train_rounds(exercise, PLAN, CPU, 1)
    assert runs[0].out_of_fold.shape == (1, 4, 48, 1)
    pool = fit_pool(
        exercise.lesson,
        replace(PLAN, n_rounds=1),
        device=CPU,
        deadline=Deadline(None),
        seeds=np.random.RandomState([2, 0]),
        watch=lambda *_: ablation.contextlib.nullcontext(),
    )
    variant = variants.list_variants(PLAN, ())[0]
    answer = variants.answer_variant(variant, runs, exercise.lesson.labels, None)
    np.testing.assert_allclose(answer.out_of_fold, pool.out_of_fold)
    np.testing.assert_allclose(answer.test, pool.mixture().predict(exercise.test, CPU))


def test_a_constant_rate_is_flat_and_cycles_come_back(ablation):
    for name, is_flat in [("constant rate", True), ("relu", False)]:
        with ablation.train_as(name):
            assert (len(set(trainer.rate_factors("cycles", 8))) == 1) == is_flat
    assert len(set(trainer.rate_factors("cycles", 8))) > 1


def test_every_changed_setting_is_one_of_the_training(ablation):
    for name, change in ablation.TRAINING.items():
        changed = ablation.change_plan(PLAN, change)
        assert (changed != PLAN) == (name != "constant rate")
        assert [one.name for one in changed.candidates] == ["bins", "plain"]


def test_interrupted_ablation_trains_only_what_is_left(
    ablation, tables, tmp_path, monkeypatch, capsys
):
    trained = []
    train_rounds = ablation.train_rounds

    def count(exercise, plan, device, n_rounds):
        trained.append((exercise.cell.dataset, n_rounds))
        return train_rounds(exercise, plan, device, n_rounds)

    monkeypatch.setattr(ablation, "train_rounds", count)
    out = tmp_path / "ablation.csv"
    where = ["--splits", "1", "--data-home", str(tables), "--out", str(out)]
    ablation.main(["--datasets", "trees", "--variants", "relu", *where])
    assert trained == [("trees", 1)] * 2
    more = ["--variants", "without", "relu", "width 128"]
    ablation.main(["--datasets", "trees", *more, *where])
    ablation.main(["--datasets", "trees", *more, *where])
    assert trained[2:] == [("trees", 2), ("trees", 1)]
    rows = pd.read_csv(out).set_index("variant")
    assert set(rows.index) == {
        *("1 round", "relu", "pool", "without bins", "without plain", "width 128")
    }
    assert rows["score"].between(0, 1).all()
    assert (rows["task"] == "classification").all()
    assert "without bins" in capsys.readouterr().out


def test_a_variant_whose_nets_diverge_has_no_score_and_is_not_tried_again(
    ablation, tables, tmp_path, monkeypatch
):
    monkeypatch.setattr(ablation, "gather_runs", lambda *_: [])
    out = tmp_path / "ablation.csv"
    options = ["--datasets", "hills", "--splits", "1", "--variants", "relu"]
    options += ["--data-home", str(tables), "--out", str(out)]
    ablation.main(options)
    assert pd.read_csv(out)["score"].isna().all()
    monkeypatch.setattr(ablation, "train_rounds", None)
    ablation.main(options)


def test_summary_of_the_ablation_by_hand(ablation, tmp_path):
    rows = pd.DataFrame(
        [
            ("abalone", 0, "pool", 0.8),
            ("abalone", 0, "1 round", 0.6),
            ("abalone", 0, "relu", 0.7),
            ("abalone", 0, "only bins", 0.8),
            ("adult", 0, "pool", 0.4),
            ("adult", 0, "only bins", 0.1),
        ],
        columns=["dataset", "split", "variant", "score"],
    ).assign(task="regression", seconds=2.0)
    records = pd.DataFrame(
        [
            ("clean", "abalone", 0.75, "ok"),
            ("clean", "adult", 0.5, "ok"),
            ("published", "abalone", 0.99, "ok"),
        ],
        columns=["recipe", "dataset", "r2", "status"],
    ).assign(task="regression", method="catboost", split=0, family="GBDT")
    path = tmp_path / "records.csv"
    records.reindex(columns=COLUMNS).to_csv(path, index=False)
    table = ablation.summarise(rows, ablation.read_rival(path)).reset_index()
    table = table[table["half"] == "all"].set_index("variant")
    assert table.loc["pool", "mean"] == pytest.approx(0.6)
    assert table.loc["pool", "won against rival, %"] == 50
    assert table.loc["relu", "gap"] == pytest.approx(0.1)  # against one round, as it was trained
    assert table.loc["only bins", "gap"] == pytest.approx(-0.15)
    assert table.loc["only bins", "won, %"] == 25  # a tie and a loss
    without = ablation.summarise(rows, None)
    assert "won against rival, %" not in without
    assert without.loc[("evaluation", "regression", "pool"), "mean"] == pytest.approx(0.4)


def test_a_table_without_catboost_is_refused(ablation, tmp_path):
    record = {"recipe": "clean", "task": "regression", "dataset": "servo", "method": "ridge"}
    record |= {"split": 0, "family": "GLM", "status": "ok", "r2": 0.5}
    path = tmp_path / "records.csv"
    pd.DataFrame([record]).reindex(columns=COLUMNS).to_csv(path, index=False)
    with pytest.raises(SystemExit, match="no scores of catboost"):
        ablation.read_rival(path)


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
