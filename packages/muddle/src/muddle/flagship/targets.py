"""Labels that nets learn, and back: numbers standardised, or made normal first."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import skew
from sklearn.preprocessing import PowerTransformer

from muddle.tables.checks import FloatArray
from muddle.tables.scaling import Scale
from muddle_runtime.powers import bend, unbend

# A target is worth a second look when its skewness is beyond this and a power at least halves it.
SKEWED = 1.0
# Curves are followed so far beyond the training targets, in standard deviations.
BEYOND = 1.0
# Where this becomes less than that when bent, the power is too flat to be undone.
LEAST_STEP = 1e-9


@dataclass(frozen=True)
class NormalScores:
    """Standardised targets bent by a power (Yeo-Johnson), and back."""

    powers: FloatArray  # (C,)
    scale: Scale  # of the bent targets
    least: FloatArray  # (C,) bent: what lies a little below the training targets
    most: FloatArray  # (C,) and above

    def apply(self, labels: FloatArray) -> FloatArray:
        return self.scale.apply(bend(labels, self.powers))

    def undo(self, outputs: FloatArray) -> FloatArray:
        # The inverse of a power has poles; nets may point there.
        within = np.clip(outputs, self.least, self.most)
        return unbend(self.scale.undo(within), self.powers)


def fit_normal_scores(labels: FloatArray) -> NormalScores | None:
    """For standardised labels (N, C); None unless the target has a long tail that a power cures."""
    before = np.abs(skew(labels, axis=0)).max()
    if not before > SKEWED:
        return None
    powers = PowerTransformer(method="yeo-johnson").fit(labels)
    bent = powers.transform(labels)
    after = np.abs(skew(bent, axis=0)).max()
    if not np.isfinite(bent).all() or after > before / 2:
        return None
    # Bounds are set first and then bent: the pole may be nearer than any step in bent targets.
    bounds = [labels.min(axis=0) - BEYOND, labels.max(axis=0) + BEYOND]
    least, most = powers.transform(np.stack(bounds))
    steps = np.concatenate([bent.min(axis=0) - least, most - bent.max(axis=0)])
    if not (steps > LEAST_STEP).all():
        return None
    scaler = powers._scaler
    return NormalScores(powers.lambdas_, Scale(scaler.mean_, scaler.scale_), least, most)
