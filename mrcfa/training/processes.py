"""Distributed training under `torchrun`: ranks, sums and norms over all processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mrcfa.errors import InvalidValue

CPU = torch.device("cpu")
PATIENCE = timedelta(hours=12)
"""Time limit of collective operations; the other processes wait while the first validates."""


@dataclass(frozen=True)
class Process:
    """One of `world` processes; rank 0 writes files. Without torchrun there is only one."""

    rank: int = 0
    world: int = 1
    device: torch.device = CPU

    @property
    def leads(self) -> bool:
        """True in the process that writes files and messages."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes; it is differentiable."""
        if self.world == 1:
            return values
        total: Tensor = _Total.apply(values)  # type: ignore[no-untyped-call]  # torch's own
        return total

    def any(self, condition: bool) -> bool:
        """True if the condition is true in at least one process."""
        if self.world == 1:
            return condition
        return bool(self.total(torch.tensor(float(condition), device=self.device)) > 0)

    def wait(self) -> None:
        """Wait until all processes have reached this call."""
        if self.world > 1:
            dist.barrier()


class _Total(torch.autograd.Function):
    """A sum over all processes; its gradient is also a sum, because every process uses it."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total


@contextmanager
def joined(batch: int) -> Iterator[Process]:
    """Join the processes that torchrun started, by nccl on GPUs and by gloo on CPUs."""
    gpu = torch.cuda.is_available()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if gpu else CPU
    if "RANK" not in os.environ:
        yield Process(device=device)
        return
    world = int(os.environ["WORLD_SIZE"])
    if batch % world:
        raise InvalidValue(
            f"a batch of {batch} cannot be shared by {world} processes; use a multiple of {world}"
        )
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo", timeout=PATIENCE)
    try:
        yield Process(dist.get_rank(), world, device)
    finally:
        dist.destroy_process_group()


def share_norms(module: nn.Module, process: Process) -> None:
    """Replace BatchNorms by ones over all processes; call it before making an optimizer.

    PyTorch's SyncBatchNorm has no kernels for CPUs, so `GlooBatchNorm` replaces it there.
    """
    for part in list(module.modules()) if process.world > 1 else ():
        for name, child in list(part.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                on_gpu = process.device.type == "cuda"
                shared = nn.SyncBatchNorm.convert_sync_batchnorm(child) if on_gpu else None
                setattr(part, name, shared or GlooBatchNorm(child, process))


class GlooBatchNorm(nn.BatchNorm2d):
    """BatchNorm over the samples of all processes, on CPUs."""

    def __init__(self, norm: nn.BatchNorm2d, process: Process) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum)
        self.load_state_dict(norm.state_dict())
        self._process = process

    def forward(self, image: Tensor) -> Tensor:
        if not self.training:
            return super().forward(image)
        count = image.numel() / image.shape[1] * self._process.world
        wide = image.float()  # sums of bf16 values would be too inexact
        sums = torch.stack([wide.sum((0, 2, 3)), (wide * wide).sum((0, 2, 3))])
        mean, square = self._process.total(sums) / count
        variance = square - mean**2
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            self.num_batches_tracked += 1
            momentum = self.momentum or 0.1
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * count / (count - 1), momentum)
        scale = self.weight / (variance + self.eps).sqrt()
        shift = self.bias - mean * scale
        return (wide * scale[:, None, None] + shift[:, None, None]).to(image.dtype)
