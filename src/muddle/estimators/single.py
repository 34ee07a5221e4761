"""MLRRegressor and MLRClassifier: one net each."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from muddle.core.loss import Source, Task
from muddle.core.network import Activation
from muddle.estimators.base import BaseMLR, Problem, drop_zero_weights, fit_features
from muddle.estimators.temperature import fit_temperature, to_probabilities
from muddle.preprocessing import TablePreprocessor
from muddle.preprocessing.checks import MIN_ROWS, FloatArray, check_target, check_weights
from muddle.preprocessing.scaling import fit_target_scale
from muddle.preprocessing.splits import split_by_class, split_by_number
from muddle.preprocessing.tables import read_table
from muddle.training.config import DITHER, Head, Ties, TrainConfig
from muddle.training.stopping import Deadline

DEFAULT = TrainConfig()


class MLRRegressor(RegressorMixin, BaseMLR):
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
    batch_size : int, default=4096
        Rows per step; all training rows if there are no more than that.
    validation_fraction : float, default=0.2
        Share of rows that choose the best iteration, stratified by the target.
    head : {"all", "train", "batch"}, default="all"
        Rows the predicting output layer is solved on: all rows (the validation rows too, once the
        iteration is chosen), training rows, or, as in the released code, the batch of the best
        iteration with its dithered labels. With more training rows than `batch_size`, iterations
        are scored with the head of their batch; "train" solves it on every training row each
        time, which takes longer.
    max_loss : float or None, default=None
        Stop when the fit term exceeds this. None: stop only when it is not finite.
    time_limit : float or None, default=None
        Seconds for the whole fit; training stops after the iteration that reaches it.
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
        Ridge penalty at the best iteration.
    best_iteration_, n_iter_ : int
        The iteration kept and the Adam steps taken.
    validation_score_ : float
        R² on the validation rows at the best iteration.
    history_ : pandas.DataFrame
        loss, permutation_term, validation_score, penalty and seconds per iteration; row 0 is the
        state before the first step.
    n_recoveries_ : int
        How often the penalty was raised because a Gram matrix was not positive definite.
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

    _task: ClassVar[Task] = "regression"

    def __init__(
        self,
        *,
        depth: int = DEFAULT.depth,
        width: int = DEFAULT.width,
        activation: Activation = DEFAULT.activation,
        init_gain: float = DEFAULT.init_gain,
        loss: Source = DEFAULT.loss,
        n_permutations: int = DEFAULT.n_permutations,
        structured_noise: float = DEFAULT.structured_noise,
        dither: float = DITHER,
        penalty: Source | float = DEFAULT.penalty,
        learning_rate: float | None = DEFAULT.learning_rate,
        max_iter: int | None = DEFAULT.max_iter,
        batch_size: int = DEFAULT.batch_size,
        validation_fraction: float = DEFAULT.validation_fraction,
        head: Head = DEFAULT.head,
        max_loss: float | None = DEFAULT.max_loss,
        time_limit: float | None = DEFAULT.time_limit,
        preprocessor: TablePreprocessor | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.depth = depth
        self.width = width
        self.activation = activation
        self.init_gain = init_gain
        self.loss = loss
        self.n_permutations = n_permutations
        self.structured_noise = structured_noise
        self.dither = dither
        self.penalty = penalty
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.head = head
        self.max_loss = max_loss
        self.time_limit = time_limit
        self.preprocessor = preprocessor
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to the rows of X and their targets y, (n,) or (n, outputs).

        A row of weight w counts like w rows in the head and in the loss; weight 0 leaves it out.
        """
        config = self._config()  # bad values stop here, before any work
        deadline = Deadline(config.time_limit)
        table = read_table(X, type(self).__name__, MIN_ROWS)
        target = check_target(
            y, table.n_rows, type(self).__name__, multi_output=True, y_numeric=True
        )
        weights = check_weights(sample_weight, table.n_rows)
        training = drop_zero_weights(table, target.astype(np.float64), weights)
        columns = training.target.reshape(len(training.target), -1)
        scale = fit_target_scale(columns, training.weights)
        labels = scale.apply(columns)
        ranking = labels.mean(axis=1)

        def split(seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            return split_by_number(ranking, config.validation_fraction, seed)

        preprocessor, features = fit_features(self.preprocessor, training, "continuous")
        problem = Problem(preprocessor, features, labels, training.weights, split)
        self._fit_nets(problem, deadline, config)
        self.target_scale_ = scale
        self._one_output = target.ndim == 1
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predicted targets, (n,) or (n, outputs) as y was."""
        output = self._output(X)
        predicted: FloatArray = self.target_scale_.undo(output)
        return predicted[:, 0] if self._one_output else predicted

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags


class MLRClassifier(ClassifierMixin, BaseMLR):
    """One MLR net for classification, two classes or more, labels of any type.

    Each class is a column of ±1 labels (two classes share one), trained with the logistic MLR
    loss, one class against the rest. Probabilities are the softmax (sigmoid for two classes) of
    the scores divided by a temperature, which is fitted on the validation rows.

    Parameters
    ----------
    depth, width, activation, init_gain, loss, n_permutations, structured_noise, penalty, \
learning_rate, max_iter, batch_size, validation_fraction, head, max_loss, time_limit, \
preprocessor, device, random_state, verbose
        As in :class:`MLRRegressor`. Iterations are compared by the area under the ROC curve.
    ties : {"error", "first"}, default="error"
        Which iteration to keep among those with equal area under the curve: the one with the least
        squared error against ±1 labels, or, as in the released code, the first.
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

    _task: ClassVar[Task] = "classification"

    def __init__(
        self,
        *,
        depth: int = DEFAULT.depth,
        width: int = DEFAULT.width,
        activation: Activation = DEFAULT.activation,
        init_gain: float = DEFAULT.init_gain,
        loss: Source = DEFAULT.loss,
        n_permutations: int = DEFAULT.n_permutations,
        structured_noise: float = DEFAULT.structured_noise,
        penalty: Source | float = DEFAULT.penalty,
        learning_rate: float | None = DEFAULT.learning_rate,
        max_iter: int | None = DEFAULT.max_iter,
        batch_size: int = DEFAULT.batch_size,
        validation_fraction: float = DEFAULT.validation_fraction,
        head: Head = DEFAULT.head,
        ties: Ties = DEFAULT.ties,
        max_loss: float | None = DEFAULT.max_loss,
        time_limit: float | None = DEFAULT.time_limit,
        class_weight: Any = None,
        preprocessor: TablePreprocessor | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.depth = depth
        self.width = width
        self.activation = activation
        self.init_gain = init_gain
        self.loss = loss
        self.n_permutations = n_permutations
        self.structured_noise = structured_noise
        self.penalty = penalty
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.head = head
        self.ties = ties
        self.max_loss = max_loss
        self.time_limit = time_limit
        self.class_weight = class_weight
        self.preprocessor = preprocessor
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to the rows of X and their labels y, (n,).

        A row of weight w counts like w rows in the head and in the loss; weight 0 leaves it out.
        """
        config = self._config()  # bad values stop here, before any work
        deadline = Deadline(config.time_limit)
        table = read_table(X, type(self).__name__, MIN_ROWS)
        target = check_target(y, table.n_rows, type(self).__name__)
        check_classification_targets(target)
        weights = check_weights(sample_weight, table.n_rows)
        if self.class_weight is not None:
            weights = (1.0 if weights is None else weights) * compute_sample_weight(
                self.class_weight, target
            )
            weights = check_weights(weights, table.n_rows)
        training = drop_zero_weights(table, target, weights)
        classes, codes = np.unique(training.target, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y must hold at least 2 classes, got 1 class: {classes.tolist()[0]!r} in every "
                "row of weight above 0. sklearn.dummy.DummyClassifier predicts a constant."
            )
        hot = codes[:, None] == (np.arange(len(classes)) if len(classes) > 2 else [1])
        labels = np.where(hot, 1.0, -1.0)

        def split(seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            return split_by_class(codes, config.validation_fraction, seed)

        preprocessor, features = fit_features(self.preprocessor, training, "classes")
        problem = Problem(preprocessor, features, labels, training.weights, split)
        result, data = self._fit_nets(problem, deadline, config)
        held_out = data.validation_rows[0].numpy()
        self.temperature_ = fit_temperature(
            result.validation_output[0].numpy(),
            codes[held_out],
            None if training.weights is None else training.weights[held_out],
        )
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Scores before the temperature: (n,), positive for `classes_[1]`, or (n, classes)."""
        output = self._output(X)
        return output[:, 0] if output.shape[1] == 1 else output

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each class, (n, classes), in the order of `classes_`."""
        return to_probabilities(self._output(X), self.temperature_)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        output = self._output(X)
        codes = (output[:, 0] > 0).astype(int) if output.shape[1] == 1 else output.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[codes]
        return labels
