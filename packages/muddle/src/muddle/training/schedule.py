"""Learning rates over the iterations."""

import math
from typing import Literal

Schedule = Literal["constant", "cycles"]
# Cosine cycles in the logarithm of time: four of them, each about twice as long as the one before.
N_CYCLES = 4


def rate_factors(schedule: Schedule, n_steps: int) -> list[float]:
    """What the learning rate is multiplied by at each step; 1 at most."""
    if schedule == "constant":
        return [1.0] * n_steps
    times = [(step + 0.5) / n_steps for step in range(n_steps)]
    cycles = [math.log2(1 + (2**N_CYCLES - 1) * time) for time in times]
    return [0.5 * (1 - math.cos(2 * math.pi * cycle)) for cycle in cycles]


def cycle_ends(n_steps: int) -> list[int]:
    """Iterations at which a cycle has just ended and nets have settled; the last one is n_steps."""
    shares = [(2**cycle - 1) / (2**N_CYCLES - 1) for cycle in range(1, N_CYCLES + 1)]
    return sorted({max(1, round(share * n_steps)) for share in shares})
