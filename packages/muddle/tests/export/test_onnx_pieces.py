"""The parts of a graph alone, against what they stand for."""

import numpy as np
import onnxruntime
import pytest
import scipy.special
from onnx import TensorProto, helper

from muddle.export.answers import _unbend
from muddle.export.dates import write_date_parts
from muddle.export.graph import Graph
from muddle.export.quantiles import write_normal_quantile, write_normal_scores
from muddle.export.views import Views
from muddle.flagship.views import fit_view
from muddle.model_file.contents import Contents
from muddle.tables.dates import date_parts
from muddle.tables.numbers import Quantiles, weighted_quantiles
from muddle_runtime.powers import unbend


def evaluate(write, values):
    """What a part of a graph makes of (N, P) numbers."""
    graph = Graph(["x", "y"])
    result = write(graph, graph.add_input("x", TensorProto.DOUBLE, ("N", values.shape[1])))
    graph.add_output("y", result, TensorProto.DOUBLE, ("N", "M"))
    model = helper.make_model(
        graph.build("part"), opset_imports=[helper.make_opsetid("", 15)], ir_version=8
    )
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": values})[0]


def to_seconds(dates):
    return dates.astype("M8[us]").astype(np.int64) / 1e6


def test_the_parts_of_every_day_of_two_hundred_years_and_of_far_ones():
    every = np.arange("1890-01-01", "2110-01-01", dtype="M8[D]")
    far = np.arange("0001-01-01", "9999-12-01", dtype="M8[M]").astype("M8[D]")
    ends = far - np.timedelta64(1, "D")
    days = np.concatenate([every, far, ends[1:]])
    parts = evaluate(write_date_parts, to_seconds(days)[:, None])
    np.testing.assert_allclose(parts, date_parts(days.astype("M8[us]")), rtol=0, atol=1e-9)


def test_the_parts_of_a_moment_next_to_midnight():
    midnights = np.array(["1899-12-31", "1970-01-01", "2000-03-01", "2254-12-31"], dtype="M8[us]")
    steps = np.array([-1, 0, 1, 43_199_999_999], dtype="m8[us]")
    moments = (midnights[:, None] + steps).ravel()
    parts = evaluate(write_date_parts, to_seconds(moments)[:, None])
    np.testing.assert_allclose(parts, date_parts(moments), rtol=1e-12, atol=1e-9)


def test_dates_beside_each_other_are_grouped_by_part_and_gaps_stay_gaps():
    dates = np.array([["2020-02-29", "NaT"], ["1960-06-01", "2001-12-31"]], dtype="M8[us]")
    seconds = np.where(np.isnat(dates), np.nan, to_seconds(dates))
    parts = evaluate(write_date_parts, seconds).reshape(2, 6, 2)
    for column in (0, 1):
        np.testing.assert_allclose(parts[:, :, column], date_parts(dates[:, column]))


def test_normal_quantiles_are_those_of_scipy():
    tails = np.geomspace(1e-7, 0.5, 2000)
    ranks = np.concatenate([tails, 1 - tails, np.linspace(0.07, 0.08, 101)])[:, None]
    found = evaluate(write_normal_quantile, ranks)
    np.testing.assert_allclose(found, scipy.special.ndtri(ranks), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_rows", [3, 50, 3000])
def test_scores_of_ranks_between_on_and_beyond_the_knots(n_rows):
    rng = np.random.default_rng(0)
    seen = np.column_stack(
        [
            rng.normal(size=n_rows),
            rng.integers(0, 3, n_rows) - 1.0,
            rng.lognormal(0, 5, n_rows),
            1e9 + np.arange(n_rows) % 2,
        ]
    )
    values = weighted_quantiles(seen, np.linspace(0, 1, 1001), None)
    beyond = np.array([[-1e9] * 4, [1e30] * 4, [-1e150] * 4, [0.0, 0.0, 1e-9, 1e9 + 0.5]])
    rows = np.concatenate([seen, seen[::2] + 0.01, values[::50], beyond])
    found = evaluate(lambda graph, x: write_normal_scores(graph, x, values), rows)
    np.testing.assert_allclose(found, Quantiles(values).apply(rows), rtol=0, atol=1e-9)


@pytest.mark.parametrize("power", [-1.5, 0.0, 1e-7, 0.3, 1.0, 2.0 - 1e-7, 2.0, 3.2])
def test_powers_are_undone_as_in_the_estimator(power):
    outputs = np.linspace(-4, 4, 161)[:, None]
    normal = {
        "lambdas": np.array([power]),
        "mean": np.array([0.05]),
        "scale": np.array([0.2]),
        "least": np.array([-2.0]),
        "most": np.array([2.5]),
    }
    found = evaluate(lambda graph, x: _unbend(graph, x, normal), outputs)
    wanted = unbend(np.clip(outputs, -2.0, 2.5) * 0.2 + 0.05, np.array([power]))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("step", "largest"), [("smooth_clip", 3.0), ("scale", 1e6)])
def test_waves_of_numbers_are_those_of_the_view(step, largest):
    view = fit_view("waves", np.zeros((1, 5)), n_numbers=3, weights=None, seed=4)
    names = ("frequencies", "phases", "mixtures")
    contents = Contents(
        {
            "preprocessor": {"steps": [{"kind": step}]},
            "views": [{"kind": "waves", "n_features": 5}],
        },
        {f"views.0.{name}": getattr(view, name) for name in names},
    )

    def see(graph, matrix):
        seen = Views(graph, matrix, contents).see([0, 0])
        return graph.cast(graph.add("Squeeze", seen, np.array([0])), TensorProto.DOUBLE)

    matrix = np.random.default_rng(0).uniform(-largest, largest, (50, 5))
    np.testing.assert_allclose(evaluate(see, matrix), view.apply(matrix), rtol=1e-6, atol=2e-6)


def test_results_do_not_take_the_names_of_columns():
    graph = Graph(["Abs_0", "Abs_1", "x", "y"])
    graph.add_input("x", TensorProto.DOUBLE, ("N", 1))
    assert graph.add("Abs", "x") == "Abs_2"


def test_small_constants_are_stored_once():
    graph = Graph([])
    one = np.array(1.0)
    graph.add("Add", "x", one)
    graph.add("Mul", "x", one.copy())
    graph.add("Add", "x", np.array([1.0]))  # of another shape
    assert len(graph.build("sum").initializer) == 2
