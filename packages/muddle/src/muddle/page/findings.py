"""Findings about a table: leaks, repeated rows, tiny classes, gaps, outliers.

Nothing is fitted and nothing is changed; no torch. Drift between training rows and new rows is in
muddle.page.drift.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.page.html import format_share, list_names
from muddle.tables.summarise import read_named, to_floats
from muddle_runtime.columns import Column, FloatArray, as_levels, guess_form, is_missing, read_table
from muddle_runtime.fitted import Task

if TYPE_CHECKING:
    from muddle.tables import TablePreprocessor

Severity = Literal["warning", "note"]
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
LEAK_ROWS = 2_000  # sample that is large enough to see a column that determines the target
N_FOLDS = 5
MOST_BINS = 32
ROWS_PER_BIN = 5  # for numbers: the mean of fewer rows is noise
TWIN_DIGITS = 9  # of numbers in units of their standard deviation
MOST_NAMED = 5
OWNER = "the check of the table"


@dataclass(frozen=True)
class Finding:
    """Something unusual that a person should look at."""

    kind: str
    severity: Severity
    columns: tuple[str, ...]
    text: str  # complete by itself


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
    # Here, not above: drift is found without scikit-learn.
    from muddle.tables.target import check_target

    table = read_table(X, OWNER)
    numeric = task == "regression"
    target = check_target(y, table.n_rows, OWNER, multi_output=numeric, y_numeric=numeric)
    used = table.names if preprocessor is None else preprocessor.plan_.used
    gap_texts = ("",) if preprocessor is None else tuple(preprocessor.missing_values)
    columns = [read_named(table, name, gap_texts) for name in used]
    found = find_few_rows(table.n_rows) + find_leaks(columns, target, task)
    if numeric:
        found += find_outliers(target)
    else:
        found += find_class_sizes(*np.unique(target, return_counts=True))
    found += find_repeated_rows(columns, target) + find_twins(columns)
    found += find_gaps({column.name: float(is_missing(column).mean()) for column in columns})
    return sort_findings(found + ([] if preprocessor is None else find_ignored(preprocessor)))


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
    """Rows that are equal in every column, and those of them whose targets differ."""
    n_rows = len(target)
    _, group, sizes = np.unique(_hash_rows(columns), return_inverse=True, return_counts=True)
    n_repeated = n_rows - len(sizes)
    if n_repeated == 0:
        return []
    found = []
    # Few columns with few levels repeat by chance: about as often as with every column shuffled.
    n_by_chance = n_rows - len(np.unique(_hash_rows(columns, np.random.default_rng(0))))
    if n_by_chance < CHANCE * n_repeated:
        share = n_repeated / n_rows
        text = (
            f"{n_repeated:,} of {n_rows:,} rows ({format_share(share)}) "
            f"{'repeats' if n_repeated == 1 else 'repeat'} an earlier row in every column. If they "
            "are copies, folds share them and scores are too good: drop them. If they are "
            "different cases that look alike, keep them."
        )
        severity: Severity = "warning" if share >= MANY_REPEATED else "note"
        found.append(Finding("repeated rows", severity, (), text))
    outputs = np.asarray(target).reshape(n_rows, -1)
    codes = np.stack([pd.factorize(values)[0] for values in outputs.T], axis=1)
    pairs = pd.DataFrame(codes).assign(group=group).drop_duplicates()
    n_targets = np.bincount(pairs["group"].to_numpy(), minlength=len(sizes))
    n_contrary = int(sizes[n_targets > 1].sum())
    if n_contrary:
        text = (
            f"{n_contrary:,} rows are equal to another row in every column but have a different "
            "target: no model can predict them all."
        )
        found.append(Finding("contradictory rows", "note", (), text))
    return found


def _hash_rows(
    columns: Sequence[Column], shuffle: np.random.Generator | None = None
) -> NDArray[np.uint64]:
    """A number per row, (n,), equal for rows that are equal in every column.

    With `shuffle`, every column is shuffled on its own first.
    """
    rows = np.zeros(1, dtype=np.uint64)
    for column in columns:
        values: Any = column.codes
        if values is None:
            values = column.numbers if column.dates is None else column.dates
        # Equal values, and gaps, get equal codes; -0.0 is 0.0.
        hashed = pd.util.hash_array(np.asarray(pd.factorize(values)[0], dtype=np.int64))
        if shuffle is not None:
            hashed = shuffle.permutation(hashed)
        rows = rows * np.uint64(0x9E3779B97F4A7C15) + hashed
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


def find_ignored(preprocessor: "TablePreprocessor") -> list[Finding]:
    """Columns that the preprocessor ignores, by reason, and text columns that look like numbers."""
    by_reason: dict[str, list[str]] = {}
    hints = []
    for decision in preprocessor.plan_.decisions:
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


# Leaks: how well one column alone predicts the target
#
# A column is cut into bins (numbers by quantiles, text by level, gaps in a bin of their own), and
# every row is predicted from the rows of its bin in other folds.


def find_leaks(columns: Sequence[Column], target: NDArray[Any], task: Task) -> list[Finding]:
    """Columns that almost determine the target by themselves while most others do not."""
    if len(columns) < 2:
        return []
    rows = np.arange(len(target))
    if len(rows) > LEAK_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(len(rows), LEAK_ROWS, replace=False))
    if task == "classification":
        codes = np.unique(target, return_inverse=True)[1][rows]
        outputs = [np.eye(int(codes.max()) + 1)[codes]]
    else:
        from scipy.stats import rankdata  # here, as drift on numpy alone imports this module

        # Ranks: one huge value must not hide that all others are known.
        numbers = np.asarray(target, dtype=np.float64).reshape(len(target), -1)[rows]
        outputs = list(rankdata(numbers, axis=0).T[:, :, None])
    suspects = {}
    for column in columns:
        bins = np.unique(_bin_column(column)[rows], return_inverse=True)[1]
        share = max(_explain(bins, values, LEAKS[task]) for values in outputs)
        if share >= LEAKS[task]:
            suspects[column.name] = share
    if len(suspects) > len(columns) / 2:
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
    counts = np.bincount(bins[known], minlength=int(bins.max()) + 1)[:, None]
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, bins[known], values[known])
    means = np.where(counts > 0, sums / np.maximum(counts, 1), values[known].mean(axis=0))
    return float(np.square(values[judged] - means[bins[judged]]).sum())


def split_rows(n_rows: int) -> list[Rows]:
    """Mask of the rows of each fold; rows are shuffled, as tables are often sorted."""
    fold = np.random.default_rng(0).permutation(n_rows) % N_FOLDS
    return [fold == i for i in range(N_FOLDS)]
