import subprocess
import sys

import pytest
import torch

from muddle.core.device import _left_in_group, available_memory, product_precision, resolve_device
from muddle.errors import DeviceError

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")


def test_auto_is_cuda_where_there_is_cuda():
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device("cpu").type == "cpu"


@without_cuda
def test_cuda_asked_for_and_absent_says_what_to_do():
    with pytest.raises(DeviceError, match=r"finds no CUDA device.*Use device='auto' or 'cpu'"):
        resolve_device("cuda")


def test_unknown_devices_are_refused():
    with pytest.raises(ValueError, match="must be 'auto', 'cpu', 'cuda'"):
        resolve_device("gpu")
    with pytest.raises(DeviceError, match="CPU or CUDA"):
        resolve_device("mps")


def test_free_memory_is_known_and_below_what_the_machine_has():
    assert 2**20 < available_memory(torch.device("cpu")) < 2**50


def test_a_container_has_what_its_limit_leaves(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 200\n")
    assert _left_in_group(tmp_path) == 500
    (tmp_path / "memory.max").write_text("max\n")
    assert _left_in_group(tmp_path) is None
    assert _left_in_group(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("free", "left", "available"), [(900, 400, 400), (900, None, 900), (None, None, None)]
)
def test_the_smaller_of_machine_and_container_counts(free, left, available, monkeypatch):
    monkeypatch.setattr("muddle.core.device._free_memory", lambda: free)
    monkeypatch.setattr("muddle.core.device._left_in_group", lambda: left)
    assert available_memory(torch.device("cpu")) == available


@pytest.mark.parametrize("setting", ["highest", "medium"])
def test_product_precision_is_put_back_also_after_an_error(setting):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        with pytest.raises(KeyError), product_precision("high"):
            {}[torch.get_float32_matmul_precision()]
        assert torch.get_float32_matmul_precision() == setting
        with product_precision("high"):
            assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_precision_set_per_backend_is_set_aside_and_put_back():
    # In a process of its own: torch does not forget that this way of setting it was used.
    code = """
import torch
from muddle.core.device import product_precision
cuda, cpu = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
cuda.fp32_precision, cpu.fp32_precision = "tf32", "bf16"
with product_precision("highest"):
    assert (cuda.fp32_precision, cpu.fp32_precision) == ("ieee", "ieee")
    with product_precision("high"):
        assert cuda.fp32_precision == "tf32"
    assert (cuda.fp32_precision, cpu.fp32_precision) == ("ieee", "ieee")
assert (cuda.fp32_precision, cpu.fp32_precision) == ("tf32", "bf16")
"""
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has one setting for all backends")
    subprocess.run([sys.executable, "-c", code], check=True)
