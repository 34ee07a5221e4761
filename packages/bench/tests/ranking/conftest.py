"""Exported tables made of a few scores."""

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from muddle_bench.ranking import COLUMNS

DEFAULTS = {"recipe": "published", "task": "regression", "split": 0, "family": "F", "status": "ok"}
DEFAULTS |= {"fit_seconds": 1.0, "predict_seconds": 0.1, "rows_hash": "abc"}
DEFAULTS |= {"threads": 1, "device": "cpu"}


def make_table(*records: dict) -> pd.DataFrame:
    """A frame as an exported table has it, from records of the fields that matter to a test."""
    return pd.DataFrame([{**DEFAULTS, **record} for record in records]).reindex(columns=COLUMNS)


def spread_scores(scores: dict, families: dict, metric: str = "r2") -> pd.DataFrame:
    """A table from {data set: {method: [score per split]}}; a word is a status, not a score."""
    task = "regression" if metric == "r2" else "classification"
    records = []
    for dataset, methods in scores.items():
        for method, values in methods.items():
            for split, value in enumerate(values):
                record = {"dataset": dataset, "method": method, "split": split, "task": task}
                record |= {"family": families.get(method, "F"), "rows_hash": f"{dataset}{split}"}
                if isinstance(value, str):
                    record |= {"status": value, "reason": f"{value} for a reason"}
                else:
                    # Every finished classification has an accuracy.
                    record |= {"accuracy": 0.5} if task == "classification" else {}
                    record |= {metric: value}
                records.append(record)
    return make_table(*records)


@pytest.fixture(scope="session")
def table_of() -> Callable[..., pd.DataFrame]:
    return make_table


@pytest.fixture(scope="session")
def table_from_scores() -> Callable[..., pd.DataFrame]:
    return spread_scores


@pytest.fixture(scope="session")
def published_folder() -> Path:
    beside = Path(__file__).resolve().parents[5] / "shared" / "paper" / "published"
    folder = Path(os.environ.get("MUDDLE_PUBLISHED", beside))
    if not folder.is_dir():
        pytest.skip("needs the published tables: $MUDDLE_PUBLISHED or ../shared/paper/published")
    return folder
