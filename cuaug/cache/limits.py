"""How much a cache may hold, and how much it does."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from cuaug._runtime.cpu_limits import own_memory
from cuaug._runtime.fork import fork_safe_lock
from cuaug.arguments import integer

__all__ = ["CacheStats", "no_longer_promised", "readable", "set_limit"]

# The bytes that caches were promised by default.
_promised: dict[weakref.ref[Any], int] = {}
_lock = fork_safe_lock()
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True)
class CacheStats:
    """What a cache holds.

    Attributes:
        samples: how many samples.
        bytes: what they take of the limit.
        limit_bytes: the most that they may take.
    """

    samples: int
    bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return f"{self.samples:,} samples, {readable(self.bytes)} of {readable(self.limit_bytes)}"


def readable(size: int) -> str:
    """A number of bytes to three digits, in powers of 1000.

    >>> readable(139_300_000_000), readable(999_999), readable(12)
    ('139 GB', '1 MB', '12 bytes')
    """
    value, unit = float(size), 0
    while float(f"{value:.3g}") >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{float(f'{value:.3g}'):,g} {_UNITS[unit]}"


def set_limit(cache: Any, limit_bytes: int | None) -> None:
    """Sets a new cache's `limit_bytes`; None: to half of the memory that is available now.

    The processes that torchrun started on this machine share that, and what other caches of this process were promised
    in this way and have not filled yet is not available.

    Raises:
        LoaderError: a limit that is no positive integer.
    """
    if limit_bytes is not None:
        cache.limit_bytes = integer("limit_bytes", limit_bytes, 1)
        return
    with _lock:
        others = [(other(), limit) for other, limit in _promised.copy().items()]
        promised = sum(limit - other.stats.bytes for other, limit in others if other is not None)
        cache.limit_bytes = max(1, (own_memory() - promised) // 2)
        _promised[weakref.ref(cache, _promised.pop)] = cache.limit_bytes


def no_longer_promised(cache: Any) -> None:
    """The cache is closed."""
    with _lock:
        _promised.pop(weakref.ref(cache), None)
