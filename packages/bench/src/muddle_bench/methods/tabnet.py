"""TabNet (Arik and Pfister 2021) by the package pytorch-tabnet, fitted to small tables."""

import importlib
import warnings
from contextlib import redirect_stdout
from functools import cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from muddle_bench.methods.nets import ROWS_AT_ONCE, draw_validation
from muddle_bench.methods.wrappers import seeded

FEWEST_ROWS_OF_TABNET = 10


class TabNet(BaseEstimator):
    """TabNet of the package pytorch-tabnet with its defaults, but for batches and when to stop.

    The package drops the last batch of less than 1,024 rows, so a smaller table would train
    nothing: a batch is a tenth of the rows here, 32 to 1,024. A fifth of the rows is kept to stop.
    """

    def __init__(
        self,
        *,
        max_epochs: int = 200,
        # Epochs without a lower loss on the rows that are kept, of 100 steps in all at least.
        patience: int = 20,
        random_state: int = 0,
        device: str = "cpu",
    ) -> None:
        self.max_epochs = max_epochs
        self.patience = patience
        self.random_state = random_state
        self.device = device

    def _train(self, X: NDArray[Any], targets: NDArray[Any], kind: str, metric: Any) -> None:
        package: Any = importlib.import_module("pytorch_tabnet.tab_model")
        kept = draw_validation(targets[:, 0] if targets.ndim == 2 else targets, self.random_state)
        n_rows = int((~kept).sum())
        batch_size = min(n_rows, max(32, min(n_rows // 10, 1024)))
        # Running means of its batch normalisation move by a fiftieth per step.
        patience = max(self.patience, -(-100 // (n_rows // batch_size)))
        with seeded(self.random_state), warnings.catch_warnings():
            # "Best weights from best epoch are automatically used!"
            warnings.simplefilter("ignore", UserWarning)
            model = getattr(package, kind)(
                seed=self.random_state, device_name=self.device, verbose=0
            )
            with redirect_stdout(None):  # it prints when it stops early, however quiet
                model.fit(
                    X[~kept],
                    targets[~kept],
                    eval_set=[(X[kept], targets[kept])],
                    eval_metric=[metric],
                    max_epochs=self.max_epochs,
                    patience=patience,
                    batch_size=batch_size,
                    virtual_batch_size=min(batch_size, 128),
                    compute_importance=False,
                )
        self.network_ = model.network.eval()

    def _outputs(self, X: Any) -> Tensor:
        check_is_fitted(self)
        X = torch.from_numpy(validate_data(self, X, reset=False, dtype=np.float32))
        with torch.inference_mode():
            parts = [
                self.network_(part.to(self.device))[0].cpu().double()
                for part in torch.split(X, ROWS_AT_ONCE)
            ]
        return torch.cat(parts)


@cache
def _make_log_loss() -> type:
    """The package's own refuses validation rows that lack a class."""
    metrics: Any = importlib.import_module("pytorch_tabnet.metrics")

    class LogLoss(metrics.Metric):
        def __init__(self) -> None:
            self._name = "log_loss_of_all_classes"
            self._maximize = False

        def __call__(self, y_true: NDArray[Any], y_score: NDArray[Any]) -> float:
            shares = y_score[np.arange(len(y_true)), y_true.astype(np.int64)]
            return float(-np.log(np.maximum(shares, np.finfo(np.float32).tiny)).mean())

    return LogLoss


class TabNetRegressor(RegressorMixin, TabNet):
    """TabNet for numbers: mean square of the standardised target."""

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(
            self, X, y, y_numeric=True, dtype=np.float32, ensure_min_samples=FEWEST_ROWS_OF_TABNET
        )
        y = y.astype(np.float64)
        self.mean_, self.scale_ = float(y.mean()), float(y.std()) or 1.0
        targets = ((y - self.mean_) / self.scale_).astype(np.float32)[:, None]
        self._train(X, targets, "TabNetRegressor", "mse")
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        outputs: NDArray[np.float64] = self._outputs(X)[:, 0].numpy()
        return self.mean_ + self.scale_ * outputs


class TabNetClassifier(ClassifierMixin, TabNet):
    """TabNet for classes: cross-entropy of the softmax."""

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float32, ensure_min_samples=FEWEST_ROWS_OF_TABNET)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self._train(X, codes, "TabNetClassifier", _make_log_loss())
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        shares: NDArray[np.float64] = self._outputs(X).softmax(dim=1).numpy()
        return shares

    def predict(self, X: Any) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels
