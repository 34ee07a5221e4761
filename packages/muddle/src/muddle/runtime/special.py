"""Functions of numbers that numpy does not have: activations of nets, probabilities, quantiles."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle.tables.checks import FloatArray

Layer = NDArray[Any]  # float32 or float64

SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
# Beyond this, mish is its argument to the last bit of float64, and squares stay finite in float32.
MISH_STRAIGHT = 20.0


def relu(layer: Layer) -> Layer:
    """In place, like the others."""
    return np.maximum(layer, 0.0, out=layer)


def selu(layer: Layer) -> Layer:
    bent = np.minimum(layer, 0.0)
    np.exp(bent, out=bent)
    bent -= 1.0
    bent *= SELU_ALPHA
    np.maximum(layer, 0.0, out=layer)
    layer += bent
    layer *= SELU_SCALE
    return layer


def mish(layer: Layer) -> Layer:
    """x tanh(log(1 + e)) with e = exp(x), which is x n / (n + 2) with n = e (e + 2)."""
    grown = np.exp(np.minimum(layer, MISH_STRAIGHT))
    grown *= grown + 2.0
    layer *= grown
    grown += 2.0
    layer /= grown
    return layer


def tanh(layer: Layer) -> Layer:
    return np.tanh(layer, out=layer)


ACTIVATIONS: dict[str, Callable[[Layer], Layer]] = {
    "relu": relu,
    "selu": selu,
    "mish": mish,
    "tanh": tanh,
}


def to_probabilities(scores: FloatArray, temperature: FloatArray) -> FloatArray:
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
    logged: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logged


# Rational approximations of Cephes (S. L. Moshier), which scipy uses too: near the middle by
# (p - 1/2)², in the tails by 1/x with x = sqrt(-2 log p), below and above 8.
# fmt: off
MIDDLE = (
    (-59.96335010141079, 98.00107541859997, -56.67628574690703, 13.931260938727968,
     -1.2391658386738125),
    (1.0, 1.9544885833814176, 4.676279128988815, 86.36024213908905, -225.46268785411937,
     200.26021238006066, -82.03722561683334, 15.90562251262117, -1.1833162112133),
)
NEAR_TAIL = (
    (4.0554489230596245, 31.525109459989388, 57.16281922464213, 44.08050738932008,
     14.684956192885803, 2.1866330685079025, -0.1402560791713545, -0.03504246268278482,
     -0.0008574567851546854),
    (1.0, 15.779988325646675, 45.39076351288792, 41.3172038254672, 15.04253856929075,
     2.504649462083094, -0.14218292285478779, -0.03808064076915783, -0.0009332594808954574),
)
FAR_TAIL = (
    (3.2377489177694603, 6.915228890689842, 3.9388102529247444, 1.3330346081580755,
     0.20148538954917908, 0.012371663481782003, 0.00030158155350823543, 2.6580697468673755e-06,
     6.239745391849833e-09),
    (1.0, 6.02427039364742, 3.6798356385616087, 1.3770209948908132, 0.21623699359449663,
     0.013420400608854318, 0.00032801446468212774, 2.8924786474538068e-06,
     6.790194080099813e-09),
)
# fmt: on
CENTRAL = 0.1353352832366127  # exp(-2): tails begin here


def normal_quantile(shares: FloatArray) -> FloatArray:
    """The number below which a standard normal one lies with this probability, in (0, 1)."""
    smaller = np.minimum(shares, 1.0 - shares)
    found = np.empty_like(shares)
    central = smaller > CENTRAL
    from_middle = shares[central] - 0.5
    squared = from_middle * from_middle
    bent = from_middle * (squared * _ratio(MIDDLE, squared))
    found[central] = (from_middle + bent) * np.sqrt(2 * np.pi)
    far = np.sqrt(-2.0 * np.log(smaller[~central]))
    inverse = 1.0 / far
    tail = np.where(far < 8.0, _ratio(NEAR_TAIL, inverse), _ratio(FAR_TAIL, inverse))
    size = far - np.log(far) / far - inverse * tail
    found[~central] = np.where(shares[~central] < 0.5, -size, size)
    return found


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], at: FloatArray) -> FloatArray:
    above, below = polynomials
    ratio: FloatArray = np.polyval(above, at) / np.polyval(below, at)
    return ratio
