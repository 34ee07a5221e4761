"""The method for a network of your own: a ridge as its last layer, and the loss of MLR.

    net = RidgeHead(body, width=64)  # body: any module whose output has 64 features per row
    loss = MuddledLoss()
    init_penalty(net, loss, X, y)
    for X_batch, y_batch in batches:
        optimizer.zero_grad()
        loss(net, X_batch, y_batch).backward()
        optimizer.step()
    net.fit_head(batches)
    net(X_new)

`train` is such a loop, with checkpoints. Shapes: N rows, H features (the width), K nets side by
side, C label columns: targets, or classes, of two classes one column.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, get_rng_state, nn

from muddle.core import ridge
from muddle.core.loss import LossForm, LossName, LossTerms, combine, make_loss, stack_permuted
from muddle.core.penalty import PenaltyGrid, first_penalty
from muddle.core.ridge import Factor
from muddle.errors import DivergenceError
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import check_choice, check_int, check_number
from muddle_runtime.whole_file import check_place, write_whole

Criterion = Literal["logistic", "squared"]
Batches = Iterable[tuple[Any, Tensor]]  # input of the body, targets; gone through more than once


class RidgeHead(nn.Module):
    """A network of your own with a ridge regression as its output layer.

    The ridge has no weights to train. In training it is solved in closed form on each batch, within
    the loss, and gradients pass through the solution; only the logarithm of its penalty is a
    parameter. `fit_head` solves it once for all rows, and the net predicts with that.

    Parameters
    ----------
    body : Module
        Takes a batch of rows and gives features, (N, width); of several nets (n_nets, N, width).
    width : int
        Number of features.
    n_outputs : int, default=1
        Number of targets, or of classes.
    task : {"regression", "classification"}, default="regression"
        Targets are numbers, (N,) or (N, n_outputs), or codes of classes, (N,), from 0 on.
    n_nets : int or None, default=None
        Nets side by side, each with a ridge and a penalty of its own; None: a single one.
    penalty : float, default=1000.0
        Penalty to start from; `init_penalty` finds a better one.

    Attributes
    ----------
    log_penalty : Parameter of shape (n_nets,)
    weight : Tensor of shape (n_nets, width, label columns)
        The output weights that `fit_head` found.
    n_recoveries : int
        How often a penalty was raised because the ridge could not be solved.
    """

    weight: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        body: nn.Module,
        width: int,
        n_outputs: int = 1,
        *,
        task: Task = "regression",
        n_nets: int | None = None,
        penalty: float = 1000.0,
    ) -> None:
        super().__init__()
        check_choice("task", task, get_args(Task))
        check_int("width", width, minimum=1)
        check_int("n_outputs", n_outputs, minimum=2 if task == "classification" else 1)
        check_int("n_nets", 1 if n_nets is None else n_nets, minimum=1)
        check_number("penalty", penalty, above=0.0)
        self.body, self.width, self.n_outputs, self.task = body, width, n_outputs, task
        self.n_nets = n_nets
        n_columns = 1 if task == "classification" and n_outputs == 2 else n_outputs
        stack = n_nets or 1
        self.log_penalty = nn.Parameter(torch.full((stack,), math.log(penalty)))
        self.register_buffer("weight", torch.zeros(stack, width, n_columns))
        self.register_buffer("mean", torch.zeros(n_columns))
        self.register_buffer("deviation", torch.ones(n_columns))
        self.n_recoveries = 0
        self._batch_rows = 0  # rows of the batches that the penalty belongs to
        self._is_fitted = self._is_scaled = False

    def extra_repr(self) -> str:
        return f"width={self.width}, n_outputs={self.n_outputs}, task={self.task!r}"

    def get_extra_state(self) -> dict[str, int]:
        names = ("n_recoveries", "_batch_rows", "_is_fitted", "_is_scaled")
        return {name: int(getattr(self, name)) for name in names}

    def set_extra_state(self, state: dict[str, int]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    # --- features, labels, predictions -----------------------------------------------------------

    def features(self, rows: Any) -> Tensor:
        """Features of some rows, in float32 or float64. -> (K, N, H)"""
        found: Tensor = self.body(rows)
        wanted = (
            f"(N, {self.width})" if self.n_nets is None else f"({self.n_nets}, N, {self.width})"
        )
        fits = isinstance(found, Tensor) and found.dim() == (2 if self.n_nets is None else 3)
        if not fits or found.shape[-1] != self.width or len(found) != (self.n_nets or len(found)):
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"the body must give features of shape {wanted}, got {got}.")
        found = found if found.dim() == 3 else found[None]
        return found if found.dtype == torch.float64 else found.float()

    def labels(self, targets: Tensor, like: Tensor) -> Tensor:
        """What the ridge learns: numbers in units of their deviation, or ±1 for each class.
        targets (N,) or (N, outputs); like: features, (K, N, H) -> (K, N, C)"""
        n_rows, n_columns = like.shape[1], self.weight.shape[2]
        columns = targets.reshape(len(targets), -1) if targets.dim() > 0 else targets[None, None]
        codes = self.task == "classification"
        if len(columns) != n_rows or columns.shape[1] != (1 if codes else n_columns):
            wanted = f"({n_rows},)" if codes or n_columns == 1 else f"({n_rows}, {n_columns})"
            raise ValueError(f"targets must be of shape {wanted}, got {tuple(targets.shape)}.")
        if not codes:
            if not bool(columns.isfinite().all()):
                raise ValueError("targets must be finite, got nan or inf. Leave such rows out.")
            found = (columns.to(like) - self.mean.to(like)) / self.deviation.to(like)
            return found.expand(len(like), -1, -1)
        if targets.is_floating_point() or targets.is_complex():
            raise ValueError(f"targets must be codes of classes (torch.long), got {targets.dtype}.")
        known = (columns >= 0) & (columns < self.n_outputs)
        if not bool(known.all()):
            raise ValueError(
                f"targets must be codes from 0 to {self.n_outputs - 1}, got "
                f"{int(columns[~known][0])}. Pass n_outputs as the number of classes."
            )
        first = 1 if n_columns == 1 else 0
        classes = torch.arange(first, self.n_outputs, device=like.device)
        found = (columns.to(like.device) == classes).to(like) * 2 - 1
        return found.expand(len(like), -1, -1)

    def standardise(self, targets: Tensor) -> None:
        """Learn numbers in units of the deviation of these, which penalties are made for.
        `init_penalty` does it with the targets that it gets, if it was not done before."""
        if self.task == "regression":
            columns = targets.detach().double().reshape(len(targets), -1)
            if columns.shape[1] != len(self.mean):
                raise ValueError(
                    f"targets must have {len(self.mean)} columns, got {columns.shape[1]}."
                )
            deviation = columns.std(dim=0, correction=0)
            self.mean.copy_(columns.mean(dim=0))
            self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))
        self._is_scaled = True

    def forward(self, rows: Any) -> Tensor:
        """Predictions: numbers (N, outputs), or scores of the classes (N, classes), of which the
        highest is the predicted one. With n_nets, these are the first axis."""
        if not self._is_fitted:
            raise RuntimeError(
                "the output layer is not fitted: call fit_head(batches) before predicting."
            )
        features = self.features(rows)
        with no_autocast(features):
            found: Tensor = torch.matmul(features, self.weight.to(features))
            if self.task == "regression":
                found = found * self.deviation.to(found) + self.mean.to(found)
            elif self.weight.shape[2] == 1:
                found = torch.cat([-found, found], dim=2)
        own: Tensor = found[0] if self.n_nets is None else found
        return own

    # --- the ridge -------------------------------------------------------------------------------

    def residual(self, features: Tensor, columns: Tensor) -> Tensor:
        """M Z, with M = I - A (A'A + penalty I)⁻¹ A': what the ridge cannot explain of each column.
        Gradients pass to features, columns and penalty. features A (K, N, H), columns Z (K, N, T)
        """
        found: Tensor = _solve_residual(self, features, columns)
        return found

    def _factor(self, features: Tensor) -> Factor:
        """Of (gram + penalty I); penalties that were too small are raised, and counted."""
        gram = ridge.gram_matrix(features)
        factor = ridge.factor_with_recovery(gram, self.log_penalty.to(features).exp())
        if bool(factor.failed.any()):
            raise DivergenceError(
                "the ridge could not be solved: the features are not finite, or too large. Lower "
                "the learning rate, clip gradients, or normalise the input of the body."
            )
        n_raises = int(factor.n_raises.sum())
        if features.requires_grad:  # else the loss is only looked at
            if n_raises:
                self.n_recoveries += n_raises
                self.log_penalty.data.copy_(factor.penalty.log())
            self._batch_rows = max(self._batch_rows, features.shape[1])
        return factor

    @torch.no_grad()
    def fit_head(self, batches: Batches) -> "RidgeHead":
        """Solve the output layer on all rows, in float64, with the body as it predicts (`eval`).
        The penalty grows with the rows: it was trained for those of a batch."""
        n_rows, shape = 0, self.weight.shape
        modes = {module: module.training for module in self.modules()}
        gram = torch.zeros(shape[0], self.width, self.width, dtype=torch.float64)
        right = torch.zeros(shape, dtype=torch.float64)
        self.eval()
        try:
            for rows, targets in batches:
                features = self.features(rows)
                labels = self.labels(targets, features)
                # Not every device has float64.
                exact = features.to("cpu" if features.device.type == "mps" else features.device)
                exact = exact.double()
                gram, right = gram.to(exact.device), right.to(exact.device)
                gram += exact.mT @ exact
                right += exact.mT @ labels.to(exact)
                n_rows += exact.shape[1]
        finally:
            for module, training in modes.items():
                module.training = training
        if n_rows == 0:
            raise ValueError(
                "batches must give rows, got none. Pass a list or a loader, not an iterator that "
                "has been used up."
            )
        share = n_rows / (self._batch_rows or n_rows)
        factor = ridge.factor_with_recovery(gram, self.log_penalty.to(gram).exp() * share)
        weight = factor.solve(right)
        if bool(factor.failed.any()) or not bool(weight.isfinite().all()):
            raise DivergenceError(
                "the output layer could not be solved: features are not finite, or too large."
            )
        self.n_recoveries += int(factor.n_raises.sum())
        self.weight.copy_(weight)
        self._is_fitted = True
        return self


def no_autocast(like: Tensor) -> AbstractContextManager[None]:
    """Solves are never computed in half precision."""
    context: AbstractContextManager[None] = torch.autocast(like.device.type, enabled=False)
    return context


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the factor decides on its values
def _solve_residual(net: RidgeHead, features: Tensor, columns: Tensor) -> Tensor:
    with no_autocast(features):
        with torch.no_grad():
            factor = net._factor(features)
        given = features, columns, net.log_penalty, factor
        found: Tensor = _Residual.apply(*given)  # type: ignore[no-untyped-call]
        return found


class _Residual(torch.autograd.Function):
    """M Z and its gradients in closed form: no autograd through a factorisation."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, columns: Tensor, log_penalty: Tensor, factor: Factor
    ) -> Tensor:
        residual, solved = ridge.apply_ridge(features, columns, factor)
        ctx.save_for_backward(features, residual, solved)
        ctx.factor = factor
        return residual

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, residual, solved = ctx.saved_tensors
        gradient, d_features = gradient.contiguous(), torch.empty_like(features)
        given = features, ctx.factor, solved, residual, gradient
        d_penalty = ridge.ridge_gradients(*given, d_features)
        d_columns = None
        if ctx.needs_input_grad[1]:  # M is symmetric
            d_columns, _ = ridge.apply_ridge(features, gradient, ctx.factor)
        return d_features, d_columns, d_penalty * ctx.factor.penalty, None


class MuddledLoss(nn.Module):
    """The loss of MLR: the error of the labels, and how much better than chance the ridge fits
    permuted labels, which can only be learnt by heart.

    Each call draws new noise and, unless `redraw=False`, new permutations of the batch.

    Parameters
    ----------
    n_permutations : int, default=16
        Permuted labels; 0: none.
    loss : {"mean_square", "root_mean_square"}, default="mean_square"
        The loss of the released code, or that of the paper's text ("root_mean_square"); both name
        their form in regression.
    criterion : {"logistic", "squared"}, default="logistic"
        The error of classes: logistic, or that of their ±1 labels as numbers.
    structured_noise : float, default=1.0
        Deviation of the noise that is seen through I - H. 0: off.
    dither : float or None, default=None
        Deviation of the noise on labels. None: 0.03 in regression, none for classes.
    redraw : bool, default=True
        False: all batches of a size are permuted alike. With one batch of all rows these are the
        paper's permutations, which are drawn once.
    seed : int, default=0
        Of permutations and noise; a net of several draws as the first one would with seed + its
        number.
    """

    def __init__(
        self,
        n_permutations: int = 16,
        *,
        loss: LossName = "mean_square",
        criterion: Criterion = "logistic",
        structured_noise: float = 1.0,
        dither: float | None = None,
        redraw: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_int("n_permutations", n_permutations, minimum=0)
        check_choice("loss", loss, get_args(LossName))
        check_choice("criterion", criterion, get_args(Criterion))
        check_number("structured_noise", structured_noise, minimum=0.0)
        check_number("dither", 0.0 if dither is None else dither, minimum=0.0)
        check_int("seed", seed, minimum=0)
        self.n_permutations, self.loss, self.criterion = n_permutations, loss, criterion
        self.structured_noise, self.dither, self.seed = structured_noise, dither, seed
        self.redraw = redraw
        self._generators: list[torch.Generator] = []

    def get_extra_state(self) -> dict[str, list[Tensor]]:
        return {"generators": [generator.get_state() for generator in self._generators]}

    def set_extra_state(self, state: dict[str, list[Tensor]]) -> None:
        self._generators = [torch.Generator() for _ in state["generators"]]
        for generator, own in zip(self._generators, state["generators"], strict=True):
            generator.set_state(own.cpu())

    def forward(self, net: RidgeHead, rows: Any, targets: Tensor) -> Tensor:
        """The loss of a batch; the sum over nets, which have nothing in common."""
        return self.terms(net, rows, targets).total.sum()

    def terms(self, net: RidgeHead, rows: Any, targets: Tensor) -> LossTerms:
        """Its two terms for each net."""
        features = net.features(rows)
        with no_autocast(features):
            labels = net.labels(targets, features)
            stack, noise = self._draw(labels, self._is_of_classes(net))
            form = self._form(net, structured_noise=noise is not None)
            columns = form.mix(stack, noise)
            residual = net.residual(features, columns.flatten(2)).reshape(stack.shape)
            return measure(form, residual, stack, labels)

    def _is_of_classes(self, net: RidgeHead) -> bool:
        """Whether labels are those of classes, and not numbers."""
        return net.task == "classification" and self.criterion == "logistic"

    def _form(self, net: RidgeHead, *, structured_noise: bool) -> LossForm:
        task: Task = "classification" if self._is_of_classes(net) else "regression"
        return make_loss(task, self.loss, structured_noise=structured_noise)

    def _draw(self, labels: Tensor, of_classes: bool) -> tuple[Tensor, Tensor | None]:
        """Labels and permuted labels with their dither, and the structured noise.
        (K, N, C) -> (K, N, 1 + P, C)"""
        seeds = range(self.seed, self.seed + len(labels))
        if len(self._generators) != len(labels):
            self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        orders = self._generators
        if not self.redraw:
            orders = [torch.Generator().manual_seed(seed) for seed in seeds]
        stack = stack_permuted(labels.cpu(), self.n_permutations, orders).to(labels)

        def draw(scale: float) -> Tensor:
            drawn = [torch.randn(stack.shape[1:], generator=g) for g in self._generators]
            return scale * torch.stack(drawn).to(stack)

        dither = (0.0 if of_classes else DITHER) if self.dither is None else self.dither
        if of_classes and dither > 0:
            raise ValueError(
                f"dither must be 0 with the logistic loss, got dither={dither}. Leave it out, or "
                "use criterion='squared'."
            )
        if dither > 0:
            stack = stack + draw(dither)
        return stack, draw(self.structured_noise) if self.structured_noise > 0 else None


DITHER = 0.03


def measure(form: LossForm, residual: Tensor, stack: Tensor, labels: Tensor) -> LossTerms:
    """The terms of the loss; residual and stack (K, N, 1 + P, C), labels (K, N, C)"""
    weights = labels.new_ones(labels.shape[:2])
    return combine(form.errors(residual, stack, weights), form.baseline(labels, weights))


@torch.no_grad()
def init_penalty(
    net: RidgeHead,
    loss: MuddledLoss,
    rows: Any,
    targets: Tensor,
    *,
    grid: PenaltyGrid = "grid12",
) -> Tensor:
    """Start the penalty of each net where the loss of these rows rises most along a grid, as the
    paper does. Call it once, before training, with as many rows as the batches will have.

    The targets also give the mean and deviation in which numbers are learnt, unless
    `net.standardise` was called. Returns the penalties, (n_nets,).
    """
    check_choice("grid", grid, get_args(PenaltyGrid))
    if not net._is_scaled:
        net.standardise(targets)
    features = net.features(rows)
    if not bool(features.isfinite().all()):
        raise DivergenceError(
            "the features of the body must be finite, got nan or inf. Look at its input."
        )
    labels = net.labels(targets, features)
    # The structured noise is left out, as in the released code (decisions/0006).
    form = loss._form(net, structured_noise=False)
    stack, _ = loss._draw(labels, loss._is_of_classes(net))
    columns = form.mix(stack, None)

    def compute_loss(residual: Tensor) -> Tensor:
        return measure(form, residual.reshape(stack.shape), stack, labels).total

    with no_autocast(features):
        penalty = first_penalty(features, columns.flatten(2), compute_loss, grid)
    net.log_penalty.copy_(penalty.log())
    net._batch_rows = 0
    return penalty


def train(
    net: RidgeHead,
    loss: MuddledLoss,
    batches: Batches,
    *,
    n_epochs: int,
    optimizer: torch.optim.Optimizer | None = None,
    scheduler: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    after_epoch: Callable[[int, float], None] | None = None,
) -> list[float]:
    """A training loop: epochs over the batches, then `fit_head`.

    Parameters
    ----------
    batches : list or DataLoader of (rows, targets)
        Gone through once per epoch and once for the output layer. Give loaders a batch size of a
        few hundred rows or more, as every batch is a regression of its own, and drop_last=True.
    optimizer : Optimizer, default=torch.optim.Adam(net.parameters(), lr=1e-3)
    scheduler : learning-rate scheduler, default=None
        Its `step` is called after each epoch; ReduceLROnPlateau gets the mean loss.
    checkpoint : path, default=None
        File that is written whole after each epoch: net, optimizer, scheduler, the state of the
        loss, and that of torch's random numbers. If it is there, training goes on from it, also
        with more epochs than before.
    after_epoch : function, default=None
        Called with the number of the epoch, from 1, and its mean loss.

    Returns
    -------
    list of float
        Mean loss of each epoch.
    """
    check_int("n_epochs", n_epochs, minimum=1)
    optimizer = optimizer or torch.optim.Adam(net.parameters(), lr=1e-3)
    parts = {"net": net, "loss": loss, "optimizer": optimizer, "scheduler": scheduler}
    parts = {name: part for name, part in parts.items() if part is not None}
    path, history = None if checkpoint is None else Path(checkpoint), list[float]()
    if path is not None:
        check_place(path)
    if path is not None and path.exists():
        history = _restore(path, parts)
    elif not net._is_scaled:
        first = next(iter(batches), None)
        if first is None:
            raise _explain_nothing()
        init_penalty(net, loss, *first)
    if not net.training:
        net.train()
    for epoch in range(len(history) + 1, n_epochs + 1):
        losses = []
        for rows, targets in batches:
            optimizer.zero_grad()
            value = loss(net, rows, targets)
            if not bool(value.isfinite()):
                raise DivergenceError(
                    f"the loss was {float(value.detach())} in epoch {epoch}. Lower the learning "
                    "rate, look for numbers in the rows that are not finite, or clip gradients in "
                    "a loop of your own."
                )
            value.backward()
            optimizer.step()
            losses.append(float(value.detach()))
        if not losses:
            raise _explain_nothing()
        history.append(sum(losses) / len(losses))
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            scheduler.step(history[-1])
        elif scheduler is not None:
            scheduler.step()
        if path is not None:
            states = {name: _plain(part.state_dict()) for name, part in parts.items()}
            known = {"history": history, "kinds": _name_kinds(parts), "random": get_rng_state()}
            with write_whole(path) as file:
                torch.save(known | states, file)
        if after_epoch is not None:
            after_epoch(epoch, history[-1])
    net.fit_head(batches)
    return history


def _explain_nothing() -> ValueError:
    return ValueError(
        "batches must give rows, got none. Pass a list, or a loader whose batches are not larger "
        "than its data."
    )


def _name_kinds(parts: dict[str, Any]) -> dict[str, str]:
    return {name: type(part).__name__ for name, part in parts.items()}


def _plain(state: Any) -> Any:
    """Numbers of numpy, such as learning rates, as Python's: torch reads no others back."""
    if isinstance(state, np.generic):
        return state.item()
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(map(_plain, state))
    return state


def _restore(path: Path, parts: dict[str, Any]) -> list[float]:
    """Losses of the epochs so far; all parts take up their states."""
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        kinds = stored["kinds"]
    except Exception as error:  # torch's own are of many kinds
        raise ValueError(
            f"{path} must be a checkpoint of `train`, got something else or a part of one. Choose "
            "another file, or remove it to start anew."
        ) from error
    wanted = _name_kinds(parts)
    if kinds != wanted:
        given = [f"{name} {kind}" for name, kind in kinds.items() if wanted.get(name) != kind]
        missing = [name for name in wanted if name not in kinds]
        found = ", ".join(given + [f"no {name}" for name in missing])
        raise ValueError(
            f"{path} must be a checkpoint of the same parts, got {found}. Pass the same kinds, or "
            "remove it to start anew."
        )
    for name, part in parts.items():
        part.load_state_dict(stored[name])
    torch.set_rng_state(stored["random"])
    history: list[float] = stored["history"]
    return history


__all__: Sequence[str] = ["MuddledLoss", "RidgeHead", "init_penalty", "train"]
