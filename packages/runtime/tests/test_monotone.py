"""The step to monotone labels, on functions that are not monotone."""

import json
from dataclasses import replace

import numpy as np
import pytest

from muddle_runtime.errors import ModelFileError
from muddle_runtime.file import read_model, restore_model, store_model, write_model
from muddle_runtime.monotone import GRID_POINTS, NO_FLAG, Monotone, find_places

SIGNS = (1, -1, 1, -1)
WIDTH = 6
MIXED = np.random.default_rng(0).normal(size=(WIDTH, 2))


def make(n_columns, rng, flags=None):
    grids = tuple(np.sort(rng.normal(size=GRID_POINTS[n_columns])) for _ in range(n_columns))
    return Monotone(
        columns=tuple("abcd"[:n_columns]),
        signs=SIGNS[:n_columns],
        features=tuple(range(n_columns)),
        flags=flags or (NO_FLAG,) * n_columns,
        grids=grids,
        ends=np.array([[-5.0, -5.0], [5.0, 5.0]]),
    )


def wave(rows):
    return np.sin(3 * rows @ MIXED)


@pytest.mark.parametrize(("n_columns", "n_pairs"), [(1, 100_000), (2, 20_000), (4, 5000)])
def test_no_pair_is_in_the_wrong_order_not_even_by_the_last_bit(n_columns, n_pairs):
    rng = np.random.default_rng(n_columns)
    step = make(n_columns, rng)
    rows = rng.normal(size=(n_pairs, WIDTH))
    column = rng.integers(n_columns, size=n_pairs)
    moved = rows.copy()
    size = 10.0 ** rng.uniform(-9, 1, n_pairs)  # within a cell, over several, and beyond the grid
    moved[np.arange(n_pairs), column] += size
    signs = np.array(SIGNS)[column][:, None]
    both = step.apply(np.concatenate([rows, moved]), wave)
    change = signs * (both[n_pairs:] - both[:n_pairs])
    assert change.min() == 0
    assert (change > 0).mean() > 0.2
    free = signs * (wave(moved) - wave(rows))
    assert (free < 0).mean() > 0.3


def test_several_columns_may_move_together():
    rng = np.random.default_rng(5)
    step = make(3, rng)
    rows = rng.normal(size=(5000, WIDTH))
    moved = rows.copy()
    moved[:, :3] += np.array(SIGNS[:3]) * rng.exponential(size=(5000, 3))
    both = step.apply(np.concatenate([rows, moved]), wave)
    assert (both[5000:] >= both[:5000]).all()


@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_a_monotone_function_is_kept_at_grid_points_and_straight_between(n_columns):
    rng = np.random.default_rng(6)
    step = make(n_columns, rng)
    rows = rng.normal(size=(300, WIDTH))
    for place, grid in enumerate(step.grids):
        rows[:, place] = np.clip(rows[:, place], grid[0], grid[-1])

    def straight(rows):
        found = rows[:, :n_columns] @ np.array(SIGNS[:n_columns]) + rows[:, 5] ** 2
        return np.stack([found, 0.5 * found], axis=1) / 5

    np.testing.assert_allclose(step.apply(rows, straight), straight(rows), atol=1e-4, rtol=0)
    rows[:, 0] = step.grids[0][3]
    for place in range(1, n_columns):
        rows[:, place] = step.grids[place][1]
    np.testing.assert_allclose(step.apply(rows, straight), straight(rows), atol=1e-8, rtol=0)


def test_a_dip_becomes_the_mean_of_the_running_largest_and_least():
    grid = np.arange(5.0)
    step = Monotone(("a",), (1,), (0,), (NO_FLAG,), (grid,), np.array([[-10.0], [10.0]]))
    values = np.array([0.0, 2.0, 1.0, 1.0, 3.0])

    def look_up(rows):
        return values[rows[:, 0].astype(int)][:, None]

    found = step.apply(np.array([[0.0], [1], [2], [3], [4], [0.5], [9], [-9]]), look_up)[:, 0]
    wanted = [0, 1.5, 1.5, 1.5, 3, 0.75, 3, 0]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_rows_with_a_gap_are_asked_about_as_they_are():
    rng = np.random.default_rng(7)
    step = make(1, rng, flags=(4,))
    rows = rng.normal(size=(50, WIDTH))
    rows[:, 4] = np.where(np.arange(50) % 2, 0.9, -0.1)  # the mark of a gap, less its mean
    np.testing.assert_allclose(step.apply(rows, wave)[1::2], wave(rows)[1::2], atol=1e-8, rtol=0)
    assert np.abs(step.apply(rows, wave)[::2] - wave(rows)[::2]).max() > 0.1


def test_a_row_alone_and_rows_without_a_feature_count_as_in_a_batch():
    rng = np.random.default_rng(8)
    step = make(2, rng)
    rows = rng.normal(size=(20, WIDTH))
    batch = step.apply(rows, wave)
    alone = np.concatenate([step.apply(row[None], wave) for row in rows])
    np.testing.assert_allclose(alone, batch, atol=1e-8, rtol=0)
    less = replace(step, features=(1, 3), flags=(NO_FLAG, 5))
    less = less.without(np.array([0, 2, 4]))
    assert (less.features, less.flags) == ((0, 1), (NO_FLAG, 2))
    held = step.hold(rows)
    assert (held[:, :2] == [grid[len(grid) // 2] for grid in step.grids]).all()
    assert (held[:, 2:] == rows[:, 2:]).all()
    assert step.apply(rows[:0], wave).shape == (0, 2)


# --- files ---------------------------------------------------------------------------------------


@pytest.fixture
def constrained(regressor):
    """A stored model with a step along one of its columns of numbers."""
    model = regressor.model
    name = next(name for name in model.table.names if find_places(model.table, name))
    ends = np.array([[-3.0], [3.0]])
    step = Monotone.of(model.table, [name], [-1], [np.linspace(-1, 1, 5)], ends)
    return replace(model, monotone=step)


@pytest.mark.filterwarnings("ignore:X holds")  # rows of the fixture, meant to be odd
def test_a_step_is_stored_with_its_model(constrained, regressor, tmp_path):
    again = read_model(write_model(constrained, tmp_path / "m.muddle"))
    assert again.monotone.columns == constrained.monotone.columns
    np.testing.assert_array_equal(
        again.predict(regressor.rows), constrained.predict(regressor.rows)
    )
    bounds = [model.predict_interval(regressor.rows) for model in (again, constrained)]
    np.testing.assert_array_equal(*bounds)
    (name,) = again.monotone.columns
    rows = [regressor.rows[0] | {name: value} for value in np.linspace(-300, 300, 50)]
    assert (np.diff(again.predict(rows)) <= 0).all()
    assert (np.diff(again.predict_interval(rows), axis=0) <= 0).all()


def set_entry(name, value):
    return lambda header, arrays: header["monotone"].update({name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_entry("columns", ["kind"]), "columns must be columns of numbers"),
        (set_entry("columns", ["none"]), "columns must be columns of numbers"),
        (set_entry("columns", []), "a list of 1 or more"),
        (set_entry("signs", [1, 1]), "one per column"),
        (set_entry("signs", [2]), "must be 1 or -1"),
        (set_entry("signs", [True]), "must be 1 or -1"),
        (lambda header, arrays: header.update(format=3), "monotone"),
        (lambda header, arrays: header.update(monotone=None), "monotone must be an object"),
        (lambda header, arrays: arrays["monotone.grids.0"].fill(0), "ascending numbers"),
        (lambda header, arrays: arrays.pop("monotone.grids.0"), "monotone.grids.0"),
        (lambda header, arrays: arrays["monotone.range"].fill(1), "from low to high"),
    ],
)
def test_a_forged_step_is_refused_by_name(constrained, change, message):
    header, arrays = store_model(constrained)
    header, arrays = json.loads(json.dumps(header)), {n: a.copy() for n, a in arrays.items()}
    restore_model(header, dict(arrays))
    change(header, arrays)
    with pytest.raises(ModelFileError, match=message):
        restore_model(header, arrays)


def test_a_spread_that_sees_the_prediction_goes_with_no_step(mixed_regressor):
    model = mixed_regressor.model
    assert model.spread.sees_prediction
    name = next(name for name in model.table.names if find_places(model.table, name))
    ends = np.repeat([[-3.0], [3.0]], len(model.target.scale.mean), axis=1)
    step = Monotone.of(model.table, [name], [1], [np.linspace(-1, 1, 5)], ends)
    with pytest.raises(ModelFileError, match="sees_prediction must be false for a monotone model"):
        restore_model(*store_model(replace(model, monotone=step)))
