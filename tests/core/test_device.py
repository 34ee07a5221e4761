import pytest
import torch

from muddle.core.device import resolve_device
from muddle.errors import DeviceError

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")


def test_auto_is_cuda_where_there_is_cuda():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device("auto").type == expected
    assert resolve_device("cpu").type == "cpu"


@without_cuda
def test_cuda_asked_for_and_absent_says_what_to_do():
    with pytest.raises(DeviceError, match=r"finds no CUDA device. Use device='auto' or 'cpu'"):
        resolve_device("cuda")


def test_unknown_devices_are_refused():
    with pytest.raises(ValueError, match="must be 'auto', 'cpu', 'cuda'"):
        resolve_device("gpu")
    with pytest.raises(DeviceError, match="CPU or CUDA"):
        resolve_device("mps")
