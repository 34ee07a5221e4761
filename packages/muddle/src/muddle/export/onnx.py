"""A FittedModel as one ONNX graph, from the columns of a table to predictions.

The table becomes features in float64 (onnx_tables.py). The nets of a member run side by side in
float32, one product per layer. A forest is one operation, which gives float32. Kernels and linear
members stay in float64, and so does everything after the heads. A new kind of representation is
one function in REPRESENTATIONS, a new view one in VIEWS.

Shapes: N rows, F features of which the first P are numbers, V features that a net sees, S distinct
views, K nets (1 for the other kinds), H hidden units, M centres of a kernel, C label columns.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle import __version__
from muddle.errors import MissingPackageError
from muddle_runtime.columns import FloatArray
from muddle_runtime.fitted import SAME_LEVEL, Fallback, FittedModel
from muddle_runtime.forward import (
    GELU_CUBE,
    GELU_SCALE,
    LARGEST_FEATURE,
    LEAK,
    NORM_EPSILON,
    SAME_POINT,
    BinsView,
    Blocks,
    ChosenView,
    Forest,
    Kernel,
    Linear,
    Nets,
    PlainView,
    Representation,
    View,
    WavesView,
)
from muddle_runtime.intervals import rows_needed
from muddle_runtime.labels import (
    LEAST_LOG_PROBABILITY,
    Calibration,
    ClassTarget,
    NormalScores,
    NumberTarget,
)
from muddle_runtime.monotone import LABEL_PARTS, NO_FLAG, PLACE_PARTS, Monotone
from muddle_runtime.parameters import check_fraction
from muddle_runtime.tables import TablePlan
from muddle_runtime.whole_file import check_place, write_whole

try:
    import onnx
except ImportError as error:
    raise MissingPackageError(
        "to_onnx needs the package onnx: pip install 'muddle[onnx]'."
    ) from error

from onnx import ModelProto, TensorProto, helper

from muddle.export.onnx_tables import (
    DOUBLE,
    FLOAT,
    MATRIX,
    ML_DOMAIN,
    ROWS,
    Features,
    Graph,
    Inputs,
    Value,
    describe_columns,
    find_columns,
    join,
    write_features,
)

# onnxruntime reads these since 1.10, of December 2021; nothing here needs anything newer.
OPSET, ML_OPSET, IR_VERSION = 15, 2, 8
SCHEMA_KEY = "muddle"
PREDICTION, LOWER, UPPER = "prediction", "lower", "upper"
EXPOSURE = "exposure"  # an input of models that were fitted with it
LABEL, PROBABILITIES = "label", "probabilities"
LABEL_TYPES = {
    "b": ("bool", TensorProto.BOOL),
    "i": ("int64", TensorProto.INT64),
    "f": ("double", TensorProto.DOUBLE),
    "U": ("string", TensorProto.STRING),
}
# A power nearer to 0 (or to 2) than this counts as this far away: the curve is the same to 8
# digits.
LEAST_POWER = 1e-8
# The square of a score beyond this may be infinite; its logarithm is sure of the class long before.
LARGEST_SCORE = 1e100


def export_model(
    model: FittedModel, path: str | PathLike[str], *, interval: float | None = None
) -> Path:
    """Write a fitted model, its preprocessing included, as an ONNX file and return the path.

    The graph is checked, and the file is written whole or not at all. interval: coverage of
    prediction intervals, which become two more outputs (MuddleRegressor).
    """
    if interval is not None:
        check_fraction("interval", interval)
    place = Path(path)
    check_place(place)
    built = build_model(model, interval)
    with write_whole(place) as file:
        file.write(built.SerializeToString())
    return place


def build_model(model: FittedModel, interval: float | None = None) -> ModelProto:
    """The model as ONNX, checked."""
    if interval is not None:
        _find_margins(model, interval)  # an error is raised before anything is built
    outputs = _describe_outputs(model, interval)
    names = [output["name"] for output in outputs]
    exposed = isinstance(model.target, NumberTarget) and model.target.exposure is not None
    columns = find_columns(model.table, [*names, EXPOSURE] if exposed else names)
    graph = Graph([*(column.input for column in columns), *names, MATRIX, EXPOSURE])
    features = write_features(model.table, Inputs(graph, model.table, columns))
    exposure = graph.add_input(EXPOSURE, DOUBLE, (ROWS, 1)) if exposed else None
    if model.selection is not None:
        model = model.subset(model.selection.choose())
    if isinstance(model.target, NumberTarget):
        _write_regression(model, model.target, features, interval, exposure)
    else:
        _write_classification(model, model.target, features)
    built = helper.make_model(
        graph.build(model.estimator),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(ML_DOMAIN, ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="muddle",
        producer_version=__version__,
        doc_string=f"{model.estimator} of muddle, with the preprocessing of its table.",
    )
    schema: dict[str, Any] = {
        "estimator": model.estimator,
        "task": model.task,
        "columns": describe_columns(model.table, columns),
        "outputs": outputs,
    }
    if exposed:
        schema["exposure"] = {"input": EXPOSURE, "type": "double"}
    helper.set_model_props(built, {SCHEMA_KEY: json.dumps(schema, ensure_ascii=False)})
    onnx.checker.check_model(built, full_check=True)
    return built


# --- outputs -------------------------------------------------------------------------------------


def _describe_outputs(model: FittedModel, interval: float | None) -> list[dict[str, Any]]:
    """The outputs, for the metadata of the model."""
    if isinstance(model.target, ClassTarget):
        classes = _read_classes(model.target)
        return [
            {"name": LABEL, "type": LABEL_TYPES[classes.dtype.kind][0]},
            {"name": PROBABILITIES, "type": "float", "classes": classes.tolist()},
        ]
    outputs: list[dict[str, Any]] = [{"name": PREDICTION, "type": "double"}]
    if interval is not None:
        outputs += [{"name": n, "type": "double", "coverage": interval} for n in (LOWER, UPPER)]
    return outputs


def _find_margins(model: FittedModel, interval: float) -> FloatArray:
    """Spreads that an interval of this coverage extends down and up, per output. (2, C)"""
    if model.spread is None:
        raise ValueError(
            "interval needs a MuddleRegressor, which has prediction intervals, got "
            f"interval={interval} for a {model.estimator}. Leave it out."
        )
    conformal = model.spread.conformal
    margins = np.array([one.margins(interval) for one in conformal]).T
    if not np.isfinite(margins).all():
        raise ValueError(
            f"interval={interval} needs at least {rows_needed(interval)} training rows for finite "
            f"bounds, got {len(conformal[0].scores)}. Ask for less, or fit on more rows."
        )
    return margins


def _read_classes(target: ClassTarget) -> NDArray[Any]:
    """The classes as an array of one of the types that an output can have."""
    labels = [one.item() if isinstance(one, np.generic) else one for one in target.classes]
    classes = np.array(labels)
    kinds = {type(label) for label in labels}
    if len(kinds) > 1 or classes.dtype.kind not in LABEL_TYPES:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(
            "classes must be all text, all whole numbers (within 64 bits), all numbers or all "
            f"booleans to be an output of an ONNX graph, got {names}. Fit with such labels."
        )
    return classes


def _write_regression(
    model: FittedModel,
    target: NumberTarget,
    features: Features,
    interval: float | None,
    exposure: Value | None,
) -> None:
    far = None
    if interval is not None:
        constrained = () if model.monotone is None else model.monotone.features
        far = _find_far(model.table, features, constrained)
    values = _write_numbers(model, target, features, interval, far, exposure)
    if model.fallback is not None:
        others, unseen = _look_away(model, model.fallback, features)
        instead = _write_numbers(model.fallback.model, target, others, interval, far, exposure)
        values = {n: unseen.apply("Where", instead[n], value) for n, value in values.items()}
    values[PREDICTION] = _restore(values[PREDICTION], target)
    if interval is not None:
        wide = far if model.monotone is None else None
        bounds = _restore_interval(values[LOWER], values[UPPER], target, wide)
        values |= dict(zip((LOWER, UPPER), bounds, strict=True))
    shape = (ROWS,) if target.one_output else (ROWS, len(target.scale.mean))
    for name, value in values.items():
        value = _refuse_rows(value if exposure is None else value * exposure, features)
        if target.one_output:
            value = value.apply("Squeeze", np.array([1]))
        value.graph.add_output(name, value, DOUBLE, shape)


def _restore(labels: Value, target: NumberTarget) -> Value:
    """In the units of y, within the support."""
    found = labels * target.scale.deviation + target.scale.mean
    return found if target.support is None else found.clip(*target.support)


def _restore_interval(
    lower: Value, upper: Value, target: NumberTarget, far: Value | None
) -> tuple[Value, Value]:
    """What the support cuts off the interval of a far row is added at its other end."""
    low, high = _restore(lower, target), _restore(upper, target)
    if far is None or target.support is None:
        return low, high
    deviation, mean, support = target.scale.deviation, target.scale.mean, target.support
    cut_low, cut_high = low - (lower * deviation + mean), high - (upper * deviation + mean)
    low, high = (
        (one + far * cut).clip(*support) for one, cut in ((low, cut_high), (high, cut_low))
    )
    return low, high


def _find_far(table: TablePlan, features: Features, constrained: Sequence[int]) -> Value | None:
    """1 for rows with a number far outside those of the fit, else 0. (N, 1)"""
    limits = table.limits
    known = np.flatnonzero(np.isfinite(limits).all(axis=0))
    known = known[~np.isin(known, constrained)]
    if len(known) == 0:
        return None
    numbers = features.matrix.take(known, table.n_features)
    beyond = (numbers - numbers.clip(*limits[:, known])).apply("Abs")
    greatest = beyond.apply("ReduceMax", axes=[1], keepdims=1)
    return greatest.apply("Greater", 0.0).cast(DOUBLE)


def _write_numbers(
    model: FittedModel,
    target: NumberTarget,
    features: Features,
    interval: float | None,
    far: Value | None,
    exposure: Value | None,
) -> dict[str, Value]:
    """Predicted labels, and their bounds if an interval is asked for. (N, C) each"""
    labels = _write_labels(model, features)
    if interval is None:
        return {PREDICTION: labels}
    spread = _write_spread(model, features, labels, far)
    if exposure is not None:
        assert target.exposure is not None
        spread = spread * (exposure.apply("Reciprocal") * target.exposure).apply("Sqrt")
    down, up = _find_margins(model, interval)
    return {PREDICTION: labels, LOWER: labels - spread * down, UPPER: labels + spread * up}


def _look_away(
    model: FittedModel, fallback: Fallback, features: Features
) -> tuple[Features, Value]:
    """The features that the fallback sees, and the rows that it is for, (N, 1)."""
    n_features = model.table.n_features
    others = features.matrix.take(np.delete(np.arange(n_features), fallback.own), n_features)
    away = (features.matrix.take(fallback.own, n_features) - fallback.unseen).apply("Abs")
    furthest = away.apply("ReduceMax", axes=[1], keepdims=1)
    seen = replace(features, matrix=others, n_features=n_features - len(fallback.own))
    return seen, furthest.apply("Less", SAME_LEVEL)


def _write_classification(model: FittedModel, target: ClassTarget, features: Features) -> None:
    graph, classes = features.matrix.graph, _read_classes(target)
    if model.calibration is None:
        probabilities = _write_mean_probability(model, target, features)
    else:
        probabilities = _calibrate(_write_labels(model, features), model.calibration)
        if model.fallback is not None:
            inner = model.fallback.model
            others, unseen = _look_away(model, model.fallback, features)
            assert inner.calibration is not None
            instead = _calibrate(_write_labels(inner, others), inner.calibration)
            probabilities = unseen.apply("Where", instead, probabilities)
    likeliest = probabilities.apply("ArgMax", axis=1, keepdims=0)
    kind = classes.dtype.kind
    label = graph.add("Gather", classes.astype(object) if kind == "U" else classes, likeliest)
    graph.add_output(LABEL, label, LABEL_TYPES[kind][1], (ROWS,))
    probabilities = _refuse_rows(probabilities, features).cast(FLOAT)
    graph.add_output(PROBABILITIES, probabilities, FLOAT, (ROWS, len(classes)))


def _refuse_rows(value: Value, features: Features) -> Value:
    """NaN in rows for which `predict` raises an error, as a graph cannot."""
    return value if features.refusal is None else value + features.refusal


# --- from members to labels, probabilities and spreads -------------------------------------------


def _write_labels(model: FittedModel, features: Features) -> Value:
    """(N, C) double"""
    if model.monotone is None:
        return _write_free_labels(model, features)
    return _step(model, model.monotone, features)


def _step(model: FittedModel, monotone: Monotone, features: Features) -> Value:
    """Monotone labels, from labels on grids: the same whole numbers as `Monotone.apply`."""
    matrix, n_points = features.matrix, len(monotone.points)
    n_features = features.n_features
    gaps: list[Value | None] = []
    tried = matrix.apply("Unsqueeze", np.array([1]))
    for place, (feature, flag) in enumerate(zip(monotone.features, monotone.flags, strict=True)):
        own = np.arange(n_features) == feature
        points = monotone.points[:, place].reshape(1, n_points, 1)
        if flag == NO_FLAG:
            gaps.append(None)
            tried = matrix.graph.add("Where", own, points, tried)
        else:
            gap = matrix.take(np.array([flag]), n_features).apply("Greater", 0.0)
            gaps.append(gap)
            known = gap.apply("Not").apply("Unsqueeze", np.array([1]))
            tried = known.apply("And", own).apply("Where", points, tried)
    rows = tried.apply("Reshape", np.array([-1, n_features]))
    labels = _write_free_labels(model, replace(features, matrix=rows))
    least, most = monotone.ends
    parts = ((labels - least) / ((most - least) / LABEL_PARTS)).clip(0.0, LABEL_PARTS)
    shape = np.array([-1, *monotone.shape, len(least)])
    found = parts.apply("Floor").apply("Reshape", shape)
    below, above = found, found
    for axis, sign in enumerate(monotone.signs, start=1):
        size = monotone.shape[axis - 1]
        below = _accumulate(below, "Max", axis, size, backwards=sign < 0)
        above = _accumulate(above, "Min", axis, size, backwards=sign > 0)
    found = ((below + above) / 2.0).apply("Floor")
    for place, grid in enumerate(monotone.grids):
        values = matrix.take(np.array([monotone.features[place]]), n_features)
        missing, n_cells = gaps[place], len(grid) - 1
        if missing is not None:
            values = missing.apply("Where", grid[:1], values)
        passed = values.apply("GreaterOrEqual", grid[1:-1]).cast(DOUBLE) if n_cells > 1 else None
        cell = values * 0.0 if passed is None else passed.sum(1, keepdims=True)
        chosen = cell.apply("Equal", np.arange(float(n_cells))).cast(DOUBLE)  # (N, cells)
        shares = ((values - grid[:-1]) / np.diff(grid)).clip(0.0, 1.0) * PLACE_PARTS
        share = (shares.apply("Floor") * chosen).sum(1)
        rest = len(monotone.grids) - place  # axes behind, the labels' among them
        share = share.apply("Unsqueeze", np.arange(1, 1 + rest))
        chosen = chosen.apply("Unsqueeze", np.arange(2, 2 + rest))
        low, high = (
            (found.apply("Gather", np.arange(n_cells) + later, axis=1) * chosen).sum(1)
            for later in (0, 1)
        )
        mixed = low * (share * -1.0 + PLACE_PARTS) + high * share
        found = (mixed / PLACE_PARTS).apply("Floor")
    answers: Value = found * ((most - least) / LABEL_PARTS) + least
    return answers


def _accumulate(value: Value, operation: str, axis: int, size: int, *, backwards: bool) -> Value:
    """The largest or least up to each point of an axis."""
    points = [value.apply("Gather", np.array([i]), axis=axis) for i in range(size)]
    found = points[::-1] if backwards else points
    for i in range(1, size):
        found[i] = found[i].apply(operation, found[i - 1])
    return join(found[::-1] if backwards else found, axis=axis)


def _write_free_labels(model: FittedModel, features: Features) -> Value:
    """The weighted sum of the members, or the mean of selected nets. (N, C) double"""
    terms = []
    for member in model.members:
        share = 1 / model.n_nets if member.weight is None else member.weight / len(member.head)
        if not share:  # it only tells the size of errors
            continue
        outputs = _write_outputs(member.representation, member.head, features)
        if member.normal is not None:
            outputs = _undo_normal(outputs, member.normal)
        terms.append(outputs.sum(0) * share)
    if not terms:  # nothing was learnt: the offset alone, in every row
        terms = [(features.matrix * 0.0).sum(1, keepdims=True)]
    labels = _add_up(terms)
    if model.offset is not None:
        labels = labels + model.offset
    bounds = model.target.bounds if isinstance(model.target, NumberTarget) else None
    return labels if bounds is None else labels.clip(*bounds)


def _write_outputs(representation: Representation, head: NDArray[Any], features: Features) -> Value:
    """The output of each net with its head. head (K, H, C) -> (K, N, C) double"""
    return REPRESENTATIONS[type(representation)](representation, head, features)


def _add_up(terms: Sequence[Value]) -> Value:
    first, *rest = terms
    return first.apply("Sum", *rest) if rest else first


def _undo_normal(outputs: Value, normal: NormalScores) -> Value:
    """The inverse of the Yeo-Johnson power, each side of 0 by its own formula."""
    within = outputs.clip(normal.least, normal.most) * normal.scale.deviation + normal.scale.mean
    above = _undo_power(within.apply("Max", 0.0), normal.powers)
    below = _undo_power(within.apply("Min", 0.0).apply("Neg"), 2 - normal.powers)
    return above - below


def _undo_power(size: Value, powers: FloatArray) -> Value:
    """(1 + power * size) ** (1 / power) - 1, which is 0 where size is 0"""
    powers = np.where(np.abs(powers) < LEAST_POWER, LEAST_POWER, powers)
    return (size * powers + 1.0) ** (1 / powers) - 1.0


def _write_spread(
    model: FittedModel, features: Features, labels: Value, far: Value | None
) -> Value:
    """Likely sizes of errors, as labels. labels (N, C): predicted -> (N, C) double"""
    spread = model.spread
    assert spread is not None
    if model.monotone is not None:
        features = replace(features, matrix=_hold(model.monotone, features))
    elif spread.sees_prediction:
        features = replace(features, matrix=join([features.matrix, labels]))
    outputs = _write_outputs(spread.representation, spread.head, features)
    raw = outputs.sum(0) / float(len(spread.head)) + spread.mean
    mean, floor, ceiling, exponent = (
        np.array([getattr(one, name) for one in spread.spreads], dtype=np.float64)
        for name in ("mean", "floor", "ceiling", "exponent")
    )
    sizes = (raw.clip(floor, ceiling) / mean) ** exponent * mean
    return sizes if far is None else far.cast(TensorProto.BOOL).apply("Where", spread.widest, sizes)


def _hold(monotone: Monotone, features: Features) -> Value:
    """The features with constrained columns on the middle of their grids. (N, F)"""
    middle = np.zeros(features.n_features)
    for feature, grid in zip(monotone.features, monotone.grids, strict=True):
        middle[feature] = grid[len(grid) // 2]
    own = np.isin(np.arange(features.n_features), monotone.features)
    return features.matrix.graph.add("Where", own, middle, features.matrix)


def _calibrate(scores: Value, calibration: Calibration) -> Value:
    """softmax(slopes * scores + biases); the score s of two classes counts as ∓s/2.

    With a floor, the logarithm of the share p that a score estimates, as 2 p - 1, takes its place.
    """
    slopes, two_classes = calibration.slopes, len(calibration.slopes) == 2
    if calibration.floor is not None:
        logged = _log_shares(scores, calibration.floor)
        if two_classes:
            logged = logged - _log_shares(scores.apply("Neg"), calibration.floor)
        scores = logged
    if two_classes:
        slopes = slopes * [-0.5, 0.5]
    log_p = (scores * slopes + calibration.biases).apply("LogSoftmax", axis=1)
    probabilities = log_p.apply("Max", LEAST_LOG_PROBABILITY).apply("Exp")
    return probabilities / probabilities.sum(1, keepdims=True)


def _log_shares(scores: Value, floor: float) -> Value:
    """log((p + sqrt(p² + 4 floor²)) / 2) with p = (1 + score) / 2.

    This is log(floor) + asinh(p / (2 floor)), which keeps its digits for p far below 0;
    onnxruntime has no Asinh of doubles.
    """
    ratio = ((scores + 1.0) / (4 * floor)).clip(-LARGEST_SCORE, LARGEST_SCORE)
    size = (ratio.apply("Abs") + (ratio * ratio + 1.0).apply("Sqrt")).apply("Log")
    return ratio.apply("Sign") * size + float(np.log(floor))


def _write_mean_probability(model: FittedModel, target: ClassTarget, features: Features) -> Value:
    """Probabilities by each net at its own temperature, averaged. (N, classes)"""
    assert model.temperatures is not None
    terms, first = [], 0
    for member in model.members:
        last = first + len(member.head)
        scores = _write_outputs(member.representation, member.head, features)
        if target.zero_one:
            scores = scores * 2.0 - 1.0
        sharpness = (1 / model.temperatures[first:last])[:, None, None]
        if len(target.classes) == 2:
            sharpness = sharpness * [-0.5, 0.5]  # the softmax of these is the sigmoid of the score
        terms.append((scores * sharpness).apply("Softmax", axis=2).sum(0))
        first = last
    return _add_up(terms) / float(model.n_nets)


# --- representations with their heads ------------------------------------------------------------


def _write_linear(linear: Linear, head: FloatArray, features: Features) -> Value:
    """The last row of the head is the constant. head (1, F + 1, C) -> (1, N, C)"""
    rows = features.matrix.clip(-LARGEST_FEATURE, LARGEST_FEATURE)
    return rows @ head[:, :-1] + head[:, -1:]


def _write_kernel(kernel: Kernel, head: FloatArray, features: Features) -> Value:
    """exp(-distance) to each centre. head (1, M + 1, C) -> (1, N, C)"""
    centres = kernel.centres.astype(np.float64)
    squares: FloatArray = (centres**2).sum(1)
    rows = (features.matrix * kernel.scale).clip(-LARGEST_FEATURE, LARGEST_FEATURE)
    # |x - c|² = |x|² + |c|² - 2 xc: one product for all pairs. What it leaves of equal points is
    # rounding, whose root would be large.
    parts = (rows * rows).sum(1, keepdims=True) + squares  # (N, M)
    apart = parts + rows @ (-2.0 * centres.T)
    apart = apart.apply("Greater", parts * SAME_POINT).apply("Where", apart, 0.0)
    near = apart.apply("Sqrt").apply("Neg").apply("Exp")
    return near @ head[:, :-1] + head[:, -1:]


def _write_forest(forest: Forest, head: NDArray[np.float32], features: Features) -> Value:
    """The values of the leaves, summed over the trees. head (1, leaves, C) -> (1, N, C)"""
    n_nodes, n_targets = len(forest.right), head.shape[2]
    tree = np.searchsorted(forest.roots, np.arange(n_nodes), side="right") - 1
    node = np.arange(n_nodes) - forest.roots[tree]  # counted within the tree
    inner = forest.right >= 0
    (leaves,) = np.nonzero(~inner)
    values = head[0, -1 - forest.right[leaves]]  # (leaves, C)
    # Features count as float32. Given as doubles, the sum over the trees is one of doubles.
    rows = features.matrix.cast(FLOAT).cast(DOUBLE)
    total = rows.apply(
        "TreeEnsembleRegressor",
        domain=ML_DOMAIN,
        n_targets=n_targets,
        nodes_treeids=tree.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_modes=np.where(inner, "BRANCH_LEQ", "LEAF").tolist(),
        nodes_featureids=np.where(inner, forest.feature, 0).tolist(),
        nodes_values=np.where(inner, forest.threshold, 0).tolist(),
        nodes_truenodeids=np.where(inner, node + 1, 0).tolist(),
        nodes_falsenodeids=np.where(inner, forest.right - forest.roots[tree], 0).tolist(),
        target_treeids=np.repeat(tree[leaves], n_targets).tolist(),
        target_nodeids=np.repeat(node[leaves], n_targets).tolist(),
        target_ids=np.tile(np.arange(n_targets), len(leaves)).tolist(),
        target_weights=values.ravel().tolist(),
    )
    return total.cast(DOUBLE).apply("Unsqueeze", np.array([0]))  # it is a float nevertheless


def _write_nets(nets: Nets, head: FloatArray, features: Features) -> Value:
    """Nets run side by side. head (K, H, C) -> (K, N, C)"""
    layer = _write_views(nets.views, features)
    first = np.stack([nets.first_weight(net) for net in range(nets.n_nets)]).astype(np.float32)
    blocks = (nets.blocks or Blocks()).arrays
    for index, weight in enumerate((first, *nets.weights[1:])):
        found = layer @ weight + nets.biases[index]
        if "gains" in blocks:
            mean = np.full((weight.shape[2], 1), 1 / weight.shape[2], dtype=np.float32)
            found = found - found @ mean
            deviation = ((found * found) @ mean + np.array([NORM_EPSILON], dtype=np.float32)).apply(
                "Sqrt"
            )
            found = found / deviation * blocks["gains"][index] + blocks["shifts"][index]
        found = _write_activation(nets.activation, found)
        if "gates" in blocks:
            gate = layer @ blocks["gates"][index] + blocks["gate_biases"][index]
            found = found * gate.apply("Sigmoid")
        if "factors" in blocks and index > 0:
            found = found * blocks["factors"][index - 1] + layer
        layer = found
    return (layer @ head.astype(np.float32)).cast(DOUBLE)


def _write_activation(activation: Any, layer: Value) -> Value:
    if callable(activation):
        raise ValueError(
            "activation must be one of the named ones for an ONNX graph, got a function, which the "
            "graph has no operation for."
        )
    if activation == "mish":  # newer operator sets alone have an operation for it
        return layer * layer.apply("Softplus").apply("Tanh")
    if activation == "gelu":
        numbers = np.array([GELU_CUBE, 1.0, GELU_SCALE, 0.5], dtype=np.float32)
        cube, one, scale, half = numbers[:, None]
        inner = (layer * layer * cube + one) * layer
        gelu: Value = layer * ((inner * scale).apply("Tanh") + one) * half
        return gelu
    if activation == "leaky_relu":
        return layer.apply("LeakyRelu", alpha=LEAK)
    return layer.apply(ACTIVATIONS[activation])


ACTIVATIONS = {"relu": "Relu", "selu": "Selu", "tanh": "Tanh"}
REPRESENTATIONS: Mapping[type, Callable[[Any, Any, Features], Value]] = {
    Nets: _write_nets,
    Linear: _write_linear,
    Kernel: _write_kernel,
    Forest: _write_forest,
}


def _write_views(views: Sequence[View], features: Features) -> Value:
    """(K, N, V) float32 for the view of each net, or (1, N, V) if all nets have the same view"""
    distinct = list(dict.fromkeys(views))
    if isinstance(distinct[0], PlainView):
        del distinct[1:]
    seen = VIEWS[type(distinct[0])](distinct, features)
    if len(distinct) == 1 or len(distinct) == len(views):
        return seen
    return seen.apply("Gather", np.array([distinct.index(view) for view in views]), axis=0)


def _write_plain(views: Sequence[PlainView], features: Features) -> Value:
    """(N, F) -> (1, N, F)"""
    return features.matrix.cast(FLOAT).apply("Unsqueeze", np.array([0]))


def _write_bins(views: Sequence[BinsView], features: Features) -> Value:
    """Numbers as fillings of their bins, and the other features. (N, F) -> (S, N, V)"""
    return join([_fill_bins(view, features.matrix) for view in views], axis=0)


def _fill_bins(view: BinsView, matrix: Value) -> Value:
    """(N, F) -> (1, N, V). Only the difference, which may be small, needs doubles."""
    n_numbers, n_bins = view.starts.shape
    parts = []
    if len(view.kept):
        numbers = matrix.take(np.arange(n_numbers), view.n_features)
        slopes, least, most = (
            array.astype(np.float32) for array in (1 / view.widths, view.least, view.most)
        )
        filled = (numbers.apply("Unsqueeze", np.array([2])) - view.starts).cast(FLOAT) * slopes
        flat = filled.clip(least, most).apply("Reshape", np.array([-1, n_numbers * n_bins]))
        parts = [flat.take(view.kept, n_numbers * n_bins)]
    if view.n_features > n_numbers:
        others = matrix.take(np.arange(n_numbers, view.n_features), view.n_features)
        parts.append(others.cast(FLOAT))
    return join(parts).apply("Unsqueeze", np.array([0]))


def _write_waves(views: Sequence[WavesView], features: Features) -> Value:
    """The features, and curves of the numbers: one product mixes all cosines. -> (S, N, V)"""
    n_views, n_features = len(views), views[0].n_features
    n_numbers, _, n_curves = views[0].mixtures.shape
    single = features.matrix.cast(FLOAT)
    source, dtype = (single, np.float32) if features.bounded else (features.matrix, np.float64)
    turns = 2 * np.pi * np.stack([view.frequencies for view in views])
    phases = np.stack([view.phases for view in views]) + np.pi / 2  # a cosine is a sine further on
    mixtures = np.stack([view.mixtures for view in views]).astype(dtype)
    numbers = source.take(np.arange(n_numbers), n_features)
    numbers = numbers.apply("Transpose", perm=[1, 0]).apply("Unsqueeze", np.array([2]))  # (P, N, 1)
    angles = numbers * turns[:, :, None].astype(dtype) + phases[:, :, None].astype(dtype)
    curves = angles.apply("Sin") @ mixtures  # (S, P, N, curves)
    curves = curves.apply("Transpose", perm=[0, 2, 1, 3])
    curves = curves.apply("Reshape", np.array([n_views, -1, n_numbers * n_curves])).cast(FLOAT)
    return join([single.apply("Expand", np.array([n_views, 1, 1])), curves], axis=2)


def _write_chosen(views: Sequence[ChosenView], features: Features) -> Value:
    """Some of the features, each view its own. (N, F) -> (S, N, V)"""
    parts = []
    for view in views:
        own = replace(features, matrix=features.matrix.take(view.chosen, view.n_features))
        parts.append(VIEWS[type(view.inner)]([view.inner], own))
    return join(parts, axis=0)


VIEWS: Mapping[type, Callable[[Any, Features], Value]] = {
    ChosenView: _write_chosen,
    PlainView: _write_plain,
    BinsView: _write_bins,
    WavesView: _write_waves,
}
