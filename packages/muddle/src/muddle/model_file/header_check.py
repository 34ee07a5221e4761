"""What the header of a model file must say. No torch, no pandas.

Names of estimators and parameters are repeated here on purpose: this is the format, which stays
when the code changes. A test compares the two.
"""

from typing import Any

import numpy as np

from muddle.errors import ModelFileError
from muddle.model_file import schema
from muddle.model_file.contents import restore_classes
from muddle.model_file.schema import Check, choice, flag, list_of, nullable, number, record, text

ACTIVATIONS = ("relu", "selu", "mish", "tanh")
KINDS = ("number", "duration", "date")
STEPS = ("scale", "smooth_clip", "quantiles", "piecewise", "periodic")
UNSEEN = -1
# What a file writes once may be needed many times over: an array gives every label the room of the
# longest, and the name of a column is part of the name of each of its features.
MOST_LETTERS = 2**25

count = schema.whole(0)
positive = schema.whole(1)
label = schema.either(
    "text, a number or a boolean", text, flag, schema.whole(-(2**63), 2**64 - 1), number()
)

PREPROCESSOR = record(
    {
        "scaling": choice("standard", "robust+clip", "quantile", "none"),
        "encoding": choice("none", "piecewise", "periodic"),
        "n_bins": positive,
        "n_frequencies": positive,
        "frequency_scale": number(above=0.0),
        "max_levels": positive,
        "min_level_rows": positive,
        "above_limit": choice("target", "drop"),
        "few_values": choice("number", "levels", "both"),
        "flags": choice("centred", "0/1"),
        "missing_indicator": flag,
        "missing_level": choice("own", "mode"),
        "missing_values": list_of(text),
        "categorical": list_of(schema.either("text or a position", text, schema.whole())),
        "drop": list_of(schema.either("text or a position", text, schema.whole())),
        "target_type": choice("auto", "continuous", "classes"),
        "random_state": count,
    }
)
SHARED: dict[str, Check] = {
    "time_limit": nullable(number(above=0.0)),
    "preprocessor": nullable(PREPROCESSOR),
    "device": schema.pattern(r"auto|cpu|cuda(:\d{1,4})?", "auto, cpu, cuda or cuda:<index>"),
    "random_state": nullable(count),
    "verbose": flag,
}
NETS: dict[str, Check] = {
    **SHARED,
    "width": positive,
    "activation": choice(*ACTIVATIONS),
    "init_gain": number(),
    "loss": text,
    "n_permutations": count,
    "structured_noise": number(),
    "penalty": schema.either("text or a number", text, number()),
    "learning_rate": nullable(number()),
    "max_iter": nullable(count),
    "patience": nullable(count),
    "batch_size": positive,
    "validation_fraction": number(),
    "head": text,
    "precision": text,
    "max_loss": nullable(number()),
    "dither": number(),
}
CLASS_WEIGHT: dict[str, Check] = {
    "class_weight": schema.either(
        "null, 'balanced' or an object of classes and weights",
        nullable(text),
        record({"classes": list_of(label, distinct=True), "weights": list_of(number())}),
    )
}
CLASSES: dict[str, Check] = {
    "criterion": choice("logistic", "squared"),
    "ties": text,
    **CLASS_WEIGHT,
}
ENSEMBLE: dict[str, Check] = {
    "n_nets": positive,
    "select": choice("all", "best", "top"),
    "top_k": positive,
    "n_jobs": nullable(schema.whole()),
}
DEPTH: dict[str, Check] = {"depth": positive}
DEPTHS: dict[str, Check] = {"depths": list_of(positive, least=1, distinct=True)}
FLAGSHIP: dict[str, Check] = {**SHARED, "preset": choice("fast", "default", "best")}

PARAMETERS: dict[str, dict[str, Check]] = {
    "MuddleRegressor": FLAGSHIP,
    "MuddleClassifier": {**FLAGSHIP, **CLASS_WEIGHT},
    "MLRRegressor": {**NETS, **DEPTH},
    "MLRClassifier": {**NETS, **CLASSES, **DEPTH},
    "BagMLRRegressor": {**NETS, **ENSEMBLE, **DEPTH},
    "BagMLRClassifier": {**NETS, **CLASSES, **ENSEMBLE, **DEPTH},
    "EnsMLRRegressor": {**NETS, **ENSEMBLE, **DEPTHS},
    "EnsMLRClassifier": {**NETS, **CLASSES, **ENSEMBLE, **DEPTHS},
}

LEVELS = record(
    {
        "known": list_of(text, distinct=True),
        "rare": list_of(text, distinct=True),
        "missing": schema.whole(UNSEEN),
        "boolean": flag,
    }
)
FITTED_PREPROCESSOR = record(
    {
        "parameters": PREPROCESSOR,
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
NUMBER_TARGET = record({"one_output": flag})
CLASS_DTYPES = (
    *("text", "bool", "object", "float16", "float32", "float64"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
CLASS_TARGET = record(
    {
        "classes": list_of(label, least=2, distinct=True),
        "dtype": choice(*CLASS_DTYPES),
        "zero_one": flag,
    }
)
VIEWS = {
    "plain": record({"kind": text, "n_features": positive}),
    "bins": record({"kind": text, "n_features": positive, "n_numbers": positive}),
    "waves": record({"kind": text, "n_features": positive}),
}
PART = {
    "activation": choice(*ACTIVATIONS),
    "depth": positive,
    "n_nets": positive,
    "views": list_of(count, least=1),
    "normal": flag,
}
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
FRAME_DTYPES = ("float64", "float32", "int64", "Int64", "text")
FRAME = record(
    {
        "index": list_of(text, distinct=True),
        "dtypes": schema.mapping_of(choice(*FRAME_DTYPES)),
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
ENSEMBLE_VALUES = {"validation_metric": text, "n_iter": count}
SINGLE_VALUES = {
    **ENSEMBLE_VALUES,
    "penalty": nullable(number()),
    "best_iteration": count,
    "n_recoveries": count,
}


def is_flagship(name: str) -> bool:
    return name.startswith("Muddle")


def is_ensemble(name: str) -> bool:
    return name.startswith(("Bag", "Ens"))


def frames_of(name: str) -> tuple[str, ...]:
    """Data frames that the file of this estimator has."""
    if is_flagship(name):
        return ("leaderboard",)
    return ("history", "nets") if is_ensemble(name) else ("history",)


def check_header(header: Any) -> None:
    """Every field of the header, and fields against each other; not yet the arrays."""
    if not isinstance(header, dict):
        schema.refuse("the header", "an object", header)
    name = header.get("estimator")
    choice(*PARAMETERS)(name, "estimator")
    assert isinstance(name, str)
    regression = name.endswith("Regressor")
    weight: Check = number(0.0, 1.0) if is_flagship(name) else schema.null
    check = record(
        {
            "format": positive,
            "estimator": text,
            "task": choice("regression" if regression else "classification"),
            "versions": schema.mapping_of(text),
            "created": text,
            "parameters": record(PARAMETERS[name]),
            "columns": record({"names": list_of(text, least=1, distinct=True), "named": flag}),
            "preprocessor": FITTED_PREPROCESSOR,
            "target": NUMBER_TARGET if regression else CLASS_TARGET,
            "views": list_of(schema.by_kind(VIEWS)),
            "parts": list_of(
                record({**PART, "weight": weight}), least=0 if is_flagship(name) else 1
            ),
            "answer": _answer_check(name),
            "spread": SPREAD if name == "MuddleRegressor" else schema.null,
            "training": _training_check(name),
        }
    )
    check(header, "the header")
    _check_columns(header)
    if not regression:
        _check_classes(header["target"])
    _check_references(header)


def _answer_check(name: str) -> Check:
    if is_flagship(name):
        return record({"kind": choice("mixture")})
    return record(
        {"kind": choice("nets"), "select": choice("all", "best", "top"), "top_k": positive}
    )


def _training_check(name: str) -> Check:
    values = {} if is_flagship(name) else ENSEMBLE_VALUES if is_ensemble(name) else SINGLE_VALUES
    return record(
        {
            "values": record(values),
            "frames": record(dict.fromkeys(frames_of(name), FRAME)),
            "table": nullable(schema.plain),
            "seconds": nullable(number(0.0)),
            "origin": nullable(ORIGIN),
        }
    )


def _check_columns(header: dict[str, Any]) -> None:
    """Columns are known, decided on once, and used as decided."""
    names, stored = set(header["columns"]["names"]), header["preprocessor"]
    decisions = stored["decisions"]
    decided = [decision["name"] for decision in decisions]
    list_of(text, distinct=True)(decided, "the columns of preprocessor.decisions")
    unknown = [name for name in decided if name not in names]
    if unknown:
        schema.refuse("each column of preprocessor.decisions", "one of columns.names", unknown[0])
    sources: dict[str, list[Any]] = {
        "numbers": [(one["name"], one["number"]) for one in decisions if one["number"]],
        "means": [one["name"] for one in decisions if one["use"] == "means"],
        "one_hot": [one["name"] for one in decisions if one["use"] == "one-hot"],
    }
    found: dict[str, list[Any]] = {
        "numbers": [(source["column"], source["kind"]) for source in stored["numbers"]],
        "means": [source["column"] for source in stored["means"]],
        "one_hot": [source["column"] for source in stored["one_hot"]],
    }
    for kind, wanted in sources.items():
        _check_same(found[kind], wanted, f"preprocessor.{kind} must have the columns decided on")
    for kind, fewest in (("means", 1), ("one_hot", 2)):
        for place, source in enumerate(stored[kind]):
            _check_levels(source["levels"], fewest, f"preprocessor.{kind}[{place}].levels")
    n_letters = sum(len(one["column"]) * len(one["suffixes"]) for one in stored["means"])
    n_letters += sum(len(one["column"]) * count_levels(one["levels"]) for one in stored["one_hot"])
    _check_letters(n_letters, "the names of columns in the names of features")


def _check_levels(levels: dict[str, Any], fewest: int, where: str) -> None:
    known, rare = levels["known"], levels["rare"]
    if levels["missing"] > len(known):
        schema.refuse(f"{where}.missing", f"a code up to {len(known)}", levels["missing"])
    if not set(known).isdisjoint(rare):
        schema.refuse(f"{where}.rare", "levels that are not known ones", rare)
    if count_levels(levels) < fewest:
        schema.refuse(where, f"{fewest} or more levels", known)


def count_levels(levels: dict[str, Any]) -> int:
    """Known ones, missing if it is one of its own, and other if there are rare ones."""
    n_known = len(levels["known"])
    own: bool = levels["missing"] == n_known
    return n_known + own + bool(levels["rare"])


def _check_classes(target: dict[str, Any]) -> None:
    dtype, where = target["dtype"], "target.classes"
    if dtype == "object":
        return
    if dtype == "text":
        list_of(text)(target["classes"], where)
        _check_letters(len(target["classes"]) * max(map(len, target["classes"])), where)
    elif dtype == "bool":
        list_of(flag)(target["classes"], where)
    elif dtype.startswith("float"):
        largest = float(np.finfo(dtype).max)
        list_of(number(-largest, largest))(target["classes"], where)
    else:
        bounds = np.iinfo(dtype)
        whole = schema.whole(int(bounds.min), int(bounds.max))
        list_of(whole)(target["classes"], where)
    labels = restore_classes(target)
    if len(np.unique(labels)) < len(labels):
        schema.refuse(where, f"distinct as {dtype} too", target["classes"])


def _check_letters(n_letters: int, where: str) -> None:
    if n_letters > MOST_LETTERS:
        schema.fail(where, f"short enough for {MOST_LETTERS:,} letters in all", f"{n_letters:,}")


def _check_references(header: dict[str, Any]) -> None:
    """Numbers that point somewhere in the header."""
    parts, n_views = header["parts"], len(header["views"])
    for place, part in enumerate(parts):
        if len(part["views"]) != part["n_nets"]:
            schema.refuse(f"parts[{place}].views", f"{part['n_nets']} places", part["views"])
        if max(part["views"]) >= n_views:
            schema.refuse(f"parts[{place}].views", f"below {n_views}", max(part["views"]))
    if header["spread"] is not None:
        if header["spread"]["part"] >= len(parts):
            schema.refuse("spread.part", f"below {len(parts)}", header["spread"]["part"])
        for spread in header["spread"]["spreads"]:
            if spread["ceiling"] < spread["floor"]:
                schema.refuse("the ceiling of a spread", "its floor or more", spread["ceiling"])
    weights = header["parameters"].get("class_weight")
    if isinstance(weights, dict):
        n_classes = len(weights["classes"])
        _check_same(len(weights["weights"]), n_classes, "class_weight must have a weight per class")
    if is_ensemble(header["estimator"]):
        _check_selection(header["answer"], header["parameters"], parts)


def _check_selection(
    answer: dict[str, Any], parameters: dict[str, Any], parts: list[dict[str, Any]]
) -> None:
    for entry in ("select", "top_k"):
        _check_same(answer[entry], parameters[entry], f"answer.{entry} must be the parameter")
    n_nets = max(count_asked(parameters), sum(part["n_nets"] for part in parts))
    if answer["select"] == "top" and answer["top_k"] > n_nets:
        schema.refuse("answer.top_k", f"at most the number of nets, {n_nets}", answer["top_k"])


def count_asked(parameters: dict[str, Any]) -> int:
    """Nets that the constructor of an ensemble asked for; a single net is one."""
    n_nets: int = parameters.get("n_nets", 1)
    return n_nets * len(parameters.get("depths", (None,)))


def _check_same(found: Any, wanted: Any, must: str) -> None:
    if found != wanted:
        raise ModelFileError(f"{must}.")
