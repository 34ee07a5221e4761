"""Ensembles of nets: bags of one depth (Bag-MLR), and of several (Ens-, Best-, Top5-MLR)."""

from dataclasses import dataclass
from typing import Any, Self

from muddle.core.loss import Source
from muddle.estimators.ensemble_base import (
    ClassificationEnsemble,
    Ensemble,
    RegressionEnsemble,
)
from muddle.estimators.parameters import OneDepth, Select, SeveralDepths, check_depths
from muddle_runtime.parameters import check_choice

BAGS = {f"bag-mlr-{depth}": f"mlr-{depth}" for depth in (1, 2, 3, 4)}
ENSEMBLES: dict[str, Select] = {"ens-mlr": "all", "best-mlr": "best", "top5-mlr": "top"}


class Bag(Ensemble, OneDepth):
    """Nets of one depth."""

    def _depths(self) -> tuple[int, ...]:
        return (self.depth,)

    @classmethod
    def preset(cls, name: str, settings: Source = "paper", **overrides: Any) -> Self:
        """An unfitted estimator with published settings: ten nets of one depth.

        Parameters
        ----------
        name : {"bag-mlr-1", "bag-mlr-2", "bag-mlr-3", "bag-mlr-4"}
            Number of hidden layers, with the learning rate and iterations that go with it.
        settings : {"paper", "released"}, default="paper"
            What the paper's text says, or what the authors' released code does. There, classifiers
            train the regression loss; the published ones, by their scores, the logistic.
        **overrides
            Any constructor parameter, e.g. ``random_state=0``.
        """
        check_choice("name", name, tuple(BAGS))
        return cls._from_preset(BAGS[name], settings, **overrides)


class DepthEnsemble(Ensemble, SeveralDepths):
    """Nets of several depths."""

    def _depths(self) -> tuple[int, ...]:
        return check_depths(self.depths)

    @classmethod
    def preset(cls, name: str, settings: Source = "paper", **overrides: Any) -> Self:
        """An unfitted estimator with published settings: ten nets each of depth 1 and 2.

        Parameters
        ----------
        name : {"ens-mlr", "best-mlr", "top5-mlr"}
            The mean of all twenty, the one with the best validation score, the mean of the five
            best.
        settings : {"paper", "released"}, default="paper"
            What the paper's text says, or what the authors' released code does. There, classifiers
            train the regression loss; the published ones, by their scores, the logistic.
        **overrides
            Any constructor parameter, e.g. ``random_state=0``.
        """
        check_choice("name", name, tuple(ENSEMBLES))
        # Learning rate and iterations go by the depth of each net.
        by_depth = {"learning_rate": None, "max_iter": None}
        chosen = {"depths": (1, 2), "select": ENSEMBLES[name], "top_k": 5}
        return cls._from_preset("mlr-1", settings, **by_depth | chosen | overrides)


@dataclass(kw_only=True, eq=False, repr=False)
class BagMLRRegressor(RegressionEnsemble, Bag):
    """A bag of MLR nets of one depth for regression (Bag-MLR), trained as one batch.

    Every net has its own start, validation rows, permutations and noise; the mean of the nets
    predicts. A net is the same as it would be alone: the first is that of :class:`MLRRegressor`
    with the same `random_state`.

    Parameters
    ----------
    depth : int, default=2
        Hidden layers of every net.
    n_nets : int, default=10
        Nets in the bag.
    select : {"all", "best", "top"}, default="all"
        Which nets predict: all, the one with the highest validation score, or the `top_k` with the
        highest. `predict` can be asked for another choice; training is the same for all.
    top_k : int, default=5
        Nets that predict with select="top".
    n_jobs : int or None, default=None
        Workers to spread the nets over, through joblib. None: this process alone, unless a
        ``joblib.parallel_config`` says otherwise, e.g. for a Dask cluster; -1: one per core. On
        one machine a batch of nets uses all cores already.
    time_limit : float or None, default=None
        Seconds for the whole fit, all nets together.
    random_state : int, RandomState or None, default=None
        Seed of the nets' seeds.
    verbose : bool, default=False
        Show progress (needs tqdm).
    width, activation, init_gain, loss, n_permutations, structured_noise, dither, penalty, \
learning_rate, max_iter, patience, batch_size, validation_fraction, head, precision, max_loss, \
preprocessor, device
        As in :class:`MLRRegressor`.

    Attributes
    ----------
    nets_ : tuple of StackedMLP
        Weights of the hidden layers, one stack of nets per depth.
    head_ : tuple of torch.Tensor
        Weights of the output layers, one stack per depth, float64.
    validation_scores_ : numpy.ndarray
        R² of each net on its own validation rows.
    estimator_weights_ : numpy.ndarray
        Weight of each net in the mean, by `select`.
    leaderboard_ : pandas.DataFrame
        One row per net, in net order: net, depth, validation_score, best_iteration, n_iterations,
        penalty, n_recoveries, weight. A net without a finite loss is left out, with a warning.
    history_ : pandas.DataFrame
        loss, permutation_term, validation_score, penalty and seconds per net and iteration.
    n_iter_ : int
        Adam steps of the net that took most.
    validation_metric_ : str
        What the validation scores are.
    preprocessor_, target_scale_, n_features_in_, feature_names_in_
        As in :class:`MLRRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from muddle import BagMLRRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BagMLRRegressor(depth=1, n_nets=4, random_state=0).fit(X[:300], y[:300])
    >>> bool(model.score(X[300:], y[300:]) > 0.4)
    True
    >>> model.predict_nets(X[300:]).shape, model.predict_std(X[300:]).shape
    ((4, 142), (142,))
    >>> model.subset([0, 3]).validation_scores_.shape
    (2,)
    """


@dataclass(kw_only=True, eq=False, repr=False)
class BagMLRClassifier(ClassificationEnsemble, Bag):
    """A bag of MLR nets of one depth for classification (Bag-MLR), trained as one batch.

    The mean of the nets' probabilities predicts; each net has its own temperature. Otherwise as
    :class:`BagMLRRegressor`.

    Parameters
    ----------
    depth, n_nets, select, top_k, n_jobs, time_limit, random_state, verbose
        As in :class:`BagMLRRegressor`.
    criterion : {"logistic", "squared"}, default="logistic"
        The logistic loss of ±1 labels, or, as in the authors' released ensembles, the regression
        loss of 0/1 labels; then the validation score is R² instead of the area under the ROC curve.
    width, activation, init_gain, loss, n_permutations, structured_noise, dither, penalty, \
learning_rate, max_iter, patience, batch_size, validation_fraction, head, precision, ties, \
max_loss, class_weight, preprocessor, device
        As in :class:`MLRClassifier`.

    Attributes
    ----------
    classes_ : numpy.ndarray
        The labels seen in `fit`, sorted.
    temperature_ : numpy.ndarray
        Divisor of each net's scores in `predict_proba`.
    nets_, head_, validation_scores_, estimator_weights_, leaderboard_, history_, n_iter_, \
validation_metric_, preprocessor_, n_features_in_, feature_names_in_
        As in :class:`BagMLRRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from muddle import BagMLRClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BagMLRClassifier(depth=1, n_nets=4, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    >>> model.predict_nets(X[1::2]).shape
    (4, 89, 3)
    """


@dataclass(kw_only=True, eq=False, repr=False)
class EnsMLRRegressor(RegressionEnsemble, DepthEnsemble):
    """MLR nets of several depths for regression: Ens-MLR, Best-MLR and Top5-MLR in one.

    `n_nets` nets of each depth are trained as one batch per depth. select="all" is the paper's
    Ens-MLR, "best" its Best-MLR, "top" its Top5-MLR; one fitted model answers all three.

    Parameters
    ----------
    depths : tuple of int, default=(1, 2)
        Hidden layers; any distinct numbers. Each depth has the learning rate and iterations that
        go with it, unless `learning_rate` and `max_iter` set them for all.
    n_nets : int, default=10
        Nets of each depth.
    select, top_k, n_jobs, time_limit, random_state, verbose
        As in :class:`BagMLRRegressor`; nets of all depths are compared with each other.
    width, activation, init_gain, loss, n_permutations, structured_noise, dither, penalty, \
learning_rate, max_iter, patience, batch_size, validation_fraction, head, precision, max_loss, \
preprocessor, device
        As in :class:`MLRRegressor`.

    Attributes
    ----------
    nets_, head_, validation_scores_, estimator_weights_, leaderboard_, history_, n_iter_, \
validation_metric_, preprocessor_, target_scale_, n_features_in_, feature_names_in_
        As in :class:`BagMLRRegressor`; nets are counted depth by depth.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from muddle import EnsMLRRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = EnsMLRRegressor(n_nets=2, max_iter=20, random_state=0).fit(X[:300], y[:300])
    >>> model.predict(X[300:], select="best").shape
    (142,)
    >>> model.leaderboard_["depth"].tolist()
    [1, 1, 2, 2]
    """


@dataclass(kw_only=True, eq=False, repr=False)
class EnsMLRClassifier(ClassificationEnsemble, DepthEnsemble):
    """MLR nets of several depths for classification: Ens-MLR, Best-MLR and Top5-MLR in one.

    As :class:`EnsMLRRegressor`, with the mean of the nets' probabilities.

    Parameters
    ----------
    depths, n_nets
        As in :class:`EnsMLRRegressor`.
    select, top_k, n_jobs, criterion, time_limit, random_state, verbose
        As in :class:`BagMLRClassifier`.
    width, activation, init_gain, loss, n_permutations, structured_noise, dither, penalty, \
learning_rate, max_iter, patience, batch_size, validation_fraction, head, precision, ties, \
max_loss, class_weight, preprocessor, device
        As in :class:`MLRClassifier`.

    Attributes
    ----------
    classes_, temperature_, nets_, head_, validation_scores_, estimator_weights_, leaderboard_, \
history_, n_iter_, validation_metric_, preprocessor_, n_features_in_, feature_names_in_
        As in :class:`BagMLRClassifier`; nets are counted depth by depth.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from muddle import EnsMLRClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = EnsMLRClassifier(n_nets=2, max_iter=20, random_state=0).fit(X[::2], y[::2])
    >>> model.predict_proba(X[1::2], select="top", top_k=3).shape
    (89, 3)
    """
