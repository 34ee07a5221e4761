"""A trained output layer, head="linear": the plain feed-forward net, computed as by autograd."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from muddle.core.loss import loss_gradient, make_plain_loss
from muddle.errors import DivergenceError
from muddle.training import planning
from muddle.training.config import TrainConfig
from muddle.training.data import Batch, TrainingData, TrainJob
from muddle.training.jobs import train_jobs
from muddle.training.linear_output import LinearOutput
from muddle.training.planning import bytes_per_net, count_weights, net_cost, shared_bytes
from muddle.training.scoring import make_scoring
from muddle.training.start import start_head, start_nets
from muddle.training.stopping import Deadline
from muddle.training.trainer import Trainer

CPU = torch.device("cpu")
PLAIN = TrainConfig(head="linear", depth=2, width=24, max_iter=12)
SEEDS = (11, 12, 13)


def make_data(n_rows=40, n_nets=3, n_labels=1, weights=None, task="regression"):
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(n_rows, 4, generator=generator)
    labels = features[:, :n_labels] + 0.3 * torch.randn(n_rows, n_labels, generator=generator)
    if task == "classification":
        labels = torch.where(labels > 0, 1.0, -1.0)
    orders = torch.stack([torch.randperm(n_rows, generator=generator) for _ in range(n_nets)])
    n_validation = n_rows // 5
    return TrainingData(
        features, labels, weights, orders[:, n_validation:], orders[:, :n_validation]
    )


def fit(data, config=PLAIN, seeds=SEEDS):
    job = TrainJob(config, data, tuple(seeds))
    return train_jobs([job], device=CPU, deadline=Deadline(None))[0]


def plain_loss(config, output, labels, weights):
    """The training loss of one net by its definition. output, labels (N, C), weights (N,)"""
    share = (weights / weights.sum())[:, None]
    if config.task == "classification":
        losses = binary_cross_entropy_with_logits(output, (labels > 0).float(), reduction="none")
        return (share * losses).sum(0).mean()
    square = (share * (output - labels).square()).sum(0)
    return (square.sqrt() if config.loss == "paper" else square).mean()


def train_by_autograd(data, config, seed, batches=None):
    """One net in an ordinary torch loop: its losses, validation outputs and weights by iteration.

    batches: positions among the training rows for each iteration; None: all of them
    """
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
    for iteration in range(config.steps + 1):
        rows = data.train_rows[0]
        if batches is not None:
            rows = rows[batches[iteration]]
        row_weights = data.weights_of(rows[None])[0]
        loss = plain_loss(config, forward(rows), data.labels[rows], row_weights)
        losses.append(loss.detach())
        outputs.append(forward(data.validation_rows[0]).detach())
        heads.append(weights[-1].detach().clone())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.stack(losses), outputs, heads


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("task", "loss"),
    [("regression", "paper"), ("regression", "released"), ("classification", "released")],
)
def test_training_is_that_of_an_ordinary_torch_loop(task, loss, weighted, depth):
    config = replace(PLAIN, task=task, loss=loss, depth=depth)
    weights = torch.linspace(0.2, 3.0, 40) if weighted else None
    data = make_data(n_labels=2, weights=weights, task=task)
    result = fit(data, config)
    for net, seed in enumerate(SEEDS):
        losses, outputs, heads = train_by_autograd(data.keep(torch.tensor([net])), config, seed)
        torch.testing.assert_close(result.history.loss[:, net], losses, rtol=1e-5, atol=1e-5)
        best = int(result.best_iteration[net])
        torch.testing.assert_close(result.head[net].float(), heads[best], rtol=1e-5, atol=1e-5)
        said = result.validation_output[net].float()
        torch.testing.assert_close(said, outputs[best], rtol=1e-4, atol=1e-5)


def test_batches_are_trained_on_one_by_one():
    config = replace(PLAIN, batch_size=16)
    data = make_data(n_nets=1)
    trainer = Trainer(data, config, (11,), "r2", CPU)
    drawn = []
    for _ in range(config.steps + 1):
        trainer.advance()
        drawn.append(trainer.batches._positions[0, 0].clone())
        trainer.look()
    assert len({tuple(sorted(rows.tolist())) for rows in drawn}) > 2
    losses, _, _ = train_by_autograd(data, config, 11, drawn)
    ours = trainer.result().history.loss[:, 0]
    torch.testing.assert_close(ours, losses, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("task", "loss"),
    [("regression", "paper"), ("regression", "released"), ("classification", "released")],
)
def test_gradients_agree_with_finite_differences(task, loss, weighted):
    generator = torch.Generator().manual_seed(0)
    n_nets, n_rows, width, n_labels = 2, 7, 5, 2
    hidden = torch.randn(n_nets, n_rows, width, generator=generator, dtype=torch.float64)
    head = torch.randn(n_nets, width, n_labels, generator=generator, dtype=torch.float64)
    labels = torch.randn(n_nets, n_rows, n_labels, generator=generator, dtype=torch.float64)
    labels = labels.sign() if task == "classification" else labels
    weights = torch.ones(n_nets, n_rows, dtype=torch.float64)
    if weighted:
        weights = weights * torch.linspace(0.2, 3.0, n_rows)
    root = weights.sqrt()[..., None] if weighted else None
    batch = Batch(hidden, labels[:, :, None], weights, root)
    made = make_plain_loss(task, loss)
    baseline = made.baseline(labels, weights)

    def evaluate():
        output = LinearOutput(head)
        output.make_buffers(n_rows)
        scaled = hidden if root is None else hidden * root
        found = output.fit(scaled, batch, batch.stack, None, first=False)
        healthy = torch.ones(n_nets, dtype=torch.bool)
        terms, _, gradient = loss_gradient(
            made, baseline, found.residual, batch.stack, weights, root, healthy
        )
        out = torch.empty_like(hidden)
        found.backward(gradient, out)
        d_hidden = out if root is None else out * root
        return float(terms.total.sum()), d_hidden, head.grad

    _, d_hidden, d_head = evaluate()
    step = 1e-6
    for tensor, gradient in ((hidden, d_hidden), (head, d_head.clone())):
        for place in range(0, tensor.numel(), 3):
            value = float(tensor.view(-1)[place])
            ends = []
            for side in (step, -step):
                tensor.view(-1)[place] = value + side
                ends.append(evaluate()[0])
            tensor.view(-1)[place] = value
            slope = (ends[0] - ends[1]) / (2 * step)
            assert float(gradient.view(-1)[place]) == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_the_hidden_layers_start_as_they_do_under_a_ridge():
    ridge = Trainer(make_data(), replace(PLAIN, head="all"), SEEDS, "r2", CPU)
    plain = Trainer(make_data(), PLAIN, SEEDS, "r2", CPU)
    for ours, theirs in zip(plain.nets.parameters(), ridge.nets.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_output_weights_start_within_the_glorot_bound_of_their_own_layer():
    config = replace(PLAIN, width=500, init_gain=2.0)
    generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
    head = start_head(3, config, generators)
    bound = 2.0 * math.sqrt(6 / 503)
    assert head.shape == (3, 500, 3)
    assert 0.99 * bound < float(head.abs().max()) <= bound
    assert start_head(3, replace(config, head="all"), generators) is None


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("batch_size", [4096, 10])
def test_nets_trained_together_equal_each_trained_alone(task, batch_size):
    dither = 0.03 if task == "regression" else 0.0
    config = replace(PLAIN, task=task, batch_size=batch_size, dither=dither)
    data = make_data(task=task)
    together = fit(data, config)
    for net, seed in enumerate(SEEDS):
        alone = fit(data.keep(torch.tensor([net])), config, [seed])
        assert alone.best_iteration[0] == together.best_iteration[net]
        for name in ("head", "score", "validation_output"):
            ours, theirs = getattr(together, name)[net], getattr(alone, name)[0]
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_groups_give_the_same_nets(monkeypatch):
    job = TrainJob(PLAIN, make_data(), SEEDS)
    together = fit(job.data)
    limit = shared_bytes(job, CPU) + bytes_per_net(job, CPU)
    monkeypatch.setattr(planning, "MOST_ON_CPU", limit)
    assert len(planning.plan_waves([job], CPU)) == 3
    torch.testing.assert_close(fit(job.data).head, together.head, rtol=1e-4, atol=1e-5)


def test_nothing_that_acts_through_the_ridge_acts():
    config = replace(PLAIN, dither=0.03)  # drawn from the same stream as structured noise
    plain = fit(make_data(), replace(config, n_permutations=0, structured_noise=0.0))
    other = fit(make_data(), replace(config, n_permutations=3, structured_noise=2.0))
    assert torch.equal(other.head, plain.head)
    assert torch.equal(other.history.loss, plain.history.loss)
    assert (plain.history.permutation == 0).all()
    assert plain.history.penalty.isnan().all()
    assert plain.penalty.isnan().all()
    assert (plain.n_recoveries == 0).all()


def test_dither_moves_the_labels_of_the_loss():
    still = fit(make_data(), replace(PLAIN, dither=0.0)).history.loss
    moved = fit(make_data(), replace(PLAIN, dither=0.5)).history.loss
    noise = (moved - still)[0]
    assert (noise.abs() > 0.02).all()
    assert not torch.allclose(moved[1:] - still[1:], noise.expand(12, -1), atol=1e-3)


@pytest.mark.parametrize("loss", ["paper", "released"])
def test_the_logistic_loss_does_not_show_the_labels_to_the_net(loss):
    config = replace(PLAIN, task="classification", loss=loss)
    first = fit(make_data(task="classification"), config).history.loss[0]
    assert ((first - math.log(2)).abs() < 0.3).all()  # hardly better or worse than tossing a coin


def test_the_best_iteration_is_kept():
    result = fit(make_data(), replace(PLAIN, max_iter=60, learning_rate=0.02))
    assert torch.equal(result.best_iteration, result.history.score.argmax(0))
    assert (result.best_iteration < 60).any()
    labels = make_data().labels[make_data().validation_rows].double()
    error = (labels - result.validation_output).square().sum(1)
    spread = (labels - labels.mean(1, keepdim=True)).square().sum(1)
    torch.testing.assert_close((1 - error / spread)[:, 0], result.score, rtol=0, atol=1e-5)


def test_patience_lets_nets_leave_and_the_others_go_on_as_they_would():
    config = replace(PLAIN, max_iter=60, learning_rate=0.05)
    free, patient = fit(make_data(), config), fit(make_data(), replace(config, patience=4))
    assert len(set(patient.n_iterations.tolist())) > 1
    for net, n_iterations in enumerate(patient.n_iterations.tolist()):
        ours = patient.history.loss[: n_iterations + 1, net]
        theirs = free.history.loss[: n_iterations + 1, net]
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_one_diverging_net_leaves_the_others_as_they_are():
    data = make_data()
    features = torch.cat([data.features, torch.full((1, 4), 1e25)])
    labels = torch.cat([data.labels, torch.zeros(1, 1)])
    train_rows = data.train_rows.clone()
    train_rows[1, 0] = 40  # the poisoned row, in no other net
    poisoned = replace(data, features=features, labels=labels, train_rows=train_rows)
    result, healthy = fit(poisoned), fit(data)
    assert result.kept == [0, 2]
    torch.testing.assert_close(result.head, healthy.head[[0, 2]], rtol=1e-4, atol=1e-5)


def test_a_net_that_diverges_later_keeps_its_best_iteration():
    result = fit(make_data(), replace(PLAIN, learning_rate=1e12, max_iter=30))
    assert result.diverged.all()
    assert (result.n_iterations < 30).all()
    assert (result.best_iteration <= result.n_iterations).all()
    assert result.head.isfinite().all()


def test_divergence_of_every_net_is_an_error():
    data = make_data()
    with pytest.raises(DivergenceError, match="none of 3 net"):
        fit(replace(data, features=data.features * 1e25))


def test_a_loss_above_max_loss_stops_a_net():
    result = fit(make_data(), replace(PLAIN, max_loss=1e-6))
    assert result.diverged.all()
    assert result.best_iteration.tolist() == [0, 0, 0]


def test_the_features_scale_and_cycles_of_the_rate_go_with_it():
    config = replace(PLAIN, scale_rate=6.0, schedule="cycles", max_iter=40, learning_rate=0.02)
    result = fit(make_data(), config)
    assert (result.nets.scale != 1).any()
    assert (result.history.loss[-1] < 0.9 * result.history.loss[0]).all()


def test_reduced_precision_trains_nearly_the_same_nets():
    config = replace(PLAIN, width=64)
    full, reduced = fit(make_data(), config), fit(make_data(), replace(config, precision="reduced"))
    assert not torch.equal(full.history.loss, reduced.history.loss)
    torch.testing.assert_close(full.history.loss, reduced.history.loss, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("keep", ["cycles", "last"])
def test_only_the_best_iteration_can_be_kept(keep):
    with pytest.raises(ValueError, match="head='linear'"):
        replace(PLAIN, keep=keep, schedule="cycles")


def test_a_number_for_the_penalty_is_refused():
    with pytest.raises(ValueError, match="head='linear' has none, got penalty=3"):
        replace(PLAIN, penalty=3.0)
    assert replace(PLAIN, penalty="released").head == "linear"


@pytest.mark.parametrize("device", [CPU, torch.device("cuda")], ids=str)
def test_the_plan_has_no_room_for_gram_matrices_and_permutations(device):
    wide = replace(PLAIN, width=512, n_permutations=100)
    job = TrainJob(wide, make_data(n_rows=1000), SEEDS)
    ridge = replace(job, config=replace(wide, head="all"))
    gram = 4 * 512**2
    assert bytes_per_net(ridge, device) > bytes_per_net(job, device) + 2 * gram
    assert shared_bytes(ridge, device) > shared_bytes(job, device) + 2 * gram
    assert net_cost(ridge) > net_cost(job) + wide.steps * 512**3 / 3
    few = replace(job, config=replace(wide, n_permutations=0, structured_noise=0.0))
    assert bytes_per_net(few, device) == bytes_per_net(job, device)


def test_the_plan_counts_output_weights_that_are_trained():
    job = TrainJob(PLAIN, make_data(n_labels=2), SEEDS)
    trainer = Trainer(job.data, PLAIN, SEEDS, "r2", CPU)
    trained = [*trainer.nets.parameters(), *trainer.output.parameters()]
    assert count_weights(job) == sum(tensor[0].numel() for tensor in trained)


def test_what_was_trained_together_fits_in_what_was_planned():
    config = replace(PLAIN, width=256)
    job = TrainJob(config, make_data(n_rows=300), SEEDS)
    trainer = Trainer(job.data, config, SEEDS, "r2", CPU)
    trainer.advance()
    held = {
        tensor.data_ptr(): tensor.numel() * tensor.element_size()
        for owner in (trainer, trainer.body, trainer.scorer, trainer.output, trainer.best)
        for value in vars(owner).values()
        for tensor in (value if isinstance(value, list | tuple) else [value])
        if isinstance(tensor, torch.Tensor)
    }
    weights = sum(tensor.numel() for tensor in trainer.nets.parameters()) * 4
    assert sum(held.values()) + 5 * weights < 3 * bytes_per_net(job, CPU)


def test_between_equal_scores_log_odds_are_compared_as_probabilities():
    data = make_data(task="classification")
    scoring = make_scoring("auc", replace(PLAIN, task="classification"), data)
    labels = data.labels[data.validation_rows]
    sure, near = scoring.tie_break(20 * labels), scoring.tie_break(labels)
    assert (sure > near).all()  # log-odds of 20 for the right class are better than of 1
    torch.testing.assert_close(sure, torch.zeros(3), rtol=0, atol=1e-6)
    single = make_scoring("minus squared error", replace(PLAIN, task="classification"), data)
    assert torch.equal(single.score(20 * labels), sure)
    ridge = make_scoring("auc", replace(PLAIN, task="classification", head="all"), data)
    assert (ridge.tie_break(labels) > ridge.tie_break(20 * labels)).all()


def test_draws_of_nets_do_not_depend_on_their_company():
    generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
    start_nets(4, PLAIN, generators)
    together = start_head(1, PLAIN, generators)
    for net, seed in enumerate(SEEDS):
        own = [torch.Generator().manual_seed(seed)]
        start_nets(4, PLAIN, own)
        assert torch.equal(start_head(1, PLAIN, own)[0], together[net])
