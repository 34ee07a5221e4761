"""One pass over a stream finds what a table in memory shows, in bounded memory."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from muddle import MuddleWarning
from muddle.errors import BadFileError
from muddle.tables import counting
from muddle.tables.counting import NumberSums, Sketch, count_stream
from muddle.tables.plan import weighted_quantiles
from muddle.tables.preprocessor import TablePreprocessor
from muddle.tables.stream import Stream


def make_mixed(n_rows, seed=0):
    """Numbers, gaps, text, numbers and dates as text, dates, booleans, levels, constants, keys."""
    rng = np.random.default_rng(seed)
    days = np.datetime64("2020-01-01") + rng.integers(0, 900, n_rows)
    city = rng.integers(0, 60, n_rows)
    size = rng.lognormal(size=n_rows)
    frame = pd.DataFrame(
        {
            "size": size,
            "count": rng.integers(0, 50, n_rows),
            "gappy": np.where(rng.random(n_rows) < 0.1, np.nan, rng.normal(5, 3, n_rows)),
            "colour": rng.choice(["red", "green", "blue", None], n_rows),
            "city": [f"city {i}" for i in city],
            "flag": rng.random(n_rows) < 0.3,
            "written": [f"{value:.3f}" for value in rng.normal(size=n_rows)],
            "day": days.astype("M8[us]"),
            "day_text": [str(day) for day in days],
            "constant": 1.0,
            "key": [f"id{i}" for i in range(n_rows)],
            "empty": pa.nulls(n_rows).to_pandas(),
            "kind": pd.Categorical(rng.choice(["1", "2", "3"], n_rows)),
        }
    )
    y = np.log(size) + city / 20 + rng.normal(size=n_rows) / 5
    return frame.assign(y=y)


def in_batches(frame, n_batches):
    table = pa.Table.from_pandas(frame, preserve_index=False)
    edges = np.linspace(0, len(frame), n_batches + 1).astype(int)
    return [table.slice(a, b - a) for a, b in pairwise(edges)]


def assert_same_plan(found, wanted):
    assert found.names == wanted.names
    assert found.numbers == wanted.numbers
    assert found.decisions == wanted.decisions
    assert found.features == wanted.features
    for one, other in zip(found.one_hot, wanted.one_hot, strict=True):
        assert (one.name, one.levels) == (other.name, other.levels)
        np.testing.assert_allclose(one.shares, other.shares)
    for one, other in zip(found.means, wanted.means, strict=True):
        assert (one.name, one.levels, one.suffixes) == (other.name, other.levels, other.suffixes)
        np.testing.assert_allclose(one.means, other.means, rtol=1e-9)
    np.testing.assert_array_equal(found.block.kept, wanted.block.kept)
    np.testing.assert_array_equal(found.block.flagged, wanted.block.flagged)
    n_means = sum(len(source.names) for source in wanted.means)
    own = slice(0, len(wanted.block.fill) - n_means)  # means are crossed by other folds
    np.testing.assert_allclose(found.block.fill[own], wanted.block.fill[own], rtol=1e-10)
    np.testing.assert_allclose(found.block.ranges[:, own], wanted.block.ranges[:, own])
    np.testing.assert_allclose(found.block.fill, wanted.block.fill, rtol=0.02)
    np.testing.assert_allclose(found.offsets, wanted.offsets, atol=1e-12)
    kept = int(np.count_nonzero(wanted.block.kept < len(wanted.block.fill) - n_means))
    for one, other in zip(found.block.steps, wanted.block.steps, strict=True):
        for name in one.__dataclass_fields__:
            first, second = getattr(one, name), getattr(other, name)
            np.testing.assert_allclose(first[:kept], second[:kept], rtol=1e-10, err_msg=name)
            np.testing.assert_allclose(first, second, rtol=0.3)


@pytest.mark.filterwarnings("ignore::muddle.MuddleWarning")
@pytest.mark.parametrize("scaling", ["standard", "robust+clip"])
@pytest.mark.parametrize("kind", ["numbers", "classes", "three classes"])
@pytest.mark.parametrize("few_values", ["number", "levels", "both"])
def test_a_stream_has_the_plan_of_the_table_in_memory(scaling, kind, few_values):
    frame = make_mixed(3000)
    if kind != "numbers":
        cuts = 2 if kind == "classes" else 3
        frame["y"] = np.array(["no", "yes", "maybe"])[pd.qcut(frame["y"], cuts, labels=False)]
    target_type = "continuous" if kind == "numbers" else "classes"
    options = TablePreprocessor(
        scaling=scaling, few_values=few_values, target_type=target_type, categorical=["count"]
    )
    wanted = TablePreprocessor(**options.get_params()).fit(frame.drop(columns="y"), frame["y"])
    stream = Stream(in_batches(frame, 7))
    found = count_stream(stream, "y", "numbers" if kind == "numbers" else "classes", options)
    assert_same_plan(found.plan, wanted.plan_)
    assert found.n_rows == 3000


def test_quantiles_of_few_values_are_exact_and_of_many_within_the_stated_error():
    rng = np.random.default_rng(0)
    few = rng.normal(size=2 * counting.SKETCHED - 1)
    sketch = Sketch()
    for part in np.array_split(few, 7):
        sketch.add(part)
    shares = np.array([0.25, 0.5, 0.75])
    np.testing.assert_array_equal(
        sketch.quantiles(shares), weighted_quantiles(few[:, None], shares, None)[:, 0]
    )
    many = np.sort(rng.lognormal(size=1_000_000))
    sketch = Sketch()
    for part in np.array_split(many, 31):  # sorted values are hard for sketches
        sketch.add(part)
    shares = np.linspace(0.01, 0.99, 99)
    found = np.searchsorted(many, sketch.quantiles(shares)) / len(many)
    stated = np.log2(len(many) / 16384) / 16384
    assert abs(found - shares).max() <= stated
    assert len(sketch.gather()[0]) < 8 * 2 * counting.SKETCHED


def test_moments_do_not_cancel_far_from_zero_and_do_not_overflow():
    values = np.random.default_rng(0).normal(size=10_000)
    for shift, unit in ((1e9, 1.0), (0.0, 1e149)):
        sums = NumberSums()
        for part in np.array_split(values * unit + shift, 9):
            sums.add(part)
        assert sums.deviation(len(values)) == pytest.approx(values.std() * unit, rel=1e-6)


@pytest.mark.filterwarnings("ignore::muddle.MuddleWarning")
def test_levels_beyond_the_bound_are_the_rarest_and_the_others_stay_exact(monkeypatch):
    monkeypatch.setattr(counting, "MOST_LEVELS", 30)
    rng = np.random.default_rng(0)
    common, rare = rng.integers(0, 20, 4000), np.arange(400)
    names = np.concatenate([[f"c{i}" for i in common], [f"r{i}" for i in rare]])
    y = np.concatenate([common, np.zeros(400)]) + rng.normal(size=4400)
    order = np.concatenate([np.arange(1000), 4000 + np.arange(400), np.arange(1000, 4000)])
    frame = pd.DataFrame({"c": names, "n": rng.normal(size=4400), "y": y}).iloc[order]
    options = TablePreprocessor(target_type="continuous")
    found = count_stream(Stream(in_batches(frame, 20)), "y", "numbers", options)
    (source,) = found.plan.means
    assert {f"c{i}" for i in range(20)} <= set(source.levels.known)
    assert len(source.levels.known) <= 30
    wanted = TablePreprocessor(target_type="continuous").fit(frame[["c", "n"]], frame["y"])
    exact = dict(
        zip(wanted.plan_.means[0].levels.known, wanted.plan_.means[0].means[0], strict=False)
    )
    own = dict(zip(source.levels.known, source.means[0], strict=False))
    # Only the overall mean, which levels are shrunken to, lacks the rows that were forgotten.
    for level in (f"c{i}" for i in range(20)):
        assert own[level] == pytest.approx(exact[level], abs=0.05)


def test_a_key_with_more_values_than_are_counted_is_ignored_as_an_identifier(monkeypatch):
    monkeypatch.setattr(counting, "MOST_LEVELS", 100)
    frame = pd.DataFrame({"key": [f"id{i}" for i in range(900)], "n": np.arange(900.0) % 7})
    frame["y"] = frame["n"]
    with pytest.warns(MuddleWarning, match="'key' looks like an identifier"):
        found = count_stream(Stream(in_batches(frame, 9)), "y", "numbers", TablePreprocessor())
    assert found.plan.used == ["n"]


def test_the_sample_is_drawn_at_random_and_does_not_depend_on_batches():
    frame = pd.DataFrame({"n": np.arange(5000.0), "y": np.arange(5000.0)})
    options = TablePreprocessor()
    found = count_stream(Stream([frame]), "y", "numbers", options, n_sampled=500)
    rows = found.sample.rows()["n"].to_numpy()
    assert len(rows) == 500 == found.n_held_out
    assert (np.diff(rows) > 0).all()
    assert abs(rows.mean() - 2500) < 4 * 1443 / np.sqrt(500)
    again = count_stream(Stream([frame]), "y", "numbers", options, n_sampled=500, seed=1)
    assert set(again.sample.rows()["n"].to_numpy().tolist()) != set(rows.tolist())
    # The same rows, read by other batches of one sequence.
    table = pa.Table.from_pandas(frame)
    parts = [
        pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=size))
        for size in (100, 777)
    ]
    read = [
        count_stream(Stream(Again(part)), "y", "numbers", options, n_sampled=500) for part in parts
    ]
    first, second = (one.sample.rows()["n"].to_numpy() for one in read)
    np.testing.assert_array_equal(first, second)


class Again:
    """Batches that can be gone through again."""

    def __init__(self, reader):
        self.batches = list(reader)

    def __iter__(self):
        return iter(self.batches)


def test_rows_without_a_target_are_left_out_and_counted():
    frame = make_mixed(300)[["size", "y"]]
    frame.loc[[3, 200], "y"] = np.nan
    with pytest.warns(MuddleWarning, match="2 rows have no target 'y'"):
        found = count_stream(Stream([frame]), "y", "numbers", TablePreprocessor())
    known = frame["y"].notna()
    wanted = TablePreprocessor().fit(frame.loc[known, ["size"]], frame.loc[known, "y"])
    assert found.n_rows == 298
    np.testing.assert_allclose(found.plan.block.steps[0].mean, wanted.plan_.block.steps[0].mean)


def test_a_target_of_numbers_in_text_is_numbers():
    frame = make_mixed(300)[["size", "y"]]
    texts = frame.assign(y=frame["y"].map(repr))
    options = TablePreprocessor(target_type="continuous")
    for own in (texts, texts.astype({"y": "category"})):
        found = count_stream(Stream([own]), "y", "numbers", options)
        assert found.target.numbers.mean == pytest.approx(frame["y"].mean())


def test_kinds_that_change_between_batches_are_named():
    frames = [pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"a": ["x", "y"]})]
    with pytest.raises(BadFileError, match=r"batch 1 .*string in column 'a' instead of double"):
        Stream(frames)
