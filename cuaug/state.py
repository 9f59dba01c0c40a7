"""A loader's state: how much of which epoch has been consumed, and of what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuaug.errors import LoaderError

__all__ = ["VERSION", "check"]

VERSION = 1

_MEANING = {
    "version": "version of the state",
    "seed": "seed",
    "source_length": "length of the source",
    "source": "fingerprint of the source (its names and labels)",
    "order": "order of the samples",
    "order_length": "number of samples in an epoch",
    "order_checksum": "what the sampler gives for that epoch",
}


def check(state: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[int, int]:
    """(epoch, position) of a state, once it is known to be of the same seed, samples and order as `own`.

    What one of the two does not know, None, is not compared.

    Raises:
        LoaderError: it is not a loader's state, or of another one; it says what differs.
    """
    missing = [name for name in ("epoch", "position", *_MEANING) if name not in state]
    if missing:
        raise LoaderError(f"not a state of a Loader: it has no {', '.join(map(repr, missing))}")
    differ = [
        f"{meaning}: {state[name]!r} in the state, {own[name]!r} here"
        for name, meaning in _MEANING.items()
        if state[name] != own[name] and state[name] is not None and own[name] is not None
    ]
    if differ:
        raise LoaderError(f"the state does not belong to this loader; {'; '.join(differ)}")
    epoch, position = state["epoch"], state["position"]
    if not (
        isinstance(epoch, int) and isinstance(position, int) and epoch >= 0 and 0 <= position <= own["order_length"]
    ):
        raise LoaderError(
            f"a state's epoch is 0 or more and its position 0 ... {own['order_length']}, "
            f"not epoch {epoch!r} and position {position!r}"
        )
    return epoch, position
