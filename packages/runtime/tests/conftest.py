"""Three models of format 1 with the rows they were asked about and what they predicted."""

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from muddle_runtime.file import read_model
from muddle_runtime.fitted import FittedModel

FOLDER = Path(__file__).parent / "fixtures"


@dataclass(frozen=True)
class Stored:
    """A model file, its model, rows as records, and the recorded outputs."""

    path: Path
    model: FittedModel
    rows: list[dict[str, Any]]
    outputs: dict[str, Any]


def read_stored(kind: str) -> Stored:
    path = FOLDER / f"format1_{kind}.muddle"
    record = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    rows = [row | {"took": timedelta(seconds=row["took"])} for row in record["rows"]]
    return Stored(path, read_model(path), rows, record["answers"])


@pytest.fixture(scope="session", params=["regressor", "classifier", "ensemble"])
def stored(request):
    return read_stored(request.param)


@pytest.fixture(scope="session")
def regressor():
    return read_stored("regressor")


@pytest.fixture(scope="session")
def ensemble():
    return read_stored("ensemble")
