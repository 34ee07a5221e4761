"""The model file: one safetensors file whose metadata is a JSON header; format 4, docs/format.md.

Reading it runs nothing and imports nothing. For each part of a FittedModel there is a schema, a
function that stores the part in a header and arrays, and one that restores it and checks on the
way, so that prediction never meets what it cannot handle. Names in a file never change, whatever
becomes of the classes.

Files of format 1 have nets as members only, and the logistic link of their scores. Before format 3
neither the ranges of columns nor the support of targets are known; before format 4 there are no
students, and no member was pruned.

Shapes: P columns of numbers, F features, V features seen, K nets, H hidden units, C label columns.
"""

import json
import math
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from muddle_runtime import fitted, schema, tables
from muddle_runtime.columns import FloatArray
from muddle_runtime.errors import ModelFileError
from muddle_runtime.fitted import (
    Fallback,
    FittedModel,
    HeldOut,
    Member,
    Selection,
    SpreadModel,
    Statistics,
    Training,
)
from muddle_runtime.forward import (
    ACTIVATIONS,
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
from muddle_runtime.intervals import Conformal, SetScores, Spread
from muddle_runtime.labels import Calibration, ClassTarget, NormalScores, NumberTarget
from muddle_runtime.labels import Range as NumberRange
from muddle_runtime.monotone import GRID_POINTS, Monotone, find_places
from muddle_runtime.parameters import check_choice
from muddle_runtime.schema import (
    Check,
    Range,
    Shelf,
    choice,
    fail,
    list_of,
    record,
    refuse,
    text,
)
from muddle_runtime.summary import check_summary
from muddle_runtime.tables import LevelSource, Scale, TablePlan
from muddle_runtime.whole_file import check_place, write_whole

Header = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
Target = NumberTarget | ClassTarget
Dtype = Literal["float32", "float16"]

FORMAT = 4
KEY = "muddle"  # the one entry of the safetensors metadata
# safetensors reads no header beyond 100 million bytes; ours is quoted once more inside it.
LONGEST_HEADER = 45_000_000
MOST_AXES = 3
DTYPES = ("F16", "F32", "F64", "I32", "I64")
# Weights are at most this: far beyond any net that was trained, and far enough from the largest
# float that a few layers of such weights still output something finite.
LARGEST_WEIGHT, LARGEST_HEAD = 1e30, 1e100
WEIGHTS = Range(least=-LARGEST_WEIGHT, most=LARGEST_WEIGHT)
LABELS = Range(least=-LARGEST_HEAD, most=LARGEST_HEAD)
MIXTURES = Range(least=-1e6, most=1e6)  # of cosines, which nets see in float32; they are below 1
# A file writes some texts once that are needed many times over: an array gives every label the room
# of the longest, and the name of a column is part of the name of each of its features.
MOST_LETTERS = 2**25

ESTIMATORS = (
    *("MuddleRegressor", "MuddleClassifier", "MLRRegressor", "MLRClassifier"),
    *("BagMLRRegressor", "BagMLRClassifier", "EnsMLRRegressor", "EnsMLRClassifier"),
)
count = schema.whole(0)
positive = schema.whole(1)


def is_flagship(header: Header) -> bool:
    return str(header["estimator"]).startswith("Muddle")


def is_ensemble(header: Header) -> bool:
    return str(header["estimator"]).startswith(("Bag", "Ens"))


# --- files ---------------------------------------------------------------------------------------


class NewerFormatError(ModelFileError):
    """A file of a format that this version does not know yet."""


def read_model(path: str | PathLike[str]) -> FittedModel:
    """The model in a file that `save` wrote; any other file is a ModelFileError that says why.

    Nothing of the file is run or imported, and memory is bounded by the length of the file times a
    constant.
    """
    place = Path(path)
    mode = place.stat().st_mode  # first: opening a pipe waits for its writer
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ModelFileError(f"a model file must be an ordinary file, got {place}.")
    with place.open("rb") as file:  # the system's errors for folders and missing permissions
        start = file.read(2)
    try:
        with safe_open(place, framework="numpy") as tensors:
            header = _parse_header(tensors.metadata())
            arrays = {name: _read_array(tensors, name) for name in tensors.keys()}  # noqa: SIM118
        return restore_model(header, arrays)
    except SafetensorError as error:
        raise ModelFileError(
            f"{place} must be a whole file that `save` wrote, got {_guess_kind(start)} ({error}). "
            "Save or copy it again."
        ) from error
    except NewerFormatError as error:
        raise NewerFormatError(f"{place}: {error}") from error
    except ModelFileError as error:
        raise ModelFileError(
            f"{place} must be a file as `save` wrote it, got a damaged or changed one: {error} "
            "Save or copy it again."
        ) from error


def write_model(model: FittedModel, path: str | PathLike[str], *, dtype: Dtype = "float32") -> Path:
    """Write a model file whole or not at all; never one that could not be read again.

    dtype: of the weights; "float16" halves the file.
    """
    check_choice("dtype", dtype, get_args(Dtype))
    place = Path(path)
    check_place(place)
    header, arrays = store_model(model)
    if dtype == "float16":
        arrays = {name: _narrow(name, array) for name, array in arrays.items()}
    restore_model(header, arrays)
    written = json.dumps(header, allow_nan=False, separators=(",", ":"))
    if len(written) > LONGEST_HEADER:
        raise ModelFileError(
            f"the header of a model file must have at most {LONGEST_HEADER:,} characters, got "
            f"{len(written):,}: the columns have too many levels. Leave out identifiers with "
            "TablePreprocessor(drop=[...])."
        )
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with write_whole(place) as file:
        file.write(save(contiguous, metadata={KEY: written}))
    return place


def _narrow(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Nets and centres in float16, heads in float32; thresholds decide, so they stay exact."""
    is_head = name.endswith(".head")
    is_weight = name.removeprefix(f"{FALLBACK}.").startswith("parts.") and array.dtype == np.float32
    if not is_head and (not is_weight or name.endswith(".threshold")):
        return array
    wanted = "float32" if is_head else "float16"
    with np.errstate(over="ignore"):
        narrow = array.astype(wanted)
    if not np.isfinite(narrow).all() and np.isfinite(array).all():
        raise ValueError(
            f"weights must be at most {np.finfo(wanted).max:g} for dtype='float16', got "
            f"{np.abs(array).max():g} in {name}. Use dtype='float32'."
        )
    return narrow


def _guess_kind(start: bytes) -> str:
    if start.startswith(b"\x80"):
        return "something that looks like a pickle, which is never opened here"
    known = {b"PK": "a zip archive", b"\x1f\x8b": "a gzip file", b"": "an empty file"}
    return known.get(start, "another kind of file, or a part of one")


def _parse_header(metadata: dict[str, str] | None) -> Any:
    """The header, of a format that this version reads."""
    written = (metadata or {}).get(KEY)
    if written is None:
        raise ModelFileError(f"it has no metadata entry {KEY!r}, so it is of another kind.")
    try:
        header = json.loads(written, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ModelFileError("its header is nested too deeply.") from error
    except ValueError as error:
        raise ModelFileError(f"its header is not JSON: {error}.") from error
    found = header.get("format") if isinstance(header, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        refuse("its format", "a whole number from 1 on", found)
    if found > FORMAT:
        raise NewerFormatError(
            f"the file has format {schema.show(found)}, this version of muddle reads formats up to "
            f"{FORMAT}. Upgrade muddle: pip install -U muddle."
        )
    return header


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _read_array(tensors: Any, name: str) -> NDArray[Any]:
    about = tensors.get_slice(name)
    dtype, n_axes = about.get_dtype(), len(about.get_shape())
    if dtype not in DTYPES:
        fail(f"tensor {name!r}", f"of one of the types {', '.join(DTYPES)}", dtype)
    if n_axes > MOST_AXES:
        fail(f"tensor {name!r}", f"of {MOST_AXES} axes at most", n_axes)
    array: NDArray[Any] = tensors.get_tensor(name)
    return array


# --- the model -----------------------------------------------------------------------------------

MODEL: dict[str, Check] = {
    "format": positive,
    "estimator": choice(*ESTIMATORS),
    "task": choice("regression", "classification"),
    "versions": schema.mapping_of(schema.line),
    "created": schema.line,
    "parameters": schema.mapping_of(schema.plain),
    "columns": record({"names": list_of(text, least=1, distinct=True), "named": schema.flag}),
}
MODEL |= dict.fromkeys(
    ("preprocessor", "target", "views", "parts", "answer", "spread", "training"), schema.plain
)


def store_model(model: FittedModel) -> tuple[Header, Arrays]:
    """A model as a JSON header and named arrays; nothing is copied that need not be."""
    arrays: Arrays = {}
    training = model.training
    header = {
        "format": FORMAT,
        "estimator": model.estimator,
        "task": model.task,
        "versions": training.versions,
        "created": training.created,
        "parameters": training.parameters,
        "columns": {"names": list(model.table.names), "named": model.table.named},
        "preprocessor": _store_table(model.table, training.preprocessor, arrays),
        "target": _store_target(model.target, arrays),
        **_store_members(model.members, arrays),
        "answer": _store_answer(model, arrays),
        "spread": None if model.spread is None else _store_spread(model, model.spread, arrays),
        **_store_fallback(model.fallback, arrays),
        **_store_statistics(model.statistics, arrays),
        **_store_held_out(model.held_out, arrays),
        **_store_monotone(model.monotone, arrays),
        "training": _store_training(training, arrays),
    }
    return header, arrays


def restore_model(header: Header, arrays: Arrays) -> FittedModel:
    """The model of a header and its arrays, or a ModelFileError that names the field."""
    first = {FALLBACK: 3, STATISTICS: 4, HELD_OUT: 4, MONOTONE: 4}
    optional = {k: schema.plain for k, n in first.items() if k in header and header["format"] >= n}
    record(MODEL | optional)(header, "the header")
    estimator: str = header["estimator"]
    regression = estimator.endswith("Regressor")
    choice("regression" if regression else "classification")(header["task"], "task")
    shelf = Shelf(arrays)
    table = _restore_table(header, shelf)
    target, n_labels = _restore_target(header, shelf)
    members = _restore_members(header, table.n_features, n_labels, shelf)
    n_nets = _count_nets(members)
    answer = _restore_answer(header, target, n_nets, n_labels, shelf)
    spread = None
    if estimator == "MuddleRegressor":
        spread = _restore_spread(header, members, table.n_features, n_labels, shelf)
    else:
        schema.null(header["spread"], "spread")
    training = _restore_training(header, target, n_nets, table.n_features, shelf)
    model = FittedModel(
        estimator, table, target, members, spread=spread, training=training, **answer
    )
    model = replace(model, monotone=_restore_monotone(header, model, n_labels, shelf))
    fallback = _restore_fallback(header, model, n_labels, shelf)
    statistics = _restore_statistics(header, model, n_labels, shelf)
    held_out = _restore_held_out(header, model, n_labels, shelf)
    shelf.check_empty()
    return replace(model, fallback=fallback, statistics=statistics, held_out=held_out)


# --- the table -----------------------------------------------------------------------------------

KINDS = ("number", "duration", "date")
STEPS: dict[str, tuple[type[Any], dict[str, Range]]] = {
    "scale": (Scale, {"mean": schema.FINITE, "deviation": replace(schema.POSITIVE, infinite=True)}),
    "smooth_clip": (tables.SmoothClip, {"median": schema.FINITE, "spread": schema.POSITIVE}),
}
SOURCE: dict[str, Check] = {
    "column": text,
    "levels": record(
        {
            "known": list_of(text, distinct=True),
            "rare": list_of(text, distinct=True),
            "missing": schema.whole(tables.UNSEEN),
            "boolean": schema.flag,
        }
    ),
}
DECISION: dict[str, Check] = {
    **dict.fromkeys(("name", "hint"), text),
    **dict.fromkeys(("kind", "ignored"), schema.line),
    "n_missing": count,
    "number": schema.nullable(choice(*KINDS)),
    "use": schema.nullable(choice("one-hot", "means")),
    "expected": schema.flag,
}
feature = schema.require(
    "a column and a name",
    lambda value: isinstance(value, list) and [type(one) for one in value] == [int, str],
)
TABLE = record(
    {
        "parameters": schema.open_record({"missing_values": list_of(text)}, optional=True),
        "numbers": list_of(
            record({"column": text, "kind": choice(*KINDS), "had_gaps": schema.flag})
        ),
        "means": list_of(record({**SOURCE, "suffixes": list_of(text, least=1)})),
        "one_hot": list_of(record(SOURCE)),
        "steps": list_of(record({"kind": choice(*STEPS)})),
        "features": list_of(feature),
        "decisions": list_of(record(DECISION)),
    }
)


def _store_table(plan: TablePlan, parameters: Header, arrays: Arrays) -> Header:
    block = plan.block
    arrays["preprocessor.fill"], arrays["preprocessor.range"] = block.fill, block.ranges
    arrays["preprocessor.kept"] = block.kept.astype(np.int64)
    arrays["preprocessor.flagged"] = block.flagged.astype(np.int64)
    arrays["preprocessor.offsets"] = plan.offsets
    steps = []
    for i, step in enumerate(block.steps):
        (kind,) = (name for name, (known, _) in STEPS.items() if isinstance(step, known))
        steps.append({"kind": kind})
        for field in STEPS[kind][1]:
            arrays[f"preprocessor.steps.{i}.{field}"] = getattr(step, field)
    return {
        "parameters": {**parameters, "missing_values": sorted(plan.missing_values)},
        "numbers": [
            {"column": source.name, "kind": source.kind, "had_gaps": source.had_gaps}
            for source in plan.numbers
        ],
        "means": _store_sources("means", plan.means, arrays),
        "one_hot": _store_sources("one_hot", plan.one_hot, arrays),
        "steps": steps,
        "features": [[int(column), name] for column, name in block.features],
        "decisions": [
            {name: getattr(one, name) for name in DECISION}
            | {"use": None if one.levels is None else one.use}
            for one in plan.decisions
        ],
    }


def _store_sources(kind: str, sources: Sequence[LevelSource], arrays: Arrays) -> list[Header]:
    stored = []
    for i, source in enumerate(sources):
        arrays[f"preprocessor.{kind}.{i}.shares"] = source.shares
        levels = {
            "known": list(source.levels.known),
            "rare": sorted(source.levels.rare),
            "missing": source.levels.missing,
            "boolean": source.levels.boolean,
        }
        stored.append({"column": source.name, "levels": levels})
        if source.means is not None:
            arrays[f"preprocessor.{kind}.{i}.values"] = source.means
            stored[-1]["suffixes"] = list(source.suffixes)
    return stored


def _restore_table(header: Header, shelf: Shelf) -> TablePlan:
    stored = header["preprocessor"]
    TABLE(stored, "preprocessor")
    _check_decisions(header)
    numbers = tuple(
        tables.NumberSource(source["column"], source["kind"], source["had_gaps"])
        for source in stored["numbers"]
    )
    means = _restore_sources("means", stored["means"], 1, shelf)
    one_hot = _restore_sources("one_hot", stored["one_hot"], 2, shelf)
    n_letters = sum(
        len(one.name) * (len(one.suffixes) or len(one.levels)) for one in means + one_hot
    )
    _check_letters(n_letters, "the names of columns in the names of features")
    n_numbers = sum(len(source.names) for source in numbers)
    n_numbers += sum(len(source.suffixes) for source in means)
    fill = shelf.take("preprocessor.fill", (n_numbers,))
    ranges = _take_open_ends("preprocessor.range", n_numbers, header, shelf)
    kept = shelf.take_places("preprocessor.kept", n_numbers)
    flagged = shelf.take_places("preprocessor.flagged", n_numbers)
    steps = []
    for i, step in enumerate(stored["steps"]):
        kind, fields = STEPS[step["kind"]]
        where = f"preprocessor.steps.{i}"
        found = (shelf.take(f"{where}.{name}", (len(kept),), fields[name]) for name in fields)
        steps.append(kind(*found))
    features = tuple((column, name) for column, name in stored["features"])
    if len(features) != len(kept) + len(flagged):
        fail("preprocessor.features", f"{len(kept) + len(flagged)} features", len(features))
    if any(not 0 <= column < n_numbers for column, _ in features):
        fail("the columns of preprocessor.features", f"from 0 to {n_numbers - 1}", "others")
    n_flags = len(flagged) + sum(len(source.names) for source in one_hot)
    levels = {source.name: source.levels for source in means + one_hot}
    decisions = []
    for one in stored["decisions"]:
        use, own = one["use"] or "one-hot", levels[one["name"]] if one["use"] else None
        decisions.append(tables.Decision(**{**one, "use": use}, levels=own))
    return TablePlan(
        names=tuple(header["columns"]["names"]),
        named=header["columns"]["named"],
        missing_values=frozenset(stored["parameters"].get("missing_values", ())),
        numbers=numbers,
        means=means,
        one_hot=one_hot,
        block=tables.NumberBlock(fill, kept, flagged, tuple(steps), features, ranges),
        decisions=tuple(decisions),
        offsets=shelf.take("preprocessor.offsets", (n_flags,), schema.SHARES),
    )


def _take_open_ends(name: str, n_columns: int, header: Header, shelf: Shelf) -> FloatArray:
    """As `_take_ends`; they may be infinite, and count as infinite before format 3, which has them
    first."""
    if header["format"] < 3:
        return np.repeat([[-np.inf], [np.inf]], n_columns, axis=1)
    return _take_ends(name, n_columns, Range(infinite=True), shelf)


def _take_ends(name: str, n_columns: int, allowed: Range, shelf: Shelf) -> FloatArray:
    """Least and most per column. (2, C)"""
    ends = shelf.take(name, (2, n_columns), allowed)
    if (ends[0] > ends[1]).any():
        fail(name, "from low to high", "the reverse")
    return ends


def _restore_sources(
    kind: str, sources: Sequence[Header], fewest: int, shelf: Shelf
) -> tuple[LevelSource, ...]:
    restored = []
    for i, stored in enumerate(sources):
        where, found = f"preprocessor.{kind}.{i}", stored["levels"]
        known, rare, missing = found["known"], found["rare"], found["missing"]
        if missing > len(known):
            refuse(f"{where}.levels.missing", f"a code up to {len(known)}", missing)
        if not set(known).isdisjoint(rare):
            refuse(f"{where}.levels.rare", "levels that are not known ones", rare)
        levels = tables.Levels(tuple(known), frozenset(rare), missing, found["boolean"])
        if len(levels) < fewest:
            refuse(f"{where}.levels", f"{fewest} or more levels", known)
        shares = shelf.take(f"{where}.shares", (len(levels),), schema.SHARES)
        suffixes, means = tuple(stored.get("suffixes", ())), None
        if suffixes:
            means = shelf.take(f"{where}.values", (len(suffixes), len(levels) + 1))
        restored.append(LevelSource(stored["column"], levels, shares, means, suffixes))
    return tuple(restored)


def _check_decisions(header: Header) -> None:
    """Columns are known, decided on once, and used as decided."""
    stored = header["preprocessor"]
    decisions = stored["decisions"]
    decided = [decision["name"] for decision in decisions]
    names = set(header["columns"]["names"])
    known = schema.require("one of columns.names", lambda name: name in names)
    list_of(known, distinct=True)(decided, "the columns of preprocessor.decisions")
    wanted = {
        "numbers": [(one["name"], one["number"]) for one in decisions if one["number"]],
        "means": [(one["name"], None) for one in decisions if one["use"] == "means"],
        "one_hot": [(one["name"], None) for one in decisions if one["use"] == "one-hot"],
    }
    for kind, columns in wanted.items():
        if [(source["column"], source.get("kind")) for source in stored[kind]] != columns:
            raise ModelFileError(f"preprocessor.{kind} must have the columns decided on.")


def _check_letters(n_letters: int, where: str) -> None:
    if n_letters > MOST_LETTERS:
        fail(where, f"short enough for {MOST_LETTERS:,} letters in all", f"{n_letters:,}")


# --- the target ----------------------------------------------------------------------------------

CLASS_DTYPES = (
    *("text", "bool", "object", "float16", "float32", "float64"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
label = schema.require(
    "text, a number or a boolean", lambda value: isinstance(value, (str, int, float))
)
CLASSES = list_of(label, least=2, distinct=True)
# Entries that a target of numbers may have; of format 4, which had them from some day on.
NUMBER_TARGET: dict[str, Check] = {
    "ranges": list_of(choice(*get_args(NumberRange)), least=1),
    "exposure": schema.number(1e-300, LARGEST_HEAD),
}
CLASS_TARGET = record({"classes": CLASSES, "dtype": choice(*CLASS_DTYPES), "zero_one": schema.flag})


def _store_target(target: Target, arrays: Arrays) -> Header:
    if isinstance(target, NumberTarget):
        arrays["target.mean"] = target.scale.mean
        arrays["target.deviation"] = target.scale.deviation
        if target.bounds is not None:
            arrays["target.range"] = target.bounds
        if target.support is not None:
            arrays["target.support"] = target.support
        stored: Header = {"one_output": target.one_output}
        if target.ranges:
            stored["ranges"] = list(target.ranges)
        if target.exposure is not None:
            stored["exposure"] = target.exposure
        return stored
    classes = target.classes
    return {
        "classes": [store_class(label) for label in classes],
        "dtype": "text" if classes.dtype.kind == "U" else classes.dtype.name,
        "zero_one": target.zero_one,
    }


def store_class(label: Any) -> str | int | float | bool:
    """A label as JSON has it, or an error."""
    if isinstance(label, np.generic) and not isinstance(label, np.datetime64):
        label = label.item()
    if isinstance(label, (str, bool, int)) or (isinstance(label, float) and np.isfinite(label)):
        return label
    raise TypeError(
        "classes must be text, whole numbers, numbers or booleans to be stored in a file, got the "
        f"{type(label).__name__} {label!r}. Fit with such labels, e.g. y.astype(str)."
    )


def _restore_target(header: Header, shelf: Shelf) -> tuple[Target, int]:
    """The target, and its number of label columns."""
    stored = header["target"]
    if header["task"] == "classification":
        CLASS_TARGET(stored, "target")
        classes = _restore_classes(stored["classes"], stored["dtype"])
        n_labels = 1 if len(classes) == 2 else len(classes)
        return ClassTarget(classes, stored["zero_one"]), n_labels
    given = stored if isinstance(stored, dict) else {}
    optional = {name: check for name, check in NUMBER_TARGET.items() if name in given}
    record({"one_output": schema.flag} | optional)(stored, "target")
    mean = shelf.take("target.mean", (1 if stored["one_output"] else None,))
    deviation = shelf.take("target.deviation", mean.shape, schema.POSITIVE)
    bounds = support = None
    if is_flagship(header):
        bounds = _take_ends("target.range", len(mean), LABELS, shelf)
        support = _take_open_ends("target.support", len(mean), header, shelf)
    scale = Scale(mean, deviation)
    ranges: tuple[NumberRange, ...] = tuple(stored.get("ranges", ()))
    if ranges and len(ranges) != len(mean):
        fail("target.ranges", f"one per output, {len(mean)}", len(ranges))
    exposure = stored.get("exposure")
    if not is_flagship(header) and (ranges or exposure is not None):
        fail("target", f"without ranges and exposure for {header['estimator']}", "others")
    target = NumberTarget(scale, stored["one_output"], bounds, support, ranges, exposure)
    return target, len(mean)


def _restore_classes(labels: list[Any], dtype: str) -> NDArray[Any]:
    """The labels in an array of the type that `fit` was given, none of them changed by it."""
    if dtype == "text":
        _check_letters(len(labels) * max(len(str(label)) for label in labels), "target.classes")
    try:
        with np.errstate(over="ignore"):
            classes = np.array(labels, dtype=str if dtype == "text" else dtype)
        if repr(classes.tolist()) == repr(labels):  # True equals 1, but is not written alike
            return classes
    except (OverflowError, TypeError, ValueError):
        pass
    refuse("target.classes", f"labels of type {dtype}", labels)


# --- members: representations, views of nets, and heads ------------------------------------------

PLAIN = record({"kind": text, "n_features": positive})
BINS = record({"kind": text, "n_features": positive, "n_numbers": positive})
VIEWS = {"plain": PLAIN, "bins": BINS, "waves": PLAIN}
CHOSEN = record(
    {"kind": text, "n_features": positive, "inner": schema.open_record({"kind": choice(*VIEWS)})}
)
NETS_PART: dict[str, Check] = {
    "activation": choice(*ACTIVATIONS),
    "depth": positive,
    "n_nets": positive,
    "views": list_of(count, least=1),
}
# Entries of a part beside `kind`, `normal` and `weight`.
PARTS: dict[str, dict[str, Check]] = {"nets": NETS_PART, "linear": {}, "kernel": {}, "forest": {}}
FOREST_ARRAYS = ("feature", "threshold", "right", "roots")


def _store_members(members: Iterable[Member], arrays: Arrays) -> Header:
    views: list[Header] = []
    known: dict[Any, int] = {}

    def place_view(view: View) -> int:
        """The position of a view among those stored; equal ones are stored once."""
        header, own = _store_view(view)
        key = (str(header), *(array.tobytes() for array in own.values()))
        if key not in known:
            known[key] = len(views)
            arrays.update({f"views.{len(views)}.{name}": array for name, array in own.items()})
            views.append(header)
        return known[key]

    parts = []
    for i, member in enumerate(members):
        body, where = member.representation, f"parts.{i}"
        entries: Header = {}
        if isinstance(body, Nets):
            if callable(body.activation):
                raise ValueError(
                    "activation must be one of the named ones for a model to be saved, got a "
                    "function: a model file holds no code. Pickle the estimator instead."
                )
            entries = {
                "activation": body.activation,
                "depth": len(body.weights),
                "n_nets": body.n_nets,
                "views": [place_view(view) for view in body.views],
            }
            for layer, (weight, bias) in enumerate(zip(body.weights, body.biases, strict=True)):
                arrays[f"{where}.weights.{layer}"] = weight
                arrays[f"{where}.biases.{layer}"] = bias
            if body.scale is not None:
                arrays[f"{where}.scale"] = body.scale
            for name, own in (body.blocks or Blocks()).arrays.items():
                arrays |= {f"{where}.{name}.{layer}": one for layer, one in enumerate(own)}
        elif isinstance(body, Kernel):
            arrays[f"{where}.centres"], arrays[f"{where}.scale"] = body.centres, body.scale
        elif isinstance(body, Forest):
            arrays |= {f"{where}.{name}": getattr(body, name) for name in FOREST_ARRAYS}
        arrays[f"{where}.head"] = member.head
        normal = member.normal
        if normal is not None:
            arrays["normal.lambdas"], arrays["normal.mean"] = normal.powers, normal.scale.mean
            arrays["normal.scale"] = normal.scale.deviation
            arrays["normal.least"], arrays["normal.most"] = normal.least, normal.most
        about = {"normal": normal is not None, "weight": member.weight}
        parts.append({"kind": body.kind, **entries, **about})
    return {"views": views, "parts": parts}


def _store_view(view: View) -> tuple[Header, Arrays]:
    header: Header = {"kind": view.kind, "n_features": view.n_features}
    arrays: Arrays = {name: getattr(view, name) for name in view.array_names}
    if isinstance(view, BinsView):
        header["n_numbers"] = view.n_numbers
    if isinstance(view, ChosenView):
        header["inner"], inner = _store_view(view.inner)
        arrays |= inner
    return header, arrays


def _restore_members(
    header: Header, n_features: int, n_labels: int, shelf: Shelf
) -> tuple[Member, ...]:
    flagship, stored, parts = is_flagship(header), header["views"], header["parts"]
    kinds = choice(*VIEWS) if flagship else choice("plain")
    if flagship and header["format"] > 2:
        kinds = choice(*VIEWS, "chosen")
    list_of(schema.open_record({"kind": kinds}))(stored, "views")
    if sum(view["kind"] == "plain" for view in stored) > 1:
        fail("views", "distinct, so plain once at most", "plain again")
    views = [_restore_view(view, f"views.{i}", n_features, shelf) for i, view in enumerate(stored)]
    _check_parts(header, flagship)
    normal = None
    if any(part["normal"] for part in parts):
        normal = _restore_normal(n_labels, shelf)
    members = []
    for i, part in enumerate(parts):
        where, kind = f"parts.{i}", part.get("kind", "nets")
        body: Representation
        if kind == "nets":
            body = _restore_nets(part, where, views, flagship, shelf)
        elif kind == "linear":
            body = Linear(n_features)
        elif kind == "kernel":
            body = _restore_kernel(where, n_features, shelf)
        else:
            body = _restore_forest(where, n_features, shelf)
        head = _take_head(f"{where}.head", body, n_labels, shelf)
        members.append(Member(body, head, part["weight"], normal if part["normal"] else None))
    n_nets = _count_nets(members)
    if not flagship and not is_ensemble(header) and n_nets != 1:
        fail("parts", f"of one net for {header['estimator']}", n_nets)
    return tuple(members)


def _check_parts(header: Header, flagship: bool) -> None:
    """A part has the entries of its kind; all are nets in format 1, and without a mixture."""
    first = header["format"] == 1
    weight = schema.number(0.0, 1.0) if flagship else schema.null
    about: dict[str, Check] = {"normal": schema.flag, "weight": weight}
    kinds = choice(*PARTS) if flagship else choice("nets")

    def check(part: Any, where: str) -> None:
        if first:
            record({**NETS_PART, **about})(part, where)
            return
        schema.open_record({"kind": kinds})(part, where)
        record({"kind": kinds, **PARTS[part["kind"]], **about})(part, where)

    list_of(check, least=0 if flagship else 1)(header["parts"], "parts")


def _count_nets(members: Iterable[Member]) -> int:
    bodies = (member.representation for member in members)
    return sum(body.n_nets for body in bodies if isinstance(body, Nets))


def _restore_kernel(where: str, n_features: int, shelf: Shelf) -> Kernel:
    dtypes = ("float32", "float16")
    centres = shelf.take(f"{where}.centres", (None, n_features), WEIGHTS, dtypes)
    scale = shelf.take(f"{where}.scale", (n_features,), WEIGHTS)
    return Kernel(centres.astype(np.float32, copy=False), scale)


def _restore_forest(where: str, n_features: int, shelf: Shelf) -> Forest:
    """Trees in which every walk moves on until it ends in a leaf."""

    def take(name: str, n_values: int | None, values: Range = schema.FINITE) -> NDArray[Any]:
        return shelf.take(f"{where}.{name}", (n_values,), values, dtypes=("int32",))

    feature = take("feature", None, Range(least=0, most=n_features - 1))
    n_nodes = len(feature)
    threshold = shelf.take(f"{where}.threshold", (n_nodes,), dtypes=("float32",))
    right = take("right", n_nodes, Range(most=n_nodes - 1))
    roots = take("roots", None, Range(least=0, most=n_nodes - 1))
    if roots[0] != 0 or (roots[1:] <= roots[:-1]).any():
        fail(f"{where}.roots", "ascending from 0", "others")
    ends = np.append(roots[1:], n_nodes)
    end = np.repeat(ends, ends - roots)  # of the tree of each node
    inner = np.flatnonzero(right >= 0)
    if (right[inner] <= inner).any() or (right[inner] >= end[inner]).any():
        fail(f"{where}.right", "nodes of the same tree further on", "others")
    # The next node of an inner node is one of the same tree, too: no root is below another node.
    below = np.concatenate([inner + 1, right[inner]])
    is_root = np.zeros(n_nodes, dtype=bool)
    is_root[roots] = True
    if not np.array_equal(np.sort(below), np.flatnonzero(~is_root)):
        fail(f"{where}.right", "so that each node but the roots is below one other", "others")
    leaves = -1 - right[right < 0].astype(np.int64)
    if not np.array_equal(np.sort(leaves), np.arange(len(leaves))):
        fail(f"{where}.right", "so that leaves are numbered, each once", "others")
    return Forest(feature, threshold, right, roots, n_features)


def _restore_nets(part: Header, where: str, views: list[View], rounded: bool, shelf: Shelf) -> Nets:
    def take(name: str, *shape: int | None) -> NDArray[Any]:
        found = shelf.take(f"{where}.{name}", shape, WEIGHTS, dtypes=("float32", "float16"))
        return found.astype(np.float32, copy=False)

    n_nets, places = part["n_nets"], part["views"]
    if len(places) != n_nets:
        refuse(f"{where}.views", f"{n_nets} places", places)
    if max(places) >= len(views):
        refuse(f"{where}.views", f"below {len(views)}", max(places))
    own = tuple(views[place] for place in places)
    curves = (view.mixtures.shape if isinstance(view, WavesView) else () for view in own)
    if len({(view.kind, view.n_seen, shape) for view, shape in zip(own, curves, strict=True)}) > 1:
        fail(f"the views of {where}", "of one kind and shape", "several")
    width = own[0].n_seen
    scale = take("scale", n_nets, width, 1) if shelf.has(f"{where}.scale") else None
    weights, biases = [], []
    for layer in range(part["depth"]):
        weights.append(take(f"weights.{layer}", n_nets, width, None))
        width = weights[-1].shape[2]
        biases.append(take(f"biases.{layer}", n_nets, 1, width))
    sizes = [(weight.shape[1:]) for weight in weights]
    blocks = _restore_blocks(n_nets, sizes, where, shelf, take)
    return Nets(part["activation"], tuple(weights), tuple(biases), scale, own, rounded, blocks)


def _restore_blocks(
    n_nets: int,
    sizes: list[tuple[int, ...]],  # (in, out) of each layer
    where: str,
    shelf: Shelf,
    take: Callable[..., NDArray[Any]],
) -> Blocks | None:
    """Blocks whose tensors are there; a layer whose tensor is missing is an error."""
    found: dict[str, tuple[NDArray[Any], ...]] = {}
    for first, second in (("gains", "shifts"), ("gates", "gate_biases")):
        if shelf.has(f"{where}.{first}.0"):
            for name in (first, second):
                found[name] = tuple(
                    take(f"{name}.{layer}", n_nets, size[0] if name == "gates" else 1, size[1])
                    for layer, size in enumerate(sizes)
                )
    if shelf.has(f"{where}.factors.0"):
        for layer, (n_in, n_out) in enumerate(sizes[1:], start=1):
            if n_in != n_out:
                fail(f"{where}.weights.{layer}", "square, as it is added to", (n_in, n_out))
        found["factors"] = tuple(
            take(f"factors.{layer}", n_nets, 1, size[1]) for layer, size in enumerate(sizes[1:])
        )
    return Blocks(**found) if found else None


def _restore_view(stored: Header, where: str, n_features: int, shelf: Shelf) -> View:
    if stored["kind"] != "chosen":
        return _restore_whole_view(stored, where, n_features, shelf)
    CHOSEN(stored, where)
    _check_features(stored, where, n_features)
    chosen = shelf.take_places(f"{where}.chosen", n_features)
    inner = _restore_whole_view(stored["inner"], where, len(chosen), shelf)
    return ChosenView(chosen, inner, n_features)


def _check_features(stored: Header, where: str, n_features: int) -> None:
    if stored["n_features"] != n_features:
        fail(f"{where}.n_features", f"the {n_features} that it is given", stored["n_features"])


def _restore_whole_view(
    stored: Header, where: str, n_features: int, shelf: Shelf
) -> PlainView | BinsView | WavesView:
    VIEWS[stored["kind"]](stored, where)
    _check_features(stored, where, n_features)
    if stored["kind"] == "plain":
        return PlainView(n_features)
    if stored["kind"] == "bins":
        n_numbers: int = stored["n_numbers"]
        if n_numbers > n_features:
            fail(f"{where}.n_numbers", f"at most {n_features}", n_numbers)
        starts = shelf.take(f"{where}.starts", (n_numbers, None), Range(infinite=True))
        widths = shelf.take(f"{where}.widths", starts.shape, schema.POSITIVE)
        least, most = (shelf.take(f"{where}.{name}", starts.shape) for name in ("least", "most"))
        if (least > most).any():
            fail(f"{where}.least", f"at most {where}.most", "more")
        kept = shelf.take_places(f"{where}.kept", starts.size)
        return BinsView(starts, widths, least, most, kept, n_numbers, n_features)
    frequencies = shelf.take(f"{where}.frequencies", (None, None), WEIGHTS)
    if len(frequencies) > n_features:
        fail(f"{where}.frequencies", f"of at most {n_features} numbers", len(frequencies))
    phases = shelf.take(f"{where}.phases", frequencies.shape, WEIGHTS)
    mixtures = shelf.take(f"{where}.mixtures", (*frequencies.shape, None), MIXTURES)
    return WavesView(frequencies, phases, mixtures, n_features)


def _restore_normal(n_labels: int, shelf: Shelf) -> NormalScores:
    powers, mean, least, most = (
        shelf.take(f"normal.{name}", (n_labels,)) for name in ("lambdas", "mean", "least", "most")
    )
    scale = Scale(mean, shelf.take("normal.scale", (n_labels,), schema.POSITIVE))
    normal = NormalScores(powers, scale, least, most)
    if (least > most).any() or not normal.can_be_undone():
        fail("normal", "a power that can be undone between least and most", "another")
    return normal


def _take_head(name: str, body: Representation, n_labels: int, shelf: Shelf) -> NDArray[Any]:
    """(K, H, C), K = 1 unless nets; float32 for forests, which have the most units, else float64"""
    shape = (body.n_nets if isinstance(body, Nets) else 1, body.width, n_labels)
    if isinstance(body, Forest):
        return shelf.take(name, shape, LABELS, dtypes=("float32",))
    found = shelf.take(name, shape, LABELS, dtypes=("float64", "float32"))
    return found.astype(np.float64, copy=False)


# --- which nets predict, or how members are mixed ------------------------------------------------

NETS = record({"kind": choice("nets"), "select": choice("all", "best", "top"), "top_k": positive})
# Smaller floors would make steps of the probabilities, larger ones no difference between them.
FLOOR = schema.number(1e-9, 1e3)


def _store_answer(model: FittedModel, arrays: Arrays) -> Header:
    if model.temperatures is not None:
        arrays["temperature"] = model.temperatures
    if model.calibration is not None:
        arrays["calibration.slopes"] = model.calibration.slopes
        arrays["calibration.biases"] = model.calibration.biases
    if model.sets is not None:
        arrays["sets.scores"], arrays["sets.counts"] = model.sets.scores, model.sets.counts
        if model.sets.weights is not None:
            arrays["sets.weights"] = model.sets.weights
    if model.selection is None:
        assert model.offset is not None
        arrays["mixture.offset"] = model.offset
        floor = None if model.calibration is None else model.calibration.floor
        return {"kind": "mixture", "floor": floor}
    arrays["validation_scores"] = model.selection.scores
    return {"kind": "nets", "select": model.selection.select, "top_k": model.selection.top_k}


def _restore_answer(
    header: Header, target: Target, n_nets: int, n_labels: int, shelf: Shelf
) -> dict[str, Any]:
    """The fields of FittedModel that tell how outputs become a prediction."""
    stored, parameters = header["answer"], header["parameters"]
    found: dict[str, Any] = {}
    if is_flagship(header):
        mixture: dict[str, Check] = {"kind": choice("mixture")}
        if header["format"] > 1:
            linked = isinstance(target, ClassTarget)
            mixture["floor"] = schema.nullable(FLOOR) if linked else schema.null
        record(mixture)(stored, "answer")
        found["offset"] = shelf.take("mixture.offset", (n_labels,), LABELS)
        if isinstance(target, ClassTarget):
            shape = (len(target.classes),)
            slopes = Range(above=0.0, most=LARGEST_WEIGHT)
            found["calibration"] = Calibration(
                shelf.take("calibration.slopes", shape, slopes),
                shelf.take("calibration.biases", shape, LABELS),
                stored.get("floor"),
            )
            if shelf.has("sets.scores"):
                found["sets"] = _restore_sets(len(target.classes), shelf)
        return found
    NETS(stored, "answer")
    if isinstance(target, ClassTarget):
        found["temperatures"] = shelf.take("temperature", (n_nets,), schema.POSITIVE)
    # Nets that the constructor of an ensemble asked for; a single net is one.
    n_each, depths = parameters.get("n_nets", 1), parameters.get("depths", [1])
    positive(n_each, "parameters.n_nets")
    list_of(positive, least=1, distinct=True)(depths, "parameters.depths")
    n_trained = n_each * len(depths)
    select, top_k = stored["select"], stored["top_k"]
    scores = shelf.take("validation_scores", (n_nets,), schema.ANY)
    found["selection"] = Selection(scores, select, top_k, n_trained)
    for entry in ("select", "top_k"):
        if is_ensemble(header) and stored[entry] != parameters.get(entry):
            raise ModelFileError(f"answer.{entry} must be the parameter.")
    if select == "top" and top_k > max(n_trained, n_nets):
        fail("answer.top_k", "at most the number of nets", top_k)
    return found


# --- sets and intervals --------------------------------------------------------------------------


def _restore_sets(n_classes: int, shelf: Shelf) -> SetScores:
    scores = shelf.take("sets.scores", (None,), Range(least=-1.01, most=1.01))
    counts = shelf.take("sets.counts", (n_classes,), Range(least=0, most=len(scores)), ("int64",))
    if counts.sum() != len(scores):
        fail("sets.counts", f"{len(scores)} rows in all", counts.sum())
    ends = np.cumsum(counts)
    if (np.delete(np.diff(scores), ends[(ends > 0) & (ends < len(scores))] - 1) < 0).any():
        fail("sets.scores", "ascending in each class", "others")
    weights = None
    if shelf.has("sets.weights"):
        above = Range(above=0.0, most=LARGEST_HEAD)
        weights = shelf.take("sets.weights", scores.shape, above)
    return SetScores(scores, counts, weights)


SPREAD: dict[str, Check] = {
    **dict.fromkeys(("mean", "floor", "ceiling"), schema.number(1e-100, LARGEST_HEAD)),
    "exponent": schema.number(0.0, 10.0),
}


def _store_spread(model: FittedModel, spread: SpreadModel, arrays: Arrays) -> Header:
    body = spread.representation
    part = next((i for i, one in enumerate(model.members) if one.representation is body), None)
    if part is None:
        if not isinstance(body, Forest):
            raise TypeError("the spread must have the nets of a member, or a forest, got others.")
        arrays |= {f"spread.{name}": getattr(body, name) for name in FOREST_ARRAYS}
    arrays["spread.head"], arrays["spread.mean"] = spread.head, spread.mean
    for output, conformal in enumerate(spread.conformal):
        arrays[f"conformal.{output}.scores"] = conformal.scores
        if conformal.weights is not None:
            arrays[f"conformal.{output}.weights"] = conformal.weights
        if conformal.n_units is not None:
            arrays[f"conformal.{output}.units"] = np.array([conformal.n_units])
    spreads = [asdict(one) for one in spread.spreads]
    return {
        "part": part,
        "sees_prediction": spread.sees_prediction,
        "spreads": spreads,
        "two_tailed": all(conformal.two_tailed for conformal in spread.conformal),
    }


def _restore_spread(
    header: Header, members: Sequence[Member], n_features: int, n_labels: int, shelf: Shelf
) -> SpreadModel:
    stored = header["spread"]
    entries: dict[str, Check] = {"part": count, "spreads": list_of(record(SPREAD))}
    if header["format"] > 1:
        entries |= {"part": schema.nullable(count)}
        entries |= dict.fromkeys(("sees_prediction", "two_tailed"), schema.flag)
    record(entries)(stored, "spread")
    part, spreads = stored["part"], stored["spreads"]
    sees_prediction: bool = stored.get("sees_prediction", False)
    if part is None:
        n_seen = n_features + (n_labels if sees_prediction else 0)
        body: Representation = _restore_forest("spread", n_seen, shelf)
    elif part >= len(members):
        refuse("spread.part", f"below {len(members)}", part)
    else:
        body = members[part].representation
    if not isinstance(body, (Nets, Forest)):
        refuse("spread.part", "a part of nets or a forest", body.kind)
    if part is not None and sees_prediction:
        refuse("spread.sees_prediction", "false for a part, which sees the features", True)
    if len(spreads) != n_labels:
        fail("spread.spreads", f"one per output, {n_labels}", len(spreads))
    for spread in spreads:
        if spread["ceiling"] < spread["floor"]:
            refuse("the ceiling of a spread", "its floor or more", spread["ceiling"])
        grown = spread["exponent"] * math.log10(spread["ceiling"] / spread["mean"])
        if grown > math.log10(LARGEST_HEAD):
            refuse("the ceiling of a spread", "finite after its power", spread["ceiling"])
    conformal = []
    for output in range(n_labels):
        where, weights = f"conformal.{output}", None
        scores = shelf.take(f"{where}.scores", (None,), LABELS)
        if (np.diff(scores) < 0).any():
            fail(f"{where}.scores", "ascending", "others")
        if shelf.has(f"{where}.weights"):
            above = Range(above=0.0, most=LARGEST_HEAD)
            weights = shelf.take(f"{where}.weights", scores.shape, above)
        own = Conformal(scores, weights, stored.get("two_tailed", False))
        if header["format"] >= 4 and shelf.has(f"{where}.units"):
            units = shelf.take(f"{where}.units", (1,), Range(above=0.0, most=LARGEST_HEAD))
            own = replace(own, n_units=float(units[0]))
        conformal.append(own)
    return SpreadModel(
        body,
        _take_head("spread.head", body, n_labels, shelf),
        shelf.take("spread.mean", (n_labels,), LABELS),
        tuple(Spread(**one) for one in spreads),
        tuple(conformal),
        sees_prediction,
    )


# --- rows of levels never seen -------------------------------------------------------------------

FALLBACK = "fallback"
FALLBACK_ENTRIES = ("views", "parts", "answer", "spread")


def _store_fallback(fallback: Fallback | None, arrays: Arrays) -> Header:
    """An entry of the header, if there is one; its arrays have names of their own."""
    if fallback is None:
        return {}
    own: Arrays = {}
    model = fallback.model
    header = {
        "column": fallback.column,
        **_store_members(model.members, own),
        "answer": _store_answer(model, own),
        "spread": None if model.spread is None else _store_spread(model, model.spread, own),
    }
    arrays.update({f"{FALLBACK}.{name}": array for name, array in own.items()})
    return {FALLBACK: header}


def _restore_fallback(
    header: Header, model: FittedModel, n_labels: int, shelf: Shelf
) -> Fallback | None:
    if FALLBACK not in header:
        return None
    if not is_flagship(header):
        fail(FALLBACK, f"absent for {header['estimator']}", "there")
    stored, table = header[FALLBACK], model.table
    record({"column": text, **dict.fromkeys(FALLBACK_ENTRIES, schema.plain)})(stored, FALLBACK)
    choice(*(source.name for source in (*table.means, *table.one_hot)))(
        stored["column"], f"{FALLBACK}.column"
    )
    own, _ = table.describe_unseen(stored["column"])
    n_features = table.n_features - len(own)
    if n_features < 1 or not len(own):
        fail(f"{FALLBACK}.column", "one of several that have features", stored["column"])
    inner = {**header, **{name: stored[name] for name in FALLBACK_ENTRIES}}
    own_shelf = shelf.part(FALLBACK)
    members = _restore_members(inner, n_features, n_labels, own_shelf)
    answer = _restore_answer(inner, model.target, _count_nets(members), n_labels, own_shelf)
    spread = None
    if model.spread is not None:
        spread = _restore_spread(inner, members, n_features, n_labels, own_shelf)
    else:
        schema.null(inner["spread"], f"{FALLBACK}.spread")
    own_shelf.check_empty()
    monotone = None if model.monotone is None else model.monotone.without(own)
    inside = replace(model, members=members, spread=spread, training=Training(), **answer)
    if monotone is not None:
        _check_sight(spread, f"{FALLBACK}.spread")
    inside = replace(inside, monotone=monotone)
    return Fallback.of(table, stored["column"], inside)


# --- statistics of heads -------------------------------------------------------------------------

STATISTICS = "statistics"
UPDATE: dict[str, Check] = {
    "rows": count,
    "removed": schema.flag,
    "forgetting": schema.number(0.0, 1.0),
    "error": schema.number(0.0),
    "drift": list_of(text),
}
STATISTICS_ENTRY = record(
    {
        **dict.fromkeys(("rows", "unit"), schema.number(1e-100, LARGEST_HEAD)),
        "faded": schema.flag,
        "updates": list_of(record(UPDATE)),
    }
)


def _store_statistics(statistics: Statistics | None, arrays: Arrays) -> Header:
    """An entry of the header, if there are any. Of a symmetric matrix one triangle is stored."""
    if statistics is None:
        return {}
    parts = zip(statistics.grams, statistics.rights, statistics.penalties, strict=True)
    for i, (gram, right, penalty) in enumerate(parts):
        where = f"{STATISTICS}.{i}"
        arrays[f"{where}.gram"] = gram[:, *np.tril_indices(gram.shape[1])]
        arrays[f"{where}.right"], arrays[f"{where}.penalty"] = right, penalty
    if statistics.class_weights is not None:
        arrays[f"{STATISTICS}.class_weights"] = statistics.class_weights
    about = {"rows": statistics.n_rows, "unit": statistics.unit, "faded": statistics.faded}
    return {STATISTICS: {**about, "updates": list(statistics.updates)}}


def _restore_statistics(
    header: Header, model: FittedModel, n_labels: int, shelf: Shelf
) -> Statistics | None:
    if STATISTICS not in header:
        return None
    stored = header[STATISTICS]
    STATISTICS_ENTRY(stored, STATISTICS)
    sums: list[tuple[FloatArray, ...]] = []
    for i, member in enumerate(model.members):
        body, where = member.representation, f"{STATISTICS}.{i}"
        if not isinstance(body, Nets):
            fail(STATISTICS, "absent where there are others than nets", "there")
        (n_nets, width), rows, columns = (body.n_nets, body.width), *np.tril_indices(body.width)
        packed = shelf.take(f"{where}.gram", (n_nets, len(rows)), LABELS)
        gram = np.empty((n_nets, width, width))
        gram[:, rows, columns] = gram[:, columns, rows] = packed
        right = shelf.take(f"{where}.right", (n_nets, width, n_labels), LABELS)
        penalty = shelf.take(f"{where}.penalty", (n_nets,), Range(above=0.0, most=LARGEST_HEAD))
        sums.append((gram, right, penalty))
    class_weights = None
    if isinstance(model.target, ClassTarget) and shelf.has(f"{STATISTICS}.class_weights"):
        shape, weights = (len(model.target.classes),), Range(least=0.0, most=LARGEST_HEAD)
        class_weights = shelf.take(f"{STATISTICS}.class_weights", shape, weights)
    grams, rights, penalties = zip(*sums, strict=True)
    about = stored["rows"], stored["unit"], class_weights, stored["faded"]
    return Statistics(grams, rights, penalties, *about, tuple(stored["updates"]))


# --- predictions out of fold ---------------------------------------------------------------------

HELD_OUT = "held_out"
HELD_OUT_ENTRY = record(
    {"unit": schema.number(1e-100, LARGEST_HEAD), "updates": list_of(record(UPDATE))}
)


def _store_held_out(held_out: HeldOut | None, arrays: Arrays) -> Header:
    """An entry of the header, if there are any."""
    if held_out is None:
        return {}
    for name in ("predicted", "labels", "mean", "weights", "sizes", "class_weights"):
        if (array := getattr(held_out, name)) is not None:
            arrays[f"{HELD_OUT}.{name}"] = array
    return {HELD_OUT: {"unit": held_out.unit, "updates": list(held_out.updates)}}


def _restore_held_out(
    header: Header, model: FittedModel, n_labels: int, shelf: Shelf
) -> HeldOut | None:
    if HELD_OUT not in header:
        return None
    stored = header[HELD_OUT]
    HELD_OUT_ENTRY(stored, HELD_OUT)
    if model.offset is None or model.monotone is not None:
        fail(HELD_OUT, "absent but for a flagship without monotone columns", "there")
    counts = Range(least=0.0, most=LARGEST_HEAD)
    predicted = shelf.take(f"{HELD_OUT}.predicted", (len(model.members), None, n_labels), LABELS)
    shape = (predicted.shape[1], n_labels)
    labels, mean = (shelf.take(f"{HELD_OUT}.{name}", shape, LABELS) for name in ("labels", "mean"))
    weights = shelf.take(f"{HELD_OUT}.weights", shape[:1], counts)
    if not weights.any():
        fail(f"{HELD_OUT}.weights", "above 0 somewhere", "zeros")
    sizes = class_weights = None
    if model.spread is not None:
        sizes = shelf.take(f"{HELD_OUT}.sizes", shape, Range(above=0.0, most=LARGEST_HEAD))
    elif shelf.has(f"{HELD_OUT}.class_weights"):
        assert isinstance(model.target, ClassTarget)
        own = (len(model.target.classes),)
        class_weights = shelf.take(f"{HELD_OUT}.class_weights", own, counts)
    about = stored["unit"], class_weights, tuple(stored["updates"])
    return HeldOut(predicted, labels, mean, weights, sizes, *about)


# --- columns along which answers are monotone ----------------------------------------------------

MONOTONE = "monotone"
SIGN = schema.require("1 or -1", lambda value: type(value) is int and value in (1, -1))


def _store_monotone(monotone: Monotone | None, arrays: Arrays) -> Header:
    """An entry of the header, if there is one."""
    if monotone is None:
        return {}
    arrays["monotone.range"] = monotone.ends
    for i, grid in enumerate(monotone.grids):
        arrays[f"monotone.grids.{i}"] = grid
    return {MONOTONE: {"columns": list(monotone.columns), "signs": list(monotone.signs)}}


def _check_sight(spread: SpreadModel | None, where: str) -> None:
    if spread is not None and spread.sees_prediction:
        refuse(f"{where}.sees_prediction", "false for a monotone model", True)


def _restore_monotone(
    header: Header, model: FittedModel, n_labels: int, shelf: Shelf
) -> Monotone | None:
    if MONOTONE not in header:
        return None
    stored = header[MONOTONE]
    if not is_flagship(header):
        fail(MONOTONE, f"absent for {header['estimator']}", "there")
    if isinstance(model.target, ClassTarget) and n_labels > 1:
        fail(MONOTONE, "absent for more than two classes", "there")
    columns = list_of(text, least=1, distinct=True)
    record({"columns": columns, "signs": list_of(SIGN)})(stored, MONOTONE)
    if len(stored["signs"]) != len(stored["columns"]) or len(stored["signs"]) > max(GRID_POINTS):
        fail(f"{MONOTONE}.signs", f"one per column, {max(GRID_POINTS)} at most", stored["signs"])
    grids = []
    for i, name in enumerate(stored["columns"]):
        if find_places(model.table, name) is None:
            refuse(f"{MONOTONE}.columns", "columns of numbers", name)
        grid = shelf.take(f"monotone.grids.{i}", (None,))
        most = GRID_POINTS[len(stored["signs"])]
        if not 2 <= len(grid) <= most or (np.diff(grid) <= 0).any():
            fail(f"monotone.grids.{i}", f"2 to {most} ascending numbers", "others")
        grids.append(grid)
    _check_sight(model.spread, "spread")
    ends = _take_ends("monotone.range", n_labels, LABELS, shelf)
    if (ends[0] == ends[1]).any():
        fail("monotone.range", "from low to high", "a point")
    return Monotone.of(model.table, stored["columns"], stored["signs"], grids, ends)


# --- the fit, for people to read -----------------------------------------------------------------

# A search over settings before the fit.
SEARCH: dict[str, Check] = {
    **dict.fromkeys(("n_trials", "n_ended"), count),
    "score_name": schema.line,
    "score": schema.number(),
    "settings": schema.mapping_of(schema.plain),
}
# Notes of the command line; a program may note less, or other things beside.
ORIGIN: dict[str, Check] = {
    **dict.fromkeys(("target", "weight", "groups", "file"), schema.nullable(text)),
    **dict.fromkeys(("targets", "dropped"), list_of(text)),
    "rows": schema.nullable(count),
    "scores": schema.mapping_of(schema.plain),
    "search": schema.nullable(record(SEARCH)),
}
ENSEMBLE_VALUES: dict[str, Check] = {"validation_metric": schema.line, "n_iter": count}
SINGLE_VALUES = ENSEMBLE_VALUES | dict.fromkeys(("best_iteration", "n_recoveries"), count)
SINGLE_VALUES["penalty"] = schema.nullable(schema.number())
# Columns of the frames beside their index, and the types that a column may have.
FRAME_COLUMNS = {
    "history": ("loss", "permutation_term", "validation_score", "penalty", "seconds"),
    "nets": ("depth", "best_iteration", "n_iterations", "penalty", "n_recoveries"),
    "leaderboard": (
        *("configuration", "iteration", "score", "weight", "pruned", "n_nets", "n_recoveries"),
        *("n_rounds", "seconds", "outcome"),
    ),
}
# Columns that files of format 1, or of formats before 4, do not have.
NEWER_COLUMNS = {"leaderboard": ("n_recoveries", "pruned")}
# A student that took the place of its teacher.
STUDENT: dict[str, Check] = {
    **dict.fromkeys(("made_rows", "weights"), count),
    "difference": schema.number(0.0),
    "score": schema.nullable(schema.number()),
}
BACKGROUND = "background"  # a tensor that files have since models keep rows to compare with
TEXT_COLUMNS = ("configuration", "outcome")
COLUMN_DTYPES = dict.fromkeys(TEXT_COLUMNS, choice("text")) | {"net": choice("int64")}
NUMBER_DTYPES = choice("float64", "float32", "int64", "Int64")


# How rows were held out, if not at random.
FOLDS: dict[str, Check] = {
    "kind": choice("groups", "time", "validation"),
    "folds": count,
    "groups": schema.nullable(count),
    "rows": count,
}
STREAM = dict.fromkeys(("rows", "sampled", "judged", "bad_files"), count)
FLAGSHIP_VALUES = {"student": record(STUDENT), "folds": record(FOLDS), "stream": record(STREAM)}


def _check_values(value: Any, where: str) -> None:
    """Nothing, or entries of a student, the folds, and a stream."""
    present = value if isinstance(value, dict) else {}
    record({name: FLAGSHIP_VALUES[name] for name in FLAGSHIP_VALUES if name in present})(
        value, where
    )


def _store_training(training: Training, arrays: Arrays) -> Header:
    if training.importances is not None and training.importances_std is not None:
        arrays["feature_importances"] = training.importances
        arrays["feature_importances_std"] = training.importances_std
    if training.background is not None:
        arrays[BACKGROUND] = training.background
    frames = {}
    for name, frame in training.frames.items():
        texts = {}
        for column, values in frame.columns.items():
            if isinstance(values, list):
                texts[column] = values
            else:
                arrays[f"training.{name}.{column}"] = values
        frames[name] = {"index": list(frame.index), "dtypes": frame.dtypes, "texts": texts}
    fields = ("values", "table", "seconds", "origin")
    return {"frames": frames} | {field: getattr(training, field) for field in fields}


def _restore_training(
    header: Header, target: Target, n_nets: int, n_features: int, shelf: Shelf
) -> Training:
    stored = header["training"]
    index_by_frame: dict[str, list[str]] = {"history": ["iteration"]}
    values, importances = record(SINGLE_VALUES), dict[str, Any]()
    if is_flagship(header):
        index_by_frame, values = {"leaderboard": []}, _check_values
        importances = {
            field: shelf.take(
                f"feature_{field}", (len(header["columns"]["names"]),), Range(nan=True)
            )
            for field in ("importances", "importances_std")
        }
    elif is_ensemble(header):
        index_by_frame = {"history": ["net", "iteration"], "nets": ["net"]}
        values = record(ENSEMBLE_VALUES)
    record(
        {
            "values": values,
            "frames": record(dict.fromkeys(index_by_frame, schema.plain)),
            "table": schema.plain,
            "seconds": schema.nullable(schema.number(0.0)),
            "origin": schema.nullable(schema.open_record(ORIGIN, optional=True)),
        }
    )(stored, "training")
    if stored["table"] is not None:  # reports and the search for drift rely on it
        kind = "counts" if isinstance(target, ClassTarget) else "outputs"
        n_targets = len(target.classes if isinstance(target, ClassTarget) else target.scale.mean)
        check_summary(stored["table"], "training.table", (kind, n_targets))
    frames = {
        name: _restore_frame(name, stored["frames"][name], index, n_nets, shelf)
        for name, index in index_by_frame.items()
    }
    background = None
    if shelf.has(BACKGROUND):
        background = shelf.take(BACKGROUND, (None, n_features), dtypes=("float32",))
    return Training(
        background=background,
        parameters=header["parameters"],
        preprocessor=header["preprocessor"]["parameters"],
        versions=header["versions"],
        created=header["created"],
        **{**stored, "frames": frames},
        **importances,
    )


def _restore_frame(
    name: str, stored: Header, index: list[str], n_nets: int, shelf: Shelf
) -> fitted.Frame:
    """The columns that people and reports ask for, all of one length."""
    where, wanted = f"training.{name}", [*index, *FRAME_COLUMNS[name]]
    known = stored.get("dtypes") if isinstance(stored, dict) else None
    for newer in NEWER_COLUMNS.get(name, ()):
        if isinstance(known, dict) and newer not in known:
            wanted.remove(newer)
    record(
        {
            "index": schema.require(f"{index}", lambda value: value == index),
            "dtypes": record({one: COLUMN_DTYPES.get(one, NUMBER_DTYPES) for one in wanted}),
            "texts": record({one: list_of(schema.line) for one in wanted if one in TEXT_COLUMNS}),
        }
    )(stored, where)
    columns: dict[str, NDArray[Any] | list[str]] = {
        column: stored["texts"][column]
        if dtype == "text"
        else _take_column(f"{where}.{column}", dtype, shelf)
        for column, dtype in stored["dtypes"].items()
    }
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        fail(f"the columns of {where}", "of one length", sorted(lengths))
    if "net" in index:
        nets = np.asarray(columns["net"])
        if not np.array_equal(nets if name == "nets" else np.unique(nets), np.arange(n_nets)):
            fail(f"{where}.net", f"the nets from 0 to {n_nets - 1}", "others")
    return fitted.Frame(columns, stored["dtypes"], tuple(index))


def _take_column(name: str, dtype: str, shelf: Shelf) -> NDArray[Any]:
    stored = ("float64", "int64") if dtype == "Int64" else (dtype,)
    values = shelf.take(name, (None,), schema.ANY, dtypes=stored)
    if dtype == "Int64":
        known = values[~np.isnan(values)]
        if (np.abs(known) > schema.LARGEST_WHOLE).any() or (known % 1 != 0).any():
            fail(name, f"whole numbers up to {schema.LARGEST_WHOLE}", "others")
    return values
