"""Which device to compute on."""

import torch

from muddle.errors import DeviceError


def resolve_device(device: str) -> torch.device:
    """ "auto" is the first CUDA device when there is one, else the CPU; other names are taken as
    torch takes them, and must be usable."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must be 'auto', 'cpu', 'cuda' or 'cuda:<index>', got device={device!r}."
        ) from error
    if resolved.type not in ("cpu", "cuda"):
        # The head is solved in float64, which e.g. mps does not have.
        raise DeviceError(
            f"device must be a CPU or CUDA device, got device={device!r}. Use device='cpu'."
        )
    if resolved.type == "cuda":
        if not torch.cuda.is_available():
            raise DeviceError(
                f"device={device!r} asks for CUDA, but this torch ({torch.__version__}) finds no "
                "CUDA device. Use device='auto' or 'cpu', or install a CUDA build of torch."
            )
        if resolved.index is not None and resolved.index >= torch.cuda.device_count():
            raise DeviceError(
                f"device={device!r} does not exist: this machine has "
                f"{torch.cuda.device_count()} CUDA device(s), counted from 0."
            )
    return resolved
