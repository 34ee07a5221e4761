"""Labels that nets learn, and back: numbers standardised, or made normal first."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import skew
from sklearn.preprocessing import PowerTransformer

from muddle.preprocessing.checks import FloatArray

# A target is worth a second look when its skewness is beyond this and a power at least halves it.
SKEWED = 1.0
# Curves are followed so far beyond the training targets, in standard deviations.
BEYOND = 1.0
# Where this becomes less than that when bent, the power is too flat to be undone.
LEAST_STEP = 1e-9


@dataclass(frozen=True)
class NormalScores:
    """Standardised targets bent by a power (Yeo-Johnson), and back."""

    powers: PowerTransformer
    least: FloatArray  # (C,) bent: what lies a little below the training targets
    most: FloatArray  # (C,) and above

    def apply(self, labels: FloatArray) -> FloatArray:
        return np.asarray(self.powers.transform(labels))

    def undo(self, outputs: FloatArray) -> FloatArray:
        # The inverse of a power has poles; nets may point there.
        return np.asarray(self.powers.inverse_transform(np.clip(outputs, self.least, self.most)))


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
    return NormalScores(powers, least, most) if (steps > LEAST_STEP).all() else None
