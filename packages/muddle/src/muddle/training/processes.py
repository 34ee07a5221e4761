"""Processes that train the same nets, each on its own rows: what they tell each other.

Every process computes with its own batch and its own ridge. Gradients, losses and statistics are
averaged, failures and limits agreed on, so that nets, penalties and decisions stay the same bits in
all of them. Sums of rows are added up.
"""

import atexit
import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # it is, by another name
from torch.distributed.rendezvous import rendezvous

from muddle.errors import DeviceError


class Ranks:
    """One process alone, which has nobody to tell."""

    rank, n_ranks = 0, 1

    def mean(self, tensors: Sequence[Tensor]) -> None:
        """Replace these by their mean over processes."""

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replace these by their sum over processes."""

    def largest(self, values: Tensor) -> Tensor:
        """The largest of each number."""
        return values

    def any(self, flags: Tensor) -> Tensor:
        """Which of these are True in any process."""
        return flags

    def agree(self, failed: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """Nets that failed in any process, and the largest number of each; inf if one is not
        finite. Both (K,)"""
        return failed, visible

    def gather(self, tensor: Tensor, dim: int = 0) -> Tensor:
        """The tensors of all processes one after the other; they may differ in size along dim."""
        return tensor

    def gather_objects(self, value: Any) -> list[Any]:
        """The values of all processes."""
        return [value]


ALONE = Ranks()


class Group(Ranks):
    """The processes of torch.distributed."""

    def __init__(self, device: torch.device) -> None:
        """device: where tensors are exchanged, as the backend wants them: CUDA for NCCL"""
        self.rank, self.n_ranks = dist.get_rank(), dist.get_world_size()
        self._device = device

    def mean(self, tensors: Sequence[Tensor]) -> None:
        if not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])  # one message, not many
        dist.all_reduce(flat)
        flat /= self.n_ranks
        sizes = [tensor.numel() for tensor in tensors]
        for tensor, found in zip(tensors, torch.split(flat, sizes), strict=True):
            tensor.copy_(found.view(tensor.shape))

    def add(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            packed = tensor.contiguous()
            dist.all_reduce(packed)
            tensor.copy_(packed)

    def largest(self, values: Tensor) -> Tensor:
        found = values.clone()
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found

    def any(self, flags: Tensor) -> Tensor:
        return self.largest(flags.to(torch.uint8)).bool()

    def agree(self, failed: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        # A maximum may lose a nan, but not an inf.
        known = torch.where(visible.isfinite(), visible, torch.inf)
        found = self.largest(torch.stack([failed.to(visible.dtype), known]))
        return found[0] > 0, found[1]

    def gather(self, tensor: Tensor, dim: int = 0) -> Tensor:
        turned = tensor.movedim(dim, 0).contiguous()
        sizes = torch.tensor([len(turned)], device=turned.device)
        known = [torch.empty_like(sizes) for _ in range(self.n_ranks)]
        dist.all_gather(known, sizes)
        lengths = [int(size) for size in known]
        padded = turned.new_zeros(max(lengths), *turned.shape[1:])
        padded[: len(turned)] = turned
        parts = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(parts, padded)
        found = [part[:length] for part, length in zip(parts, lengths, strict=True)]
        return torch.cat(found).movedim(0, dim)

    def gather_objects(self, value: Any) -> list[Any]:
        found: list[Any] = [None] * self.n_ranks
        dist.all_gather_object(found, value)
        return found


def find_ranks(device: torch.device) -> Ranks:
    """The processes of torch.distributed, which under torchrun are started here; this one alone if
    there are no others."""
    if not dist.is_available():
        return ALONE
    if dist.is_torchelastic_launched() and not dist.is_initialized():
        _start_group(device)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return ALONE
    backend = dist.get_backend()
    if device.type == "cuda" and backend == "gloo":
        raise DeviceError(
            "processes that train on CUDA devices need the backend nccl, got gloo. Start the group "
            "with torch.distributed.init_process_group('nccl'), or train with device='cpu'."
        )
    if device.type == "cpu" and backend == "nccl":
        raise DeviceError(
            "processes that train on CPUs need the backend gloo, got nccl. Start the group with "
            "torch.distributed.init_process_group('gloo'), or train with device='cuda'."
        )
    return Group(device)


def _start_group(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    store, rank, n_ranks = next(rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # On one machine torchrun keeps its store when it starts processes again, and with it the
        # addresses of those that are gone.
        store = PrefixStore(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=n_ranks)
    atexit.register(dist.destroy_process_group)


def wait_for_all() -> None:
    """Go on when all processes have come here."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def n_local_ranks() -> int:
    """Processes of torchrun on this machine, which share its memory."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
