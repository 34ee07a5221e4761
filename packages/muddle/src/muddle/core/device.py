"""Which device to compute on, how much memory it has left, and how torch computes on it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from muddle.errors import DeviceError

Precision = Literal["float32", "reduced"]
ProductSetting = Literal["highest", "high"]


def resolve_device(device: str) -> torch.device:
    """The usable device with this torch name; "auto" is CUDA if there is any, else the CPU."""
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
    n_devices = torch.cuda.device_count()
    if resolved.type == "cuda" and (resolved.index or 0) >= n_devices:
        raise DeviceError(
            f"device={device!r} does not exist: this torch ({torch.__version__}) finds "
            f"{n_devices or 'no'} CUDA device(s), counted from 0. Use device='auto' or 'cpu', or "
            "install a CUDA build of torch."
        )
    return resolved


def available_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated, or None if the system does not tell."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # Memory that torch has reserved and does not use can be used again.
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    known = [bytes_ for bytes_ in (_free_memory(), _left_in_group()) if bytes_ is not None]
    return min(known, default=None)


def _free_memory() -> int | None:
    """Memory of the machine that is free or can be freed."""
    try:
        stat = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return 1024 * int(stat["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass  # not Linux
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _left_in_group(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory left by the limit of a container's control group; cached files count as free."""
    try:
        limit = (root / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((root / "memory.current").read_text())
        stat = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
        return int(limit) - used + int(stat.get("inactive_file", 0))
    except (OSError, ValueError):
        return None


@contextmanager
def product_precision(setting: ProductSetting) -> Iterator[None]:
    """Multiply float32 matrices with this precision, whatever the process has set globally.

    "highest": float32, as every Gram matrix and solve needs. "high": TF32 operands on CUDA.
    """
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # precisions were set per backend, and torch refuses to mix the two ways
        cuda: Any = torch.backends.cuda.matmul
        cpu: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        old = cuda.fp32_precision, cpu.fp32_precision
        cuda.fp32_precision = "ieee" if setting == "highest" else "tf32"
        cpu.fp32_precision = "ieee"
        try:
            yield
        finally:
            cuda.fp32_precision, cpu.fp32_precision = old
        return
    torch.set_float32_matmul_precision(setting)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def torch_threads(n_threads: int) -> Iterator[None]:
    """Compute with this many threads, and restore the number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
