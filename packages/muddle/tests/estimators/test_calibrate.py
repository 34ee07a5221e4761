import pickle

import numpy as np
import pytest
from scipy.stats import rankdata

from muddle.estimators.calibrate import LOWEST, fit_calibration, fit_temperature
from muddle_runtime.labels import Calibration, to_probabilities


def draw_codes(rng, probabilities):
    return (probabilities.cumsum(axis=1) < rng.random((len(probabilities), 1))).sum(axis=1)


def log_loss(probabilities, codes):
    return -np.log(probabilities[np.arange(len(codes)), codes]).mean()


def test_probabilities_by_hand():
    even = Calibration(np.ones(2), np.zeros(2))
    np.testing.assert_allclose(
        even.apply(np.array([[0.0], [np.log(3.0)]])), [[0.5, 0.5], [0.25, 0.75]]
    )
    biased = Calibration(np.full(2, 2.0), np.array([np.log(2.0), -np.log(2.0)]) / 2)
    np.testing.assert_allclose(biased.apply(np.array([[np.log(2.0)]])), [[1 / 3, 2 / 3]])
    three = Calibration(np.array([1.0, 1.0, 2.0]), np.log([1.0, 3.0, 1.0]))
    np.testing.assert_allclose(
        three.apply(np.array([[0.0, 0.0, np.log(2.0)]])), [[1 / 8, 3 / 8, 0.5]]
    )


@pytest.mark.parametrize(("slope", "bias"), [(3.0, 0.0), (2.0, 1.0), (6.0, -2.0)])
def test_slope_and_bias_that_made_the_labels_are_found(slope, bias):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(40_000, 1))
    truth = Calibration(np.full(2, slope), np.array([-bias, bias]) / 2)
    fitted = fit_calibration(scores, draw_codes(rng, truth.apply(scores)), None)
    np.testing.assert_allclose(fitted.slopes, slope, rtol=0.04)
    np.testing.assert_allclose(fitted.biases, truth.biases, atol=0.04)


def test_slopes_and_biases_of_three_classes_are_found():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(40_000, 3))
    truth = Calibration(np.array([1.0, 2.0, 4.0]), np.array([0.5, -1.0, 0.5]))
    fitted = fit_calibration(scores, draw_codes(rng, truth.apply(scores)), None)
    np.testing.assert_allclose(fitted.slopes, truth.slopes, rtol=0.04)
    np.testing.assert_allclose(fitted.biases, truth.biases, atol=0.05)
    assert fitted.apply(scores[:5]).shape == (5, 3)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_scores_that_do_not_vary_give_smoothed_frequencies(n_classes):
    codes = np.concatenate([np.arange(n_classes), np.zeros(20, dtype=int)])
    scores = np.full((len(codes), 1 if n_classes == 2 else n_classes), 0.3)
    counts = np.bincount(codes) + 1 / n_classes  # one more row, shared among the classes
    probabilities = fit_calibration(scores, codes, None).apply(scores)
    np.testing.assert_allclose(probabilities, [counts / counts.sum()] * len(codes), atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_noise_gives_frequencies(n_classes):
    rng = np.random.default_rng(0)
    frequencies = np.array([0.8, 0.2]) if n_classes == 2 else np.array([0.6, 0.3, 0.1])
    codes = rng.choice(n_classes, p=frequencies, size=5000)
    scores = 0.5 * rng.normal(size=(5000, 1 if n_classes == 2 else n_classes))
    probabilities = fit_calibration(scores, codes, None).apply(scores)
    np.testing.assert_allclose(probabilities.mean(axis=0), np.bincount(codes) / 5000, atol=1e-3)
    np.testing.assert_allclose(probabilities, [np.bincount(codes) / 5000] * 5000, atol=0.08)


def test_scores_worse_than_chance_are_ranked_as_they_are():
    scores = np.linspace(-1, 1, 40)[:, None]
    fitted = fit_calibration(scores, np.repeat([1, 0], [20, 20]), None)
    np.testing.assert_allclose(fitted.slopes, LOWEST)
    assert (np.diff(fitted.apply(scores)[:, 1]) > 0).all()


def test_separated_rows_do_not_ask_for_certainty():
    scores, codes = np.array([[-1.0]] * 5 + [[1.0]] * 5), np.repeat([0, 1], 5)
    fitted = fit_calibration(scores, codes, None)
    assert fitted.apply(scores).max() == pytest.approx(1 - 1 / 22, abs=1e-4)  # (10 + 1/2) of 11
    np.testing.assert_allclose(fitted.biases, 0, atol=1e-6)


def test_certainty_grows_with_separated_rows():
    certainty = []
    for n_rows in (10, 100, 10_000):
        scores = np.repeat([[-1.0], [1.0]], n_rows // 2, axis=0)
        fitted = fit_calibration(scores, np.repeat([0, 1], n_rows // 2), None)
        certainty.append(1 - fitted.apply(scores)[-1, 1])
    np.testing.assert_allclose(certainty, [0.5 / 11, 0.5 / 101, 0.5 / 10_001], rtol=1e-2)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities_are_never_zero_or_one_and_sum_to_one(n_classes):
    scores = np.array([[-1e6], [-3.0], [0.0], [1e6]])
    if n_classes > 2:
        scores = scores * np.array([[1.0, -1.0, 0.5, 0.0]])
    steep = Calibration(np.full(n_classes, 50.0), np.zeros(n_classes))
    probabilities = steep.apply(scores)
    assert (probabilities > 0).all()
    assert (probabilities < 1).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


@pytest.mark.parametrize("n_rows", [20, 300])
def test_two_classes_keep_the_ranking_of_the_scores(n_rows):
    rng = np.random.default_rng(n_rows)
    scores = rng.normal(size=(n_rows, 1))
    codes = (scores[:, 0] + rng.normal(size=n_rows) > 0.8).astype(int)
    probabilities = fit_calibration(scores, codes, None).apply(scores)[:, 1]
    np.testing.assert_array_equal(rankdata(probabilities), rankdata(scores[:, 0]))


def test_a_class_gains_with_its_own_score():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(60, 3))
    fitted = fit_calibration(scores, scores.argmax(axis=1), None)
    for column in range(3):
        raised = scores + 0.1 * np.eye(3)[column]
        assert (fitted.apply(raised)[:, column] > fitted.apply(scores)[:, column]).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_count_like_repetition(n_classes):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(30, 1 if n_classes == 2 else n_classes))
    codes, weights = rng.integers(n_classes, size=30), rng.integers(1, 4, size=30)
    weighted = fit_calibration(scores, codes, weights.astype(float))
    repeated = fit_calibration(np.repeat(scores, weights, axis=0), np.repeat(codes, weights), None)
    plain = fit_calibration(scores, codes, None)
    np.testing.assert_allclose(weighted.apply(scores), repeated.apply(scores), atol=1e-5)
    assert np.abs(weighted.apply(scores) - plain.apply(scores)).max() > 1e-2


def draw_labels(rng, kind, n_rows):
    """Five features, and classes that depend on them."""
    X = rng.normal(size=(n_rows, 5))
    logits = {
        "even": [1.5 * X[:, 0] + X[:, 1]],
        "rare": [2 * X[:, 0] + X[:, 1] - 3],
        "noise": [np.full(n_rows, -1.0)],
        "three": [X[:, 0] + 0.5 * X[:, 1], X[:, 2] * X[:, 3] - 0.5],
    }[kind]
    odds = np.exp(np.column_stack([np.zeros(n_rows), *logits]))
    return X, draw_codes(rng, odds / odds.sum(axis=1, keepdims=True))


def predict_by_kernel_ridge(X, codes, new_X, n_classes):
    """Scores of ±1 labels: of each row by a model without it, and of new rows."""
    labels = 2 * np.eye(n_classes)[codes] - 1
    centre = labels.mean(axis=0)

    def kernel(rows):
        return np.exp(-0.05 * ((rows[:, None] - X[None]) ** 2).sum(axis=2))

    inverse = np.linalg.inv(kernel(X) + 0.3 * np.eye(len(X)))
    coefficients = inverse @ (labels - centre)
    without_row = labels - coefficients / np.diag(inverse)[:, None]
    kept = slice(1 if n_classes == 2 else 0, None)
    return without_row[:, kept], (kernel(new_X) @ coefficients + centre)[:, kept]


@pytest.mark.parametrize(("n_rows", "largest"), [(30, 1.01), (100, 1.0), (300, 0.995)])
def test_log_loss_of_new_rows_is_not_above_that_of_one_temperature(n_rows, largest):
    rng = np.random.default_rng(0)
    ratios = []
    for kind in ["even", "rare", "noise", "three"] * (20 if n_rows < 300 else 5):
        X, codes = draw_labels(rng, kind, n_rows + 500)
        n_classes = 3 if kind == "three" else 2
        seen, seen_codes, new_codes = X[:n_rows], codes[:n_rows], codes[n_rows:]
        scores, new_scores = predict_by_kernel_ridge(seen, seen_codes, X[n_rows:], n_classes)
        temperature = fit_temperature(scores, seen_codes, None)
        calibration = fit_calibration(scores, seen_codes, None)
        by_temperature = log_loss(to_probabilities(new_scores, temperature), new_codes)
        ratios.append(log_loss(calibration.apply(new_scores), new_codes) / by_temperature)
    # A bias is one more number to learn: with few rows it costs about what it gains.
    assert np.mean(ratios) <= largest


def test_a_shift_of_the_scores_is_undone_where_one_temperature_cannot():
    rng = np.random.default_rng(0)
    truth = Calibration(np.full(2, 3.0), np.zeros(2))
    scores = rng.normal(size=(4000, 1))
    codes = draw_codes(rng, truth.apply(scores))
    shifted = scores + 0.5
    calibrated = fit_calibration(shifted[:2000], codes[:2000], None).apply(shifted[2000:])
    scaled = to_probabilities(shifted[2000:], fit_temperature(shifted[:2000], codes[:2000], None))
    assert log_loss(calibrated, codes[2000:]) < 0.95 * log_loss(scaled, codes[2000:])
    assert log_loss(calibrated, codes[2000:]) == pytest.approx(
        log_loss(truth.apply(scores[2000:]), codes[2000:]), rel=0.01
    )


def test_few_rows_hardly_move_a_bias_that_many_rows_find():
    # Scores that agree with the labels, but for a threshold at 0.5.
    scores = np.array([[-1.0], [-0.4], [0.2], [0.6], [0.4], [0.8], [1.4], [2.0]])
    codes = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    few = fit_calibration(scores, codes, None)
    many = fit_calibration(np.tile(scores, (500, 1)), np.tile(codes, 500), None)
    thresholds = [-(f.biases[1] - f.biases[0]) / f.slopes[0] for f in (few, many)]
    assert 0.1 < thresholds[0] < 0.4
    assert thresholds[1] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_biases_have_mean_zero_and_two_classes_one_slope(n_classes):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(50, 1 if n_classes == 2 else n_classes))
    fitted = fit_calibration(scores, np.minimum(np.arange(50) % 7, n_classes - 1), None)
    assert np.abs(fitted.biases).max() > 0.1
    assert fitted.biases.mean() == pytest.approx(0, abs=1e-10)
    assert n_classes > 2 or fitted.slopes[0] == pytest.approx(fitted.slopes[1], rel=1e-10)


def test_a_class_without_rows_is_improbable_not_impossible():
    scores = np.random.default_rng(0).normal(size=(50, 3))
    probabilities = fit_calibration(scores, np.arange(50) % 2, None).apply(scores)
    assert 0 < probabilities[:, 2].mean() < 0.05


def test_fits_are_the_same_twice_and_after_pickling():
    rng = np.random.default_rng(0)
    scores, codes = rng.normal(size=(40, 3)), rng.integers(3, size=40)
    first, second = (fit_calibration(scores, codes, None) for _ in range(2))
    np.testing.assert_array_equal(first.apply(scores), second.apply(scores))
    copy = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(copy.apply(scores), first.apply(scores))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codes": np.array([0, 2, 1])}, r"codes must lie between 0 and 1, got 0 to 2"),
        ({"codes": np.array([0, -1, 1])}, r"codes must lie between 0 and 1, got -1 to 1"),
        ({"codes": np.array([0, 1])}, r"got 3 scores, 2 codes\."),
        ({"weights": np.ones(2)}, r"got 3 scores, 3 codes and 2 weights"),
        ({"weights": np.array([1.0, 0.0, 1.0])}, r"weights must be above 0, got 0.0"),
        ({"scores": np.array([[0.0], [np.nan], [1.0]])}, r"scores must be finite"),
    ],
)
def test_rows_that_cannot_be_used_are_named(change, message):
    rows = {"scores": np.zeros((3, 1)), "codes": np.array([0, 1, 1]), "weights": None}
    with pytest.raises(ValueError, match=message):
        fit_calibration(**{**rows, **change})


def test_scores_of_another_number_of_classes_are_refused():
    with pytest.raises(ValueError, match=r"those of 2 classes .* got shape \(4, 3\)"):
        Calibration(np.ones(2), np.zeros(2)).apply(np.zeros((4, 3)))
