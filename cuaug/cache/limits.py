"""How much a cache may hold, and how much it does."""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuaug.arguments import integer
from cuaug.forks import ForkSafeLock

__all__ = ["CacheStats", "available_memory", "no_longer_promised", "own_memory", "readable", "set_limit"]

# The bytes that caches were promised by default.
_promised: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_lock = ForkSafeLock()
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
        promised = sum(limit - other.stats.bytes for other, limit in _promised.items())
        cache.limit_bytes = max(1, (own_memory() - promised) // 2)
        _promised[cache] = cache.limit_bytes


def no_longer_promised(cache: Any) -> None:
    """The cache is closed."""
    with _lock:
        _promised.pop(cache, None)


def own_memory() -> int:
    """The `available_memory` divided by the processes that torchrun started on this machine."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return available_memory() // max(1, int(ranks) if ranks.isdecimal() else 1)


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still use: what the system has available, or its control group if that is less.

    Args:
        root: where `proc` and `sys` are looked for.
    """
    try:
        fields = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError):  # not Linux
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([available, *_left_in_groups(root)])


def _left_in_groups(root: Path) -> list[int]:
    """What the memory limits of this process's control group, and of those around it, of either version, leave.

    Files' pages that nobody has used lately are as good as free: the system gives them up first.
    """
    try:
        groups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    left = []
    for _, controllers, path in groups:
        if controllers == "":
            top, limit, used, idle = root / "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            limit, used, idle = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        inner = Path(path.strip("/"))
        for group in (inner, *inner.parents):  # in a container, only the outermost may be visible
            most = _number(top / group / limit)
            if most is not None:  # not "max"
                in_use = (_number(top / group / used) or 0) - (_number(top / group / "memory.stat", idle) or 0)
                left.append(max(0, most - max(0, in_use)))
    return left


def _number(path: Path, name: str = "") -> int | None:
    """The number in a file, or in the line of it that begins with a name; None where there is none."""
    try:
        text = path.read_text()
    except OSError:
        return None
    texts = [line.removeprefix(name).strip() for line in text.splitlines() if line.split(" ")[0] == name or not name]
    return int(texts[0]) if texts and texts[0].isdecimal() else None
