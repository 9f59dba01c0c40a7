"""What this process may use of its machine: CPUs and memory. Control groups, as containers have them, set limits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["allowed_cpus", "available_memory", "local_ranks", "own_memory", "quota"]


def local_ranks() -> int:
    """How many processes torchrun started on this machine, which share it; 1 without torchrun."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(ranks)) if ranks.isdecimal() else 1


def allowed_cpus() -> tuple[int, str]:
    """How many CPUs this process may use, and what says so: its affinity, or its control group's quota."""
    if hasattr(os, "sched_getaffinity"):
        cpus = len(os.sched_getaffinity(0))
        because = "the CPUs that this process may use" if cpus < (os.cpu_count() or 1) else "the machine's CPUs"
    else:
        cpus, because = os.cpu_count() or 1, "the machine's CPUs"
    limit = quota()
    if limit is not None and limit < cpus:
        return max(1, round(limit)), f"the control group's quota of {limit:g} CPUs"
    return cpus, because


def quota(root: Path = Path("/")) -> float | None:
    """The CPUs' worth of time that this process's control groups grant, such as a container's limit; None: no limit.

    Args:
        root: where `proc` and `sys` are looked for.
    """
    limits: list[float] = []
    for group, version in _groups(root, "cpu"):
        names = ["cpu.max"] if version == 2 else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        words = " ".join(_text(group / name) for name in names).split()
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
            limits.append(int(words[0]) / int(words[1]))  # otherwise "max" or -1, and no limit
    return min(limits, default=None)


def own_memory() -> int:
    """The `available_memory` divided by the processes that torchrun started on this machine."""
    return available_memory() // local_ranks()


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still use: what the system has available, or its control groups if that is less.

    Args:
        root: where `proc` and `sys` are looked for.
    """
    try:
        fields = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError):  # not Linux
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([available, *_left_in_groups(root)])


def _left_in_groups(root: Path) -> Iterator[int]:
    """What the memory limits of the control groups leave.

    Files' pages that nobody has used lately are as good as free: the system gives them up first.
    """
    for group, version in _groups(root, "memory"):
        if version == 2:
            limit, used, idle = "memory.max", "memory.current", "inactive_file"
        else:
            limit, used, idle = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        most = _number(group / limit)
        if most is not None:  # not "max"
            in_use = (_number(group / used) or 0) - (_number(group / "memory.stat", idle) or 0)
            yield max(0, most - max(0, in_use))


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """This process's control group and those around it, each of which may set a limit: (folder, version of the system).

    In a container its own group is the root, and of those around it only that may be visible.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, version = root / "sys/fs/cgroup", 2
        elif controller in controllers.split(","):
            top, version = root / "sys/fs/cgroup" / controllers, 1
        else:
            continue
        inner = Path(path.strip("/"))
        for group in (inner, *inner.parents):
            yield top / group, version


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # no such group here: the system is another, or the path is the host's and not the container's
        return ""


def _number(path: Path, name: str = "") -> int | None:
    """The number in a file, or in the line of it that begins with a name; None where there is none."""
    lines = [line for line in _text(path).splitlines() if line.split(" ")[0] == name or not name]
    text = lines[0].removeprefix(name).strip() if lines else ""
    return int(text) if text.isdecimal() else None
