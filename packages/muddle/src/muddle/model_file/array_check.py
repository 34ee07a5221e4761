"""Arrays of a model file against its header: names, types, shapes and ranges. No torch, no pandas.

Shapes: P columns of numbers, F features, V features seen, K nets, H hidden units, C label columns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle.errors import ModelFileError
from muddle.model_file.contents import Contents
from muddle.model_file.header_check import count_levels, frames_of, is_ensemble, is_flagship
from muddle.model_file.schema import LARGEST_WHOLE, fail, show
from muddle_runtime.powers import bend, unbend

DATE_PARTS = 6
# What weights are at most: far beyond any net that was trained, and far enough from the largest
# float that a few layers of such weights still say something finite.
LARGEST_WEIGHT, LARGEST_HEAD = 1e30, 1e100
HISTORY = ("loss", "permutation_term", "validation_score", "penalty", "seconds")
NET_RECORDS = ("depth", "best_iteration", "n_iterations", "penalty", "n_recoveries")
BOARD = (
    *("configuration", "iteration", "score", "weight", "n_nets", "n_rounds"),
    *("seconds", "outcome"),
)
TEXTS = ("configuration", "outcome")


@dataclass(frozen=True)
class Values:
    """What numbers may be."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    infinite: bool = False
    nan: bool = False


FINITE = Values()
POSITIVE = Values(above=0.0)
SHARES = Values(least=0.0, most=1.0)
WEIGHTS = Values(least=-LARGEST_WEIGHT, most=LARGEST_WEIGHT)
LABELS = Values(least=-LARGEST_HEAD, most=LARGEST_HEAD)
ANY = Values(infinite=True, nan=True)
Shape = tuple[int | None, ...]


class Shelf:
    """Arrays that are taken one by one, each with what must hold for it; none may be left over."""

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        self._left = set(arrays)

    def has(self, name: str) -> bool:
        return name in self._arrays

    def take(
        self, name: str, shape: Shape, values: Values = FINITE, dtypes: Sequence[str] = ("float64",)
    ) -> NDArray[Any]:
        """An array of this shape, None for any length from 1 on, with such values."""
        if name not in self._arrays:
            raise ModelFileError(f"the tensor {name!r} must be there, but is not.")
        self._left.discard(name)
        array = self._arrays[name]
        if array.dtype.name not in dtypes:
            fail(name, f"of type {' or '.join(dtypes)}", array.dtype.name)
        fits = array.ndim == len(shape) and all(
            found == wanted if wanted is not None else found >= 1
            for found, wanted in zip(array.shape, shape, strict=True)
        )
        if not fits:
            lengths = ", ".join("any" if length is None else str(length) for length in shape)
            fail(name, f"of shape ({lengths})", str(array.shape))
        _check_values(name, array, values)
        return array

    def take_places(self, name: str, n_places: int) -> NDArray[Any]:
        """Places, ascending, each once, perhaps none."""
        length = len(self._arrays[name]) if self.has(name) and self._arrays[name].ndim else 0
        below = Values(least=0, most=n_places - 1)
        places = self.take(name, (length,), below, dtypes=("int64",))
        if (places[1:] <= places[:-1]).any():
            fail(name, "ascending", "others")
        return places

    def check_empty(self) -> None:
        if self._left:
            raise ModelFileError(f"nothing in the header asks for the tensor {min(self._left)!r}.")


def _check_values(name: str, array: NDArray[Any], values: Values) -> None:
    if array.size == 0 or values == ANY:
        return
    low, high = float(array.min()), float(array.max())  # nan if there is one
    if math.isnan(low):
        if not values.nan:
            fail(name, "without NaN", "NaN")
        if np.isnan(array).all():
            return
        low, high = float(np.nanmin(array)), float(np.nanmax(array))
    if not values.infinite and (math.isinf(low) or math.isinf(high)):
        fail(name, "finite", "infinity")
    if low < values.least or high > values.most:
        wrong = low if low < values.least else high
        fail(name, f"within {values.least:g} and {values.most:g}", f"{wrong:g}")
    if low <= values.above:
        fail(name, f"above {values.above:g}", f"{low:g}")


def check_arrays(contents: Contents) -> None:
    """Every array that the header asks for, and no other."""
    header, shelf = contents.header, Shelf(contents.arrays)
    name = header["estimator"]
    n_features = _check_preprocessor(header["preprocessor"], shelf)
    n_labels = _check_target(header, shelf)
    widths = [
        _check_view(view, f"views.{place}", n_features, shelf)
        for place, view in enumerate(header["views"])
    ]
    if sum(view["kind"] == "plain" for view in header["views"]) > 1:
        fail("views", "distinct, so plain once at most", "plain again")
    for place, part in enumerate(header["parts"]):
        _check_one_kind(part["views"], f"the views of parts.{place}", contents)
    hidden = [
        _check_part(part, f"parts.{place}", widths, n_labels, shelf)
        for place, part in enumerate(header["parts"])
    ]
    n_nets = sum(part["n_nets"] for part in header["parts"])
    if is_flagship(name):
        _check_mixture(header, n_labels, hidden, shelf)
    else:
        kinds = {view["kind"] for view in header["views"]}
        if kinds != {"plain"}:
            fail("views", f"plain for {name}", kinds)
        if not is_ensemble(name) and n_nets != 1:
            fail("parts", f"of one net for {name}", n_nets)
        if header["task"] == "classification":
            shelf.take("temperature", (n_nets,), POSITIVE)
        shelf.take("validation_scores", (n_nets,), ANY)
    for frame in frames_of(name):
        _check_frame(frame, header, n_nets, shelf)
    shelf.check_empty()


def _check_preprocessor(stored: dict[str, Any], shelf: Shelf) -> int:
    """The number of features that it makes."""
    widths = [DATE_PARTS if source["kind"] == "date" else 1 for source in stored["numbers"]]
    n_numbers = sum(widths) + sum(len(source["suffixes"]) for source in stored["means"])
    shelf.take("preprocessor.fill", (n_numbers,))
    kept = shelf.take_places("preprocessor.kept", n_numbers)
    flagged = shelf.take_places("preprocessor.flagged", n_numbers)
    for place, source in enumerate(stored["means"]):
        n_levels, where = count_levels(source["levels"]), f"preprocessor.means.{place}"
        shelf.take(f"{where}.shares", (n_levels,), SHARES)
        shelf.take(f"{where}.values", (len(source["suffixes"]), n_levels + 1))
    width = len(kept)
    for place, step in enumerate(stored["steps"]):
        width = _check_step(step["kind"], f"preprocessor.steps.{place}", width, shelf)
    n_block = width + len(flagged)
    if len(stored["features"]) != n_block:
        fail("preprocessor.features", f"{n_block} features", len(stored["features"]))
    if any(column >= n_numbers for column, _ in stored["features"]):
        fail("the columns of preprocessor.features", f"below {n_numbers}", "others")
    n_flags = len(flagged)
    for place, source in enumerate(stored["one_hot"]):
        n_levels = count_levels(source["levels"])
        shelf.take(f"preprocessor.one_hot.{place}.shares", (n_levels,), SHARES)
        n_flags += 1 if n_levels == 2 else n_levels
    shelf.take("preprocessor.offsets", (n_flags,), SHARES)
    return width + n_flags


def _check_step(kind: str, where: str, width: int, shelf: Shelf) -> int:
    """The number of features that a step makes of so many."""
    if kind == "scale":
        shelf.take(f"{where}.mean", (width,))
        shelf.take(f"{where}.deviation", (width,), Values(above=0.0, infinite=True))
    elif kind == "smooth_clip":
        shelf.take(f"{where}.median", (width,))
        shelf.take(f"{where}.spread", (width,), POSITIVE)
    elif kind == "quantiles":
        values = shelf.take(f"{where}.values", (None, width))
        if (np.diff(values, axis=0) < 0).any():
            fail(f"{where}.values", "ascending", "others")
    elif kind == "piecewise":
        return width * _check_bins(where, width, shelf)
    else:
        n_frequencies: int = shelf.take(f"{where}.frequencies", (width, None)).shape[1]
        return width * (1 + 2 * n_frequencies)
    return width


def _check_bins(where: str, n_numbers: int, shelf: Shelf) -> int:
    """The number of bins of each of so many numbers."""
    starts = shelf.take(f"{where}.starts", (n_numbers, None), Values(infinite=True))
    shelf.take(f"{where}.widths", starts.shape, POSITIVE)
    least, most = (shelf.take(f"{where}.{name}", starts.shape) for name in ("least", "most"))
    if (least > most).any():
        fail(f"{where}.least", f"at most {where}.most", "more")
    n_bins: int = starts.shape[1]
    return n_bins


def _check_target(header: dict[str, Any], shelf: Shelf) -> int:
    """The number of label columns."""
    target = header["target"]
    if header["task"] == "classification":
        n_classes = len(target["classes"])
        return 1 if n_classes == 2 else n_classes
    n_outputs: int = shelf.take("target.mean", (1 if target["one_output"] else None,)).shape[0]
    shelf.take("target.deviation", (n_outputs,), POSITIVE)
    return n_outputs


def _check_view(view: dict[str, Any], where: str, n_features: int, shelf: Shelf) -> int:
    """The number of features seen."""
    if view["n_features"] != n_features:
        fail(f"{where}.n_features", f"the {n_features} of the preprocessor", view["n_features"])
    if view["kind"] == "plain":
        return n_features
    if view["kind"] == "bins":
        n_numbers: int = view["n_numbers"]
        if n_numbers > n_features:
            fail(f"{where}.n_numbers", f"at most {n_features}", n_numbers)
        n_bins = _check_bins(where, n_numbers, shelf)
        kept = shelf.take_places(f"{where}.kept", n_numbers * n_bins)
        return len(kept) + n_features - n_numbers
    shape: tuple[int, ...] = shelf.take(f"{where}.frequencies", (None, None)).shape
    n_numbers, n_cosines = shape
    if n_numbers > n_features:
        fail(f"{where}.frequencies", f"of at most {n_features} numbers", n_numbers)
    shelf.take(f"{where}.phases", (n_numbers, n_cosines))
    mixtures = shelf.take(f"{where}.mixtures", (n_numbers, n_cosines, None), WEIGHTS)
    return n_features + n_numbers * int(mixtures.shape[2])


def _check_one_kind(views: list[int], where: str, contents: Contents) -> None:
    """Nets that are computed together see alike, each with numbers of its own."""
    kinds = {contents.header["views"][view]["kind"] for view in views}
    if len(kinds) > 1:
        fail(where, "of one kind", sorted(kinds))
    if kinds == {"waves"}:
        mixtures = {contents.arrays[f"views.{view}.mixtures"].shape for view in views}
        if len(mixtures) > 1:
            fail(where, "of one shape", sorted(mixtures))


def _check_part(
    part: dict[str, Any], where: str, seen: list[int], n_labels: int, shelf: Shelf
) -> int:
    """The width of its last hidden layer."""
    n_nets = part["n_nets"]
    widths = {seen[view] for view in part["views"]}
    if len(widths) > 1:
        fail(f"the views of {where}", "of one width", sorted(widths))
    width: int = widths.pop()
    if shelf.has(f"{where}.scale"):
        _take_weights(f"{where}.scale", (n_nets, width, 1), shelf)
    for layer in range(part["depth"]):
        weights = _take_weights(f"{where}.weights.{layer}", (n_nets, width, None), shelf)
        width = weights.shape[2]
        _take_weights(f"{where}.biases.{layer}", (n_nets, 1, width), shelf)
    _take_head(f"{where}.head", (n_nets, width, n_labels), shelf)
    return width


def _take_weights(name: str, shape: tuple[int | None, ...], shelf: Shelf) -> NDArray[Any]:
    return shelf.take(name, shape, WEIGHTS, dtypes=("float32", "float16"))


def _take_head(name: str, shape: tuple[int, ...], shelf: Shelf) -> None:
    shelf.take(name, shape, LABELS, dtypes=("float64", "float32"))


def _check_mixture(header: dict[str, Any], n_labels: int, hidden: list[int], shelf: Shelf) -> None:
    shelf.take("mixture.offset", (n_labels,), LABELS)
    n_columns = len(header["columns"]["names"])
    shelf.take("feature_importances", (n_columns,), Values(nan=True))
    shelf.take("feature_importances_std", (n_columns,), Values(nan=True))
    if any(part["normal"] for part in header["parts"]):
        _check_normal(n_labels, shelf)
    if header["task"] == "classification":
        n_classes = len(header["target"]["classes"])
        shelf.take("calibration.slopes", (n_classes,), Values(above=0.0, most=LARGEST_WEIGHT))
        shelf.take("calibration.biases", (n_classes,), LABELS)
        return
    low, high = shelf.take("target.range", (2, n_labels), LABELS)
    if (low > high).any():
        fail("target.range", "from low to high", "the reverse")
    spread = header["spread"]
    if len(spread["spreads"]) != n_labels:
        fail("spread.spreads", f"one per output, {n_labels}", len(spread["spreads"]))
    n_nets = header["parts"][spread["part"]]["n_nets"]
    _take_head("spread.head", (n_nets, hidden[spread["part"]], n_labels), shelf)
    shelf.take("spread.mean", (n_labels,), LABELS)
    for output in range(n_labels):
        where = f"conformal.{output}"
        scores = shelf.take(f"{where}.scores", (None,), LABELS)
        if (np.diff(scores) < 0).any():
            fail(f"{where}.scores", "ascending", "others")
        if shelf.has(f"{where}.weights"):
            shelf.take(f"{where}.weights", scores.shape, Values(above=0.0, most=LARGEST_HEAD))


def _check_normal(n_labels: int, shelf: Shelf) -> None:
    """Between its bounds, a power must have a way back."""
    powers, mean, least, most = (
        shelf.take(f"normal.{name}", (n_labels,)) for name in ("lambdas", "mean", "least", "most")
    )
    scale = shelf.take("normal.scale", (n_labels,), POSITIVE)
    with np.errstate(all="ignore"):
        ends = np.stack([least, most]) * scale + mean
        again = bend(unbend(ends, powers), powers)
        there = np.isfinite(again) & (np.abs(again - ends) <= 1e-6 * (1 + np.abs(ends)))
    if not there.all() or (least > most).any():
        fail("normal", "a power that can be undone between least and most", "another")


def _check_frame(name: str, header: dict[str, Any], n_nets: int, shelf: Shelf) -> None:
    """The columns that people and reports ask for, all of one length."""
    frame, where = header["training"]["frames"][name], f"training.{name}"
    needed: dict[str, tuple[str, ...]] = {
        "history": HISTORY,
        "nets": NET_RECORDS,
        "leaderboard": BOARD,
    }
    index = {
        "history": ["net", "iteration"] if is_ensemble(header["estimator"]) else ["iteration"],
        "nets": ["net"],
        "leaderboard": [],
    }[name]
    if frame["index"] != index:
        fail(f"{where}.index", f"{index}", frame["index"])
    dtypes = frame["dtypes"]
    missing = [column for column in (*index, *needed[name]) if column not in dtypes]
    if missing:
        raise ModelFileError(f"{where} must have the column {missing[0]!r}, which is not there.")
    unknown = [column for column in dtypes if column not in (*index, *needed[name])]
    if unknown:
        fail(f"the columns of {where}", f"{', '.join((*index, *needed[name]))}", show(unknown[0]))
    texts = [column for column, dtype in dtypes.items() if dtype == "text"]
    if sorted(texts) != sorted(frame["texts"]):
        fail(f"{where}.texts", f"those of {texts}", list(frame["texts"]))
    lengths = {len(values) for values in frame["texts"].values()}
    for column, dtype in dtypes.items():
        if column in needed[name] and (column in TEXTS) != (dtype == "text"):
            fail(f"{where}.{column}", "text" if column in TEXTS else "numbers", dtype)
        if dtype != "text":
            lengths.add(_check_column(f"{where}.{column}", dtype, shelf))
    if len(lengths) > 1:
        fail(f"the columns of {where}", "of one length", sorted(lengths))
    if index[:1] == ["net"]:
        nets = shelf.take(f"{where}.net", (None,), dtypes=("int64",))
        found = nets if name == "nets" else np.unique(nets)
        if not np.array_equal(found, np.arange(n_nets)):
            fail(f"{where}.net", f"the nets from 0 to {n_nets - 1}", "others")


def _check_column(name: str, dtype: str, shelf: Shelf) -> int:
    """Its length."""
    stored = ("float64", "int64") if dtype == "Int64" else (dtype,)
    values = shelf.take(name, (None,), ANY, dtypes=stored)
    if dtype == "Int64":
        known = values[~np.isnan(values)]
        if (np.abs(known) > LARGEST_WHOLE).any() or (known % 1 != 0).any():
            fail(name, f"whole numbers up to {LARGEST_WHOLE}", "others")
    return len(values)
