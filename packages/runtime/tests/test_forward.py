"""Members that are not nets: each kind is its definition, in any batch and on any library."""

from dataclasses import replace

import numpy as np
import pytest

from muddle_runtime import forward
from muddle_runtime.forward import NUMPY, Bank, Forest, Kernel, Library, Linear, Nets, Ref

KINDS = ("linear", "kernel", "forest")


@pytest.fixture(params=KINDS)
def ref(request, by_hand):
    rng = np.random.default_rng(0)
    body = by_hand.make[request.param](5, rng)
    return Ref(body, 0, by_hand.make_head(body, 2, rng)[0])


def draw_rows(n_rows):
    rows = np.random.default_rng(1).normal(size=(n_rows, 5))
    rows[0] = 0.0
    return rows


def torch_library(exact):
    torch = pytest.importorskip("torch")
    return Library(
        torch,
        put=lambda array: torch.from_numpy(np.ascontiguousarray(array)),
        get=lambda tensor: tensor.numpy(),
        cast=lambda tensor, dtype: tensor.to(getattr(torch, dtype)),
        exact=exact,
    )


def test_outputs_are_those_of_the_definition(ref, by_hand):
    rows = draw_rows(40)
    expected = by_hand.compute(ref.representation, ref.head[None], rows)
    np.testing.assert_allclose(Bank([ref]).outputs(rows), expected, rtol=0, atol=1e-12)
    twice = Bank([ref, replace(ref, factor=-0.5)]).total(rows)
    np.testing.assert_allclose(twice, 0.5 * expected[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("library", ["numpy", "torch", "torch, exact"])
def test_a_row_alone_is_computed_as_in_a_batch_and_in_blocks(ref, library, monkeypatch):
    there = NUMPY if library == "numpy" else torch_library(exact=library.endswith("exact"))
    rows = draw_rows(40)
    expected = Bank([ref]).total(rows)
    np.testing.assert_allclose(Bank([ref], there).total(rows), expected, rtol=0, atol=1e-12)
    for name in ("BLOCK_VALUES", "MOST_WALKERS", "STEPS_AT_ONCE"):
        monkeypatch.setattr(forward, name, 1)
    monkeypatch.setattr(forward, "FEWEST_ROWS", 7)
    bank = Bank([ref], there)
    np.testing.assert_allclose(bank.total(rows), expected, rtol=0, atol=1e-12)
    alone = np.concatenate([bank.total(row[None]) for row in rows])
    np.testing.assert_allclose(alone, expected, rtol=0, atol=1e-12)
    assert bank.total(rows[:0]).shape == (0, 2)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_huge_features_give_finite_outputs_without_a_warning(ref, library):
    rows = draw_rows(6)
    rows[1], rows[2, 3], rows[3] = 1e300, -np.finfo(np.float64).max, -1e300
    bank = Bank([ref], NUMPY if library == "numpy" else torch_library(exact=True))
    found = bank.total(rows)  # warnings are errors here
    assert np.isfinite(found).all()
    alone = np.concatenate([bank.total(row[None]) for row in rows])
    np.testing.assert_allclose(alone, found, rtol=1e-12, atol=1e-12)
    if isinstance(ref.representation, Kernel):  # far from every centre: the constant alone
        np.testing.assert_array_equal(found[1:4], np.tile(ref.head[-1], (3, 1)))


def test_rows_in_far_batches_with_nets_get_their_own_outputs(mixed_regressor, by_hand, monkeypatch):
    """Nets are computed in float64 for far rows; the other kinds are the same either way."""
    monkeypatch.setattr(forward, "FEW_WEIGHTS", 0)  # nets in float32, small as they are
    members = mixed_regressor.model.members
    refs = [Ref(one.representation, i, h) for one in members for i, h in enumerate(one.head)]
    of_nets = [isinstance(ref.representation, Nets) for ref in refs]
    n_features = mixed_regressor.model.table.n_features
    rows = np.random.default_rng(2).normal(size=(6, n_features))
    rows[[1, 4], 0] = 1e5
    found = Bank(refs).outputs(rows)
    for place in np.flatnonzero(np.invert(of_nets)):
        ref = refs[place]
        expected = by_hand.compute(ref.representation, ref.head[None], rows)[0]
        np.testing.assert_allclose(found[place], expected, rtol=1e-12, atol=1e-12)
    exact = Bank(refs, exact=True).outputs(rows)
    np.testing.assert_allclose(found[:, [1, 4]], exact[:, [1, 4]], rtol=1e-12)
    assert (found != exact)[of_nets][:, [0, 2, 3, 5]].any()  # near rows: float32


def test_a_row_that_is_a_centre_has_no_distance_to_it():
    """The centre was rounded when it was stored, and products of large numbers are rounded too."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(30, 8))
    scale = rng.uniform(10, 1000, 8)
    kernel = Kernel((rows * scale).astype(np.float32), scale)
    bank = Bank([Ref(kernel, 0, np.eye(31, 30))])
    np.testing.assert_array_equal(bank.total(rows).diagonal(), np.ones(30))
    alone = [bank.total(row[None])[0, i] for i, row in enumerate(rows)]
    np.testing.assert_array_equal(alone, np.ones(30))


def test_near_points_are_told_apart():
    kernel = Kernel(np.array([[3.0, 4.0]], dtype=np.float32), np.ones(2))
    bank = Bank([Ref(kernel, 0, np.array([[1.0], [0.0]]))])
    for distance in (1e-5, 1e-3):
        found = bank.total(np.array([[3.0 + distance, 4.0]]))
        np.testing.assert_allclose(1 - found, 1 - np.exp(-distance), rtol=1e-4)


def test_a_threshold_is_compared_with_the_feature_in_float32():
    threshold = np.float32(0.1)
    forest = Forest(
        np.zeros(3, dtype=np.int32),
        np.array([threshold, 0, 0], dtype=np.float32),
        np.array([2, -1, -2], dtype=np.int32),
        np.zeros(1, dtype=np.int32),
        1,
    )
    bank = Bank([Ref(forest, 0, np.array([[1.0], [2.0]], dtype=np.float32))])
    above = np.nextafter(threshold, np.float32(1))
    just_above = float(threshold) + 1e-10  # the same float32
    rows = np.array([[-1.0], [threshold], [just_above], [above], [1.0]])
    assert bank.total(rows)[:, 0].tolist() == [1, 1, 1, 2, 2]


def test_a_tree_of_one_leaf_and_a_long_chain():
    """Rows end at very different depths."""
    depth = 50
    right = np.empty(2 * depth + 2, dtype=np.int32)
    right[0] = -1  # the first tree is a leaf
    inner = 1 + 2 * np.arange(depth)
    right[inner], right[inner + 1] = inner + 2, -2 - np.arange(depth)
    right[-1] = -2 - depth
    threshold = np.zeros(len(right), dtype=np.float32)
    threshold[inner] = np.arange(depth)
    feature, roots = np.zeros(len(right), dtype=np.int32), np.array([0, 1], dtype=np.int32)
    head = np.arange(depth + 2, dtype=np.float32)[:, None]
    head[0] = 1000
    bank = Bank([Ref(Forest(feature, threshold, right, roots, 1), 0, head)])
    rows = np.arange(-0.5, depth + 0.5)[:, None]
    assert bank.total(rows)[:, 0].tolist() == [1001 + i for i in range(depth + 1)]
    assert bank.total(rows[-1:])[0, 0] == 1001 + depth


def test_the_number_of_units_is_that_of_the_head():
    assert Linear(4).width == 5
    assert Kernel(np.zeros((3, 4), dtype=np.float32), np.ones(4)).width == 4
