"""Two processes that torchrun starts here, with gloo: what they compute together."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from muddle.training.processes import ALONE, n_local_ranks
from muddle.training.streamed import choose_strategy, train_streamed

CPU = torch.device("cpu")
SEEDS = (11, 12, 13)
SCRIPT = Path(__file__).with_name("fit_in_processes.py")
ROWS = {"n_rows": 75}  # 60 for training: 30 for each of two processes
# Nothing random but start and permutations.
PLAIN = {"depth": 2, "width": 24, "max_iter": 8, "n_permutations": 3}
PLAIN |= {"structured_noise": 0.0, "dither": 0.0}
NOISY = PLAIN | {"structured_noise": 1.0, "dither": 0.03, "batch_size": 10}


def launch(folder, what, config, *, rows=ROWS, n_restarts=0, **fit):
    """What each of the two processes found."""
    options = {"rows": rows, "config": config, "fit": fit}
    (folder / "options.json").write_text(json.dumps(options))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", "2", "--max-restarts", str(n_restarts)]
    command = [*torchrun, str(SCRIPT), str(folder), what]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return [torch.load(folder / f"{what}-{rank}.pt") for rank in range(2)]


class Shard:
    """The rows of one process of two, as a source of its own."""

    def __init__(self, source, rank):
        self._source, self._rank = source, rank
        for name in ("n_features", "n_labels", "level_widths"):
            setattr(self, name, getattr(source, name))

    def batches(self, part, *, rank, n_ranks, **options):
        return self._source.batches(part, rank=self._rank, n_ranks=2, **options)


@pytest.mark.slow
def test_gradients_without_a_ridge_are_those_of_the_union_batch(
    make_source, small, take_first_step, tmp_path
):
    """The loss is a mean over rows: that of two halves is the mean of their losses."""
    config = PLAIN | {"head": "linear", "loss": "mean_square", "batch_size": 30}
    found = launch(tmp_path, "gradients", config, rows=ROWS)
    source, _ = make_source(**ROWS)
    union, trainer = take_first_step(source, replace(small, **config | {"batch_size": 60}))
    assert trainer.batches.n_rows == 60
    for ours in found:
        for mine, theirs in zip(ours, union, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_gradients_with_a_ridge_are_the_mean_of_those_of_the_shards(
    make_source, small, take_first_step, tmp_path
):
    """Each shard has a ridge of its own, so its loss is not a part of that of the union."""
    config = PLAIN | {"batch_size": 30, "penalty": 3.0}
    found = launch(tmp_path, "gradients", config, rows=ROWS)
    source, _ = make_source(**ROWS)
    settings = replace(small, **config)
    first, second = (take_first_step(Shard(source, rank), settings)[0] for rank in range(2))
    union, _ = take_first_step(source, replace(settings, batch_size=60))
    for ours in found:
        for mine, one, other in zip(ours, first, second, strict=True):
            torch.testing.assert_close(mine, (one + other) / 2, rtol=1e-4, atol=1e-7)
    assert not torch.allclose(found[0][0], union[0], rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_ranks_have_the_same_nets_and_the_heads_of_all_rows(weighted, make_source, small, tmp_path):
    config = NOISY | {"normalization": "batch", "dropout": 0.2}
    rows = ROWS | {"weighted": weighted}
    ours, theirs = launch(tmp_path, "rows", config, rows=rows, strategy="rows")
    for name in ("head", "held_out_head", "penalty", "score", "output", "labels", "loss"):
        assert torch.equal(ours[name], theirs[name]), name
    assert all(map(torch.equal, ours["nets"], theirs["nets"]))
    source, data = make_source(**rows)
    alone = train_streamed(source, replace(small, **config), SEEDS, device=CPU).trained
    order = iter(ours["nets"])
    nets = alone.nets
    for tensor in nets.tensors():
        tensor.copy_(next(order))
    hidden = nets.map(torch.Tensor.double).hidden(data.features.double())
    weights = torch.ones(75) if data.weights is None else data.weights
    weights, labels = weights.double()[:, None], data.labels.double()
    solved = {"held_out_head": slice(60), "head": slice(75)}
    for name, used in solved.items():
        own, n_rows = hidden[:, used], used.stop
        gram = own.mT @ (weights[used] * own)
        penalty = ours["penalty"].double() * n_rows / 10  # rows of a batch
        gram += penalty[:, None, None] * torch.eye(24, dtype=torch.float64)
        expected = torch.linalg.solve(gram, own.mT @ (weights[used] * labels[used]))
        torch.testing.assert_close(ours[name], expected, rtol=1e-6, atol=1e-6)
    # The sample is all validation rows, in the order of one process.
    torch.testing.assert_close(ours["labels"], data.labels[60:])
    expected = hidden[:, 60:] @ ours["held_out_head"]
    torch.testing.assert_close(ours["output"], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_nets_spread_over_ranks_are_those_of_one_process(make_source, small, tmp_path):
    ours, theirs = launch(tmp_path, "nets", NOISY)  # three nets, two processes
    source, _ = make_source(**ROWS)
    alone = train_streamed(source, replace(small, **NOISY), SEEDS, device=CPU).trained
    assert ours["kept"] == theirs["kept"] == [0, 1, 2]
    torch.testing.assert_close(ours["head"], alone.head, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours["score"], alone.score, rtol=1e-5, atol=1e-6)
    assert torch.equal(ours["head"], theirs["head"])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["rows", "nets"])
def test_a_killed_process_does_not_change_the_model(strategy, tmp_path):
    whole, _ = launch(tmp_path, "whole", NOISY, n_restarts=1, strategy=strategy)
    ours, theirs = (torch.load(tmp_path / f"killed-{rank}.pt") for rank in range(2))
    assert [(tmp_path / f"attempt-{rank}").read_text() for rank in range(2)] == ["1", "1"]
    for found in (ours, theirs):
        for name in ("head", "held_out_head", "penalty", "score", "output"):
            torch.testing.assert_close(found[name], whole[name], rtol=0, atol=0)
        torch.testing.assert_close(found["loss"], whole["loss"], rtol=0, atol=0, equal_nan=True)
    assert not list(tmp_path.glob("state*"))


@pytest.mark.slow
def test_too_few_rows_for_the_processes_are_an_error_in_all(tmp_path):
    with pytest.raises(RuntimeError, match=r"got 4 and 0 in process 0 of 2"):
        launch(tmp_path, "rows", PLAIN, rows={"n_rows": 9}, strategy="rows")


@pytest.mark.slow
def test_processes_with_other_seeds_are_an_error_in_all(tmp_path):
    with pytest.raises(RuntimeError, match=r"got other seeds in process .* random_state") as info:
        launch(tmp_path, "strangers", PLAIN)
    assert "in process 0" in str(info.value)
    assert "in process 1" in str(info.value)


@pytest.mark.slow
def test_estimators_fit_a_folder_in_two_processes(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "rows").mkdir()
    for part in range(4):
        frame = pd.DataFrame(rng.normal(size=(500, 2)), columns=["a", "b"])
        frame["y"] = 2 * frame["a"] + np.sin(2 * frame["b"]) + rng.normal(size=500) / 10
        frame["sign"] = np.where(frame["y"] > 0, "+", "-")
        frame.to_parquet(tmp_path / "rows" / f"{part}.parquet", index=False)
    ours, theirs = launch(tmp_path, "folder", PLAIN)
    assert ours == theirs
    assert ours["nets"] > 0.9  # R² of rows that they have not seen
    np.testing.assert_allclose(ours["flagship"], [1.0, -2.0 + np.sin(2)], atol=0.3)
    assert ours["classes"][0][0] > 0.5 > ours["classes"][1][0]  # P(+), as '+' < '-'


class Two(type(ALONE)):
    n_ranks = 2


def test_nets_are_spread_if_there_are_enough():
    assert choose_strategy("auto", 2, Two()) == "nets"
    assert choose_strategy("auto", 1, Two()) == "rows"
    assert choose_strategy("rows", 2, Two()) == "rows"
    with pytest.raises(ValueError, match="needs a net for each of the 2 processes, got 1 net"):
        choose_strategy("nets", 1, Two())


def test_one_process_alone_gets_back_what_it_gave(monkeypatch):
    tensor = torch.arange(3.0)
    ALONE.mean([tensor])
    ALONE.add([tensor])
    assert tensor.tolist() == [0.0, 1.0, 2.0]
    assert ALONE.gather(tensor) is tensor
    assert ALONE.gather_objects(1) == [1]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert n_local_ranks() == 4
