"""Which device to compute on."""

import os
from pathlib import Path

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


def available_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated; None where the system does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What torch holds and does not use can be used again.
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + cached
    known = [bytes_ for bytes_ in (_free_memory(), _left_in_group()) if bytes_ is not None]
    return min(known, default=None)


def _free_memory() -> int | None:
    """Memory of the machine that is free or can be freed."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return 1024 * int(value.split()[0])
    except OSError:
        pass  # not Linux
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _left_in_group(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What the control group of a container leaves, files it caches not counted."""
    try:
        limit = (root / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((root / "memory.current").read_text())
        stat = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
        return int(limit) - used + int(stat.get("inactive_file", 0))
    except (OSError, ValueError):
        return None
