"""How exactly float32 matrices are multiplied, whatever the process has set globally."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Precision = Literal["float32", "reduced"]


@contextmanager
def product_precision(setting: Literal["highest", "high"]) -> Iterator[None]:
    """ "highest": float32, as every Gram matrix and solve needs. "high": TF32 operands on CUDA."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
