"""Small jobs on random tables, and calls that train them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from muddle.core.device import torch_threads
from muddle.training import jobs as jobs_module
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData, TrainJob
from muddle.training.processes import ALONE
from muddle.training.stopping import Deadline
from muddle.training.streamed import Stream, StreamedTrainer, read_start
from muddle.training.trainer import Trainer

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread():
    """Nets are not divided among threads, unless a test asks for it."""
    with torch_threads(1):
        yield


@pytest.fixture(scope="session")
def small():
    return TrainConfig(depth=2, width=24, max_iter=8, n_permutations=3, dither=0.03)


@pytest.fixture(scope="session")
def cycles(small):
    """Snapshots at iterations 1, 3, 7 and 15."""
    return replace(small, max_iter=15, schedule="cycles", scale_rate=6.0, keep="cycles")


def make_training_data(
    n_rows=40, n_nets=3, n_labels=1, n_features=4, weighted=False, own_tables=False, classes=False
):
    """A table of which every net validates on another fifth."""
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(n_rows, n_features, generator=generator)
    labels = features[:, :n_labels] + 0.3 * torch.randn(n_rows, n_labels, generator=generator)
    labels = torch.where(labels > 0, 1.0, -1.0) if classes else labels
    orders = torch.stack([torch.randperm(n_rows, generator=generator) for _ in range(n_nets)])
    if own_tables:
        features = features + 0.5 * torch.randn(n_nets, n_rows, n_features, generator=generator)
    weights = torch.linspace(0.2, 3.0, n_rows) if weighted else None
    n_held_out = n_rows // 5
    return TrainingData(features, labels, weights, orders[:, n_held_out:], orders[:, :n_held_out])


@pytest.fixture(scope="session")
def make_data():
    return make_training_data


@pytest.fixture(scope="session")
def make_job():
    """A job with seeds from 11 on; the other options are those of make_data."""

    def make(config, n_nets=3, **options):
        data = make_training_data(n_nets=n_nets, classes=config.task != "regression", **options)
        return TrainJob(config, data, tuple(range(11, 11 + n_nets)))

    return make


@pytest.fixture(scope="session")
def train():
    """The result of each job."""

    def train_all(*jobs, device=CPU, deadline=None, reporter=None):
        deadline = deadline or Deadline(None)
        return jobs_module.train_jobs(jobs, device=device, deadline=deadline, reporter=reporter)

    return train_all


@pytest.fixture(scope="session")
def fit(train):
    """The result of one configuration on a table."""

    def fit_one(data, config, seeds=None, **options):
        seeds = seeds or range(11, 11 + len(data.train_rows))
        return train(TrainJob(config, data, tuple(seeds)), **options)[0]

    return fit_one


@pytest.fixture(scope="session")
def make_trainer():
    return lambda data, config, device=CPU: Trainer(
        data, config, tuple(range(11, 11 + len(data.train_rows))), "r2", device
    )


@pytest.fixture(scope="session")
def finish():
    """Train to the end; `changes` are made before the iterations with these numbers."""

    def run(trainer, changes=None):
        while not trainer.is_done:
            trainer.advance()
            trainer.look()
            if changes and trainer.iteration in changes:
                changes[trainer.iteration](trainer)
        return trainer.result()

    return run


@pytest.fixture(scope="session")
def poison():
    """A table with one more row, too large for any loss, that only one net trains on."""

    def add_row(data, net):
        train_rows = data.train_rows.clone()
        train_rows[net, 0] = data.n_rows
        return replace(
            data,
            features=torch.cat([data.features, torch.full((1, data.n_features), 1e25)]),
            labels=torch.cat([data.labels, torch.zeros(1, data.labels.shape[1])]),
            train_rows=train_rows,
        )

    return add_row


@pytest.fixture
def limit_group(monkeypatch):
    """Let only this many nets of a job be trained side by side."""

    def limit(job, size):
        most = jobs_module.shared_bytes(job, CPU) + size * jobs_module.bytes_per_net(job, CPU)
        monkeypatch.setattr(jobs_module, "MOST_ON_CPU", most)

    return limit


class Clock(Deadline):
    """A deadline that is over after a number of looks, one per iteration."""

    def __init__(self, n_looks):
        super().__init__(1.0)
        self.n_looks = n_looks

    def is_over(self):
        self.n_looks -= 1
        return self.n_looks < 0


@pytest.fixture(scope="session")
def make_clock():
    return Clock


class ArraySource:
    """A BatchSource of rows in memory. Ranks take turns; orders: of some epochs, given."""

    def __init__(self, features, labels, weights, held_out, shuffles=True):
        self.features, self.labels, self.held_out = features, labels, held_out
        self.weights = None if weights is None else np.asarray(weights)
        self.n_rows = int((~held_out).sum())
        self.n_features, self.n_labels = features.shape[1], labels.shape[1]
        self.level_widths = ()
        self.shuffles, self.orders, self.requests = shuffles, [], []

    def order_of(self, request):
        part, rank = request["part"], request["rank"]
        chosen = {"train": ~self.held_out, "validation": self.held_out}[part]
        rows = np.flatnonzero(chosen)[rank :: request["n_ranks"]]
        if not (request["shuffle"] and self.shuffles):
            return rows
        if self.orders:
            return rows[self.orders[min(request["epoch"], len(self.orders) - 1)]]
        key = [request["seed"], request["epoch"], rank]
        return np.random.default_rng(key).permutation(rows)

    def batches(self, part, *, epoch=0, seed=0, batch_size, shuffle, rank=0, n_ranks=1):
        request = {"epoch": epoch, "seed": seed, "shuffle": shuffle}
        request |= {"part": part, "rank": rank, "n_ranks": n_ranks}
        self.requests.append(request)
        order = self.order_of(request)
        for start in range(0, len(order), batch_size):
            own = order[start : start + batch_size]
            weights = None if self.weights is None else self.weights[own]
            yield self.features[own], self.labels[own], weights


@pytest.fixture(scope="session")
def array_source():
    return ArraySource


def make_rows(n_rows=60, n_nets=2, n_features=4, n_labels=1, weighted=False, classes=False, **more):
    """A source of random rows, the last fifth for validation, and the same rows in memory."""
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(n_rows, n_features, generator=generator)
    labels = features[:, :n_labels] + 0.3 * torch.randn(n_rows, n_labels, generator=generator)
    labels = torch.where(labels > 0, 1.0, -1.0) if classes else labels
    weights = torch.linspace(0.2, 3.0, n_rows) if weighted else None
    rows, n_train = torch.arange(n_rows).expand(n_nets, -1), n_rows - n_rows // 5
    own = rows[:, :n_train], rows[:, n_train:]
    held_out = np.arange(n_rows) >= n_train
    source = ArraySource(features.numpy(), labels.numpy(), weights, held_out, **more)
    return source, TrainingData(features, labels, weights, *own)


@pytest.fixture(scope="session")
def make_source():
    return make_rows


def take_step(source, config, ranks=ALONE, seeds=(11, 12, 13)):
    """Gradients of the first step, and the trainer that took it."""
    stream = Stream(source, seeds[0], CPU, ranks, lambda n_rows, purpose: None)
    start = read_start(stream, config, 1000)
    trainer = StreamedTrainer(stream, start, config, seeds, "r2", CPU)
    trainer.advance()
    return [parameter.grad.clone() for parameter in trainer._trained()], trainer


@pytest.fixture(scope="session")
def take_first_step():
    return take_step
