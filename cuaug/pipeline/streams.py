"""Sources without samples by index: the options of a Loader that they exclude, and the begin of an iteration."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from cuaug.errors import ArgumentError
from cuaug.sampling import Epoch, Steps
from cuaug.sources import Source, optional_method
from cuaug.transforms import Compose

__all__ = ["Stream", "open_stream"]


class _Options(Protocol):
    """The loader's attributes that are checked."""

    source: Source
    transforms: Compose
    last_batch: str
    on_error: Any


def open_stream(options: _Options, *, has_order: bool, has_cache: bool) -> Stream | None:
    """The source's stream; None for a source with samples by index.

    Args:
        has_order: `shuffle=True` or a sampler is given.

    Raises:
        ArgumentError: an option reads other samples than the next ones of the stream.
    """
    start = optional_method(options.source, "start_stream")
    if start is None:
        return None
    refused = {
        "shuffle and sampler": (has_order, "use FromIterable(..., shuffle_buffer=10_000)"),
        "last_batch='pad'": (options.last_batch == "pad", "use 'drop' or 'partial'"),
        "cache": (has_cache, "leave it out"),
        "on_error='replace'": (options.on_error == "replace", "use 'skip'"),
        "transforms that mix samples": (
            options.transforms.partners > 0,
            "apply them to finished batches, as in chain(images, labels)",
        ),
    }
    for name, (is_given, remedy) in refused.items():
        if is_given:
            raise ArgumentError(f"{name}: needs samples by index, which {options.source!r} does not have: {remedy}")
    return Stream(start)


class Stream:
    """Begins the iterations of a source without samples by index.

    Args:
        start: the source's `start_stream`.
    """

    def __init__(self, start: Any) -> None:
        self._start = start

    def start(self, epoch: Epoch, steps: Steps) -> None:
        """Begins to read the samples of these steps of a rank."""
        positions = [np.empty(0, np.int64), *(rank_slice.positions for rank_slice in steps)]
        self._start(epoch.seed, epoch.number, epoch.indices[np.concatenate(positions)])
