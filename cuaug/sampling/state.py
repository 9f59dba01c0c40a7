"""A loader's state: how much of which epoch has been consumed, and of what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cuaug.errors import LoaderError

__all__ = ["VERSION", "check"]

VERSION = 1

_MEANING = {
    "seed": "seed",
    "source_length": "length of the source",
    "source": "fingerprint of the source (its names and labels)",
    "order": "order of the samples",
    "order_length": "number of samples in an epoch",
    "order_checksum": "checksum of that epoch's order",
}
# Not every source has a fingerprint, and between two epochs there is no order: None, which is not compared. States of
# loaders without a sampler once had no checksum.
_MAY_BE_UNKNOWN = ("source", "order_checksum")


def check(state: Any, identity: Callable[[int, int], Mapping[str, Any]]) -> tuple[int, int]:
    """(epoch, position) of a state, once it is known to have the seed, samples and order of identity(epoch, position).

    Raises:
        LoaderError: it is not a loader's state, or of another one; it says what differs.
    """
    if not isinstance(state, Mapping):
        raise LoaderError(f"not a state of a Loader: {state!r:.100}")
    missing = [name for name in ("version", "epoch", "position", *_MEANING) if name not in state]
    if missing:
        raise LoaderError(f"not a state of a Loader: it has no {', '.join(map(repr, missing))}")
    if not _same(state["version"], VERSION):
        raise LoaderError(f"a state of version {state['version']!r}; this cuaug reads version {VERSION}")
    for name in ("epoch", "position"):
        if type(state[name]) is not int or state[name] < 0:
            raise LoaderError(f"a state's {name} is an integer of at least 0, not {state[name]!r}")
    epoch, position = state["epoch"], state["position"]
    own = identity(epoch, position)
    differ = [
        f"{meaning}: {state[name]!r} in the state, {own[name]!r} here"
        for name, meaning in _MEANING.items()
        if not _same(state[name], own[name])
        and not (name in _MAY_BE_UNKNOWN and (state[name] is None or own[name] is None))
    ]
    if differ:
        raise LoaderError(f"the state does not belong to this loader; {'; '.join(differ)}")
    if position > own["order_length"]:
        raise LoaderError(f"a state's position is at most {own['order_length']}, not {position}")
    return epoch, position


def _same(there: Any, here: Any) -> bool:
    try:
        return bool(there == here)
    except (ValueError, RuntimeError):  # of arrays, such as a trainer makes that gathers the states of all ranks
        return False
