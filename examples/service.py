"""A web service around a saved model: muddle_runtime and FastAPI, without torch, pandas, sklearn.

pip install muddle-runtime fastapi uvicorn
MODEL=homes.muddle uvicorn service:app
"""

import logging
import os
import warnings
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

import muddle_runtime

model = muddle_runtime.load_model(os.environ.get("MODEL", "homes.muddle"))
app = FastAPI(title="Predictions of a muddle model")
logging.captureWarnings(True)  # such as: an unseen level in column 'kind'
warnings.simplefilter("always", muddle_runtime.MuddleWarning)

Row = dict[str, bool | int | float | str | None]  # None: a gap; dates as "2024-05-31"


class Question(BaseModel):
    """Rows by the names of columns."""

    rows: Annotated[list[Row], Field(min_length=1, max_length=10_000)]
    coverage: Annotated[float | None, Field(gt=0, lt=1)] = None  # also answer intervals


@app.post("/predict")
def predict(question: Question) -> dict[str, Any]:  # not async: requests are answered in threads
    """Predictions; of classes, their probabilities too."""
    try:
        found = {"predictions": model.predict(question.rows).tolist()}
        if model.task == "classification":
            found["classes"] = model.classes_.tolist()
            found["probabilities"] = model.predict_proba(question.rows).tolist()
        elif question.coverage is not None:
            ends = model.predict_interval(question.rows, coverage=question.coverage)
            found["intervals"] = ends.tolist()
    except (ValueError, TypeError) as error:  # it names column, row and value
        raise HTTPException(422, str(error)) from error
    return found


@app.get("/")
def describe() -> dict[str, Any]:
    """What is served, and what rows must hold."""
    columns = [column for column in model.columns if column.needed]
    return {"model": repr(model), "columns": {column.name: column.holds for column in columns}}
