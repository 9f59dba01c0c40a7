"""How much a cache may hold, and how much it does."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuaug.errors import LoaderError

__all__ = ["CacheStats", "available_memory", "default_limit_bytes", "positive", "readable"]

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


def positive(name: str, value: Any) -> int:
    """An integer of at least 1, of any kind but a bool."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise LoaderError(f"{name} is an integer of at least 1, not {value!r}")
    return number


def default_limit_bytes() -> int:
    """Half of the memory that is available now, shared by the processes that torchrun started on this machine."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, available_memory() // 2 // max(1, int(ranks) if ranks.isdecimal() else 1))


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still use: what the system has available, or its control group's limit if less.

    Args:
        root: where `proc` and `sys` are looked for.
    """
    try:
        fields = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError):  # not Linux
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([available, *_group_limits(root)])


def _group_limits(root: Path) -> list[int]:
    """The memory limits of this process's control group and of those around it, of either version; may be none."""
    try:
        groups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    limits = []
    for _, controllers, path in groups:
        if controllers == "":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        inner = Path(path.strip("/"))
        for group in (inner, *inner.parents):  # in a container, only the outermost may be visible
            try:
                text = (top / group / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():  # not "max"
                limits.append(int(text))
    return limits
