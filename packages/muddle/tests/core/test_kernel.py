"""The trained metric and the kernel solve, against textbook formulas in float64."""

import numpy as np
import pytest
import torch

from muddle.core import kernel
from muddle.core.kernel import Metric, metric_loss, solve_kernel, train_metric
from muddle.errors import DivergenceError

N_FEATURES = 4


@pytest.fixture(scope="module")
def batch(draw):
    """Features (2, 30, 4), labels (2, 30, 3) and weights (2, 30) of two folds."""
    features, labels = (draw(2, 30, size, seed=size, dtype=torch.float64) for size in (4, 3))
    return features, labels, 0.5 + draw(2, 30, seed=9, dtype=torch.float64).abs()


@pytest.fixture(scope="module")
def metric(draw):
    logs = 0.3 * draw(2, N_FEATURES + 1, dtype=torch.float64) - 1
    return Metric(logs[:, :-1], logs[:, -1])


@pytest.fixture(scope="module")
def permutations():
    generator = torch.Generator().manual_seed(0)
    return torch.stack([torch.randperm(30, generator=generator) for _ in range(6)]).view(2, 3, 30)


def direct_kernel(left, right, log_scale):
    return torch.exp(-torch.cdist(left * log_scale.exp(), right * log_scale.exp()))


def weighted_rms(residual, weights):
    return float(((weights / weights.sum())[:, None] * residual.square()).sum().sqrt())


def draw_table(n_rows, n_features, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_rows, n_features))
    labels = np.sin(2 * features[:, :1]) + 0.1 * rng.normal(size=(n_rows, 1))
    return torch.from_numpy(features), torch.from_numpy(labels)


def draw_normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def split_rows(n_rows, n_folds=2):
    rows = np.arange(n_rows)
    return np.stack([rows[rows % n_folds != fold] for fold in range(n_folds)])


# --- loss ----------------------------------------------------------------------------------------


def test_leave_one_out_equals_refitting(batch, metric):
    features, labels, weights = batch
    loss, _, failed = metric_loss(metric, features, labels, weights)
    assert not failed.any()
    for fold in range(2):
        own, noise = features[fold], float(metric.log_penalty[fold].exp()) / weights[fold]
        mean = (weights[fold] @ labels[fold]) / weights[fold].sum()
        centred = labels[fold] - mean
        missed = []
        for row in range(30):
            others = torch.arange(30) != row
            system = direct_kernel(own[others], own[others], metric.log_scale[fold])
            alpha = torch.linalg.solve(system + noise[others].diag(), centred[others])
            near = direct_kernel(own[[row]], own[others], metric.log_scale[fold])
            missed.append(centred[row] - (near @ alpha)[0])
        expected = weighted_rms(torch.stack(missed) / 3**0.5, weights[fold])
        assert float(loss[fold]) == pytest.approx(expected, rel=1e-9)


def test_mlr_loss_equals_its_formula(batch, metric, permutations):
    features, labels, weights = batch
    loss, _, _ = metric_loss(metric, features, labels, weights, permutations)
    for fold in range(2):
        own, noise = features[fold], float(metric.log_penalty[fold].exp()) / weights[fold]
        system = direct_kernel(own, own, metric.log_scale[fold]) + noise.diag()
        mean = (weights[fold] @ labels[fold]) / weights[fold].sum()
        centred = (labels[fold] - mean) / 3**0.5

        def left(columns, system=system, noise=noise, own_weights=weights[fold]):
            return weighted_rms(noise[:, None] * torch.linalg.solve(system, columns), own_weights)

        permuted = [centred[order] for order in permutations[fold]]
        gaps = [abs(weighted_rms(each, weights[fold]) - left(each)) for each in permuted]
        assert float(loss[fold]) == pytest.approx(left(centred) + np.mean(gaps), rel=1e-9)


@pytest.mark.parametrize("criterion", ["leave-one-out", "mlr"])
def test_gradient_equals_finite_differences(batch, metric, permutations, criterion):
    drawn = permutations if criterion == "mlr" else None
    logs = torch.cat([metric.log_scale, metric.log_penalty[:, None]], dim=1)

    def compute(logs):
        return metric_loss(Metric(logs[:, :-1], logs[:, -1]), *batch, permutations=drawn)

    _, gradient, _ = compute(logs)
    step = 1e-5
    for parameter in range(N_FEATURES + 1):
        moved = torch.zeros_like(logs)
        moved[:, parameter] = step
        slope = (compute(logs + moved)[0] - compute(logs - moved)[0]) / (2 * step)
        torch.testing.assert_close(gradient[:, parameter], slope, rtol=0, atol=1e-8)


# --- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["leave-one-out", "mlr"])
def test_the_metric_finds_the_one_feature_that_matters(criterion):
    features, labels = draw_table(150, 5)
    trained = train_metric(features, labels, split_rows(150), seed=0, criterion=criterion)
    assert trained.log_scale.shape == (2, 5)
    assert (trained.log_scale[:, 0] > trained.log_scale[:, 1:].amax(dim=1) + 1).all()


def test_a_fold_does_not_depend_on_those_beside_it(monkeypatch):
    monkeypatch.setattr(kernel, "BATCH_ROWS", 30)  # of 40: batches are drawn
    features, labels = draw_table(80, 3)
    rows = split_rows(80)
    options = {"seed": 3, "n_steps": 5}
    both = train_metric(features, labels, rows, **options)
    first = train_metric(features, labels, rows[:1], **options)
    torch.testing.assert_close(both.log_scale[:1], first.log_scale, rtol=0, atol=0)
    side_by_side = kernel._train(
        features - features.mean(dim=0),
        labels,
        rows,
        torch.ones(80, dtype=torch.float64),
        [np.random.default_rng([3, fold]) for fold in range(2)],
        "leave-one-out",
        5,
        30,
    )
    torch.testing.assert_close(both.log_scale, side_by_side.log_scale)
    torch.testing.assert_close(both.log_penalty, side_by_side.log_penalty)
    other = train_metric(features, labels, rows, seed=4, n_steps=5)
    assert not torch.equal(other.log_scale, both.log_scale)


def test_equal_weights_change_nothing():
    features, labels = draw_table(40, 3)
    ones = torch.ones(40, dtype=torch.float64)
    options = {"seed": 0, "n_steps": 10}
    plain = train_metric(features, labels, split_rows(40), None, **options)
    weighted = train_metric(features, labels, split_rows(40), ones, **options)
    torch.testing.assert_close(weighted.log_scale, plain.log_scale, rtol=0, atol=0)


def test_rows_of_hardly_any_weight_do_not_train_the_metric():
    features, labels = draw_table(120, 3)
    weights = torch.ones(120, dtype=torch.float64)
    weights[60:] = 1e-9
    wrong = labels.clone()
    wrong[60:] = 5 * features[60:, 1:2]
    options = {"seed": 0, "n_steps": 20}
    rows = np.arange(120)[None]
    clean = train_metric(features[:60], labels[:60], rows[:, :60], **options)
    weighted = train_metric(features, wrong, rows, weights, **options)
    # They start from other distances, and end at nearly the same ratio of scales.
    ratios = [each.log_scale[0] - each.log_scale[0, 0] for each in (clean, weighted)]
    torch.testing.assert_close(ratios[0], ratios[1], rtol=0, atol=0.3)


def constant(features, labels):
    return torch.ones_like(features), labels


def repeated(features, labels):
    return features[:1].repeat(len(features), 1), labels


def some_constant(features, labels):
    return torch.cat([features, torch.full_like(features[:, :2], 1e6)], dim=1), labels


def same_label(features, labels):
    return features, torch.ones_like(labels)


@pytest.mark.parametrize("change", [constant, repeated, some_constant, same_label])
@pytest.mark.parametrize("criterion", ["leave-one-out", "mlr"])
def test_degenerate_tables_give_a_finite_metric(change, criterion):
    features, labels = change(*draw_table(20, 3))
    trained = train_metric(features, labels, split_rows(20), seed=0, criterion=criterion, n_steps=8)
    assert all(part.isfinite().all() for part in trained)
    found = solve_kernel(
        features, labels, trained.log_scale[0].exp(), float(trained.log_penalty[0]), seed=0
    )
    assert found.predict(features * trained.log_scale[0].exp()).isfinite().all()


def test_a_failed_factorisation_raises_the_penalty(monkeypatch):
    factor, calls = torch.linalg.cholesky_ex, []

    def fail_once(system):
        matrix, info = factor(system)
        calls.append(1)
        return matrix, info + 1 if len(calls) == 1 else info

    monkeypatch.setattr(torch.linalg, "cholesky_ex", fail_once)
    features, labels = draw_table(20, 3)
    rows = np.arange(20)[None]
    trained = train_metric(features, labels, rows, seed=0, n_steps=1)
    assert float(trained.log_penalty) == pytest.approx(np.log(10 * kernel.START_PENALTY))
    start = train_metric(features, labels, rows, seed=0, n_steps=0)
    assert torch.equal(trained.log_scale, start.log_scale)


def test_a_fold_without_a_finite_loss_keeps_its_last_good_metric(monkeypatch):
    features, labels = draw_table(40, 3)
    rows, options = split_rows(40), {"seed": 0}
    before = train_metric(features, labels, rows[:1], n_steps=2, **options)
    loss, calls = kernel.metric_loss, []

    def spoil_fourth(*arguments, **named):
        found, slope, failed = loss(*arguments, **named)
        calls.append(1)
        return torch.full_like(found, torch.nan) if len(calls) == 4 else found, slope, failed

    monkeypatch.setattr(kernel, "metric_loss", spoil_fourth)
    trained = train_metric(features, labels, rows[:1], n_steps=9, **options)
    assert len(calls) == 9
    # The fourth metric had no finite loss; the third did.
    assert torch.equal(trained.log_scale, before.log_scale)


# --- solve ---------------------------------------------------------------------------------------


def fit(features, labels, weights=None, log_penalty=-2.0, **options):
    scale = torch.full((features.shape[1],), 0.7, dtype=torch.float64)
    found = solve_kernel(features, labels, scale, log_penalty, weights, seed=0, **options)
    new = draw_normal(50, features.shape[1], seed=5)
    return found, found.predict(new * scale)


def test_the_solve_equals_the_textbook():
    features, labels = draw_table(40, 3)
    found, predicted = fit(features, labels)
    assert found.centres.dtype == torch.float32
    assert found.head.shape == (41, 1)
    new = draw_normal(50, 3, seed=5)
    log_scale = torch.full((3,), 0.7, dtype=torch.float64).log()
    system = direct_kernel(features, features, log_scale) + np.exp(-2) * torch.eye(40)
    alpha = torch.linalg.solve(system, labels - labels.mean())
    expected = direct_kernel(new, features, log_scale) @ alpha + labels.mean()
    torch.testing.assert_close(predicted, expected, rtol=0, atol=1e-6)  # centres are rounded


@pytest.mark.parametrize("exact", [True, False])
def test_a_weight_of_two_is_a_row_twice(monkeypatch, exact):
    class Same:
        """Centres are drawn by position: both tables shall get the same ones."""

        def choice(self, *_, **__):
            return np.arange(5, 35)

    monkeypatch.setattr(kernel, "N_CENTRES", 30)
    monkeypatch.setattr(np.random, "default_rng", lambda _: Same())
    features, labels = draw_normal(40, 3), draw_normal(40, 2)
    weights = torch.ones(40, dtype=torch.float64)
    weights[:10] = 2
    twice = torch.cat([torch.arange(40), torch.arange(10)])
    found, weighted = fit(features, labels, weights, exact=exact)
    assert len(found.centres) == (40 if exact else 30)
    _, repeated = fit(features[twice], labels[twice], exact=exact)
    torch.testing.assert_close(weighted, repeated, rtol=0, atol=1e-9)


def test_a_sample_of_centres_comes_close_to_all_rows(monkeypatch):
    features, labels = draw_table(600, 2)
    _, exact = fit(features, labels)
    monkeypatch.setattr(kernel, "N_CENTRES", 200)
    monkeypatch.setattr(kernel, "MOST_EXACT", 500)
    found, sampled = fit(features, labels)
    assert len(found.centres) == 200
    assert float((sampled - exact).square().mean().sqrt()) < 0.1 * float(labels.std())
    scaled, centres = 0.7 * features, found.centres.double()
    across, zero = torch.exp(-torch.cdist(scaled, centres)), torch.zeros(2, dtype=torch.float64)
    among = direct_kernel(centres, centres, zero)
    right = across.mT @ (labels - labels.mean())
    expected = torch.linalg.solve(across.mT @ across + np.exp(-2) * among, right)
    torch.testing.assert_close(found.head[:-1], expected, rtol=0, atol=1e-5)
    monkeypatch.setattr(kernel, "BLOCK_ROWS", 64)
    _, in_blocks = fit(features, labels)
    torch.testing.assert_close(in_blocks, sampled, rtol=0, atol=1e-9)
    assert torch.equal(fit(features, labels)[0].centres, found.centres)


def test_equal_centres_can_be_solved(monkeypatch):
    monkeypatch.setattr(kernel, "N_CENTRES", 50)
    features, labels = draw_table(20, 2)
    found, predicted = fit(
        features.repeat(5, 1), labels.repeat(5, 1), log_penalty=-14.0, exact=False
    )
    assert len(found.centres) == 50
    assert predicted.isfinite().all()


def test_features_that_are_not_finite_are_an_error_that_says_so():
    features, labels = draw_table(20, 2)
    features[3, 1] = torch.nan
    trained = train_metric(features, labels, split_rows(20), seed=0, n_steps=3)
    assert trained.log_penalty.isfinite().all()
    with pytest.raises(DivergenceError, match="must be finite"):
        fit(features, labels)
