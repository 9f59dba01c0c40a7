"""CPUs and memory that this process may use, and the threads that share a batch's images outside a loader."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import torch


def local_ranks() -> int:
    """Number of processes that torchrun started on this machine; 1 without torchrun."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(ranks)) if ranks.isdecimal() else 1


def allowed_cpus() -> tuple[int, str]:
    """Number of CPUs this process may use, and the limit's name: affinity or control group quota."""
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
    """CPU quota of this process's control groups, in CPUs; None: no limit.

    Args:
        root: the folder of `proc` and `sys`.
    """
    limits: list[float] = []
    for group, version in _groups(root, "cpu"):
        names = ["cpu.max"] if version == 2 else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        words = " ".join(_text(group / name) for name in names).split()
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
            limits.append(int(words[0]) / int(words[1]))  # else "max" or -1: no limit
    return min(limits, default=None)


def own_memory() -> int:
    """`available_memory` divided by `local_ranks`, in bytes."""
    return available_memory() // local_ranks()


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still allocate: the smaller of system memory and control group limits.

    Args:
        root: the folder of `proc` and `sys`.
    """
    try:
        fields = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError):  # not Linux
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([available, *_free_in_groups(root)])


def _free_in_groups(root: Path) -> Iterator[int]:
    """Free bytes within each memory limit. Inactive file pages count as free: the system evicts them first."""
    for group, version in _groups(root, "memory"):
        if version == 2:
            limit_file, used_file, inactive = "memory.max", "memory.current", "inactive_file"
        else:
            limit_file, used_file, inactive = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        limit = _number(group / limit_file)
        if limit is not None:  # not "max"
            used = (_number(group / used_file) or 0) - (_number(group / "memory.stat", inactive) or 0)
            yield max(0, limit - max(0, used))


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """(folder, cgroup version) of this process's control group and its parents; each may set a limit.

    In a container the parents may be invisible, apart from the root.
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
    except OSError:  # no such group: another system, or the path is valid outside the container only
        return ""


def _number(path: Path, name: str = "") -> int | None:
    """The number in a file, or in its line that starts with `name`; None if there is none."""
    lines = [line for line in _text(path).splitlines() if line.split(" ")[0] == name or not name]
    text = lines[0].removeprefix(name).strip() if lines else ""
    return int(text) if text.isdecimal() else None


_thread = threading.local()

# Starting and ending a thread takes about 100 us; reading and writing this much memory takes longer.
_BYTES_PER_THREAD = 1 << 21


def disable_intraop_threads() -> None:
    """Makes `threads_for` return 1 on the calling thread: a loader's thread pool uses the cores already."""
    _thread.single = True


def threads_for(size: int) -> int:
    """Threads for reading and writing `size` bytes: torch's number, fewer for little work.

    It is 1 in a DataLoader's worker, whose torch has one thread, and in a loader's thread.
    """
    return 1 if hasattr(_thread, "single") else max(1, min(torch.get_num_threads(), size // _BYTES_PER_THREAD))
