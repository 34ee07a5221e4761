import numpy as np
import pytest
import torch

from muddle.estimators import importances
from muddle.estimators.importances import measure_importances
from muddle.estimators.pool import Pool, TrainingSet

CPU = torch.device("cpu")
CONFIG = {"width": 32, "max_iter": 30, "learning_rate": None}
# Number that matters, number that does not, constant, and three levels as one column of the table.
COLUMNS = [np.array([0]), np.array([1]), np.array([2]), np.array([3, 4, 5])]


def draw(n_rows=200, seed=0):
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 3, n_rows)
    matrix = np.column_stack([rng.normal(size=(n_rows, 2)), np.ones(n_rows), np.eye(3)[level]])
    labels = 1.5 * matrix[:, 0] + np.array([-1.0, 0.0, 1.0])[level]
    labels += 0.1 * rng.normal(size=n_rows)
    return matrix, ((labels - labels.mean()) / labels.std())[:, None]


def measure(fitted, members, member_weights=(1.0,), *, columns=COLUMNS, weights=None, seed=0):
    matrix, labels, _ = fitted
    training = TrainingSet(matrix, 2, labels, labels[:, 0], weights, np.arange(len(labels)))
    pool = Pool(training, members, np.asarray(member_weights), [])
    return measure_importances(pool, columns, CPU, seed, np.inf)


@pytest.fixture(scope="module")
def fitted(cross_fit):
    matrix, labels = draw()
    return matrix, labels, cross_fit(matrix, labels, n_numbers=2, config=CONFIG)


def test_the_column_that_is_used_most_comes_first_and_others_have_nothing(fitted):
    matrix, _, members = fitted
    unused = np.array([], dtype=np.int64)
    found, deviation = measure(fitted, members[-1:], columns=[*COLUMNS, unused])
    assert found.argmax() == 0
    # Shuffled, a term of variance v adds 2 v to the error.
    slope = 1.5 * matrix[:, 0].std() / np.std(1.5 * matrix[:, 0] + [-1, 0, 1] @ matrix[:, 3:].T)
    assert found[0] == pytest.approx(2 * slope**2, rel=0.25)
    assert abs(found[1]) < 0.02
    assert found[3] > 0.3
    assert (deviation[[0, 3]] > 0).all()
    assert (found[[2, 4]] == 0).all()
    assert (deviation[[2, 4]] == 0).all()


class Reversing:
    """A generator whose permutations turn everything round."""

    def permutation(self, n):
        return np.arange(n)[::-1]


@pytest.mark.parametrize("view", ["plain", "bins", "waves"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("depth", [1, 3])
def test_features_of_a_column_are_shuffled_together_and_judged_out_of_fold(
    view, weighted, depth, cross_fit, held_out_outputs, monkeypatch
):
    matrix, labels = draw(103)  # two rows are held out twice
    config = {"depth": depth, "max_iter": 7}
    members = cross_fit(matrix, labels, view=view, n_numbers=2, config=config)[-2:]
    shares, weights = np.array([0.25, 0.75]), np.linspace(0.5, 1.5, 103) if weighted else None

    def error(table):
        pairs = zip(members, shares, strict=True)
        predicted = sum(share * held_out_outputs(member, table) for member, share in pairs)
        return np.average((predicted - labels)[:, 0] ** 2, weights=weights)

    expected = []
    for own in COLUMNS:
        table = matrix.copy()
        table[:, own] = matrix[::-1][:, own]
        expected.append(error(table) - error(matrix))
    mean = labels.mean() if weights is None else weights @ labels / weights.sum()
    variance = np.average((labels - mean)[:, 0] ** 2, weights=weights)
    monkeypatch.setattr(importances.np.random, "default_rng", lambda seed: Reversing())
    found, deviation = measure((matrix, labels, members), members, shares, weights=weights)
    np.testing.assert_allclose(found, np.array(expected) / variance, atol=1e-4)
    np.testing.assert_allclose(deviation, 0.0, atol=1e-12)


def test_of_many_columns_blocks_come_first_and_then_those_that_matter(cross_fit, monkeypatch):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(100, 60))
    labels = matrix[:, [17]] + 0.5 * matrix[:, [44]]
    members = cross_fit(matrix, labels, config=CONFIG)[-1:]
    columns = [np.array([feature]) for feature in range(60)]
    alone, _ = measure((matrix, labels, members), members, columns=columns)
    shuffled = []
    predict = importances._predict

    def count(held, *changed):
        shuffled.append(len(changed[0]) if changed else 0)
        return predict(held, *changed)

    monkeypatch.setattr(importances, "_predict", count)
    monkeypatch.setattr(importances, "MOST_SHUFFLED", 30)
    monkeypatch.setattr(importances, "N_BLOCKS", 10)
    found, deviation = measure((matrix, labels, members), members, columns=columns)
    assert shuffled == [0] + [6] * 10 + [1] * 20  # the base, blocks, single columns
    assert np.argsort(-found)[:2].tolist() == [17, 44]
    np.testing.assert_allclose(found[[17, 44]], alone[[17, 44]], rtol=0.4)
    assert (deviation == 0).all()
    # Columns of other blocks share what the block makes worse.
    assert sum(np.ptp(block) == 0 for block in found.reshape(10, 6)) == 6


def test_a_seed_repeats_itself_and_fewer_rows_come_near(fitted, monkeypatch):
    *_, members = fitted
    first, again, other = (measure(fitted, members[-1:], seed=seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first[[0, 3]] != other[[0, 3]]).all()
    monkeypatch.setattr(importances, "MOST_ROWS", 100)
    np.testing.assert_allclose(measure(fitted, members[-1:])[0], first, atol=0.4)
    found, deviation = measure(fitted, members[:1], [0.0])
    assert found.tolist() == deviation.tolist() == [0.0] * 4
