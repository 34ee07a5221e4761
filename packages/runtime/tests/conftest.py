"""Stored models with the rows they were asked about and what they predicted.

Files of each format lie in `fixtures`. Two further models are put together here from parts of
these and from members of every kind; what they predict is computed by plain loops.
"""

import json
import math
import warnings
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from muddle_runtime.file import read_model, write_model
from muddle_runtime.fitted import FittedModel, Member, SpreadModel
from muddle_runtime.forward import Bank, ChosenView, Forest, Kernel, Linear, Nets, Ref, WavesView

FOLDER = Path(__file__).parent / "fixtures"
STORED = sorted(path.stem for path in FOLDER.glob("*.muddle"))


@dataclass(frozen=True, repr=False)
class Stored:
    """A model file, its model, rows as records, and the recorded outputs."""

    path: Path
    model: FittedModel
    rows: list[dict[str, Any]]
    outputs: dict[str, Any]


def read_stored(name: str) -> Stored:
    path = FOLDER / f"{name}.muddle"
    record = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    rows = [row | {"took": timedelta(seconds=row["took"])} for row in record["rows"]]
    return Stored(path, read_model(path), rows, record["answers"])


@pytest.fixture(scope="session", params=[*STORED, "mixed_regressor", "mixed_classifier"])
def stored(request):
    if request.param in STORED:
        return read_stored(request.param)
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def regressor():
    return read_stored("format1_regressor")


@pytest.fixture(scope="session")
def counts():
    """A regressor of format 3, whose targets are counts; two columns have far numbers."""
    return read_stored("format3_regressor")


@pytest.fixture(scope="session")
def student():
    """The student of a pool, of at most 2,000 weights."""
    return read_stored("format4_student")


@pytest.fixture(scope="session")
def schemes():
    """Nets with normalised, gated and residual layers."""
    return read_stored("format4_schemes")


@pytest.fixture(scope="session")
def ensemble():
    return read_stored("format1_ensemble")


# --- members of every kind, by hand --------------------------------------------------------------


def make_forest(n_features, rng, n_trees=3, n_leaves=6):
    feature, threshold, right, roots = [], [], [], []
    numbers = iter(rng.permutation(n_trees * n_leaves).tolist())

    def grow(n_below):
        node = len(right)
        feature.append(int(rng.integers(n_features)))
        threshold.append(float(rng.normal()))
        right.append(0)
        if n_below == 1:
            right[node] = -1 - next(numbers)
            return
        n_left = int(rng.integers(1, n_below))
        grow(n_left)
        right[node] = len(right)
        grow(n_below - n_left)

    for _ in range(n_trees):
        roots.append(len(right))
        grow(n_leaves)
    return Forest(
        np.array(feature, dtype=np.int32),
        np.array(threshold, dtype=np.float32),
        np.array(right, dtype=np.int32),
        np.array(roots, dtype=np.int32),
        n_features,
    )


def make_kernel(n_features, rng, n_centres=9):
    scale = rng.uniform(0.1, 0.6, n_features)
    centres = rng.normal(size=(n_centres, n_features)) * scale
    return Kernel(centres.astype(np.float32), scale)


def make_chosen_nets(n_features, rng, n_chosen=3, width=5):
    """Two nets, each with waves of features of its own."""
    views, n_seen = [], 3 * n_chosen
    for _ in range(2):
        shape = (n_chosen, 4)
        waves = WavesView(
            rng.normal(size=shape), rng.normal(size=shape), rng.normal(size=(*shape, 2)), n_chosen
        )
        chosen = np.sort(rng.choice(n_features, n_chosen, replace=False))
        views.append(ChosenView(chosen, waves, n_features))
    weight, bias = rng.normal(size=(2, n_seen, width)), rng.normal(size=(2, 1, width))
    arrays = (weight.astype(np.float32),), (bias.astype(np.float32),)
    return Nets("tanh", *arrays, None, tuple(views), rounded=True)


BODIES = {
    "linear": lambda n_features, rng: Linear(n_features),
    "kernel": make_kernel,
    "forest": make_forest,
}


def make_head(body, n_labels, rng):
    head = rng.normal(size=(1, body.width, n_labels))
    return head.astype(np.float32) if isinstance(body, Forest) else head


def find_units(body, row):
    """Hidden units of one row, by the definition."""
    if isinstance(body, Linear):
        return [*row, 1.0]
    if isinstance(body, Kernel):
        scaled = [x * factor for x, factor in zip(row, body.scale, strict=True)]
        return [*(math.exp(-math.dist(scaled, centre)) for centre in body.centres.tolist()), 1.0]
    units = [0.0] * body.width
    for node in body.roots.tolist():
        while body.right[node] >= 0:
            left = np.float32(row[body.feature[node]]) <= body.threshold[node]
            node = node + 1 if left else int(body.right[node])
        units[-1 - body.right[node]] = 1.0
    return units


def compute_plainly(body, heads, matrix):
    """(N, F) -> (N, C)"""
    if isinstance(body, Nets):
        refs = [Ref(body, net, head) for net, head in enumerate(heads)]
        if not isinstance(body.views[0], ChosenView):
            return Bank(refs, exact=True).outputs(matrix)
        return np.stack([compute_chosen(ref, matrix) for ref in refs])
    return np.array([find_units(body, row) for row in matrix.tolist()])[None] @ heads[0]


def compute_chosen(ref, matrix):
    """The output of a net that sees some of the features, by a net that is given these alone."""
    view = ref.view
    own = replace(ref.nets.keep([ref.place]), views=(view.inner,))
    return Bank([Ref(own, 0, ref.head)], exact=True).outputs(matrix[:, view.chosen])[0]


@pytest.fixture(scope="session")
def by_hand():
    """Makers of members, and their outputs by the definition; test modules import no others."""
    return SimpleNamespace(make=BODIES, make_head=make_head, compute=compute_plainly)


def mix(model, rng, n_labels):
    """The model with one member of nets, and members of every other kind."""
    n_features, normal = model.table.n_features, model.members[-1].normal
    nets = next(one for one in model.members if one.normal is None)
    members = [replace(nets, weight=0.1)]
    for make, weight, own in [
        (make_kernel, 0.3, None),
        (make_forest, 0.2, None),
        (BODIES["linear"], 0.1, None),
        (make_forest, 0.1, None),
        (make_kernel, 0.1, normal),
    ]:
        body = make(n_features, rng)
        members.append(Member(body, make_head(body, n_labels, rng), weight, own))
    chosen = make_chosen_nets(n_features, rng)
    head = rng.normal(size=(2, chosen.width, n_labels))
    members.append(Member(chosen, head, 0.1, None))
    return replace(model, members=tuple(members))


def transform(model, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of levels that are new
        return model.transform(rows)


def mix_labels(model, matrix):
    labels = np.tile(model.offset, (len(matrix), 1))
    for member in model.members:
        outputs = compute_plainly(member.representation, member.head, matrix)
        if member.normal is not None:
            outputs = member.normal.undo(outputs)
        labels += member.weight * outputs.mean(axis=0)
    return labels


@pytest.fixture(scope="session")
def mixed_regressor(tmp_path_factory):
    """Errors are predicted by a forest that sees the prediction."""
    known, rng = read_stored("format1_regressor"), np.random.default_rng(11)
    model = mix(known.model, rng, 1)
    old, forest = known.model.spread, make_forest(model.table.n_features + 1, rng)
    head = 0.1 * make_head(forest, 1, rng)
    spread = SpreadModel(forest, head, old.mean, old.spreads, old.conformal, sees_prediction=True)
    model = replace(model, spread=spread)
    matrix = transform(model, known.rows)
    labels = model.target.clip(mix_labels(model, matrix))
    sizes = spread.finish(compute_plainly(forest, head, np.hstack([matrix, labels]))[0])
    half = old.conformal[0].half_width(0.8) * sizes
    interval = model.target.restore(np.stack([labels - half, labels + half])).T
    predicted = model.target.restore(labels)
    outputs = {"predict": predicted.tolist(), "predict_interval": interval.tolist()}
    path = tmp_path_factory.mktemp("mixed") / "regressor.muddle"
    return Stored(write_model(model, path), model, known.rows, outputs)


@pytest.fixture(scope="session")
def mixed_classifier(tmp_path_factory):
    """Probabilities by the link with a floor."""
    known, rng, floor = read_stored("format1_classifier"), np.random.default_rng(12), 0.03
    model = mix(known.model, rng, 3)
    model = replace(model, calibration=replace(model.calibration, floor=floor))
    shares = (1 + mix_labels(model, transform(model, known.rows))) / 2
    shares = (shares + np.sqrt(shares**2 + 4 * floor**2)) / 2
    powers = shares**model.calibration.slopes * np.exp(model.calibration.biases)
    outputs = {"predict_proba": (powers / powers.sum(axis=1, keepdims=True)).tolist()}
    path = tmp_path_factory.mktemp("mixed") / "classifier.muddle"
    return Stored(write_model(model, path), model, known.rows, outputs)
