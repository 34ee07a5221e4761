"""What `muddle fit` tells about the model it has made."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from muddle.cli.output import make_console, print_table

INTERVAL = 0.9
N_MEMBERS = 5
N_COLUMNS = 10
SCORE_NAMES = {
    "r2": "R²",
    "rmse": "RMSE",
    "mae": "MAE",
    "accuracy": "accuracy",
    "auc": "AUC",
    "log_loss": "log-loss",
    "calibration_error": "calibration error",
}
Floats = NDArray[np.float64]


def score_out_of_fold(estimator: Any) -> dict[str, Any]:
    """Scores of the training rows, each predicted by nets that had not seen it, as on the page
    that `report` writes; of numbers also how its intervals do."""
    from muddle.fit_report.facts import gather_facts

    facts = gather_facts(estimator, None, None)
    if facts.classes is not None:
        found, areas = facts.classes, facts.classes.areas()
        scores = {
            "accuracy": found.accuracy,
            "auc": float(np.mean(list(areas.values()))) if areas else None,
            "log_loss": found.log_loss,
            "calibration_error": found.calibration_error,
        }
        return {"scores": scores}
    (numbers,) = facts.numbers
    lower, upper = numbers.bounds(INTERVAL)
    interval = {
        "level": INTERVAL,
        "coverage": numbers.judge_coverage(INTERVAL),
        "mean_width": float(np.mean(upper - lower)),
    }
    scores = {"r2": numbers.r2, "rmse": numbers.rmse, "mae": numbers.mae}
    return {"scores": scores, "interval": interval}


def list_members(estimator: Any) -> list[dict[str, Any]]:
    """The members that count most: what they are, their own score, their share of the answer."""
    board = estimator.leaderboard_
    counting = board[board["weight"] > 0].sort_values("weight", ascending=False, kind="stable")
    return [
        {
            "configuration": str(row["configuration"]),
            "iteration": int(row["iteration"]),
            "score": float(row["score"]),
            "weight": float(row["weight"]),
        }
        for _, row in counting.head(N_MEMBERS).iterrows()
    ]


def rank_importances(
    names: list[str], importances: Floats, spread: Floats | None
) -> list[dict[str, Any]]:
    """Columns, the most important first; none where there was no time to find out."""
    if np.isnan(importances).any():
        return []
    order = np.argsort(-importances, kind="stable")
    return [
        {
            "column": names[place],
            "importance": float(importances[place]),
            "deviation": None if spread is None else float(spread[place]),
        }
        for place in order
    ]


def print_scores(scores: Mapping[str, Any], title: str) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(justify="right")
    for name, value in scores.items():
        grid.add_row(f"  {SCORE_NAMES.get(name, name)}", format_number(value))
    console = make_console()
    console.print(title)
    console.print(grid)


def print_interval(interval: Mapping[str, Any]) -> None:
    """How many rows an interval holds and how wide it is, in one line."""
    level = f"{100 * interval['level']:g} %"
    if not np.isfinite(interval["coverage"]) or not np.isfinite(interval["mean_width"]):
        make_console().print(f"  Too few rows for finite intervals of {level}")
        return
    make_console().print(
        f"  Intervals of {level} hold {100 * interval['coverage']:.1f} % of the rows; they are "
        f"{format_number(interval['mean_width'])} wide on average",
        soft_wrap=True,
    )


def print_importances(rows: list[dict[str, Any]], title: str, most: int = N_COLUMNS) -> None:
    make_console().print(title)
    shown = [
        {
            "column": row["column"],
            "importance": f"{row['importance']:.4f}",
            "±": "" if row["deviation"] is None else f"{row['deviation']:.4f}",
        }
        for row in rows[:most]
    ]
    print_table(["column", "importance", "±"], shown, right=["importance", "±"])
    if len(rows) > most:
        make_console().print(f"and {len(rows) - most} more")


def print_members(rows: list[dict[str, Any]]) -> None:
    shown = [
        {
            "configuration": row["configuration"],
            "iteration": row["iteration"],
            "score": f"{row['score']:.3f}",
            "share": f"{100 * row['weight']:.0f} %",
        }
        for row in rows
    ]
    make_console().print("What the answer is made of")
    columns = ["configuration", "iteration", "score", "share"]
    print_table(columns, shown, right=["score", "share"])


def format_number(value: float | None) -> str:
    """Four digits that count; large numbers are not cut."""
    if value is None or value != value:
        return "none"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def format_size(n_bytes: int) -> str:
    size, unit = float(n_bytes), "bytes"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"


def format_seconds(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{round(seconds / 60)} min"
