"""Views of the matrix, and rounds of cross-fitting: which candidates go on, with which weight."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from muddle.errors import DivergenceError
from muddle.estimators import bodies as bodies_module
from muddle.estimators import pool as pool_module
from muddle.estimators.calibrate import fit_normal_scores
from muddle.estimators.crossfit import (
    N_CHOSEN,
    BodyCandidate,
    Candidate,
    choose_features,
    draw_folds,
    is_wide,
)
from muddle.estimators.pool import (
    N_BINS,
    N_CURVES,
    NetSeeds,
    Plan,
    TrainingSet,
    build_jobs,
    fit_pool,
    fit_view,
    make_plan,
    prune_members,
    weigh_members,
)
from muddle.estimators.time_limit import Pace, Schedule, Work
from muddle.training.stopping import Deadline
from muddle_runtime.forward import view_features

CPU = torch.device("cpu")
N_NUMBERS = 3
VIEWS = ["plain", "bins", "waves"]


def test_presets_differ_in_candidates_and_rounds():
    fast, default, best = (make_plan("regression", p, 100) for p in ("fast", "default", "best"))
    assert default.candidates == best.candidates
    assert [c.name for c in fast.candidates] == ["waves", "kernel", "forest", "linear"]
    assert [c.kind for c in default.bodies] == ["kernel", "forest", "linear", "boosting"]
    assert len(default.nets) == 4
    assert (fast.n_rounds, default.n_rounds, best.n_rounds) == (1, 1, 7)
    assert make_plan("regression", "best", 5000).n_rounds == 3
    skewed = (make_plan("regression", p, 100, skewed=True).candidates for p in ("fast", "default"))
    assert [[c.target for c in own].count("normal") for own in skewed] == [0, 2]


def test_several_labels_have_no_boosting_and_a_model_without_rows_no_kernel():
    plan = make_plan("classification", "default", 100, n_labels=3)
    assert [body.kind for body in plan.bodies] == ["kernel", "forest", "linear"]
    for preset in ("fast", "default", "best"):
        plan = make_plan("regression", preset, 100, skewed=True, keep_rows=False)
        assert "kernel" not in {body.kind for body in plan.bodies}
        assert "forest" in {body.kind for body in plan.bodies}


def test_more_rows_mean_larger_batches_more_steps_and_fewer_wider_nets():
    plans = [make_plan("classification", "default", n_rows) for n_rows in (100, 5000, 10**6)]
    configs = [plan.nets[0].config for plan in plans]
    assert [config.batch_size for config in configs] == [256, 1000, 2048]
    assert [config.steps for config in configs] == [100, 496, 1500]
    assert [config.width for config in configs] == [128, 256, 256]
    assert [len(plan.nets) for plan in plans] == [3, 2, 2]
    rates = [config.learning_rate for config in configs]
    assert rates == [pytest.approx(1e-3), pytest.approx(4e-3), pytest.approx(1e-2)]
    several = make_plan("classification", "default", 100, n_labels=3)
    assert (several.nets[0].config.width, several.nets[0].config.steps) == (256, 200)


@pytest.fixture(scope="module")
def matrix():
    """Two numbers of many values, one of three, and two columns of zeros and ones."""
    rng = np.random.default_rng(0)
    few = rng.choice([-1.0, 0.0, 2.0], size=60)
    return np.column_stack([rng.normal(size=(60, 2)), few, rng.integers(0, 2, size=(60, 2))])


def see(name, matrix, n_numbers=N_NUMBERS, weights=None, seed=0):
    """A view and its features."""
    view = fit_view(name, matrix, n_numbers, weights, seed)
    return view, view_features(view, matrix)


@pytest.mark.parametrize("name", VIEWS)
def test_features_are_made_of_their_source_alone_and_others_than_numbers_stay(name, matrix):
    np.testing.assert_array_equal(see(name, matrix, n_numbers=0)[1], matrix.astype(np.float32))
    view, seen = see(name, matrix)
    assert np.isfinite(view_features(view, 1e3 * matrix)).all()
    np.testing.assert_allclose(view_features(view, matrix[7:8])[0], seen[7], rtol=1e-6)
    for feature in range(matrix.shape[1]):
        changed = matrix.copy()
        changed[:, feature] = changed[::-1, feature]
        differs = (view_features(view, changed) != seen).any(axis=0)
        np.testing.assert_array_equal(differs, view.sources == feature)
    for feature in (3, 4):
        np.testing.assert_array_equal(seen[:, view.sources == feature][:, 0], matrix[:, feature])


def test_bins_are_filled_one_after_the_other_without_a_jump(matrix):
    numbers = matrix[:, :1]
    view, own = see("bins", numbers, 1)
    seen = view_features(view, np.linspace(numbers.min(), numbers.max(), 2001)[:, None])
    assert (np.diff(seen, axis=0) >= 0).all()
    assert np.diff(seen, axis=0).max() < 0.05
    np.testing.assert_allclose(seen[[0, -1]], [[0.0] * N_BINS, [1.0] * N_BINS], atol=1e-6)
    for earlier, later in zip(seen.T[:-1], seen.T[1:], strict=True):
        assert (earlier[later > 0] == 1).all()
    in_bin = (own > 0).sum(axis=0) - (own >= 1).sum(axis=0)
    assert in_bin.max() <= 60 / N_BINS + 1  # equally many rows in each


@pytest.mark.parametrize("weighted", [False, True])
def test_a_value_in_most_rows_leaves_bins_to_the_others(weighted):
    rng = np.random.default_rng(0)
    amounts = np.where(rng.random(2000) < 0.92, 0.0, rng.lognormal(1.0, 1.0, 2000))[:, None]
    weights = np.ones(2000) if weighted else None
    view, seen = see("bins", amounts, 1, weights)
    assert view.n_seen == N_BINS
    others = seen[amounts[:, 0] > 0]
    inside = ((others > 0) & (others < 1)).mean(axis=0)
    np.testing.assert_allclose(inside[1:], 1 / 7, atol=0.02)  # the first ends at the least of them
    shifted = np.concatenate([amounts, -amounts - 1.0])  # two frequent values, in the middle
    assert see("bins", shifted, 1)[0].n_seen == N_BINS


def test_bins_count_rows_by_weight():
    numbers = np.linspace(0.0, 1.0, 101)[:, None]
    heavy = np.where(numbers[:, 0] < 0.2, 9.0, 1.0)
    plain, weighted = (see("bins", numbers, 1, w)[0] for w in (None, heavy / heavy.mean()))
    row = np.array([[0.2]])
    assert view_features(plain, row).sum() == pytest.approx(0.2 * N_BINS, abs=0.1)
    assert view_features(weighted, row).sum() > 0.6 * N_BINS


def test_a_number_of_few_values_has_few_bins_and_a_constant_none(matrix):
    view, seen = see("bins", matrix)
    expected = {-1.0: [0, 0], 0.0: [1, 0], 2.0: [1, 1]}
    wanted = [expected[value] for value in matrix[:, 2]]
    np.testing.assert_allclose(seen[:, view.sources == 2], wanted)
    view, seen = see("bins", np.column_stack([matrix[:, 0], np.full(60, 2.0), matrix[:, 3]]), 2)
    assert set(view.sources) == {0, 2}
    assert np.isfinite(seen).all()


def test_waves_are_the_matrix_and_drawn_curves_of_each_number(matrix):
    view, seen = see("waves", matrix, seed=1)
    np.testing.assert_array_equal(seen[:, :5], matrix.astype(np.float32))
    curves = seen[:, 5:].reshape(60, N_NUMBERS, N_CURVES)
    for number in range(N_NUMBERS):
        angles = 2 * np.pi * np.outer(matrix[:, number], view.frequencies[number])
        expected = np.cos(angles + view.phases[number]) @ view.mixtures[number]
        np.testing.assert_allclose(curves[:, number], expected, atol=1e-5)
    assert (see("waves", matrix, seed=2)[1][:, 5:] != seen[:, 5:]).any(axis=0).all()


@pytest.fixture(scope="session")
def candidates(tiny_config):
    """By name. "mute" has a penalty under which nothing is learnt; "broken" never a finite loss."""
    change = {
        "waves": ("waves", {}),
        "plain": ("plain", {"depth": 2}),
        "deep": ("plain", {"depth": 2}),
        "mute": ("bins", {"penalty": 1e9, "learning_rate": 1e-6}),
        "broken": ("plain", {"max_loss": 1e-9}),
    }
    return {
        name: Candidate(name, view, replace(tiny_config, **options))
        for name, (view, options) in change.items()
    }


def draw_rows(n_rows=60, signal=1.0, n_labels=1, weights=None):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(n_rows, 3))
    labels = signal * matrix[:, :n_labels] + 0.3 * rng.normal(size=(n_rows, n_labels))
    labels = (labels - labels.mean(axis=0)) / labels.std(axis=0)
    return TrainingSet(matrix, 3, labels, labels.mean(axis=1), weights, np.arange(n_rows))


@pytest.fixture(scope="session")
def fit(candidates):
    def fit(training, names, n_rounds=1, limit=None, bodies=()):
        chosen = [candidates[name] if isinstance(name, str) else name for name in names]
        schedule, deadline = None, Deadline(limit)
        if limit is not None:  # a machine that is fast enough for all of it
            n_rows = len(training.labels)
            work = Work(chosen[0].config, 12, n_rows, n_rows - n_rows // 5, 5)
            schedule = Schedule(deadline, 0.0, Pace(1e-15, 1e-15), 1, work, work)
        return fit_pool(
            training,
            Plan(tuple(chosen), tuple(bodies), n_rounds),
            device=CPU,
            deadline=deadline,
            schedule=schedule,
            seeds=np.random.RandomState(0),
            watch=lambda *_: nullcontext(),
        )

    return fit


@pytest.fixture(scope="session")
def three_rounds(fit):
    return fit(draw_rows(), ["waves", "mute"], n_rounds=3)


def trials_of(pool):
    return {trial.candidate.name: trial for trial in pool.trials}


def r2(predicted, labels):
    return 1 - ((predicted - labels) ** 2).sum() / (labels**2).sum()


def test_only_candidates_with_weight_get_further_rounds(three_rounds, held_out_outputs):
    trials = trials_of(three_rounds)
    for name, n_rounds in (("waves", 3), ("mute", 1)):
        assert trials[name].n_rounds == n_rounds
        for member in trials[name].members:
            assert member.nets.n_nets == member.folds.n_nets == len(member.views) == 5 * n_rounds
    weights = {"waves": 0.0, "mute": 0.0}
    for member, weight in zip(three_rounds.members, three_rounds.weights, strict=True):
        weights[member.candidate.name] += weight
        # Out of fold, all nets that held a row out predict it.
        expected = held_out_outputs(member, three_rounds.training.matrix)
        np.testing.assert_allclose(member.out_of_fold, expected, rtol=1e-9, atol=1e-10)
    assert weights["mute"] < pool_module.LEAST_SHARE
    member = three_rounds.members[0]  # every round has nets and folds of its own
    assert len({tuple(rows) for rows in member.folds.held_out}) == 15
    assert len({tuple(net.flatten().tolist()) for net in member.nets.weights[0]}) == 15


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"waves": 0.91, "plain": 0.09}, {"waves": 2, "plain": 1}),
        ({"waves": 0.89, "plain": 0.11}, {"waves": 2, "plain": 2}),
        ({"waves": 0.3, "plain": 0.2, "deep": 0.5}, {"waves": 2, "plain": 1, "deep": 2}),
    ],
)
def test_further_rounds_are_for_the_two_with_the_highest_weights(
    shares, expected, fit, monkeypatch
):
    weights = np.repeat([share / 4 for share in shares.values()], 4)  # of members, by candidate
    monkeypatch.setattr(pool_module, "weigh_members", lambda *_: weights)
    trials = trials_of(fit(draw_rows(), list(shares), n_rounds=2))
    assert {name: trial.n_rounds for name, trial in trials.items()} == expected


LINEAR = [BodyCandidate("linear", "linear")]


@pytest.mark.parametrize("limit", [None, 1000.0])
def test_nets_after_the_first_are_left_out_if_they_promise_no_gain(fit, monkeypatch, limit):
    monkeypatch.setattr(pool_module, "FEW_ROWS", 50)
    asked = []

    def refuse(pool):
        asked.append([(trial.candidate.name, len(trial.members)) for trial in pool.trials])
        return False

    monkeypatch.setattr(pool_module, "worth_going_on", refuse)
    pool = fit(draw_rows(), ["waves", "plain", "deep"], bodies=LINEAR, limit=limit)
    assert asked == [[("waves", 4), ("plain", 0), ("deep", 0), ("linear", 1)]]
    outcomes = {name: trial.outcome for name, trial in trials_of(pool).items()}
    expected = {"waves": "trained", "plain": "no gain", "deep": "no gain", "linear": "trained"}
    assert outcomes == expected
    board = pool.rank(lambda predicted: r2(predicted, pool.training.labels))
    assert (board["outcome"] == "no gain").sum() == 2
    monkeypatch.setattr(pool_module, "FEW_ROWS", 60)  # small tables do not ask
    names = [member.name for member in fit(draw_rows(), ["waves", "plain"], limit=limit).members]
    assert names == ["waves"] * 4 + ["plain"] * 4


def test_a_net_that_lowers_the_error_promises_more_and_one_that_does_not_none(fit):
    curved = draw_rows(120)
    curved = replace(curved, labels=np.abs(curved.matrix[:, :1]) - 0.8)
    assert pool_module.worth_going_on(fit(curved, ["waves"], bodies=LINEAR))
    straight = replace(curved, labels=curved.matrix[:, :1])
    assert not pool_module.worth_going_on(fit(straight, ["waves"], bodies=LINEAR))
    # Without a net, or without another body, nothing can be compared.
    assert pool_module.worth_going_on(fit(straight, ["broken"], bodies=LINEAR))
    assert pool_module.worth_going_on(fit(straight, ["waves"]))


def test_only_the_kernel_counts_as_faster_on_a_gpu():
    training = draw_rows(120)
    for kind, factor in (("kernel", pool_module.GPU_SPEED_UP), ("forest", 1.0)):
        body = BodyCandidate(kind, kind)
        on_core, on_gpu = (
            pool_module.estimate_body(training, body, 5, on_gpu=on_gpu) for on_gpu in (False, True)
        )
        assert on_core == pytest.approx(factor * on_gpu)


def test_classes_and_plans_of_several_rounds_always_go_on(fit, monkeypatch):
    monkeypatch.setattr(pool_module, "FEW_ROWS", 50)
    monkeypatch.setattr(pool_module, "worth_going_on", lambda pool: False)
    classes = replace(draw_rows(), of_classes=True)
    for training, n_rounds in ((draw_rows(), 2), (classes, 1)):
        trials = trials_of(fit(training, ["waves", "plain"], n_rounds=n_rounds, bodies=LINEAR))
        assert trials["plain"].outcome == "trained"


def test_stages_change_nothing_if_all_are_trained(fit, monkeypatch):
    pools = []
    for few_rows in (1000, 50):
        monkeypatch.setattr(pool_module, "FEW_ROWS", few_rows)
        pools.append(fit(draw_rows(), ["waves", "plain", "mute"], n_rounds=2, bodies=LINEAR))
    at_once, staged = pools
    np.testing.assert_array_equal(staged.weights, at_once.weights)
    for one, other in zip(staged.members, at_once.members, strict=True):
        np.testing.assert_array_equal(one.out_of_fold, other.out_of_fold)


def test_later_nets_are_trained_if_all_before_diverged(fit, monkeypatch):
    monkeypatch.setattr(pool_module, "FEW_ROWS", 50)
    trials = trials_of(fit(draw_rows(), ["broken", "waves"]))
    assert trials["waves"].outcome == "trained"


def test_out_of_fold_labels_are_the_weighted_mean_of_members(fit):
    training = draw_rows(120, n_labels=2)
    pool = fit(training, ["waves", "plain", "mute"])
    assert len(pool.members) == len(pool.weights) == 12
    pairs = zip(pool.weights, pool.members, strict=True)
    expected = sum(weight * member.out_of_fold for weight, member in pairs) + pool.offset
    np.testing.assert_allclose(pool.out_of_fold, expected)
    assert r2(pool.out_of_fold, training.labels) > 0.7
    noise = draw_rows(120, signal=0.0)
    assert r2(fit(noise, ["waves", "plain"]).out_of_fold, noise.labels) < 0.05


def test_a_pool_without_weights_predicts_the_mean(fit, monkeypatch):
    monkeypatch.setattr(pool_module, "weigh_members", lambda predicted, *_: 0 * predicted[:, 0, 0])
    training = draw_rows()
    training = replace(training, labels=training.labels + 0.5)  # as of uneven classes
    pool = fit(training, ["waves"], n_rounds=2)
    mean = training.labels.mean(axis=0)
    assert pool.offset == pytest.approx(mean)
    assert pool.out_of_fold == pytest.approx(np.tile(mean, (60, 1)))


# --- pruning -------------------------------------------------------------------------------------


def draw_members(noise, n_rows=200, seed=0):
    """Members with errors of these sizes. -> labels (N, 1), predictions (M, N, 1)"""
    rng = np.random.default_rng(seed)
    labels = rng.normal(size=(n_rows, 1))
    return labels, np.stack([labels + size * rng.normal(size=labels.shape) for size in noise])


def measure(weights, predicted, labels, rows=None):
    mixed = np.tensordot(weights, predicted, axes=1)
    mixed += (1 - weights.sum()) * np.average(labels, axis=0, weights=rows)
    return np.average(((mixed - labels) ** 2).mean(axis=1), weights=rows)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_pruning_never_raises_the_error_and_says_by_how_much_it_fell(seed, weighted):
    labels, predicted = draw_members([0.3, 0.35, 0.4, 1.5, 2.0, 2.5], seed=seed)
    rows = np.random.default_rng(seed).uniform(0.5, 2, len(labels)) if weighted else None
    before = weigh_members(predicted, labels, rows)
    after, changes = prune_members(before, predicted, labels, rows)
    pruned = (before > 0) & (after == 0)
    np.testing.assert_array_equal(pruned, ~np.isnan(changes))
    first, last = (measure(own, predicted, labels, rows) for own in (before, after))
    assert last <= first
    assert changes[pruned].sum() == pytest.approx((last - first) / first)
    assert after.sum() <= 1 + 1e-9


def test_a_copy_is_pruned_and_members_that_count_stay():
    labels, (one, other) = draw_members([0.3, 0.3])
    predicted = np.stack([one, other, one])
    weights, changes = prune_members(np.array([0.25, 0.5, 0.25]), predicted, labels, None)
    assert np.count_nonzero(weights) == 2
    assert weights[1] > 0
    assert np.isnan(changes).sum() == 2


def test_pruned_members_are_in_the_leaderboard_and_not_in_the_model(fit, monkeypatch):
    monkeypatch.setattr(pool_module, "MOST_RISE", 10.0)  # all but one
    pool = fit(draw_rows(), ["waves", "plain"], bodies=LINEAR)
    board = pool.rank(lambda predicted: r2(predicted, pool.training.labels))
    assert len(pool.to_fitted()) == np.count_nonzero(pool.weights) == 1
    told = board[board["pruned"].notna()]
    assert len(told) >= 1
    assert (told["weight"] == 0).all()
    assert board["weight"].sum() == pytest.approx(1)


@pytest.mark.parametrize("limit", [None, 1000.0])
def test_a_candidate_that_diverges_is_named_and_left_out(fit, limit):
    for order in (["broken", "waves"], ["waves", "broken"]):
        trials = trials_of(fit(draw_rows(), order, n_rounds=2, limit=limit))
        assert (trials["broken"].outcome, trials["broken"].members) == ("diverged", [])
        assert (trials["waves"].outcome, trials["waves"].n_rounds) == ("trained", 2)
    with pytest.raises(DivergenceError, match="none of 1 configurations had a finite"):
        fit(draw_rows(), ["broken"], limit=limit)


def test_only_candidates_for_normal_scores_learn_transformed_labels(fit, candidates):
    training = draw_rows(100)
    normal = replace(candidates["plain"], name="normal scores", target="normal")
    assert training.choose_labels(normal) == (training.labels, None)  # there is no long tail
    labels = np.exp(1.2 * training.matrix[:, :1])
    labels = (labels - labels.mean()) / labels.std()
    training = replace(training, labels=labels, normal=fit_normal_scores(labels))
    assert np.abs(training.choose_labels(normal)[0] - labels).max() > 0.5
    trials = trials_of(fit(training, ["plain", normal]))
    for name, expected in (("plain", None), ("normal scores", training.normal)):
        member = trials[name].members[-1]
        assert member.normal is expected
        assert r2(member.out_of_fold, labels) > 0.3  # both in the units of the labels


def test_row_weights_reach_nets_and_pool(fit, monkeypatch):
    weights = np.where(np.arange(60) < 30, 1.9, 0.1)
    seen = []
    monkeypatch.setattr(
        pool_module, "weigh_members", lambda p, _, rows, mean: seen.append(rows) or p[:, 0, 0]
    )
    even, uneven = (fit(draw_rows(weights=w), ["plain"]).members[-1] for w in (None, weights))
    assert seen[0] is None
    np.testing.assert_array_equal(seen[1], weights)
    assert not torch.allclose(even.head, uneven.head)


def test_bodies_are_weighed_with_nets_in_the_same_folds(fit, monkeypatch):
    monkeypatch.setattr(bodies_module, "N_TREES", 10)
    bodies = [BodyCandidate(kind, kind) for kind in ("linear", "forest", "kernel", "boosting")]
    training = draw_rows(80)
    pool = fit(training, ["mute"], n_rounds=2, bodies=bodies)
    trials = trials_of(pool)
    assert [trials[body.name].n_rounds for body in bodies] == [1] * 4
    assert sum(pool.weights[-4:]) > 0.9  # the net learns nothing
    nets = trials["mute"].members[0]
    for body in bodies:
        (member,) = trials[body.name].members
        np.testing.assert_array_equal(member.folds.held_out, nets.folds.held_out[:5])
        again = member.predict_out_of_fold(training.matrix, training.rows)
        np.testing.assert_allclose(again, member.out_of_fold, atol=1e-6)
    board = pool.rank(lambda predicted: r2(predicted, training.labels))
    assert set(board["configuration"]) == {"mute", "linear", "forest", "kernel", "boosting"}
    assert board["configuration"].iloc[0] == "linear"  # as the target is


@pytest.mark.parametrize("limit", [None, 1000.0])
def test_a_body_that_diverges_is_named_and_left_out(fit, monkeypatch, limit):
    def diverge(*_):
        raise DivergenceError("none")

    monkeypatch.setitem(bodies_module.BODIES, "kernel", diverge)
    bodies = [BodyCandidate("kernel", "kernel"), BodyCandidate("linear", "linear")]
    trials = trials_of(fit(draw_rows(), ["waves"], limit=limit, bodies=bodies))
    assert (trials["kernel"].outcome, trials["kernel"].members) == ("diverged", [])
    assert (trials["linear"].outcome, len(trials["linear"].members)) == ("trained", 1)


def test_only_bodies_for_normal_scores_learn_transformed_labels(fit):
    training = draw_rows(100)
    labels = np.exp(1.2 * training.matrix[:, :1])
    labels = (labels - labels.mean()) / labels.std()
    training = replace(training, labels=labels, normal=fit_normal_scores(labels))
    bodies = [BodyCandidate("plain", "linear"), BodyCandidate("normal", "linear", "normal")]
    trials = trials_of(fit(training, ["mute"], bodies=bodies))
    plain, normal = (trials[body.name].members[0] for body in bodies)
    assert plain.normal is None
    assert normal.normal is training.normal
    assert r2(normal.out_of_fold, labels) > r2(plain.out_of_fold, labels) + 0.1


# --- wide tables ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_rows", "n_features", "wide"),
    [
        *[(20, 500, False), (20, 501, True), (100, 1000, False), (100, 1001, True)],
        *[(1000, 2000, False), (1000, 2001, True), (3000, 2900, False), (3000, 3001, True)],
    ],
)
def test_a_table_is_wide_by_its_rows_and_columns(n_rows, n_features, wide):
    assert is_wide(n_rows, n_features) is wide
    plan = make_plan("regression", "default", n_rows, wide=wide)
    assert wide is ("boosting" not in [body.kind for body in plan.bodies])


def draw_wide(n_rows=30, n_features=700, n_labels=1):
    """Labels are features 7, 8, ... and a little noise; the last half of the features are flags."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(n_rows, n_features))
    matrix[:, n_features // 2 :] = rng.integers(0, 2, size=(n_rows, n_features - n_features // 2))
    labels = matrix[:, 7 : 7 + n_labels] + 0.01 * rng.normal(size=(n_rows, n_labels))
    return matrix, labels


@pytest.mark.parametrize("weighted", [False, True])
def test_the_features_chosen_are_those_that_correlate_most(weighted):
    matrix, labels = draw_wide(n_labels=2)
    matrix[:, 5] = 1.0  # a constant
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 30) if weighted else None
    share = np.full(30, 1 / 30) if weights is None else weights / weights.sum()
    scores = []
    for feature in matrix.T:
        products = [np.cov(feature, label, aweights=share, ddof=0) for label in labels.T]
        scores.append(sum(p[0, 1] ** 2 / (p[0, 0] or np.inf) for p in products))
    found = choose_features(matrix, labels, weights)
    np.testing.assert_array_equal(found, np.sort(np.argsort(scores)[::-1][:N_CHOSEN]))
    assert {7, 8} <= set(found.tolist())
    assert 5 not in found
    many = np.tile(matrix, (5, 1)), np.tile(labels, (5, 1))
    assert len(choose_features(*many, None)) == 150  # as many as rows


@pytest.mark.parametrize("name", VIEWS)
def test_nets_of_a_wide_table_choose_features_without_the_rows_that_they_hold_out(
    name, tiny_config
):
    matrix, labels = draw_wide()
    folds = draw_folds(labels[:, 0], 5, 0)
    seeds = NetSeeds.draw(np.random.RandomState(0), 5)
    candidate = Candidate("tiny", name, tiny_config)

    def build(labels):
        own = TrainingSet(matrix, 350, labels, labels[:, 0], None, np.arange(30))
        views, (job,) = build_jobs(own, candidate, folds, seeds)
        return views, job

    views, job = build(labels)
    assert job.data.features.shape == (5, 30, views[0].n_seen)
    assert all(view.chosen.shape == (N_CHOSEN,) and 7 in view.chosen for view in views)
    assert {view.n_features for view in views} == {700}
    assert set(views[1].sources) <= set(views[1].chosen)
    inner = view_features(views[1].inner, matrix[:, views[1].chosen])
    np.testing.assert_array_equal(job.data.features[1].numpy(), inner)
    changed = labels.copy()
    changed[folds.held_out[1]] *= -3.0
    same = [
        np.array_equal(one.chosen, other.chosen)
        for one, other in zip(views, build(changed)[0], strict=True)
    ]
    assert same[1]
    assert not all(same)
