"""Run by torchrun: fits nets to shards of made-up rows, and writes what came of it.

fit_in_processes.py FOLDER WHAT, where FOLDER/options.json holds the options
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from conftest import make_rows, take_step

from muddle.training.config import TrainConfig
from muddle.training.jobs import Silent
from muddle.training.processes import find_ranks
from muddle.training.streamed import stream_config, train_streamed

CPU = torch.device("cpu")
SEEDS = (11, 12, 13)


class Killer(Silent):
    """Kills the last process at its fifth look, as long as torchrun has started it only once."""

    n_looks = 0

    def advance(self, n_net_iterations, loss, score):
        self.n_looks += 1
        is_last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
        if is_last and self.n_looks == 5 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder, what):
    if what == "folder":
        fit_folder(folder)
        return
    options = json.loads((folder / "options.json").read_text())
    source, _ = make_rows(**options["rows"])
    config = TrainConfig(**options["config"])
    if what == "gradients":
        found, trainer = take_step(source, config, find_ranks(CPU))
        torch.save(found, folder / f"{what}-{trainer.ranks.rank}.pt")
        return
    seeds = SEEDS if what != "strangers" else (11, 12, 13 + int(os.environ["RANK"]))
    with stream_config(**options["fit"]):
        write(train_streamed(source, config, seeds, device=CPU), folder / f"{what}-")
    if what != "whole":
        return
    saving = {"checkpoint": folder / "state", "checkpoint_minutes": 0}
    with stream_config(**options["fit"], **saving):
        fitted = train_streamed(source, config, seeds, device=CPU, reporter=Killer())
    write(fitted, folder / "killed-")
    attempt = folder / f"attempt-{os.environ['RANK']}"
    attempt.write_text(os.environ["TORCHELASTIC_RESTART_COUNT"])


def fit_folder(folder):
    """Estimators on rows that count as too many for memory."""
    from muddle import MLRClassifier, MuddleRegressor, stream_config
    from muddle.estimators import beyond_memory, pool

    beyond_memory.MOST_CELLS = 0
    pool.BASE = replace(pool.BASE, width=32, max_iter=30)
    with stream_config(strategy="rows"):
        model = MuddleRegressor(preset="fast", random_state=0).fit(folder / "rows", y="y")
        own = MLRClassifier(depth=1, width=16, max_iter=8, batch_size=100, random_state=0)
        own.fit(folder / "rows", y="sign")
    new = {"a": [0.5, -1.0], "b": [0.0, 1.0]}
    board = model.leaderboard_.set_index("configuration")["score"]
    found = {
        "flagship": model.predict(pd.DataFrame(new | {"sign": ["+", "-"]})).tolist(),
        "classes": own.predict_proba(pd.DataFrame(new | {"y": [1.0, -2.0]})).tolist(),
        "nets": float(board["bins, all rows"]),
    }
    torch.save(found, folder / f"folder-{os.environ['RANK']}.pt")


def write(fitted, stem):
    trained = fitted.trained
    found = {name: getattr(trained, name) for name in ("head", "held_out_head", "penalty", "score")}
    found |= {"nets": trained.nets.tensors(), "output": trained.validation_output}
    found |= {"labels": fitted.labels, "loss": trained.history.loss, "kept": trained.kept}
    torch.save(found, f"{stem}{os.environ['RANK']}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
