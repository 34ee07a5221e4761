"""A trained output layer, head="linear": the plain feed-forward net, computed as by autograd."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from muddle.training.config import TrainConfig

PLAIN = TrainConfig(head="linear", depth=2, width=24, max_iter=12, init_gain=1.2)
SEEDS = (11, 12, 13)


def compute_loss(config, output, labels, weights):
    """The training loss of one net by its definition. output, labels (N, C), weights (N,)"""
    share = (weights / weights.sum())[:, None]
    if config.task == "classification":
        losses = binary_cross_entropy_with_logits(output, (labels > 0).float(), reduction="none")
        return (share * losses).sum(0).mean()
    square = (share * (output - labels).square()).sum(0)
    return (square.sqrt() if config.loss == "root_mean_square" else square).mean()


def train_by_autograd(data, config, seed):
    """One net in an ordinary torch loop: losses, validation outputs and heads by iteration."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [data.n_features] + [config.width] * config.depth + [data.labels.shape[1]]
    weights, biases = [], []
    for n_in, n_out in pairwise(sizes):
        bound = config.init_gain * math.sqrt(6 / (n_in + n_out))
        weight = (2 * torch.rand(n_in, n_out, generator=generator) - 1) * bound
        weights.append(weight.requires_grad_())
        biases.append(torch.zeros(n_out, requires_grad=True))
    biases = biases[:-1]  # the output layer has none
    optimizer = torch.optim.Adam([*weights, *biases], lr=config.rate)

    def forward(rows):
        layer = data.features[rows]
        for weight, bias in zip(weights[:-1], biases, strict=True):
            layer = torch.relu(layer @ weight + bias)
        return layer @ weights[-1]

    losses, outputs, heads = [], [], []
    rows = data.train_rows[0]
    row_weights = data.gather_weights(rows[None])[0]
    for _ in range(config.steps + 1):
        loss = compute_loss(config, forward(rows), data.labels[rows], row_weights)
        losses.append(loss.detach())
        outputs.append(forward(data.validation_rows[0]).detach())
        heads.append(weights[-1].detach().clone())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.stack(losses), outputs, heads


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("loss", ["root_mean_square", "mean_square"])
def test_training_is_that_of_an_ordinary_torch_loop(task, loss, weighted, depth, make_job, train):
    job = make_job(replace(PLAIN, task=task, loss=loss, depth=depth), n_labels=2, weighted=weighted)
    (result,) = train(job)
    near = {"rtol": 1e-4, "atol": 1e-5}
    for net, seed in enumerate(SEEDS):
        own = job.data.keep(torch.tensor([net]))
        losses, outputs, heads = train_by_autograd(own, job.config, seed)
        torch.testing.assert_close(result.history.loss[:, net], losses, rtol=1e-5, atol=1e-5)
        best = int(result.best_iteration[net])
        torch.testing.assert_close(result.head[net].float(), heads[best], **near)
        torch.testing.assert_close(result.validation_output[net].float(), outputs[best], **near)


def test_nothing_that_acts_through_the_ridge_acts(make_data, fit):
    config = replace(PLAIN, dither=0.03)  # drawn from the same stream as structured noise
    plain = fit(make_data(), replace(config, n_permutations=0, structured_noise=0.0))
    other = fit(make_data(), replace(config, n_permutations=3, structured_noise=2.0))
    assert torch.equal(other.head, plain.head)
    assert torch.equal(other.history.loss, plain.history.loss)
    assert (plain.history.permutation == 0).all()
    assert plain.history.penalty.isnan().all()
    assert plain.penalty.isnan().all()
    assert (plain.n_recoveries == 0).all()
