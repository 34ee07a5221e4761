"""Which nets of an ensemble answer, by validation score or by index."""

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from muddle.core.network import StackedMLP
from muddle.estimators.parameters import Select
from muddle.parameters import check_choice, check_int
from muddle.preprocessing.checks import FloatArray


def check_selection(select: Any, top_k: Any, n_nets: int) -> None:
    """top_k is held against the number of nets only where it counts."""
    check_choice("select", select, get_args(Select))
    check_int("top_k", top_k, minimum=1)
    if select == "top" and top_k > n_nets:
        raise ValueError(
            f"top_k must be at most the number of nets, got top_k={top_k} and {n_nets} net(s). "
            "Lower top_k, raise n_nets or use select='all'."
        )


def pick_nets(scores: FloatArray, select: Select, top_k: int) -> list[int]:
    """Positions of the nets that answer, ascending; of equal scores the first counts as higher."""
    n_picked = {"all": len(scores), "best": 1, "top": top_k}[select]
    picked: list[int] = np.sort(np.argsort(-scores, kind="stable")[:n_picked]).tolist()
    return picked


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
