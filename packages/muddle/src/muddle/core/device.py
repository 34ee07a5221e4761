"""Which device to compute on, how much memory it has left, and how torch computes on it."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch

from muddle.errors import DeviceError

Precision = Literal["float32", "reduced"]
ProductSetting = Literal["highest", "high"]

# Work of fewer multiplications than this takes less time than waking other threads.
FEWEST_SHARED = 5e6
# A thread that has less than this share of the processor, seconds after the last look, has company.
LEAST_SHARE, BETWEEN_LOOKS = 0.9, 0.02
# A number that is read and written takes the time of this many multiplications in a product.
PER_NUMBER = 20


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
        raise DeviceError(f"device={device!r} does not exist: {_explain_absence(n_devices)}")
    return resolved


def _explain_absence(n_devices: int) -> str:
    version = torch.__version__
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        return (
            f"this torch ({version}) is built for the CPU alone. Install a CUDA build of torch, or "
            "use device='auto' or 'cpu'."
        )
    if n_devices == 0:
        return (
            f"this torch ({version}) is built for CUDA, but finds no GPU. `nvidia-smi` lists those "
            "that the driver sees, and CUDA_VISIBLE_DEVICES may hide them. Use device='auto' or "
            "'cpu' to compute without one."
        )
    return f"this torch ({version}) finds {n_devices} CUDA device(s), counted from 0."


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


T = TypeVar("T")


class _Setting(Generic[T]):
    """A setting of the process that fits in several threads change for a time. The first to come
    notes what it was, the last to leave puts it back."""

    def __init__(self, read: Callable[[], Any], write: Callable[[dict[int, T], Any], None]) -> None:
        """write: takes what each thread wants, innermost, and what was read before all of them"""
        self._read, self._write = read, write
        self._uses: list[tuple[int, list[T]]] = []  # the list makes every use an object of its own
        self._lock = threading.Lock()

    @contextmanager
    def use(self, value: T) -> Iterator[None]:
        own = threading.get_ident(), [value]
        with self._lock:
            if not self._uses:
                self._before = self._read()
            self._change([*self._uses, own])
        try:
            yield
        finally:
            with self._lock:
                self._change([use for use in self._uses if use is not own])

    def _change(self, uses: list[tuple[int, list[T]]]) -> None:
        self._uses = uses
        self._write({thread: value for thread, (value,) in uses}, self._before)


def product_precision(setting: ProductSetting) -> AbstractContextManager[None]:
    """Multiply float32 matrices with this precision, whatever the process has set globally.

    "highest": float32, as every Gram matrix and solve needs. "high": TF32 operands on CUDA, unless
    a fit in another thread needs "highest" at this moment.
    """
    return _PRECISION.use(setting)


def _precision_backends() -> list[Any]:
    """Where torch keeps a precision per backend; none in versions before 2.9."""
    found = torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)
    return [backend for backend in found if hasattr(backend, "fp32_precision")]


def _read_precision() -> tuple[str | None, list[str]]:
    """For all backends, None if torch refuses because they differ, and per backend."""
    backends = [backend.fp32_precision for backend in _precision_backends()]
    try:
        return torch.get_float32_matmul_precision(), backends
    except RuntimeError:
        return None, backends


def _write_precision(
    wanted: dict[int, ProductSetting], before: tuple[str | None, list[str]]
) -> None:
    shared, backends = before
    highest = "highest" in wanted.values()
    if wanted and shared is not None:
        torch.set_float32_matmul_precision("highest" if highest else "high")
        return
    if wanted:
        backends = ["ieee" if highest else "tf32", "ieee"]
    elif shared is not None:
        torch.set_float32_matmul_precision(shared)  # changes those of all backends, too
    for backend, precision in zip(_precision_backends(), backends, strict=True):
        backend.fp32_precision = precision


_PRECISION = _Setting(_read_precision, _write_precision)


def torch_threads(n_threads: int) -> AbstractContextManager[None]:
    """Compute with this many threads, and restore the number afterwards."""
    return _THREADS.use(n_threads)


def _write_threads(wanted: dict[int, int], before: int) -> None:
    """torch has a number per thread, and one for threads that are yet to begin."""
    own = threading.get_ident()
    torch.set_num_threads(wanted.get(own, before))
    if wanted and own not in wanted:  # others go on, and may begin more threads
        helper = threading.Thread(target=torch.set_num_threads, args=(list(wanted.values())[-1],))
        helper.start()
        helper.join()


_THREADS = _Setting(torch.get_num_threads, _write_threads)


# --- threads that wait ---------------------------------------------------------------------------


class _Shared(threading.local):
    n_threads = 1  # that `spread` uses
    watch: "_Watch | None" = None


_SHARED = _Shared()


@contextmanager
def threads_where_they_pay(n_threads: int) -> Iterator[None]:
    """Inside, this thread computes alone, but for the work in `spread`, which n_threads share. If
    other processes need the cores, threads that wait for each other give up theirs."""
    if n_threads == torch.get_num_threads() == 1:  # nothing to change, and to put back
        yield
        return
    with torch_threads(1), ExitStack() as until_done:
        _SHARED.n_threads, _SHARED.watch = n_threads, _Watch(until_done)
        try:
            yield
        finally:
            _SHARED.n_threads, _SHARED.watch = 1, None


@contextmanager
def spread(n_multiplications: float) -> Iterator[None]:
    """Share this work among threads, if it is enough and this thread has some."""
    n_threads = _SHARED.n_threads
    if n_threads == 1 or n_multiplications < FEWEST_SHARED:
        yield
        return
    torch.set_num_threads(n_threads)
    _SHARED.n_threads = 1  # work inside is spread already
    try:
        yield
    finally:
        _SHARED.n_threads = n_threads
        torch.set_num_threads(1)
        assert _SHARED.watch is not None
        _SHARED.watch.look()


def is_alone() -> bool:
    """Whether this thread shares no work in `spread`."""
    return _SHARED.n_threads == 1


class _Watch:
    """Sees whether this thread gets the processor all the time, as on a quiet machine it does, and
    lets threads give up their core while they wait if it does not.

    That they spin saves a tenth of a fit on a quiet machine, and multiplies it on a busy one. The
    results are the same bits.
    """

    def __init__(self, until_done: ExitStack) -> None:
        self._until_done: ExitStack | None = until_done
        self._wall, self._own = time.perf_counter(), time.thread_time()

    def look(self) -> None:
        if self._until_done is None:
            return
        wall, own = time.perf_counter(), time.thread_time()
        seconds = wall - self._wall
        if seconds < BETWEEN_LOOKS:
            return
        if own - self._own < LEAST_SHARE * seconds:
            self._until_done.enter_context(never_spin())
            self._until_done = None
        self._wall, self._own = wall, own


@contextmanager
def never_spin() -> Iterator[None]:
    """Meanwhile, threads that wait for each other give up their core.

    Torch's threads are those of OpenMP, which wait in a loop for milliseconds: beside a process
    that keeps the cores busy, each waits for another that has no core, at every product. GNU's
    OpenMP does not wait like that while there are more of its threads than cores, so this begins
    some that do nothing. The environment variables for it count only before torch is loaded.
    """
    started, done = threading.Event(), threading.Event()

    def hold() -> None:
        with torch_threads(available_cores()):
            torch.ones(2**20).add_(1.0)  # enough for all of them to begin
        started.set()
        done.wait()

    holder = threading.Thread(target=hold, name="muddle: idle threads", daemon=True)
    holder.start()
    started.wait()
    try:
        yield
    finally:
        done.set()
        holder.join()


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
