"""How a GPU's JPEGs are shared between its hardware engine, its multiprocessors and the CPU: chosen by trying.

The best split depends on the GPU (how many JPEG engines, how fast a CPU beside it) and on the pictures, so it is
measured on the loader's own first batches. Which images go where changes rounding, so it is only done where the user
asks for it (docs/cuda.md).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["DEFAULT_LOAD_HINT", "DecodeAutotuner", "DecodeSplit", "Tuner"]

#: DALI's: it went back from 0.9, whose slowest batches were slower.
DEFAULT_LOAD_HINT = 0.65
_LOAD_HINTS = (DEFAULT_LOAD_HINT, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_LEAST_THREADS, _MOST_THREADS = 2, 16

C = TypeVar("C")


class Tuner(Generic[C]):
    """Finds the fastest of some candidates, from measurements that come in one after the other.

    By rounds: each tries the candidates that are left in turn, twice as often as the round before, and keeps the
    faster half by their medians. The slow ones go early, and those that are close are compared most.

    Args:
        candidates: the preferred first: as fast as the best within `margin` counts as best.
        tries: measurements of each candidate in the first round.
        warm_up: how many are ignored after each change of candidate.
        margin: part of the best one's time.

    Attributes:
        candidate: what the next measurement is to be of; once `done`, the best.
        done: whether that is settled.
        medians: seconds of each candidate in the last round that it took part in.
    """

    def __init__(self, candidates: Iterable[C], *, tries: int = 3, warm_up: int = 1, margin: float = 0.02) -> None:
        self._left = list(dict.fromkeys(candidates))
        if not self._left:
            raise ValueError("there is nothing to choose from")
        self._preferred: dict[C, int] = {candidate: i for i, candidate in enumerate(self._left)}
        self._tries, self._warm_up, self._margin = tries, warm_up, margin
        self._backwards = False
        self._waiting: list[C] = []
        self._measured: list[float] = []
        self.medians: dict[C, float] = {}
        self._begin_round(self._left)

    @property
    def candidate(self) -> C:
        return self._waiting[0]

    @property
    def done(self) -> bool:
        return len(self._left) == 1

    def add(self, seconds: float) -> None:
        """What the candidate took, for an amount of work that is always the same.

        Raises:
            ValueError: not a number of seconds, or nothing is to be measured any more.
        """
        if self.done:
            raise ValueError("nothing is left to choose from")
        if not 0 <= seconds < math.inf:
            raise ValueError(f"a measurement is a finite number of seconds, not {seconds!r}")
        self._measured.append(seconds)
        if len(self._measured) < self._warm_up + self._tries:
            return
        self.medians[self._waiting.pop(0)] = statistics.median(self._measured[self._warm_up :])
        self._measured = []
        if not self._waiting:
            self._tries *= 2
            self._begin_round(self._faster_half())

    def _begin_round(self, candidates: list[C]) -> None:
        # Every other round in reverse: what drifts meanwhile favours nobody twice.
        self._left, self._measured = candidates, []
        self._waiting = sorted(candidates, key=self._preferred.__getitem__, reverse=self._backwards)
        self._backwards = not self._backwards

    def _faster_half(self) -> list[C]:
        tied = min(self.medians[candidate] for candidate in self._left) * (1 + self._margin)

        def place(candidate: C) -> tuple[float, int]:
            return max(self.medians[candidate], tied), self._preferred[candidate]

        return sorted(self._left, key=place)[: len(self._left) // 2]


class DecodeSplit(NamedTuple):
    """How a batch of JPEGs is decoded on a GPU; the names are nvImageCodec's.

    Attributes:
        load_hint: the share that goes to the hardware engine, from 0 to 1; the rest goes to CUDA kernels.
        max_num_cpu_threads: CPU threads for what the GPU leaves to the CPU.
    """

    load_hint: float
    max_num_cpu_threads: int


class DecodeAutotuner:
    """Chooses the load hint first, then the threads.

    Args:
        load_hint: the one to take; None: the default; "auto": the fastest.
        decode_threads: likewise; None: as many as `threads`, unless the load hint is "auto", which then chooses both.
        threads: the loader's.
    """

    def __init__(self, load_hint: float | str | None, decode_threads: int | None, threads: int) -> None:
        self.tuned = load_hint == "auto"
        self._given = load_hint is not None or decode_threads is not None
        pinned = DEFAULT_LOAD_HINT if load_hint is None else load_hint
        self._hints = Tuner(_LOAD_HINTS if isinstance(pinned, str) else [pinned])
        if decode_threads is None and self.tuned:
            fewer = range(_LEAST_THREADS, min(threads, _MOST_THREADS))
            self._threads = Tuner([threads, *(n for n in fewer if n & (n - 1) == 0)])
        else:
            self._threads = Tuner([threads if decode_threads is None else decode_threads])
        self._most = 0

    @property
    def split(self) -> DecodeSplit:
        """What the next batch is to be decoded with."""
        return DecodeSplit(self._hints.candidate, self._threads.candidate)

    @property
    def done(self) -> bool:
        return self._hints.done and self._threads.done

    def add(self, seconds: float, images: int, pixels: int) -> None:
        """What a batch took. One that is much smaller than others says nothing, and is not counted.

        Args:
            images: how many were decoded.
            pixels: how many these have together; time is compared by pixel.
        """
        self._most = max(self._most, images)
        if images >= 0.9 * self._most and pixels and not self.done:
            (self._threads if self._hints.done else self._hints).add(seconds / pixels)

    @property
    def because(self) -> str:
        """Why the split is what it is."""
        if self.tuned:
            return "chosen by trying" if self.done else "still trying"
        return "as given" if self._given else "the default"
