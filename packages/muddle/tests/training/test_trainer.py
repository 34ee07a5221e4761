"""The training loop: what one iteration computes, what is kept, and what stops."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from muddle.core.loss import combine, make_loss
from muddle.core.penalty import penalty_grid, residuals_on_grid, steepest_penalty
from muddle.errors import DivergenceError, TimeLimitError
from muddle.training import outputs
from muddle.training.config import rate_factors
from muddle.training.data import Batches
from muddle.training.trainer import NOISE_STREAM

NEAR = {"rtol": 1e-4, "atol": 1e-5}
CLASSES = {"task": "classification", "dither": 0.0}


ALONE = [
    *({}, {"batch_size": 10, "head": "train"}, CLASSES, CLASSES | {"batch_size": 10}),
    *({"head": "linear"}, CLASSES | {"head": "linear", "batch_size": 10}),
    {"keep": "last", "schedule": "cycles", "scale_rate": 6.0},
    {"normalization": "batch", "dropout": 0.2, "gated": True, "residual": True},
    {"normalization": "layer", "activation": torch.sin, "schedule": "plateau", "head": "linear"},
    {"optimizer": torch.optim.Adafactor, "embedding": 2, "batch_size": 10},  # takes means
]


# Ids without addresses in memory: workers of pytest-xdist must collect the same tests.
@pytest.mark.parametrize("change", ALONE, ids=lambda change: "-".join(change) or "default")
@pytest.mark.parametrize("own_tables", [False, True])
def test_nets_trained_together_equal_each_trained_alone(change, own_tables, make_job, small, fit):
    job = make_job(replace(small, **change), own_tables=own_tables)
    together = fit(job.data, job.config)
    for net, seed in enumerate(job.seeds):
        data = job.data.keep(torch.tensor([net]))
        if own_tables:  # its table as the only one there is
            data = replace(data, features=job.data.features[net])
        alone = fit(data, job.config, [seed])
        assert alone.best_iteration[0] == together.best_iteration[net]
        for name in ("head", "held_out_head", "penalty", "score", "validation_output"):
            ours, theirs = getattr(together, name)[net], getattr(alone, name)[0]
            torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-3, atol=1e-4)
        ours, theirs = together.history.loss[:, net], alone.history.loss[:, 0]
        torch.testing.assert_close(ours, theirs, **NEAR)
    assert not torch.allclose(together.head[0], together.head[1])


def compute_first_loss(data, config, seed):
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
    weights = data.gather_weights(data.train_rows)[0].double()
    share = (weights / weights.sum())[:, None]
    orders = [torch.randperm(n_rows, generator=generator) for _ in range(config.n_permutations)]
    stack = labels[torch.stack([torch.arange(n_rows), *orders], 1)]
    if config.dither:
        stack = stack + config.dither * torch.randn(stack.shape, generator=noise)
    structured = 0.0
    if config.structured_noise:
        structured = config.structured_noise * torch.randn(stack.shape, generator=noise)
    weighted = layer * weights[:, None]
    gram = weighted.T @ layer + config.penalty * torch.eye(config.width)
    hat = layer @ torch.linalg.inv(gram) @ weighted.T
    residual = stack + structured - torch.einsum("ij,jtc->itc", hat, stack + structured)
    rmse = (share[..., None] * residual.square()).sum(0).sqrt()  # (1 + P, C)
    deviation = (share * (labels - (share * labels).sum(0)).square()).sum(0).sqrt()
    gap = (deviation - rmse[1:]).abs().mean() if config.n_permutations else 0.0
    return float(rmse[0].mean() + gap)


@pytest.mark.parametrize("n_permutations", [0, 3])
@pytest.mark.parametrize("structured_noise", [0.0, 1.0])
@pytest.mark.parametrize("dither", [0.0, 0.03])
@pytest.mark.parametrize("width", [8, 64])  # primal and dual
@pytest.mark.parametrize("weighted", [False, True])
def test_first_loss_is_the_formula_with_the_parts_that_are_on(
    n_permutations, structured_noise, dither, width, weighted, make_data, small, fit
):
    parts = {"n_permutations": n_permutations, "structured_noise": structured_noise}
    config = replace(small, loss="root_mean_square", penalty=3.0, width=width, max_iter=1)
    config = replace(config, dither=dither, **parts)
    data = make_data(n_nets=1, n_labels=2, weighted=weighted)
    history = fit(data, config).history
    expected = compute_first_loss(data, config, 11)
    assert float(history.loss[0, 0]) == pytest.approx(expected, rel=1e-5)
    assert (float(history.permutation[0, 0]) == 0.0) == (n_permutations == 0)


@pytest.mark.parametrize("width", [8, 64])  # primal and dual
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale_rate", [0.0, 6.0])
def test_steps_follow_the_gradient(width, weighted, scale_rate, make_data, make_trainer, small):
    change = {"loss": "root_mean_square", "dither": 0.0, "structured_noise": 0.0}
    config = replace(small, width=width, scale_rate=scale_rate, activation="selu", **change)
    data = make_data(weighted=weighted)
    trainer = make_trainer(data, config)
    nets = trainer.nets.map(lambda tensor: tensor.double().requires_grad_())
    log_penalty = trainer.output.log_penalty.double().requires_grad_()
    batch = trainer.batches.at(trainer.slot)
    trainer.advance()

    stack = batch.stack.double()
    root = data.gather_weights(data.train_rows).sqrt()[..., None].double()
    hidden = nets.hidden(batch.features.double()) * root
    gram = hidden.mT @ hidden + log_penalty.exp()[:, None, None] * torch.eye(width)
    columns = stack.flatten(2) * root
    residual = columns - hidden @ torch.linalg.solve(gram, hidden.mT @ columns)
    loss = make_loss("regression", "root_mean_square", structured_noise=False)
    errors = loss.errors((residual / root).reshape(stack.shape), stack, batch.weights)
    total = combine(errors, trainer.baseline).total.sum()
    expected = torch.autograd.grad(total, [*nets.parameters(), log_penalty])
    stepped = [*trainer.nets.parameters(), trainer.output.log_penalty]
    for ours, theirs in zip(stepped, expected, strict=True):
        torch.testing.assert_close(ours.grad, theirs.float(), rtol=1e-3, atol=1e-5)
        assert theirs.abs().max() > 1e-6
    assert (trainer.nets.scale is None) == (scale_rate == 0.0)


OPTIMIZERS = {
    "adam": lambda copy, betas, decay: torch.optim.Adam([copy], betas=betas, weight_decay=decay),
    "adamw": lambda copy, betas, decay: torch.optim.AdamW([copy], betas=betas, weight_decay=decay),
    "sgd": lambda copy, _, decay: torch.optim.SGD([copy], momentum=0.9, weight_decay=decay),
}


@pytest.mark.parametrize("schedule", ["constant", "one_cycle", "cycles"])
@pytest.mark.parametrize(
    ("optimizer", "weight_decay", "second_moment", "leaves"),
    [
        ("adam", 0.0, 0.95, True),
        ("adam", 0.1, 0.999, False),
        ("adamw", 0.5, 0.95, True),
        ("sgd", 0.0, 0.999, False),
        ("sgd", 0.1, 0.999, True),
    ],
)
def test_steps_are_those_of_torch(
    schedule, optimizer, weight_decay, second_moment, leaves, make_data, make_trainer, cycles
):
    change = {"keep": "best", "schedule": schedule, "second_moment": second_moment}
    change |= {"optimizer": optimizer, "weight_decay": weight_decay}
    config = replace(cycles, activation="selu", **change)
    trainer = make_trainer(make_data(), config)
    factors = rate_factors(schedule, 15)

    def parameters():
        return [*trainer.nets.parameters(), trainer.output.log_penalty]

    multiples = [6.0 if p is trainer.nets.scale else 1.0 for p in parameters()]
    assert multiples.count(6.0) == 1
    copies = [parameter.detach().double().clone() for parameter in parameters()]
    betas, kept = (0.9, second_moment), [0, 1, 2]
    decayed = {id(weight) for weight in trainer.nets.weights}
    theirs = [
        OPTIMIZERS[optimizer](copy, betas, weight_decay if id(own) in decayed else 0.0)
        for copy, own in zip(copies, parameters(), strict=True)
    ]
    for step in range(9):
        trainer.advance()
        together = zip(copies, theirs, parameters(), multiples, strict=True)
        for copy, their, parameter, multiple in together:
            copy.grad = torch.zeros_like(copy)
            copy.grad[kept] = parameter.grad.double()
            their.param_groups[0]["lr"] = config.rate * factors[step] * multiple
            their.step()
            torch.testing.assert_close(parameter.double(), copy[kept], **NEAR)
        if leaves and step == 4:
            trainer.status.alive[1] = False
            kept = [0, 2]
        trainer.look()
    assert len(trainer.places) == (2 if leaves else 3)


def test_gradients_are_clipped_net_by_net(make_data, make_trainer, small):
    def gradients(clip_norm):
        trainer = make_trainer(make_data(), replace(small, clip_norm=clip_norm))
        trainer.advance()
        parameters = [*trainer.nets.parameters(), *trainer.output.parameters()]
        return torch.cat([p.grad.reshape(len(trainer.places), -1) for p in parameters], dim=1)

    free = gradients(None)
    norms = free.norm(dim=1)
    most = float(norms.sort().values[1]) * 0.999  # below the second net, above the first
    clipped = gradients(most)
    expected = free * (most / norms).clamp_max(1.0)[:, None]
    torch.testing.assert_close(clipped, expected)
    assert (clipped.norm(dim=1) <= most * 1.0001).all()
    assert torch.equal(clipped[norms.argmin()], free[norms.argmin()])


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_weight_decay_shrinks_weights_and_leaves_biases_and_the_penalty(
    optimizer, make_data, make_trainer, small
):
    def train(weight_decay):
        config = replace(
            small, optimizer=optimizer, weight_decay=weight_decay, learning_rate=0.01, max_iter=40
        )
        trainer = make_trainer(make_data(), config)
        while not trainer.is_done:
            trainer.advance()
            trainer.look()
        return trainer

    free, decayed = train(0.0), train(1.0 if optimizer == "adamw" else 0.3)
    for ours, others in zip(decayed.nets.weights, free.nets.weights, strict=True):
        assert ours.norm() < 0.9 * others.norm()
    groups = [(o.decay, len(o.parameters)) for o in decayed.optimizers]
    assert groups[0][1] == len(decayed.nets.weights)
    assert [decay for decay, _ in groups[1:]] == [0.0] * len(groups[1:])


@pytest.mark.parametrize("head", ["all", "linear"])
def test_the_best_iteration_is_kept(head, make_data, small, fit):
    config = replace(small, head=head, max_iter=60, learning_rate=0.05)
    result = fit(make_data(), config)
    best = result.history.score.argmax(0)
    assert torch.equal(result.best_iteration, best)
    assert (best < 60).any()
    assert torch.equal(result.score.float(), result.history.score.max(0).values.float())
    if head == "all":
        assert torch.equal(result.penalty, result.history.penalty[best, range(3)])


@pytest.mark.parametrize("change", [{}, {"batch_size": 10}, {"head": "linear"}], ids=str)
def test_reported_score_is_that_of_the_returned_nets(change, make_data, small, fit):
    data = make_data()
    result = fit(data, replace(small, **{"max_iter": 20, "head": "train"} | change))
    labels = data.labels[data.validation_rows].double()
    error = (labels - result.validation_output).square().sum(1)
    variation = (labels - labels.mean(1, keepdim=True)).square().sum(1)
    torch.testing.assert_close((1 - error / variation)[:, 0], result.score, rtol=0, atol=1e-3)


@pytest.mark.parametrize("keep", ["best", "cycles"])
@pytest.mark.parametrize("batch_size", [4096, 10])
@pytest.mark.parametrize("width", [24, 36, 64])  # primal, primal for all rows only, dual
@pytest.mark.parametrize("weighted", [False, True])
def test_heads_agree_with_a_direct_solve(keep, batch_size, width, weighted, make_data, cycles, fit):
    data = make_data(weighted=weighted, n_labels=2)
    result = fit(data, replace(cycles, keep=keep, width=width, batch_size=batch_size))
    hidden = result.nets.map(torch.Tensor.double).hidden(data.features.double())
    root = torch.ones(40, 1) if data.weights is None else data.weights.sqrt()[:, None]
    labels, root = data.labels.double(), root.double()

    def solve(entry, rows):
        scaled = hidden[entry, rows] * root[rows]
        # The penalty was trained with the rows of a batch and grows with their number.
        penalty = result.penalty[entry].double() * len(rows) / min(batch_size, data.n_train)
        gram = scaled.T @ scaled + penalty * torch.eye(width)
        return torch.linalg.solve(gram, scaled.T @ (labels[rows] * root[rows]))

    near = {"rtol": 1e-7, "atol": 1e-8}
    assert len(result.kept) == (3 if keep == "best" else 12)
    for entry, net in enumerate(result.kept):
        held_out_head = solve(entry, data.train_rows[net])
        torch.testing.assert_close(result.held_out_head[entry], held_out_head, **near)
        torch.testing.assert_close(result.head[entry], solve(entry, torch.arange(40)), **near)
        output = hidden[entry, data.validation_rows[net]] @ held_out_head
        torch.testing.assert_close(result.validation_output[entry], output, **near)


def test_head_train_predicts_without_the_validation_rows(make_data, small, fit):
    on_all, on_train = (fit(make_data(), replace(small, head=head)) for head in ("all", "train"))
    assert torch.equal(on_all.validation_output, on_train.validation_output)
    assert torch.equal(on_train.head, on_train.held_out_head)
    assert not torch.allclose(on_all.head, on_train.head)


def test_only_the_head_of_a_batch_sees_dithered_labels(make_data, small, fit):
    def fit_head(head, dither):
        standstill = replace(small, learning_rate=1e-12, penalty=1.0, max_iter=1)
        return fit(make_data(), replace(standstill, head=head, dither=dither)).head

    torch.testing.assert_close(fit_head("train", 0.5), fit_head("train", 0.0), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(fit_head("batch", 0.0), fit_head("train", 0.0), rtol=1e-3, atol=1e-4)
    assert (fit_head("batch", 0.5) - fit_head("train", 0.5)).abs().max() > 0.01


@pytest.mark.parametrize("loss", ["root_mean_square", "mean_square"])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_first_penalty_is_where_loss_rises_most(loss, task, make_job, make_trainer, small):
    job = make_job(replace(small, task=task, loss=loss, dither=0.0), n_nets=6)
    trainer = make_trainer(job.data, job.config)
    batch, made = trainer.batches.at(trainer.slot), make_loss(task, loss, structured_noise=False)
    hidden, columns = trainer.nets.hidden(batch.features), made.mix(batch.stack, None).flatten(2)
    losses = []
    for residual in residuals_on_grid(hidden, columns, penalty_grid("grid12")):
        errors = made.errors(residual.reshape(batch.stack.shape), batch.stack, batch.weights)
        losses.append(combine(errors, made.baseline(batch.stack[:, :, 0], batch.weights)).total)
    expected = steepest_penalty(torch.stack(losses, dim=1), "grid12").float()
    torch.testing.assert_close(trainer.output.penalty(), expected, rtol=1e-4, atol=0)


def test_batches_visit_every_row_before_any_row_again(make_data):
    data = make_data()
    stack = data.labels[data.train_rows][:, :, None]
    generators = [torch.Generator().manual_seed(seed) for seed in (11, 12, 13)]
    batches = Batches(data, stack, 16, generators, 3)
    batches.prepare(1)
    batches.prepare(2, first_slot=1)
    first, second, third = (batches.at(torch.tensor([slot])) for slot in range(3))
    assert first.features.shape == (3, 16, 4)
    for net in range(3):
        own = data.features[data.train_rows[net]][:, 0].tolist()
        seen = first.features[net, :, 0].tolist() + second.features[net, :, 0].tolist()
        assert sorted(seen) == sorted(own)
        assert third.features[net, :, 0].tolist() != first.features[net, :, 0].tolist()
        same = (first.features[net][:, None] == data.features[None]).all(-1)
        assert torch.equal(first.stack[net, :, 0], data.labels[same.int().argmax(1)])


@pytest.mark.parametrize("change", [{}, {"head": "linear"}, {"keep": "cycles"}], ids=str)
def test_one_diverging_net_leaves_the_others_as_they_are(change, make_data, poison, cycles, fit):
    config = replace(cycles, **{"keep": "best", "head": "train"} | change)
    data = make_data()
    result, healthy = fit(poison(data, 1), config), fit(data, config)
    others = [entry for entry, net in enumerate(healthy.kept) if net != 1]
    assert result.kept == [healthy.kept[entry] for entry in others]
    assert not result.diverged.any()
    torch.testing.assert_close(result.head, healthy.head[others], **NEAR)
    torch.testing.assert_close(result.history.loss, healthy.history.loss[:, others], **NEAR)


def test_a_net_that_diverges_later_keeps_its_best_iteration(make_data, small, fit):
    config = replace(small, head="linear", learning_rate=1e12, max_iter=30)
    result = fit(make_data(), config)
    assert result.diverged.all()
    assert (result.n_iterations < 30).all()
    assert (result.best_iteration <= result.n_iterations).all()
    assert result.head.isfinite().all()


def test_a_head_that_cannot_be_solved_is_an_error(make_data, small, fit):
    data = make_data(n_nets=1)
    features = data.features.clone()
    features[data.validation_rows[0, 0]] = torch.inf
    with pytest.raises(DivergenceError, match="finite loss and validation score"):
        fit(replace(data, features=features), small)
    # A row that no net trains or validates on, but the head on all rows needs.
    extra = torch.cat([data.features, torch.full((1, 4), torch.inf)])
    labels = torch.cat([data.labels, torch.zeros(1, 1)])
    with pytest.raises(DivergenceError, match="output layer could not be solved"):
        fit(replace(data, features=extra, labels=labels), small)


@pytest.mark.parametrize("head", ["all", "linear"])
def test_a_loss_above_max_loss_stops_a_net_and_keeps_its_best(head, make_data, small, fit):
    stopped = fit(make_data(), replace(small, head=head, max_loss=1e-6))
    assert stopped.diverged.all()
    assert stopped.best_iteration.tolist() == stopped.n_iterations.tolist() == [0, 0, 0]
    assert len(stopped.history.seconds) == 1
    assert stopped.score.isfinite().all()


@pytest.mark.parametrize("change", [{}, {"batch_size": 10}, {"head": "linear"}], ids=str)
def test_patience_stops_each_net_on_its_own_and_keeps_its_best(change, make_job, small, train):
    job = make_job(replace(small, **{"max_iter": 60, "learning_rate": 0.05} | change), n_nets=6)
    patient_job = replace(job, config=replace(job.config, patience=4))
    free, patient = train(job, patient_job)
    assert len(set(patient.n_iterations.tolist())) > 1
    for net in range(6):
        # The first iteration after which four others brought nothing better.
        best = free.history.score[:, net].cummax(0).indices.tolist()
        stop = next((i for i in range(61) if i - best[i] == 4), 60)
        assert int(patient.n_iterations[net]) == stop
        assert int(patient.best_iteration[net]) == best[stop]
        # Whoever left before it, a net goes on as it would have.
        ours, theirs = patient.history.loss[: stop + 1, net], free.history.loss[: stop + 1, net]
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        assert patient.history.loss[stop + 1 :, net].isnan().all()
    assert not patient.diverged.any()
    assert len(patient.history.loss) == int(patient.n_iterations.max()) + 1


def test_recoveries_are_counted_and_adopted(make_data, small, fit):
    data = make_data(n_nets=1)
    data = replace(data, features=torch.ones_like(data.features))
    config = replace(small, width=200, penalty=1e-12, learning_rate=1e-12, max_iter=2)
    result = fit(data, config)
    assert int(result.n_recoveries[0]) > 0
    assert float(result.penalty[0]) > 1e-12
    assert result.head.isfinite().all()
    assert result.history.loss.isfinite().all()
    # Adopted: the iterations after the first one start from the raised penalty.
    assert fit(data, replace(config, max_iter=6)).n_recoveries == result.n_recoveries


def test_a_hopeless_net_is_given_up_after_eight_raises(make_data, small, fit, monkeypatch):
    factor_gram = outputs.factor_gram

    def never_for_net_0(gram, penalty, out=None):
        factor = factor_gram(gram, penalty, out)
        failed = factor.failed.clone()
        failed[0] |= len(failed) == 2
        return replace(factor, failed=failed)

    monkeypatch.setattr(outputs, "factor_gram", never_for_net_0)
    result = fit(make_data(n_nets=2), replace(small, max_iter=20))
    assert result.diverged.tolist() == [True, False]
    assert result.n_iterations.tolist() == [9, 20]  # the ninth failure is the last
    assert result.history.score[1:10, 0].isnan().all()
    assert int(result.best_iteration[0]) == 0


def test_time_limit_stops_after_the_iteration_that_reaches_it(make_data, small, fit, make_clock):
    result = fit(make_data(), small, deadline=make_clock(4))
    assert len(result.history.seconds) == 4
    with pytest.raises(TimeLimitError, match="before one iteration was finished"):
        fit(make_data(), small, deadline=make_clock(0))


def test_settings_of_the_process_are_set_aside_and_put_back(make_data, small, fit):
    plain = fit(make_data(), small)
    torch.manual_seed(0)
    random_state, n_threads = torch.get_rng_state(), torch.get_num_threads()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        same = fit(make_data(), small)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(same.history.loss, plain.history.loss)
    assert torch.equal(random_state, torch.get_rng_state())
    assert torch.get_num_threads() == n_threads


@pytest.mark.parametrize("head", ["all", "linear"])
def test_reduced_precision_trains_nearly_the_same_nets(head, make_data, small, fit):
    config = replace(small, width=64, max_iter=20, head=head)
    full, reduced = (fit(make_data(), replace(config, precision=p)) for p in ("float32", "reduced"))
    assert not torch.equal(full.history.loss, reduced.history.loss)
    torch.testing.assert_close(full.history.loss, reduced.history.loss, rtol=0.05, atol=0.05)
    assert float((full.score - reduced.score).abs().max()) < 0.1
