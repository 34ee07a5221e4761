import numpy as np
import pytest
import torch

from muddle.flagship import importances
from muddle.flagship.crossfit import make_job, make_members
from muddle.flagship.folds import draw_folds
from muddle.flagship.importances import permutation_importances
from muddle.flagship.pool import Candidate
from muddle.flagship.views import fit_view
from muddle.training.config import TrainConfig
from muddle.training.jobs import train_jobs
from muddle.training.stopping import Deadline

CPU = torch.device("cpu")
CONFIG = TrainConfig(
    depth=1,
    width=32,
    activation="selu",
    loss="paper",
    max_iter=30,
    n_permutations=2,
    structured_noise=0.0,
    schedule="cycles",
    scale_rate=6.0,
    keep="cycles",
)
# Number that matters, number that does not, constant, and three levels as one column of the table.
COLUMNS = [np.array([0]), np.array([1]), np.array([2]), np.array([3, 4, 5])]


def draw(n_rows=200, seed=0):
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 3, n_rows)
    matrix = np.column_stack([rng.normal(size=(n_rows, 2)), np.ones(n_rows), np.eye(3)[level]])
    labels = 1.5 * matrix[:, 0] + np.array([-1.0, 0.0, 1.0])[level]
    labels += 0.1 * rng.normal(size=n_rows)
    return matrix, ((labels - labels.mean()) / labels.std())[:, None]


def cross_fit(matrix, labels, weights=None, view="plain"):
    folds = draw_folds(labels[:, 0], 5, 0)
    views = tuple(fit_view(view, matrix, 2, None, net) for net in range(5))
    candidate = Candidate("tiny", view, CONFIG)
    seen = [view.apply(matrix) for view in views]
    job = make_job(candidate, seen, labels, weights, folds, range(5))
    (result,) = train_jobs([job], device=CPU, deadline=Deadline(None))
    return make_members(candidate, views, None, folds, result, len(matrix))


def measure(members, member_weights, matrix, labels, columns=COLUMNS, weights=None, seed=0):
    return permutation_importances(
        members, np.asarray(member_weights), matrix, columns, labels, weights, CPU, seed
    )


@pytest.fixture(scope="module")
def fitted():
    matrix, labels = draw()
    return matrix, labels, cross_fit(matrix, labels)


def test_the_column_that_is_used_most_comes_first_and_others_have_nothing(fitted):
    matrix, labels, members = fitted
    found, deviation = measure([members[-1]], [1.0], matrix, labels)
    assert found.argmax() == 0
    # Shuffled, a term of variance v adds 2 v to the error.
    slope = 1.5 * matrix[:, 0].std() / np.std(1.5 * matrix[:, 0] + [-1, 0, 1] @ matrix[:, 3:].T)
    assert found[0] == pytest.approx(2 * slope**2, rel=0.25)
    assert abs(found[1]) < 0.02
    assert found[3] > 0.3
    assert (deviation[[0, 3]] > 0).all()


def test_a_constant_column_and_one_that_is_not_used_have_nothing(fitted):
    matrix, labels, members = fitted
    nothing = np.array([], dtype=np.int64)
    found, deviation = measure([members[-1]], [1.0], matrix, labels, [*COLUMNS, nothing])
    assert found[2] == deviation[2] == 0.0
    assert found[4] == deviation[4] == 0.0


class Reversing:
    """A generator whose permutations turn everything round."""

    def permutation(self, n):
        return np.arange(n)[::-1]


def say_out_of_fold(member, matrix):
    """By the nets that held a row out, each with its own view, in float64."""
    said = []
    for net, view in enumerate(member.part.views):
        own = member.part.nets.keep([net]).map(torch.Tensor.double)
        rows = member.folds.held_out[net]
        hidden = own.hidden(torch.from_numpy(view.apply(matrix[rows])).double())[0]
        said.append((hidden @ member.held_out_head[net]).numpy())
    return member.folds.gather(np.stack(said), len(matrix))


@pytest.mark.parametrize("view", ["plain", "bins", "waves"])
@pytest.mark.parametrize("weighted", [False, True])
def test_features_of_a_column_are_shuffled_together_and_judged_out_of_fold(
    view, weighted, monkeypatch
):
    matrix, labels = draw(103)  # two rows are held out twice
    members = cross_fit(matrix, labels, view=view)[-2:]
    shares, weights = np.array([0.25, 0.75]), np.linspace(0.5, 1.5, 103) if weighted else None

    def error(table):
        said = sum(w * say_out_of_fold(m, table) for m, w in zip(members, shares, strict=True))
        return np.average((said - labels)[:, 0] ** 2, weights=weights)

    expected = []
    for own in COLUMNS:
        table = matrix.copy()
        table[:, own] = matrix[::-1][:, own]
        expected.append(error(table) - error(matrix))
    mean = labels.mean() if weights is None else weights @ labels / weights.sum()
    variance = np.average((labels - mean)[:, 0] ** 2, weights=weights)
    monkeypatch.setattr(importances.np.random, "default_rng", lambda seed: Reversing())
    found, deviation = measure(members, shares, matrix, labels, weights=weights)
    np.testing.assert_allclose(found, np.array(expected) / variance, atol=1e-4)
    np.testing.assert_allclose(deviation, 0.0, atol=1e-12)


def test_members_count_by_their_weight(fitted):
    matrix, labels, members = fitted
    first, last = (measure([members[i]], [1.0], matrix, labels)[0] for i in (0, -1))
    both = [members[0], members[-1]]
    np.testing.assert_allclose(measure(both, [0.0, 1.0], matrix, labels)[0], last)
    mixed = measure(both, [0.5, 0.5], matrix, labels)[0]
    assert min(first[0], last[0]) < mixed[0] < max(first[0], last[0])
    mostly = measure(both, [0.1, 0.9], matrix, labels)[0]
    assert abs(mostly[0] - last[0]) < abs(mixed[0] - last[0]) / 2


def test_only_the_members_that_count_most_are_asked(fitted, monkeypatch):
    matrix, labels, members = fitted
    monkeypatch.setattr(importances, "MOST_MEMBERS", 1)
    mixed, _ = measure(members, [0.1, 0.2, 0.4, 0.3], matrix, labels)
    alone, _ = measure(members[2:3], [1.0], matrix, labels)
    np.testing.assert_allclose(mixed, alone)


def test_rows_of_no_weight_do_not_count(fitted):
    matrix, labels, members = fitted
    weights = np.where(np.arange(200) < 150, 4 / 3, 1e-12)
    odd = labels.copy()
    odd[150:] = 50.0
    found, _ = measure([members[-1]], [1.0], matrix, odd, weights=weights)
    plain, _ = measure([members[-1]], [1.0], matrix, labels, weights=weights)
    np.testing.assert_allclose(found, plain, rtol=1e-6, atol=1e-8)


def test_equal_weights_change_nothing(fitted):
    matrix, labels, members = fitted
    found, _ = measure([members[-1]], [1.0], matrix, labels, weights=np.full(200, 3.0))
    np.testing.assert_allclose(found, measure([members[-1]], [1.0], matrix, labels)[0])


def test_units_of_the_labels_do_not_matter(fitted):
    matrix, labels, _ = fitted
    plain = measure(cross_fit(matrix, labels)[-1:], [1.0], matrix, labels)[0]
    shifted = labels + 1.0  # the variance is around the mean
    member = cross_fit(matrix, shifted)[-1]
    found = measure([member], [1.0], matrix, shifted)[0]
    np.testing.assert_allclose(found, plain, atol=0.1)


def test_a_seed_repeats_itself_and_fewer_rows_come_near(fitted, monkeypatch):
    matrix, labels, members = fitted
    first, _ = measure([members[-1]], [1.0], matrix, labels)
    again, _ = measure([members[-1]], [1.0], matrix, labels)
    other, _ = measure([members[-1]], [1.0], matrix, labels, seed=1)
    np.testing.assert_array_equal(first, again)
    assert (first[[0, 3]] != other[[0, 3]]).all()
    monkeypatch.setattr(importances, "MOST_ROWS", 100)
    few, _ = measure([members[-1]], [1.0], matrix, labels)
    np.testing.assert_allclose(few, first, atol=0.4)
    assert few.argmax() == 0


def test_where_no_member_counts_no_column_does(fitted):
    matrix, labels, members = fitted
    found, deviation = measure(members[:1], [0.0], matrix, labels)
    assert found.tolist() == deviation.tolist() == [0.0] * 4
