"""How exactly float32 matrices are multiplied, whatever the process has set globally."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

Precision = Literal["float32", "reduced"]
Setting = Literal["highest", "high"]


@contextmanager
def product_precision(setting: Setting) -> Iterator[None]:
    """ "highest": float32, as every Gram matrix and solve needs. "high": TF32 operands on CUDA."""
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:
        # The process has set precisions per backend, and torch refuses to mix the two ways.
        with _backend_precision(setting):
            yield
        return
    torch.set_float32_matmul_precision(setting)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _backend_precision(setting: Setting) -> Iterator[None]:
    wanted = "ieee" if setting == "highest" else "tf32"
    settings: list[tuple[Any, str]] = [
        (torch.backends.cuda.matmul, wanted),
        (torch.backends.mkldnn.matmul, "ieee"),  # type: ignore[attr-defined]
    ]
    before = [backend.fp32_precision for backend, _ in settings]
    for backend, value in settings:
        backend.fp32_precision = value
    try:
        yield
    finally:
        for (backend, _), value in zip(settings, before, strict=True):
            backend.fp32_precision = value
