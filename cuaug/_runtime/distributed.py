"""Rank, world size and GPU of this process."""

from __future__ import annotations

import operator
import os

import torch
import torch.distributed

from cuaug.errors import ArgumentError, DeviceError

__all__ = ["check_rank", "group_rank", "own_gpu", "own_rank"]


def own_rank(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """(rank, world size): the arguments, else torch.distributed, else torchrun, else (0, 1).

    Raises:
        LoaderError: one is given without the other, not an integer, or the rank is not in 0 ... world_size - 1.
    """
    if (rank is None) != (world_size is None):
        raise ArgumentError(f"rank and world_size belong together: rank={rank}, world_size={world_size}")
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
        raise ArgumentError(f"rank and world_size are integers: {rank=}, {world_size=}") from None
    if not 0 <= rank < world_size:
        raise ArgumentError(f"rank must be one of 0 ... world_size - 1: rank={rank}, world_size={world_size}")
    return rank, world_size


def check_rank(rank: int, world_size: int) -> None:
    """Checks that an earlier result of `own_rank()` still holds.

    Raises:
        LoaderError: torch.distributed was initialized since, with another rank or size.
    """
    if _initialized() and (rank, world_size) != (current := own_rank()):
        raise ArgumentError(
            f"rank is {rank} of {world_size} for this Loader, but torch.distributed was initialized later with rank "
            f"{current[0]} of {current[1]}: make the Loader afterwards, or pass rank and world_size"
        )


def group_rank() -> tuple[int, int] | None:
    """(rank, world size) in torch.distributed; None where it is not initialized."""
    return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if _initialized() else None


def own_gpu() -> int:
    """Index of this process's GPU: torchrun's LOCAL_RANK, else torch's current device.

    It is 0 where the process sees one GPU only.

    Raises:
        DeviceError: LOCAL_RANK is not the index of a GPU.
        LoaderError: LOCAL_RANK is not a number.
    """
    if "LOCAL_RANK" not in os.environ:
        return torch.cuda.current_device()
    local, count = _variable("LOCAL_RANK"), torch.cuda.device_count()
    if count == 1:
        return 0
    if not 0 <= local < count:
        raise DeviceError(
            f"LOCAL_RANK is {local}, but there are {count} GPUs: start one process per GPU, or pass device="
        )
    return local


def _initialized() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _variable(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise ArgumentError(f"the environment variable {name} must be an integer, not {os.environ[name]!r}") from None
