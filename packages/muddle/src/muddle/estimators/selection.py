"""Nets of an ensemble by index, and what they share; choosing.py picks them by score."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from muddle.core.network import StackedMLP
from muddle.tables.checks import FloatArray


def weigh_nets(picked: Sequence[int], n_nets: int) -> FloatArray:
    """The weight of each net in the mean, (n_nets,)."""
    weights = np.zeros(n_nets)
    weights[list(picked)] = 1 / len(picked)
    return weights


def resolve_nets(nets: Any, n_nets: int) -> list[int]:
    """Positions that a list, slice or mask stands for, ascending."""
    if isinstance(nets, slice):
        chosen = np.arange(n_nets)[nets]
    else:
        chosen = _resolve_array(np.atleast_1d(np.asarray(nets)), n_nets)
    if len(chosen) == 0:
        raise ValueError(f"nets must name at least one net, got nets={nets!r} of {n_nets} net(s).")
    positions: list[int] = np.unique(chosen).tolist()
    if len(positions) < len(chosen):
        raise ValueError(f"nets must name each net once, got nets={nets!r}.")
    return positions


def _resolve_array(nets: NDArray[Any], n_nets: int) -> NDArray[np.int64]:
    if nets.dtype == bool:
        if nets.shape != (n_nets,):
            raise ValueError(
                f"a mask of nets must have one value for each of the {n_nets} net(s), got shape "
                f"{nets.shape}."
            )
        return np.flatnonzero(nets)
    if len(nets) == 0:
        return np.empty(0, dtype=np.int64)
    if nets.ndim > 1 or nets.dtype.kind not in "iu":
        raise TypeError(
            f"nets must be indices, a slice or a boolean mask, got {nets.dtype} of shape "
            f"{nets.shape}."
        )
    wrong = nets[(nets < -n_nets) | (nets >= n_nets)]
    if len(wrong) > 0:
        raise IndexError(
            f"nets must lie between 0 and {n_nets - 1}, got {int(wrong[0])}: the model has "
            f"{n_nets} net(s)."
        )
    return np.where(nets < 0, nets + n_nets, nets).astype(np.int64)


def share_nets(nets: StackedMLP, positions: Sequence[int]) -> StackedMLP:
    """The nets at these positions, as `share_tensor` takes them."""
    return nets.map(lambda tensor: share_tensor(tensor, positions))


def share_tensor(tensor: Tensor, positions: Sequence[int]) -> Tensor:
    """These positions of the first axis: a view where they are evenly spaced, else a copy."""
    steps = set(np.diff(positions).tolist())
    if len(positions) == 0 or len(steps) > 1:
        return tensor[list(positions)]
    step = steps.pop() if steps else 1
    return tensor[positions[0] : positions[-1] + 1 : step]


def own_memory(tensor: Tensor) -> Tensor:
    """The tensor, copied if it is a view of a larger one: pickle would store all of that."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()
