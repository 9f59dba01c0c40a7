"""When the GPU was at what of a batch, without ever waiting for it: CUDA events, read once they have passed."""

from __future__ import annotations

import time

import torch

from cuaug.profiling.recorder import Listener, Recorder

__all__ = ["CudaClock", "CudaEvents"]


class _Anchor:
    """A mark of which both clocks' time is known."""

    def __init__(self, stream: torch.cuda.Stream, listener: Listener) -> None:
        self.listener = listener
        self.mark = torch.cuda.Event(enable_timing=True)
        self.mark.record(stream)
        self.mark.synchronize()
        self.at = self.until = time.perf_counter_ns()


class CudaClock:
    """What a stream's marks are in the CPU's time: by one anchor for all of them, or batches would seem to overlap."""

    def __init__(self, recorder: Recorder, stream: torch.cuda.Stream) -> None:
        self.recorder, self.stream = recorder, stream
        self._anchor: _Anchor | None = None

    def anchor(self) -> _Anchor | None:
        """None unless a profile goes on. When one has begun, the producer thread waits for its stream, once."""
        listener = self.recorder.listener
        if listener is None:
            self._anchor = None
        elif self._anchor is None or self._anchor.listener is not listener:
            self._anchor = _Anchor(self.stream, listener)
        return self._anchor


class CudaEvents:
    """Three marks in a stream: before a batch is decoded, after that, and after the kernels. One per arena.

    "gpu_decode" is the time between the first two, "gpu_augment" between the last two. That is not how long the GPU
    computed: where a mark has passed and the producer thread has not queued more yet, the stream stands idle.
    """

    def __init__(self, clock: CudaClock) -> None:
        self._clock, self._stream = clock, clock.stream
        self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        self._anchor: _Anchor | None = None
        self._batch: int | None = None

    def begin(self, batch: int) -> None:
        """Before its decoding is queued."""
        self._batch = None
        self._anchor = self._clock.anchor()
        self._number = batch
        self._marks[0].record(self._stream)

    def decoded(self) -> None:
        """After its decoding was queued."""
        self._marks[1].record(self._stream)

    def end(self) -> None:
        """After its kernels were queued."""
        self._marks[2].record(self._stream)
        self._batch = self._number

    def read(self) -> None:
        """Tells the recorder; to be called when the last batch's marks have passed."""
        if self._batch is None:
            return
        begin, decoded, end = self._marks
        anchor = self._anchor
        # CUDA tells a while as a float32 of milliseconds: long after the anchor that is some microseconds off.
        start = max(anchor.at + _nanoseconds(anchor.mark, begin), anchor.until) if anchor else 0
        middle = start + _nanoseconds(begin, decoded)
        until = middle + _nanoseconds(decoded, end)
        if anchor:
            anchor.until = until
        stretches = [("gpu_decode", start, middle), ("gpu_augment", middle, until)]
        self._clock.recorder.on_gpu(self._batch, stretches, anchor.listener if anchor else None)
        self._batch = None


def _nanoseconds(first: torch.cuda.Event, second: torch.cuda.Event) -> int:
    return round(first.elapsed_time(second) * 1e6)
