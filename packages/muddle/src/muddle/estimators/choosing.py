"""Which nets of an ensemble answer, by validation score. No torch here: muddle.runtime asks too."""

from typing import Any, Literal, get_args

import numpy as np

from muddle.tables.checks import FloatArray
from muddle_runtime.parameters import check_choice, check_int

Select = Literal["all", "best", "top"]


def check_selection(select: Any, top_k: Any, n_nets: int) -> None:
    """top_k is held against the number of nets only where it counts."""
    check_choice("select", select, get_args(Select))
    check_int("top_k", top_k, minimum=1)
    if select == "top" and top_k > n_nets:
        raise ValueError(
            f"top_k must be at most the number of nets, got top_k={top_k} and {n_nets} net(s). "
            "Lower top_k, raise n_nets or use select='all'."
        )


def choose_nets(
    scores: FloatArray,
    asked: tuple[Select | None, int | None],
    fitted: tuple[Select, int],
    n_trained: int,
) -> list[int]:
    """Positions of the nets that answer to this select and top_k; None: as in the constructor.

    n_trained: nets that the constructor asked for; those left out, or a subset, make them fewer.
    """
    n_nets = len(scores)
    chosen = fitted[0] if asked[0] is None else asked[0]
    top_k = asked[1]
    if top_k is None:
        check_selection(chosen, fitted[1], max(n_nets, n_trained))
        return pick_nets(scores, chosen, fitted[1])
    check_selection(chosen, top_k, n_nets)
    if chosen != "top":
        raise ValueError(f"top_k goes with select='top', got top_k={top_k} and select={chosen!r}.")
    return pick_nets(scores, chosen, top_k)


def pick_nets(scores: FloatArray, select: Select, top_k: int) -> list[int]:
    """Positions of the nets that answer, ascending; of equal scores the first counts as higher."""
    n_picked = {"all": len(scores), "best": 1, "top": top_k}[select]
    picked: list[int] = np.sort(np.argsort(-scores, kind="stable")[:n_picked]).tolist()
    return picked
