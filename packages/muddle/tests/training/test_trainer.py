"""The training loop on tensors: what one iteration computes, what is kept, and what stops."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from muddle.core.loss import combine, make_loss
from muddle.core.muddling import stack_permuted
from muddle.core.network import draw_nets
from muddle.core.penalty import penalty_grid, residuals_on_grid, steepest_penalty
from muddle.core.ridge import factor_with_recovery, gram_matrix, ridge_residual
from muddle.errors import DivergenceError, TimeLimitError
from muddle.training.config import TrainConfig
from muddle.training.data import Batches, TrainingData, TrainJob
from muddle.training.jobs import train_jobs
from muddle.training.stopping import Deadline
from muddle.training.trainer import NOISE_STREAM, Trainer

CPU = torch.device("cpu")
SMALL = TrainConfig(depth=2, width=24, max_iter=8, n_permutations=3, dither=0.03)
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


def fit(data, config=SMALL, seeds=SEEDS, **options):
    deadline = options.pop("deadline", Deadline(None))
    job = TrainJob(config, data, tuple(seeds))
    return train_jobs([job], device=CPU, deadline=deadline, **options)[0]


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("batch_size", [4096, 10])
def test_nets_trained_together_equal_each_trained_alone(task, batch_size):
    dither = 0.03 if task == "regression" else 0.0
    config = replace(SMALL, task=task, batch_size=batch_size, dither=dither)
    data = make_data(task=task)
    together = fit(data, config)
    for net, seed in enumerate(SEEDS):
        alone = fit(data.keep(torch.tensor([net])), config, [seed])
        assert alone.best_iteration[0] == together.best_iteration[net]
        for name in ("head", "penalty", "score", "validation_output"):
            ours, theirs = getattr(together, name)[net], getattr(alone, name)[0]
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            together.history.loss[:, net], alone.history.loss[:, 0], rtol=1e-4, atol=1e-5
        )


def first_loss_by_textbook(data, config, seed):
    """Loss at iteration 0 of one net, with an explicit hat matrix in float64."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.Generator().manual_seed(seed ^ NOISE_STREAM)
    layer = data.features[data.train_rows[0]].double()
    sizes = [layer.shape[1]] + [config.width] * config.depth
    for n_in, n_out in pairwise(sizes):
        bound = (6 / (n_in + n_out)) ** 0.5
        weight = (2 * torch.rand(n_in, n_out, generator=generator) - 1) * bound
        layer = torch.relu(layer @ weight.double())
    labels = data.labels[data.train_rows[0]].double()
    n_rows = len(labels)
    weights = data.weights_of(data.train_rows)[0].double()
    share = (weights / weights.sum())[:, None]
    orders = [
        torch.arange(n_rows),
        *(torch.randperm(n_rows, generator=generator) for _ in range(config.n_permutations)),
    ]
    stack = labels[torch.stack(orders, 1)]
    if config.dither:
        stack = stack + config.dither * torch.randn(stack.shape, generator=noise)
    structured = 0.0
    if config.structured_noise:
        structured = config.structured_noise * torch.randn(stack.shape, generator=noise)
    eye = torch.eye(n_rows, dtype=torch.float64)
    weighted = layer * weights[:, None]
    gram = weighted.T @ layer + config.penalty * torch.eye(config.width, dtype=torch.float64)
    hat = layer @ torch.linalg.inv(gram) @ weighted.T
    residual = torch.einsum("ij,jtc->itc", eye - hat, stack + structured)
    rmse = (share[..., None] * residual.square()).sum(0).sqrt()  # (1 + P, C)
    spread = (share * (labels - (share * labels).sum(0)).square()).sum(0).sqrt()
    gap = (spread - rmse[1:]).abs().mean() if config.n_permutations else 0.0
    return float(rmse[0].mean() + gap)


@pytest.mark.parametrize("n_permutations", [0, 3])
@pytest.mark.parametrize("structured_noise", [0.0, 1.0])
@pytest.mark.parametrize("dither", [0.0, 0.03])
@pytest.mark.parametrize("width", [8, 64])  # primal and dual
@pytest.mark.parametrize("weighted", [False, True])
def test_first_loss_is_the_formula_with_the_parts_that_are_on(
    n_permutations, structured_noise, dither, width, weighted
):
    config = replace(
        SMALL,
        loss="paper",
        penalty=3.0,
        width=width,
        n_permutations=n_permutations,
        structured_noise=structured_noise,
        dither=dither,
    )
    weights = torch.linspace(0.2, 3.0, 40) if weighted else None
    data = make_data(n_nets=1, n_labels=2, weights=weights)
    result = fit(data, config, [11])
    expected = first_loss_by_textbook(data, config, 11)
    assert float(result.history.loss[0, 0]) == pytest.approx(expected, rel=1e-5)
    permutation = float(result.history.permutation[0, 0])
    assert (permutation == 0.0) == (n_permutations == 0)


@pytest.mark.parametrize("width", [8, 64])  # primal and dual
@pytest.mark.parametrize("weighted", [False, True])
def test_an_iteration_steps_along_the_gradient_of_its_loss(width, weighted):
    config = replace(SMALL, width=width, loss="paper", dither=0.0, structured_noise=0.0)
    data = make_data(weights=torch.linspace(0.2, 3.0, 40) if weighted else None)
    trainer = Trainer(data, config, SEEDS, "r2", CPU)
    nets = trainer.nets.map(lambda tensor: tensor.clone().requires_grad_())
    log_penalty = trainer.output.log_penalty.clone().requires_grad_()
    batch = trainer.batches.at(trainer.slot)
    trainer.advance()

    root = data.weights_of(data.train_rows).sqrt()[..., None]
    hidden, penalty = nets.hidden(batch.features) * root, log_penalty.exp()
    factor = factor_with_recovery(gram_matrix(hidden.detach()), penalty.detach())
    residual, _ = ridge_residual(hidden, batch.stack.flatten(2) * root, penalty, factor)
    loss = make_loss("regression", "paper", structured_noise=False)
    plain = (residual / root).reshape(batch.stack.shape)
    errors = loss.errors(plain, batch.stack, batch.weights)
    leaves = [*nets.parameters(), log_penalty]
    total = combine(errors, trainer.baseline).total.sum()
    stepped = [*trainer.nets.parameters(), trainer.output.log_penalty]
    for ours, theirs in zip(stepped, torch.autograd.grad(total, leaves), strict=True):
        torch.testing.assert_close(ours.grad, theirs, rtol=1e-3, atol=1e-5)


def test_the_first_step_is_taken_on_the_rows_that_chose_the_penalty():
    trainer = Trainer(make_data(), replace(SMALL, batch_size=10), SEEDS, "r2", CPU)
    chose = trainer.batches.at(trainer.slot).features
    first = torch.zeros(1, dtype=torch.long)
    trainer.advance()
    assert torch.equal(trainer.batches.at(first).features, chose)
    trainer.advance()
    assert not torch.equal(trainer.batches.at(first).features, chose)


def test_a_lower_loss_is_found():
    result = fit(make_data(), replace(SMALL, max_iter=60, structured_noise=0.0))
    assert (result.history.loss[-1] < 0.9 * result.history.loss[0]).all()


def test_the_penalty_is_trained():
    result = fit(make_data())
    assert (result.history.penalty[0] != result.history.penalty[-1]).all()


def test_the_best_iteration_is_kept():
    result = fit(make_data(), replace(SMALL, max_iter=30, learning_rate=0.05))
    best = result.history.score.argmax(0)
    assert torch.equal(result.best_iteration, best)
    assert torch.equal(result.score.float(), result.history.score.max(0).values.float())
    assert torch.equal(result.penalty, result.history.penalty[best, range(3)])


@pytest.mark.parametrize("batch_size", [4096, 10])
def test_reported_score_is_that_of_the_returned_nets(batch_size):
    data = make_data()
    config = replace(SMALL, max_iter=20, batch_size=batch_size, head="train")
    result = fit(data, config)
    labels = data.labels[data.validation_rows].double()
    error = (labels - result.validation_output).square().sum(1)
    spread = (labels - labels.mean(1, keepdim=True)).square().sum(1)
    torch.testing.assert_close((1 - error / spread)[:, 0], result.score, rtol=0, atol=1e-3)


def test_history_has_a_row_per_iteration_and_the_start():
    result = fit(make_data())
    assert result.history.loss.shape == (9, 3)
    assert result.history.seconds.shape == (9, 3)
    assert result.n_iterations.tolist() == [8, 8, 8]
    assert (result.history.permutation <= result.history.loss).all()


@pytest.mark.parametrize("batch_size", [4096, 10])
@pytest.mark.parametrize("width", [24, 36, 64])  # primal, of all rows only, dual
@pytest.mark.parametrize("weighted", [False, True])
def test_head_on_all_rows_is_the_ridge_of_all_rows(batch_size, width, weighted):
    weights = torch.linspace(0.2, 3.0, 40) if weighted else torch.ones(40)
    data = make_data(weights=weights if weighted else None)
    config = replace(SMALL, head="all", batch_size=batch_size, width=width)
    result = fit(data, config)
    hidden = result.nets.map(torch.Tensor.double).hidden(data.features.double())
    scale = 40 / min(batch_size, data.n_train)
    penalty = (scale * result.penalty.double())[:, None, None] * torch.eye(width)
    scaled = hidden.mT * weights.sqrt().double().square()  # √weights are float32
    expected = torch.linalg.solve(scaled @ hidden + penalty, scaled @ data.labels.double())
    torch.testing.assert_close(result.head, expected, rtol=1e-8, atol=1e-8)


def test_held_out_predictions_come_from_a_head_without_those_rows():
    data = make_data()
    on_all = fit(data, replace(SMALL, head="all"))
    on_train = fit(data, replace(SMALL, head="train"))
    assert torch.equal(on_all.validation_output, on_train.validation_output)
    assert not torch.allclose(on_all.head, on_train.head)


def test_only_the_released_head_sees_dithered_labels():
    def head_of(head, dither):
        standstill = replace(SMALL, learning_rate=1e-12, penalty=1.0, max_iter=1)
        return fit(make_data(), replace(standstill, head=head, dither=dither)).head

    torch.testing.assert_close(head_of("train", 0.5), head_of("train", 0.0), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(head_of("batch", 0.0), head_of("train", 0.0), rtol=1e-3, atol=1e-4)
    assert (head_of("batch", 0.5) - head_of("train", 0.5)).abs().max() > 0.01


@pytest.mark.parametrize("loss", ["paper", "released"])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_structured_noise_leaves_the_first_penalty_alone(loss, task):
    config = replace(SMALL, task=task, loss=loss, dither=0.0, max_iter=1)
    noisy = fit(make_data(task=task), config)
    plain = fit(make_data(task=task), replace(config, structured_noise=0.0))
    assert torch.equal(noisy.history.penalty[0], plain.history.penalty[0])


def test_weights_of_one_change_nothing():
    plain = fit(make_data())
    weighted = fit(make_data(weights=torch.ones(40)))
    torch.testing.assert_close(plain.head, weighted.head, rtol=1e-3, atol=1e-4)


def test_a_tiny_weight_is_as_good_as_an_absent_row_in_the_loss():
    weights = torch.ones(40)
    data = make_data(n_nets=1, weights=weights)
    dropped = int(data.train_rows[0, -1])
    config = replace(SMALL, n_permutations=0, dither=0.0, structured_noise=0.0, penalty=1.0)
    weights[dropped] = 1e-9
    weighted = fit(data, config, [11])
    shorter = replace(data, train_rows=data.train_rows[:, :-1])
    absent = fit(shorter, config, [11])
    torch.testing.assert_close(weighted.history.loss, absent.history.loss, rtol=1e-4, atol=1e-5)


def test_batches_visit_every_row_before_any_row_again():
    data = make_data()
    stack = data.labels[data.train_rows][:, :, None]
    batches = Batches(data, stack, 16, new_generators(), 3)
    batches.prepare(1)
    batches.prepare(2, first_slot=1)
    first, second, third = (batches.at(torch.tensor([slot])) for slot in range(3))
    assert first.features.shape == (3, 16, 4)
    for net in range(3):
        own = data.features[data.train_rows[net]][:, 0].tolist()
        seen = first.features[net, :, 0].tolist() + second.features[net, :, 0].tolist()
        assert sorted(seen) == sorted(own)
        assert third.features[net, :, 0].tolist() != first.features[net, :, 0].tolist()
        assert torch.equal(first.stack[net, :, 0], data.labels[batch_rows(data, first, net)])


def batch_rows(data, batch, net):
    matches = (batch.features[net][:, None] == data.features[None]).all(-1)
    return matches.int().argmax(1)


def test_one_diverging_net_leaves_the_others_as_they_are():
    data = make_data()
    config = replace(SMALL, head="train")  # the poisoned row is in no other net
    healthy = fit(data, config)
    poisoned_row = 41
    features = torch.cat([data.features, torch.full((2, 4), 1e25)])
    labels = torch.cat([data.labels, torch.zeros(2, 1)])
    train_rows = data.train_rows.clone()
    train_rows[1, 0] = poisoned_row
    poisoned = replace(data, features=features, labels=labels, train_rows=train_rows)
    result = fit(poisoned, config)
    assert result.kept == [0, 2]
    for ours, theirs in ((0, 0), (1, 2)):
        torch.testing.assert_close(result.head[ours], healthy.head[theirs])
        torch.testing.assert_close(
            result.history.loss[:, ours], healthy.history.loss[:, theirs], rtol=1e-5, atol=1e-6
        )
    assert not result.diverged.any()


def test_divergence_of_every_net_is_an_error():
    data = make_data()
    with pytest.raises(DivergenceError, match="none of 3 net"):
        fit(replace(data, features=data.features * 1e25))


def test_a_head_that_cannot_be_solved_is_an_error():
    data = make_data(n_nets=1)
    features = data.features.double()
    features[data.validation_rows[0, 0]] = 1e200
    with pytest.raises(DivergenceError, match="finite loss and validation score"):
        fit(replace(data, features=features.float()), seeds=[11])
    # A row that no net trains or validates on, but the head on all rows needs.
    extra = torch.cat([data.features, torch.full((1, 4), torch.inf)])
    labels = torch.cat([data.labels, torch.zeros(1, 1)])
    with pytest.raises(DivergenceError, match="output layer could not be solved"):
        fit(replace(data, features=extra, labels=labels), seeds=[11])


def test_a_loss_above_max_loss_stops_a_net_and_keeps_its_best():
    stopped = fit(make_data(), replace(SMALL, max_loss=1e-6))
    assert stopped.diverged.all()
    assert stopped.best_iteration.tolist() == [0, 0, 0]
    assert len(stopped.history.seconds) == 1
    assert stopped.n_iterations.tolist() == [0, 0, 0]


def test_recoveries_are_counted_and_adopted():
    data = make_data(n_nets=1)
    config = replace(SMALL, width=200, penalty=1e-12, learning_rate=1e-12, max_iter=2)
    data = replace(data, features=torch.ones_like(data.features))
    result = fit(data, config, [11])
    assert int(result.n_recoveries[0]) > 0
    assert float(result.penalty[0]) > 1e-12
    assert result.head.isfinite().all()
    assert result.history.loss.isfinite().all()
    # Adopted: the iterations after the first one start from the raised penalty.
    assert fit(data, replace(config, max_iter=6), [11]).n_recoveries == result.n_recoveries


def test_a_stopped_net_leaves_while_the_others_go_on_as_they_would():
    config = replace(SMALL, max_iter=40)
    free = fit(make_data(), config)
    fits = free.history.loss - free.history.permutation
    # The first iteration after some steps at which a net sets a record that no net has set before.
    at = next(i for i in range(3, 30) if fits[i].max() > fits[:i].max())
    stopped = int(fits[at].argmax())
    limit = max(float(fits[at].sort().values[-2:].mean()), float(fits[:at].max()))
    result = fit(make_data(), replace(config, max_loss=limit))
    history = result.history
    assert history.score[at, stopped].isfinite()
    assert history.loss[at + 1 :, stopped].isnan().all()
    assert int(result.n_iterations[stopped]) == at
    assert bool(result.diverged[stopped])
    assert int(result.best_iteration[stopped]) <= at
    for other in range(3):
        last = int(result.n_iterations[other])
        torch.testing.assert_close(
            history.loss[: last + 1, other],
            free.history.loss[: last + 1, other],
            rtol=1e-4,
            atol=1e-5,
        )


def test_the_grid_of_the_released_classifier_takes_plain_fits_as_logits():
    data = make_data(n_rows=60, task="classification")
    config = replace(
        SMALL, task="classification", loss="released", dither=0.0, max_iter=1, width=64
    )
    own = new_generators()
    nets = draw_nets(4, depth=2, width=64, activation="relu", gain=1.0, generators=own)
    stack = stack_permuted(data.labels[data.train_rows], 3, own).squeeze(-1)  # (K, N, 1 + P)
    hidden = nets.hidden(data.features[data.train_rows])
    targets = (stack + 1) / 2

    def cross_entropy(logits, wanted):
        return torch.nn.functional.binary_cross_entropy_with_logits(
            logits, wanted, reduction="none"
        ).mean(1)

    labels = stack[:, :, :1]
    baseline = cross_entropy(labels.mean(1, keepdim=True).expand_as(labels), targets[:, :, :1])
    losses = []
    for residual in residuals_on_grid(hidden, stack, penalty_grid("paper")):
        errors = cross_entropy(stack - residual, targets)  # logits H Y*
        losses.append(errors[:, 0] + (baseline - errors[:, 1:]).abs().mean(1))
    expected = steepest_penalty(torch.stack(losses, dim=1), "paper")
    chosen = fit(data, config).history.penalty[0]
    torch.testing.assert_close(chosen, expected.float(), rtol=1e-4, atol=0)


def new_generators():
    return [torch.Generator().manual_seed(seed) for seed in SEEDS]


class Clock(Deadline):
    """A deadline that is over after a number of looks at it."""

    def __init__(self, looks):
        super().__init__(1.0)
        self.looks = looks

    def is_over(self):
        self.looks -= 1
        return self.looks < 0


def test_time_limit_stops_after_the_iteration_that_reaches_it():
    # One look after iteration 0 for the check of the first iteration, one in every iteration.
    result = fit(make_data(), deadline=Clock(looks=4))
    assert len(result.history.seconds) == 4


def test_time_limit_shorter_than_one_iteration_is_an_error():
    with pytest.raises(TimeLimitError, match="before one iteration was finished"):
        fit(make_data(), deadline=Clock(looks=0))


def test_global_random_state_and_threads_are_left_alone():
    torch.manual_seed(0)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    fit(make_data())
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads
