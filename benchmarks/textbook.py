"""An MLR net written literally from the paper, and the table that the benchmarks train on.

A J x J inverse, autograd through it, one net at a time. The whole fit is here: validation split,
permutations, the grid of first penalties with one inverse per point, mini-batches, a validation
score and the best weights at every iteration, and a head solved on the training rows.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muddle.training.config import DITHER, LEARNING_RATES, PAPER

Layers = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class TextbookFit:
    """One net at its best iteration, and the seconds that it took."""

    layers: Layers
    head: Tensor  # (width, 1)
    score: float  # R² of the validation rows
    first_penalty: float
    seconds: list[float]  # of each iteration
    total: float  # seconds of the whole fit

    @torch.no_grad()
    def predict(self, features: Tensor) -> Tensor:
        """Standardised targets. features (n, F) -> (n, 1)"""
        return hidden_of(self.layers, features) @ self.head


def make_table(
    n_train: int, n_features: int = 10
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """As many rows as leave n_train for training after 20 % validation rows."""
    rng = np.random.default_rng(0)
    n_rows = round(n_train / 0.8)
    X = rng.normal(size=(n_rows, n_features))
    return X, X[:, 0] + np.sin(X[:, 1]) + 0.5 * rng.normal(size=n_rows)


def sync(device: str) -> None:
    """Wait for the device, so that a clock measures all of its work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def hidden_of(layers: Layers, features: Tensor) -> Tensor:
    for weight, bias in layers:
        features = torch.relu(features @ weight + bias)
    return features


def invert_gram(hidden: Tensor, penalty: Tensor) -> Tensor:
    """(A'A + penalty I)^-1. hidden (n, J) -> (J, J)"""
    eye = torch.eye(hidden.shape[1], device=hidden.device)
    inverse: Tensor = torch.linalg.inv(hidden.T @ hidden + penalty * eye)
    return inverse


def make_projector(hidden: Tensor, penalty: Tensor) -> Tensor:
    """(A'A + penalty I)^-1 A': times labels, it is the head. hidden (n, J) -> (J, n)"""
    return invert_gram(hidden, penalty) @ hidden.T


def mlr_loss(
    hidden: Tensor,
    projector: Tensor,
    labels: Tensor,
    permuted: Tensor,
    deviation: Tensor,
    *,
    structured_noise: float,
    dither: float,
    generator: torch.Generator,
) -> Tensor:
    """The paper's loss: error of the labels and gap of the permuted labels, with both noises.

    labels (n, 1), permuted (n, T), deviation: standard deviation of the training labels
    """
    hat = hidden @ projector

    def errors_of(columns: Tensor) -> Tensor:
        def draw(scale: float) -> Tensor:
            return scale * torch.randn(columns.shape, generator=generator, device=columns.device)

        noisy, structured = columns + draw(dither), draw(structured_noise)
        residual = noisy + structured - hat @ structured - hat @ noisy
        return residual.square().mean(0).sqrt()

    return errors_of(labels).mean() + (deviation - errors_of(permuted)).abs().mean()


def fit_textbook(
    X: NDArray[np.float64],
    y: NDArray[np.float64],
    *,
    depth: int,
    width: int = PAPER.width,
    n_iterations: int = 200,
    batch_size: int = PAPER.batch_size,
    learning_rate: float | None = None,  # None: the paper's for this depth
    penalty: float | None = None,  # None: from the paper's grid
    n_permutations: int = PAPER.n_permutations,
    dither: float = DITHER,
    structured_noise: float = PAPER.structured_noise,
    score_all_rows: bool = True,
    device: str = "cpu",
    seed: int = 0,
) -> TextbookFit:
    """Train one net as the paper says. score_all_rows=False: with more training rows than a batch
    holds, iterations are scored with the head of their batch, as the released code does."""
    sync(device)
    begin = time.perf_counter()
    generator = torch.Generator(device).manual_seed(seed)
    order = torch.randperm(len(X), generator=generator, device=device)
    held_out_rows, rows = order[: round(0.2 * len(X))], order[round(0.2 * len(X)) :]
    table = torch.tensor(X, dtype=torch.float32, device=device)
    table = (table - table.mean(0)) / table.std(0)
    target = torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32, device=device)[:, None]
    features, labels = table[rows], target[rows]
    held_out, held_out_labels = table[held_out_rows], target[held_out_rows]
    deviation = labels.std(correction=0)
    permuted = torch.cat(
        [
            labels[torch.randperm(len(rows), generator=generator, device=device)]
            for _ in range(n_permutations)
        ],
        dim=1,
    )
    layers = _draw_layers([X.shape[1]] + [width] * depth, generator)
    batches = _iterate_batches(len(rows), batch_size, generator)
    batch = next(batches)

    def loss_of(hidden: Tensor, projector: Tensor, structured: float) -> Tensor:
        return mlr_loss(
            hidden,
            projector,
            labels[batch],
            permuted[batch],
            deviation,
            structured_noise=structured,
            dither=dither,
            generator=generator,
        )

    if penalty is None:
        grid = torch.logspace(-1, 4, 12, device=device)
        with torch.no_grad():
            hidden = hidden_of(layers, features[batch])
            losses = [loss_of(hidden, make_projector(hidden, point), 0.0) for point in grid]
        steepest = int(torch.stack(losses).diff().argmax())
        penalty = float((grid[steepest] * grid[steepest + 1]).sqrt())
    log_penalty = torch.tensor(np.log(penalty), dtype=torch.float32, device=device)
    log_penalty.requires_grad_()
    rate = LEARNING_RATES[min(depth, 4)] if learning_rate is None else learning_rate
    optimizer = torch.optim.Adam([p for pair in layers for p in pair] + [log_penalty], lr=rate)

    best, kept_layers, kept_head = -float("inf"), layers, torch.zeros(width, 1, device=device)
    seconds = []
    for iteration in range(n_iterations + 1):
        sync(device)
        start = time.perf_counter()
        if iteration > 0:
            batch = next(batches)
        hidden = hidden_of(layers, features[batch])
        projector = make_projector(hidden, log_penalty.exp())
        loss = loss_of(hidden, projector, structured_noise)
        with torch.no_grad():
            if score_all_rows and len(batch) < len(rows):
                ratio = len(rows) / len(batch)
                every = hidden_of(layers, features)
                head = invert_gram(every, log_penalty.exp() * ratio) @ (every.T @ labels)
            else:
                head = projector @ labels[batch]
            error = held_out_labels - hidden_of(layers, held_out) @ head
            score = 1 - float(error.square().mean() / held_out_labels.var(correction=0))
            if score > best:
                best, kept_head = score, head
                kept_layers = [(weight.clone(), bias.clone()) for weight, bias in layers]
        if iteration < n_iterations:
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        sync(device)
        seconds.append(time.perf_counter() - start)
    return TextbookFit(kept_layers, kept_head, best, penalty, seconds, time.perf_counter() - begin)


def _draw_layers(sizes: list[int], generator: torch.Generator) -> Layers:
    layers = []
    for n_in, n_out in pairwise(sizes):
        weight = torch.empty(n_in, n_out, device=generator.device)
        torch.nn.init.xavier_uniform_(weight, generator=generator)
        bias = torch.zeros(n_out, device=generator.device)
        layers.append((weight.requires_grad_(), bias.requires_grad_()))
    return layers


def _iterate_batches(n_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Endless positions: all rows if they fit into a batch, else shuffled parts of equal size."""
    every = torch.arange(n_rows, device=generator.device)
    while n_rows <= batch_size:
        yield every
    while True:
        order = torch.randperm(n_rows, generator=generator, device=generator.device)
        for start in range(0, n_rows - batch_size + 1, batch_size):
            yield order[start : start + batch_size]
