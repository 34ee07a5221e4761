"""Facts for a record: the machine, the versions of packages, and the memory that a cell took."""

import contextlib
import ctypes
import gc
import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from muddle import __version__

MB = 1e6
BUILT_ON_TORCH = {
    "autogluon.tabular",
    "tabicl",
    "tabpfn",
    "fastai",
    "muddle",
    "muddle_bench.methods.nets",
    "pytabkit",
    "pytorch_tabnet",
}
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS", "LOKY_MAX_CPU_COUNT",
)  # fmt: skip


@cache
def describe_machine(device: str = "cpu") -> str:
    """Processor, cores, memory and, for device="cuda", the GPU."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    n_cores = os.cpu_count() or 1  # the machine's; joblib's count is what a worker may use
    processor = _read_line("/proc/cpuinfo", "model name").partition(":")[2].strip()
    processor = processor or platform.processor() or platform.machine()
    parts = [processor, f"{n_cores} core{'s' if n_cores > 1 else ''}", f"{gib:.0f} GiB"]
    if device == "cuda":
        import torch

        parts.append(torch.cuda.get_device_name())
    return ", ".join(parts)


def describe_versions(packages: Iterable[str]) -> str:
    """Versions of these packages, of muddle and of Python, sorted by name."""
    names = {"numpy", "sklearn", *packages}
    versions = {"muddle": __version__, "python": platform.python_version()}
    for name in names:
        title = "scikit-learn" if name == "sklearn" else name.removeprefix("R:")
        versions[title] = _version(name)
    return "; ".join(f"{title} {versions[title]}" for title in sorted(versions))


def packages_of(model: Any, packages: Iterable[str]) -> set[str]:
    """Packages whose versions a record states: those that the method names, and the model's own."""
    module = type(model).__module__
    found = {module.partition(".")[0], *packages}
    if {module, *found} & BUILT_ON_TORCH:
        found.add("torch")
    return found - {"muddle", "muddle_bench", "__main__", "builtins"}


@cache
def find_commit(folder: Path) -> str:
    """The commit of a folder's Git checkout, with "+" if files have changed; "" without Git."""
    asked = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude", "*"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True)
    except OSError:  # no Git
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


class Peaks(NamedTuple):
    """Highest use of memory in MB; `on_device` is None if no device was used."""

    here: float
    on_device: float | None

    def or_higher(self, other: "Peaks") -> "Peaks":
        devices = [peak for peak in (self.on_device, other.on_device) if peak is not None]
        return Peaks(max(self.here, other.here), max(devices, default=None))


class MemoryMeter:
    """Measures the growth of this process's memory in MB, from its construction on."""

    def __init__(self, device: str) -> None:
        gc.collect()
        # Memory that glibc keeps of earlier cells would hide how much this one takes.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        self._on_cuda = device == "cuda"
        self._base = _read_status("VmRSS") or _peak()
        self.restart()

    def restart(self) -> None:
        """Reset the peak; the level at the start is kept."""
        with contextlib.suppress(OSError):  # not Linux: then the peak includes earlier cells
            Path("/proc/self/clear_refs").write_text("5")
        if self._on_cuda and "torch" in sys.modules:
            sys.modules["torch"].cuda.reset_peak_memory_stats()

    def read(self) -> Peaks:
        on_device = None
        if self._on_cuda and "torch" in sys.modules:
            on_device = round(sys.modules["torch"].cuda.max_memory_allocated() / MB, 3)
        return Peaks(round(max(0.0, _peak() - self._base) / MB, 3), on_device)


def _peak() -> float:
    """Highest resident memory so far, in bytes."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _read_status("VmHWM") or used * (1.0 if sys.platform == "darwin" else 1024.0)


def _read_status(name: str) -> float | None:
    """Bytes of memory from the status of this process; None if the system does not say."""
    line = _read_line("/proc/self/status", name)
    return 1024.0 * int(line.split()[1]) if line else None


def _read_line(path: str, start: str) -> str:
    """The first line that starts so; "" if there is none, as on systems other than Linux."""
    with contextlib.suppress(OSError), Path(path).open() as lines:
        return next((line for line in lines if line.startswith(start)), "")
    return ""


@cache
def _version(name: str) -> str:
    if name.startswith("R:"):
        question = f"cat(as.character(packageVersion('{name[2:]}')), R.version.string)"
        answer = subprocess.run(["Rscript", "-e", question], capture_output=True, text=True)
        version, _, of_r = answer.stdout.partition(" ")
        return f"{version} ({of_r.partition(' (')[0]})" if version else "unknown"
    # A package of a namespace, as autogluon.tabular, has the name of its distribution.
    for distribution in _distributions().get(name, [name]):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(distribution)
    return str(getattr(sys.modules.get(name), "__version__", "unknown"))


_distributions = cache(importlib.metadata.packages_distributions)
