"""Records the stages of a loader's threads.

Each thread of a loader has a `Clock` for its current stage. The `Recorder` always sums up all clocks, which costs about
0.9 us per sample. During a profile it also passes each event on, which costs 2 us per sample.

`CudaEvents` measures the GPU by CUDA events, which are read after they have passed, without waiting for them. Recording
an event with timing took 4 us at the median on a B200, 0.7 ms on average and 14 ms at worst. So a profile measures
every batch, and otherwise one batch in sixteen is measured, after the first few.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from cuaug._runtime.fork import fork_safe_lock
from cuaug.profiling.bottleneck import RuntimeConfig, Stats, stages_of

# The recorder sums up after this many additions, even without a call of `stats`.
_MAX_PENDING = 1000

# The stages as a timeout's error names them.
_ACTIVITIES: dict[str | None, str] = {
    "read": "reading",
    "parse": "reading",
    "copy": "reading",
    "decode": "decoding",
    "augment": "decoding",
    "targets": "moving the targets of",
}


class Listener(Protocol):
    """Receives each event of a profile, from any thread. Times are those of `time.perf_counter_ns`.

    Attributes:
        ranges: an object with `range_push(name)` and `range_pop()`, as torch.cuda.nvtx; or None.
    """

    ranges: Any

    def on_stage(self, lane: str, stage: str, start: int, end: int, batch: int | None, sample: int | None) -> None:
        """A lane, which is a thread or the GPU, was at a stage."""

    def on_next(self, ready: int) -> None:
        """The consumer requests the next batch; `ready` batches are finished."""


class Clock:
    """The current stage of one thread, and its sample. A context manager, which ends the last stage.

    Attributes:
        batch: the number of the batch.
        stage: None for time that is not counted.
        sample: index of the sample; None for a stage without one.
        since: start of the stage, by `time.perf_counter_ns`.
    """

    def __init__(
        self, recorder: Recorder, stage: str | None, batch: int | None, lane: str | None, sample: int | None
    ) -> None:
        self._recorder, self.batch, self._lane = recorder, batch, lane
        self._listener = recorder.listener
        self._numbers: dict[Any, int] = defaultdict(int)
        self._ranges: Any = None
        self.stage: str | None = None
        self.sample = sample
        self.since = self._entered = perf_counter_ns()
        if stage is not None:
            self.at(stage, sample)

    def at(self, stage: str | None, sample: int | None = None) -> int:
        """Ends the current stage and starts this one; None starts time that is not counted.

        Returns:
            nanoseconds since the last call.
        """
        now = perf_counter_ns()
        passed = now - self.since
        if stage != self.stage or self._listener is not None:
            if self.stage is not None:
                self._numbers[self.stage] += now - self._entered
            if self._listener is not None:
                self._notify(now, stage)
            self.stage = stage
            self._entered = now
        self.sample = sample
        self.since = now
        return passed

    @property
    def seconds(self) -> float:
        """Time since the last call of `at`."""
        return (perf_counter_ns() - self.since) / 1e9

    @property
    def activity(self) -> str:
        """The stage in words, such as "reading"; the sample's name follows."""
        return _ACTIVITIES.get(self.stage, "finishing the batch of")

    def count(self, name: Any, number: int = 1) -> None:
        """Adds to a count; `Recorder.add` explains the names."""
        self._numbers[name] += number

    def flush(self) -> None:
        """Adds the measurements to the totals, and checks whether a profile has begun or ended."""
        self._recorder.add(self._numbers)
        self._numbers = defaultdict(int)
        self._listener = self._recorder.listener

    def _notify(self, now: int, stage: str | None) -> None:
        listener = self._listener
        assert listener is not None
        if self._ranges is not None:
            self._ranges.range_pop()
            self._ranges = None
        if self.stage is not None:
            lane = self._lane or threading.current_thread().name
            listener.on_stage(lane, self.stage, self.since, now, self.batch, self.sample)
        # No range while the consumer works: it may open and close its own ranges, and ranges must nest.
        if listener.ranges is not None and stage not in (None, "wait_for_consumer"):
            self._ranges = listener.ranges
            self._ranges.range_push(f"cuaug {stage}")

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: Any) -> None:
        # The consumer abandoned the iteration, after a `flush`: the time since then means nothing. At the interpreter's
        # exit this module's globals may be gone.
        if kind is not GeneratorExit:
            self.at(None)
            self._recorder.add(self._numbers)


class Recorder:
    """Sums up times and counts; thread-safe.

    Attributes:
        setup: how the loader runs.
        listener: receives each event during a profile, else None.
        remote_counts: the source's, if it has that.
    """

    def __init__(self, setup: RuntimeConfig, remote_counts: Callable[[], dict[str, int]] | None = None) -> None:
        self.setup, self.remote_counts = setup, remote_counts
        self.listener: Listener | None = None
        self._totals: Counter[Any] = Counter()
        self._pending: deque[dict[Any, int]] = deque()  # appending takes no lock
        self._lock = fork_safe_lock()

    def at(
        self, stage: str | None = None, batch: int | None = None, *, lane: str | None = None, sample: int | None = None
    ) -> Clock:
        """A clock for the calling thread, started at a stage. `lane` defaults to the thread's name."""
        return Clock(self, stage, batch, lane, sample)

    def add(self, numbers: dict[Any, int]) -> None:
        """Adds nanoseconds by stage, and counts by an attribute of Stats or by (attribute, key)."""
        self._pending.append(numbers)
        if len(self._pending) > _MAX_PENDING:
            self._sum_up()

    def _sum_up(self) -> None:
        with self._lock:
            while self._pending:
                for name, number in self._pending.popleft().items():
                    self._totals[name] += number

    def add_gpu_times(self, batch: int, events: Iterable[tuple[str, int, int]], listener: Listener | None) -> None:
        """Adds the GPU's (stage, start, end) of a batch, in nanoseconds on the clock of `listener`."""
        for stage, start, end in events:
            self.add({stage: end - start})
            if listener is not None and listener is self.listener:
                listener.on_stage("GPU", stage, start, end, batch, None)

    def on_next(self, ready: int) -> None:
        """The consumer requests a batch other than an iteration's first; `ready` batches are finished."""
        self.add({("ready", ready): 1})
        if self.listener is not None:
            self.listener.on_next(ready)

    def stats(self) -> Stats:
        self._sum_up()
        with self._lock:
            totals = self._totals.copy()
        return Stats(
            samples=totals["samples"],
            batches=totals["batches"],
            failed=totals["failed"],
            begun=totals["begun"],
            seconds={stage: totals[stage] / 1e9 for stage in stages_of(self.setup.device)},
            decoded_by={name[1]: number for name, number in totals.items() if name[0] == "decoded_by"},
            parts=totals["parts"],
            kernels={name[1]: number for name, number in totals.items() if name[0] == "kernels"},
            ready=tuple(totals["ready", count] for count in range(self.setup.prefetch + 1)),
            setup=self.setup,
            remote={} if self.remote_counts is None else self.remote_counts(),
        )


# Without a profile: the first batches, which warm up, and then one in so many.
_FIRST_BATCHES = 4
_MEASURE_EVERY = 16


class _Anchor:
    """An event with known times on the CPU and on the GPU."""

    def __init__(self, stream: torch.cuda.Stream, listener: Listener) -> None:
        self.listener = listener
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record(stream)
        self.event.synchronize()
        self.time = self.last_end = time.perf_counter_ns()


class CudaClock:
    """Converts a stream's event times to CPU time. All use one anchor, or else batches would seem to overlap.

    Attributes:
        last: nanoseconds by stage of the last measured batch; batches without events count as much.
        ended: number of batches that were queued to their end.
    """

    def __init__(self, recorder: Recorder, stream: torch.cuda.Stream) -> None:
        self.recorder, self.stream = recorder, stream
        self.last: dict[str, int] = {}
        self.ended = 0
        self._anchor: _Anchor | None = None

    def is_next_measured(self) -> bool:
        """Whether to measure the next batch."""
        number = self.ended
        return self.recorder.listener is not None or number < _FIRST_BATCHES or number % _MEASURE_EVERY == 0

    def anchor(self) -> _Anchor | None:
        """The profile's anchor; None without a profile. The first call of a profile waits for the stream."""
        listener = self.recorder.listener
        if listener is None:
            self._anchor = None
        elif self._anchor is None or self._anchor.listener is not listener:
            self._anchor = _Anchor(self.stream, listener)
        return self._anchor


class CudaEvents:
    """Three events per batch: before decoding, after decoding, after the kernels. One object per arena.

    "gpu_decode" is the time between the first two events, "gpu_augment" between the last two. Both include idle time:
    the stream idles if the producer thread queues work too slowly.
    """

    def __init__(self, clock: CudaClock) -> None:
        self._clock, self._stream = clock, clock.stream
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        self._anchor: _Anchor | None = None
        self._is_measured = False
        self._begun_batch: int | None = None
        self._ended_batch: int | None = None

    def begin(self, batch: int) -> None:
        """Call before decoding is queued."""
        self._begun_batch, self._ended_batch = batch, None
        self._is_measured = self._clock.is_next_measured()
        self._anchor = self._clock.anchor()
        self._record(0)

    def decoded(self) -> None:
        """Call after decoding is queued."""
        self._record(1)

    def end(self) -> None:
        """Call after the kernels are queued."""
        self._record(2)
        self._ended_batch = self._begun_batch
        self._clock.ended += 1

    def _record(self, number: int) -> None:
        if self._is_measured:
            self._events[number].record(self._stream)

    def read(self) -> None:
        """Reports the last batch to the recorder; call after its events have passed."""
        if self._ended_batch is None:
            return
        if not self._is_measured:
            self._clock.recorder.add(self._clock.last)
            self._ended_batch = None
            return
        begin, decoded, end = self._events
        anchor = self._anchor
        # CUDA reports float32 milliseconds, which are off by some microseconds long after the anchor.
        start = max(anchor.time + _nanoseconds(anchor.event, begin), anchor.last_end) if anchor else 0
        middle = start + _nanoseconds(begin, decoded)
        stop = middle + _nanoseconds(decoded, end)
        if anchor:
            anchor.last_end = stop
        events = [("gpu_decode", start, middle), ("gpu_augment", middle, stop)]
        self._clock.last = {stage: last - first for stage, first, last in events}
        self._clock.recorder.add_gpu_times(self._ended_batch, events, anchor.listener if anchor else None)
        self._ended_batch = None


def _nanoseconds(first: torch.cuda.Event, second: torch.cuda.Event) -> int:
    return round(first.elapsed_time(second) * 1e6)
