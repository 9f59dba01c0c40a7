"""What a loader has done, and how long each stage of it took.

Every thread that works for a loader has a `Clock` which says at which stage it is. The `Recorder` adds up what the
clocks say, always: that costs about 0.9 microseconds a sample (benchmarks/recording.py). While a profile is taken it is
told of each single stretch of time as well, which makes it 2.
"""

from __future__ import annotations

import ctypes
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any, Protocol

from cuaug._runtime.fork import fork_safe_lock
from cuaug.pipeline.config import RuntimeConfig
from cuaug.profiling.bottleneck import bottleneck, table
from cuaug.profiling.stages import stages

__all__ = ["Clock", "Listener", "Recorder", "Stats"]

# After so many additions the totals are brought up to date, if nobody asks for them.
_MOST_WAITING = 1000

# What a thread does to a sample, as an error tells it.
_DOING_TO: dict[str | None, str] = {
    "read": "reading",
    "parse": "reading",
    "decode": "decoding",
    "augment": "decoding",
    "targets": "moving the targets of",
}


@dataclass(frozen=True)
class Stats:
    """Totals since the loader was made, or of a profile. As a string: a table, and above it the verdict.

    Attributes:
        samples, batches: what was yielded.
        failed: samples that could not be read or decoded, and were skipped or replaced.
        begun: samples whose reading is over; some may still be under way, or were never asked for.
        seconds: for each stage, the time spent in it, summed over threads: "read" (files, or looking in a cache),
            "parse" (headers), "plan", "decode", "augment" (the kernels; on CUDA the time to queue them), "targets"
            (moving boxes, masks and keypoints) and "finish" (mixes, collating); "wait_for_first_batch" and
            "wait_for_data" (the consumer waited for an iteration's first batch, or a later one) and
            "wait_for_consumer" (it was busy elsewhere between two batches). On CUDA also "wait_for_gpu" (the producer
            thread waited for the GPU to be done with a batch), "gpu_decode" and "gpu_augment": time on the producer's
            stream, by CUDA events, which are read some batches later.
        decoded_by: how many samples came from where: "cpu" (nvImageCodec's CPU decoders), "gpu" (nvImageCodec, for a
            format that it decodes on the GPU; by the hardware engine or by CUDA, or if it must on the CPU: it does not
            tell), "pillow", "cache" (decoded in an earlier epoch) and "source" (it gave pixels).
        parts: how many of these were decoded from the part of their file that holds what is needed, thanks to restart
            markers or, on the CPU, to a loader's index of files that come again.
        ready: how often so many batches were finished when the consumer asked for the next one: `ready[0]` times none.
        setup: the device, the threads and the prefetching, and why.
    """

    samples: int
    batches: int
    failed: int
    begun: int
    seconds: dict[str, float]
    decoded_by: dict[str, int]
    parts: int
    ready: tuple[int, ...]
    setup: RuntimeConfig

    @property
    def bottleneck(self) -> str:
        """What holds back training, in one line, from these numbers."""
        return bottleneck(self)

    def since(self, earlier: Stats) -> Stats:
        """What came after an earlier snapshot."""
        return replace(
            self,
            samples=self.samples - earlier.samples,
            batches=self.batches - earlier.batches,
            failed=self.failed - earlier.failed,
            begun=self.begun - earlier.begun,
            seconds={name: value - earlier.seconds[name] for name, value in self.seconds.items()},
            decoded_by=dict(Counter(self.decoded_by) - Counter(earlier.decoded_by)),
            parts=self.parts - earlier.parts,
            ready=tuple(now - before for now, before in zip(self.ready, earlier.ready, strict=True)),
        )

    def __str__(self) -> str:
        return f"{self.bottleneck}\n{table(self)}"


class Listener(Protocol):
    """Is told of everything while a profile is taken, from any thread. Times are those of `time.perf_counter_ns`.

    Attributes:
        ranges: has `range_push(name)` and `range_pop()`, as torch.cuda.nvtx; or None.
    """

    ranges: Any

    def stretch(self, lane: str, stage: str, start: int, end: int, batch: int | None, sample: int | None) -> None:
        """A lane, which is a thread or the GPU, was at a stage."""

    def asked(self, ready: int) -> None:
        """The consumer asks for a batch, and so many are ready."""


class Clock:
    """At which stage one thread is, with which sample of which batch. A context manager: its end ends the stage.

    Attributes:
        batch: a number that tells batches apart.
        stage: None for what is not counted.
        since: when that began, by `time.perf_counter_ns`.
    """

    __slots__ = (
        "_entered",
        "_lane",
        "_listener",
        "_numbers",
        "_ranges",
        "_recorder",
        "_sample",
        "_several",
        "batch",
        "since",
        "stage",
    )

    def __init__(
        self, recorder: Recorder, stage: str | None, batch: int | None, lane: str | None, sample: int | None
    ) -> None:
        self._recorder, self.batch, self._lane = recorder, batch, lane
        self._listener = recorder.listener
        self._numbers: dict[Any, int] = defaultdict(int)
        self._ranges: Any = None
        self._several: tuple[Sequence[int], ctypes.c_int64 | None] | None = None
        self.stage: str | None = None
        self._sample = sample
        self.since = self._entered = perf_counter_ns()
        if stage is not None:
            self.at(stage, sample)

    def at(self, stage: str | None, sample: int | None = None) -> int:
        """The thread leaves the stage it was at for this one; None: for something that is not counted.

        Returns:
            nanoseconds since it was told of the last.
        """
        now = perf_counter_ns()
        passed = now - self.since
        if stage != self.stage or self._listener is not None:
            if self.stage is not None:
                self._numbers[self.stage] += now - self._entered
            if self._listener is not None:
                self._tell(now, stage)
            self.stage = stage
            self._entered = now
        self._sample, self._several = sample, None
        self.since = now
        return passed

    def among(self, stage: str, samples: Sequence[int], progress: ctypes.c_int64 | None = None) -> None:
        """As `at`, for several samples, of which `progress` always tells the number of the one; None: nobody knows."""
        self.at(stage, samples[0] if len(samples) == 1 else None)
        self._several = samples, progress

    @property
    def samples(self) -> Sequence[int]:
        """Those of which it is at one; none where it is about nothing that is a sample's."""
        several = self._several
        if several is None:
            return () if self._sample is None else (self._sample,)
        samples, progress = several
        return samples if progress is None else (samples[progress.value],)

    @property
    def seconds(self) -> float:
        """How long it has been at that."""
        return (perf_counter_ns() - self.since) / 1e9

    @property
    def doing(self) -> str:
        """For a person, such as "reading", to be followed by the sample's name."""
        return _DOING_TO.get(self.stage, "finishing the batch of")

    def count(self, name: Any, number: int = 1) -> None:
        """Adds to a total that is not of time, as `Recorder.add` names them."""
        self._numbers[name] += number

    def flush(self) -> None:
        """Adds what was measured so far to the totals, and looks whether a profile has begun or ended."""
        self._recorder.add(self._numbers)
        self._numbers = defaultdict(int)
        self._listener = self._recorder.listener

    def _tell(self, now: int, stage: str | None) -> None:
        listener = self._listener
        assert listener is not None
        if self._ranges is not None:
            self._ranges.range_pop()
            self._ranges = None
        if self.stage is not None:
            lane = self._lane or threading.current_thread().name
            listener.stretch(lane, self.stage, self.since, now, self.batch, self._sample)
        # No range while the consumer is busy: it may open and close ranges of its own, and they must nest.
        if listener.ranges is not None and stage not in (None, "wait_for_consumer"):
            self._ranges = listener.ranges
            self._ranges.range_push(f"cuaug {stage}")

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: Any) -> None:
        if kind is GeneratorExit:  # the consumer does not come back: since when it is busy elsewhere says nothing
            self.stage = None
        self.at(None)
        self._recorder.add(self._numbers)


class Recorder:
    """Adds up; safe to use from many threads.

    Attributes:
        setup: how the loader runs.
        listener: is told of every stretch of time, while there is one.
    """

    def __init__(self, setup: RuntimeConfig) -> None:
        self.setup = setup
        self.listener: Listener | None = None
        self._totals: Counter[Any] = Counter()
        # What is to be added: appending takes no lock.
        self._waiting: deque[dict[Any, int]] = deque()
        self._lock = fork_safe_lock()

    def at(
        self,
        stage: str | None = None,
        batch: int | None = None,
        *,
        lane: str | None = None,
        sample: int | None = None,
    ) -> Clock:
        """A clock for the calling thread, which begins with that stage; the lane is the thread's unless it is given."""
        return Clock(self, stage, batch, lane, sample)

    def add(self, numbers: dict[Any, int]) -> None:
        """Adds to the totals: nanoseconds by stage, counts by Stats' attributes, or by (attribute, key)."""
        self._waiting.append(numbers)
        if len(self._waiting) > _MOST_WAITING:
            self._add_up()

    def _add_up(self) -> None:
        with self._lock:
            while self._waiting:
                for name, number in self._waiting.popleft().items():
                    self._totals[name] += number

    def on_gpu(self, batch: int, stretches: Iterable[tuple[str, int, int]], listener: Listener | None) -> None:
        """(stage, start, end): when the GPU was at what of a batch, in nanoseconds; `listener` knows since when."""
        for stage, start, end in stretches:
            self.add({stage: end - start})
            if listener is not None and listener is self.listener:
                listener.stretch("GPU", stage, start, end, batch, None)

    def asked(self, ready: int) -> None:
        """The consumer asks for a batch that is not an iteration's first, and so many are ready."""
        self.add({("ready", ready): 1})
        if self.listener is not None:
            self.listener.asked(ready)

    def decoded(self, by: Mapping[str, int]) -> None:
        """How many samples were decoded by what."""
        self.add({("decoded_by", name): number for name, number in by.items() if number})

    def stats(self) -> Stats:
        self._add_up()
        with self._lock:
            totals = self._totals.copy()
        return Stats(
            samples=totals["samples"],
            batches=totals["batches"],
            failed=totals["failed"],
            begun=totals["begun"],
            seconds={stage: totals[stage] / 1e9 for stage in stages(self.setup.device)},
            decoded_by={name[1]: number for name, number in totals.items() if name[0] == "decoded_by"},
            parts=totals["parts"],
            ready=tuple(totals["ready", count] for count in range(self.setup.prefetch + 1)),
            setup=self.setup,
        )
