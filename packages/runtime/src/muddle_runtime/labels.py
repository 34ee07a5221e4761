"""From the labels that nets predict to targets, classes and probabilities.

Shapes: N rows, C label columns (two classes share one).
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.columns import FloatArray
from muddle_runtime.tables import Scale

# exp(-35) is six roundings of 1, so that 1 minus it is still below 1.
LEAST_LOG_PROBABILITY = -35.0
# A power nearer to 0 or 2 than this is a logarithm.
ROUNDING = float(np.finfo(np.float64).eps)


Range = Literal["any", "positive", "count", "share"]


def check_exposure(exposure: Any, n_rows: int) -> FloatArray:
    """A number above 0 per row, (n_rows,); a single one is that of every row."""
    try:
        values = np.asarray(exposure, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"exposure must hold numbers, got {exposure!r:.60}.") from error
    if values.ndim == 0:
        values = np.full(n_rows, float(values))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n_rows,):
        raise ValueError(
            f"exposure must hold one number per row, {n_rows}, got an array of shape "
            f"{values.shape}."
        )
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(bad):
        raise ValueError(
            f"exposure must hold finite numbers above 0, got {values[bad[0]]:g} in row {bad[0]}. A "
            "row that was exposed to nothing tells nothing: leave such rows out, and fill gaps."
        )
    return values


@dataclass(frozen=True, eq=False)
class NumberTarget:
    """Numbers to predict; labels are standardised."""

    scale: Scale
    one_output: bool  # y had one axis
    bounds: FloatArray | None = None  # (2, C) labels that predictions stay within
    support: FloatArray | None = None  # (2, C) in the units of y: targets lie within; may be open
    ranges: tuple[Range, ...] = ()  # of each output, for people; () in files without them
    exposure: float | None = None  # mean of the fit; targets are then rates, y per exposure

    def read_exposure(self, exposure: Any, n_rows: int) -> FloatArray | None:
        """The exposure of each row, (n_rows,), or None for a model without; an error unless it is
        given where there is one, and only there."""
        if self.exposure is None:
            if exposure is None:
                return None
            raise ValueError(
                "exposure goes with a model that was fitted with it, got exposure for one that was "
                "not. Leave it out, or fit(X, y, exposure=...)."
            )
        if exposure is None:
            raise ValueError(
                "exposure must be given, because the model was fitted with it: pass exposure=, a "
                "number per row, or exposure=1 for rates, y per unit of exposure."
            )
        return check_exposure(exposure, n_rows)

    def relative_noise(self, exposure: FloatArray) -> FloatArray:
        """Sizes of errors of rates beside those at the mean exposure: as of counts, in which as
        many events again make the error of their rate smaller by the root of two. (n,)"""
        assert self.exposure is not None
        return np.asarray(np.sqrt(self.exposure / exposure))

    def clip(self, labels: FloatArray) -> FloatArray:
        return labels if self.bounds is None else np.clip(labels, *self.bounds)

    def restore(self, labels: FloatArray) -> FloatArray:
        """Labels (..., C) in the units of y, with as many axes as y had."""
        predicted = self.scale.undo(labels)
        if self.support is not None:
            predicted = np.clip(predicted, *self.support)
        return predicted[..., 0] if self.one_output else predicted

    def restore_bounds(self, bounds: FloatArray, keep_width: bool = False) -> FloatArray:
        """(N, C, Q) -> (N, Q) or (N, C, Q) in the units of y, within the support.

        keep_width: of intervals, Q = 2, what the support cuts off at one end is added at the other.
        """
        found: FloatArray = bounds * self.scale.deviation[:, None] + self.scale.mean[:, None]
        if self.support is not None:
            least, most = self.support[:, :, None]
            within = np.clip(found, least, most)
            if keep_width:
                with np.errstate(invalid="ignore"):  # infinite bounds stay
                    cut = np.where(within == found, 0.0, within - found)
                within = np.clip(within + cut[:, :, ::-1], least, most)
            found = within
        return found[:, 0] if self.one_output else found


@dataclass(frozen=True, eq=False)
class ClassTarget:
    """Classes to predict; one label column of ±1 per class, of two classes only for the second."""

    classes: NDArray[Any]  # sorted
    zero_one: bool  # nets were trained on labels 0 and 1 instead

    def to_scores(self, outputs: FloatArray) -> FloatArray:
        """Outputs of nets on the scale of ±1 labels."""
        return 2 * outputs - 1 if self.zero_one else outputs


@dataclass(frozen=True, eq=False)
class NormalScores:
    """Standardised targets with a long tail, made normal by a power (Yeo-Johnson), and back."""

    powers: FloatArray  # (C,)
    scale: Scale  # of the targets after the power
    least: FloatArray  # (C,) after the power: a little below the training targets
    most: FloatArray  # (C,) and above

    def apply(self, labels: FloatArray) -> FloatArray:
        return self.scale.apply(raise_to_powers(labels, self.powers))

    def undo(self, outputs: FloatArray) -> FloatArray:
        """(..., C) -> (..., C)"""
        # The inverse of a power has poles; nets may point there.
        within = self.scale.undo(np.clip(outputs, self.least, self.most))
        flat = within.reshape(-1, within.shape[-1])
        return undo_powers(flat, self.powers).reshape(outputs.shape)

    def can_be_undone(self) -> bool:
        """Whether the power has an inverse at both bounds, and so between them."""
        with np.errstate(all="ignore"):
            ends = self.scale.undo(np.stack([self.least, self.most]))
            again = raise_to_powers(undo_powers(ends, self.powers), self.powers)
            return bool((np.abs(again - ends) <= 1e-6 * (1 + np.abs(ends))).all())


def raise_to_powers(values: FloatArray, powers: FloatArray) -> FloatArray:
    """The power of Yeo and Johnson, column by column. values (N, C), powers (C,) -> (N, C)

    Written out, because scikit-learn's PowerTransformer can be stored as a pickle only.
    """

    def grow(size: FloatArray, power: float) -> FloatArray:
        logged = np.log1p(np.maximum(size, 0.0))
        return logged if abs(power) <= ROUNDING else np.expm1(power * logged) / power

    found = np.empty_like(values)
    for i, power in enumerate(powers.tolist()):
        column = values[:, i]
        found[:, i] = np.where(column >= 0, grow(column, power), -grow(-column, 2 - power))
    return found


def undo_powers(found: FloatArray, powers: FloatArray) -> FloatArray:
    """The inverse of `raise_to_powers`, (N, C); nan beyond its range."""

    def shrink(size: FloatArray, power: float) -> FloatArray:
        size = np.maximum(size, 0.0)
        return np.exp(size) if abs(power) <= ROUNDING else (size * power + 1) ** (1 / power)

    values = np.empty_like(found)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for i, power in enumerate(powers.tolist()):
            column = found[:, i]
            up, down = shrink(column, power), shrink(-column, 2 - power)
            values[:, i] = np.where(column >= 0, up - 1, 1 - down)
    return values


@dataclass(frozen=True, eq=False)
class Calibration:
    """softmax(slopes * scores + biases), C classes, of the scores that `class_columns` makes."""

    slopes: FloatArray  # (C,), all above 0; equal for two classes
    biases: FloatArray  # (C,), their mean is 0
    floor: float | None = None  # None: scores count as they are, as in files of format 1

    def apply(self, scores: FloatArray) -> FloatArray:
        """(N, 1) for two classes or (N, C) -> probabilities (N, C), none of them 0 or 1"""
        log_p = log_softmax(self.slopes * class_columns(scores, self.floor) + self.biases)
        probabilities: FloatArray = np.exp(np.maximum(log_p, LEAST_LOG_PROBABILITY))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities


def class_columns(scores: FloatArray, floor: float | None = None) -> FloatArray:
    """One column per class, logarithms of probabilities up to a constant. (N, 1) or (N, C)

    The score s of two classes becomes ∓z/2, whose softmax is the sigmoid of z. Without a floor,
    scores count as they are. With one, a score is an estimate of 2p - 1, and counts as log soft(p).
    """
    two = scores.shape[1] == 1
    if floor is None:
        return np.hstack([-scores / 2, scores / 2]) if two else scores
    if two:
        half = (log_soft((1 + scores) / 2, floor) - log_soft((1 - scores) / 2, floor)) / 2
        return np.hstack([-half, half])
    return log_soft((1 + scores) / 2, floor)


def log_soft(shares: FloatArray, floor: float) -> FloatArray:
    """log((p + √(p² + 4 floor²)) / 2): of a number above 0, which is p where p is far above floor.

    Written as arcsinh, which is exact for p below 0 too, where the sum would cancel.
    """
    return np.asarray(np.log(floor) + np.arcsinh(shares / (2 * floor)))


def to_probabilities(scores: FloatArray, temperature: FloatArray | float) -> FloatArray:
    """Scores (..., 1) of two classes or (..., C) -> probabilities (..., 2) or (..., C)"""
    scaled = scores / temperature
    if scores.shape[-1] > 1:
        return np.exp(log_softmax(scaled))
    # Of the two, the smaller one is exact, however small.
    small = np.exp(-np.abs(scaled))
    small, large = small / (1.0 + small), 1.0 / (1.0 + small)
    second = scaled > 0
    return np.concatenate([np.where(second, small, large), np.where(second, large, small)], axis=-1)


def log_softmax(scores: FloatArray) -> FloatArray:
    """Over the last axis."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
