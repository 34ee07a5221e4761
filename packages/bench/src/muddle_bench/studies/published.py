"""The numbers that the paper prints of its studies, under our names; no torch."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("published.csv")
Key = tuple[str, str, str]  # study, data set, value


@dataclass(frozen=True)
class Printed:
    """One row; None where nothing is printed."""

    score: float
    bag: float | None
    score_val: float | None
    best_iteration: float | None
    ridge_init: float | None


@cache
def published_rows() -> dict[Key, Printed]:
    """All rows. The ablation is printed as a mean over data sets alone; the value of the penalty
    that the authors' search found is `heuristic`, and that of the largest batch `n`."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {
            (row["study"], row["dataset"], row["value"]): Printed(
                float(row["score"]),
                *(
                    float(row[name]) if row[name] else None
                    for name in ("bag", "score_val", "best_iteration", "ridge_init")
                ),
            )
            for row in csv.DictReader(file)
        }
