"""Check a summary of training rows that was read from a file. muddle.tables.summarise makes it."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

NUMBERS = ("number", "duration", "date")  # kinds of columns that have quantiles
LARGEST = 1e300  # of a number in a summary; NaN is none either

Summary = dict[str, Any]


def check_summary(
    value: Any, *, n_classes: int | None = None, n_outputs: int | None = None
) -> Summary:
    """Return the summary unchanged, or raise a ValueError that names the first error in it.

    n_classes or n_outputs: of the model that it belongs to, if known.
    """
    found = _check_dict("the summary", value)
    n_names = _check_count("names", found.get("names"))
    _check_count("rows", found.get("rows"))
    _check_count("not_summarised", found.get("not_summarised"))
    _check_texts("missing_values", found.get("missing_values"))
    if not isinstance(found.get("named"), bool):
        raise ValueError(f"named must be true or false, got {found.get('named')!r}.")
    columns = found.get("columns")
    if not isinstance(columns, list):
        raise ValueError(f"columns must be a list, got {type(columns).__name__}.")
    for entry in columns:
        _check_column(_check_dict("each of columns", entry), n_names)
    if "target" in found:
        target = _check_dict("target", found["target"])
        _check_target(target)
        for key, n_needed in (("counts", n_classes), ("outputs", n_outputs)):
            if n_needed is not None and len(target.get(key, ())) != n_needed:
                raise ValueError(f"target must have {n_needed} {key}, as the model does.")
    return dict(found)


def _check_column(entry: Mapping[str, Any], n_names: int) -> None:
    name = entry.get("name")
    if not isinstance(name, str):
        raise ValueError(f"the name of a column must be a text, got {name!r}.")
    if _check_count("position", entry.get("position")) >= n_names:
        raise ValueError(f"position of {name!r} must be below {n_names}, got {entry['position']}.")
    _check_shares(f"missing of {name!r}", [entry.get("missing")])
    if entry.get("kind") in NUMBERS:
        _check_numbers(name, entry)
    elif entry.get("kind") == "levels":
        levels = _check_texts(f"levels of {name!r}", entry.get("levels"))
        shares = _check_shares(f"shares of {name!r}", entry.get("shares"))
        if len(levels) != len(shares) or len(set(levels)) != len(levels):
            raise ValueError(f"levels of {name!r} must be different and have one share each.")
        if not isinstance(entry.get("boolean"), bool):
            raise ValueError(f"boolean of {name!r} must be true or false.")
    else:
        raise ValueError(
            f"kind of {name!r} must be levels or one of {', '.join(NUMBERS)}, got "
            f"{entry.get('kind')!r}."
        )


def _check_target(target: Mapping[str, Any]) -> None:
    if "counts" in target:
        counts = target["counts"]
        if not isinstance(counts, list):
            raise ValueError(f"counts must be a list, got {type(counts).__name__}.")
        for n_rows in counts:
            _check_count("each of counts", n_rows)
        return
    outputs = target.get("outputs")
    if not isinstance(outputs, list) or not outputs:
        raise ValueError("target must have counts of classes, or at least one output.")
    for output in outputs:
        _check_numbers("target", _check_dict("each of outputs", output))


def _check_numbers(name: str, entry: Mapping[str, Any]) -> None:
    edges = _check_floats(f"edges of {name!r}", entry.get("edges"))
    below = _check_shares(f"below of {name!r}", entry.get("below"))
    if len(edges) != len(below):
        raise ValueError(f"edges and below of {name!r} must be equally long.")
    if any(a >= b for values in (edges, below) for a, b in pairwise(values)):
        raise ValueError(f"edges and below of {name!r} must increase.")


def _check_dict(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object, got {type(value).__name__}.")
    return value


def _check_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a whole number, at least 0, got {value!r}.")
    return value


def _check_texts(name: str, values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be a list of texts, got {values!r:.80}.")
    return values


def _check_floats(name: str, values: Any) -> list[float]:
    right = isinstance(values, list) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST
        for value in values
    )
    if not right:
        raise ValueError(f"{name} must be a list of finite numbers, got {values!r:.80}.")
    return list(values)


def _check_shares(name: str, values: Any) -> list[float]:
    shares = _check_floats(name, values)
    if any(not 0 <= share <= 1 for share in shares):
        raise ValueError(f"{name} must lie in [0, 1], got {values!r:.80}.")
    return shares
