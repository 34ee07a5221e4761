"""What is odd about a table: leaks, repeated rows, tiny classes, gaps, outliers; no torch.

Nothing is fitted and nothing is changed. Drift between training and new rows is in drift.py.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.page.drift import DriftCounter, find_drift
from muddle.page.finding import Finding, Severity, format_share, list_texts
from muddle.page.leaks import bin_column, explain_classes, explain_numbers
from muddle.page.twins import find_twins
from muddle.tables import TablePreprocessor
from muddle.tables.checks import check_target
from muddle.tables.columns import Column, is_missing
from muddle.tables.summary import read_named
from muddle.tables.tables import read_table

__all__ = ["DriftCounter", "Finding", "find_drift", "find_in_table"]

Task = Literal["regression", "classification"]

FEW_ROWS = 50
MOSTLY_MISSING = 0.5
CHANCE = 0.5  # of the repeated rows; where it explains more, they are no copies
MANY_REPEATED = 0.05  # share of rows from which on repetition is worth a warning
TINY_CLASS = 5  # rows; with fewer, some folds have none of the class
ONE_SIDED = 0.9  # share of the most frequent class
FAR = 10.0  # distances between the quartiles, from the nearer quartile
# Share of the target that one column explains on its own. exp(y / 50) beside the diabetes data
# explains 0.997; of honest columns, the length of an iris petal explains 0.83 of the classes.
LEAKS = {"regression": 0.98, "classification": 0.95}
LEAK_ROWS = 2_000  # a sample is enough to see a column that determines the target
MOST_NAMED = 5
OWNER = "the check of the table"


def find_in_table(
    X: Any,
    y: Any,
    *,
    task: Task,
    preprocessor: TablePreprocessor | None = None,
) -> list[Finding]:
    """What a person should know about a table before trusting a model of it, warnings first.

    Parameters
    ----------
    X, y : table and target
        As `fit` takes them.
    task : {"regression", "classification"}
        What is to be predicted.
    preprocessor : TablePreprocessor, optional
        The fitted one (`preprocessor_` of a model): columns that it leaves out are findings, and
        not looked at otherwise.
    """
    table = read_table(X, OWNER)
    target = check_target(
        y, table.n_rows, OWNER, multi_output=task == "regression", y_numeric=task == "regression"
    )
    used = list(table.names) if preprocessor is None else list(preprocessor.plan_.used)
    gap_texts = [""] if preprocessor is None else list(preprocessor.missing_values)
    columns = [read_named(table, name, gap_texts) for name in used]
    found = [*find_few_rows(table.n_rows), *find_leaks(columns, target, task)]
    if task == "classification":
        found += find_class_sizes(*np.unique(target, return_counts=True))
    else:
        found += find_outliers(target)
    found += find_repeated_rows(columns, target)
    found += find_twins(columns)
    found += find_gaps({column.name: float(is_missing(column).mean()) for column in columns})
    if preprocessor is not None:
        found += find_ignored(preprocessor)
    return sorted(found, key=lambda finding: finding.severity != "warning")


def find_few_rows(n_rows: int) -> list[Finding]:
    if n_rows >= FEW_ROWS:
        return []
    text = (
        f"There are only {n_rows} rows: scores, importances and intervals may be far off. "
        f"From {FEW_ROWS} rows on they begin to mean something."
    )
    return [Finding("few rows", "warning", (), text)]


def find_leaks(columns: Sequence[Column], target: NDArray[Any], task: Task) -> list[Finding]:
    """Columns that almost determine the target by themselves while others do not."""
    if len(columns) < 2:
        return []
    rows = np.arange(len(target))
    if len(rows) > LEAK_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(len(rows), LEAK_ROWS, replace=False))
    limit = LEAKS[task]
    explain: Callable[[NDArray[np.int64]], float]
    if task == "classification":
        codes = np.unique(target, return_inverse=True)[1].astype(np.int64)[rows]
        explain = partial(explain_classes, codes=codes, at_least=limit)
    else:
        outputs = np.asarray(target, dtype=np.float64).reshape(len(target), -1)[rows].T

        def explain(bins: NDArray[np.int64]) -> float:
            return max(explain_numbers(bins, values, limit) for values in outputs)

    found = {}
    for column in columns:
        bins = np.unique(bin_column(column)[rows], return_inverse=True)[1]
        found[column.name] = explain(bins)
    suspects = {name: share for name, share in found.items() if share >= limit}
    if not suspects or len(suspects) > len(columns) / 2:
        return []  # where most columns know the target, it is simply easy
    return [
        Finding(
            "possible leak",
            "warning",
            (name,),
            f"Column {name!r} almost determines the target by itself (it explains "
            f"{format_share(share)} of it on rows not used to look). Would it be known before the "
            "target is? If not, leave it out: scores are far too good with it.",
        )
        for name, share in sorted(suspects.items(), key=lambda pair: -pair[1])
    ]


def find_class_sizes(classes: NDArray[Any], counts: NDArray[np.int64]) -> list[Finding]:
    """Classes with hardly any rows, and one class with nearly all."""
    found = []
    tiny = [str(name) for name, n_rows in zip(classes, counts, strict=True) if n_rows < TINY_CLASS]
    if tiny:
        one = len(tiny) == 1
        text = (
            f"{'Class' if one else f'{len(tiny)} classes,'} {list_texts(tiny, MOST_NAMED)}"
            f"{' has' if one else ', have'} fewer than {TINY_CLASS} rows: too few to learn from, "
            "and to judge by. Collect more, or join classes."
        )
        found.append(Finding("tiny classes", "warning", (), text))
    most = int(counts.argmax())
    share = counts[most] / counts.sum()
    if share >= ONE_SIDED:
        text = (
            f"{format_share(share)} of the rows are of class {str(classes[most])!r}: accuracy says "
            "little here. Judge by the area under the ROC curve or the log-loss; "
            'class_weight="balanced" makes rare classes count more.'
        )
        found.append(Finding("imbalanced classes", "note", (), text))
    return found


def find_outliers(target: NDArray[Any]) -> list[Finding]:
    """Targets so far out that a mistake in the data is likely, or that they rule squared errors."""
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
            f"{which} has {n_far} extreme value{'s' if n_far > 1 else ''} (e.g. {extreme:.6g}, "
            f"where half of all rows lie between {low:.6g} and {high:.6g}). Mistakes? If not, R² "
            "and RMSE are mostly about these rows."
        )
        found.append(Finding("extreme targets", "note", (), text))
    return found


def find_repeated_rows(columns: Sequence[Column], target: NDArray[Any]) -> list[Finding]:
    """Rows that are equal in every column, and those of them that differ in the target."""
    n_rows = len(target)
    rows = hash_rows(columns)
    _, group, sizes = np.unique(rows, return_inverse=True, return_counts=True)
    n_repeated = n_rows - len(sizes)
    if n_repeated == 0:
        return []
    outputs = np.asarray(target).reshape(n_rows, -1)
    codes = np.stack([pd.factorize(values)[0] for values in outputs.T], axis=1)
    pairs = pd.DataFrame(codes).assign(group=group).drop_duplicates()
    n_targets = np.bincount(pairs["group"].to_numpy(), minlength=len(sizes))
    n_contrary = int(sizes[n_targets > 1].sum())
    share = n_repeated / n_rows
    severity: Severity = "warning" if share >= MANY_REPEATED else "note"
    text = (
        f"{n_repeated:,} of {n_rows:,} rows ({format_share(share)}) "
        f"{'repeats' if n_repeated == 1 else 'repeat'} an earlier row in every column. If they are "
        "copies, folds share them and scores are too good: drop them. If they are different "
        "cases that look alike, all is well."
    )
    # Few columns of few levels repeat by chance: as often with each column shuffled by itself.
    by_chance = n_rows - len(np.unique(hash_rows(columns, np.random.default_rng(0))))
    found = []
    if by_chance < CHANCE * n_repeated:
        found.append(Finding("repeated rows", severity, (), text))
    if n_contrary:
        text = (
            f"{n_contrary:,} rows are equal to another row in every column and have a different "
            "target: no model can predict them all."
        )
        found.append(Finding("contradictory rows", "note", (), text))
    return found


def find_gaps(shares: Mapping[str, float]) -> list[Finding]:
    """Columns that are mostly missing, by the share of rows in which each is."""
    mostly = sorted(
        (name for name, share in shares.items() if share > MOSTLY_MISSING),
        key=lambda name: -shares[name],
    )
    if not mostly:
        return []
    one = len(mostly) == 1
    text = (
        f"Column{'' if one else 's'} {list_texts(mostly, MOST_NAMED)} "
        f"{'is' if one else 'are'} missing in more than half of the rows (up to "
        f"{format_share(shares[mostly[0]])}). What is learnt of them rests on few rows."
    )
    return [Finding("mostly missing", "note", tuple(mostly), text)]


def find_ignored(preprocessor: TablePreprocessor) -> list[Finding]:
    """Columns that the preprocessor left out, by reason, and those that look like numbers."""
    by_reason: dict[str, list[str]] = {}
    for decision in preprocessor.plan_.decisions:
        if decision.ignored:
            by_reason.setdefault(decision.ignored, []).append(decision.name)
    found = [
        Finding(
            "ignored columns",
            "note",
            tuple(names),
            f"Column{'' if len(names) == 1 else 's'} {list_texts(names, MOST_NAMED)} "
            f"{'is' if len(names) == 1 else 'are'} ignored: {reason}.",
        )
        for reason, names in by_reason.items()
    ]
    return found + [
        Finding(
            "numbers as text",
            "warning",
            (decision.name,),
            f"Column {decision.name!r} is taken as text: {decision.hint}.",
        )
        for decision in preprocessor.plan_.decisions
        if decision.hint
    ]


def hash_rows(
    columns: Sequence[Column], shuffle: np.random.Generator | None = None
) -> NDArray[np.uint64]:
    """A number per row, equal for rows that are equal in every column: (n,)

    With `shuffle`, rows that no longer belong together: each column in an order of its own.
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
