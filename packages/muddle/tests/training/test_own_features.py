"""Tables of each net's own, rates of each parameter's own, and the memory for them."""

import weakref
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from muddle.core.loss import combine, make_loss
from muddle.core.ridge import factor_with_recovery, gram_matrix, ridge_residual
from muddle.training import planning
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData, TrainJob
from muddle.training.jobs import train_jobs
from muddle.training.planning import CPU_WORKSPACE, bytes_per_net, shared_bytes
from muddle.training.schedule import rate_factors
from muddle.training.stopping import Deadline
from muddle.training.trainer import Trainer

CPU = torch.device("cpu")
SMALL = TrainConfig(depth=2, width=24, max_iter=8, n_permutations=3, structured_noise=0.0)
MODERN = replace(
    SMALL, loss="paper", activation="selu", schedule="cycles", scale_rate=6.0, second_moment=0.95
)
CYCLES = replace(MODERN, keep="cycles", max_iter=15)
SEEDS = (11, 12, 13)


def make_data(n_rows=40, n_nets=3, own_tables=False, weights=None, n_features=4):
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(n_rows, n_features, generator=generator)
    labels = features[:, :1] + 0.3 * torch.randn(n_rows, 1, generator=generator)
    orders = torch.stack([torch.randperm(n_rows, generator=generator) for _ in range(n_nets)])
    if own_tables:
        shifts = torch.randn(n_nets, n_rows, n_features, generator=generator)
        features = features + 0.5 * shifts
    n_validation = n_rows // 5
    return TrainingData(
        features, labels, weights, orders[:, n_validation:], orders[:, :n_validation]
    )


def fit(data, config=SMALL, seeds=SEEDS):
    job = TrainJob(config, data, tuple(seeds), "r2")
    return train_jobs([job], device=CPU, deadline=Deadline(None))[0]


def fit_alone(data, net, config):
    """One net with its table as the only one there is."""
    own = replace(data.keep(torch.tensor([net])), features=data.features[net])
    return fit(own, config, SEEDS[net : net + 1])


# ------------------------------------------------------------------ a table for each net


@pytest.mark.parametrize("config", [SMALL, CYCLES, replace(SMALL, batch_size=10, head="train")])
def test_equal_tables_give_the_same_bits_as_one(config):
    data = make_data()
    one = fit(data, config)
    many = fit(replace(data, features=data.features.expand(3, -1, -1).clone()), config)
    for name in ("head", "held_out_head", "validation_output", "penalty", "best_iteration"):
        assert torch.equal(getattr(many, name), getattr(one, name))
    assert torch.equal(many.history.loss, one.history.loss)


@pytest.mark.parametrize("config", [SMALL, CYCLES, replace(SMALL, batch_size=10, head="train")])
def test_every_net_sees_its_own_table(config):
    data = make_data(own_tables=True)
    together = fit(data, config)
    for net in range(3):
        mine = [entry for entry, kept in enumerate(together.kept) if kept == net]
        alone = fit_alone(data, net, config)
        for name in ("head", "held_out_head", "validation_output"):
            torch.testing.assert_close(
                getattr(together, name)[mine], getattr(alone, name), rtol=1e-3, atol=1e-4
            )
    assert not torch.allclose(together.head[0], fit_alone(data, 1, config).head[0])


@pytest.mark.parametrize("config", [SMALL, CYCLES, replace(SMALL, batch_size=10)])
@pytest.mark.parametrize("size", [1, 2])
def test_nets_in_groups_see_their_own_tables(config, size, monkeypatch):
    data = make_data(own_tables=True)
    together = fit(data, config)
    job = TrainJob(config, data, SEEDS, "r2")
    most = shared_bytes(job, CPU) + size * bytes_per_net(job, CPU)
    monkeypatch.setattr(planning, "MOST_ON_CPU", most)
    grouped = fit(data, config)
    if config.keep == "best":
        assert grouped.kept == together.kept
    order = [
        next(
            other
            for other in range(together.n_nets)
            if together.kept[other] == grouped.kept[entry]
            and together.best_iteration[other] == grouped.best_iteration[entry]
        )
        for entry in range(grouped.n_nets)
    ]
    torch.testing.assert_close(
        grouped.validation_output, together.validation_output[order], rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("config", [CYCLES, replace(CYCLES, batch_size=10)])
def test_nets_see_their_own_tables_after_another_has_left(config):
    data = make_data(own_tables=True)
    trainer = Trainer(data, config, SEEDS, "r2", CPU)
    while not trainer.is_done:
        trainer.advance()
        trainer.look()
        if trainer.iteration == 4:
            trainer.nets.weights[0][0] = torch.nan
    result = trainer.result()
    for net in (1, 2):
        alone = fit_alone(data, net, config)
        mine = [entry for entry, kept in enumerate(result.kept) if kept == net]
        assert len(mine) == 4
        torch.testing.assert_close(
            result.validation_output[mine], alone.validation_output, rtol=1e-3, atol=1e-4
        )


def test_rows_are_looked_up_in_each_nets_table():
    data = make_data(own_tables=True)
    assert (data.n_rows, data.n_features) == (40, 4)
    rows = torch.tensor([[0, 5], [7, 7], [39, 1]])
    expected = torch.stack([data.features[net, rows[net]] for net in range(3)])
    assert torch.equal(data.features_of(rows), expected)
    some = data.keep(torch.tensor([2, 0]))
    assert torch.equal(some.features_of(rows[[2, 0]]), expected[[2, 0]])
    job = TrainJob(SMALL, data, SEEDS).part(1, 3)
    assert torch.equal(job.data.features_of(rows[1:]), expected[1:])


# ------------------------------------------------------------------ rates


@pytest.mark.parametrize("width", [8, 64])  # primal and dual
@pytest.mark.parametrize("weighted", [False, True])
def test_the_scale_steps_along_the_gradient_of_the_loss(width, weighted):
    config = replace(MODERN, width=width)
    data = make_data(weights=torch.linspace(0.2, 3.0, 40) if weighted else None)
    trainer = Trainer(data, config, SEEDS, "r2", CPU)
    nets = trainer.nets.map(lambda tensor: tensor.clone().requires_grad_())
    penalty = trainer.output.log_penalty.exp()
    batch = trainer.batches.at(trainer.slot)
    trainer.advance()

    root = data.weights_of(data.train_rows).sqrt()[..., None]
    hidden = nets.hidden(batch.features) * root
    factor = factor_with_recovery(gram_matrix(hidden.detach()), penalty)
    residual, _ = ridge_residual(hidden, batch.stack.flatten(2) * root, penalty, factor)
    loss = make_loss("regression", "paper", structured_noise=False)
    plain = (residual / root).reshape(batch.stack.shape)
    errors = loss.errors(plain, batch.stack, batch.weights)
    total = combine(errors, trainer.baseline).total.sum()
    expected = torch.autograd.grad(total, nets.parameters())
    for stepped, theirs in zip(trainer.nets.parameters(), expected, strict=True):
        torch.testing.assert_close(stepped.grad, theirs, rtol=1e-3, atol=1e-5)
    assert trainer.nets.scale.grad.abs().min() > 1e-6


class TextbookAdam:
    """Adam of one tensor, step by step in float64."""

    def __init__(self, value, second_moment):
        self.value = value.double().clone()
        self.mean, self.square = torch.zeros_like(self.value), torch.zeros_like(self.value)
        self.second_moment, self.n_steps = second_moment, 0

    def step(self, gradient, rate):
        self.n_steps += 1
        gradient, decay = gradient.double(), self.second_moment
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = decay * self.square + (1 - decay) * gradient.square()
        mean = self.mean / (1 - 0.9**self.n_steps)
        square = self.square / (1 - decay**self.n_steps)
        self.value -= rate * mean / (square.sqrt() + 1e-8)

    def keep(self, nets):
        for name in ("value", "mean", "square"):
            setattr(self, name, getattr(self, name)[nets])


@pytest.mark.parametrize("schedule", ["constant", "cycles"])
@pytest.mark.parametrize("second_moment", [0.95, 0.999])
@pytest.mark.parametrize("leaves", [False, True])
def test_schedule_second_moment_and_scale_rate_reach_adam(schedule, second_moment, leaves):
    config = replace(MODERN, schedule=schedule, second_moment=second_moment, max_iter=15)
    trainer = Trainer(make_data(), config, SEEDS, "r2", CPU)
    factors = rate_factors(schedule, 15)

    def parameters():
        return [*trainer.nets.parameters(), trainer.output.log_penalty]

    multiples = [6.0 if p is trainer.nets.scale else 1.0 for p in parameters()]
    assert multiples.count(6.0) == 1
    adams = [TextbookAdam(p, second_moment) for p in parameters()]
    for step in range(9):
        trainer.advance()
        for adam, parameter, multiple in zip(adams, parameters(), multiples, strict=True):
            adam.step(parameter.grad, config.rate * factors[step] * multiple)
            torch.testing.assert_close(parameter.double(), adam.value, rtol=1e-4, atol=1e-5)
        if leaves and step == 4:
            trainer.status.alive[1] = False
            for adam in adams:
                adam.keep([0, 2])
        trainer.look()
    assert len(trainer.places) == (2 if leaves else 3)


def test_without_a_rate_there_is_no_scale():
    trainer = Trainer(make_data(), SMALL, SEEDS, "r2", CPU)
    assert trainer.nets.scale is None
    assert fit(make_data(), replace(SMALL, scale_rate=1.0)).nets.scale is not None


def test_the_scale_learns_which_features_matter():
    config = replace(CYCLES, max_iter=60, learning_rate=3e-3)
    scale = fit(make_data(n_rows=200), config).nets.scale[-3:, :, 0]
    assert (scale[:, 0] > scale[:, 1:].max(1).values).all()


# ------------------------------------------------------------------ memory


class Storages(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive, and the most that ever were."""

    def __init__(self):
        super().__init__()
        self.alive, self.most, self._known = 0, 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage):
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self.alive += size
            self.most = max(self.most, self.alive)
            weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key, size):
        self._known.discard(key)
        self.alive -= size


def bytes_used(job):
    with Storages() as storages:
        train_jobs([job], device=CPU, deadline=Deadline(None))
    return storages.most


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"scale_rate": 0.0},
        {"keep": "best"},
        {"keep": "last"},
        {"activation": "mish"},
        {"depth": 1},
        {"depth": 3, "width": 64},
        {"batch_size": 50},
    ],
    ids=str,
)
@pytest.mark.parametrize("own_tables", [False, True])
@pytest.mark.parametrize(("n_rows", "n_features"), [(200, 4), (200, 60), (800, 100)])
def test_no_more_memory_is_used_than_planned(change, own_tables, n_rows, n_features):
    config = replace(CYCLES, **{"max_iter": 5, "width": 48} | change)
    data = make_data(n_rows, n_nets=6, own_tables=own_tables, n_features=n_features)
    job = TrainJob(config, data, tuple(range(6)), "r2")
    # Libraries' workspaces are not tensors, and far larger than these nets.
    planned = shared_bytes(job, CPU) - CPU_WORKSPACE + 6 * bytes_per_net(job, CPU)
    used = bytes_used(job)
    assert used <= planned
    assert used > planned / 5  # the count sees what there is


def test_more_snapshots_and_a_scale_are_planned_for():
    job = TrainJob(SMALL, make_data(), SEEDS, "r2")
    base = bytes_per_net(job, CPU)
    for larger in ({"scale_rate": 1.0}, {"schedule": "cycles", "keep": "cycles"}):
        assert bytes_per_net(replace(job, config=replace(SMALL, **larger)), CPU) > base
