"""The model file: one safetensors file whose metadata is a JSON header; format 1, docs/format.md.

Reading it runs nothing and imports nothing. For each part of a FittedModel there is a schema, a
function that stores the part in a header and arrays, and one that restores it and checks on the
way, so that prediction never meets what it cannot handle. Names in a file never change, whatever
becomes of the classes.

Shapes: P columns of numbers, F features, V features seen, K nets, H hidden units, C label columns.
"""

import json
import stat
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from muddle_runtime import schema
from muddle_runtime.errors import ModelFileError
from muddle_runtime.fitted import (
    FittedModel,
    Frame,
    Member,
    Selection,
    SpreadModel,
    Training,
    check_selection,
)
from muddle_runtime.forward import ACTIVATIONS, BinsView, Nets, PlainView, View, WavesView
from muddle_runtime.intervals import Conformal, Spread
from muddle_runtime.labels import (
    Calibration,
    ClassTarget,
    NormalScores,
    NumberTarget,
    raise_to_powers,
    undo_powers,
)
from muddle_runtime.parameters import check_choice
from muddle_runtime.schema import (
    ANY,
    FINITE,
    POSITIVE,
    SHARES,
    Check,
    Range,
    Shelf,
    choice,
    fail,
    flag,
    list_of,
    nullable,
    number,
    record,
    refuse,
    show,
    text,
)
from muddle_runtime.summary import check_summary
from muddle_runtime.tables import (
    DATE_PARTS,
    UNSEEN,
    Decision,
    Levels,
    LevelSource,
    NumberBlock,
    NumberSource,
    Scale,
    SmoothClip,
    Step,
    TablePlan,
)
from muddle_runtime.whole_file import check_place, write_whole

Header = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
Dtype = Literal["float32", "float16"]

FORMAT = 1
KEY = "muddle"  # the one entry of the safetensors metadata
# safetensors reads no header beyond 100 million bytes; ours is quoted once more inside it.
LONGEST_HEADER = 45_000_000
MOST_AXES = 3
DTYPES = ("F16", "F32", "F64", "I64")
# Weights are at most this: far beyond any net that was trained, and far enough from the largest
# float that a few layers of such weights still output something finite.
LARGEST_WEIGHT, LARGEST_HEAD = 1e30, 1e100
WEIGHTS = Range(least=-LARGEST_WEIGHT, most=LARGEST_WEIGHT)
LABELS = Range(least=-LARGEST_HEAD, most=LARGEST_HEAD)
# A file writes some texts once that are needed many times over: an array gives every label the room
# of the longest, and the name of a column is part of the name of each of its features.
MOST_LETTERS = 2**25

ESTIMATORS = (
    *("MuddleRegressor", "MuddleClassifier", "MLRRegressor", "MLRClassifier"),
    *("BagMLRRegressor", "BagMLRClassifier", "EnsMLRRegressor", "EnsMLRClassifier"),
)
count = schema.whole(0)
positive = schema.whole(1)


def is_flagship(estimator: str) -> bool:
    return estimator.startswith("Muddle")


def is_ensemble(estimator: str) -> bool:
    return estimator.startswith(("Bag", "Ens"))


# --- files ---------------------------------------------------------------------------------------


class NewerFormatError(ModelFileError):
    """A file of a format that this version does not know yet."""


def read_model(path: str | PathLike[str]) -> FittedModel:
    """The model in a file that `save` wrote; any other file is a ModelFileError that says why.

    Nothing of the file is run or imported, and memory is bounded by the length of the file times a
    constant.
    """
    place = Path(path)
    _check_is_file(place)
    try:
        with safe_open(place, framework="numpy") as file:
            header = _parse_header(file.metadata())
            check_format(header)
            arrays = {name: _read_array(file, name) for name in file.keys()}  # noqa: SIM118
        return restore_model(header, arrays)
    except SafetensorError as error:
        raise ModelFileError(
            f"{place} must be a whole file that `save` wrote, got {_guess_kind(place)} ({error}). "
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


def check_format(header: Any) -> None:
    """An error for a format that this version cannot read, before anything else is looked at."""
    found = header.get("format") if isinstance(header, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ModelFileError(f"its format must be a whole number from 1 on, got {show(found)}.")
    if found > FORMAT:
        raise NewerFormatError(
            f"the file has format {show(found)}, this version of muddle reads formats up to "
            f"{FORMAT}. Upgrade muddle: pip install -U muddle."
        )


def _narrow(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Nets in float16 and heads in float32."""
    parts = name.split(".")
    is_head = parts[-1] == "head"
    if not is_head and parts[0] != "parts":
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


def _check_is_file(path: Path) -> None:
    mode = path.stat().st_mode  # first: opening a pipe waits for its writer
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ModelFileError(f"a model file must be an ordinary file, got {path}.")
    with path.open("rb"):  # the system's errors for folders and missing permissions
        pass


def _guess_kind(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(2)
    if start.startswith(b"\x80"):
        return "something that looks like a pickle, which is never opened here"
    known = {b"PK": "a zip archive", b"\x1f\x8b": "a gzip file", b"": "an empty file"}
    return known.get(start, "another kind of file, or a part of one")


def _parse_header(metadata: dict[str, str] | None) -> Any:
    written = (metadata or {}).get(KEY)
    if written is None:
        raise ModelFileError(f"it has no metadata entry {KEY!r}, so it is of another kind.")
    try:
        return json.loads(written, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ModelFileError("its header is nested too deeply.") from error
    except ValueError as error:
        raise ModelFileError(f"its header is not JSON: {error}.") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _read_array(file: Any, name: str) -> NDArray[Any]:
    about = file.get_slice(name)
    dtype, n_axes = about.get_dtype(), len(about.get_shape())
    if dtype not in DTYPES:
        raise ModelFileError(
            f"tensor {name!r} must have one of the types {', '.join(DTYPES)}, got {dtype}."
        )
    if n_axes > MOST_AXES:
        raise ModelFileError(f"tensor {name!r} must have {MOST_AXES} axes at most, got {n_axes}.")
    array: NDArray[Any] = file.get_tensor(name)
    return array


# --- the model -----------------------------------------------------------------------------------

MODEL: dict[str, Check] = {
    "format": positive,
    "estimator": choice(*ESTIMATORS),
    "task": choice("regression", "classification"),
    "versions": schema.mapping_of(text),
    "created": text,
    "parameters": schema.mapping_of(schema.plain),
    "columns": schema.plain,
    "preprocessor": schema.plain,
    "target": schema.plain,
    "views": schema.plain,
    "parts": schema.plain,
    "answer": schema.plain,
    "spread": schema.plain,
    "training": schema.plain,
}


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
        "target": _store_target(model, arrays),
        **_store_members(model.members, arrays),
        "answer": _store_answer(model, arrays),
        "spread": _store_spread(model.spread, arrays),
        "training": _store_training(training, arrays),
    }
    return header, arrays


def restore_model(header: Header, arrays: Arrays) -> FittedModel:
    """The model of a header and its arrays, or a ModelFileError that names the field."""
    if not isinstance(header, dict):
        refuse("the header", "an object", header)
    check_format(header)
    estimator = header.get("estimator")
    choice(*ESTIMATORS)(estimator, "estimator")
    assert isinstance(estimator, str)
    record(MODEL)(header, "the header")
    regression = estimator.endswith("Regressor")
    choice("regression" if regression else "classification")(header["task"], "task")
    shelf = Shelf(arrays)
    table = _restore_table(header, shelf)
    target, n_labels = _restore_target(header, shelf)
    members = _restore_members(header, table.n_features, n_labels, shelf)
    answer = _restore_answer(header, target, members, n_labels, shelf)
    spread = None
    if estimator == "MuddleRegressor":
        spread = _restore_spread(header, members, n_labels, shelf)
    else:
        schema.null(header["spread"], "the header.spread")
    training = _restore_training(header, table, target, members, shelf)
    shelf.check_empty()
    return FittedModel(
        estimator=estimator,
        table=table,
        target=target,
        members=members,
        spread=spread,
        training=training,
        **answer,
    )


# --- the table -----------------------------------------------------------------------------------

KINDS = ("number", "duration", "date")
STEPS: dict[str, tuple[type[Any], dict[str, Range]]] = {
    "scale": (Scale, {"mean": FINITE, "deviation": Range(above=0.0, infinite=True)}),
    "smooth_clip": (SmoothClip, {"median": FINITE, "spread": POSITIVE}),
}
LEVELS = record(
    {
        "known": list_of(text, distinct=True),
        "rare": list_of(text, distinct=True),
        "missing": schema.whole(UNSEEN),
        "boolean": flag,
    }
)
COLUMNS = record({"names": list_of(text, least=1, distinct=True), "named": flag})
TABLE = record(
    {
        "parameters": schema.open_record({"missing_values": list_of(text)}),
        "numbers": list_of(record({"column": text, "kind": choice(*KINDS), "had_gaps": flag})),
        "means": list_of(
            record({"column": text, "levels": LEVELS, "suffixes": list_of(text, least=1)})
        ),
        "one_hot": list_of(record({"column": text, "levels": LEVELS})),
        "steps": list_of(record({"kind": choice(*STEPS)})),
        "features": list_of(schema.pair_of(count, text)),
        "decisions": list_of(
            record(
                {
                    "name": text,
                    "kind": text,
                    "n_missing": count,
                    "number": nullable(choice(*KINDS)),
                    "use": nullable(choice("one-hot", "means")),
                    "ignored": text,
                    "expected": flag,
                    "hint": text,
                }
            )
        ),
    }
)


def _store_table(plan: TablePlan, parameters: Header, arrays: Arrays) -> Header:
    block = plan.block
    arrays["preprocessor.fill"] = block.fill
    arrays["preprocessor.kept"] = block.kept.astype(np.int64)
    arrays["preprocessor.flagged"] = block.flagged.astype(np.int64)
    arrays["preprocessor.offsets"] = plan.offsets
    for i, source in enumerate(plan.means):
        assert source.means is not None
        arrays[f"preprocessor.means.{i}.shares"] = source.shares
        arrays[f"preprocessor.means.{i}.values"] = source.means
    for i, source in enumerate(plan.one_hot):
        arrays[f"preprocessor.one_hot.{i}.shares"] = source.shares
    steps = []
    for i, step in enumerate(block.steps):
        (kind,) = (name for name, (known, _) in STEPS.items() if isinstance(step, known))
        steps.append({"kind": kind})
        for field in STEPS[kind][1]:
            arrays[f"preprocessor.steps.{i}.{field}"] = getattr(step, field)
    return {
        "parameters": {**parameters, "missing_values": sorted(plan.missing_values)},
        "numbers": [
            {"column": source.name, "kind": source.kind, "had_gaps": bool(source.had_gaps)}
            for source in plan.numbers
        ],
        "means": [
            {
                "column": source.name,
                "levels": _store_levels(source.levels),
                "suffixes": list(source.suffixes),
            }
            for source in plan.means
        ],
        "one_hot": [
            {"column": source.name, "levels": _store_levels(source.levels)}
            for source in plan.one_hot
        ],
        "steps": steps,
        "features": [[int(column), name] for column, name in block.features],
        "decisions": [
            {
                "name": one.name,
                "kind": one.kind,
                "n_missing": int(one.n_missing),
                "number": one.number,
                "use": None if one.levels is None else one.use,
                "ignored": one.ignored,
                "expected": bool(one.expected),
                "hint": one.hint,
            }
            for one in plan.decisions
        ],
    }


def _store_levels(levels: Levels) -> Header:
    return {
        "known": list(levels.known),
        "rare": sorted(levels.rare),
        "missing": int(levels.missing),
        "boolean": bool(levels.boolean),
    }


def _restore_table(header: Header, shelf: Shelf) -> TablePlan:
    COLUMNS(header["columns"], "columns")
    stored = header["preprocessor"]
    TABLE(stored, "preprocessor")
    _check_decisions(header)
    numbers = tuple(
        NumberSource(source["column"], source["kind"], source["had_gaps"])
        for source in stored["numbers"]
    )
    means = tuple(
        _restore_source(source, f"preprocessor.means.{i}", 1, shelf)
        for i, source in enumerate(stored["means"])
    )
    one_hot = tuple(
        _restore_source(source, f"preprocessor.one_hot.{i}", 2, shelf)
        for i, source in enumerate(stored["one_hot"])
    )
    n_letters = sum(len(one.name) * len(one.suffixes) for one in means)
    n_letters += sum(len(one.name) * len(one.levels) for one in one_hot)
    _check_letters(n_letters, "the names of columns in the names of features")
    widths = [len(DATE_PARTS) if source.kind == "date" else 1 for source in numbers]
    n_numbers = sum(widths) + sum(len(source.suffixes) for source in means)
    fill = shelf.take("preprocessor.fill", (n_numbers,))
    kept = shelf.take_places("preprocessor.kept", n_numbers)
    flagged = shelf.take_places("preprocessor.flagged", n_numbers)
    steps: list[Step] = []
    for i, step in enumerate(stored["steps"]):
        kind, ranges = STEPS[step["kind"]]
        found = [
            shelf.take(f"preprocessor.steps.{i}.{name}", (len(kept),), values)
            for name, values in ranges.items()
        ]
        steps.append(kind(*found))
    n_block = len(kept) + len(flagged)
    features = stored["features"]
    if len(features) != n_block:
        fail("preprocessor.features", f"{n_block} features", len(features))
    if any(column >= n_numbers for column, _ in features):
        fail("the columns of preprocessor.features", f"below {n_numbers}", "others")
    n_flags = len(flagged) + sum(
        1 if len(source.levels) == 2 else len(source.levels) for source in one_hot
    )
    offsets = shelf.take("preprocessor.offsets", (n_flags,), SHARES)
    levels = {source.name: source.levels for source in (*means, *one_hot)}
    return TablePlan(
        names=tuple(header["columns"]["names"]),
        named=header["columns"]["named"],
        missing_values=frozenset(stored["parameters"].get("missing_values", ())),
        numbers=numbers,
        means=means,
        one_hot=one_hot,
        block=NumberBlock(
            fill, kept, flagged, tuple(steps), tuple((column, name) for column, name in features)
        ),
        decisions=tuple(
            Decision(
                **{name: one[name] for name in ("name", "kind", "n_missing", "number", "ignored")},
                levels=None if one["use"] is None else levels[one["name"]],
                use=one["use"] or "one-hot",
                expected=one["expected"],
                hint=one["hint"],
            )
            for one in stored["decisions"]
        ),
        offsets=offsets,
    )


def _restore_source(stored: Header, where: str, fewest: int, shelf: Shelf) -> LevelSource:
    found = stored["levels"]
    known, rare, missing = found["known"], found["rare"], found["missing"]
    if missing > len(known):
        refuse(f"{where}.levels.missing", f"a code up to {len(known)}", missing)
    if not set(known).isdisjoint(rare):
        refuse(f"{where}.levels.rare", "levels that are not known ones", rare)
    levels = Levels(tuple(known), frozenset(rare), missing, found["boolean"])
    if len(levels) < fewest:
        refuse(f"{where}.levels", f"{fewest} or more levels", known)
    shares = shelf.take(f"{where}.shares", (len(levels),), SHARES)
    suffixes = tuple(stored.get("suffixes", ()))
    means = None
    if suffixes:
        means = shelf.take(f"{where}.values", (len(suffixes), len(levels) + 1))
    return LevelSource(stored["column"], levels, shares, means, suffixes)


def _check_decisions(header: Header) -> None:
    """Columns are known, decided on once, and used as decided."""
    names, stored = set(header["columns"]["names"]), header["preprocessor"]
    decisions = stored["decisions"]
    decided = [decision["name"] for decision in decisions]
    list_of(text, distinct=True)(decided, "the columns of preprocessor.decisions")
    unknown = [name for name in decided if name not in names]
    if unknown:
        refuse("each column of preprocessor.decisions", "one of columns.names", unknown[0])
    wanted = {
        "numbers": [(one["name"], one["number"]) for one in decisions if one["number"]],
        "means": [one["name"] for one in decisions if one["use"] == "means"],
        "one_hot": [one["name"] for one in decisions if one["use"] == "one-hot"],
    }
    found = {
        "numbers": [(source["column"], source["kind"]) for source in stored["numbers"]],
        "means": [source["column"] for source in stored["means"]],
        "one_hot": [source["column"] for source in stored["one_hot"]],
    }
    for kind in wanted:
        if found[kind] != wanted[kind]:
            raise ModelFileError(f"preprocessor.{kind} must have the columns decided on.")


def _check_letters(n_letters: int, where: str) -> None:
    if n_letters > MOST_LETTERS:
        fail(where, f"short enough for {MOST_LETTERS:,} letters in all", f"{n_letters:,}")


# --- the target ----------------------------------------------------------------------------------

LABEL = schema.either(
    "text, a number or a boolean", text, flag, schema.whole(-(2**63), 2**64 - 1), number()
)
CLASS_DTYPES = (
    *("text", "bool", "object", "float16", "float32", "float64"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
NUMBER_TARGET = record({"one_output": flag})
CLASS_TARGET = record(
    {
        "classes": list_of(LABEL, least=2, distinct=True),
        "dtype": choice(*CLASS_DTYPES),
        "zero_one": flag,
    }
)


def _store_target(model: FittedModel, arrays: Arrays) -> Header:
    target = model.target
    if isinstance(target, NumberTarget):
        arrays["target.mean"] = target.scale.mean
        arrays["target.deviation"] = target.scale.deviation
        if target.bounds is not None:
            arrays["target.range"] = target.bounds
        return {"one_output": bool(target.one_output)}
    classes = target.classes
    if classes.dtype.kind not in "biufUO":
        raise TypeError(
            "classes must be text, whole numbers, numbers or booleans to be stored in a file, got "
            f"{classes.dtype}. Fit with such labels."
        )
    return {
        "classes": [store_class(label) for label in classes.tolist()],
        "dtype": "text" if classes.dtype.kind == "U" else classes.dtype.name,
        "zero_one": bool(target.zero_one),
    }


def store_class(label: Any) -> str | int | float | bool:
    """A label as JSON has it, or an error."""
    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, (str, bool, int)) or (isinstance(label, float) and np.isfinite(label)):
        return label
    raise TypeError(
        "classes must be text, whole numbers, numbers or booleans to be stored in a file, got the "
        f"{type(label).__name__} {label!r}. Fit with such labels, e.g. y.astype(str)."
    )


def _restore_target(header: Header, shelf: Shelf) -> tuple[NumberTarget | ClassTarget, int]:
    """The target, and its number of label columns."""
    stored = header["target"]
    if header["task"] == "classification":
        CLASS_TARGET(stored, "target")
        _check_classes(stored)
        classes = _make_classes(stored)
        n_labels = 1 if len(classes) == 2 else len(classes)
        return ClassTarget(classes, stored["zero_one"]), n_labels
    NUMBER_TARGET(stored, "target")
    mean = shelf.take("target.mean", (1 if stored["one_output"] else None,))
    deviation = shelf.take("target.deviation", mean.shape, POSITIVE)
    bounds = None
    if is_flagship(header["estimator"]):
        bounds = shelf.take("target.range", (2, len(mean)), LABELS)
        if (bounds[0] > bounds[1]).any():
            fail("target.range", "from low to high", "the reverse")
    return NumberTarget(Scale(mean, deviation), stored["one_output"], bounds), len(mean)


def _make_classes(stored: Header) -> NDArray[Any]:
    """The labels, in an array of the type that `fit` was given."""
    return np.array(stored["classes"], dtype=str if stored["dtype"] == "text" else stored["dtype"])


def _check_classes(stored: Header) -> None:
    dtype, labels, where = stored["dtype"], stored["classes"], "target.classes"
    if dtype == "object":
        return
    if dtype == "text":
        list_of(text)(labels, where)
        _check_letters(len(labels) * max(map(len, labels)), where)
    elif dtype == "bool":
        list_of(flag)(labels, where)
    elif dtype.startswith("float"):
        largest = float(np.finfo(dtype).max)
        list_of(number(-largest, largest))(labels, where)
    else:
        bounds = np.iinfo(dtype)
        list_of(schema.whole(int(bounds.min), int(bounds.max)))(labels, where)
    if len(np.unique(_make_classes(stored))) < len(labels):
        refuse(where, f"distinct as {dtype} too", labels)


# --- members: nets, their views and heads --------------------------------------------------------

VIEWS: dict[str, Check] = {
    "plain": record({"kind": text, "n_features": positive}),
    "bins": record({"kind": text, "n_features": positive, "n_numbers": positive}),
    "waves": record({"kind": text, "n_features": positive}),
}
PART: dict[str, Check] = {
    "activation": choice(*ACTIVATIONS),
    "depth": positive,
    "n_nets": positive,
    "views": list_of(count, least=1),
    "normal": flag,
}


def _store_members(members: Iterable[Member], arrays: Arrays) -> Header:
    views: list[Header] = []
    known: dict[Any, int] = {}
    parts = []
    for i, member in enumerate(members):
        nets, where = member.representation, f"parts.{i}"
        places = []
        for view in nets.views:
            header, own = _store_view(view)
            key = (*header.values(), *(array.tobytes() for array in own.values()))
            if key not in known:
                known[key] = len(views)
                arrays |= {f"views.{len(views)}.{name}": array for name, array in own.items()}
                views.append(header)
            places.append(known[key])
        for layer, (weight, bias) in enumerate(zip(nets.weights, nets.biases, strict=True)):
            arrays[f"{where}.weights.{layer}"] = weight
            arrays[f"{where}.biases.{layer}"] = bias
        if nets.scale is not None:
            arrays[f"{where}.scale"] = nets.scale
        arrays[f"{where}.head"] = member.head
        if member.normal is not None:
            _store_normal(member.normal, arrays)
        parts.append(
            {
                "activation": nets.activation,
                "depth": len(nets.weights),
                "n_nets": nets.n_nets,
                "views": places,
                "normal": member.normal is not None,
                "weight": member.weight,
            }
        )
    return {"views": views, "parts": parts}


def _store_view(view: View) -> tuple[Header, Arrays]:
    if isinstance(view, PlainView):
        return {"kind": "plain", "n_features": view.n_features}, {}
    if isinstance(view, BinsView):
        names: tuple[str, ...] = ("starts", "widths", "least", "most", "kept")
        header = {"kind": "bins", "n_numbers": view.n_numbers, "n_features": view.n_features}
    else:
        names = ("frequencies", "phases", "mixtures")
        header = {"kind": "waves", "n_features": view.n_features}
    return header, {name: getattr(view, name) for name in names}


def _store_normal(normal: NormalScores, arrays: Arrays) -> None:
    arrays["normal.lambdas"] = normal.powers
    arrays["normal.mean"], arrays["normal.scale"] = normal.scale.mean, normal.scale.deviation
    arrays["normal.least"], arrays["normal.most"] = normal.least, normal.most


def _restore_members(
    header: Header, n_features: int, n_labels: int, shelf: Shelf
) -> tuple[Member, ...]:
    estimator, stored = header["estimator"], header["views"]
    list_of(schema.mapping_of(schema.plain))(stored, "views")
    for i, view in enumerate(stored):
        choice(*VIEWS)(view.get("kind"), f"views[{i}].kind")
        VIEWS[view["kind"]](view, f"views[{i}]")
    if sum(view["kind"] == "plain" for view in stored) > 1:
        fail("views", "distinct, so plain once at most", "plain again")
    views = [_restore_view(view, f"views.{i}", n_features, shelf) for i, view in enumerate(stored)]
    weight: Check = number(0.0, 1.0) if is_flagship(estimator) else schema.null
    least = 0 if is_flagship(estimator) else 1
    parts = header["parts"]
    list_of(record({**PART, "weight": weight}), least=least)(parts, "parts")
    normal = None
    if any(part["normal"] for part in parts):
        normal = _restore_normal(n_labels, shelf)
    members = tuple(
        _restore_member(header, i, views, normal, n_labels, shelf) for i in range(len(parts))
    )
    if not is_flagship(estimator):
        kinds = {view["kind"] for view in stored}
        if kinds != {"plain"}:
            fail("views", f"plain for {estimator}", kinds)
        n_nets = sum(part["n_nets"] for part in parts)
        if not is_ensemble(estimator) and n_nets != 1:
            fail("parts", f"of one net for {estimator}", n_nets)
    return members


def _restore_member(
    header: Header,
    place: int,
    views: list[View],
    normal: NormalScores | None,
    n_labels: int,
    shelf: Shelf,
) -> Member:
    part, where = header["parts"][place], f"parts.{place}"
    n_nets = part["n_nets"]
    if len(part["views"]) != n_nets:
        refuse(f"parts[{place}].views", f"{n_nets} places", part["views"])
    if max(part["views"]) >= len(views):
        refuse(f"parts[{place}].views", f"below {len(views)}", max(part["views"]))
    own = tuple(views[i] for i in part["views"])
    kinds = {(type(view).__name__, view.n_seen, _curves(view)) for view in own}
    if len(kinds) > 1:
        fail(f"the views of {where}", "of one kind and shape", sorted(map(str, kinds)))
    width = own[0].n_seen
    scale = None
    if shelf.has(f"{where}.scale"):
        scale = _take_weights(f"{where}.scale", (n_nets, width, 1), shelf)
    weights, biases = [], []
    for layer in range(part["depth"]):
        weights.append(_take_weights(f"{where}.weights.{layer}", (n_nets, width, None), shelf))
        width = weights[-1].shape[2]
        biases.append(_take_weights(f"{where}.biases.{layer}", (n_nets, 1, width), shelf))
    nets = Nets(
        part["activation"],
        tuple(weights),
        tuple(biases),
        scale,
        own,
        rounded=is_flagship(header["estimator"]),
    )
    head = _take_head(f"{where}.head", (n_nets, width, n_labels), shelf)
    return Member(nets, head, part["weight"], normal if part["normal"] else None)


def _curves(view: View) -> tuple[int, ...]:
    return view.mixtures.shape if isinstance(view, WavesView) else ()


def _restore_view(stored: Header, where: str, n_features: int, shelf: Shelf) -> View:
    if stored["n_features"] != n_features:
        fail(f"{where}.n_features", f"the {n_features} of the preprocessor", stored["n_features"])
    if stored["kind"] == "plain":
        return PlainView(n_features)
    if stored["kind"] == "bins":
        n_numbers: int = stored["n_numbers"]
        if n_numbers > n_features:
            fail(f"{where}.n_numbers", f"at most {n_features}", n_numbers)
        starts = shelf.take(f"{where}.starts", (n_numbers, None), Range(infinite=True))
        widths = shelf.take(f"{where}.widths", starts.shape, POSITIVE)
        least, most = (shelf.take(f"{where}.{name}", starts.shape) for name in ("least", "most"))
        if (least > most).any():
            fail(f"{where}.least", f"at most {where}.most", "more")
        kept = shelf.take_places(f"{where}.kept", starts.size)
        return BinsView(starts, widths, least, most, kept, n_numbers, n_features)
    frequencies = shelf.take(f"{where}.frequencies", (None, None))
    if len(frequencies) > n_features:
        fail(f"{where}.frequencies", f"of at most {n_features} numbers", len(frequencies))
    phases = shelf.take(f"{where}.phases", frequencies.shape)
    mixtures = shelf.take(f"{where}.mixtures", (*frequencies.shape, None), WEIGHTS)
    return WavesView(frequencies, phases, mixtures, n_features)


def _restore_normal(n_labels: int, shelf: Shelf) -> NormalScores:
    """Between its bounds, a power must have a way back."""
    powers, mean, least, most = (
        shelf.take(f"normal.{name}", (n_labels,)) for name in ("lambdas", "mean", "least", "most")
    )
    scale = Scale(mean, shelf.take("normal.scale", (n_labels,), POSITIVE))
    with np.errstate(all="ignore"):
        ends = scale.undo(np.stack([least, most]))
        again = raise_to_powers(undo_powers(ends, powers), powers)
        there = np.isfinite(again) & (np.abs(again - ends) <= 1e-6 * (1 + np.abs(ends)))
    if not there.all() or (least > most).any():
        fail("normal", "a power that can be undone between least and most", "another")
    return NormalScores(powers, scale, least, most)


def _take_weights(name: str, shape: tuple[int | None, ...], shelf: Shelf) -> NDArray[Any]:
    found = shelf.take(name, shape, WEIGHTS, dtypes=("float32", "float16"))
    return found.astype(np.float32, copy=False)


def _take_head(name: str, shape: tuple[int | None, ...], shelf: Shelf) -> NDArray[Any]:
    found = shelf.take(name, shape, LABELS, dtypes=("float64", "float32"))
    return found.astype(np.float64, copy=False)


# --- which nets predict, or how members are mixed ------------------------------------------------

MIXTURE = record({"kind": choice("mixture")})
NETS = record({"kind": choice("nets"), "select": choice("all", "best", "top"), "top_k": positive})


def _store_answer(model: FittedModel, arrays: Arrays) -> Header:
    if model.temperatures is not None:
        arrays["temperature"] = model.temperatures
    if model.calibration is not None:
        arrays["calibration.slopes"] = model.calibration.slopes
        arrays["calibration.biases"] = model.calibration.biases
    if model.selection is None:
        assert model.offset is not None
        arrays["mixture.offset"] = model.offset
        return {"kind": "mixture"}
    arrays["validation_scores"] = model.selection.scores
    return {"kind": "nets", "select": model.selection.select, "top_k": model.selection.top_k}


def _restore_answer(
    header: Header,
    target: NumberTarget | ClassTarget,
    members: tuple[Member, ...],
    n_labels: int,
    shelf: Shelf,
) -> dict[str, Any]:
    """The fields of FittedModel that say how outputs become a prediction."""
    stored, classes = header["answer"], isinstance(target, ClassTarget)
    n_nets = sum(member.representation.n_nets for member in members)
    if is_flagship(header["estimator"]):
        MIXTURE(stored, "answer")
        found: dict[str, Any] = {"offset": shelf.take("mixture.offset", (n_labels,), LABELS)}
        if isinstance(target, ClassTarget):
            n_classes = len(target.classes)
            slopes = Range(above=0.0, most=LARGEST_WEIGHT)
            found["calibration"] = Calibration(
                shelf.take("calibration.slopes", (n_classes,), slopes),
                shelf.take("calibration.biases", (n_classes,), LABELS),
            )
        return found
    NETS(stored, "answer")
    n_trained = _count_trained(header["parameters"])
    found = {
        "selection": Selection(
            shelf.take("validation_scores", (n_nets,), ANY),
            stored["select"],
            stored["top_k"],
            n_trained,
        )
    }
    if classes:
        found["temperatures"] = shelf.take("temperature", (n_nets,), POSITIVE)
    if is_ensemble(header["estimator"]):
        for entry in ("select", "top_k"):
            if stored[entry] != header["parameters"].get(entry):
                raise ModelFileError(f"answer.{entry} must be the parameter.")
    try:
        check_selection(stored["select"], stored["top_k"], max(n_trained, n_nets))
    except ValueError as error:
        raise ModelFileError(f"answer: {error}") from error
    return found


def _count_trained(parameters: Header) -> int:
    """Nets that the constructor of an ensemble asked for; a single net is one."""
    n_nets, depths = parameters.get("n_nets", 1), parameters.get("depths", [1])
    positive(n_nets, "parameters.n_nets")
    list_of(positive, least=1, distinct=True)(depths, "parameters.depths")
    return int(n_nets) * len(depths)


# --- intervals -----------------------------------------------------------------------------------

SPREAD = record(
    {
        "part": count,
        "spreads": list_of(
            record(
                {
                    **dict.fromkeys(("mean", "floor", "ceiling"), number(1e-100, 1e100)),
                    "exponent": number(0.0, 1.0),
                }
            )
        ),
    }
)


def _store_spread(spread: SpreadModel | None, arrays: Arrays) -> Header | None:
    if spread is None:
        return None
    arrays["spread.head"], arrays["spread.mean"] = spread.head, spread.mean
    for output, conformal in enumerate(spread.conformal):
        arrays[f"conformal.{output}.scores"] = conformal.scores
        if conformal.weights is not None:
            arrays[f"conformal.{output}.weights"] = conformal.weights
    names = ("mean", "floor", "ceiling", "exponent")
    return {
        "part": spread.member,
        "spreads": [{name: float(getattr(one, name)) for name in names} for one in spread.spreads],
    }


def _restore_spread(
    header: Header, members: tuple[Member, ...], n_labels: int, shelf: Shelf
) -> SpreadModel:
    stored = header["spread"]
    SPREAD(stored, "spread")
    if stored["part"] >= len(members):
        refuse("spread.part", f"below {len(members)}", stored["part"])
    spreads = stored["spreads"]
    if len(spreads) != n_labels:
        fail("spread.spreads", f"one per output, {n_labels}", len(spreads))
    for spread in spreads:
        if spread["ceiling"] < spread["floor"]:
            refuse("the ceiling of a spread", "its floor or more", spread["ceiling"])
    nets = members[stored["part"]].representation
    conformal = []
    for output in range(n_labels):
        where, weights = f"conformal.{output}", None
        scores = shelf.take_ascending(f"{where}.scores", (None,), LABELS)
        if shelf.has(f"{where}.weights"):
            above = Range(above=0.0, most=LARGEST_HEAD)
            weights = shelf.take(f"{where}.weights", scores.shape, above)
        conformal.append(Conformal(scores, weights))
    return SpreadModel(
        stored["part"],
        _take_head("spread.head", (nets.n_nets, nets.width, n_labels), shelf),
        shelf.take("spread.mean", (n_labels,), LABELS),
        tuple(Spread(**one) for one in spreads),
        tuple(conformal),
    )


# --- the fit, for people to read -----------------------------------------------------------------

FRAME = record(
    {
        "index": list_of(text, distinct=True),
        "dtypes": schema.mapping_of(choice("float64", "float32", "int64", "Int64", "text")),
        "texts": schema.mapping_of(list_of(text)),
    }
)
# Notes of the command line; a program may note less, or other things beside.
ORIGIN = schema.open_record(
    {
        "target": nullable(text),
        "weight": nullable(text),
        "dropped": list_of(text),
        "file": nullable(text),
        "rows": nullable(count),
        "scores": schema.mapping_of(schema.plain),
    }
)
ENSEMBLE_VALUES: dict[str, Check] = {"validation_metric": text, "n_iter": count}
SINGLE_VALUES: dict[str, Check] = {
    **ENSEMBLE_VALUES,
    "penalty": nullable(number()),
    "best_iteration": count,
    "n_recoveries": count,
}
# Columns of the frames.
FRAME_COLUMNS = {
    "history": ("loss", "permutation_term", "validation_score", "penalty", "seconds"),
    "nets": ("depth", "best_iteration", "n_iterations", "penalty", "n_recoveries"),
    "leaderboard": (
        *("configuration", "iteration", "score", "weight", "n_nets", "n_rounds"),
        *("seconds", "outcome"),
    ),
}
TEXT_COLUMNS = ("configuration", "outcome")


def _store_training(training: Training, arrays: Arrays) -> Header:
    if training.importances is not None and training.importances_std is not None:
        arrays["feature_importances"] = training.importances
        arrays["feature_importances_std"] = training.importances_std
    frames = {}
    for name, frame in training.frames.items():
        texts = {}
        for column, values in frame.columns.items():
            if isinstance(values, list):
                texts[column] = values
            else:
                arrays[f"training.{name}.{column}"] = values
        frames[name] = {"index": list(frame.index), "dtypes": frame.dtypes, "texts": texts}
    return {
        "values": training.values,
        "frames": frames,
        "table": training.table,
        "seconds": training.seconds,
        "origin": training.origin,
    }


def _restore_training(
    header: Header,
    table: TablePlan,
    target: NumberTarget | ClassTarget,
    members: tuple[Member, ...],
    shelf: Shelf,
) -> Training:
    estimator, stored = header["estimator"], header["training"]
    names: tuple[str, ...] = ("history",)
    values = SINGLE_VALUES
    if is_flagship(estimator):
        names, values = ("leaderboard",), {}
    elif is_ensemble(estimator):
        names, values = ("history", "nets"), ENSEMBLE_VALUES
    record(
        {
            "values": record(values),
            "frames": record(dict.fromkeys(names, FRAME)),
            "table": nullable(schema.plain),
            "seconds": nullable(number(0.0)),
            "origin": nullable(ORIGIN),
        }
    )(stored, "training")
    if stored["table"] is not None:
        _check_table_summary(stored["table"], target)
    importances: list[NDArray[Any] | None] = [None, None]
    if is_flagship(estimator):
        importances = [
            shelf.take(name, (len(table.names),), Range(nan=True))
            for name in ("feature_importances", "feature_importances_std")
        ]
    n_nets = sum(member.representation.n_nets for member in members)
    return Training(
        parameters=header["parameters"],
        preprocessor=header["preprocessor"]["parameters"],
        values=stored["values"],
        frames={name: _restore_frame(name, header, n_nets, shelf) for name in names},
        importances=importances[0],
        importances_std=importances[1],
        table=stored["table"],
        seconds=stored["seconds"],
        origin=stored["origin"],
        versions=header["versions"],
        created=header["created"],
    )


def _check_table_summary(summary: Any, target: NumberTarget | ClassTarget) -> None:
    """Reports and the search for drift rely on it."""
    try:
        if isinstance(target, ClassTarget):
            check_summary(summary, n_classes=len(target.classes))
        else:
            check_summary(summary, n_outputs=len(target.scale.mean))
    except ValueError as error:
        raise ModelFileError(f"training.table must be a summary of the table: {error}") from error


def _restore_frame(name: str, header: Header, n_nets: int, shelf: Shelf) -> Frame:
    """The columns that people and reports ask for, all of one length."""
    stored, where = header["training"]["frames"][name], f"training.{name}"
    index = {
        "history": ["net", "iteration"] if is_ensemble(header["estimator"]) else ["iteration"],
        "nets": ["net"],
        "leaderboard": [],
    }[name]
    if stored["index"] != index:
        fail(f"{where}.index", f"{index}", stored["index"])
    dtypes, wanted = stored["dtypes"], (*index, *FRAME_COLUMNS[name])
    missing = [column for column in wanted if column not in dtypes]
    if missing:
        raise ModelFileError(f"{where} must have the column {missing[0]!r}, which is missing.")
    unknown = [column for column in dtypes if column not in wanted]
    if unknown:
        fail(f"the columns of {where}", ", ".join(wanted), show(unknown[0]))
    texts = stored["texts"]
    if set(texts) != {column for column in dtypes if column in TEXT_COLUMNS}:
        fail(f"{where}.texts", f"those of {', '.join(TEXT_COLUMNS)}", list(texts))
    columns: dict[str, NDArray[Any] | list[str]] = {}
    for column, dtype in dtypes.items():
        if (column in TEXT_COLUMNS) != (dtype == "text"):
            fail(f"{where}.{column}", "text" if column in TEXT_COLUMNS else "numbers", dtype)
        columns[column] = (
            texts[column] if dtype == "text" else _take_column(f"{where}.{column}", dtype, shelf)
        )
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        fail(f"the columns of {where}", "of one length", sorted(lengths))
    if index[:1] == ["net"]:
        nets = np.asarray(columns["net"])
        if nets.dtype != np.int64:
            fail(f"{where}.net", "of type int64", nets.dtype.name)
        found = nets if name == "nets" else np.unique(nets)
        if not np.array_equal(found, np.arange(n_nets)):
            fail(f"{where}.net", f"the nets from 0 to {n_nets - 1}", "others")
    return Frame(columns, dtypes, tuple(index))


def _take_column(name: str, dtype: str, shelf: Shelf) -> NDArray[Any]:
    stored = ("float64", "int64") if dtype == "Int64" else (dtype,)
    values = shelf.take(name, (None,), ANY, dtypes=stored)
    if dtype == "Int64":
        known = values[~np.isnan(values)]
        if (np.abs(known) > schema.LARGEST_WHOLE).any() or (known % 1 != 0).any():
            fail(name, f"whole numbers up to {schema.LARGEST_WHOLE}", "others")
    return values
