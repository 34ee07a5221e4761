"""The training record of a single net, as a file for the figures."""

from pathlib import Path
from typing import Any

import pandas as pd

from muddle.estimators.single import MLRRegressor
from muddle_bench.data.loading import load
from muddle_bench.run.splits import split_rows
from muddle_bench.run.store import write_whole
from muddle_bench.studies.points import BASE, NOISY
from muddle_bench.studies.reading import RECORD


def write_training_record(
    folder: str | Path,
    dataset: str = NOISY,
    *,
    split: int = 0,
    data_home: str | Path | None = None,
    device: str = "cpu",
    **overrides: Any,
) -> Path:
    """Train one net with the settings of the studies, and write its history into the folder."""
    history = train_record(dataset, split, data_home, device=device, **overrides)
    path = Path(folder) / f"{RECORD}.csv"
    with write_whole(path) as file:
        file.write(history.to_csv(index=False, lineterminator="\n").encode())
    return path


def train_record(
    dataset: str, split: int, data_home: str | Path | None, **overrides: Any
) -> pd.DataFrame:
    """Data set, iteration, loss, permutation term, validation score and penalty of one net."""
    data = load(dataset, "published", data_home)
    if data.task != "regression":
        raise ValueError(
            f"a training record is of a regression data set, and {dataset} is one of "
            f"{data.task}. `muddle datasets` lists both kinds."
        )
    rows = split_rows(len(data.y), split).train
    settings: dict[str, Any] = {"batch_size": BASE["batch_size"], "random_state": split}
    net = MLRRegressor.preset("mlr-2", settings="released", **settings | overrides)
    net.fit(data.X.iloc[rows], data.y[rows])
    # Not the seconds: the same net gives the same file.
    history = net.history_.drop(columns="seconds").reset_index()
    history.insert(0, "dataset", dataset)
    return history
