"""What a preprocessor tells people: what became of each column, what was ignored, what is new."""

import warnings
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from muddle.tables.checks import list_columns
from muddle.tables.decisions import Decision
from muddle.tables.numbers import Scaling
from muddle.tables.plan import Novelty, TablePlan

if TYPE_CHECKING:
    import pandas as pd

CALLER = 5  # stack levels from here to the line of the user's own code


def describe_plan(
    plan: TablePlan, names: Iterable[str], scaling: Scaling, marks: bool
) -> "pd.DataFrame":
    """One row per column of the table, also for those that were left out."""
    import pandas as pd  # here, not above: muddle.runtime imports this module without it

    n_features = Counter(column for column, _ in plan.features)
    decisions = {decision.name: decision for decision in plan.decisions}
    rows = []
    for name in names:
        row = {"column": name, "holds": "", "missing": 0, "treatment": "left out, as asked"}
        if name in decisions:
            decision = decisions[name]
            row["holds"] = decision.kind
            row["missing"] = decision.n_missing
            row["treatment"] = describe_treatment(decision, scaling, marks)
        rows.append({**row, "features": n_features[name]})
    return pd.DataFrame(rows).set_index("column")


def describe_treatment(decision: Decision, scaling: Scaling, marks: bool) -> str:
    """What became of a column, in a few words."""
    if decision.ignored:
        return f"ignored: {decision.ignored}"
    parts = []
    if decision.number is not None:
        form = "parts of the date" if decision.number == "date" else "number"
        scaled = "" if scaling == "none" else f", {scaling}"
        gaps = "; gaps marked" if decision.n_missing and marks else ""
        parts.append(f"{form}{scaled}{gaps}")
    if decision.levels is not None:
        what = "0/1" if decision.use == "one-hot" else "mean of the target"
        parts.append(f"{len(decision.levels)} levels as {what}")
    return " and ".join(parts)


def warn_about_ignored(decisions: Iterable[Decision]) -> None:
    """One warning for the columns that are left out, one for those that look like numbers."""
    by_reason: dict[str, list[str]] = {}
    for decision in decisions:
        if decision.ignored and not decision.expected:
            by_reason.setdefault(decision.ignored, []).append(decision.name)
    if by_reason:
        clauses = [
            f"{list_columns(names)} {'are' if len(names) > 1 else 'is'} {reason}"
            for reason, names in by_reason.items()
        ]
        warnings.warn(f"{'; '.join(clauses)}, and will be ignored.", UserWarning, stacklevel=CALLER)
    for decision in decisions:
        if decision.hint:
            warnings.warn(
                f"column {decision.name!r} is taken as text: {decision.hint}.",
                UserWarning,
                stacklevel=CALLER,
            )


def warn_about_novelties(novelties: Iterable[Novelty], caller: int = CALLER) -> None:
    """One warning for all that new rows hold and the training rows did not."""
    clauses = [
        f"column {novelty.name!r}: {novelty.n_rows} "
        + ("missing" if novelty.example is None else f"new (e.g. {novelty.example!r})")
        for novelty in novelties
    ]
    warnings.warn(
        "X holds values that the columns did not have in fit, taken as 'other' or the mean: "
        f"{', '.join(clauses)}.",
        UserWarning,
        stacklevel=caller,
    )
