"""Rank, world size and GPU of this process; the ranks of torch.distributed agree on their samples.

They agree through torch's key-value store. It works with every backend, also where the group has NCCL only, and a wait
can end: a collective could not. Each rank writes a description of its next samples; rank 0 compares them, and writes
the verdict for all.

    cuaug/<start>/<loader>/<iteration>/<rank>    a rank's description, as JSON
    cuaug/<start>/<loader>/<iteration>/verdict   rank 0's: empty, or why the iteration must not begin
    cuaug/<start>/<loader>/<iteration>/failed    why a rank gave up waiting
    cuaug/<start>/<loader>/<iteration>/left      a rank left the iteration before its end
    cuaug/<start>/<loader>/<iteration>/ended     rank 0 has reached its end
"""

from __future__ import annotations

import contextlib
import json
import logging
import operator
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed

from cuaug.errors import ArgumentError, DeviceError, RankError


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


log = logging.getLogger("cuaug")

#: Seconds for which a rank waits for the others.
WAIT_SECONDS = 10.0
#: Seconds for which the others wait for rank 0 between two epochs: it may be saving a checkpoint.
CHECKPOINT_SECONDS = 600.0
_POLL_SECONDS = 0.02
_REMEDY = (
    "All ranks iterate together. To look at a batch on one rank, use loader.peek(); to load on one rank alone, make "
    "the Loader with rank=0, world_size=1; if a rank only takes longer, call torch.distributed.barrier() before "
    "the loop"
)


class _Store:
    """The store of the default group, while that group exists."""

    def __init__(self, store: Any, rank: int) -> None:
        self.store = store
        self.numbers: Counter[str] = Counter()  # of loaders and seeds, in the order in which each rank makes them
        # A store may outlive its group: torchrun's does. Each rank counts its groups.
        self._prefix = f"cuaug/{store.add(f'cuaug/starts/{rank}', 1)}"

    def next_name(self, kind: str) -> str:
        self.numbers[kind] += 1
        return f"{self._prefix}/{kind}{self.numbers[kind]}"

    def has(self, *keys: str) -> bool:
        return bool(self.store.check(list(keys)))

    def get(self, key: str) -> str:
        return self.store.get(key).decode()

    def wait_for(self, key: str, seconds: float) -> bool:
        """Whether `key` was written within this time."""
        end = time.monotonic() + seconds
        while not self.has(key):
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_SECONDS)
        return True


_current: _Store | None = None
_warned: list[bool] = []  # that there is no store


def _store_of(rank: int, world_size: int) -> _Store | None:
    """The store that these ranks share; None where this rank and size are not those of torch.distributed."""
    global _current
    if world_size == 1 or group_rank() != (rank, world_size):
        return None
    store = torch.distributed.distributed_c10d._get_default_store()
    if store is None:  # of MPI
        if not _warned:
            _warned.append(True)
            log.warning("torch.distributed has no store with this backend: the ranks cannot compare what they load")
        return None
    if _current is None or _current.store is not store:
        _current = _Store(store, rank)
    return _current


def are_connected(rank: int, world_size: int) -> bool:
    """Whether torch.distributed connects these ranks."""
    return _store_of(rank, world_size) is not None


class SharedSeed:
    """Rank 0's seed, on all ranks.

    Args:
        own: this rank's own draw, which rank 0 sends to the others.
    """

    def __init__(self, own: int, rank: int, world_size: int) -> None:
        self._own = own
        self._store = _store_of(rank, world_size)
        if self._store is not None:
            self._key = self._store.next_name("seed")
            if rank == 0:
                self._store.store.set(self._key, str(own))
                self._store = None

    def get(self) -> int:
        """Waits for rank 0's seed.

        Raises:
            RankError: rank 0 has made no such loader within 10 seconds.
        """
        if self._store is not None:
            if not self._store.wait_for(self._key, WAIT_SECONDS):
                raise RankError(
                    f"seed=None is the seed of rank 0, which has made no such Loader within {WAIT_SECONDS:.0f} s: make "
                    "the same loaders on all ranks, or pass seed="
                )
            self._own, self._store = int(self._store.get(self._key)), None
        return self._own


class RankAgreement:
    """Compares the ranks' descriptions at the beginning of each iteration of a loader.

    It does nothing where the loader's rank and world size are not those of torch.distributed.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self._store: _Store | None = None
        self._name = ""
        self._count = 0  # iterations so far
        self._is_at_end = False  # the last iteration has reached its end

    def begin(self, describe: Callable[[], Mapping[str, Any]]) -> int:
        """Waits until all ranks have begun an iteration, and compares; returns the iteration's number.

        Args:
            describe: returns the properties that must be equal on all ranks, for people to read.

        Raises:
            RankError: a property differs between ranks, or a rank does not begin within 10 seconds.
        """
        number, self._count = self._count, self._count + 1
        was_at_end, self._is_at_end = self._is_at_end, False
        store = _store_of(self._rank, self._world_size)
        if store is None:
            return number
        if store is not self._store:
            self._store, self._name, self._count, number = store, store.next_name("loader"), 1, 0
        key, loading = f"{self._name}/{number}", describe()
        store.store.set(f"{key}/{self._rank}", json.dumps(dict(loading)))
        if self._rank == 0:
            store.store.set(f"{key}/verdict", self._judge(store, key, loading))
        else:
            self._wait_for_verdict(store, key, number, was_at_end)
        if verdict := store.get(f"{key}/verdict"):
            raise RankError(verdict)
        if number:  # every rank has passed it
            store.store.delete_key(f"{self._name}/{number - 1}/{self._rank}")
        return number

    def end(self, number: int) -> None:
        """Notes that an iteration has reached its end.

        Raises:
            RankError: another rank has left it before.
        """
        self._is_at_end = True
        if (store := self._current_store()) is None:
            return
        key = f"{self._name}/{number}"
        if self._rank == 0:
            store.store.set(f"{key}/ended", "")
        if store.has(f"{key}/left"):
            message = f"{store.get(f'{key}/left')}, but rank {self._rank} has reached its end. {_REMEDY}"
            store.store.set(f"{self._name}/{number + 1}/failed", message)
            raise RankError(message)

    def leave(self, number: int, where: str, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Notes that the loop has left an iteration before its end; `where` says how far it came.

        At the interpreter's exit it does nothing, and needs no global of this module.
        """
        if self._store is None or is_finalizing() or (store := self._current_store()) is None:
            return
        with contextlib.suppress(RuntimeError):  # the group is ending, and nobody is left to read it
            store.store.set(f"{self._name}/{number}/left", f"rank {self._rank} has left an iteration at {where}")

    def _current_store(self) -> _Store | None:
        return (
            self._store if self._store is not None and self._store is _store_of(self._rank, self._world_size) else None
        )

    def _judge(self, store: _Store, key: str, own: Mapping[str, Any]) -> str:
        """On rank 0: empty, or the reason why the iteration must not begin."""
        keys = [f"{key}/{rank}" for rank in range(self._world_size)]
        end = time.monotonic() + WAIT_SECONDS
        while not store.has(*keys):
            if store.has(f"{key}/failed"):
                return store.get(f"{key}/failed")
            if time.monotonic() > end:
                missing = [str(rank) for rank, name in enumerate(keys) if not store.has(name)]
                return _not_begun(f"rank{'s' * (len(missing) > 1)} {', '.join(missing[:8])}")
            time.sleep(_POLL_SECONDS)
        if store.has(f"{key}/failed"):
            return store.get(f"{key}/failed")
        differences = []
        for rank, text in enumerate(store.store.multi_get(keys)):
            theirs = json.loads(text)
            differences += [
                f"{name} is {value!r} on rank 0, {theirs.get(name)!r} on rank {rank}"
                for name, value in json.loads(json.dumps(dict(own))).items()
                if theirs.get(name) != value
            ]
        if not differences:
            return ""
        more = f", and {len(differences) - 6} more" if len(differences) > 6 else ""
        return f"the ranks are about to load different data: {'; '.join(differences[:6])}{more}. {_REMEDY}"

    def _wait_for_verdict(self, store: _Store, key: str, number: int, was_at_end: bool) -> None:
        """On the other ranks: raises a RankError, which also rank 0 will raise, if no verdict comes."""
        verdict = f"{key}/verdict"
        if store.wait_for(verdict, WAIT_SECONDS):
            return
        if store.has(f"{key}/0"):  # it came later, and waits for others: its verdict comes within its own time
            if store.wait_for(verdict, WAIT_SECONDS + 1.0):
                return
        elif was_at_end and store.has(f"{self._name}/{number - 1}/ended"):
            log.warning("rank %d waits for rank 0, which has not begun the next epoch yet", self._rank)
            if store.wait_for(verdict, CHECKPOINT_SECONDS):
                return
        message = _not_begun("rank 0")
        store.store.set(f"{key}/failed", f"rank {self._rank} has stopped: {message}")
        raise RankError(message)


def _not_begun(ranks: str) -> str:
    return f"{ranks} did not begin this iteration within {WAIT_SECONDS:.0f} s. {_REMEDY}"
