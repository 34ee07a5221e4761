"""Scores and calibration error: against scikit-learn, by hand, and predictions without a score."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from muddle.scores import expected_calibration_error, score_classification, score_regression

Y = np.array([1.0, 2.0, 3.0, 6.0])
EPS = np.finfo(float).eps


def score_two(codes, predicted=None, **options):
    predicted = np.zeros(len(codes)) if predicted is None else predicted
    return score_classification(
        np.asarray(codes), predicted, seen=np.array([0, 1]), n_classes=2, **options
    )


def score_three(codes, predicted, **options):
    options = {"seen": np.array([0, 1, 2])} | options
    return score_classification(np.asarray(codes), predicted, n_classes=3, **options)


def test_regression_by_hand():
    scores = score_regression(Y, np.array([[1.0], [2.0], [4.0], [4.0]]))
    # errors 0, 0, 1, -2; the target varies by 4 + 1 + 0 + 9 = 14 around its mean of 3
    assert scores == pytest.approx({"r2": 1 - 5 / 14, "rmse": np.sqrt(5 / 4), "mae": 3 / 4})


def test_two_classes_by_hand():
    probabilities = np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5], [0.1, 0.9]])
    scores = score_two([0, 0, 1, 1], [0, 1, 1, 1], probabilities=probabilities)
    assert scores == pytest.approx(
        {
            "accuracy": 3 / 4,
            "auc": 3 / 4,  # of four pairs, 0.6 > 0.5 is the wrong way round
            "brier": (0.04 + 0.36 + 0.25 + 0.01) / 4,
            "log_loss": -np.log([0.8, 0.4, 0.5, 0.9]).mean(),
            "ece": (0.2 + 0.6 + 0.5 + 0.1) / 4,  # every row has its own bin
        }
    )


def test_three_classes_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=60)
    probabilities = rng.dirichlet([1, 1, 1], size=60)
    predicted = probabilities.argmax(1)
    scores = score_three(codes, predicted, probabilities=probabilities)
    assert scores["accuracy"] == accuracy_score(codes, predicted)
    assert scores["auc"] == pytest.approx(roc_auc_score(codes, probabilities, multi_class="ovr"))
    assert scores["log_loss"] == pytest.approx(log_loss(codes, probabilities))
    assert scores["brier"] == pytest.approx(np.sum((probabilities - np.eye(3)[codes]) ** 2) / 60)
    order = np.argsort(probabilities.max(1)).reshape(10, 6)  # ten bins of six rows
    gaps = (probabilities.max(1) - (predicted == codes))[order].mean(axis=1)
    assert scores["ece"] == pytest.approx(np.abs(gaps).mean())


def test_a_decision_function_gives_the_auc_and_no_other_score():
    scores = score_two([0, 0, 1, 1], [0, 0, 0, 1], decision=np.array([-3.0, -1, -2, 5]))
    assert scores == {"accuracy": 3 / 4, "auc": 3 / 4}
    scores = score_three([0, 1, 2, 1], [0, 1, 2, 2], decision=np.eye(3)[[0, 1, 2, 2]])
    # class 0: 1; class 1: one of two rows found, the other ties, 3/4; class 2: 1 against 2/3
    assert scores["auc"] == pytest.approx((1 + 3 / 4 + (1 + 1 + 1 / 2) / 3) / 3)
    assert score_two([0, 1], [0, 0]) == {"accuracy": 1 / 2}


def test_the_auc_needs_two_classes_and_ignores_classes_without_test_rows():
    scores = score_two([1, 1], probabilities=np.array([[0.5, 0.5], [0.2, 0.8]]))
    assert scores["auc"] is None
    assert scores["log_loss"] == pytest.approx(-np.log([0.5, 0.8]).mean())
    probabilities = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]])
    assert score_three([0, 1], [0, 1], probabilities=probabilities)["auc"] == 1


def test_a_class_without_training_rows_has_probability_0():
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    scores = score_three([0, 2, 1], [0, 1, 0], probabilities=probabilities, seen=np.array([0, 2]))
    assert scores == pytest.approx(
        {
            "accuracy": 2 / 3,
            "log_loss": -np.log([0.9, 0.8, EPS]).mean(),
            "brier": (0.02 + 0.08 + 1 + 0.5) / 3,
            "ece": (0.1 + 0.2 + 0.5) / 3,
            "auc": (1 + 1 / 2 + 1) / 3,
        }
    )


@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        ([1.0, 2.0, 3.0], r"predict must return the shape \(4,\), got \(3,\)"),
        ([1.0, 2.0, np.nan, np.inf], "predict returned 2 of 4 values that are NaN or inf"),
        (["a", "b", "c", "d"], "predict must return numbers, got <U1"),
        ([1e200, 0, 0, 0], "r2 must be finite, got -inf: the predictions are too large"),
    ],
)
def test_numbers_without_a_score(predicted, message):
    with pytest.raises(ValueError, match=message):
        score_regression(Y, predicted)
    with pytest.raises(ValueError, match="R² needs at least two test rows, got 1"):
        score_regression(Y[:1], [1.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"probabilities": [[0.5, 0.5]]}, r"predict_proba must .* shape \(2, 2\), got \(1, 2\)"),
        ({"probabilities": [[0.5, 0.5], [-0.1, 1.1]]}, r"must lie in \[0, 1\], got -0.1 to 1.1"),
        ({"probabilities": [[0.5, 0.5], [0.5, 0.4]]}, "must sum to 1, got a row with 0.9"),
        ({"decision": np.zeros((2, 2))}, "decision_function must return the shape"),
        ({"predicted": [0, 2]}, "predict must return classes it was given, 0 to 1, got 2"),
    ],
)
def test_classes_without_a_score(options, message):
    with pytest.raises(ValueError, match=message):
        score_two([0, 1], **options)


def test_rounding_of_float32_is_accepted():
    probabilities = np.array([[1.0000001, 0.0], [0.3333, 0.6666]], dtype=np.float32)
    assert score_two([0, 1], [0, 1], probabilities=probabilities)["accuracy"] == 1
    assert expected_calibration_error([[1.0000001, -1e-7]], [0]) == 0


def add_first(probability):
    """Both columns of two classes."""
    return np.column_stack([1 - np.asarray(probability), probability])


def test_calibration_error_by_hand():
    two = add_first([0.1, 0.9, 0.3, 0.7])
    # bins {0.1, 0.3} and {0.7, 0.9}: 0.2 stated and 1/2 true; 0.8 stated and 1/2 true
    assert expected_calibration_error(two, [0, 0, 1, 1], n_bins=2) == pytest.approx(0.3)
    assert expected_calibration_error(two, [0, 0, 1, 1], n_bins=1) == pytest.approx(0)
    three = [[0.5, 0.3, 0.2], [0.1, 0.7, 0.2], [0.0, 0.1, 0.9], [0.05, 0.35, 0.6]]
    # the most probable class: 0.5 right, 0.6 wrong | 0.7 wrong, 0.9 right
    error = expected_calibration_error(three, [0, 0, 2, 1], n_bins=2)
    assert error == pytest.approx((abs(1.1 - 1) + abs(1.6 - 1)) / 4)


def test_a_weight_of_two_is_a_row_that_comes_twice_and_equal_weights_change_nothing():
    rng = np.random.default_rng(0)
    probabilities, codes = add_first(rng.random(40)), rng.integers(2, size=40)
    unweighted = expected_calibration_error(probabilities, codes)
    for scale in (0.1, 0.7, 3):
        weighted = expected_calibration_error(probabilities, codes, np.full(40, scale))
        assert weighted == pytest.approx(unweighted)
    weights = np.random.default_rng(1).integers(1, 4, 40)
    rows = np.repeat(np.arange(40), weights)
    repeated = expected_calibration_error(probabilities[rows], codes[rows])
    assert expected_calibration_error(probabilities, codes, weights) == pytest.approx(repeated)


@pytest.mark.parametrize(
    ("probabilities", "codes", "options", "message"),
    [
        ([[0.5], [0.5]], [0, 1], {}, r"got \(2, 1\)\. For two classes, pass both columns"),
        ([[0.5, np.nan]], [0], {}, r"must lie in \[0, 1\], got nan to nan\. Pass predict_proba"),
        ([[0.5, 0.5]], ["yes"], {}, r"got <U3 of the shape \(1,\)\. Pass the position"),
        ([[0.5, 0.5]], [2], {}, "codes must lie between 0 and 1, .*, got 2 to 2"),
        ([[0.5, 0.5]], [1], {"weights": [0.0]}, "must be finite and above 0, got 0 to 0"),
        ([[0.5, 0.5]], [1], {"n_bins": 0}, "n_bins must be at least 1, got n_bins=0"),
    ],
)
def test_errors_name_the_argument_that_is_wrong(probabilities, codes, options, message):
    with pytest.raises(ValueError, match=message):
        expected_calibration_error(probabilities, codes, **options)
