"""Scores against scikit-learn's and by hand, and predictions that cannot be scored."""

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from muddle.scores import score_classification, score_regression

Y = np.array([1.0, 2.0, 3.0, 6.0])
TWO = np.array([0, 1])
THREE = np.array([0, 1, 2])


def score_two(codes, predicted=None, **options):
    predicted = np.zeros(len(codes)) if predicted is None else predicted
    options = {"seen": TWO, "n_classes": 2} | options
    return score_classification(np.asarray(codes), predicted, **options)


def test_regression_by_hand():
    scores = score_regression(Y, np.array([1.0, 2.0, 4.0, 4.0]))
    # errors 0, 0, 1, -2; the target varies by 4 + 1 + 0 + 9 = 14 around its mean of 3
    assert scores == pytest.approx({"r2": 1 - 5 / 14, "rmse": np.sqrt(5 / 4), "mae": 3 / 4})


def test_regression_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    y, predicted = rng.normal(size=(2, 50))
    assert score_regression(y, predicted) == pytest.approx(
        {
            "r2": r2_score(y, predicted),
            "rmse": root_mean_squared_error(y, predicted),
            "mae": mean_absolute_error(y, predicted),
        }
    )


def test_a_single_column_of_predictions_counts_as_a_vector():
    assert score_regression(Y, Y[:, None])["r2"] == 1


def test_two_classes_by_hand():
    probabilities = np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5], [0.1, 0.9]])
    scores = score_two([0, 0, 1, 1], [0, 1, 1, 1], probabilities=probabilities)
    assert scores["accuracy"] == 3 / 4
    assert scores["auc"] == 3 / 4  # of four pairs, 0.6 > 0.5 is the wrong way round
    assert scores["brier"] == pytest.approx((0.04 + 0.36 + 0.25 + 0.01) / 4)
    assert scores["log_loss"] == pytest.approx(-np.log([0.8, 0.4, 0.5, 0.9]).mean())
    assert scores["ece"] == pytest.approx((0.2 + 0.6 + 0.5 + 0.1) / 4)  # a bin to each row


def test_three_classes_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=60)
    probabilities = rng.dirichlet([1, 1, 1], size=60)
    predicted = probabilities.argmax(1)
    scores = score_classification(
        codes, predicted, probabilities=probabilities, seen=THREE, n_classes=3
    )
    assert scores["accuracy"] == accuracy_score(codes, predicted)
    assert scores["auc"] == pytest.approx(roc_auc_score(codes, probabilities, multi_class="ovr"))
    assert scores["log_loss"] == pytest.approx(log_loss(codes, probabilities))
    assert scores["brier"] == pytest.approx(np.sum((probabilities - np.eye(3)[codes]) ** 2) / 60)
    order = np.argsort(probabilities.max(1)).reshape(10, 6)  # ten bins of six rows
    gaps = (probabilities.max(1) - (predicted == codes))[order].mean(axis=1)
    assert scores["ece"] == pytest.approx(np.abs(gaps).mean())


def test_certainty_that_is_wrong_costs_no_more_than_the_smallest_float():
    scores = score_two([0, 1], [1, 0], probabilities=np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert scores["log_loss"] == pytest.approx(-np.log(np.finfo(float).eps))
    assert scores["brier"] == 1


def test_a_decision_function_gives_the_auc_alone():
    scores = score_two([0, 0, 1, 1], [0, 0, 0, 1], decision=np.array([-3.0, -1, -2, 5]))
    assert scores == {"accuracy": 3 / 4, "auc": 3 / 4}
    decision = np.eye(3)[[0, 1, 2, 2]]
    scores = score_classification(
        np.array([0, 1, 2, 1]), [0, 1, 2, 2], decision=decision, seen=THREE, n_classes=3
    )
    # class 0: 1; class 1: one of two rows found, the other ties, 3/4; class 2: 1 against 2/3
    assert scores["auc"] == pytest.approx((1 + 3 / 4 + (1 + 1 + 1 / 2) / 3) / 3)


def test_without_probabilities_there_is_accuracy_only():
    assert score_two([0, 1], [0, 0]) == {"accuracy": 1 / 2}


def test_the_auc_of_one_class_does_not_exist():
    scores = score_two([1, 1], probabilities=np.array([[0.5, 0.5], [0.2, 0.8]]))
    assert scores["auc"] is None
    assert scores["log_loss"] == pytest.approx(-np.log([0.5, 0.8]).mean())


def test_classes_without_test_rows_do_not_count_in_the_auc():
    probabilities = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]])
    scores = score_classification(
        np.array([0, 1]), [0, 1], probabilities=probabilities, seen=THREE, n_classes=3
    )
    assert scores["auc"] == 1


def test_a_class_without_training_rows_has_probability_0():
    """Classes 0 and 2 were seen; the third test row is of class 1."""
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    scores = score_classification(
        np.array([0, 2, 1]),
        [0, 1, 0],  # positions among the classes seen
        probabilities=probabilities,
        seen=np.array([0, 2]),
        n_classes=3,
    )
    eps = np.finfo(float).eps
    assert scores["accuracy"] == pytest.approx(2 / 3)
    assert scores["log_loss"] == pytest.approx(-np.log([0.9, 0.8, eps]).mean())
    assert scores["brier"] == pytest.approx((0.02 + 0.08 + 1 + 0.5) / 3)
    assert scores["ece"] == pytest.approx((0.1 + 0.2 + 0.5) / 3)
    assert scores["auc"] == pytest.approx((1 + 1 / 2 + 1) / 3)


@pytest.mark.parametrize(
    ("predicted", "said"),
    [
        ([1.0, 2.0, 3.0], r"predict must return the shape \(4,\), got \(3,\)"),
        ([[1.0, 2.0]] * 4, r"predict must return the shape \(4,\), got \(4, 2\)"),
        ([1.0, 2.0, np.nan, np.inf], "predict returned 2 of 4 values that are NaN or inf"),
        (["a", "b", "c", "d"], "predict must return numbers, got <U1"),
        ([None] * 4, "predict returned 4 of 4 values that are NaN or inf"),
        ([1j] * 4, "predict must return numbers, got complex128"),
        (None, r"predict must return the shape \(4,\), got \(\)"),
        ([1e200, 0, 0, 0], "r2 must be finite, got -inf: the predictions are too large"),
    ],
)
def test_numbers_that_cannot_be_scored(predicted, said):
    with pytest.raises(ValueError, match=said):
        score_regression(Y, predicted)


def test_one_test_row_has_no_r2():
    with pytest.raises(ValueError, match="R² needs two test rows at least, got 1"):
        score_regression(Y[:1], [1.0])


@pytest.mark.parametrize(
    ("probabilities", "said"),
    [
        ([[0.5, 0.5]], r"predict_proba must return the shape \(2, 2\), got \(1, 2\)"),
        ([0.5, 0.5], r"predict_proba must return the shape \(2, 2\), got \(2,\)"),
        ([[0.5, 0.5], [np.nan, 1]], "predict_proba returned 1 of 4 values that are NaN or inf"),
        ([[0.5, 0.5], [-0.1, 1.1]], r"predict_proba must lie in \[0, 1\], got -0.1 to 1.1"),
        ([[0.5, 0.5], [0.5, 0.4]], "rows of predict_proba must sum to 1, got a row with 0.9"),
    ],
)
def test_probabilities_that_are_none(probabilities, said):
    with pytest.raises(ValueError, match=said):
        score_two([0, 1], probabilities=probabilities)


def test_rounding_of_float32_is_no_fault():
    probabilities = np.array([[1.0000001, 0.0], [0.3333, 0.6666]], dtype=np.float32)
    assert score_two([0, 1], [0, 1], probabilities=probabilities)["accuracy"] == 1


@pytest.mark.parametrize("wrong", [2, -1, 0.5])
def test_a_class_that_was_not_given_is_an_error(wrong):
    said = f"predict must return classes it was given, 0 to 1, got {wrong:g}"
    with pytest.raises(ValueError, match=said):
        score_two([0, 1], [0, wrong])


def test_a_decision_function_of_the_wrong_shape_is_an_error():
    with pytest.raises(ValueError, match="decision_function must return the shape"):
        score_two([0, 1], decision=np.zeros((2, 2)))
