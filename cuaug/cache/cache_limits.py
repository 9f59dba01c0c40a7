"""Limits of caches, the size of cached images, and checks that a cache belongs to a dataset."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cuaug._runtime.arguments import integer, limit
from cuaug._runtime.cpus import own_memory
from cuaug._runtime.fork import fork_safe_lock

# Default limits of the open caches, in bytes: memory that others must not claim.
_reserved: dict[weakref.ref[Any], int] = {}
_lock = fork_safe_lock()
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True)
class CacheStats:
    """Fill level of a cache.

    Attributes:
        samples: number of samples.
        bytes: bytes that count toward the limit.
        limit_bytes: the limit.
    """

    samples: int
    bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return f"{self.samples:,} samples, {format_bytes(self.bytes)} of {format_bytes(self.limit_bytes)}"


def format_bytes(size: int) -> str:
    """Formats a number of bytes with three digits, in powers of 1000.

    >>> format_bytes(139_300_000_000), format_bytes(999_999), format_bytes(12)
    ('139 GB', '1 MB', '12 bytes')
    """
    value, unit = float(size), 0
    while float(f"{value:.3g}") >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{float(f'{value:.3g}'):,g} {_UNITS[unit]}"


def set_limit(cache: Any, limit_bytes: int | None) -> None:
    """Sets a new cache's `limit_bytes`; None: half of the memory available now.

    The processes that torchrun started on this machine share the available memory. Memory that other caches of this
    process reserved by default and have not filled yet is unavailable.

    Raises:
        LoaderError: the limit is no positive integer.
    """
    if limit_bytes is not None:
        cache.limit_bytes = limit("limit_bytes", limit_bytes, 1)
        return
    with _lock:
        others = [(other(), limit) for other, limit in _reserved.copy().items()]
        unfilled = sum(limit - other.stats.bytes for other, limit in others if other is not None)
        cache.limit_bytes = max(1, (own_memory() - unfilled) // 2)
        _reserved[weakref.ref(cache, _reserved.pop)] = cache.limit_bytes


def release_reservation(cache: Any) -> None:
    """Makes a closed cache's memory available to others."""
    with _lock:
        _reserved.pop(weakref.ref(cache), None)


def identity(count: int, contents: Mapping[str, Any]) -> dict[str, Any]:
    """The values that must agree each time a cache is opened, as JSON returns them."""
    return json.loads(json.dumps({"samples": integer("count", count, 1), **contents}))


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Describes how a cache's identity differs from the expected one; empty if it does not.

    >>> differences({"samples": 10, "short_side": 256}, {"samples": 10, "short_side": 224})
    'short_side is 256 there and 224 here'
    """
    names = [name for name in {**here, **there} if there.get(name) != here.get(name)]
    return ", ".join(f"{name} is {there.get(name)!r} there and {here.get(name)!r} here" for name in names)


def shrunken_size(height: int, width: int, short_side: int | None) -> tuple[int, int]:
    """(height, width) in pixels at which an image is cached: short side at most `short_side`, never upscaled.

    It is the size that `Resize(short_side)` gives, if smaller. None: the full size.

    >>> shrunken_size(375, 500, 256), shrunken_size(200, 1000, 256)
    ((256, 341), (200, 1000))
    """
    shorter = min(height, width)
    if short_side is None or shorter <= short_side:
        return height, width
    if height == shorter:
        return short_side, short_side * width // height
    return short_side * height // width, short_side
