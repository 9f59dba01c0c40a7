"""What a loader has done, and how long each stage of it took."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Recorder", "Stats"]

STAGES = ("read", "parse", "plan", "decode", "augment", "wait_for_data", "wait_for_consumer")


@dataclass(frozen=True)
class Stats:
    """Totals since the loader was made.

    Attributes:
        samples, batches: what was yielded.
        failed: samples that could not be read or decoded, and were skipped or replaced.
        seconds: for each stage, the time spent in it, summed over threads: "read" (files), "parse" (headers), "plan",
            "decode", "augment" (the kernels; on CUDA the time to queue them), "wait_for_data" (the consumer waited for
            a batch) and "wait_for_consumer" (the consumer was busy elsewhere between two batches).
    """

    samples: int
    batches: int
    failed: int
    seconds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        times = ", ".join(f"{name} {value:.2f} s" for name, value in self.seconds.items())
        return f"{self.samples} samples in {self.batches} batches, {self.failed} failed; {times}"


class Recorder:
    """Adds up; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._counts = {"samples": 0, "batches": 0, "failed": 0}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add_seconds(**{name: time.perf_counter() - start})

    def add_seconds(self, **seconds: float) -> None:
        with self._lock:
            for name, value in seconds.items():
                self._seconds[name] += value

    def count(self, **counts: int) -> None:
        with self._lock:
            for name, value in counts.items():
                self._counts[name] += value

    def stats(self) -> Stats:
        with self._lock:
            return Stats(**self._counts, seconds=dict(self._seconds))
