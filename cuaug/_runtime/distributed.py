"""Which process of how many this is, and which GPU is its own."""

from __future__ import annotations

import operator
import os

import torch
import torch.distributed

from cuaug.errors import DeviceError, LoaderError

__all__ = ["check_rank", "own_gpu", "own_rank"]


def own_rank(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """(rank, world size): as given, else torch.distributed's where it is initialised, else torchrun's, else (0, 1).

    Raises:
        LoaderError: one given without the other, no integers, or a rank outside of 0 ... world_size - 1.
    """
    if (rank is None) != (world_size is None):
        raise LoaderError(f"rank and world_size belong together: rank={rank}, world_size={world_size}")
    if rank is None or world_size is None:
        if _initialized():
            rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        elif "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            rank, world_size = _variable("RANK"), _variable("WORLD_SIZE")
        else:
            rank, world_size = 0, 1
    try:
        rank, world_size = operator.index(rank), operator.index(world_size)
    except TypeError:
        raise LoaderError(f"rank and world_size are integers: {rank=}, {world_size=}") from None
    if not 0 <= rank < world_size:
        raise LoaderError(f"rank is one of 0 ... world_size - 1: rank={rank}, world_size={world_size}")
    return rank, world_size


def check_rank(rank: int, world_size: int) -> None:
    """Whether what `own_rank()` once found still holds.

    Raises:
        LoaderError: torch.distributed was initialised meanwhile, with another rank or size.
    """
    if _initialized() and (rank, world_size) != (now := own_rank()):
        raise LoaderError(
            f"this loader was made as rank {rank} of {world_size}, and torch.distributed was then initialised as rank "
            f"{now[0]} of {now[1]}: make it afterwards, or give rank and world_size"
        )


def own_gpu() -> int:
    """The number of this process's GPU: LOCAL_RANK where torchrun sets it, else torch's current device.

    Where a launcher shows each process one GPU alone, that is number 0, whatever LOCAL_RANK is.

    Raises:
        DeviceError: LOCAL_RANK is not the number of a GPU.
        LoaderError: it is no number at all.
    """
    if "LOCAL_RANK" not in os.environ:
        return torch.cuda.current_device()
    local, count = _variable("LOCAL_RANK"), torch.cuda.device_count()
    if count == 1:
        return 0
    if not 0 <= local < count:
        raise DeviceError(
            f"LOCAL_RANK is {local}, but there are {count} GPUs: start one process per GPU, or give device="
        )
    return local


def _initialized() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _variable(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise LoaderError(f"the environment variable {name} is an integer, not {os.environ[name]!r}") from None
