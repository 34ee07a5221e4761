"""fastai's tabular net as scikit-learn estimators, trained as the paper's authors did."""

import importlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from fastai.data.block import CategoryBlock, RegressionBlock
from fastai.data.transforms import RandomSplitter
from fastai.tabular.core import TabularPandas
from fastai.tabular.learner import tabular_learner
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

# Importing them gives every learner no_bar and fit_one_cycle.
for _name in ("progress", "schedule"):
    importlib.import_module(f"fastai.callback.{_name}")

TARGET = "target"


class FastaiNet(BaseEstimator):
    """Two hidden layers with batch normalisation; one cycle of learning rates, no early stop.

    fastai draws from the global generators of Python, NumPy and torch; they are seeded for the
    time of the fit and put back.
    """

    def __init__(self, *, n_epochs: int = 200, batch_size: int = 64, random_state: int = 0) -> None:
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.random_state = random_state

    def _train(self, X: NDArray[Any], targets: NDArray[Any], block: Any) -> None:
        names = [f"x{place}" for place in range(X.shape[1])]
        frame = pd.DataFrame(X, columns=names).assign(**{TARGET: targets})
        with seeded(self.random_state):
            splits = RandomSplitter(valid_pct=0.2)(range(len(frame)))
            table = TabularPandas(
                frame,
                procs=[],
                cat_names=[],
                cont_names=names,
                y_names=TARGET,
                y_block=block,
                splits=splits,
            )
            # fastai leaves out the last, incomplete batch; of fewer rows than that it would be all.
            batch_size = min(self.batch_size, len(splits[0]))
            loaders = table.dataloaders(bs=batch_size, device=torch.device("cpu"))
            learner = tabular_learner(loaders)
            with learner.no_bar(), learner.no_logging():
                learner.fit_one_cycle(self.n_epochs)
        self.net_ = learner.model.eval()

    @torch.inference_mode()
    def _output(self, X: Any) -> torch.Tensor:
        check_is_fitted(self)
        numbers = torch.from_numpy(validate_data(self, X, reset=False, dtype=np.float32))
        no_levels = torch.empty(len(numbers), 0, dtype=torch.long)
        output: torch.Tensor = self.net_(no_levels, numbers)
        return output.double()


class FastaiRegressor(RegressorMixin, FastaiNet):
    """The net for numbers, with the mean square as its loss."""

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float32)
        self._train(X, y.astype(np.float32), RegressionBlock())
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        return self._output(X)[:, 0].numpy()


class FastaiClassifier(ClassifierMixin, FastaiNet):
    """The net for classes, with the cross-entropy as its loss."""

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        # All classes are named: fastai would look for them in its training rows alone.
        self._train(X, codes, CategoryBlock(vocab=list(range(len(self.classes_)))))
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        return self._output(X).softmax(dim=1).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        # PAPER: the authors cut the raw outputs at 0, hence accuracies below the baseline's.
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Global generators seeded, and put back afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
