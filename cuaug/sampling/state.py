"""Checks of a loader's `state_dict`: epoch, consumed position, and the identity of its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cuaug.errors import ArgumentError

__all__ = ["VERSION", "check"]

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
    if position > own["order_length"]:
        raise ArgumentError(f"state_dict['position'] must be at most {own['order_length']}, not {position}")
    return epoch, position


def _equal(theirs: Any, own: Any) -> bool:
    try:
        return bool(theirs == own)
    except (ValueError, RuntimeError):  # arrays: a trainer may gather the states of all ranks
        return False
