"""Write the model files that the tests keep of the present format, with what the models answer.

    python scripts/make_model_fixtures.py packages/runtime/tests/fixtures

Run once for a new format; files of earlier formats are never written again. The nets are small and
hardly trained: what counts is that a later version reads them and says the same. The tests take up
every file of the folder.
"""

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from muddle import (
    BagMLRClassifier,
    EnsMLRClassifier,
    MuddleClassifier,
    MuddleRegressor,
    load_model,
)
from muddle.estimators import bodies, pool
from muddle_runtime.file import FORMAT, Dtype

N_ROWS, N_NEW = 60, 8


def draw_table(n_rows: int, seed: int) -> pd.DataFrame:
    """Numbers, gaps, text, more levels than become features, booleans, dates and durations."""
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(rng.integers(0, 900 * 24, n_rows), "h")
    return pd.DataFrame(
        {
            "size": rng.normal(size=n_rows),
            "age": np.where(rng.random(n_rows) < 0.2, np.nan, rng.normal(50, 9, n_rows)),
            "kind": rng.choice(np.array(["flat", "house", None]), n_rows),
            "city": rng.choice([f"city {i}" for i in range(15)], n_rows),
            "garden": rng.random(n_rows) < 0.5,
            "sold": pd.Timestamp("2021-03-01") + days,
            "took": pd.to_timedelta(rng.integers(60, 9000, n_rows), "s"),
        }
    )


def draw_new_rows() -> pd.DataFrame:
    """Rows that the models have not seen, with gaps and levels that are new."""
    rows = draw_table(N_NEW, seed=7)
    rows.loc[0, "size"] = np.nan
    rows.loc[1, "kind"] = "castle"
    rows.loc[2, "city"] = "city 99"
    rows.loc[3, "sold"] = pd.NaT
    return rows


def to_json(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as a service would send them: dates in ISO 8601, durations in seconds, gaps as null."""
    rows = rows.assign(took=rows["took"].dt.total_seconds(), sold=rows["sold"].astype(str))
    return [
        {name: None if pd.isna(value) or value == "NaT" else value for name, value in row.items()}
        for row in rows.to_dict(orient="records")
    ]


def answer(model: Any, rows: pd.DataFrame) -> dict[str, Any]:
    """What the tests ask for again."""
    said = {"predict": model.predict(rows).tolist()}
    if hasattr(model, "predict_proba"):
        said["predict_proba"] = model.predict_proba(rows).tolist()
    if hasattr(model, "predict_interval"):
        said["predict_interval"] = model.predict_interval(rows, coverage=0.8).tolist()
        said["quantiles"] = model.predict(rows, quantiles=[0.1, 0.5, 0.9]).tolist()
    if hasattr(model, "predict_nets"):
        said["predict_nets"] = model.predict_nets(rows).tolist()
    return said


def main(folder: Path) -> None:
    table, rows = draw_table(N_ROWS, seed=0), draw_new_rows()
    noise = np.random.default_rng(1).normal(size=N_ROWS)
    price = np.exp(1.2 * table["size"].to_numpy() + 0.1 * noise)
    # The flagship has bodies of one size only; its pool is made small for these files alone.
    pool.BASE = replace(pool.BASE, width=8, max_iter=10)
    pool.MOST_ROUNDS = 1
    bodies.N_TREES = bodies.BOOSTING["max_iter"] = 5
    models = {
        "regressor": MuddleRegressor(random_state=0, device="cpu").fit(table, price),
        "classifier": MuddleClassifier(preset="fast", random_state=0, device="cpu").fit(
            table, np.array(["cheap", "dear", "fair"])[np.digitize(price, [0.7, 1.5])]
        ),
        "ensemble": EnsMLRClassifier(
            n_nets=3, width=16, max_iter=20, select="top", top_k=4, random_state=0, device="cpu"
        ).fit(table, price > 1),
        "schemes": BagMLRClassifier(
            n_nets=2,
            width=8,
            max_iter=20,
            activation="gelu",
            normalization="layer",
            residual=True,
            gated=True,
            random_state=0,
            device="cpu",
        ).fit(table, price > 1),
    }
    models["student"] = models["regressor"].distil(budget=2000)
    for name, model in models.items():
        dtype: Dtype = "float16" if name == "classifier" else "float32"
        path = model.save(folder / f"format{FORMAT}_{name}.muddle", dtype=dtype)
        record = {"rows": to_json(rows), "answers": answer(load_model(path), rows)}
        path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
        print(f"{path}: {path.stat().st_size:,} bytes, {model.model_.bodies}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
