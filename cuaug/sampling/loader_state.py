"""Where a loader stands: the next epoch, the position in it, and the state that resumes from there, checked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

from cuaug._runtime.arguments import integer
from cuaug._runtime.ranks import SharedSeed, are_connected
from cuaug.errors import ArgumentError, LoaderError
from cuaug.sampling.batch_samplers import BatchOrder
from cuaug.sampling.epoch import Epoch
from cuaug.sampling.orders import Order, order_of

VERSION = 2

_MEANING = {
    "seed": "seed",
    "source_length": "length of the source",
    "source": "fingerprint of the source (its names and labels)",
    "order": "order of the samples",
    "order_length": "number of samples in an epoch",
    "order_checksum": "checksum of that epoch's order",
}
# None is not compared: a source may lack a fingerprint, and between two epochs there is no order.
_OPTIONAL = ("source", "order_checksum")


def check(state: Any, identity: Callable[[int, int], Mapping[str, Any]]) -> tuple[int, int]:
    """(epoch, position) of a state, checked against `identity(epoch, position)` of the loader.

    Raises:
        LoaderError: not a loader's state, or the state of another data set, order or seed. It names the difference.
    """
    if not isinstance(state, Mapping):
        raise ArgumentError(f"state_dict is not a Loader's state: {state!r:.100}")
    missing = [name for name in ("version", "epoch", "position", *_MEANING) if name not in state]
    if missing:
        raise ArgumentError(f"state_dict is not a Loader's state: it lacks {', '.join(map(repr, missing))}")
    if not _equal(state["version"], VERSION):
        raise ArgumentError(f"state_dict has version {state['version']!r}; this cuaug reads version {VERSION}")
    for name in ("epoch", "position"):
        if type(state[name]) is not int or state[name] < 0:
            raise ArgumentError(f"state_dict[{name!r}] must be an integer of at least 0, not {state[name]!r}")
    epoch, position = state["epoch"], state["position"]
    own = identity(epoch, position)
    differences = [
        f"{meaning}: {state[name]!r} in the state, {own[name]!r} here"
        for name, meaning in _MEANING.items()
        if not _equal(state[name], own[name]) and not (name in _OPTIONAL and (state[name] is None or own[name] is None))
    ]
    if differences:
        raise ArgumentError(f"state_dict does not belong to this loader; {'; '.join(differences)}")
    if position and position > own["order_length"]:
        raise ArgumentError(f"state_dict['position'] must be at most {own['order_length']}, not {position}")
    return epoch, position


def _equal(theirs: Any, own: Any) -> bool:
    try:
        return bool(theirs == own)
    except (ValueError, RuntimeError):  # arrays: a trainer may gather the states of all ranks
        return False


log = logging.getLogger("cuaug")

_SEEDS = 1 << 53  # every program reads such a number from JSON exactly


def open_seed(seed: int | None, rank: int, world_size: int) -> int | SharedSeed:
    """The given seed, or for None a number from torch's default generator, that of rank 0 on all ranks.

    Raises:
        ArgumentError: not an integer; or None, where torch.distributed does not connect the ranks.
    """
    if seed is not None:
        return integer("seed", seed)
    if world_size > 1 and not are_connected(rank, world_size):
        raise ArgumentError(
            f"seed must be given to each of {world_size} ranks that torch.distributed does not connect, and be equal "
            "on all: pass seed=, or call torch.distributed.init_process_group before making the Loader"
        )
    return SharedSeed(int(torch.randint(_SEEDS, (), dtype=torch.int64, device="cpu")), rank, world_size)


class Progress:
    """The next epoch, the position in it, and the samples that the loop has received.

    Args:
        sampler: the order of each epoch.
        source_length: number of samples in the source.
        seed: the loader's seed, or one that is drawn.
        fingerprint: the source's method; called once. None: it has none.

    Attributes:
        epoch: number of the next epoch.
        start: position in that epoch's order where the next iteration begins.
        consumed: (epoch, position in its order that all ranks together have reached).
    """

    def __init__(
        self, sampler: Order, source_length: int, seed: int | SharedSeed, fingerprint: Callable[[], str | None] | None
    ) -> None:
        self.sampler, self._source_length = sampler, source_length
        self._drawn = None if isinstance(seed, int) else seed
        self._seed = seed if isinstance(seed, int) else None
        self._make_fingerprint = fingerprint
        self._fingerprint: str | None = ""  # not made yet
        self._order: Epoch | None = None
        self._peeked: Epoch | None = None
        self.go_to(0, 0)

    @property
    def seed(self) -> int:
        """The seed; on other ranks than 0, a drawn one is waited for."""
        if self._seed is None:
            assert self._drawn is not None
            self._seed = self._drawn.get()
            log.info("seed=None: the seed is %d, from torch's generator", self._seed)
        return self._seed

    @property
    def known_seed(self) -> int | None:
        """The seed, if it is known without waiting."""
        return self._seed

    @property
    def fingerprint(self) -> str | None:
        """The source's fingerprint; None: it has none."""
        if self._fingerprint == "":
            self._fingerprint = None if self._make_fingerprint is None else self._make_fingerprint()
        return self._fingerprint

    def go_to(self, epoch: int, start: int) -> None:
        """Sets where the next iteration begins."""
        self.epoch, self.start, self.consumed = epoch, start, (epoch, start)

    def set_epoch(self, epoch: int) -> None:
        """Goes to an epoch: to its beginning, or to where a loaded state of this epoch stopped."""
        epoch = integer("epoch", epoch, 0)
        self.go_to(epoch, self.start if epoch == self.epoch else 0)

    def begin(self) -> tuple[Epoch, int]:
        """Begins the next iteration: its epoch, and the position where it starts."""
        number, start, epoch = self.epoch, self.start, self.next_epoch()
        self.go_to(number + 1, 0)
        self.consumed, self._order, self._peeked = (number, start), epoch, None
        return epoch, start

    def next_epoch(self) -> Epoch:
        """The epoch of the next iteration; its order stays the same until that iteration begins."""
        if self._peeked is None or (self._peeked.number, self._peeked.seed) != (self.epoch, self.seed):
            if not self.start:
                self._order = None  # a sampler may return another order for the same epoch
            self._peeked = self._order = self.order_of(self.epoch)
        return self._peeked

    def advance(self, epoch: Epoch, position: int) -> None:
        """Notes that the loop has received an epoch up to this position."""
        self.consumed, self._order = (epoch.number, position), epoch

    def finish(self, epoch: Epoch) -> None:
        """Notes that the loop has received an epoch to its end."""
        self.consumed = epoch.number + 1, 0

    def order_of(self, number: int) -> Epoch:
        """The order and the random keys of an epoch."""
        if self._order is not None and (self._order.number, self._order.seed) == (number, self.seed):
            return self._order
        order = order_of(self.sampler, self.seed, number, self._source_length)
        batches = self.sampler if isinstance(self.sampler, BatchOrder) else None
        ends, buckets = (None, None) if batches is None else (batches.ends, batches.buckets)
        return Epoch(number, self.seed, order, repeats=self.sampler.repeats, ends=ends, buckets=buckets)

    def describe(self) -> dict[str, Any]:
        """Describes the next iteration's samples for readers of messages; equal on all ranks."""
        epoch = self.next_epoch()
        return {
            "the epoch": epoch.number,
            "the position in it": self.start,
            "the end of the last iteration (epoch, position)": self.consumed,
            "seed": self.seed,
            "the number of samples": self._source_length,
            "the fingerprint of the source": self.fingerprint,
            "the checksum of the order": epoch.checksum,
            "the checksum of the batches": epoch.batches_checksum,
        }

    def state_dict(self) -> dict[str, Any]:
        epoch, position = self.consumed
        return {"epoch": epoch, "position": position, **self._identity(epoch, position)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes to a state's position; a drawn seed becomes that of the state.

        Raises:
            LoaderError: not a loader's state, or the state of another data set, order or seed. It names the difference.
        """
        seed = self._seed
        if self._drawn is not None and isinstance(state_dict, Mapping) and type(state_dict.get("seed")) is int:
            self._seed = state_dict["seed"]
        try:
            self.go_to(*check(state_dict, self._identity))
            self._peeked = None
        except LoaderError:
            self._seed, self._order = seed, None  # ask the sampler again: the user may restore its generator
            raise

    def _identity(self, epoch: int, position: int) -> dict[str, Any]:
        """The fields of a state that must equal those of the loader that resumes from it."""
        checksum, length = None, None if isinstance(self.sampler, BatchOrder) else len(self.sampler)
        if position:
            self._order = self.order_of(epoch)
            checksum, length = self._order.checksum, len(self._order)
        return {
            "version": VERSION,
            "seed": self.seed,
            "source_length": self._source_length,
            "source": self.fingerprint,
            "order": type(self.sampler).__name__,
            "order_length": length,
            "order_checksum": checksum,
        }
