"""Times of the GPU per batch: CUDA events, which are read after they have passed, without waiting for them.

Recording an event with timing took 4 us at the median on a B200, 0.7 ms on average and 14 ms at worst. So a profile
measures every batch, and otherwise one batch in sixteen is measured, after the first few.
"""

from __future__ import annotations

import time

import torch

from cuaug.profiling.recorder import Listener, Recorder

__all__ = ["CudaClock", "CudaEvents"]

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
