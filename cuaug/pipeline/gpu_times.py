"""When the GPU was at what of a batch, without ever waiting for it: CUDA events, read once they have passed."""

from __future__ import annotations

import time

import torch

from cuaug.pipeline.stats import Listener, Recorder

__all__ = ["GpuTimes"]


class GpuTimes:
    """Three marks in a stream: before a batch is decoded, after that, and after the kernels. One per arena.

    "gpu_decode" is the time between the first two, "gpu_augment" between the last two. That is not how long the GPU
    computed: where a mark has passed and the producer thread has not queued more yet, the stream stands idle.
    """

    def __init__(self, recorder: Recorder, stream: torch.cuda.Stream) -> None:
        self._recorder, self._stream = recorder, stream
        self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        self._anchor = torch.cuda.Event(enable_timing=True)
        self._anchored_for: Listener | None = None
        self._anchored_at = 0
        self._batch: int | None = None

    def begin(self, batch: int) -> None:
        """Before its decoding is queued."""
        self._batch = None
        listener = self._recorder.listener
        if listener is not None and listener is not self._anchored_for:
            # A profile has begun: once, the producer thread waits for its stream to learn what the two clocks say.
            self._anchor.record(self._stream)
            self._anchor.synchronize()
            self._anchored_for, self._anchored_at = listener, time.perf_counter_ns()
        elif listener is None:
            self._anchored_for = None
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
        start = 0
        if self._anchored_for is not None:
            start = self._anchored_at + _nanoseconds(self._anchor, begin)
        middle = start + _nanoseconds(begin, decoded)
        stretches = [("gpu_decode", start, middle), ("gpu_augment", middle, middle + _nanoseconds(decoded, end))]
        self._recorder.on_gpu(self._batch, stretches, self._anchored_for)
        self._batch = None


def _nanoseconds(first: torch.cuda.Event, second: torch.cuda.Event) -> int:
    return round(first.elapsed_time(second) * 1e6)
