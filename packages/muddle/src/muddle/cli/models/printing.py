"""Scores, intervals, members and importances for people to read."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table

from muddle.cli.output import make_console, print_table

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
