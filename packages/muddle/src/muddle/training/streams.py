"""How a device is kept busy: iterations prepared ahead, and a stream for each trainer."""

import functools

import torch

# Iterations between two looks of the host at a CUDA device, fewer if their noise would fill it.
ITERATIONS_AHEAD = 20
NUMBERS_AHEAD = 2**22


def iterations_ahead(device: torch.device, numbers_per_iteration: int) -> int:
    """How many iterations to prepare at once. It depends on one net alone: its noise is drawn in
    pieces of this length, and must not depend on its company."""
    if device.type != "cuda":
        return 1
    return max(1, min(ITERATIONS_AHEAD, NUMBERS_AHEAD // numbers_per_iteration))


@functools.cache
def stream_of(device: torch.device, place: int, thread: int) -> torch.cuda.Stream | None:
    """The stream of the trainer at this place among those that run side by side. Always the same
    ones: cuBLAS keeps a workspace for every stream that it has ever seen. Threads have their own:
    what one sends while another records would be recorded."""
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
