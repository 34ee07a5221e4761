"""Training of nets whose authors keep no package: one loop for all, around a torch module.

Shapes: N rows, D features, C outputs (classes, or 1), M members of a forest.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.nn import functional

from muddle.core.device import resolve_device
from muddle.errors import DivergenceError
from muddle_bench.methods.wrappers import seeded

Optimizer = Literal["adam", "adamw", "rmsprop", "sgd"]
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": partial(torch.optim.RMSprop, alpha=0.9, eps=1e-7),  # as in Keras
    "sgd": torch.optim.SGD,
}
FEWEST_ROWS = 5  # one of five is kept for validation
ROWS_AT_ONCE = 8192  # of a forward pass without gradients


class Net(BaseEstimator):
    """A torch module, trained on minibatches until the loss on a fifth of the rows stops falling.

    `net(inputs, targets, n_outputs)` builds the module from the rows to train on: inputs (N, D),
    and targets (N,), standardised numbers or codes of classes. It may draw from torch's, NumPy's
    and Python's global generators, which a fit seeds and restores. The module maps (N, D) to
    (N, C), or to (M, N, C): then each member has a loss of its own, and their mean predicts, in
    classification that of their probabilities. Before each step of the optimizer, a method
    `before_step` of the module gets the places of the batch among the rows, and after it
    `after_step` is called, if there is one. What a method `penalty` gives is added to the loss.
    """

    def __init__(
        self,
        net: Callable[[Tensor, Tensor, int], nn.Module],
        *,
        optimizer: Optimizer = "adam",
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        batch_size: int = 128,
        max_epochs: int = 200,
        patience: int = 20,  # epochs without a lower validation loss
        random_state: int = 0,
        device: str = "cpu",
    ) -> None:
        self.net = net
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.random_state = random_state
        self.device = device

    def _train(self, X: NDArray[np.float32], targets: NDArray[Any], n_outputs: int) -> None:
        """targets: float32 numbers, or codes of classes as integers"""
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"optimizer must be one of {get_args(Optimizer)}, got {self.optimizer!r}."
            )
        device = resolve_device(self.device)
        with seeded(self.random_state):
            kept = draw_validation(targets, self.random_state)
            inputs, answers, kept_inputs, kept_answers = (
                torch.from_numpy(part).to(device)
                for part in (X[~kept], targets[~kept], X[kept], targets[kept])
            )
            self.module_ = self.net(inputs, answers, n_outputs).to(device)
            self._descend(inputs, answers, kept_inputs, kept_answers)

    def _descend(
        self, inputs: Tensor, targets: Tensor, kept_inputs: Tensor, kept_targets: Tensor
    ) -> None:
        module, n_rows = self.module_, len(inputs)
        optimizer = OPTIMIZERS[self.optimizer](
            [weight for weight in module.parameters() if weight.requires_grad],
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
        )
        before_step = getattr(module, "before_step", None)
        after_step = getattr(module, "after_step", None)
        penalty = getattr(module, "penalty", None)
        # Batches of equal size: a last one of a single row has no variance to normalise by.
        n_batches = max(1, round(n_rows / self.batch_size))
        best, best_epoch, state = np.inf, 0, copy_state(module)
        self.validation_losses_: list[float] = []
        for epoch in range(1, self.max_epochs + 1):
            module.train()
            for rows in torch.randperm(n_rows, device=inputs.device).tensor_split(n_batches):
                optimizer.zero_grad()
                if before_step is not None:
                    before_step(rows)
                error = member_loss(module(inputs[rows]), targets[rows])
                torch.autograd.backward(error if penalty is None else error + penalty())
                optimizer.step()
                if after_step is not None:
                    after_step()
            # The one number per epoch that is read from the device.
            loss = mean_loss(self._forward(kept_inputs), kept_targets).item()
            self.validation_losses_.append(loss)
            if not np.isfinite(loss):
                raise DivergenceError(
                    f"the loss of the net must stay finite, and is {loss} after epoch {epoch}. "
                    f"Lower learning_rate={self.learning_rate}."
                )
            if loss < best:
                best, best_epoch, state = loss, epoch, copy_state(module)
            elif epoch - best_epoch >= self.patience:
                break
        module.load_state_dict(state)
        module.eval()
        self.n_epochs_, self.best_epoch_ = epoch, best_epoch

    def _forward(self, inputs: Tensor) -> Tensor:
        """Outputs in evaluation, of all members: (M, N, C)"""
        self.module_.eval()
        with torch.inference_mode():
            parts = [as_members(self.module_(part)) for part in torch.split(inputs, ROWS_AT_ONCE)]
            return torch.cat(parts, dim=1)

    def _outputs(self, X: Any) -> Tensor:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float32)
        return self._forward(torch.from_numpy(X).to(resolve_device(self.device)))


class NetRegressor(RegressorMixin, Net):
    """The net for numbers: mean square of the standardised target."""

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(
            self, X, y, y_numeric=True, dtype=np.float32, ensure_min_samples=FEWEST_ROWS
        )
        y = y.astype(np.float64)
        self.mean_, self.scale_ = float(y.mean()), float(y.std()) or 1.0
        self._train(X, ((y - self.mean_) / self.scale_).astype(np.float32), 1)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        outputs: NDArray[np.float64] = self._outputs(X)[..., 0].double().mean(dim=0).cpu().numpy()
        return self.mean_ + self.scale_ * outputs


class NetClassifier(ClassifierMixin, Net):
    """The net for classes: cross-entropy of the softmax."""

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float32, ensure_min_samples=FEWEST_ROWS)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self._train(X, codes, len(self.classes_))
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        shares: NDArray[np.float64] = (
            self._outputs(X).double().softmax(dim=-1).mean(dim=0).cpu().numpy()
        )
        return shares

    def predict(self, X: Any) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels


def draw_validation(targets: NDArray[Any], seed: int, every: int = 5) -> NDArray[np.bool_]:
    """Which rows are kept for validation: every fifth, of codes of classes every fifth of each.

    A class of one row is not kept.
    """
    order = np.random.default_rng(seed).permutation(len(targets))
    if targets.dtype.kind in "iu":
        counts = np.bincount(targets)
        order = order[np.argsort(targets[order], kind="stable")]
        order = order[counts[targets[order]] > 1]
    kept = np.zeros(len(targets), bool)
    kept[order[every // 2 :: every]] = True
    return kept


def copy_state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def as_members(outputs: Tensor) -> Tensor:
    """(N, C) or (M, N, C) -> (M, N, C)"""
    return outputs if outputs.ndim == 3 else outputs[None]


def member_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Sum of the members' losses, so that each has its own step.

    outputs (N, C) or (M, N, C), targets (N,)
    """
    outputs = as_members(outputs)
    if targets.is_floating_point():
        return (outputs[..., 0] - targets).square().mean(dim=1).sum()
    n_members = len(outputs)
    codes = targets.repeat(n_members)
    return n_members * functional.cross_entropy(outputs.flatten(0, 1), codes)


def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Loss of the members' mean; outputs (M, N, C), targets (N,)"""
    if targets.is_floating_point():
        return (outputs[..., 0].mean(dim=0) - targets).square().mean()
    mean = outputs.log_softmax(dim=-1).logsumexp(dim=0) - np.log(len(outputs))
    return functional.nll_loss(mean, targets)
