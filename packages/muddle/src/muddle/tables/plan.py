"""Fit the path from a table to a matrix: decide about each column, then fit numbers and levels.

Everything is judged by the training rows. The result is a TablePlan of muddle_runtime, which turns
new rows into features.

Shapes: N rows, P columns of numbers, T columns of the target.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder
from sklearn.utils import column_or_1d

from muddle.tables.hold_out import HoldOut, Pair
from muddle.tables.read import DAY, WHOLE_NUMBER, WRITTEN, shows_sign
from muddle_runtime.columns import (
    NUMBER,
    Codes,
    Column,
    FloatArray,
    Kind,
    Table,
    as_dates,
    as_levels,
    as_numbers,
    guess_form,
    is_missing,
    read_column,
)
from muddle_runtime.tables import (
    LARGEST,
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
    check_range,
    gather_numbers,
    list_columns,
    take_columns,
    warn,
)

if TYPE_CHECKING:
    from muddle.tables.preprocessor import TablePreprocessor

Scaling = Literal["standard", "robust+clip", "none"]
AboveLimit = Literal["target", "drop"]
FewValues = Literal["number", "levels", "both"]
Flags = Literal["centred", "0/1"]
MissingLevel = Literal["own", "mode"]
TargetType = Literal["auto", "continuous", "classes"]
Bins = tuple[FloatArray, FloatArray, FloatArray, FloatArray]

# A column that varies by no more than a few roundings of its largest value is constant.
ROUNDING = 8 * float(np.finfo(np.float64).eps)
LEAST_RANGE = 1 / LARGEST  # and one that varies by less: quotients could be infinite
OUTER_WIDTHS = 100.0  # the outer bins go on for this many of their widths
FOLDS = 5
QUARTILES = np.array([0.25, 0.5, 0.75])
MAX_CLASSES = 20  # whole numbers with no more values than this are classes
FREE_TEXT_WORDS = 8  # per text on average, if most texts are different
MOSTLY = 0.9
MAX_MARKERS = 3
IDENTIFIER = "an identifier (every value is different)"


def fit_plan(
    table: Table,
    y: Any,
    weights: FloatArray | None,
    options: "TablePreprocessor",
    hold_out: HoldOut | None = None,
) -> tuple[TablePlan, FloatArray]:
    """Decide about the columns and fit them. Also returns the matrix of the training rows, in which
    the means of the target come from other rows than the row itself, as `hold_out` says.

    `categorical` and `drop` of the options must be names of columns.
    """
    gap_texts = frozenset(options.missing_values)
    names = [name for name in table.names if name not in options.drop]
    if table.numbers is not None:  # the error then names every bad column, not only the first
        check_range(table.select(names), names)
    columns = {name: read_column(name, table.values(name), gap_texts) for name in names}
    decisions = tuple(decide(column, options) for column in columns.values())
    numbers = tuple(
        NumberSource(d.name, d.number, d.n_missing > 0) for d in decisions if d.number is not None
    )
    one_hot: list[LevelSource] = []
    codes: list[Codes] = []  # per column of `one_hot`
    means: list[LevelSource] = []
    crossed: list[FloatArray] = []  # per column of `means`, (N, T)
    for decision in decisions:
        if decision.levels is None:
            continue
        found = decision.levels.encode(columns[decision.name]).codes
        shares = np.bincount(found, weights, minlength=len(decision.levels))
        source = LevelSource(decision.name, decision.levels, shares / shares.sum())
        if decision.use == "one-hot":
            one_hot.append(source)
            codes.append(found)
            continue
        labels, suffixes = target_columns(y, options)
        coded = found, len(source.levels), labels, options.random_state
        per_level, own = fit_target_means(*coded, hold_out)
        means.append(replace(source, means=per_level, suffixes=suffixes))
        crossed.append(own)
    gathered = gather_numbers(table, numbers, columns.__getitem__, crossed)
    block = fit_numbers(gathered, *name_numbers(numbers, means), weights, options)
    given = table.names, table.named, gap_texts
    plan = assemble_plan(*given, numbers, means, one_hot, block, decisions)
    n_flags = len(plan.offsets)
    matrix = plan.write(gathered, codes)
    if options.flags == "centred" and n_flags:
        written = matrix[:, matrix.shape[1] - n_flags :]
        plan = replace(plan, offsets=np.average(written, axis=0, weights=weights))
        written -= plan.offsets
    warn_about(decisions)
    return plan, matrix


def name_numbers(
    numbers: Sequence[NumberSource], means: Sequence[LevelSource]
) -> tuple[list[str], list[str | None]]:
    """The name of each column of numbers, and the column of the table whose gaps it marks."""
    sources: list[NumberSource | LevelSource] = [*numbers, *means]
    names = [name for source in sources for name in source.names]
    # The gaps of a date are marked once, not in each of its parts; means have no gaps.
    marks = [s.name if i == 0 else None for s in numbers for i in range(len(s.names))]
    return names, marks + [None] * (len(names) - len(marks))


def assemble_plan(
    names: tuple[str, ...],
    named: bool,
    gap_texts: frozenset[str],
    numbers: Sequence[NumberSource],
    means: Sequence[LevelSource],
    one_hot: Sequence[LevelSource],
    block: NumberBlock,
    decisions: Sequence[Decision],
) -> TablePlan:
    """A plan whose 0/1 features are not centred yet; without features it is an error."""
    n_flags = len(block.flagged) + sum(len(source.names) for source in one_hot)
    plan = TablePlan(
        names=names,
        named=named,
        missing_values=gap_texts,
        numbers=tuple(numbers),
        means=tuple(means),
        one_hot=tuple(one_hot),
        block=block,
        decisions=tuple(decisions),
        offsets=np.zeros(n_flags),
    )
    if plan.n_features == 0:
        ignored = "; ".join(f"{d.name!r} is {d.ignored}" for d in decisions[:5])
        raise ValueError(
            f"X must have a column that varies, got {len(names)} column(s) of which none "
            f"can be used: {ignored}."
        )
    return plan


# Decisions


def decide(column: Column, options: "TablePreprocessor", times: Codes | None = None) -> Decision:
    """What a column becomes. times (N,): rows that each value stands for, None: one"""
    missing = is_missing(column)
    form = "levels" if column.name in options.categorical else guess_form(column)
    kind: str = "category" if column.category else column.kind
    if column.kind == "text" and form != "levels":
        kind = f"{form} as text"
    n_missing = np.count_nonzero(missing) if times is None else times[missing].sum()
    undecided = Decision(column.name, kind, int(n_missing))
    if missing.all():
        return replace(undecided, ignored="empty")
    if form == "levels":
        return _decide_levels(column, undecided, options, times)
    number: Kind = "date" if form == "date" else "number"
    if column.kind == "duration":
        number = "duration"
    # The gaps of a single value carry information, if they are marked.
    marked = undecided.n_missing > 0 and options.missing_indicator
    constant = _why_constant(column, number)
    if constant and not marked:
        return replace(undecided, ignored=constant)
    if number == "number" and options.few_values != "number":
        values = as_numbers(column)
        if 2 <= len(pd.unique(values[~np.isnan(values)])) <= options.max_levels:
            levels = find_levels(column, options, times)
            both = options.few_values == "both" and len(levels) > 2
            if len(levels) > 1:
                return replace(undecided, number=number if both else None, levels=levels)
    return replace(undecided, number=number)


def _decide_levels(
    column: Column, undecided: Decision, options: "TablePreprocessor", times: Codes | None
) -> Decision:
    codes, keys = as_levels(column)
    rows = _count(codes, len(keys), times)
    levels = find_levels(column, options, times)
    n_rare = rows[rows < options.min_level_rows].sum()
    few = len(levels.known) <= options.max_levels and n_rare <= (1 - MOSTLY) * rows.sum()
    hint = ""
    if column.name not in options.categorical:
        hint = _hint_at_dates(column) or _hint_at_commas(column, rows)
    if few or len(keys) <= options.max_levels:
        if len(levels) > 1:
            return replace(undecided, levels=levels, hint=hint)
        rare = f"made of levels in fewer than {options.min_level_rows} rows each"
        return replace(undecided, ignored="constant" if len(keys) == 1 else rare)
    if options.above_limit == "drop":
        reason = f"dropped with {len(keys)} levels, above max_levels"
        return replace(undecided, ignored=reason, expected=True)
    if column.name not in options.categorical:
        _refuse_free_text(column.name, keys, rows.sum())
        if len(keys) == rows.sum() and hint:
            return replace(undecided, ignored=f"text: {hint}")
        hint = hint or _hint_at_numbers(keys, rows)
        if len(keys) == rows.sum() and not hint:
            return replace(undecided, ignored=IDENTIFIER)
    levels = find_levels(column, replace(options, min_level_rows=1), times)
    return replace(undecided, levels=levels, use="means", hint=hint)


def _why_constant(column: Column, number: Kind) -> str:
    """The reason to ignore a column of one value; "" if it varies."""
    if number == "date":
        dates = as_dates(column)[~is_missing(column)]
        return "constant" if (dates == dates[0]).all() else ""
    values = as_numbers(column, number)[:, None]
    check_range(values, [column.name])
    if not find_constant(values)[0]:
        return ""
    rounding = describe_rounding(values)
    return f"constant up to rounding ({rounding})" if rounding else "constant"


def describe_rounding(values: FloatArray) -> str:
    """Why values that differ count as constant; "" if they do not differ."""
    low, high = np.nanmin(values), np.nanmax(values)
    if low == high:
        return ""
    differ = f"values near {low:g} differ by {high - low:g} at most"
    if high - low < LEAST_RANGE:
        return f"{differ}, too little to be computed with; multiply them first"
    return f"{differ}, too little for numbers of that size; subtract {low:g} first"


def _refuse_free_text(name: str, keys: tuple[str, ...], n_present: int) -> None:
    if len(keys) <= n_present / 2:
        return
    words = np.mean([len(key.split()) for key in keys])
    if words >= FREE_TEXT_WORDS:
        raise ValueError(
            f"column {name!r} must hold levels, got free text ({len(keys)} different texts of "
            f"{words:.0f} words on average, e.g. {keys[0][:40]!r}). Leave it out with "
            f"TablePreprocessor(drop=[{name!r}]), or make features of it first, e.g. with "
            "sklearn.feature_extraction.text.TfidfVectorizer."
        )


def _hint_at_numbers(keys: tuple[str, ...], rows: NDArray[np.intp]) -> str:
    """Advice for a column of numbers that a few words turn into text."""
    is_number = np.array([NUMBER.fullmatch(key.strip()) is not None for key in keys])
    if rows[is_number].sum() < MOSTLY * rows.sum():
        return ""
    words = [keys[place] for place in np.flatnonzero(~is_number)]
    found = f"{rows[is_number].sum()} of its {rows.sum()} values are numbers, but not "
    if len(words) > MAX_MARKERS:
        return f"{found}e.g. {words[0]!r}; turn it into numbers first if it should be one"
    markers = ", ".join(repr(word) for word in words)
    return f"{found}{markers}; if that means missing, pass it in TablePreprocessor(missing_values=)"


def _hint_at_dates(column: Column) -> str:
    """Advice for a column of dates that are not written as 2024-01-31."""
    if column.kind != "text" or column.category:
        return ""
    if not all(DAY.fullmatch(key.strip()) for key in column.keys):
        return ""
    example = column.keys[0]
    options = "" if re.match(r"\d{4}", example.strip()) else "dayfirst=True"
    return (
        f"its values look like dates, such as {example!r}; write them as 2024-01-31, or turn them "
        f"into dates first, e.g. with pandas.to_datetime({options})"
    )


def _hint_at_commas(column: Column, rows: NDArray[np.intp]) -> str:
    """Advice for a column of numbers with decimal commas."""
    if column.kind != "text" or column.category:
        return ""
    keys = [key.strip() for key in column.keys]
    is_comma = np.array([shows_sign(key, ",") for key in keys])
    is_number = np.array(
        [bool(WRITTEN[","].fullmatch(k) or WHOLE_NUMBER.fullmatch(k)) for k in keys]
    )
    if not is_comma.any() or rows[is_number].sum() < MOSTLY * rows.sum():
        return ""
    example = keys[int(is_comma.argmax())]
    return (
        f"its values look like numbers with a decimal comma, such as {example!r}; write them with "
        "a point, or read the table with pandas.read_csv(decimal=',')"
    )


def warn_about(decisions: Sequence[Decision]) -> None:
    """One warning for all columns that are ignored, and one per column of numbers in text."""
    by_reason: dict[str, list[str]] = {}
    for decision in decisions:
        if decision.ignored and not decision.expected:
            by_reason.setdefault(decision.ignored, []).append(decision.name)
    clauses = []
    for reason, names in by_reason.items():
        one, several = ("looks like", "look like") if reason == IDENTIFIER else ("is", "are")
        verb = several if len(names) > 1 else one
        clauses.append(f"{list_columns(names)} {verb} {reason}")
    if clauses:
        n_ignored = sum(map(len, by_reason.values()))
        warn(f"{'; '.join(clauses)}; ignoring {'it' if n_ignored == 1 else 'them'}.")
    for decision in decisions:
        if decision.hint:
            warn(f"column {decision.name!r} is taken as text: {decision.hint}.")


# Levels


def find_levels(column: Column, options: "TablePreprocessor", times: Codes | None = None) -> Levels:
    """The levels of a column: those in at least `min_level_rows` rows, missing, and other."""
    codes, keys = as_levels(column)
    counts = _count(codes, len(keys), times)
    is_known = counts >= options.min_level_rows
    known = sort_keys([keys[place] for place in np.flatnonzero(is_known)])
    rare = frozenset(keys[place] for place in np.flatnonzero((counts > 0) & ~is_known))
    missing = UNSEEN
    if (codes < 0).any():
        missing = len(known)
        if options.missing_level == "mode" and len(keys):
            most_frequent = keys[int(counts.argmax())]
            missing = known.index(most_frequent) if most_frequent in known else missing
    return Levels(tuple(known), rare, missing, column.kind == "boolean")


def _count(codes: Codes, n_keys: int, times: Codes | None) -> Codes:
    """Rows of each level. times: as in `decide`"""
    present = codes >= 0
    if times is None:
        return np.bincount(codes[present], minlength=n_keys)
    return np.bincount(codes[present], times[present], minlength=n_keys).astype(np.intp)


def sort_keys(keys: Sequence[str]) -> list[str]:
    """By size if all are numbers, else alphabetically."""
    if all(NUMBER.fullmatch(key) for key in keys):
        return sorted(keys, key=float)
    return sorted(keys)


def fit_target_means(
    codes: Codes, n_levels: int, targets: FloatArray, seed: int, hold_out: HoldOut | None = None
) -> tuple[FloatArray, FloatArray]:
    """Means per level (T, levels + 1), shrunken towards the overall mean, which is the last; and
    the means of the training rows (N, T), each from the rows of other folds, because a row must
    not find its own label in its features, nor those of its group or of later rows."""
    crossed = np.empty(targets.shape)
    final = _means_per_level(codes, n_levels, targets)
    for others, fold in _divide(len(codes), seed, hold_out):
        means = _means_per_level(codes[others], n_levels, targets[others])
        if hold_out is not None and hold_out.kind == "groups":
            # A level of one fold alone, such as a group's name, is like a new one. The mean of the
            # other folds would tell its fold, whose labels are what they lack.
            unseen = np.setdiff1d(codes[fold], codes[others])
            means[:, unseen] = final[:, -1:]
        crossed[fold] = means[:, codes[fold]].T
    return final, crossed


def _divide(n_rows: int, seed: int, hold_out: HoldOut | None) -> Iterable[Pair]:
    """The other rows, and those that have means from them; every row is in one of the latter."""
    folds: list[Pair] = []
    first = np.arange(n_rows)
    if hold_out is not None:
        folds = hold_out.divide(FOLDS, seed)
        if hold_out.kind == "groups":
            return folds
        first = folds[0][0]  # in time, rows that no net holds out
    shuffled = KFold(min(FOLDS, len(first)), shuffle=True, random_state=seed).split(first)
    return [*((first[others], first[fold]) for others, fold in shuffled), *folds]


def _means_per_level(codes: Codes, n_levels: int, targets: FloatArray) -> FloatArray:
    means = np.empty((targets.shape[1], n_levels + 1))
    for target, row in zip(targets.T, means, strict=True):
        encoder = TargetEncoder(categories=[np.arange(n_levels)], target_type="continuous")
        encoder.fit(codes[:, None], target)
        row[:-1], row[-1] = encoder.encodings_[0], encoder.target_mean_
    return means


def target_columns(y: Any, options: "TablePreprocessor") -> tuple[FloatArray, tuple[str, ...]]:
    """(N, T), and a suffix per column: the target itself, or a 0/1 column per class (of two
    classes only the second)."""
    if y is None:
        raise ValueError(
            f"y must be given if a column has more levels than max_levels={options.max_levels}: "
            "each level becomes the mean of y. Pass y to fit, raise max_levels, or set "
            "above_limit='drop'."
        )
    values = np.asarray(y)
    if pd.isna(values).any():
        raise ValueError(
            "y must have a value in every row if levels become its mean, got gaps. Leave such "
            "rows out."
        )
    if values.ndim == 2 and values.shape[1] > 1:
        return values.astype(np.float64), tuple(f"mean{i}" for i in range(values.shape[1]))
    values = column_or_1d(values)
    kind = options.target_type
    if kind == "continuous" or (kind == "auto" and looks_continuous(values)):
        return values.astype(np.float64)[:, None], ("mean",)
    classes, codes = np.unique(values, return_inverse=True)
    if len(classes) == 2:
        return codes.astype(np.float64)[:, None], ("mean",)
    shares = codes[:, None] == np.arange(len(classes))
    return shares.astype(np.float64), tuple(f"share of {name}" for name in classes.tolist())


def looks_continuous(y: Any) -> bool:
    """Numbers with a fraction, or with more than twenty values, are a quantity, not classes."""
    values = np.asarray(y)
    if values.dtype.kind not in "iuf":
        return False
    with np.errstate(invalid="ignore"):  # infinity has no rest; it is refused elsewhere
        return bool((values % 1 != 0).any()) or len(np.unique(values)) > MAX_CLASSES


# Numbers


def fit_numbers(
    numbers: FloatArray,
    names: Sequence[str],
    marks: Sequence[str | None],
    weights: FloatArray | None,
    options: "TablePreprocessor",
) -> NumberBlock:
    """Fit the fill, the scale and the flags of training rows, numbers (N, P) with NaN for gaps.

    marks: the column of the table whose gaps a flag shows, or None for no flag. (P,)
    """
    gaps = np.isnan(numbers)
    fill = column_means(numbers, gaps, weights)

    def fit_step(kept: NDArray[np.intp]) -> Step:
        filled = take_columns(np.where(gaps, fill, numbers) if gaps.any() else numbers, kept)
        if options.scaling == "standard":
            return fit_scale(filled, weights)[0]
        quartiles = weighted_quantiles(filled, QUARTILES, weights)
        return fit_clip(quartiles, np.ptp(filled, axis=0))

    ends = np.stack([np.fmin.reduce(numbers, axis=0), np.fmax.reduce(numbers, axis=0)])
    return make_block(names, marks, ends, np.any(gaps, axis=0), fill, options, fit_step)


def make_block(
    names: Sequence[str],
    marks: Sequence[str | None],
    ends: FloatArray,
    has_gaps: NDArray[np.bool_],
    fill: FloatArray,
    options: "TablePreprocessor",
    fit_step: Callable[[NDArray[np.intp]], Step],
) -> NumberBlock:
    """From what is known of all columns of numbers; marks: as in `fit_numbers`.

    ends (2, P): least and most, NaN for a column of gaps; fill (P,); fit_step: the scale of the
    columns at these positions, filled
    """
    may_flag = np.array([mark is not None for mark in marks], dtype=bool)
    flagged = np.flatnonzero(has_gaps & ~np.isnan(ends[0]) & may_flag)
    if not options.missing_indicator:
        flagged = flagged[:0]
    kept = np.flatnonzero(~find_constant(ends))
    steps = (fit_step(kept),) if len(kept) and options.scaling != "none" else ()
    features = [(i, names[i]) for i in kept.tolist()]
    features += [(i, f"{marks[i]}=missing") for i in flagged.tolist()]
    # Parts of a date but the first come round again, and means are those of the levels.
    ranges = np.where(may_flag, ends, [[-np.inf], [np.inf]])
    return NumberBlock(fill, kept, flagged, steps, tuple(features), ranges)


def fit_clip(quartiles: FloatArray, widths: FloatArray) -> SmoothClip:
    """quartiles (3, P), widths (P,): from least to most"""
    low, median, high = quartiles
    return SmoothClip(median, np.where(high - low > LEAST_RANGE, high - low, widths / 2))


def is_constant(differences: FloatArray, sizes: FloatArray) -> NDArray[np.bool_]:
    """Whether largest differences are too small to be told from rounding, or to divide by. (P,)"""
    return np.asarray(differences <= np.maximum(ROUNDING * sizes, LEAST_RANGE))


def find_constant(numbers: FloatArray) -> NDArray[np.bool_]:
    """Columns with one value at most up to rounding, apart from gaps. (P,)"""
    low, high = np.fmin.reduce(numbers, axis=0), np.fmax.reduce(numbers, axis=0)
    constant = is_constant(high - low, np.maximum(abs(low), abs(high)))
    empty: NDArray[np.bool_] = np.isnan(low)
    return constant | empty


def column_means(
    numbers: FloatArray, gaps: NDArray[np.bool_], weights: FloatArray | None
) -> FloatArray:
    """Mean of the values that are not missing; 0 for a column without any. (P,)"""
    present = (~gaps).astype(np.float64)
    if weights is not None:
        present *= weights[:, None]
    totals = present.sum(axis=0)
    # Shares first: the sum of values near the largest float would overflow.
    shares = present / np.where(totals > 0, totals, 1.0)
    means: FloatArray = (np.where(gaps, 0.0, numbers) * shares).sum(axis=0)
    return means


def fit_scale(table: FloatArray, weights: FloatArray | None) -> tuple[Scale, NDArray[np.bool_]]:
    """Weighted mean and deviation per column, and which columns are constant.

    Not scikit-learn's StandardScaler: with weights its variance of a constant column can round to
    below zero, and squares of values beyond 1e154 overflow.
    """
    largest = np.abs(table).max(axis=0)
    constant = is_constant(np.ptp(table, axis=0), largest)
    unit = np.where(constant, 1.0, largest)
    scaled = table / unit  # so that no square overflows
    mean = np.average(scaled, axis=0, weights=weights)
    variance = np.average((scaled - mean) ** 2, axis=0, weights=weights)
    deviation = np.where(constant, np.inf, np.sqrt(variance) * unit)
    return Scale(mean * unit, deviation), constant


def fit_piecewise(
    scaled: FloatArray,
    weights: FloatArray | None,
    n_bins: int,
    all_edges: Sequence[FloatArray] | None = None,
) -> Bins:
    """Starts, widths, least and most fillings of bins for fill_bins, each (P, n_bins).

    A column with fewer bins leaves the others empty: they start at inf. all_edges: of the bins of
    each column; None: quantiles.
    """
    starts = np.full((scaled.shape[1], n_bins), np.inf)
    widths = np.ones_like(starts)
    least, most = np.zeros_like(starts), np.ones_like(starts)
    for i, column in enumerate(scaled.T):
        edges = find_edges(column, weights, n_bins) if all_edges is None else all_edges[i]
        edges = edges[np.append(True, np.diff(edges) > LEAST_RANGE)]
        used = len(edges) - 1
        starts[i, :used] = edges[:-1]
        widths[i, :used] = np.diff(edges)
        least[i, 0], most[i, used - 1] = -OUTER_WIDTHS, OUTER_WIDTHS
    return starts, widths, least, most


def find_edges(column: FloatArray, weights: FloatArray | None, n_bins: int) -> FloatArray:
    """Edges of up to n_bins bins: the values themselves if they are few enough, else quantiles.

    A value in more rows than a bin holds would swallow several quantiles and leave few bins to the
    other rows. Such a value is an edge of its own, and the other rows share the rest of the bins.
    """
    values, places = np.unique(column, return_inverse=True)
    if len(values) <= n_bins + 1:
        return values
    rows = np.bincount(places, weights)
    often = rows > rows.sum() / n_bins
    rest = ~often[places]
    shares = np.linspace(0, 1, n_bins - np.count_nonzero(often) + 1)
    own = None if weights is None else weights[rest]
    return np.union1d(values[often], weighted_quantiles(column[rest, None], shares, own))


def weighted_quantiles(
    numbers: FloatArray, shares: FloatArray, weights: FloatArray | None
) -> FloatArray:
    """(shares, P): the value at which that share of the rows, by weight, is reached; between two
    values if it is reached exactly. A weight of 2 therefore counts like the row twice."""
    n_rows = len(numbers)
    found = np.empty((len(shares), numbers.shape[1]))
    for i, column in enumerate(numbers.T):
        order = np.argsort(column)
        reached = np.arange(1.0, n_rows + 1) if weights is None else np.cumsum(weights[order])
        wanted = shares * reached[-1]
        slack = 1e-9 * reached[-1]
        below = np.minimum(np.searchsorted(reached, wanted - slack), n_rows - 1)
        above = np.minimum(np.searchsorted(reached, wanted + slack), n_rows - 1)
        found[:, i] = (column[order[below]] + column[order[above]]) / 2
    return found
