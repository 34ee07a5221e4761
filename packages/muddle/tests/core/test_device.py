import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path

import pytest
import torch

from muddle.core import device
from muddle.core.device import (
    _left_in_group,
    available_memory,
    is_alone,
    product_precision,
    resolve_device,
    spread,
    threads_where_they_pay,
    torch_threads,
)
from muddle.errors import DeviceError


def test_auto_is_cuda_where_there_is_cuda():
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device("cpu").type == "cpu"


@pytest.mark.parametrize(
    ("is_built", "n_devices", "text"),
    [
        (False, 0, r"built for the CPU alone\. Install a CUDA build"),
        (True, 0, r"built for CUDA, but finds no GPU.*nvidia-smi.*Use device='auto' or 'cpu'"),
        (True, 2, r"'cuda:2' does not exist: .*finds 2 CUDA device\(s\), counted from 0"),
    ],
)
def test_a_gpu_that_is_not_there_says_why(is_built, n_devices, text, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: is_built)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_devices)
    with pytest.raises(DeviceError, match=text):
        resolve_device("cuda:2" if n_devices else "cuda")


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


def read_settings():
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    backends = [getattr(b, "fp32_precision", "") for b in (torch.backends.cuda.matmul, matmul)]
    return torch.get_num_threads(), torch.get_float32_matmul_precision(), *backends


@pytest.mark.parametrize("leaving", list(permutations(range(3))), ids=str)
@pytest.mark.parametrize(
    "make", [lambda: torch_threads(7), lambda: product_precision("high")], ids=["threads", "tf32"]
)
def test_settings_are_put_back_when_the_last_of_several_threads_leaves(make, leaving):
    before, threads = read_settings(), [ThreadPoolExecutor(1) for _ in range(3)]
    uses = [make() for _ in threads]
    inside = []
    for thread, use in zip(threads, uses, strict=True):
        thread.submit(use.__enter__).result()
        inside.append(thread.submit(read_settings).result())
    assert set(inside) == {inside[0]} != {before}
    for n_left, place in enumerate(leaving, start=1):
        threads[place].submit(uses[place].__exit__, None, None, None).result()
        with ThreadPoolExecutor(1) as another:  # one that those inside may have begun
            found = another.submit(read_settings).result()
        assert found == (before if n_left == 3 else inside[0])
    assert {thread.submit(read_settings).result() for thread in threads} == {before}
    assert read_settings() == before
    for thread in threads:
        thread.shutdown()


def test_settings_can_be_nested():
    before = torch.get_num_threads()
    with torch_threads(7):
        with torch_threads(6), torch_threads(7):
            assert torch.get_num_threads() == 7
            with torch_threads(5):
                pass
            assert torch.get_num_threads() == 7
        assert torch.get_num_threads() == 7
        with torch_threads(6):
            with torch_threads(7):
                pass
            assert torch.get_num_threads() == 6
    assert torch.get_num_threads() == before


def test_low_precision_waits_for_threads_that_need_the_highest():
    with ThreadPoolExecutor(1) as thread, product_precision("highest"):
        needs = product_precision("highest")
        with product_precision("high"):
            assert torch.get_float32_matmul_precision() == "high"
            thread.submit(needs.__enter__).result()
            assert torch.get_float32_matmul_precision() == "highest"
            thread.submit(needs.__exit__, None, None, None).result()
            assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_float32_matmul_precision() == "highest"


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


def test_work_is_spread_only_where_it_pays():
    before = torch.get_num_threads()
    small, large = device.FEWEST_SHARED / 2, device.FEWEST_SHARED
    with threads_where_they_pay(3):
        assert torch.get_num_threads() == 1
        for work, expected in ((small, 1), (large, 3)):
            with spread(work):
                assert torch.get_num_threads() == expected
            assert torch.get_num_threads() == 1
        with spread(large):
            with spread(large), spread(small):  # what lies inside is spread already
                assert torch.get_num_threads() == 3
            assert torch.get_num_threads() == 3
        assert not is_alone()
    assert is_alone()
    with spread(large):
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == before


def test_a_thread_of_the_caller_keeps_its_number_while_another_one_spreads_work():
    with torch_threads(5), ThreadPoolExecutor(1) as other:
        assert other.submit(torch.get_num_threads).result() == 5
        with threads_where_they_pay(2), spread(device.FEWEST_SHARED):
            assert other.submit(torch.get_num_threads).result() == 5
        assert torch.get_num_threads() == 5


def test_a_thread_that_computes_alone_stays_so():
    """As workers of the flagship, which compute alone as the process does for the time of a fit."""

    def train() -> tuple[int, int]:
        with threads_where_they_pay(torch.get_num_threads()):
            during = torch.get_num_threads()
        return during, torch.get_num_threads()

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with torch_threads(1), ThreadPoolExecutor(1) as worker:
            assert [worker.submit(train).result() for _ in range(2)] == [(1, 1)] * 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("n_threads", "share", "idle"), [(1, 0, 0), (2, 0.95, 0), (2, 0.7, 1)])
def test_threads_give_up_their_core_only_if_others_need_it(n_threads, share, idle, monkeypatch):
    clock = {"seconds": 0.0}
    monkeypatch.setattr(device.time, "perf_counter", lambda: clock["seconds"])
    monkeypatch.setattr(device.time, "thread_time", lambda: share * clock["seconds"])

    def count():
        return sum("idle" in thread.name for thread in threading.enumerate())

    with torch_threads(n_threads), threads_where_they_pay(n_threads):
        for _ in range(3):
            with spread(device.FEWEST_SHARED):
                clock["seconds"] += device.BETWEEN_LOOKS / 2
            assert count() == 0 or clock["seconds"] >= device.BETWEEN_LOOKS
        assert count() == idle
    assert count() == 0


COUNT_THREADS = """
import os
from muddle.core.device import available_cores, never_spin
before = len(os.listdir("/proc/self/task"))
with never_spin():
    print(len(os.listdir("/proc/self/task")) - before - available_cores())
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads as Linux does")
def test_there_are_more_threads_than_cores_while_none_may_spin():
    """The process itself, one that holds idle threads, and the others of these."""
    run = [sys.executable, "-c", COUNT_THREADS]
    assert int(subprocess.run(run, capture_output=True, check=True, text=True).stdout) >= 0
