"""Autotunes how a GPU splits JPEGs among its hardware engine, its multiprocessors and the CPU.

The best split depends on the images and on the GPU: its number of JPEG engines, and the CPU beside it. The autotuner
measures the loader's own first batches. The split changes rounding, so a loader autotunes only on request
(docs/cuda.md).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from cuaug.codec import DEFAULT_LOAD_HINT

__all__ = ["DecodeAutotuner", "DecodeSplit", "Tuner"]

_LOAD_HINTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_MIN_THREADS, _MAX_THREADS = 2, 16

C = TypeVar("C")


class Tuner(Generic[C]):
    """Finds the fastest candidate by successive halving.

    Each round measures the remaining candidates, twice as often as the round before, and keeps the faster half by
    median. Slow candidates leave early, and close ones are measured most.

    Args:
        candidates: in order of preference. A candidate within `margin` of the fastest ties with it.
        tries: measurements per candidate in the first round.
        warm_up: measurements ignored after each change of candidate.
        margin: share of the fastest candidate's time.

    Attributes:
        candidate: the candidate of the next measurement; once `done`, the best one.
        done: whether one candidate is left.
        medians: seconds of each candidate, in its last round.
    """

    def __init__(self, candidates: Iterable[C], *, tries: int = 3, warm_up: int = 1, margin: float = 0.02) -> None:
        self._remaining = list(dict.fromkeys(candidates))
        if not self._remaining:
            raise ValueError("candidates is empty")
        self._preference: dict[C, int] = {candidate: i for i, candidate in enumerate(self._remaining)}
        self._tries, self._warm_up, self._margin = tries, warm_up, margin
        self._reverse = False
        self._queue: list[C] = []
        self._measurements: list[float] = []
        self.medians: dict[C, float] = {}
        self._begin_round(self._remaining)

    @property
    def candidate(self) -> C:
        return self._queue[0]

    @property
    def done(self) -> bool:
        return len(self._remaining) == 1

    def add(self, seconds: float) -> None:
        """Adds a measurement of `candidate`, for a constant amount of work.

        Raises:
            ValueError: `seconds` is negative or not finite, or the tuner is done.
        """
        if self.done:
            raise ValueError("the tuner is done: one candidate is left")
        if not 0 <= seconds < math.inf:
            raise ValueError(f"seconds is {seconds!r}, not a finite number of at least 0")
        self._measurements.append(seconds)
        if len(self._measurements) < self._warm_up + self._tries:
            return
        self.medians[self._queue.pop(0)] = statistics.median(self._measurements[self._warm_up :])
        self._measurements = []
        if not self._queue:
            self._tries *= 2
            self._begin_round(self._faster_half())

    def _begin_round(self, candidates: list[C]) -> None:
        # Every other round runs in reverse, so that a drift favours no candidate twice.
        self._remaining, self._measurements = candidates, []
        self._queue = sorted(candidates, key=self._preference.__getitem__, reverse=self._reverse)
        self._reverse = not self._reverse

    def _faster_half(self) -> list[C]:
        tied = min(self.medians[candidate] for candidate in self._remaining) * (1 + self._margin)

        def rank(candidate: C) -> tuple[float, int]:
            return max(self.medians[candidate], tied), self._preference[candidate]

        return sorted(self._remaining, key=rank)[: len(self._remaining) // 2]


class DecodeSplit(NamedTuple):
    """How a GPU decodes a batch of JPEGs; the names are nvImageCodec's.

    Attributes:
        load_hint: share of the hardware engine, from 0 to 1; CUDA kernels decode the rest.
        max_num_cpu_threads: threads for the CPU's part of the work.
    """

    load_hint: float
    max_num_cpu_threads: int


class DecodeAutotuner:
    """Tunes the load hint first, then the threads.

    Args:
        load_hint: a fixed value; None for the default; "auto" to tune it.
        decode_threads: a fixed value; None for half of `threads`, or to tune it if `load_hint` is "auto". The other
            half reads files and parses them meanwhile.
        threads: the loader's threads.
        default_hint: the default load hint.
    """

    def __init__(
        self,
        load_hint: float | str | None,
        decode_threads: int | None,
        threads: int,
        default_hint: float = DEFAULT_LOAD_HINT,
    ) -> None:
        self.tuned = load_hint == "auto"
        self._given = load_hint is not None or decode_threads is not None
        fixed = default_hint if load_hint is None else load_hint
        self._hints = Tuner([default_hint, *_LOAD_HINTS] if isinstance(fixed, str) else [fixed])
        half = (threads + 1) // 2
        if decode_threads is None and self.tuned:
            fewer = range(_MIN_THREADS, min(threads, _MAX_THREADS))
            self._threads = Tuner([half, *(n for n in fewer if n & (n - 1) == 0), threads])
        else:
            self._threads = Tuner([half if decode_threads is None else decode_threads])
        self._max_images = 0

    @property
    def split(self) -> DecodeSplit:
        """The split for the next batch."""
        return DecodeSplit(self._hints.candidate, self._threads.candidate)

    @property
    def done(self) -> bool:
        return self._hints.done and self._threads.done

    def add(self, seconds: float, images: int, pixels: int) -> None:
        """Adds the time of a batch; ignores batches that are much smaller than others.

        Args:
            images: number of decoded images.
            pixels: their total; the tuner compares times per pixel.
        """
        self._max_images = max(self._max_images, images)
        if images >= 0.9 * self._max_images and pixels and not self.done:
            (self._threads if self._hints.done else self._hints).add(seconds / pixels)

    @property
    def because(self) -> str:
        """The reason for the split, as in `RuntimeConfig.split_because`."""
        if self.tuned:
            return "autotuned" if self.done else "autotuning"
        return "as given" if self._given else "default"
