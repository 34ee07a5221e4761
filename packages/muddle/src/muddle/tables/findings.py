"""Findings about a table: leaks, groups, order, repeated rows, tiny classes, gaps, outliers.

Nothing is fitted and nothing is changed. Every fit keeps its findings beside the summary of the
table; how new rows differ from the training rows is in muddle_runtime.drift.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from muddle.tables.hold_out import deal_groups
from muddle.tables.target import check_target
from muddle_runtime.columns import (
    Column,
    FloatArray,
    Table,
    as_levels,
    guess_form,
    is_missing,
    read_named,
    read_table,
    to_floats,
)
from muddle_runtime.findings import Finding, Severity, format_share, list_names
from muddle_runtime.fitted import Task
from muddle_runtime.tables import TablePlan

if TYPE_CHECKING:
    from muddle.tables import TablePreprocessor

Codes = NDArray[np.int64]
Rows = NDArray[np.bool_]

FEW_ROWS = 50
MOSTLY_MISSING = 0.5
CHANCE = 0.5  # share of the repeated rows; if chance explains more, they are not called copies
MANY_REPEATED = 0.05  # share of rows from which repetition is a warning
TINY_CLASS = 5  # rows; with fewer, some folds have none of the class
ONE_SIDED = 0.9  # share of the most frequent class
FAR = 10.0  # interquartile ranges beyond the nearer quartile
# Share of the target that one column explains on its own. exp(y / 50) beside the diabetes data
# explains 0.997; of honest columns, the length of an iris petal explains 0.83 of the classes.
LEAKS = {"regression": 0.98, "classification": 0.95}
SAMPLE_ROWS = 2_000  # enough to see a column that determines the target, groups and order
N_FOLDS = 5
MOST_BINS = 32
ROWS_PER_BIN = 5  # for numbers: the mean of fewer rows is noise
TWIN_DIGITS = 9  # of numbers in units of their standard deviation
MOST_NAMED = 5
MOST_COLUMNS, MOST_ROWS = 500, 100_000  # the first columns, some of the rows
MANY_LEVELS = 10  # fewer are categories rather than groups
MOST_LEVELS = 0.9  # share of the rows; an id that repeats less often parts hardly any rows
SAME_TARGET = 0.9  # share of the target that is explained by the other rows of a group
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
ID_WORDS = frozenset(("id", "uuid", "nr", "patient", "subject", "participant", "respondent"))
ID_WORDS |= {"person", "speaker", "pupil", "animal", "user", "customer"}
N_BLOCKS = 10  # of consecutive rows, or values
MOVED = 0.15  # share of the target that blocks explain; of a shuffled table, 0 or less
SORTED = 0.75
OWNER = "the check of the table"


def find_in_table(
    X: Any, y: Any, *, task: Task, preprocessor: "TablePreprocessor | None" = None
) -> list[Finding]:
    """Facts about a table to know before trusting a model of it, warnings first.

    Parameters
    ----------
    X, y : table and target
        As passed to `fit`.
    task : {"regression", "classification"}
        The kind of target.
    preprocessor : TablePreprocessor, optional
        The fitted one (`preprocessor_` of a model). The columns it ignores are then reported as
        such, and not examined otherwise.
    """
    table = read_table(X, OWNER)
    numeric = task == "regression"
    target = check_target(y, table.n_rows, OWNER, multi_output=numeric, y_numeric=numeric)
    return find_in_rows(table, target, task, None if preprocessor is None else preprocessor.plan_)


def find_in_rows(
    table: Table,
    target: NDArray[Any],
    task: Task,
    plan: TablePlan | None,
    *,
    told: bool = False,
) -> list[Finding]:
    """The same for rows that are read and checked already. told: `fit` was passed groups or time,
    so that it need not be advised to take them"""
    used = table.names if plan is None else plan.used
    gap_texts = ("",) if plan is None else plan.missing_values
    found = find_few_rows(table.n_rows)
    if task == "regression":
        found += find_outliers(target)
    else:
        found += find_class_sizes(*np.unique(target, return_counts=True))
    table, target = _thin_out(table, target, MOST_ROWS)
    columns = [read_named(table, name, gap_texts) for name in used[:MOST_COLUMNS]]
    found += find_repeated_rows(columns, target) + find_twins(columns)
    found += find_gaps({column.name: float(is_missing(column).mean()) for column in columns})
    ids = {column.name for column in columns if _is_repeated_id(column)}
    # What concerns the target shows in a sample.
    if table.n_rows > SAMPLE_ROWS:
        table, target = _thin_out(table, target, SAMPLE_ROWS)
        columns = [read_named(table, column.name, gap_texts) for column in columns]
    outputs = _read_outputs(target, task)
    bins = {column.name: _bin_column(column) for column in columns}
    groups = find_groups(columns, outputs, ids)
    suspects = {name: own for name, own in bins.items() if name not in groups}
    found += find_leaks(suspects, outputs, task)
    if not told:
        dates = [column.name for column in columns if guess_form(column) == "date"]
        found += [*groups.values(), *find_order(dates, outputs, bins)]
    return sort_findings(found + ([] if plan is None else find_ignored(plan)))


def _thin_out(table: Table, target: NDArray[Any], most: int) -> tuple[Table, NDArray[Any]]:
    """At most so many rows, drawn at random, in their order."""
    if table.n_rows <= most:
        return table, target
    rows = np.sort(np.random.default_rng(0).choice(table.n_rows, most, replace=False))
    return table.keep(rows), target[rows]


def sort_findings(found: Sequence[Finding]) -> list[Finding]:
    return sorted(found, key=lambda finding: finding.severity != "warning")


def find_few_rows(n_rows: int) -> list[Finding]:
    if n_rows >= FEW_ROWS:
        return []
    text = (
        f"The table has only {n_rows} rows, so scores, importances and intervals may be far off. "
        f"Collect at least {FEW_ROWS}."
    )
    return [Finding("few rows", "warning", (), text)]


def find_class_sizes(classes: Any, counts: NDArray[np.int64]) -> list[Finding]:
    """Classes with hardly any rows, and one class with nearly all rows."""
    found = []
    tiny = [str(name) for name, n_rows in zip(classes, counts, strict=True) if n_rows < TINY_CLASS]
    if tiny:
        which = "Class" if len(tiny) == 1 else f"{len(tiny)} classes,"
        text = (
            f"{which} {list_names(tiny, MOST_NAMED)}{' has' if len(tiny) == 1 else ', have'} fewer "
            f"than {TINY_CLASS} rows: too few to learn from and to evaluate. Collect more rows, or "
            "merge classes."
        )
        found.append(Finding("tiny classes", "warning", (), text))
    largest = int(counts.argmax())
    share = counts[largest] / counts.sum()
    if share >= ONE_SIDED:
        text = (
            f"{format_share(share)} of the rows are of class {str(classes[largest])!r}, so "
            "accuracy tells little. Compare models by the area under the ROC curve or the "
            'log-loss; class_weight="balanced" gives rare classes more weight.'
        )
        found.append(Finding("imbalanced classes", "note", (), text))
    return found


def find_outliers(target: NDArray[Any]) -> list[Finding]:
    """Targets so extreme that they may be mistakes, or dominate squared errors."""
    found = []
    outputs = np.asarray(target, dtype=np.float64).reshape(len(target), -1)
    for place, values in enumerate(outputs.T):
        low, high = np.quantile(values, [0.25, 0.75])
        far = np.maximum(low - values, values - high) > FAR * (high - low)
        if high == low or not far.any():
            continue
        which = "The target" if outputs.shape[1] == 1 else f"Output {place} of the target"
        n_far = int(np.count_nonzero(far))
        extreme = values[far][np.argmax(np.abs(values[far] - (low + high) / 2))]
        text = (
            f"{which} has {n_far} extreme value{'s' if n_far > 1 else ''} (e.g. {extreme:.6g}; "
            f"half of all rows lie between {low:.6g} and {high:.6g}). Check for mistakes. If the "
            "values are right, they dominate R² and RMSE."
        )
        found.append(Finding("extreme targets", "note", (), text))
    return found


def find_repeated_rows(columns: Sequence[Column], target: NDArray[Any]) -> list[Finding]:
    """Rows that are equal in every column: copies, and rows whose targets differ."""
    n_rows = len(target)
    coded = [_code_values(column) for column in columns]
    coded_target = [pd.factorize(values)[0] for values in target.reshape(n_rows, -1).T]
    rows = _hash_rows(coded)
    alike, copies = len(np.unique(rows)), _hash_rows([*coded, *coded_target])
    if alike == n_rows:
        return []
    found = []
    n_copies = n_rows - len(np.unique(copies))
    # Columns with few levels repeat by chance: about as often as with the finest one shuffled.
    finest = max(range(len(coded)), key=lambda i: coded[i].max())
    coded[finest] = np.random.default_rng(0).permutation(coded[finest])
    n_by_chance = n_rows - len(np.unique(_hash_rows([*coded, *coded_target])))
    if n_by_chance < CHANCE * n_copies:
        share = n_copies / n_rows
        text = (
            f"{n_copies:,} of {n_rows:,} rows ({format_share(share)}) "
            f"{'repeats' if n_copies == 1 else 'repeat'} an earlier row in every column and the "
            "target. If they are copies, folds share them and scores are too good: drop them. If "
            "they are different cases that look alike, keep them."
        )
        severity: Severity = "warning" if share >= MANY_REPEATED else "note"
        found.append(Finding("repeated rows", severity, (), text))
    pairs = pd.DataFrame({"rows": rows, "copies": copies}).drop_duplicates()
    contrary = pairs["rows"][pairs["rows"].duplicated()]
    n_contrary = int(np.isin(rows, contrary).sum())
    if n_contrary:
        text = (
            f"{n_contrary:,} rows are equal to another row in every column but have a different "
            "target: no model can predict them all."
        )
        found.append(Finding("contradictory rows", "note", (), text))
    return found


def _code_values(column: Column) -> Codes:
    """A code per row; equal values, and gaps, get equal codes; -0.0 is 0.0."""
    values: Any = column.codes
    if values is None:
        values = column.numbers if column.dates is None else column.dates
    return np.asarray(pd.factorize(values)[0], dtype=np.int64)


def _hash_rows(coded: Sequence[Codes]) -> NDArray[np.uint64]:
    """A number per row, (n,), equal for rows with the same codes in every column."""
    rows = np.zeros(1, dtype=np.uint64)
    for codes in coded:
        rows = rows * np.uint64(0x9E3779B97F4A7C15) + pd.util.hash_array(codes)
    return rows


def find_gaps(shares: Mapping[str, float]) -> list[Finding]:
    """Columns that are mostly missing; shares: of rows without a value, per column."""
    mostly = [name for name, share in shares.items() if share > MOSTLY_MISSING]
    if not mostly:
        return []
    mostly.sort(key=lambda name: -shares[name])
    text = (
        f"{_name_columns(mostly, 'is', 'are')} missing in more than half of the rows (up to "
        f"{format_share(shares[mostly[0]])}). The model learns their effect from few rows."
    )
    return [Finding("mostly missing", "note", tuple(mostly), text)]


def find_ignored(plan: TablePlan) -> list[Finding]:
    """Columns that the preprocessor ignores, by reason, and text columns that look like numbers."""
    by_reason: dict[str, list[str]] = {}
    hints = []
    for decision in plan.decisions:
        if decision.ignored:
            by_reason.setdefault(decision.ignored, []).append(decision.name)
        if decision.hint:
            text = f"Column {decision.name!r} is read as text: {decision.hint}."
            hints.append(Finding("numbers as text", "warning", (decision.name,), text))
    ignored = []
    for reason, names in by_reason.items():
        text = f"{_name_columns(names, 'is', 'are')} ignored: {reason}."
        ignored.append(Finding("ignored columns", "note", tuple(names), text))
    return ignored + hints


def _name_columns(names: Sequence[str], verb: str, plural: str) -> str:
    """Column 'a' is; Columns 'a', 'b' are."""
    one = len(names) == 1
    return f"Column{'' if one else 's'} {list_names(names, MOST_NAMED)} {verb if one else plural}"


# Twins: copies, other units, names beside their codes


def find_twins(columns: Sequence[Column]) -> list[Finding]:
    """Columns that hold the same information as an earlier one, as one note."""
    first: dict[tuple[str, bytes], str] = {}
    twins: dict[str, str] = {}
    for column in columns:
        earlier = first.setdefault(_fingerprint(column), column.name)
        if earlier != column.name:
            twins[column.name] = earlier
    if not twins:
        return []
    names = list(twins)
    text = (
        f"{_name_columns(names, 'holds', 'each hold')} the same information as another column "
        f"({names[0]!r} as {twins[names[0]]!r}). Keep one of the two: they share their importance, "
        "and new rows must have both."
    )
    return [Finding("same columns", "note", (*names, *dict.fromkeys(twins.values())), text)]


def _fingerprint(column: Column) -> tuple[str, bytes]:
    """Equal for columns with the same information, whatever their units or names of levels."""
    unique = (column.name, b"")  # equal to no other
    if column.dates is not None:
        return "date", column.dates.tobytes()
    if column.numbers is not None:
        numbers = np.asarray(column.numbers, dtype=np.float64)
        present = np.isfinite(numbers)
        deviation = numbers[present].std() if present.any() else 0.0
        if not np.isfinite(deviation) or deviation == 0:
            return unique
        scaled = (numbers - numbers[present].mean()) / deviation
        # Minutes left and minutes passed are the same information.
        scaled *= np.sign(scaled[present][np.argmax(np.abs(scaled[present]))])
        return "number", (scaled.round(TWIN_DIGITS) + 0.0).tobytes()
    codes, levels = pd.factorize(np.asarray(column.codes))
    # Texts that hardly repeat match any other such texts one to one.
    if len(levels) < 2 or len(levels) > len(codes) / 2:
        return unique
    return "levels", np.asarray(codes, dtype=np.int64).tobytes()


# Groups and order: rows that are more alike than shuffled folds assume


def find_groups(
    columns: Sequence[Column], outputs: Sequence[FloatArray], ids: Collection[str]
) -> dict[str, Finding]:
    """Columns that tell which rows belong together: an id that repeats; texts within which a
    number never changes (the income of a district), or hardly the target."""
    numbers = {
        column.name: np.nan_to_num(to_floats(column, "number"), nan=-1e300)  # a gap is a value
        for column in columns
        if column.kind != "duration" and guess_form(column) == "number"
    }
    whole = {name for name, values in numbers.items() if not (values % 1 > 0).any()}
    # A whole number may be a code of the same levels.
    measures = {name: values for name, values in numbers.items() if name not in whole}
    found = {}
    for column in columns:
        name, is_text = column.name, column.codes is not None
        if not is_text and name not in whole:
            continue
        values: Any = column.codes if is_text else numbers[name]
        codes = np.unique(values, return_inverse=True)[1]
        n_levels = int(codes.max()) + 1
        sign = ""
        if name in ids:
            sign = "The name says so, and values repeat"
        elif not MANY_LEVELS <= n_levels <= len(codes) / 2:
            continue
        elif is_text and (same := _find_constant(codes, measures)):
            sign = f"{_name_columns(same, 'never changes', 'never change')} within one"
        elif _hardly_changes(codes, outputs) and (
            # A target that follows a number smoothly is known from the values around as well.
            is_text or _explain(codes * N_BLOCKS // n_levels, outputs[0], 0.0) < SAME_TARGET / 2
        ):
            sign = "The target hardly changes within one"
        if sign:
            text = (
                f"Values of column {name!r} look like groups of rows that belong together. {sign}. "
                "Shuffled folds part such rows: for rows of new groups, scores are too good and "
                f"intervals too narrow. If such rows will come, pass groups=X[{name!r}] to fit, "
                "and leave the column out of X."
            )
            found[name] = Finding("groups", "warning", (name,), text)
    return found


def _is_repeated_id(column: Column) -> bool:
    if not ID_WORDS & {word.lower() for word in WORDS.findall(column.name)}:
        return False
    codes = _code_values(column)
    return MANY_LEVELS <= len(np.unique(codes)) <= MOST_LEVELS * len(codes)


def _hardly_changes(codes: Codes, outputs: Sequence[FloatArray]) -> bool:
    """Whether the other rows of a level tell the target, in those that have some."""
    several = np.bincount(codes)[codes] > 1
    if 2 * np.count_nonzero(several) < len(codes):
        return False
    own = codes[several]
    return min(_explain(own, one[several], SAME_TARGET) for one in outputs) >= SAME_TARGET


def _find_constant(codes: Codes, numbers: Mapping[str, FloatArray]) -> list[str]:
    """Columns of many numbers that never change within a level."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    found = []
    for name, values in numbers.items():
        least, most = (f.reduceat(values[order], starts) for f in (np.minimum, np.maximum))
        if (least == most).all() and len(np.unique(least)) >= MANY_LEVELS:
            found.append(name)
    return found


def find_order(
    dates: Sequence[str], outputs: Sequence[FloatArray], bins: Mapping[str, Codes]
) -> list[Finding]:
    """Rows that are sorted by the target or by a date, or along which the target changes."""
    n_rows = len(outputs[0])
    if n_rows < FEW_ROWS:
        return []
    blocks = np.arange(n_rows) * N_BLOCKS // n_rows
    moved = max(_explain(blocks, values, MOVED) for values in outputs)
    if moved >= SORTED:
        text = (
            "The rows are sorted by the target. The folds of a fit are shuffled; shuffle the rows "
            "before splitting them by position."
        )
        return [Finding("ordered rows", "note", (), text)]
    later = (
        "If new rows come later than these, shuffled folds are too kind: pass the time of each "
        "row, or its place, to fit, as time=X[...] or time=range(len(X))."
    )
    sorted_by = [
        name for name in dates if _explain(blocks, rankdata(bins[name])[:, None], SORTED) >= SORTED
    ]
    if sorted_by:
        text = (
            f"The rows are in order of time ({_name_columns(sorted_by, '', '').strip()}). {later}"
        )
    elif moved >= MOVED:
        text = (
            f"The target changes along the rows (tenths of the table explain {format_share(moved)} "
            f"of it). {later}"
        )
    else:
        return []
    return [Finding("ordered rows", "warning", tuple(sorted_by), text)]


# Leaks: how well one column alone predicts the target
#
# A column is cut into bins (numbers by quantiles, text by level, gaps in a bin of their own), and
# every row is predicted from the rows of its bin in other folds.


def find_leaks(
    bins: Mapping[str, Codes], outputs: Sequence[FloatArray], task: Task
) -> list[Finding]:
    """Columns that almost determine the target by themselves while most others do not."""
    if len(bins) < 2:
        return []
    suspects = {}
    for name, own in bins.items():
        share = max(_explain(own, values, LEAKS[task]) for values in outputs)
        if share >= LEAKS[task]:
            suspects[name] = share
    if len(suspects) > len(bins) / 2:
        return []  # if most columns determine the target, it is simply easy
    found = []
    for name, share in sorted(suspects.items(), key=lambda pair: -pair[1]):
        text = (
            f"Column {name!r} almost determines the target by itself (it explains "
            f"{format_share(share)} of it on held-out rows). Is it known before the target is? If "
            "not, drop it: with it, scores are far too good."
        )
        found.append(Finding("possible leak", "warning", (name,), text))
    return found


def _read_outputs(target: NDArray[Any], task: Task) -> list[FloatArray]:
    """The target, (n, T): an indicator per class, or one array of ranks per output, as one huge
    value must not hide that all others are known."""
    if task == "classification":
        codes = np.unique(target, return_inverse=True)[1]
        return [np.eye(int(codes.max()) + 1)[codes]]
    numbers = np.asarray(target, dtype=np.float64).reshape(len(target), -1)
    return list(rankdata(numbers, axis=0).T[:, :, None])


def _bin_column(column: Column) -> Codes:
    """The bin of each row, (n,); bin 0 holds the gaps."""
    form = guess_form(column)
    if form == "levels":
        return as_levels(column)[0].astype(np.int64) + 1
    missing = is_missing(column)
    bins = np.zeros(len(missing), dtype=np.int64)
    if missing.all():
        return bins
    kind = column.kind if column.kind == "duration" else form
    values = to_floats(column, kind)[~missing]
    distinct, places = np.unique(values, return_inverse=True)
    if len(distinct) > MOST_BINS:
        n_bins = int(np.clip(len(values) // ROWS_PER_BIN, 2, MOST_BINS))
        edges = np.quantile(values, np.linspace(0, 1, n_bins + 1)[1:-1])
        places = np.searchsorted(edges, values, side="right")
    bins[~missing] = places + 1
    return bins


def _explain(bins: Codes, values: FloatArray, at_least: float) -> float:
    """Share of the squared error of values (n, T) that the bins remove on held-out rows.

    If the share in sample, which is too good, stays below `at_least`, it is returned instead.
    """
    everywhere = np.ones(len(bins), dtype=bool)
    total = _sum_errors(values, np.zeros_like(bins), everywhere, everywhere)
    if total == 0:
        return 0.0
    in_sample = 1.0 - _sum_errors(values, bins, everywhere, everywhere) / total
    if in_sample < at_least:
        return in_sample
    folds = split_rows(len(bins))
    return 1.0 - sum(_sum_errors(values, bins, ~fold, fold) for fold in folds) / total


def _sum_errors(values: FloatArray, bins: Codes, known: Rows, judged: Rows) -> float:
    """Squared error of the judged rows if each is predicted by the mean of the known rows of its
    bin, or of all known rows if the bin has none."""
    own, n_bins = bins[known], int(bins.max()) + 1
    counts = np.bincount(own, minlength=n_bins)[:, None]
    sums = np.stack([np.bincount(own, column, n_bins) for column in values[known].T], axis=1)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), values[known].mean(axis=0))
    return float(np.square(values[judged] - means[bins[judged]]).sum())


def split_rows(n_rows: int, groups: Codes | None = None) -> list[Rows]:
    """Mask of the rows of each fold; rows are shuffled, as tables are often sorted. groups (n,):
    codes of rows that stay together"""
    rng = np.random.default_rng(0)
    if groups is None:
        fold = rng.permutation(n_rows) % N_FOLDS
    else:
        fold = deal_groups(groups, N_FOLDS, rng)
    return [fold == i for i in range(N_FOLDS)]
