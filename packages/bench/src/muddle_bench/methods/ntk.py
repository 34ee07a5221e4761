"""Neural tangent kernel of infinitely wide ReLU nets, with a support vector machine or a ridge.

S. Arora, S. S. Du, Z. Li, R. Salakhutdinov, R. Wang, D. Yu: Harnessing the Power of Infinitely Wide
Deep Nets on Small-data Tasks. ICLR 2020. As there, the number of layers, that of the first layers
that are not trained and the strength of the regularisation are those that do best on a half of the
rows; all rows are fitted with them.

Shapes: N rows of A, M rows of B, D features, C outputs.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from muddle_bench.methods.nets import draw_validation

Floats = NDArray[np.float64]
GRID = tuple(10.0**power for power in range(-2, 5))  # the authors'
MOST_STEPS = 100_000  # of libsvm, which needs minutes for the strongest of the grid on noisy rows
FEWEST_ROWS = 4


def tangent_kernels(A: Floats, B: Floats, max_depth: int) -> Iterator[Floats]:
    """For 1, 2, …, max_depth layers the kernels (layers, N, M) with 0, 1, … first layers fixed.

    One layer is linear, the others follow a ReLU. Weights have variance 1 / inputs, as in the
    authors' code: with each layer the kernel halves. The array is overwritten by the next one.
    """
    product = A @ B.T  # of the activations of the next layer, in expectation
    norms = np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(B, axis=1)).clip(min=1e-9)
    kernels = np.zeros((max_depth, *product.shape))
    for depth in range(max_depth):
        if depth > 0:
            cosine = (product / norms).clip(-1, 1)
            share = (np.pi - np.arccos(cosine)) / (2 * np.pi)  # of the units active for both rows
            product = norms * (cosine * share + np.sqrt(1 - cosine**2) / (2 * np.pi))
            norms = norms / 2
            kernels[:depth] *= share
        kernels[: depth + 1] += product
        yield kernels[: depth + 1]


def tangent_kernel(A: Floats, B: Floats, depth: int, n_fixed: int) -> Floats:
    """The kernel (N, M) of that many layers, of which the first n_fixed are not trained."""
    *_, kernels = tangent_kernels(A, B, depth)
    kernel: Floats = kernels[n_fixed]
    return kernel


class Tangent(BaseEstimator):
    """The choice of the kernel and of the regularisation, on a half of the rows."""

    def __init__(
        self, *, max_depth: int = 5, grid: Sequence[float] = GRID, random_state: int = 0
    ) -> None:
        self.max_depth = max_depth
        self.grid = grid
        self.random_state = random_state

    def _fit(self, X: Floats, targets: NDArray[Any]) -> None:
        kept = draw_validation(targets, self.random_state, every=2)
        train, best = ~kept, -np.inf
        for depth, kernels in enumerate(tangent_kernels(X, X, self.max_depth), start=1):
            for n_fixed, kernel in enumerate(kernels):
                parts = kernel[np.ix_(train, train)], kernel[np.ix_(kept, train)]
                for strength in self.grid:
                    outputs = self._solve(parts[0], targets[train], strength)(parts[1])
                    score = self._score(outputs, targets[kept])
                    if score > best:
                        best, self.depth_, self.n_fixed_, self.strength_ = (
                            score, depth, n_fixed, strength,
                        )  # fmt: skip
        self.rows_ = X
        kernel = tangent_kernel(X, X, self.depth_, self.n_fixed_)
        self.answer_ = self._solve(kernel, targets, self.strength_)

    def _outputs(self, X: Any) -> Floats:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        outputs: Floats = self.answer_(tangent_kernel(X, self.rows_, self.depth_, self.n_fixed_))
        return outputs

    def _solve(self, kernel: Floats, targets: NDArray[Any], strength: float) -> Any:
        """A function that maps the kernel of new rows, (M, N), to outputs."""
        raise NotImplementedError

    def _score(self, outputs: Floats, targets: NDArray[Any]) -> float:
        raise NotImplementedError


class TangentRegressor(RegressorMixin, Tangent):
    """For numbers, which are standardised."""

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(
            self, X, y, y_numeric=True, dtype=np.float64, ensure_min_samples=FEWEST_ROWS
        )
        y = y.astype(np.float64)
        self.mean_, self.scale_ = float(y.mean()), float(y.std()) or 1.0
        self._fit(X, (y - self.mean_) / self.scale_)
        return self

    def predict(self, X: Any) -> Floats:
        return self.mean_ + self.scale_ * self._outputs(X)

    def _score(self, outputs: Floats, targets: NDArray[Any]) -> float:
        return -float(np.mean((outputs - targets) ** 2))


class TangentClassifier(ClassifierMixin, Tangent):
    """For classes; outputs are the values of the decision function."""

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=FEWEST_ROWS)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y must have at least two classes, got one.")
        self._fit(X, codes)
        return self

    def decision_function(self, X: Any) -> Floats:
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs

    def predict(self, X: Any) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[self._outputs(X).argmax(axis=1)]
        return labels

    def _score(self, outputs: Floats, targets: NDArray[Any]) -> float:
        return float(np.mean(outputs.argmax(axis=1) == targets))


class TangentRidgeRegressor(TangentRegressor):
    """Kernel ridge regression."""

    def _solve(self, kernel: Floats, targets: NDArray[Any], strength: float) -> Any:
        return solve_ridge(kernel, targets, strength)


class TangentRidgeClassifier(TangentClassifier):
    """Kernel ridge regression on columns of 0 and 1, one per class, less their expected mean."""

    def _solve(self, kernel: Floats, targets: NDArray[Any], strength: float) -> Any:
        n_classes = len(self.classes_)
        return solve_ridge(kernel, np.eye(n_classes)[targets] - 1 / n_classes, strength)


class TangentSVMRegressor(TangentRegressor):
    """Support vector regression."""

    def _solve(self, kernel: Floats, targets: NDArray[Any], strength: float) -> Any:
        model = SVR(kernel="precomputed", C=strength, max_iter=MOST_STEPS)
        return fit_quietly(model, kernel, targets).predict


class TangentSVMClassifier(TangentClassifier):
    """Support vector machine; with more than two classes, each pair has one."""

    def _solve(self, kernel: Floats, targets: NDArray[Any], strength: float) -> Any:
        model = SVC(kernel="precomputed", C=strength, max_iter=MOST_STEPS, break_ties=True)
        fit_quietly(model, kernel, targets)
        n_classes = len(self.classes_)

        def answer(new: Floats) -> Floats:
            found = model.decision_function(new)
            if found.ndim == 1:
                found = np.column_stack([-found / 2, found / 2])
            # A half of the rows may lack a class.
            outputs = np.full((len(new), n_classes), -np.inf)
            outputs[:, model.classes_] = found
            return outputs

        return answer


def solve_ridge(kernel: Floats, targets: Floats, strength: float) -> Any:
    """Prediction from the kernel of new rows, (M, N); targets (N,) or (N, C)"""
    weights = solve(kernel + strength * np.eye(len(kernel)), targets, assume_a="pos")
    return lambda new: new @ weights


def fit_quietly(model: Any, kernel: Floats, targets: NDArray[Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # after MOST_STEPS
        return model.fit(kernel, targets)
