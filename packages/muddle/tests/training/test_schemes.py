"""Schemes in training: plateaus, optimizers of torch, embeddings, and what predictions use."""

from dataclasses import replace

import pytest
import torch

from muddle.training.config import PLATEAU, PLATEAU_FACTOR

NEAR = {"rtol": 1e-4, "atol": 1e-6}


def copy_weights(trainer):
    return [parameter.clone() for parameter in trainer.nets.parameters()]


def measure_change(trainer, before):
    pairs = zip(trainer.nets.parameters(), before, strict=True)
    return [parameter - old for parameter, old in pairs]


def test_the_rate_falls_by_half_at_the_end_of_each_plateau(make_data, make_trainer, small):
    config = replace(small, schedule="plateau", max_iter=60, learning_rate=0.05)
    trainer = make_trainer(make_data(), config)
    factors = []
    while not trainer.is_done:
        trainer.advance()
        trainer.look()
        factors.append(trainer.plateau.clone())
    score = trainer.result().history.score
    length = round(PLATEAU * 60)
    factor, best, since = torch.ones(3), torch.full((3,), -torch.inf), torch.zeros(3)
    for iteration in range(60):  # none follows the last one
        better = score[iteration] > best
        since = torch.where(better, 0, since + 1)
        best = torch.maximum(best, score[iteration])
        factor = torch.where((since > 0) & (since % length == 0), factor * PLATEAU_FACTOR, factor)
        assert torch.equal(factors[iteration], factor)
    assert len(set(factor.tolist())) > 1  # each net has its own
    assert factor.min() < 0.5


@pytest.mark.parametrize("optimizer", ["adam", torch.optim.RMSprop])
def test_a_plateau_shortens_the_step_of_its_net(optimizer, make_data, make_trainer, small):
    def step(factors):
        config = replace(small, schedule="plateau", optimizer=optimizer)
        trainer = make_trainer(make_data(), config)
        trainer.plateau.copy_(factors)
        before = copy_weights(trainer)
        trainer.advance()
        return measure_change(trainer, before)

    factors = torch.tensor([1.0, 0.5, 0.25])
    for whole, part in zip(step(torch.ones(3)), step(factors), strict=True):
        torch.testing.assert_close(part, whole * factors[:, None, None], **NEAR)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"schedule": "one_cycle"},
        {"scale_rate": 6.0},
        {"weight_decay": 0.0},
    ],  # AdamW has its own
    ids=str,
)
@pytest.mark.parametrize(
    ("name", "theirs"),
    [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)],
)
def test_classes_of_torch_take_the_steps_of_their_names(
    name, theirs, change, make_data, small, make_trainer, finish
):
    config = replace(small, **{"weight_decay": 0.1, "max_iter": 12} | change)

    def train(optimizer):
        trainer = make_trainer(make_data(), replace(config, optimizer=optimizer))

        def leave(own):
            own.status.alive[1] = False

        return finish(trainer, {5: leave})  # the others go on with what is known of them

    ours, others = train(name), train(theirs)
    torch.testing.assert_close(ours.history.loss, others.history.loss, equal_nan=True, **NEAR)
    torch.testing.assert_close(ours.penalty, others.penalty, **NEAR)


class SignedSGD(torch.optim.Optimizer):
    """An optimizer of the user's own, with the weight decay of his own."""

    def __init__(self, parameters, lr, weight_decay=0.0):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(group["lr"] * parameter.grad.sign())


def test_an_optimizer_of_ones_own_steps_and_decays_weights_alone(make_data, make_trainer, small):
    config = replace(small, optimizer=SignedSGD, learning_rate=0.01, weight_decay=0.5)
    trainer = make_trainer(make_data(), config)
    before, n_weights = copy_weights(trainer), len(trainer.nets.weights)
    trainer.advance()
    for number, parameter in enumerate(trainer.nets.parameters()):
        decay = 0.5 if number < n_weights else 0.0
        expected = before[number] * (1 - 0.01 * decay) - 0.01 * parameter.grad.sign()
        torch.testing.assert_close(parameter, expected)


def test_embeddings_are_learnt(make_data, make_trainer, small):
    data = replace(make_data(), level_widths=(3,))
    trainer = make_trainer(data, replace(small, embedding=2))
    (embedding,) = trainer.nets.extras["embeddings"]
    assert embedding.shape == (3, 3, 2)
    before = embedding.clone()
    trainer.advance()
    assert (trainer.nets.extras["embeddings"][0] != before).all()


SCHEMES = {
    "dropout": {"dropout": 0.5},
    "batch": {"normalization": "batch"},
    "gated": {"gated": True},
    "together": {"dropout": 0.5, "normalization": "batch", "residual": True, "embedding": 2},
}


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("name", SCHEMES)
def test_heads_and_scores_are_those_of_nets_that_predict(name, task, make_job, small, train):
    """By hand from the nets that are returned: without dropout, with statistics that are fixed."""
    change = {"task": task, "head": "train", "batch_size": 10}
    change |= {"dither": 0.0} if task == "classification" else {}
    job = make_job(replace(small, **SCHEMES[name], **change))
    job = replace(job, data=replace(job.data, level_widths=(2,)))
    (result,) = train(job)
    data = job.data
    assert result.nets.blocks.dropout == 0
    nets = result.nets.map(torch.Tensor.double)
    for net in range(3):
        own, rows = nets.keep([net]), data.train_rows[net]
        hidden = own.hidden(data.features[rows].double())[0]
        penalty = result.penalty[net].double() / 10 * len(rows)
        gram = hidden.T @ hidden + penalty * torch.eye(24)
        head = torch.linalg.solve(gram, hidden.T @ data.labels[rows].double())
        torch.testing.assert_close(result.held_out_head[net], head, rtol=1e-4, atol=1e-6)
        held_out = own.hidden(data.features[data.validation_rows[net]].double())[0]
        found = result.validation_output[net].double()
        torch.testing.assert_close(found, held_out @ head, rtol=1e-4, atol=1e-6)
