"""What `muddle fit` tells about the model it has made, as plain data."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

INTERVAL = 0.9
N_MEMBERS = 5
Floats = NDArray[np.float64]


def score_out_of_fold(estimator: Any) -> dict[str, Any]:
    """Scores of the training rows, each predicted by nets that had not seen it, as on the page
    that `report` writes; of numbers also how its intervals do."""
    from muddle.page.facts import gather_facts

    facts = gather_facts(estimator, None, None)
    if facts.classes is not None:
        found, areas = facts.classes, facts.classes.areas
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
