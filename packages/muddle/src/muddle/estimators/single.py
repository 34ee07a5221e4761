"""MLRRegressor and MLRClassifier: one net each."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from muddle.core.loss import Source, Task
from muddle.estimators.base import BaseMLR, Trained, net_output, prediction_device
from muddle.estimators.parameters import OneDepth
from muddle.estimators.problems import ClassProblem, to_scores
from muddle.estimators.reports import history_frame
from muddle.estimators.tasks import ClassificationMLR, RegressionMLR, held_out_scores
from muddle.estimators.temperature import fit_temperature, to_probabilities
from muddle.tables.checks import FloatArray
from muddle.training.config import preset_config


class SingleNet(BaseMLR, OneDepth):
    """What the estimators of one net share."""

    _preset_task: ClassVar[Task]

    def _depths(self) -> tuple[int, ...]:
        return (self.depth,)

    @classmethod
    def preset(cls, name: str, settings: Source = "paper", **overrides: Any) -> Self:
        """An unfitted estimator with published settings.

        Parameters
        ----------
        name : {"mlr-1", "mlr-2", "mlr-3", "mlr-4"}
            Number of hidden layers, with the learning rate and iterations that go with it.
        settings : {"paper", "released"}, default="paper"
            What the paper's text says, or what the authors' released code does, which made the
            published tables. docs/method.md lists the differences.
        **overrides
            Any constructor parameter, e.g. ``random_state=0``.
        """
        return cls._from_config(preset_config(name, settings, cls._preset_task), **overrides)

    def _store(self, trained: Trained) -> None:
        (result,) = trained.results
        self.nets_ = result.nets
        self.head_ = result.head
        self.penalty_ = float(result.penalty[0])
        self.best_iteration_ = int(result.best_iteration[0])
        self.n_iter_ = int(result.n_iterations[0])
        self.validation_score_ = float(result.score[0])
        self.validation_metric_ = result.score_name
        self.n_recoveries_ = int(result.n_recoveries[0])
        self.history_ = history_frame(result, net=0)

    def _output(self, features: FloatArray) -> FloatArray:
        return net_output(self.nets_, self.head_, 0, features, prediction_device(self.device))


@dataclass(kw_only=True, eq=False, repr=False)
class MLRRegressor(RegressionMLR, SingleNet):
    """One MLR net for regression: a wide net with a ridge output, trained on muddled labels.

    Takes any table: numbers are standardised, gaps filled, text and dates encoded inside; the
    target is standardised too. One fifth of the rows is set aside to choose the best iteration.
    Several targets (y of shape (n, outputs)) are fitted by one net.

    Parameters
    ----------
    depth : int, default=2
        Hidden layers (MLR-1 has one).
    width : int, default=1024
        Units of each hidden layer.
    activation : {"relu", "selu", "mish", "tanh"}, default="relu"
        Activation after every hidden layer.
    init_gain : float, default=1.0
        Factor on the Glorot-uniform start. The released code uses √2.
    loss : {"paper", "released"}, default="released"
        The loss as the paper defines it (root mean square) or as the authors' code computes it
        (mean square of half the residual). "released" is the safer on noisy data, "paper" the
        better on clean data.
    n_permutations : int, default=16
        Permuted copies of the labels that the net must not fit. 0 turns the term off.
    structured_noise : float, default=1.0
        Standard deviation of the noise that is seen through I - H (structured dithering). 0: off.
    dither : float, default=0.03
        Standard deviation of the noise added to standardised labels at every iteration. 0: off.
    penalty : {"paper", "released"} or float, default="paper"
        First ridge penalty: the point where the loss rises fastest along the paper's (12 points)
        or the released code's (11 points) grid, or a number. It is trained from there.
    learning_rate : float or None, default=None
        Of Adam. None: 1e-2, 1e-3, 10^-3.5, 1e-4 for depth 1, 2, 3, 4 and more.
    max_iter : int or None, default=None
        Adam steps. None: 200 up to depth 2, 400 beyond.
    patience : int or None, default=None
        Stop a net after so many iterations without a better validation score. None: never.
    batch_size : int, default=4096
        Rows per step; all training rows if there are no more than that.
    validation_fraction : float, default=0.2
        Share of rows that choose the best iteration, stratified by the target.
    head : {"all", "train", "batch", "linear"}, default="all"
        Rows the predicting output layer is solved on: all rows (the validation rows too, once the
        iteration is chosen), training rows, or, as in the released code, the batch of the best
        iteration with its dithered labels. With more training rows than `batch_size`, iterations
        are scored with the head of their batch; "train" solves it on every training row each
        time, which takes longer.
        "linear" is another model, the plain net without a ridge: Adam trains the output layer with
        the others, by the training loss alone (root mean square for loss="paper", mean square for
        "released", logistic for classes), and it predicts as it is at the best iteration. There
        n_permutations, structured_noise and the grid of penalties have no effect; dither has.
    precision : {"float32", "reduced"}, default="float32"
        "reduced" computes the products of hidden layers, and nothing else, in a shorter format
        where the device is faster at it.
    max_loss : float or None, default=None
        Stop when the fit term exceeds this. None: stop only when it is not finite.
    time_limit : float or None, default=None
        Seconds for the whole fit; training stops after the iteration that reaches it (on CUDA up
        to nineteen iterations later, as the clock is looked at every twenty).
    preprocessor : TablePreprocessor or None, default=None
        How the table becomes features, unfitted. None: ``TablePreprocessor()``.
    device : str, default="auto"
        "auto" (CUDA if there is a device, else CPU), "cpu", "cuda" or "cuda:1".
    random_state : int, RandomState or None, default=None
        Seed of split, start, permutations and noise. Same seed, same CPU: same bits.
    verbose : bool, default=False
        Show progress (needs tqdm).

    Attributes
    ----------
    preprocessor_ : TablePreprocessor
        From tables to features; its `describe()` tells what became of each column.
    nets_ : StackedMLP
        Weights of the hidden layers at the best iteration.
    head_ : torch.Tensor
        Weights of the output layer, float64.
    penalty_ : float
        Ridge penalty at the best iteration; nan, as in `history_`, for head="linear".
    best_iteration_, n_iter_ : int
        The iteration kept and the Adam steps taken.
    validation_score_ : float
        R² on the validation rows at the best iteration.
    history_ : pandas.DataFrame
        loss, permutation_term, validation_score, penalty and seconds per iteration; row 0 is the
        state before the first step.
    n_recoveries_ : int
        How often the penalty was raised because a Gram matrix was not positive definite.
    table_summary_ : dict
        What the training rows looked like, without the rows: quantiles, shares of levels and gaps.
    fit_seconds_ : float
        Wall time of the fit.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from muddle import MLRRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MLRRegressor(depth=1, random_state=0).fit(X[:300], y[:300])
    >>> bool(model.score(X[300:], y[300:]) > 0.4)
    True
    """

    _preset_task: ClassVar[Task] = "regression"

    def predict(self, X: Any) -> FloatArray:
        """Predicted targets, (n,) or (n, outputs) as y was."""
        return self._to_targets(self._output(self._features(X)))


@dataclass(kw_only=True, eq=False, repr=False)
class MLRClassifier(ClassificationMLR, SingleNet):
    """One MLR net for classification, two classes or more, labels of any type.

    Each class is a column of ±1 labels (two classes share one), trained with the logistic MLR
    loss, one class against the rest. Probabilities are the softmax (sigmoid for two classes) of
    the scores divided by a temperature, which is fitted on the validation rows.

    Parameters
    ----------
    depth, width, activation, init_gain, loss, n_permutations, structured_noise, penalty, \
learning_rate, max_iter, patience, batch_size, validation_fraction, head, precision, max_loss, \
time_limit, preprocessor, device, random_state, verbose
        As in :class:`MLRRegressor`. Iterations are compared by the area under the ROC curve.
    criterion : {"logistic", "squared"}, default="logistic"
        The logistic loss of ±1 labels, or, as in the authors' released ensembles, the regression
        loss of 0/1 labels; then iterations are compared by R².
    dither : float, default=0.0
        Standard deviation of the noise added to 0/1 labels at every iteration; only with
        criterion="squared".
    ties : {"error", "first"}, default="error"
        Which iteration to keep among those with equal area under the curve: the one with the least
        squared error against ±1 labels (of the probability, for head="linear"), or, as in the
        released code, the first.
    class_weight : dict, "balanced" or None, default=None
        Weight of each class, multiplied with sample_weight. "balanced": inverse class frequency.

    Attributes
    ----------
    classes_ : numpy.ndarray
        The labels seen in `fit`, sorted.
    temperature_ : float
        Divisor of the scores in `predict_proba`.
    preprocessor_, nets_, head_, penalty_, best_iteration_, n_iter_, validation_score_, \
history_, n_recoveries_, n_features_in_, feature_names_in_
        As in :class:`MLRRegressor`; the validation score is the area under the ROC curve.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from muddle import MLRClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MLRClassifier(depth=1, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    _preset_task: ClassVar[Task] = "classification"

    def decision_function(self, X: Any) -> FloatArray:
        """Scores before the temperature: (n,), positive for `classes_[1]`, or (n, classes)."""
        scores = self._scores(self._features(X))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each class, (n, classes), in the order of `classes_`."""
        return to_probabilities(self._scores(self._features(X)), self.temperature_)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        scores = self._scores(self._features(X))
        codes = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[codes]
        return labels

    def _fit_temperature(self, problem: ClassProblem, trained: Trained) -> float:
        return fit_temperature(*next(held_out_scores(problem, trained)))

    def _scores(self, features: FloatArray) -> FloatArray:
        return to_scores(self._output(features), self._zero_one)
