"""MLR nets as estimators: one net, a bag of nets of one depth, an ensemble of several depths.

All six are one machine for K nets; they differ in their parameters and presets only. Parameters are
declared once, as dataclass fields from which the constructors are generated, and defaults that
belong to training are taken from TrainConfig.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from muddle.core.device import Precision, resolve_device
from muddle.core.loss import LossName
from muddle.core.network import Activation, Normalization
from muddle.core.penalty import PenaltyGrid
from muddle.estimators.base import MAX_SEED, Estimator, store_frame, to_numpy_nets, to_plain, watch
from muddle.estimators.beyond_memory import RowsRead, count_rows, read_small, take_stream
from muddle.estimators.calibrate import fit_temperature
from muddle.estimators.made_rows import keep_background
from muddle.estimators.problems import (
    NOTHING_ASKED,
    ClassProblem,
    Criterion,
    HoldOutRequest,
    Problem,
    add_validation,
    fit_features,
    list_level_widths,
    make_jobs,
    read_classes,
    read_numbers,
)
from muddle.estimators.update import (
    Weighing,
    check_options,
    collect_statistics,
    list_updates,
    read_rows,
    update_nets,
    weigh_rows,
)
from muddle.tables.preprocessor import TablePreprocessor
from muddle.tables.stream import Stream
from muddle.training.config import (
    DITHER,
    OptimizerName,
    Schedule,
    Source,
    Ties,
    TrainConfig,
    preset_config,
)
from muddle.training.data import TrainJob
from muddle.training.jobs import train_in_parallel
from muddle.training.stopping import Deadline
from muddle.training.streamed import StreamedResult, train_streamed
from muddle.training.trainer import TrainResult
from muddle_runtime.columns import FloatArray
from muddle_runtime.fitted import FittedModel, Member, Select, Selection, Task, check_selection
from muddle_runtime.forward import PlainView
from muddle_runtime.parameters import check_choice, check_int
from muddle_runtime.tables import warn

DEFAULT = TrainConfig()
# Published presets: the single net whose settings they share, and parameters of their own.
Presets = dict[str, tuple[str, dict[str, Any]]]
NETS: Presets = {f"mlr-{depth}": (f"mlr-{depth}", {}) for depth in (1, 2, 3, 4)}
BAGS: Presets = {f"bag-{name}": shared for name, shared in NETS.items()}
# Learning rate and iterations go by the depth of each net.
BY_DEPTH = {"depths": (1, 2), "learning_rate": None, "max_iter": None, "top_k": 5}
ENSEMBLES: Presets = {
    name: ("mlr-1", BY_DEPTH | {"select": select})
    for name, select in (("ens-mlr", "all"), ("best-mlr", "best"), ("top5-mlr", "top"))
}


def _can_go_on(estimator: "MLR") -> bool:
    """Whether `partial_fit` is the first call, or has what it needs; else an error that says so."""
    if estimator.__sklearn_is_fitted__() and estimator.model_.statistics is None:
        raise AttributeError(
            "partial_fit after fit needs the sums over the training rows. Fit with "
            "keep_statistics=True, or begin with partial_fit."
        )
    return True


@dataclass(kw_only=True, eq=False, repr=False)
class NetParameters:
    """Parameters of every MLR estimator."""

    width: int = DEFAULT.width
    activation: Activation | Callable[..., Any] = DEFAULT.activation
    dropout: float = DEFAULT.dropout
    normalization: Normalization = DEFAULT.normalization
    residual: bool = DEFAULT.residual
    gated: bool = DEFAULT.gated
    embedding: int = DEFAULT.embedding
    init_gain: float = DEFAULT.init_gain
    loss: LossName = DEFAULT.loss
    n_permutations: int = DEFAULT.n_permutations
    structured_noise: float = DEFAULT.structured_noise
    penalty: PenaltyGrid | float = DEFAULT.penalty
    learning_rate: float | None = DEFAULT.learning_rate
    max_iter: int | None = DEFAULT.max_iter
    schedule: Schedule = DEFAULT.schedule
    optimizer: OptimizerName | type[Any] = DEFAULT.optimizer
    weight_decay: float = DEFAULT.weight_decay
    clip_norm: float | None = DEFAULT.clip_norm
    patience: int | None = DEFAULT.patience
    batch_size: int = DEFAULT.batch_size
    validation_fraction: float = DEFAULT.validation_fraction
    head: Literal["all", "train", "batch"] = "all"
    precision: Precision = DEFAULT.precision
    max_loss: float | None = DEFAULT.max_loss
    time_limit: float | None = DEFAULT.time_limit
    preprocessor: TablePreprocessor | None = None
    keep_statistics: bool = False
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False


class MLR(Estimator, NetParameters):
    """K nets of one or several depths, trained as one batch; those selected predict their mean."""

    # Of a single net; parameters of the others.
    n_nets: int = 1
    select: Select = "all"
    top_k: int = 1
    n_jobs: int | None = 1
    depth: int

    _preset_task: ClassVar[Task]
    _presets: ClassVar[Presets] = NETS

    def _depths(self) -> tuple[int, ...]:
        return (self.depth,)

    def _task(self) -> Task:
        """The loss that trains the nets."""
        return self._preset_task

    @classmethod
    def published(cls, name: str, settings: Source = "paper", **overrides: Any) -> Self:
        """An unfitted estimator with published settings.

        Parameters
        ----------
        name : str
            One net: "mlr-1" to "mlr-4", by the number of hidden layers, with the learning rate and
            iterations that go with it. Ten such nets: "bag-mlr-1" to "bag-mlr-4". Ten nets each of
            depth 1 and 2: "ens-mlr", the mean of all twenty, "best-mlr", the one with the best
            validation score, "top5-mlr", the mean of the five best.
        settings : {"paper", "released"}, default="paper"
            Settings of the paper's text, or of the authors' released code, which made the
            published tables; docs/method.md lists the differences. There, classifiers of several
            nets train the regression loss; the published ones, by their scores, the logistic.
        **overrides
            Any constructor parameter, e.g. ``random_state=0``.
        """
        check_choice("name", name, tuple(cls._presets))
        net, own = cls._presets[name]
        known = cls._get_param_names()
        # PAPER: classifiers train the logistic loss; the published rows of ensembles were made with
        # the squared one.
        squared = settings == "released" and "n_nets" in known
        config = preset_config(net, settings, "regression" if squared else cls._preset_task)
        shared = {f.name: getattr(config, f.name) for f in fields(config) if f.name in known}
        if squared and "criterion" in known:
            shared["criterion"] = "squared"
        return cls(**shared | own | overrides)

    def _configs(self) -> list[TrainConfig]:
        """Settings per depth; bad values stop here, before any work."""
        check_choice("head", self.head, ("all", "train", "batch"))
        check_int("n_nets", self.n_nets, minimum=1)
        if self.n_jobs is not None:
            check_int("n_jobs", self.n_jobs, minimum=-(2**31))
        if self.n_jobs == 0:
            raise ValueError(
                "n_jobs must not be 0. Use None or 1 for no workers, -1 for all cores."
            )
        depths = self._depths()
        check_selection(self.select, self.top_k, int(self.n_nets) * len(depths))
        if not isinstance(self.keep_statistics, (bool, np.bool_)):
            raise TypeError(f"keep_statistics must be True or False, got {self.keep_statistics!r}.")
        names = {f.name for f in fields(TrainConfig)} - {"task", "depth"}
        params = self.get_params(deep=False)
        shared = {name: value for name, value in params.items() if name in names}
        return [TrainConfig(task=self._task(), depth=depth, **shared) for depth in depths]

    def _fit(
        self,
        problem: Problem,
        configs: Sequence[TrainConfig],
        deadline: Deadline,
        weighing: Weighing | None,
    ) -> Self:
        """From a checked problem to a fitted model. weighing: if statistics are kept"""
        device = resolve_device(self.device)
        preprocessor, features = fit_features(self.preprocessor, problem)
        n_seeds = len(configs), int(self.n_nets)
        seeds = check_random_state(self.random_state).randint(MAX_SEED, size=n_seeds)
        widths = list_level_widths(preprocessor)
        owner, plan = type(self).__name__, preprocessor.plan_
        given, seen = add_validation(problem, features, plan, owner)
        jobs = make_jobs(given, seen, configs, seeds.tolist(), widths)
        n_net_iterations = sum(len(job.seeds) * (job.config.steps + 1) for job in jobs)
        label = f"{owner}(depth={', '.join(str(config.depth) for config in configs)})"
        with watch(n_net_iterations, label, bool(self.verbose)) as reporter:
            results = train_in_parallel(
                jobs, n_jobs=self.n_jobs, device=device, deadline=deadline, reporter=reporter
            )
        asked = [(job.config, len(job.seeds)) for job in jobs]
        model = self._make_model(
            asked,
            results,
            preprocessor,
            problem,
            problem.summarise(preprocessor.plan_),
            _fit_temperatures(given, jobs, results),
            deadline,
        )
        if weighing is not None:
            penalties = [
                result.penalty.numpy().astype(np.float64) / job.n_batch_rows
                for job, result in zip(jobs, results, strict=True)
                if result.n_nets > 0
            ]
            known = features, problem.labels, problem.weights, penalties
            model = replace(model, statistics=collect_statistics(model, *known, *weighing))
        self.model_ = keep_background(model, features, problem.labels, problem.weights)
        return self

    def _make_model(
        self,
        asked: Sequence[tuple[TrainConfig, int]],
        results: Sequence[TrainResult],
        preprocessor: TablePreprocessor,
        problem: Problem,
        summary: dict[str, Any],
        temperatures: FloatArray | None,
        deadline: Deadline,
    ) -> FittedModel:
        """asked: per result, its settings and the number of nets that were wanted"""
        top_k = self.top_k if self.select == "top" else None
        for text in [*_describe_troubles(asked, results, top_k), *_describe_cuts(asked, results)]:
            warn(text)
        records = _record_nets(results, [config.depth for config, _ in asked])
        view = PlainView(preprocessor.plan_.n_features)
        trained = [result for result in results if result.n_nets > 0]
        nets = [to_numpy_nets(r.nets, [view] * r.n_nets, rounded=False) for r in trained]
        # Validation rows that were passed are not learnt from.
        heads = [r.head if problem.validation is None else r.held_out_head for r in trained]
        members = [Member(own, head.numpy()) for own, head in zip(nets, heads, strict=True)]
        scores = records["validation_score"].to_numpy(np.float64)
        n_asked = sum(n_nets for _, n_nets in asked)
        return FittedModel(
            estimator=self._kind(),
            table=preprocessor.plan_,
            target=problem.describe_target(),
            members=tuple(members),
            selection=Selection(scores, self.select, int(self.top_k), n_asked),
            temperatures=temperatures,
            training=self._describe_training(
                preprocessor,
                summary,
                deadline.elapsed(),
                *self._record_training(results, records),
            ),
        )

    def _fit_stream(self, stream: Stream, target: str, task: Task) -> Self:
        """To rows that may not fit into memory."""
        if self.keep_statistics:
            raise ValueError(
                "keep_statistics=True goes with rows in memory, got it with a stream of rows. Set "
                "keep_statistics=False."
            )
        configs, deadline = self._configs(), Deadline(self.time_limit)
        device, owner = resolve_device(self.device), type(self).__name__
        given = self.preprocessor
        random = check_random_state(self.random_state)
        stream_seed = int(random.randint(MAX_SEED))
        seeds = random.randint(MAX_SEED, size=(len(configs), int(self.n_nets))).tolist()
        streamed = count_rows(
            stream,
            target,
            task,
            TablePreprocessor() if given is None else clone(given),
            owner=owner,
            zero_one=getattr(self, "criterion", "") == "squared",
            seed=stream_seed,
            share=configs[0].validation_fraction,
            watch=lambda n, label: watch(n, label, bool(self.verbose)),
        )
        found, n_net_iterations = (
            [],
            sum(len(own) * (c.steps + 1) for own, c in zip(seeds, configs, strict=True)),
        )
        label = f"{owner}(depth={', '.join(str(config.depth) for config in configs)})"
        with watch(n_net_iterations, label, bool(self.verbose)) as reporter:
            for place, config in enumerate(configs):
                found.append(
                    train_streamed(
                        streamed.batches(),
                        config,
                        seeds[place],
                        device=device,
                        deadline=deadline.part(1 / (len(configs) - place)),
                        reporter=reporter,
                        read=RowsRead(reporter, label, streamed.counted.n_rows),
                    )
                )
        results = [one.trained for one in found]
        plan = streamed.preprocessor.plan_
        model = self._make_model(
            [(config, int(self.n_nets)) for config in configs],
            results,
            streamed.preprocessor,
            streamed.learnt,
            streamed.summarise(plan),
            _fit_streamed_temperatures(streamed.learnt, found),
            deadline,
        )
        own = streamed.matrix, streamed.learnt.labels, None
        self.model_ = keep_background(model, *own)
        return self

    def _check_head(self, keep: bool) -> None:
        if keep and self.head != "all":
            raise ValueError(
                f"updates go with head='all', got head={self.head!r}: other output layers are not "
                "solved on all rows."
            )

    def update(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        forgetting: float = 1.0,
        remove: bool = False,
    ) -> Self:
        """Learn further rows without training again, or unlearn some of those that were learnt.

        The output layer of each net becomes that of all rows together. Hidden layers, features, the
        scale of the target, penalties per row, and of classifiers the temperature stay as they are.
        Needs the sums that `keep_statistics=True` keeps. If anything is wrong with the rows, the
        model is as it was.

        Parameters
        ----------
        X, y : table and targets
            The rows, with the columns of the fit; of classifiers, no new classes.
        sample_weight : array or None, default=None
            Weights of the rows, as in `fit`.
        forgetting : float, default=1.0
            Factor by which all earlier rows count less from now on, such as 0.99. 1 forgets
            nothing.
        remove : bool, default=False
            Take these rows, which must be some of those learnt, out of the output layers again.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MLRRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MLRRegressor(depth=1, keep_statistics=True, random_state=0)
        >>> model = model.fit(X[:200], y[:200])
        >>> before = model.score(X[300:], y[300:])
        >>> bool(model.update(X[200:300], y[200:300]).score(X[300:], y[300:]) > before)
        True
        """
        model = self._fitted()
        if model.statistics is None:
            raise ValueError(
                "update needs the sums over the training rows, which this model does not have. "
                "Fit it with keep_statistics=True."
            )
        check_options(model.statistics, forgetting, remove)
        rows = read_rows(model, model.statistics, X, y, sample_weight)
        members, statistics = update_nets(model, rows, float(forgetting), bool(remove))
        self.model_ = replace(model, members=members, statistics=statistics)
        return self

    @property
    def updates_(self) -> pd.DataFrame:
        """One row per update: rows, whether they were removed, forgetting, the error before they
        were seen (mean square in units of the target's variance in `fit`, or log-loss), and how
        they differ from the rows of `fit`."""
        return list_updates(self._fitted().statistics)

    def _record_training(
        self, results: Sequence[TrainResult], records: pd.DataFrame
    ) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
        """Frames and values for people to read."""
        metric = next(result.score_name for result in results if result.n_nets > 0)
        values = {"validation_metric": metric, "n_iter": int(records["n_iterations"].max())}
        if "n_nets" not in self.get_params(deep=False):
            penalty = float(records["penalty"].iloc[0])
            values |= {
                "penalty": penalty if np.isfinite(penalty) else None,
                "best_iteration": int(records["best_iteration"].iloc[0]),
                "n_recoveries": int(records["n_recoveries"].iloc[0]),
            }
            return {"history": _history_frame(results[0], 0)}, values
        frames = [_history_frame(result, net) for result in results for net in range(result.n_nets)]
        # The scores are a part of the model, as they choose the nets that predict.
        nets = records.drop(columns="validation_score")
        return {"history": _join_histories(frames), "nets": nets}, values

    # --- what a fit tells people -----------------------------------------------------------------

    @property
    def history_(self) -> pd.DataFrame:
        """loss, permutation_term, validation_score, penalty and seconds per iteration of each net;
        row 0 is the state before the first step."""
        return self._frame("history")

    @property
    def n_iter_(self) -> int:
        """Adam steps of the net that took most."""
        return int(self._fitted().training.values["n_iter"])

    @property
    def validation_metric_(self) -> str:
        """Name of the validation score: R² or, of classifiers, the area under the ROC curve."""
        return str(self._fitted().training.values["validation_metric"])


@dataclass(kw_only=True, eq=False, repr=False)
class SingleNet(MLR):
    """One net, and what it tells about itself."""

    depth: int = DEFAULT.depth

    @property
    def validation_score_(self) -> float:
        """Score on the validation rows at the best iteration."""
        return float(_selection(self._fitted()).scores[0])

    @property
    def penalty_(self) -> float:
        """Ridge penalty at the best iteration."""
        found = self._fitted().training.values["penalty"]
        return np.nan if found is None else float(found)

    @property
    def best_iteration_(self) -> int:
        """The iteration that was kept."""
        return int(self._fitted().training.values["best_iteration"])

    @property
    def n_recoveries_(self) -> int:
        """How often the penalty was raised because a Gram matrix was not positive definite."""
        return int(self._fitted().training.values["n_recoveries"])


@dataclass(kw_only=True, eq=False, repr=False)
class Ensemble(MLR):
    """Several nets, and what they tell about themselves."""

    n_nets: int = 10
    select: Select = "all"
    top_k: int = 5
    n_jobs: int | None = None

    def _fitted(self) -> FittedModel:
        """With `select` and `top_k` as they are now, as they may be set after the fit."""
        model = super()._fitted()
        selection = _selection(model)
        if (selection.select, selection.top_k) != (self.select, self.top_k):
            selection = replace(selection, select=self.select, top_k=to_plain(self.top_k))
            self.model_ = replace(model, selection=selection)
        return self.model_

    @property
    def validation_scores_(self) -> FloatArray:
        """Score of each net on its own validation rows."""
        return _selection(self._fitted()).scores

    @property
    def estimator_weights_(self) -> FloatArray:
        """Weight of each net in the mean, by `select`."""
        picked = _selection(self._fitted()).choose()
        weights = np.zeros(self.model_.n_nets)
        weights[picked] = 1 / len(picked)
        return weights

    @property
    def leaderboard_(self) -> pd.DataFrame:
        """One row per net, depth by depth: its depth, validation score, iterations, penalty and
        weight. A net without a finite loss is left out, with a warning."""
        board = self._frame("nets")
        board.insert(1, "validation_score", self.validation_scores_)
        return board.assign(weight=self.estimator_weights_).reset_index()

    def predict_nets(self, X: Any) -> FloatArray:
        """The prediction of each net alone: (n_nets, n) or (n_nets, n, outputs); of classifiers
        the probabilities, (n_nets, n, classes)."""
        found: FloatArray = self._predictor(X).predict_nets(X)
        return found

    def predict_std(
        self, X: Any, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        """Standard deviation of the selected nets' predictions, or of their probabilities
        (n, classes). It tells how far the nets disagree, not how far they err."""
        found: FloatArray = self._predictor(X).predict_std(X, select=select, top_k=top_k)
        return found

    def subset(self, nets: Sequence[int] | slice | NDArray[Any]) -> Self:
        """A fitted estimator of only these nets, in their present order; nothing is refitted.

        Parameters
        ----------
        nets : list of int, slice or boolean mask
            Positions as in `leaderboard_`.
        """
        model, history = self._fitted(), self.history_
        chosen = _resolve_nets(nets, model.n_nets)
        records = self._frame("nets").iloc[chosen].reset_index(drop=True).rename_axis("net")
        histories = store_frame(_join_histories([history.loc[net] for net in chosen]))
        frames = {"nets": store_frame(records), "history": histories}
        values = model.training.values | {"n_iter": int(records["n_iterations"].max())}
        training = replace(model.training, frames=frames, values=values)
        part = type(self)(**self.get_params(deep=False))
        part.model_ = replace(model.subset(chosen), training=training)
        return part


@dataclass(kw_only=True, eq=False, repr=False)
class Bag(Ensemble):
    """Nets of one depth."""

    depth: int = DEFAULT.depth

    _presets = BAGS


@dataclass(kw_only=True, eq=False, repr=False)
class DepthEnsemble(Ensemble):
    """Nets of several depths."""

    depths: tuple[int, ...] = (1, 2)

    _presets = ENSEMBLES

    def _depths(self) -> tuple[int, ...]:
        return check_depths(self.depths)


@dataclass(kw_only=True, eq=False, repr=False)
class RegressionMLR(RegressorMixin, MLR):
    """Numbers to predict."""

    dither: float = DITHER

    _preset_task: ClassVar[Task] = "regression"

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        time: ArrayLike | None = None,
        X_val: Any = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Fit to the rows of X and their targets y, (n,) or (n, outputs).

        A row of weight w counts like w rows in the head and in the loss; weight 0 leaves it out.

        X may also be rows that do not fit into memory (a folder of Parquet files, a dataset, a lazy
        frame, a `muddle.tables.Stream`), and y the name of the target's column.

        groups : array of shape (n,), default=None
            Rows of one value belong together: a net's validation rows are whole groups.
        time : array of shape (n,), default=None
            Numbers or dates: the last rows in time are the validation rows. Excludes `groups`.
        X_val, y_val : table and array, default=None
            The validation rows; nothing else is learnt from them.
        """
        if isinstance(y, str):
            others = {"groups": groups, "time": time, "X_val": X_val, "y_val": y_val}
            stream = take_stream(X, y, sample_weight=sample_weight, **others)
            small = read_small(stream, y)
            if small is None:
                return self._fit_stream(stream, y, "regression")
            return self.fit(*small)
        request = HoldOutRequest(groups, time, X_val, y_val)
        return self._fit_rows(X, y, sample_weight, bool(self.keep_statistics), request)

    @available_if(_can_go_on)  # type: ignore[untyped-decorator]  # of scikit-learn
    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """The first call is `fit`, which also keeps what later calls need, and these are `update`:
        hidden layers are trained on the rows of the first call, output layers see all."""
        if self.__sklearn_is_fitted__():
            return self.update(X, y, sample_weight)
        return self._fit_rows(X, y, sample_weight, True)

    def _fit_rows(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: Any,
        keep: bool,
        request: HoldOutRequest = NOTHING_ASKED,
    ) -> Self:
        """keep: the statistics"""
        self._check_head(keep)
        configs = self._configs()
        deadline = Deadline(self.time_limit)
        problem = read_numbers(X, y, sample_weight, type(self).__name__, request=request)
        return self._fit(problem, configs, deadline, weigh_rows(sample_weight) if keep else None)

    def predict(self, X: Any, select: Select | None = None, top_k: int | None = None) -> FloatArray:
        """Predicted targets, (n,) or (n, outputs) as y was.

        select and top_k: which nets of an ensemble predict; None: as in the constructor.
        """
        return self._predictor(X).predict(X, select=select, top_k=top_k)


@dataclass(kw_only=True, eq=False, repr=False)
class ClassificationMLR(ClassifierMixin, MLR):
    """Classes to predict."""

    criterion: Criterion = "logistic"
    dither: float = DEFAULT.dither
    ties: Ties = DEFAULT.ties
    class_weight: Any = None

    _preset_task: ClassVar[Task] = "classification"

    def _task(self) -> Task:
        return "regression" if self.criterion == "squared" else "classification"

    def _configs(self) -> list[TrainConfig]:
        check_choice("criterion", self.criterion, get_args(Criterion))
        return super()._configs()

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        time: ArrayLike | None = None,
        X_val: Any = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Fit to the rows of X and their labels y, (n,).

        A row of weight w counts like w rows in the head and in the loss; weight 0 leaves it out.

        X may also be rows that do not fit into memory (a folder of Parquet files, a dataset, a lazy
        frame, a `muddle.tables.Stream`), and y the name of the target's column.

        groups : array of shape (n,), default=None
            Rows of one value belong together: a net's validation rows are whole groups.
        time : array of shape (n,), default=None
            Numbers or dates: the last rows in time are the validation rows. Excludes `groups`.
        X_val, y_val : table and array, default=None
            The validation rows; nothing else is learnt from them.
        """
        if isinstance(y, str):
            others = {"groups": groups, "time": time, "X_val": X_val, "y_val": y_val}
            stream = take_stream(X, y, sample_weight=sample_weight, **others)
            small = read_small(stream, y)
            if small is not None:
                return self.fit(*small)
            take_stream(X, y, class_weight=self.class_weight)
            return self._fit_stream(stream, y, "classification")
        request = HoldOutRequest(groups, time, X_val, y_val)
        return self._fit_rows(X, y, sample_weight, bool(self.keep_statistics), request)

    @available_if(_can_go_on)  # type: ignore[untyped-decorator]  # of scikit-learn
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """The first call is `fit`, which also keeps what later calls need, and these are `update`:
        hidden layers are trained on the rows of the first call, output layers see all.

        classes: all that may come; every one of them must be among the first rows.
        """
        fitted = self.__sklearn_is_fitted__()
        known = self.classes_ if fitted else y
        if classes is not None and set(np.unique(classes)) != set(np.unique(known)):
            raise ValueError(
                f"classes must be those of the {'first call' if fitted else 'rows'}, got "
                f"{np.unique(classes).tolist()} and {np.unique(known).tolist()}: the first rows "
                "must hold every class. Pass more rows in the first call."
            )
        if fitted:
            return self.update(X, y, sample_weight)
        return self._fit_rows(X, y, sample_weight, True)

    def _fit_rows(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: Any,
        keep: bool,
        request: HoldOutRequest = NOTHING_ASKED,
    ) -> Self:
        """keep: the statistics"""
        self._check_head(keep)
        configs = self._configs()
        deadline = Deadline(self.time_limit)
        owner, weight = type(self).__name__, self.class_weight
        problem = read_classes(X, y, sample_weight, owner, weight, self.criterion, request)
        weighing = weigh_rows(sample_weight, y, problem.classes, weight) if keep else None
        return self._fit(problem, configs, deadline, weighing)

    def predict(
        self, X: Any, select: Select | None = None, top_k: int | None = None
    ) -> NDArray[Any]:
        """The most probable class of each row.

        select and top_k: which nets of an ensemble predict; None: as in the constructor.
        """
        return self._predictor(X).predict(X, select=select, top_k=top_k)

    def predict_proba(
        self, X: Any, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        """Probability of each class, (n, classes), in the order of `classes_`; of an ensemble, the
        mean of the selected nets' probabilities."""
        found: FloatArray = self._predictor(X).predict_proba(X, select=select, top_k=top_k)
        return found

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels seen in `fit`, sorted."""
        return self._fitted().classes_

    @property
    def temperature_(self) -> Any:
        """Divisor of the scores in `predict_proba`; of an ensemble, one per net."""
        found = self._fitted().temperatures
        assert found is not None
        return float(found[0]) if isinstance(self, SingleNet) else found


# --- the six estimators --------------------------------------------------------------------------


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
    activation : {"relu", "leaky_relu", "selu", "mish", "gelu", "tanh"} or function, default="relu"
        Activation after every hidden layer. A function takes and gives a torch tensor; a model with
        one can be pickled, not saved as a file or a graph.
    dropout : float, default=0.0
        Share of units of every hidden layer that each training step leaves out; the others are
        scaled up. Predictions use all.
    normalization : {"none", "batch", "layer"}, default="none"
        Batch or layer normalisation before every activation. Predictions use the statistics of the
        batches before the best iteration.
    residual : bool, default=False
        Every hidden layer but the first adds to the one before it, with a trained factor per unit
        that starts at 0. Needs `depth` of at least 2.
    gated : bool, default=False
        Every hidden layer is multiplied by a sigmoid of another linear map of its input.
    embedding : int, default=0
        Units per column of categories that are trained in front of the first layer, at most as many
        as the column has levels. 0: levels enter the first layer as 0 and 1.
    init_gain : float, default=1.0
        Factor on the Glorot-uniform start. The released code uses √2.
    loss : {"root_mean_square", "mean_square"}, default="mean_square"
        The root mean square of the paper, better on clean data, or the mean square of half the
        residual of the authors' code, safer on noisy data.
    n_permutations : int, default=16
        Permuted copies of the labels that the net must not fit. 0 turns the term off.
    structured_noise : float, default=1.0
        Standard deviation of the noise that is seen through I - H (structured dithering). 0: off.
    dither : float, default=0.03
        Standard deviation of the noise added to standardised labels at every iteration. 0: off.
    penalty : {"grid12", "grid11"} or float, default="grid12"
        First ridge penalty: the point where the loss rises fastest along a grid, the paper's of 12
        points or the released code's of 11, or a number. It is trained from there.
    learning_rate : float or None, default=None
        Learning rate. None: 1e-2, 1e-3, 10^-3.5, 1e-4 for depth 1, 2, 3, 4 and more.
    max_iter : int or None, default=None
        Steps. None: 200 up to depth 2, 400 beyond.
    schedule : {"constant", "cosine", "one_cycle", "cycles", "plateau"}, default="constant"
        Course of the learning rate over the steps: as it is; half a turn of a cosine down to 0; up
        from a 25th of it within three tenths of the steps and down again (torch's OneCycleLR); up
        and down in four cycles, each about twice as long as the one before; halved whenever the
        validation score of a net has not risen for a twentieth of the steps.
    optimizer : {"adam", "adamw", "sgd"} or class of torch.optim, default="adam"
        "adam" adds weight decay to the gradient, "adamw" shrinks weights apart from it; "sgd" has a
        momentum of 0.9, and needs learning rates of its own. A class, such as
        ``torch.optim.RAdam``, is made with the learning rate and, if there is any, weight decay.
    weight_decay : float, default=0.0
        Weight decay of all layers; not of biases and of the ridge, which has its penalty.
    clip_norm : float or None, default=None
        Gradients of a net are shrunk to this norm if theirs is larger. None: never.
    patience : int or None, default=None
        Stop a net after this many iterations without a better validation score. None: never.
    batch_size : int, default=4096
        Rows per step; all training rows if there are no more than that.
    validation_fraction : float, default=0.2
        Share of rows that choose the best iteration, stratified by the target.
    head : {"all", "train", "batch"}, default="all"
        Rows that the predicting output layer is solved on: all rows, training rows, or, as in the
        released code, the batch of the best iteration with its dithered labels. With more training
        rows than `batch_size`, iterations are scored with the head of their batch; "train" solves
        it on every training row each time, which takes longer.
    precision : {"float32", "reduced"}, default="float32"
        "reduced": only the products of hidden layers, in a format that the device is faster at.
    max_loss : float or None, default=None
        Stop when the fit term exceeds this. None: stop only when it is not finite.
    time_limit : float or None, default=None
        Seconds for the whole fit. Iterations stop when the time left is that of the output layers;
        a warning says how many there were. A time that is too short for the first penalty, one
        iteration and the output layers is a TimeLimitError.
    preprocessor : TablePreprocessor or None, default=None
        How the table becomes features, unfitted. None: ``TablePreprocessor()``, whose parameters
        can be set and searched all the same, as `preprocessor__max_levels`.
    keep_statistics : bool, default=False
        Keep the sums over the training rows that `update` needs: of each net a matrix of
        width x width in float64, also in its file.
    device : str, default="auto"
        "auto" (CUDA if there is a device, else CPU), "cpu", "cuda" or "cuda:1".
    random_state : int, RandomState or None, default=None
        Seed of split, start, permutations and noise. Same seed, same CPU: same bits.
    verbose : bool, default=False
        Show progress (needs tqdm).

    Attributes
    ----------
    model_ : muddle_runtime.FittedModel
        The fitted model as numpy arrays.
    preprocessor_, penalty_, best_iteration_, n_iter_, validation_score_, history_, n_recoveries_, \
table_summary_, findings_, updates_, fit_seconds_, n_features_in_, \
feature_names_in_
        Properties that read it, described below.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from muddle import MLRRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MLRRegressor(depth=1, random_state=0).fit(X[:300], y[:300])
    >>> bool(model.score(X[300:], y[300:]) > 0.4)
    True
    """


@dataclass(kw_only=True, eq=False, repr=False)
class MLRClassifier(ClassificationMLR, SingleNet):
    """One MLR net for classification, two classes or more, labels of any type.

    Each class is a column of ±1 labels (two classes share one), trained with the logistic MLR
    loss, one class against the rest. Probabilities are the softmax (sigmoid for two classes) of
    the scores divided by a temperature, which is fitted on the validation rows.

    Parameters
    ----------
    depth, width, activation, dropout, normalization, residual, gated, embedding, init_gain, \
loss, n_permutations, structured_noise, penalty, learning_rate, max_iter, schedule, optimizer, \
weight_decay, clip_norm, patience, batch_size, validation_fraction, head, precision, max_loss, \
time_limit, preprocessor, keep_statistics, device, random_state, verbose
        As in :class:`MLRRegressor`. Iterations are compared by the area under the ROC curve.
    criterion : {"logistic", "squared"}, default="logistic"
        The logistic loss of ±1 labels, or, as in the authors' released ensembles, the regression
        loss of 0/1 labels; then iterations are compared by R².
    dither : float, default=0.0
        Standard deviation of the noise added to 0/1 labels at every iteration; only with
        criterion="squared".
    ties : {"error", "first"}, default="error"
        Which iteration to keep among those with equal area under the curve: the one with the least
        squared error against ±1 labels, or, as in the released code, the first.
    class_weight : dict, "balanced" or None, default=None
        Weight of each class, multiplied with sample_weight. "balanced": inverse class frequency.

    Attributes
    ----------
    classes_, temperature_, preprocessor_, penalty_, best_iteration_, n_iter_, validation_score_, \
history_, n_recoveries_, table_summary_, findings_, updates_, fit_seconds_, n_features_in_, \
feature_names_in_
        Properties, described below.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from muddle import MLRClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MLRClassifier(depth=1, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    def decision_function(self, X: Any) -> FloatArray:
        """Scores before the temperature: (n,), positive for `classes_[1]`, or (n, classes)."""
        found: FloatArray = self._predictor(X).decision_function(X)
        return found


@dataclass(kw_only=True, eq=False, repr=False)
class BagMLRRegressor(RegressionMLR, Bag):
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
        Workers that share the nets, through joblib. None: this process alone, unless a
        ``joblib.parallel_config`` says otherwise, e.g. for a Dask cluster; -1: one per core. On
        one machine a batch of nets uses all cores already.
    width, activation, dropout, normalization, residual, gated, embedding, init_gain, loss, \
n_permutations, structured_noise, dither, penalty, learning_rate, max_iter, schedule, optimizer, \
weight_decay, clip_norm, patience, batch_size, validation_fraction, head, precision, max_loss, \
time_limit, preprocessor, keep_statistics, device, random_state, verbose
        As in :class:`MLRRegressor`; `time_limit` is for all nets together.

    Attributes
    ----------
    model_ : muddle_runtime.FittedModel
        The fitted model as numpy arrays.
    validation_scores_, estimator_weights_, leaderboard_, history_, n_iter_, preprocessor_, \
table_summary_, findings_, updates_, fit_seconds_, n_features_in_, \
feature_names_in_
        Properties that read it, described below.

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
class BagMLRClassifier(ClassificationMLR, Bag):
    """A bag of MLR nets of one depth for classification (Bag-MLR), trained as one batch.

    The mean of the nets' probabilities predicts; each net has its own temperature. Otherwise as
    :class:`BagMLRRegressor`.

    Parameters
    ----------
    depth, n_nets, select, top_k, n_jobs, time_limit
        As in :class:`BagMLRRegressor`.
    width, activation, dropout, normalization, residual, gated, embedding, init_gain, loss, \
n_permutations, structured_noise, criterion, dither, penalty, learning_rate, max_iter, schedule, \
optimizer, weight_decay, clip_norm, patience, batch_size, validation_fraction, head, precision, \
ties, max_loss, class_weight, preprocessor, keep_statistics, \
device, random_state, verbose
        As in :class:`MLRClassifier`.

    Attributes
    ----------
    classes_, temperature_, validation_scores_, estimator_weights_, leaderboard_, history_, \
n_iter_, preprocessor_, table_summary_, findings_, updates_, fit_seconds_, n_features_in_, \
feature_names_in_
        Properties, described below.

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
class EnsMLRRegressor(RegressionMLR, DepthEnsemble):
    """MLR nets of several depths for regression: Ens-MLR, Best-MLR and Top5-MLR in one.

    `n_nets` nets of each depth are trained as one batch per depth. select="all" is the paper's
    Ens-MLR, "best" its Best-MLR, "top" its Top5-MLR; one fitted model predicts as any of them.

    Parameters
    ----------
    depths : tuple of int, default=(1, 2)
        Hidden layers; any distinct numbers. Each depth has the learning rate and iterations that
        go with it, unless `learning_rate` and `max_iter` set them for all.
    n_nets : int, default=10
        Nets of each depth.
    select, top_k, n_jobs, time_limit, width, activation, dropout, normalization, residual, \
gated, embedding, init_gain, loss, n_permutations, structured_noise, dither, penalty, \
learning_rate, max_iter, schedule, optimizer, weight_decay, clip_norm, patience, batch_size, \
validation_fraction, head, precision, max_loss, preprocessor, keep_statistics, \
device, random_state, verbose
        As in :class:`BagMLRRegressor`; nets of all depths are compared with each other.

    Attributes
    ----------
    validation_scores_, estimator_weights_, leaderboard_, history_, n_iter_, preprocessor_, \
table_summary_, findings_, updates_, fit_seconds_, n_features_in_, \
feature_names_in_
        Properties, described below; nets are counted depth by depth.

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
class EnsMLRClassifier(ClassificationMLR, DepthEnsemble):
    """MLR nets of several depths for classification: Ens-MLR, Best-MLR and Top5-MLR in one.

    As :class:`EnsMLRRegressor`, with the mean of the nets' probabilities.

    Parameters
    ----------
    depths, n_nets, select, top_k, n_jobs, time_limit
        As in :class:`EnsMLRRegressor`.
    width, activation, dropout, normalization, residual, gated, embedding, init_gain, loss, \
n_permutations, structured_noise, criterion, dither, penalty, learning_rate, max_iter, schedule, \
optimizer, weight_decay, clip_norm, patience, batch_size, validation_fraction, head, precision, \
ties, max_loss, class_weight, preprocessor, keep_statistics, \
device, random_state, verbose
        As in :class:`MLRClassifier`.

    Attributes
    ----------
    classes_, temperature_, validation_scores_, estimator_weights_, leaderboard_, history_, \
n_iter_, preprocessor_, table_summary_, findings_, updates_, fit_seconds_, n_features_in_, \
feature_names_in_
        Properties, described below; nets are counted depth by depth.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from muddle import EnsMLRClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = EnsMLRClassifier(n_nets=2, max_iter=20, random_state=0).fit(X[::2], y[::2])
    >>> model.predict_proba(X[1::2], select="top", top_k=3).shape
    (89, 3)
    """


# --- checks, records, warnings -------------------------------------------------------------------


def check_depths(depths: Any) -> tuple[int, ...]:
    """Distinct whole numbers above 0, in the order given."""
    if not isinstance(depths, (tuple, list, range, np.ndarray)):
        raise TypeError(
            f"depths must be a sequence of whole numbers such as (1, 2), got depths={depths!r}. "
            "For one depth use the Bag estimators, or a sequence of one."
        )
    if len(depths) == 0:
        raise ValueError(f"depths must name at least one depth, got depths={depths!r}.")
    for depth in depths:
        check_int("each of depths", depth, minimum=1)
    if len(set(depths)) < len(depths):
        raise ValueError(
            f"depths must be distinct, got depths={depths!r}. Raise n_nets for more nets of each."
        )
    return tuple(int(depth) for depth in depths)


def _resolve_nets(nets: Any, n_nets: int) -> list[int]:
    """Positions that a list, slice or mask stands for, ascending."""
    chosen = np.arange(n_nets)[nets] if isinstance(nets, slice) else np.atleast_1d(np.asarray(nets))
    if chosen.dtype == bool:
        if chosen.shape != (n_nets,):
            raise ValueError(
                f"a mask of nets must have one value for each of the {n_nets} net(s), got shape "
                f"{chosen.shape}."
            )
        chosen = np.flatnonzero(chosen)
    if len(chosen) == 0:
        raise ValueError(f"nets must name at least one net, got nets={nets!r} of {n_nets} net(s).")
    if chosen.ndim > 1 or chosen.dtype.kind not in "iu":
        raise TypeError(
            f"nets must be indices, a slice or a boolean mask, got {chosen.dtype} of shape "
            f"{chosen.shape}."
        )
    wrong = chosen[(chosen < -n_nets) | (chosen >= n_nets)]
    if len(wrong) > 0:
        raise IndexError(
            f"nets must lie between 0 and {n_nets - 1}, got {int(wrong[0])}: the model has "
            f"{n_nets} net(s)."
        )
    positions: list[int] = np.unique(np.where(chosen < 0, chosen + n_nets, chosen)).tolist()
    if len(positions) < len(chosen):
        raise ValueError(f"nets must name each net once, got nets={nets!r}.")
    return positions


def _selection(model: FittedModel) -> Selection:
    assert model.selection is not None
    return model.selection


def _fit_temperatures(
    problem: Problem, jobs: Sequence[TrainJob], results: Sequence[TrainResult]
) -> FloatArray | None:
    """Divisor of each net's scores, from its validation rows, which its scoring head never saw."""
    if not isinstance(problem, ClassProblem):
        return None
    target = problem.describe_target()
    found = []
    for job, result in zip(jobs, results, strict=True):
        for output, net in zip(result.validation_output.numpy(), result.kept, strict=True):
            rows = job.data.validation_rows[net].numpy()
            weights = None if problem.weights is None else problem.weights[rows]
            found.append(fit_temperature(target.to_scores(output), problem.codes[rows], weights))
    return np.array(found)


def _fit_streamed_temperatures(
    problem: Problem, found: Sequence[StreamedResult]
) -> FloatArray | None:
    """The same for nets that were trained on a stream."""
    if not isinstance(problem, ClassProblem):
        return None
    target, temperatures = problem.describe_target(), []
    for one in found:
        labels = one.labels.numpy()
        codes = labels.argmax(axis=1) if labels.shape[1] > 1 else (labels[:, 0] > 0).astype(int)
        for output in one.trained.validation_output.numpy():
            temperatures.append(fit_temperature(target.to_scores(output), codes, None))
    return np.array(temperatures)


def _history_frame(result: TrainResult, net: int) -> pd.DataFrame:
    """One row per iteration; row 0 is the state before the first step."""
    h, n_rows = result.history, int(result.n_iterations[net]) + 1
    names = ("loss", "permutation_term", "validation_score", "penalty", "seconds")
    columns = zip(names, (h.loss, h.permutation, h.score, h.penalty, h.seconds), strict=True)
    frame = pd.DataFrame({name: column[:n_rows, net].numpy() for name, column in columns})
    return frame.rename_axis("iteration")


def _join_histories(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, keys=range(len(frames)), names=["net", "iteration"])


def _record_nets(results: Sequence[TrainResult], depths: Sequence[int]) -> pd.DataFrame:
    """One row per net, in the order of depths and seeds."""
    names = ("validation_score", "best_iteration", "n_iterations", "penalty", "n_recoveries")
    columns = {
        name: torch.cat([getattr(r, name.removeprefix("validation_")) for r in results]).numpy()
        for name in names
    }
    board = pd.DataFrame({"depth": np.repeat(depths, [r.n_nets for r in results]), **columns})
    return board.astype({"validation_score": float, "penalty": float}).rename_axis("net")


def _describe_cuts(
    asked: Sequence[tuple[TrainConfig, int]], results: Sequence[TrainResult]
) -> list[str]:
    """One text if the time limit stopped nets."""
    reached, n_steps = [], []
    for (config, _), result in zip(asked, results, strict=True):
        n_iterations = result.n_iterations
        patient = n_iterations - result.best_iteration < (config.patience or config.steps + 1)
        cut = ~result.diverged & (n_iterations < config.steps) & patient
        reached += n_iterations[cut].tolist()
        n_steps += [config.steps] * bool(cut.any())
    n_nets, limit = sum(result.n_nets for result in results), asked[0][0].time_limit
    if limit is None or not reached:
        return []
    return [
        f"time_limit={limit} s: {len(reached)} of {n_nets} net(s) stopped after "
        f"{_join_range(reached)} of {_join_range(n_steps)} iterations. Raise time_limit, or lower "
        "width, batch_size or the number of nets."
    ]


def _join_range(numbers: Sequence[int]) -> str:
    first, last = min(numbers), max(numbers)
    return str(first) if first == last else f"{first} to {last}"


def _describe_troubles(
    asked: Sequence[tuple[TrainConfig, int]], results: Sequence[TrainResult], top_k: int | None
) -> list[str]:
    """What training had to work around, each thing once. top_k: if nets are chosen by it."""
    n_asked = sum(n_nets for _, n_nets in asked)
    n_nets = sum(result.n_nets for result in results)
    n_recoveries, diverged, n_iterations = (
        torch.cat([getattr(result, name) for result in results]).numpy()
        for name in ("n_recoveries", "diverged", "n_iterations")
    )
    texts = []
    if n_nets < n_asked:
        text = f"{n_asked - n_nets} of {n_asked} nets had no finite loss and were left out"
        pairs = zip(asked, results, strict=True)
        gone = [str(config.depth) for (config, _), result in pairs if result.n_nets == 0]
        if gone:
            text += f"; none of depth {' and '.join(gone)} is left"
        if top_k is not None and n_nets < top_k:
            text += f"; the top {top_k} are the {n_nets} that are left"
        texts.append(
            f"{text}. Clip or transform extreme feature values, or try a lower learning_rate."
        )
    if n_recoveries.any():
        texts.append(
            f"the ridge penalty was raised {n_recoveries.sum()} time(s) in "
            f"{(n_recoveries > 0).sum()} of {n_nets} net(s), because a Gram matrix was not "
            "positive definite. Start from a larger penalty to avoid this."
        )
    if diverged.any():
        texts.append(
            f"{diverged.sum()} of {n_nets} net(s) stopped after "
            f"{_join_range(n_iterations[diverged].tolist())} iteration(s) because the loss was not "
            "finite or exceeded max_loss; the best earlier iteration is kept. Try a lower "
            "learning_rate."
        )
    if any(result.score_name == "minus squared error" for result in results):
        texts.append(
            "the validation rows hold a single class, so there is no ROC curve: iterations were "
            "compared by squared error instead. Raise validation_fraction or add rows of the rare "
            "class."
        )
    return texts
