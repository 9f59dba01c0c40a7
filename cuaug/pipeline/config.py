"""How many threads, and how many batches ahead: what is chosen where the user leaves it open, and why."""

from __future__ import annotations

from dataclasses import dataclass

from cuaug._runtime.cpu_limits import allowed_cpus, local_ranks

__all__ = ["SAMPLES_PER_TASK", "RuntimeConfig", "choose", "samples_per_read"]

# Samples that one task of a worker handles: enough to make the queue's cost vanish, few enough to share a batch evenly.
SAMPLES_PER_TASK = 8
# ... that a task reads: a task costs 50 us of Python, during which no other thread runs.
_MOST_SAMPLES_PER_READ = 64
# On a GPU, threads read and parse: they hold the GIL for most of what is theirs to do, and more of them only contend.
_MOST_THREADS_FOR_A_GPU = 16


@dataclass(frozen=True)
class RuntimeConfig:
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


def choose(device: str, batch_size: int, threads: int | None, prefetch: int | None) -> RuntimeConfig:
    """The setup of a loader on "cpu" or "cuda"; what is None is chosen."""
    threads_because = prefetch_because = "as given"
    if threads is None:
        threads, threads_because = _threads(device)
    if prefetch is None:
        prefetch, prefetch_because = _prefetch(batch_size, threads)
    return RuntimeConfig(device, threads, prefetch, threads_because, prefetch_because)


def _threads(device: str) -> tuple[int, str]:
    """One for each CPU that this process may use, shared with the other ranks of the machine."""
    cpus, because = allowed_cpus()
    # The ranks of one machine have the same CPUs unless somebody has bound them to some.
    if (ranks := local_ranks()) > 1:
        cpus, because = max(1, cpus // ranks), f"{because}, shared by {ranks} ranks"
    if device == "cuda" and cpus > _MOST_THREADS_FOR_A_GPU:
        return _MOST_THREADS_FOR_A_GPU, f"enough to read for a GPU; {because}"
    return cpus, because


def _prefetch(batch_size: int, threads: int) -> tuple[int, str]:
    """Two batches; more where it takes more to give every thread something to do."""
    tasks = -(-batch_size // SAMPLES_PER_TASK)
    needed = 1 + -(-threads // tasks)
    if needed <= 2:
        return 2, "one to be taken and one in the making"
    return needed, f"batches of {batch_size} give {tasks} task{'s' * (tasks > 1)}: enough of them for {threads} threads"
