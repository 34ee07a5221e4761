"""Rounds of cross-fitting: who goes on, what becomes of whom, and what the pool says."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from muddle.errors import DivergenceError
from muddle.flagship import fitting, parallel
from muddle.flagship.fitting import Effort, Lesson, Trial, fit_pool
from muddle.flagship.pace import Pace, Work
from muddle.flagship.pool import Candidate, Plan
from muddle.flagship.targets import fit_normal_scores
from muddle.training.config import TrainConfig
from muddle.training.stopping import Deadline

CPU = torch.device("cpu")
CONFIG = TrainConfig(
    depth=1,
    width=16,
    activation="selu",
    loss="paper",
    max_iter=15,  # cycles end at 1, 3, 7 and 15
    learning_rate=1e-2,
    n_permutations=2,
    structured_noise=0.0,
    schedule="cycles",
    scale_rate=6.0,
    keep="cycles",
)
WAVES = Candidate("waves", "waves", CONFIG)
PLAIN = Candidate("plain", "plain", replace(CONFIG, depth=2))
# A penalty that leaves nothing to say, and training that does not lower it.
MUTE = Candidate("mute", "bins", replace(CONFIG, penalty=1e9, learning_rate=1e-6))
BROKEN = Candidate("broken", "plain", replace(CONFIG, max_loss=1e-9))


def draw_lesson(n_rows=60, signal=1.0, n_labels=1, weights=None):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(n_rows, 3))
    labels = signal * matrix[:, :n_labels] + 0.3 * rng.normal(size=(n_rows, n_labels))
    labels = (labels - labels.mean(axis=0)) / labels.std(axis=0)
    return Lesson(matrix, 3, labels, labels.mean(axis=1), weights)


class Watcher:
    """Remembers what was announced, and what was reported."""

    def __init__(self):
        self.announced, self.done = [], []

    @contextlib.contextmanager
    def __call__(self, n_net_iterations, label):
        self.announced.append((label, n_net_iterations))
        self.done.append(0)
        yield self

    def advance(self, n_net_iterations, loss, score):
        self.done[-1] += n_net_iterations

    def say(self, text):
        raise AssertionError(text)


def fit(lesson, candidates, n_rounds=1, seed=0, watch=None, limit=None):
    effort = None
    if limit is not None:  # a machine that is fast enough for all of it
        n_rows = len(lesson.labels)
        work = Work(candidates[0].config, 12, n_rows, n_rows - n_rows // 5, 5)
        effort = Effort(Pace(1e-15, 1e-15), work, ())
    return fit_pool(
        lesson,
        Plan(tuple(candidates), n_rounds),
        device=CPU,
        deadline=Deadline(limit),
        effort=effort,
        seeds=np.random.RandomState(seed),
        watch=watch or Watcher(),
    )


def trials_of(pool):
    return {trial.candidate.name: trial for trial in pool.trials}


def r2(said, labels):
    return 1 - ((said - labels) ** 2).sum() / (labels**2).sum()


def test_only_candidates_that_count_get_further_rounds():
    pool = fit(draw_lesson(), [WAVES, MUTE], n_rounds=3)
    trials = trials_of(pool)
    assert trials["waves"].n_rounds == 3
    assert trials["mute"].n_rounds == 1
    for name, n_nets in (("waves", 15), ("mute", 5)):
        for member in trials[name].members:
            assert (
                member.part.nets.n_nets == member.folds.n_nets == len(member.part.views) == n_nets
            )
    shares = {"waves": 0.0, "mute": 0.0}
    for member, weight in zip(pool.members, pool.weights, strict=True):
        shares[member.candidate.name] += weight
    assert shares["mute"] < fitting.LEAST_SHARE


@pytest.mark.parametrize(("share", "n_rounds"), [(0.09, 1), (0.11, 2)])
def test_members_of_a_candidate_count_together(share, n_rounds, monkeypatch):
    def weigh(said, labels, weights):
        return np.concatenate([np.full(4, (1 - share) / 4), np.full(4, share / 4)])

    monkeypatch.setattr(fitting, "weigh_members", weigh)
    trials = trials_of(fit(draw_lesson(), [WAVES, PLAIN], n_rounds=2))
    assert trials["waves"].n_rounds == 2
    assert trials["plain"].n_rounds == n_rounds


def test_further_rounds_are_for_the_two_that_count_most(monkeypatch):
    shares = {"waves": 0.3, "plain": 0.2, "deep": 0.5}
    three = [WAVES, PLAIN, replace(PLAIN, name="deep")]
    monkeypatch.setattr(
        fitting,
        "weigh_members",
        lambda *_: np.repeat([shares[candidate.name] / 4 for candidate in three], 4),
    )
    trials = trials_of(fit(draw_lesson(), three, n_rounds=2))
    assert {name: trial.n_rounds for name, trial in trials.items()} == {
        "waves": 2,
        "plain": 1,
        "deep": 2,
    }


def test_further_rounds_have_nets_and_folds_of_their_own():
    pool = fit(draw_lesson(), [WAVES], n_rounds=3)
    folds = pool.members[0].folds
    starts = {tuple(rows) for rows in folds.held_out}
    assert len(starts) == 15
    weights = pool.members[0].part.nets.weights[0]
    assert len({tuple(net.flatten().tolist()) for net in weights}) == 15
    counts = np.bincount(folds.held_out.ravel(), minlength=60)
    np.testing.assert_array_equal(counts, 3)


def test_a_pool_says_out_of_fold_the_mean_over_all_nets_that_held_a_row_out():
    lesson = draw_lesson()
    pool = fit(lesson, [WAVES], n_rounds=3)
    for member in pool.members:
        total, count = np.zeros((60, 1)), np.zeros((60, 1))
        for net, view in enumerate(member.part.views):
            rows = member.folds.held_out[net]
            own = member.part.nets.keep([net]).map(torch.Tensor.double)
            hidden = own.hidden(torch.from_numpy(view.apply(lesson.matrix[rows])).double())[0]
            total[rows] += (hidden @ member.held_out_head[net]).numpy()
            count[rows] += 1
        np.testing.assert_allclose(member.out_of_fold, total / count, rtol=1e-9, atol=1e-10)


def test_the_answer_is_the_weighted_mean_of_members_in_and_out_of_fold():
    lesson = draw_lesson(n_labels=2)
    pool = fit(lesson, [WAVES, PLAIN, MUTE])
    assert len(pool.members) == len(pool.weights) == 12
    assert pool.weights.sum() == pytest.approx(1.0)
    pairs = list(zip(pool.members, pool.weights, strict=True))
    np.testing.assert_allclose(pool.out_of_fold, sum(w * m.out_of_fold for m, w in pairs))
    new = np.random.default_rng(1).normal(size=(9, 3))
    mixture = pool.mixture()
    assert len(mixture.parts) == np.count_nonzero(pool.weights) < 12
    expected = sum(w * m.part.predict(new, CPU) for m, w in pairs)
    np.testing.assert_allclose(mixture.predict(new, CPU), expected)


def test_a_signal_is_found_and_noise_is_not():
    signal, noise = draw_lesson(120), draw_lesson(120, signal=0.0)
    assert r2(fit(signal, [WAVES, PLAIN]).out_of_fold, signal.labels) > 0.7
    assert r2(fit(noise, [WAVES, PLAIN]).out_of_fold, noise.labels) < 0.05


@pytest.mark.parametrize("limit", [None, 1000.0])
@pytest.mark.parametrize("order", [[BROKEN, WAVES], [WAVES, BROKEN]])
def test_a_candidate_that_diverges_is_named_and_left_out(order, limit):
    trials = trials_of(fit(draw_lesson(), order, n_rounds=2, limit=limit))
    assert (trials["broken"].outcome, trials["broken"].members) == ("diverged", [])
    assert (trials["waves"].outcome, trials["waves"].n_rounds) == ("trained", 2)


@pytest.mark.parametrize("limit", [None, 1000.0])
def test_a_pool_of_nothing_is_an_error(limit):
    with pytest.raises(DivergenceError, match="finite loss"):
        fit(draw_lesson(), [BROKEN], limit=limit)


def test_a_further_round_that_fails_leaves_what_was_there():
    members = trials_of(fit(draw_lesson(), [WAVES]))["waves"].members
    before = Trial(WAVES, members, 2.0, 1, "trained")
    cut = [*members[:-1], replace(members[-1], iteration=members[-1].iteration - 1)]
    for now in (
        Trial(WAVES, [], 1.0, 0, "diverged"),
        Trial(WAVES, members[:3], 1.0, 1, "trained"),
        Trial(WAVES, cut, 1.0, 1, "trained"),
    ):
        assert fitting._add_round(before, now) is before
    first = Trial(WAVES, members, 1.0, 1, "trained")
    assert fitting._add_round(Trial(WAVES, [], 0.0, 0, "no time"), first) is first
    both = fitting._add_round(before, first)
    assert (both.seconds, both.n_rounds, both.outcome) == (3.0, 2, "trained")
    assert both.members[0].part.nets.n_nets == 10


def test_nets_that_all_diverge_in_further_rounds_do_not_lose_the_first(monkeypatch):
    trained = []

    def fail_later(*args, **options):
        if trained:
            raise DivergenceError("none")
        trained.append(True)
        return train_jobs(*args, **options)

    train_jobs = parallel.train_jobs
    monkeypatch.setattr(parallel, "train_jobs", fail_later)
    trial = trials_of(fit(draw_lesson(), [WAVES], n_rounds=3))["waves"]
    assert (trial.outcome, trial.n_rounds, len(trial.members)) == ("trained", 1, 4)


def test_a_pool_that_says_nothing_answers_with_the_mean(monkeypatch):
    monkeypatch.setattr(fitting, "weigh_members", lambda said, *_: np.zeros(len(said)))
    lesson = draw_lesson()
    lesson = replace(lesson, labels=lesson.labels + 0.5)  # as of uneven classes
    pool = fit(lesson, [WAVES], n_rounds=2)
    mean = lesson.labels.mean(axis=0)
    assert pool.out_of_fold == pytest.approx(np.tile(mean, (60, 1)))
    assert pool.mixture().predict(lesson.matrix[:5], CPU) == pytest.approx(np.tile(mean, (5, 1)))


def test_the_same_seeds_give_the_same_pool_to_the_last_bit():
    first, again, other = (
        fit(draw_lesson(), [WAVES, PLAIN], n_rounds=2, seed=seed) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.out_of_fold, again.out_of_fold)
    np.testing.assert_array_equal(first.weights, again.weights)
    assert (first.out_of_fold != other.out_of_fold).all()


def test_every_net_draws_its_own_waves_unless_the_table_is_large(monkeypatch):
    views = fit(draw_lesson(), [WAVES]).members[0].part.views
    assert len({id(view) for view in views}) == 5
    assert len({float(view.phases[0, 0]) for view in views}) == 5
    monkeypatch.setattr(fitting, "MOST_NUMBERS", 60 * 3 * 5 - 1)
    views = fit(draw_lesson(), [WAVES]).members[0].part.views
    assert len(views) == 5
    assert len({id(view) for view in views}) == 1


def test_nets_of_one_view_share_it():
    views = trials_of(fit(draw_lesson(), [MUTE, PLAIN]))["mute"].members[0].part.views
    assert len({id(view) for view in views}) == 1


def test_only_candidates_for_normal_scores_learn_bent_labels():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(100, 3))
    labels = np.exp(1.2 * matrix[:, :1])
    labels = (labels - labels.mean()) / labels.std()
    lesson = Lesson(matrix, 3, labels, labels[:, 0], None, fit_normal_scores(labels))
    bent = replace(PLAIN, name="normal scores", target="normal")
    trials = trials_of(fit(lesson, [PLAIN, bent]))
    assert trials["plain"].members[-1].part.normal is None
    assert trials["normal scores"].members[-1].part.normal is lesson.normal
    for trial in trials.values():  # both in the units of the labels
        assert r2(trial.members[-1].out_of_fold, labels) > 0.3
    np.testing.assert_array_equal(lesson.labels_of(PLAIN), labels)
    assert np.abs(lesson.labels_of(bent) - labels).max() > 0.5


def test_without_a_long_tail_normal_scores_are_the_labels():
    lesson = draw_lesson()
    bent = replace(PLAIN, target="normal")
    np.testing.assert_array_equal(lesson.labels_of(bent), lesson.labels)
    assert lesson.normal_of(bent) is None


@pytest.mark.parametrize("n_rows", [2, 3, 4, 7])
def test_a_handful_of_rows_has_as_many_folds_as_there_are(n_rows):
    pool = fit(draw_lesson(n_rows), [PLAIN], n_rounds=2)
    assert pool.members[0].folds.n_nets == 2 * min(5, n_rows)
    assert np.isfinite(pool.out_of_fold).all()
    assert pool.trials[0].n_rounds == 2


def test_row_weights_reach_nets_and_pool(monkeypatch):
    weights = np.where(np.arange(60) < 30, 1.9, 0.1)
    lesson = draw_lesson()
    seen = []
    original = fitting.weigh_members

    def watch(said, labels, row_weights):
        seen.append(row_weights)
        return original(said, labels, row_weights)

    monkeypatch.setattr(fitting, "weigh_members", watch)
    even = fit(lesson, [PLAIN]).members[-1]
    uneven = fit(replace(lesson, weights=weights), [PLAIN]).members[-1]
    assert seen[0] is None
    np.testing.assert_array_equal(seen[1], weights)
    assert not torch.allclose(even.part.head, uneven.part.head)


def test_all_work_is_announced_and_done():
    watcher = Watcher()
    fit(draw_lesson(), [WAVES, MUTE], n_rounds=3, watch=watcher)
    assert watcher.announced == [("first round", 2 * 5 * 16), ("further rounds", 10 * 16)]
    assert watcher.done == [160, 160]
    alone = Watcher()
    fit(draw_lesson(), [WAVES], watch=alone)
    assert [label for label, _ in alone.announced] == ["first round"]
