"""How many threads, and how many batches ahead: what is chosen where the user leaves it open, and why."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SAMPLES_PER_TASK", "Setup", "allowed_cpus", "choose", "quota", "samples_per_read"]

# Samples that one task of a worker handles: enough to make the queue's cost vanish, few enough to share a batch evenly.
SAMPLES_PER_TASK = 8
# ... that a task reads: a task costs 50 us of Python, during which no other thread runs.
_MOST_SAMPLES_PER_READ = 64
# On a GPU, threads read and parse: they hold the GIL for most of what is theirs to do, and more of them only contend.
_MOST_THREADS_FOR_A_GPU = 16


@dataclass(frozen=True)
class Setup:
    """How a loader runs.

    Attributes:
        device: "cpu" or "cuda".
        threads: workers, which read, parse and plan; on the CPU they also decode and augment.
        prefetch: batches under way ahead of the one that the consumer has.
        threads_because, prefetch_because: why so many.
        load_hint, decode_threads: how a GPU shares its JPEGs out, as `Loader` says; None on the CPU.
        split_because: why so: "as given", "the default", "chosen by trying" or "still trying".
    """

    device: str
    threads: int
    prefetch: int
    threads_because: str = "as given"
    prefetch_because: str = "as given"
    load_hint: float | None = None
    decode_threads: int | None = None
    split_because: str = ""

    def __str__(self) -> str:
        split = ""
        if self.load_hint is not None:
            split = f", load_hint={self.load_hint:g}, decode_threads={self.decode_threads} ({self.split_because})"
        return (
            f"device={self.device!r}, threads={self.threads} ({self.threads_because}), "
            f"prefetch={self.prefetch} ({self.prefetch_because}){split}"
        )


def samples_per_read(count: int, threads: int) -> int:
    """How many of a batch's samples a task reads: within bounds, so few that every thread has a task of the batch."""
    return min(max(SAMPLES_PER_TASK, -(-count // threads)), _MOST_SAMPLES_PER_READ)


def choose(device: str, batch_size: int, threads: int | None, prefetch: int | None) -> Setup:
    """The setup of a loader on "cpu" or "cuda"; what is None is chosen."""
    threads_because = prefetch_because = "as given"
    if threads is None:
        threads, threads_because = _threads(device)
    if prefetch is None:
        prefetch, prefetch_because = _prefetch(batch_size, threads)
    return Setup(device, threads, prefetch, threads_because, prefetch_because)


def _threads(device: str) -> tuple[int, str]:
    """One for each CPU that this process may use, shared with the other ranks of the machine."""
    cpus, because = allowed_cpus()
    # torchrun's name for it. The ranks of one machine have the same CPUs unless somebody has bound them to some.
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    if ranks.isdecimal() and int(ranks) > 1:
        cpus, because = max(1, cpus // int(ranks)), f"{because}, shared by {ranks} ranks"
    if device == "cuda" and cpus > _MOST_THREADS_FOR_A_GPU:
        return _MOST_THREADS_FOR_A_GPU, f"enough to read for a GPU; {because}"
    return cpus, because


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
    """The CPUs' worth of time that this process's control group grants, such as a container's limit; None: no limit.

    Every group above it may set a limit too, and the least counts. In a container its own group is the root.

    Args:
        root: where `proc` and `sys` are.
    """
    limits: list[float] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            base, names = root / "sys/fs/cgroup", ["cpu.max"]
        elif "cpu" in controllers.split(","):
            base, names = root / "sys/fs/cgroup" / controllers, ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        group = base / path.lstrip("/")
        while True:
            words = " ".join(_read(group / name) for name in names).split()
            if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
                limits.append(int(words[0]) / int(words[1]))  # otherwise "max" or -1, and no limit
            if group == base or base not in group.parents:
                break
            group = group.parent
    return min(limits, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # no such group here: the system is another, or the path is the host's and not the container's
        return ""


def _prefetch(batch_size: int, threads: int) -> tuple[int, str]:
    """Two batches; more where it takes more to give every thread something to do."""
    tasks = -(-batch_size // SAMPLES_PER_TASK)
    needed = 1 + -(-threads // tasks)
    if needed <= 2:
        return 2, "one to be taken and one in the making"
    return needed, f"batches of {batch_size} give {tasks} task{'s' * (tasks > 1)}: enough of them for {threads} threads"
