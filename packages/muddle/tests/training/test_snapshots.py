"""keep="cycles": nets as they are at the ends of the cycles, unscored."""

from dataclasses import replace

import pytest
import torch

from muddle.core.network import draw_nets
from muddle.training import planning
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData, TrainJob
from muddle.training.jobs import train_jobs
from muddle.training.planning import bytes_per_net, shared_bytes
from muddle.training.snapshots import Snapshot
from muddle.training.stopping import Deadline
from muddle.training.trainer import Trainer

CPU = torch.device("cpu")
CYCLES = TrainConfig(
    depth=2,
    width=24,
    max_iter=15,  # cycles end at 1, 3, 7 and 15
    n_permutations=3,
    dither=0.03,
    schedule="cycles",
    scale_rate=6.0,
    keep="cycles",
)
ENDS = (1, 3, 7, 15)
SEEDS = (11, 12, 13)


def make_data(n_rows=40, n_nets=3, weights=None):
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(n_rows, 4, generator=generator)
    labels = features[:, :2] + 0.3 * torch.randn(n_rows, 2, generator=generator)
    orders = torch.stack([torch.randperm(n_rows, generator=generator) for _ in range(n_nets)])
    n_validation = n_rows // 5
    return TrainingData(
        features, labels, weights, orders[:, n_validation:], orders[:, :n_validation]
    )


def fit(data, config=CYCLES, seeds=SEEDS, deadline=None):
    job = TrainJob(config, data, tuple(seeds), "r2")
    return train_jobs([job], device=CPU, deadline=deadline or Deadline(None))[0]


class Clock(Deadline):
    """A deadline that is over after a number of iterations."""

    def __init__(self, n_iterations):
        super().__init__(1.0)
        self.looks = n_iterations

    def is_over(self):
        self.looks -= 1
        return self.looks < 0


def nets_at(result, iteration):
    return torch.nonzero(result.best_iteration == iteration).flatten().tolist()


def assert_same_nets(ours, mine, theirs, yours):
    """These nets of one result are bit by bit those of another."""
    for a, b in zip(
        ours.nets.keep(mine).parameters(), theirs.nets.keep(yours).parameters(), strict=True
    ):
        assert torch.equal(a, b)
    for name in ("penalty", "head", "held_out_head", "validation_output"):
        assert torch.equal(getattr(ours, name)[mine], getattr(theirs, name)[yours])


def test_every_net_is_there_at_the_end_of_every_cycle():
    result = fit(make_data())
    assert result.best_iteration.tolist() == [end for end in ENDS for _ in SEEDS]
    assert result.kept == [0, 1, 2] * 4
    assert result.n_nets == 12
    assert result.n_iterations.tolist() == [15] * 12
    assert result.history.loss.shape == (16, 12)
    assert torch.equal(result.history.loss[:, :3], result.history.loss[:, 9:])


@pytest.mark.parametrize("batch_size", [4096, 10])
@pytest.mark.parametrize("end", ENDS[:-1])
def test_a_snapshot_is_the_net_of_a_run_cut_there(end, batch_size):
    config = replace(CYCLES, batch_size=batch_size)
    whole, cut = fit(make_data(), config), fit(make_data(), config, deadline=Clock(end))
    assert sorted(set(cut.best_iteration.tolist())) == [e for e in ENDS if e <= end]
    assert_same_nets(whole, nets_at(whole, end), cut, nets_at(cut, end))


def test_the_last_snapshot_is_the_trained_net():
    trainer = Trainer(make_data(), CYCLES, SEEDS, "r2", CPU)
    while not trainer.is_done:
        trainer.advance()
        trainer.look()
    result = trainer.result()
    last = result.nets.keep(nets_at(result, 15))
    for kept, trained in zip(last.parameters(), trainer.nets.parameters(), strict=True):
        assert torch.equal(kept, trained)
    assert torch.equal(result.penalty[nets_at(result, 15)], trainer.output.log_penalty.exp())


def test_a_run_cut_in_the_middle_of_a_cycle_leaves_the_nets_as_they_were():
    cut = fit(make_data(), deadline=Clock(5))
    assert cut.best_iteration.tolist() == [1, 1, 1, 3, 3, 3, 5, 5, 5]
    assert len(cut.history.seconds) == 5
    trainer = Trainer(make_data(), CYCLES, SEEDS, "r2", CPU)
    for _ in range(5):
        trainer.advance()
        trainer.look()
    for kept, there in zip(
        cut.nets.keep([6, 7, 8]).parameters(), trainer.nets.parameters(), strict=True
    ):
        assert torch.equal(kept, there)


@pytest.mark.parametrize("n_iterations", [None, 5])
def test_the_last_snapshot_alone_is_the_same(n_iterations):
    clocks = [None if n_iterations is None else Clock(n_iterations) for _ in range(2)]
    every = fit(make_data(), deadline=clocks[0])
    last = fit(make_data(), replace(CYCLES, keep="last"), deadline=clocks[1])
    end = n_iterations or 15
    assert last.best_iteration.tolist() == [end] * 3
    assert_same_nets(every, nets_at(every, end), last, [0, 1, 2])


@pytest.mark.parametrize("batch_size", [4096, 10])
@pytest.mark.parametrize("width", [8, 36, 64])  # primal, primal for all rows only, dual
@pytest.mark.parametrize("weighted", [False, True])
def test_heads_and_outputs_agree_with_a_direct_solve(width, weighted, batch_size):
    weights = torch.linspace(0.2, 3.0, 40) if weighted else None
    data = make_data(weights=weights)
    result = fit(data, replace(CYCLES, width=width, batch_size=batch_size))
    labels = data.labels.double()
    root = torch.ones(40, 1) if weights is None else weights.sqrt()[:, None]
    hidden = result.nets.map(torch.Tensor.double).hidden(data.features.double())
    eye = torch.eye(width, dtype=torch.float64)

    def solve(entry, rows):
        scaled = hidden[entry, rows] * root[rows].double()
        # The penalty was trained with the rows of a batch and grows with their number.
        penalty = result.penalty[entry].double() * len(rows) / min(batch_size, data.n_train)
        right = scaled.T @ (labels[rows] * root[rows].double())
        return torch.linalg.solve(scaled.T @ scaled + penalty * eye, right)

    for entry, net in enumerate(result.kept):
        held_out_head = solve(entry, data.train_rows[net])
        torch.testing.assert_close(result.held_out_head[entry], held_out_head, rtol=1e-7, atol=1e-8)
        head = solve(entry, torch.arange(40))
        torch.testing.assert_close(result.head[entry], head, rtol=1e-7, atol=1e-8)
        said = hidden[entry, data.validation_rows[net]] @ held_out_head
        torch.testing.assert_close(result.validation_output[entry], said, rtol=1e-7, atol=1e-8)


def test_a_head_without_held_out_rows_is_the_only_one_where_it_is_asked_for():
    result = fit(make_data(), replace(CYCLES, head="train"))
    assert torch.equal(result.head, result.held_out_head)
    assert not torch.allclose(result.head, fit(make_data()).head)


def test_a_net_that_diverges_from_the_start_is_in_no_snapshot():
    data = make_data()
    config = replace(CYCLES, head="train")  # the poisoned row is in no other net
    healthy = fit(data, config)
    train_rows = data.train_rows.clone()
    train_rows[1, 0] = 40
    poisoned = replace(
        data,
        features=torch.cat([data.features, torch.full((1, 4), 1e25)]),
        labels=torch.cat([data.labels, torch.zeros(1, 2)]),
        train_rows=train_rows,
    )
    result = fit(poisoned, config)
    assert result.kept == [0, 2] * 4
    assert not result.diverged.any()
    for end in ENDS:
        torch.testing.assert_close(
            result.head[nets_at(result, end)], healthy.head[nets_at(healthy, end)][[0, 2]]
        )


def test_a_net_that_diverges_on_the_way_is_in_the_snapshots_before():
    whole = fit(make_data())
    trainer = Trainer(make_data(), CYCLES, SEEDS, "r2", CPU)
    while not trainer.is_done:
        trainer.advance()
        trainer.look()
        if trainer.iteration == 5:
            trainer.nets.weights[1][1] = torch.nan
    result = trainer.result()
    assert result.kept == [0, 1, 2, 0, 1, 2, 0, 2, 0, 2]
    assert result.best_iteration.tolist() == [1, 1, 1, 3, 3, 3, 7, 7, 15, 15]
    assert result.diverged.tolist() == [net == 1 for net in result.kept]
    for entry, net in enumerate(result.kept):
        last = 5 if net == 1 else 16
        torch.testing.assert_close(
            result.history.loss[:last, entry], whole.history.loss[:last, net], rtol=1e-4, atol=1e-5
        )
    for end in ENDS[2:]:
        ours, theirs = nets_at(result, end), nets_at(whole, end)
        torch.testing.assert_close(result.head[ours], whole.head[theirs][[0, 2]])


def test_a_net_that_is_broken_when_the_snapshot_is_taken_is_left_out():
    trainer = Trainer(make_data(), CYCLES, SEEDS, "r2", CPU)
    while not trainer.is_done:
        trainer.advance()
        trainer.look()
        if trainer.iteration == 7:
            trainer.nets.scale[2] = torch.inf
    result = trainer.result()
    assert [result.kept[entry] for entry in nets_at(result, 7)] == [0, 1]


@pytest.mark.parametrize("place", ["weight", "bias", "scale", "penalty", "alive"])
def test_only_finite_nets_in_training_are_usable(place):
    generators = [torch.Generator().manual_seed(seed) for seed in range(3)]
    nets = draw_nets(
        4, depth=2, width=5, activation="selu", gain=1.0, generators=generators, scaled=True
    )
    penalty, alive = torch.ones(3), torch.ones(3, dtype=torch.bool)
    spoilt = {
        "weight": nets.weights[1][1, 2],
        "bias": nets.biases[0][1, 0],
        "scale": nets.scale[1, 3],
        "penalty": penalty[1:2],
        "alive": alive[1:2],
    }
    healthy = Snapshot.take(3, nets, penalty, torch.tensor([4, 6, 9]), alive)
    spoilt[place].fill_(False if place == "alive" else torch.nan)
    broken = Snapshot.take(3, nets, penalty, torch.tensor([4, 6, 9]), alive)
    assert healthy.usable().tolist() == [0, 1, 2]  # a copy
    assert broken.usable().tolist() == [0, 2]


def test_nothing_is_scored(monkeypatch):
    def refuse(*_):
        raise AssertionError("validation rows were asked for")

    monkeypatch.setattr(Trainer, "_score", refuse)
    result = fit(make_data())
    assert result.score.isnan().all()
    assert result.history.score.isnan().all()
    assert result.history.loss.isfinite().all()


def test_snapshots_change_nothing_in_training():
    watched = fit(make_data())
    scored = fit(make_data(), replace(CYCLES, keep="best"))
    assert torch.equal(watched.history.loss[:, :3], scored.history.loss)
    assert torch.equal(watched.history.penalty[:, :3], scored.history.penalty)


@pytest.mark.parametrize("size", [1, 2])
def test_any_grouping_gives_the_same_snapshots(size, monkeypatch):
    job = TrainJob(CYCLES, make_data(), SEEDS, "r2")
    together = fit(make_data())
    monkeypatch.setattr(
        planning, "MOST_ON_CPU", shared_bytes(job, CPU) + size * bytes_per_net(job, CPU)
    )
    grouped = fit(make_data())
    assert sorted(grouped.kept) == sorted(together.kept)
    for net in range(3):
        for end in ENDS:
            (ours,) = (e for e in nets_at(grouped, end) if grouped.kept[e] == net)
            (theirs,) = (e for e in nets_at(together, end) if together.kept[e] == net)
            torch.testing.assert_close(
                grouped.validation_output[ours],
                together.validation_output[theirs],
                rtol=1e-4,
                atol=1e-5,
            )


def test_an_iteration_that_is_replayed_after_the_last_step_moves_nothing():
    # A recorded iteration does not know that it is the last one, and steps all the same.
    trainer = Trainer(make_data(), CYCLES, SEEDS, "r2", CPU)
    for _ in range(15):
        trainer.advance()
        trainer.look()
    before = trainer.nets.map(torch.clone)
    trainer.slot.zero_()
    trainer._iterate()
    for mine, theirs in zip(trainer.nets.parameters(), before.parameters(), strict=True):
        assert torch.equal(mine, theirs)
