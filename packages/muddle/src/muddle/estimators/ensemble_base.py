"""What the ensembles share: many nets stored, chosen and asked one after the other."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from muddle.core.loss import Source
from muddle.estimators.base import BaseMLR, Trained, net_output, prediction_device
from muddle.estimators.choosing import check_selection, choose_nets
from muddle.estimators.parameters import EnsembleParameters, Select, check_n_jobs
from muddle.estimators.problems import ClassProblem, to_scores
from muddle.estimators.reports import record_nets, stack_histories
from muddle.estimators.selection import (
    own_memory,
    resolve_nets,
    share_nets,
    share_tensor,
    weigh_nets,
)
from muddle.estimators.tasks import ClassificationMLR, RegressionMLR, held_out_scores
from muddle.estimators.temperature import fit_temperature, to_probabilities
from muddle.tables.checks import FloatArray
from muddle.training.config import TrainConfig, preset_config
from muddle_runtime.parameters import check_int


class Ensemble(BaseMLR, EnsembleParameters):
    """K nets of one or several depths; those selected answer with their mean."""

    @classmethod
    @abstractmethod
    def _from_preset(cls, name: str, settings: Source, **values: Any) -> Self:
        """An unfitted estimator with the settings that a single net of that name has."""

    def _n_nets_each(self) -> int:
        return self.n_nets

    def _n_workers(self) -> int | None:
        return self.n_jobs

    def _wanted(self) -> int | None:
        return self.top_k if self.select == "top" else None

    def _n_asked(self) -> int:
        return self.n_nets * len(self._depths())

    def _configs(self) -> list[TrainConfig]:
        check_int("n_nets", self.n_nets, minimum=1)
        check_n_jobs(self.n_jobs)
        check_selection(self.select, self.top_k, self._n_asked())
        return super()._configs()

    def _store(self, trained: Trained) -> None:
        results = trained.results
        records = record_nets(results, [job.config.depth for job in trained.jobs])
        history = stack_histories(results)
        self._records = records
        self.history_ = history
        self.head_ = tuple(result.head for result in results)
        self.validation_scores_ = records["validation_score"].to_numpy()
        self.validation_metric_ = next(r.score_name for r in results if r.n_nets > 0)
        self.n_iter_ = int(records["n_iterations"].max())
        self.nets_ = tuple(result.nets for result in results)

    @property
    def estimator_weights_(self) -> FloatArray:
        """The weight of each net in the mean, by `select`."""
        check_is_fitted(self)
        return weigh_nets(self._pick(None, None), len(self._records))

    @property
    def leaderboard_(self) -> pd.DataFrame:
        """One row per net, in net order."""
        check_is_fitted(self)
        return self._records.assign(weight=self.estimator_weights_).reset_index()

    def predict_nets(self, X: Any) -> FloatArray:
        """What each net says alone: (n_nets, n) or (n_nets, n, outputs); of classifiers the
        probabilities, (n_nets, n, classes)."""
        features = self._features(X)
        return np.stack(list(self._answers(features, range(len(self._records)))))

    def predict_std(
        self, X: Any, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        """Standard deviation, over the selected nets, of what they say: of predictions, or of
        probabilities (n, classes). It tells how far the nets disagree, not how far they err."""
        features = self._features(X)
        nets = self._pick(select, top_k)
        mean: FloatArray = np.zeros(())
        squares: FloatArray = np.zeros(())
        # Welford's update: only one net's answer is in memory at a time.
        for count, answer in enumerate(self._answers(features, nets), start=1):
            step = answer - mean
            mean = mean + step / count
            squares = squares + step * (answer - mean)
        deviation: FloatArray = np.sqrt(squares / len(nets))
        return deviation

    def subset(self, nets: Sequence[int] | slice | NDArray[Any]) -> Self:
        """A fitted estimator of only these nets, in their present order; nothing is refitted.

        Parameters
        ----------
        nets : list of int, slice or boolean mask
            Positions as in `leaderboard_`. Nets that are evenly spaced share their tensors with
            this model; others are copied.
        """
        check_is_fitted(self)
        chosen = resolve_nets(nets, len(self._records))
        local = [
            [net - offset for net in chosen if offset <= net < offset + stack.n_nets]
            for stack, offset in zip(self.nets_, self._offsets(), strict=True)
        ]
        part = type(self).__new__(type(self))
        part.__dict__.update(self.__dict__)
        part._records = self._records.iloc[chosen].reset_index(drop=True).rename_axis("net")
        history = [self.history_.loc[net] for net in chosen]
        part.history_ = pd.concat(history, keys=range(len(chosen)), names=["net", "iteration"])
        part.validation_scores_ = self.validation_scores_[chosen]
        part.n_iter_ = int(part._records["n_iterations"].max())
        part.head_ = tuple(map(share_tensor, self.head_, local))
        part.nets_ = tuple(map(share_nets, self.nets_, local))
        if hasattr(self, "temperature_"):
            part.temperature_ = self.temperature_[chosen]
        return part

    @abstractmethod
    def _answer(self, output: FloatArray, net: int) -> FloatArray:
        """The answer of one net from what its head says."""

    def _answers(self, features: FloatArray, nets: Sequence[int]) -> Iterator[FloatArray]:
        """Answers of these nets (positions, ascending), one after the other."""
        device = prediction_device(self.device)
        for stack, head, offset in zip(self.nets_, self.head_, self._offsets(), strict=True):
            for net in nets:
                if offset <= net < offset + stack.n_nets:
                    output = net_output(stack, head, net - offset, features, device)
                    yield self._answer(output, net)

    def _mean(self, features: FloatArray, nets: Sequence[int]) -> FloatArray:
        total: FloatArray = sum(self._answers(features, nets), start=np.zeros(()))
        return total / len(nets)

    def _offsets(self) -> list[int]:
        """The position of each depth's first net."""
        sizes = [stack.n_nets for stack in self.nets_]
        return [sum(sizes[:index]) for index in range(len(sizes))]

    def _pick(self, select: Select | None, top_k: int | None) -> list[int]:
        """Positions of the nets that answer; None: as in the constructor."""
        return choose_nets(
            self.validation_scores_, (select, top_k), (self.select, self.top_k), self._n_asked()
        )

    def __getstate__(self) -> dict[str, Any]:
        # A copy: scikit-learn gives the dictionary of the estimator itself.
        state: dict[str, Any] = dict(super().__getstate__())
        if "nets_" in state:
            state["nets_"] = tuple(stack.map(own_memory) for stack in state["nets_"])
            state["head_"] = tuple(map(own_memory, state["head_"]))
        return state


class RegressionEnsemble(RegressionMLR, Ensemble):
    """Numbers from many nets."""

    @classmethod
    def _from_preset(cls, name: str, settings: Source, **values: Any) -> Self:
        return cls._from_config(preset_config(name, settings, "regression"), **values)

    def predict(self, X: Any, select: Select | None = None, top_k: int | None = None) -> FloatArray:
        """Mean of the selected nets' predictions, (n,) or (n, outputs) as y was.

        select and top_k may differ from the constructor's; None: as there.
        """
        features = self._features(X)
        return self._mean(features, self._pick(select, top_k))

    def _answer(self, output: FloatArray, net: int) -> FloatArray:
        return self._to_targets(output)


class ClassificationEnsemble(ClassificationMLR, Ensemble):
    """Classes from many nets."""

    @classmethod
    def _from_preset(cls, name: str, settings: Source, **values: Any) -> Self:
        if settings != "released":
            return cls._from_config(preset_config(name, settings, "classification"), **values)
        # PAPER: the logistic loss; the published rows of ensembles were made with the other one.
        config = preset_config(name, settings, "regression")
        return cls._from_config(config, **{"criterion": "squared", **values})

    def predict_proba(
        self, X: Any, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        """Mean of the selected nets' probabilities, (n, classes), in the order of `classes_`.

        select and top_k may differ from the constructor's; None: as there.
        """
        features = self._features(X)
        return self._mean(features, self._pick(select, top_k))

    def predict(
        self, X: Any, select: Select | None = None, top_k: int | None = None
    ) -> NDArray[Any]:
        """The class that is most probable by the mean of the selected nets."""
        features = self._features(X)
        probabilities = self._mean(features, self._pick(select, top_k))
        labels: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return labels

    def _answer(self, output: FloatArray, net: int) -> FloatArray:
        return to_probabilities(to_scores(output, self._zero_one), self.temperature_[net])

    def _fit_temperature(self, problem: ClassProblem, trained: Trained) -> FloatArray:
        return np.array([fit_temperature(*one) for one in held_out_scores(problem, trained)])
