"""The power of Yeo and Johnson, column by column, and back: numpy alone.

Written out, because scikit-learn's PowerTransformer can be stored as a pickle only.
"""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Nearer to 0 or 2 than this, the power is a logarithm.
ROUNDING = float(np.finfo(np.float64).eps)


def bend(values: FloatArray, powers: FloatArray) -> FloatArray:
    """values (N, C), powers (C,) -> (N, C)"""
    bent = np.empty_like(values)
    for output, power in enumerate(powers.tolist()):
        column = values[:, output]
        above = np.log1p(np.maximum(column, 0.0))
        below = np.log1p(np.maximum(-column, 0.0))
        up = above if abs(power) < ROUNDING else np.expm1(power * above) / power
        rest = 2 - power
        down = below if abs(rest) <= ROUNDING else np.expm1(rest * below) / rest
        bent[:, output] = np.where(column >= 0, up, -down)
    return bent


def unbend(bent: FloatArray, powers: FloatArray) -> FloatArray:
    """What `bend` bent, (N, C); nan beyond what any value is bent to."""
    values = np.empty_like(bent)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for output, power in enumerate(powers.tolist()):
            above = np.maximum(bent[:, output], 0.0)
            below = np.maximum(-bent[:, output], 0.0)
            rest = 2 - power
            up = np.exp(above) if abs(power) < ROUNDING else (above * power + 1) ** (1 / power)
            down = np.exp(below) if abs(rest) <= ROUNDING else (below * rest + 1) ** (1 / rest)
            values[:, output] = np.where(bent[:, output] >= 0, up - 1, 1 - down)
    return values
