"""Times of the GPU per batch: CUDA events, which are read after they have passed, without waiting for them."""

from __future__ import annotations

import time

import torch

from cuaug.profiling.recorder import Listener, Recorder

__all__ = ["CudaClock", "CudaEvents"]


class _Anchor:
    """An event with known times on the CPU and on the GPU."""

    def __init__(self, stream: torch.cuda.Stream, listener: Listener) -> None:
        self.listener = listener
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record(stream)
        self.event.synchronize()
        self.time = self.last_end = time.perf_counter_ns()


class CudaClock:
    """Converts a stream's event times to CPU time. All use one anchor, or else batches would seem to overlap."""

    def __init__(self, recorder: Recorder, stream: torch.cuda.Stream) -> None:
        self.recorder, self.stream = recorder, stream
        self._anchor: _Anchor | None = None

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
        self._begun_batch: int | None = None
        self._ended_batch: int | None = None

    def begin(self, batch: int) -> None:
        """Call before decoding is queued."""
        self._begun_batch, self._ended_batch = batch, None
        self._anchor = self._clock.anchor()
        self._events[0].record(self._stream)

    def decoded(self) -> None:
        """Call after decoding is queued."""
        self._events[1].record(self._stream)

    def end(self) -> None:
        """Call after the kernels are queued."""
        self._events[2].record(self._stream)
        self._ended_batch = self._begun_batch

    def read(self) -> None:
        """Reports the last batch to the recorder; call after its events have passed."""
        if self._ended_batch is None:
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
        self._clock.recorder.add_gpu_times(self._ended_batch, events, anchor.listener if anchor else None)
        self._ended_batch = None


def _nanoseconds(first: torch.cuda.Event, second: torch.cuda.Event) -> int:
    return round(first.elapsed_time(second) * 1e6)
