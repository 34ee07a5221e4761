"""A fitted model predicts the same numbers alone, in a batch, in blocks and on another library."""

import copy
import itertools
import json
import pickle
import subprocess
import sys
import warnings
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from muddle_runtime import forward
from muddle_runtime.forward import Bank, Blocks, Library, Nets, PlainView, Ref
from muddle_runtime.labels import NormalScores, raise_to_powers, undo_powers
from muddle_runtime.tables import Scale

pytestmark = pytest.mark.filterwarnings("ignore:X holds", "ignore:.* needs at least")


def compute(model, rows):
    """The number that a model is judged by, in units of the target's deviation."""
    if model.task == "classification":
        return model.predict_proba(rows)
    return model.predict(rows)[:, None] / model.target.scale.deviation


def predict_as(model, method, rows):
    if method == "quantiles":
        return model.predict(rows, quantiles=[0.1, 0.5, 0.9])
    options = {"coverage": 0.8} if method == "predict_interval" else {}
    return getattr(model, method)(rows, **options)


def test_a_stored_model_predicts_what_it_predicted_when_it_was_stored(stored):
    for method, expected in stored.outputs.items():
        found = predict_as(stored.model, method, stored.rows)
        if isinstance(np.ravel(expected)[0], np.floating):
            scale = 1.0
            if stored.model.task == "regression":
                scale = stored.model.target.scale.deviation[0]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * scale)
        else:
            assert found.tolist() == expected


def test_a_row_alone_is_predicted_as_in_a_batch_and_in_blocks(stored, monkeypatch):
    model, rows = stored.model, stored.rows
    together = compute(model, rows)
    for row, expected in zip(rows, together, strict=True):
        np.testing.assert_allclose(compute(model, row)[0], expected, rtol=0, atol=1e-6)
    monkeypatch.setattr(forward, "BLOCK_VALUES", 1)
    monkeypatch.setattr(forward, "FEWEST_ROWS", 3)
    monkeypatch.setattr(forward, "MOST_COSINES", 1)
    monkeypatch.setattr(forward, "MOST_CACHED", 0)
    in_blocks = compute(copy.deepcopy(model), rows)
    np.testing.assert_allclose(in_blocks, together, rtol=0, atol=1e-6)
    alone = compute(copy.deepcopy(model), rows[:1])
    np.testing.assert_allclose(alone, together[:1], rtol=0, atol=1e-6)


def test_another_array_library_gives_the_same_numbers(stored):
    torch = pytest.importorskip("torch")
    library = Library(
        torch,
        put=lambda array: torch.from_numpy(np.ascontiguousarray(array)),
        get=lambda tensor: tensor.numpy(),
        cast=lambda tensor, dtype: tensor.to(getattr(torch, dtype)),
    )
    for exact in (False, True):
        model = stored.model.using(replace(library, exact=exact))
        expected = compute(stored.model, stored.rows)
        np.testing.assert_allclose(compute(model, stored.rows), expected, rtol=0, atol=1e-6)


def make_nets(n_nets, n_features, activation, rng, depth=2, width=7):
    sizes = [n_features] + [width] * depth
    weights = tuple(
        rng.normal(size=(n_nets, a, b)).astype(np.float32) / np.float32(a**0.5)
        for a, b in itertools.pairwise(sizes)
    )
    biases = tuple(rng.normal(size=(n_nets, 1, width)).astype(np.float32) for _ in range(depth))
    scale = rng.normal(size=(n_nets, n_features, 1)).astype(np.float32)
    return Nets(activation, weights, biases, scale, (PlainView(n_features),) * n_nets, False)


REFERENCE = {
    "relu": lambda x: np.maximum(x, 0),
    "selu": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    ),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "tanh": np.tanh,
}


@pytest.mark.parametrize("activation", REFERENCE)
def test_the_forward_pass_is_the_textbook_one(activation):
    rng = np.random.default_rng(0)
    nets = make_nets(3, 5, activation, rng)
    heads = rng.normal(size=(3, 7, 2))
    matrix = rng.normal(size=(11, 5))
    bank = Bank([Ref(nets, net, heads[net]) for net in range(3)])
    expected = []
    for net in range(3):
        layer = matrix * nets.scale[net, :, 0]
        for weight, bias in zip(nets.weights, nets.biases, strict=True):
            layer = REFERENCE[activation](layer @ weight[net].astype(np.float64) + bias[net])
        expected.append(layer @ heads[net])
    np.testing.assert_allclose(bank.outputs(matrix), expected, atol=2e-6)
    np.testing.assert_allclose(bank.total(matrix), np.sum(expected, axis=0), atol=5e-6)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    "wanted",
    [("gains", "shifts"), ("gates", "gate_biases"), ("factors",), tuple(vars(Blocks()))],
    ids=str,
)
def test_the_forward_pass_of_blocks_is_the_textbook_one(wanted, named):
    rng = np.random.default_rng(0)
    nets = make_nets(3, 5, "selu" if named else lambda layer, xp: xp.sin(layer), rng, depth=3)

    def draw(n_layers=3):
        return tuple(rng.normal(size=(3, 1, 7)).astype(np.float32) for _ in range(n_layers))

    gates = tuple(weight[:, ::-1].copy() for weight in nets.weights)
    every = {"gains": draw(), "shifts": draw(), "gates": gates, "gate_biases": draw()}
    every["factors"] = draw(2)
    own = {name: every[name] for name in wanted}
    nets = replace(nets, scale=None, blocks=Blocks(**own))
    heads, matrix = rng.normal(size=(3, 7, 2)), rng.normal(size=(11, 5))
    activate = REFERENCE["selu"] if named else np.sin
    expected = []
    for net in range(3):
        layer = matrix
        for index in range(3):
            found = layer @ nets.weights[index][net].astype(float) + nets.biases[index][net]
            if "gains" in own:
                found = (found - found.mean(1)[:, None]) / np.sqrt(found.var(1)[:, None] + 1e-5)
                found = found * own["gains"][index][net] + own["shifts"][index][net]
            found = activate(found)
            if "gates" in own:
                gate = layer @ own["gates"][index][net].astype(float)
                found = found / (1 + np.exp(-gate - own["gate_biases"][index][net]))
            if "factors" in own and index > 0:
                found = layer + own["factors"][index - 1][net] * found
            layer = found
        expected.append(layer @ heads[net])
    bank = Bank([Ref(nets, net, heads[net]) for net in range(3)])
    np.testing.assert_allclose(bank.outputs(matrix), expected, atol=1e-9)
    np.testing.assert_allclose(bank.total(matrix), np.sum(expected, axis=0), atol=1e-9)
    some = Bank([Ref(nets.keep([2, 0]), 1, heads[0])])
    np.testing.assert_allclose(some.total(matrix), expected[0], atol=1e-9)


def test_rows_far_from_the_others_are_computed_in_float64_and_only_those(monkeypatch):
    monkeypatch.setattr(forward, "FEW_WEIGHTS", 0)  # nets in float32, small as they are
    rng = np.random.default_rng(1)
    nets = make_nets(1, 4, "relu", rng)
    refs = [Ref(nets, 0, rng.normal(size=(7, 1)))]
    matrix = rng.normal(size=(5, 4))
    matrix[2, 1] = 1e4
    found, exact = Bank(refs).total(matrix), Bank(refs, exact=True).total(matrix)
    np.testing.assert_array_equal(found[2], exact[2])
    assert (found != exact)[[0, 1, 3, 4]].any()


def test_nets_of_few_weights_are_computed_in_float64():
    rng = np.random.default_rng(1)
    refs = [Ref(make_nets(1, 4, "relu", rng), 0, rng.normal(size=(7, 1)))]
    matrix = rng.normal(size=(5, 4))
    np.testing.assert_array_equal(Bank(refs).total(matrix), Bank(refs, exact=True).total(matrix))


def test_nets_that_see_many_features_are_computed_in_float64(monkeypatch):
    monkeypatch.setattr(forward, "FEW_WEIGHTS", 0)  # nets in float32, small as they are
    rng = np.random.default_rng(2)
    n_features = forward.MANY_FEATURES + 1
    refs = [Ref(make_nets(1, n_features, "selu", rng), 0, rng.normal(size=(7, 1)))]
    matrix = rng.normal(size=(4, n_features))
    np.testing.assert_array_equal(Bank(refs).total(matrix), Bank(refs, exact=True).total(matrix))


def test_the_mixture_is_the_weighted_sum_of_its_members(regressor):
    model = regressor.model
    matrix = model.transform(regressor.rows)
    unbounded = replace(model, target=replace(model.target, bounds=None), offset=np.zeros(1))
    expected = model.offset + sum(
        member.weight * replace(unbounded, members=(replace(member, weight=1.0),)).labels(matrix)
        for member in model.members
        if member.weight
    )
    found = model.labels(matrix)
    np.testing.assert_allclose(found, model.target.clip(expected), atol=1e-6)
    assert {member.normal is None for member in model.members} == {True, False}


def test_predictions_stay_within_the_bounds_of_the_target(regressor):
    model = regressor.model
    labels = model.labels(model.transform(regressor.rows))
    bounds = np.quantile(labels, [0.3, 0.7], axis=0)
    narrow = replace(model, target=replace(model.target, bounds=bounds))
    found = narrow.labels(narrow.transform(regressor.rows))
    np.testing.assert_array_equal(found, np.clip(labels, *bounds))
    assert (found != labels).any()


# Numbers, the date and the duration of the fixture, well within the training rows and far off.
MOVES = {
    "size": (0.1, [-12.0, 11.0, 1e12, -1e140]),
    "age": (50.0, [-80.0, 190.0, 1e9]),
    "sold": ("2022-01-01", ["1066-10-14", "2090-01-01"]),
    "took": (timedelta(seconds=999), [timedelta(days=9), timedelta(days=-9)]),
}
PLAIN_ROW = {"kind": "flat", "city": "city 1", "garden": True}
PLAIN_ROW |= {name: usual for name, (usual, _) in MOVES.items()}


@pytest.mark.filterwarnings("default:X holds")
@pytest.mark.parametrize("column", MOVES)
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.95])
def test_a_number_far_off_is_counted_and_its_interval_is_the_widest(counts, column, coverage):
    model, (_, far) = counts.model, MOVES[column]
    usual = [row | {"size": size} for row in [*counts.rows[:6], PLAIN_ROW] for size in (-2.3, 1.9)]
    with warnings.catch_warnings(action="ignore"):
        before = model.predict_interval(usual, coverage)
    for value in far:
        moved = [row | {column: value} for row in usual]
        with pytest.warns(
            UserWarning, match=rf"numbers far outside .* '{column}': 14 \(e.g. .* to"
        ):
            found = model.predict_interval([*moved, *usual], coverage)
        np.testing.assert_allclose(found[14:], before, rtol=0, atol=1e-6)  # whatever is beside
        assert (np.ptp(found[:14], axis=1) >= np.ptp(before, axis=1).max()).all()
        for own, row in zip(found[[12, 13]], moved[12:], strict=True):
            with pytest.warns(UserWarning, match=f"far outside .* column '{column}': 1 "):
                alone = model.predict_interval(row, coverage)
            np.testing.assert_allclose(alone[0], own, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_far_begins_two_ranges_outside_the_training_rows(counts):
    model = counts.model
    least, most = model.table.block.ranges[:, 0].tolist()
    for edge, step in ((least, least - most), (most, most - least)):
        model.predict(PLAIN_ROW | {"size": edge + 1.999 * step})
        with pytest.warns(
            UserWarning, match=r"far outside .* 'size': 1 \(e\.g\. -?1.*fit had -2\.3"
        ):
            model.predict(PLAIN_ROW | {"size": edge + 2.001 * step})
    model.predict(PLAIN_ROW | {"sold": "2022-12-31 23:59:59"})  # parts of dates come round again


def test_a_model_of_an_earlier_format_knows_no_far_rows(regressor):
    model = regressor.model
    assert not model.table.any_far(
        model.transform([row | {"size": 1e12} for row in regressor.rows])
    )
    assert np.isinf(model.target.support).all()


def test_answers_stay_within_the_support_of_the_target(counts):
    model, rows = counts.model, counts.rows
    np.testing.assert_array_equal(model.target.support, [[0.0], [np.inf]])
    matrix = model.transform(rows)
    low = replace(model, offset=model.offset - 1.0)  # so that labels end at their least
    np.testing.assert_array_equal(low.labels(matrix).min(axis=0), model.target.bounds[0])
    assert low.target.scale.undo(low.target.bounds[0]) < 0
    assert low.predict(rows).min() == 0
    assert low.predict(rows, quantiles=[0.01, 0.9]).min() == 0
    bounds = low.predict_interval(rows, 0.8)
    assert (bounds[:, 0] == 0).any()
    open_target = replace(low.target, support=np.array([[-np.inf], [np.inf]]))
    usual = [0, 1, 2, 3, 4, 5, 9]
    free = replace(low, target=open_target).predict_interval(rows, 0.8)[usual]
    np.testing.assert_array_equal(bounds[usual], np.maximum(free, 0))


def test_an_answer_that_is_no_number_is_an_error(counts, ensemble):
    model = counts.model
    with pytest.raises(ValueError, match="must be finite numbers, got nan for row 0"):
        replace(model, offset=model.offset * np.nan).predict(counts.rows)
    heads = [replace(one, head=one.head * np.nan) for one in ensemble.model.members]
    broken = replace(ensemble.model, members=tuple(heads))
    for name in ("predict", "predict_proba", "predict_nets", "predict_std"):
        with pytest.raises(ValueError, match="must be finite numbers, got nan for row 0"):
            getattr(broken, name)(ensemble.rows)


def test_chosen_nets_predict_their_mean(ensemble):
    model, rows = ensemble.model, ensemble.rows
    each = model.predict_nets(rows)
    top = np.argsort(-model.selection.scores, kind="stable")[:2]
    mean = model.predict_proba(rows, select="top", top_k=2)
    np.testing.assert_allclose(mean, each[top].mean(axis=0), atol=1e-12)
    deviation = model.predict_std(rows, select="top", top_k=2)
    np.testing.assert_allclose(deviation, each[top].std(axis=0), atol=1e-12)
    part = model.subset([0, model.n_nets - 1])
    np.testing.assert_allclose(part.predict_nets(rows), each[[0, -1]], atol=1e-6)
    assert part.n_nets == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"select": "bset"}, "Did you mean 'best'"),
        ({"select": "top", "top_k": 99}, "top_k must be at most the number of nets"),
        ({"select": "all", "top_k": 2}, "top_k goes with select='top'"),
    ],
)
def test_a_wrong_choice_of_nets_is_refused(ensemble, options, message):
    with pytest.raises(ValueError, match=message):
        ensemble.model.predict(ensemble.rows, **options)


def test_options_of_other_models_are_refused_and_methods_are_missing(regressor, ensemble):
    with pytest.raises(TypeError, match="select and top_k go with ensembles"):
        regressor.model.predict(regressor.rows, select="best")
    with pytest.raises(TypeError, match="quantiles goes with a MuddleRegressor"):
        ensemble.model.predict(ensemble.rows, quantiles=[0.5])
    for name in ("predict_proba", "predict_nets", "classes_"):
        assert not hasattr(regressor.model, name)
    for name in ("predict_interval", "predict_set", "decision_function"):
        assert not hasattr(ensemble.model, name)


def test_a_file_without_scores_of_sets_says_so(mixed_classifier):
    with pytest.raises(AttributeError, match="no scores for predict_set: its file was written bef"):
        mixed_classifier.model.predict_set(mixed_classifier.rows)


@pytest.mark.filterwarnings("default")
def test_too_few_rows_for_an_interval_are_said_once_and_at_the_caller(regressor):
    row = next(row for row in regressor.rows if None not in row.values())
    for call in (
        lambda: regressor.model.predict_interval(row, coverage=0.999),
        lambda: regressor.model.predict(row, quantiles=[0.001]),
    ):
        with pytest.warns(UserWarning, match="for finite bounds") as caught:
            assert np.isinf(call()).any()
        assert [one.filename for one in caught if "finite" in str(one.message)] == [__file__]
    with pytest.raises(ValueError, match=r"coverage must lie in \(0, 1\).*Did you mean 0.9"):
        regressor.model.predict_interval(row, coverage=90)
    with pytest.raises(ValueError, match=r"coverage must lie in \(0, 1\), got coverage=2\.$"):
        regressor.model.predict_interval(row, coverage=2)


def test_a_model_tells_its_columns(regressor):
    model = regressor.model
    columns = {column.name: column for column in model.columns}
    assert columns["size"].holds == "number"
    assert columns["size"].needed
    assert columns["kind"].levels is not None
    assert repr(model) == f"FittedModel(MuddleRegressor, 7 columns, {model.n_nets} nets)"
    assert model.n_features_in_ == len(model.feature_names_in_)


def test_a_model_tells_its_bodies(mixed_regressor):
    model = mixed_regressor.model
    n_nets = sum(model.members[place].representation.n_nets for place in (0, -1))
    assert model.bodies == {"nets": n_nets, "kernel": 2, "forest": 2, "linear": 1}
    assert model.n_nets == n_nets
    expected = f"7 columns, {n_nets} nets, 2 kernels, 2 forests, linear)"
    assert repr(model) == f"FittedModel(MuddleRegressor, {expected}"


def test_an_interval_computes_the_labels_once(mixed_regressor, monkeypatch):
    model, calls = mixed_regressor.model, []
    labels = type(model)._own_labels
    monkeypatch.setattr(
        type(model), "_own_labels", lambda self, *given: calls.append(1) or labels(self, *given)
    )
    model.predict_interval(mixed_regressor.rows)
    assert len(calls) == 1
    matrix = model.transform(mixed_regressor.rows)
    known = model.spreads(matrix, labels(model, matrix))
    np.testing.assert_array_equal(model.spreads(matrix), known)


def test_a_pickled_or_copied_model_leaves_prepared_nets_behind(stored):
    compute(stored.model, stored.rows)
    raw = pickle.dumps(stored.model.using(forward.NUMPY))
    assert len(raw) < 2 * stored.path.stat().st_size
    again = pickle.loads(raw)
    assert set(again.__dict__) == set(type(again).__dataclass_fields__) - {"library"}
    np.testing.assert_array_equal(compute(again, stored.rows), compute(stored.model, stored.rows))


def test_a_power_and_its_inverse():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(50, 4))
    powers = np.array([0.0, 0.4, 2.0, 2.7])
    np.testing.assert_allclose(undo_powers(raise_to_powers(values, powers), powers), values)
    normal = NormalScores(powers, Scale(np.ones(4), np.full(4, 2.0)), np.full(4, -9), np.full(4, 9))
    np.testing.assert_allclose(normal.undo(normal.apply(values)), values)


ALONE = """
import datetime, json, sys, warnings
for name in ("torch", "pandas", "sklearn", "scipy", "narwhals", "joblib", "muddle"):
    sys.modules[name] = None
from muddle_runtime import load_model
warnings.simplefilter("ignore")
model, rows = load_model(sys.argv[1]), json.load(sys.stdin)
for row in rows:
    row["took"] = datetime.timedelta(seconds=row["took"])
alone = [model.predict(row).tolist()[0] for row in rows]
print(json.dumps([model.predict(rows).tolist(), alone]))
"""


def test_prediction_needs_numpy_and_safetensors_alone(stored):
    rows = [row | {"took": row["took"].total_seconds()} for row in stored.rows]
    command = [sys.executable, "-c", ALONE, str(stored.path)]
    done = subprocess.run(command, input=json.dumps(rows), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    together, alone = json.loads(done.stdout)
    assert together == stored.model.predict(stored.rows).tolist()
    assert alone == [stored.model.predict(row).tolist()[0] for row in stored.rows]
