"""Batches on the CPU: each worker decodes its samples and runs their plans straight into their slots of the batch."""

from __future__ import annotations

import threading
import time

import numpy as np
from numpy.typing import NDArray

from cuaug.codec import Header, HostDecoder
from cuaug.devices import HostProgram
from cuaug.errors import DecodeError
from cuaug.interop import dtype_of
from cuaug.pipeline.job import Job, Settings
from cuaug.pipeline.memory import Recycler
from cuaug.pipeline.stats import Recorder
from cuaug.pipeline.workers import Workers
from cuaug.plan import Tables

__all__ = ["HostPipeline"]

_per_thread = threading.local()
# A block in the consumer's hands, one on its way, one to spare.
_KEEP_BLOCKS = 3


def _decoder(fancy_upsampling: bool) -> HostDecoder:
    """This thread's own decoder: one shared by two threads corrupts the heap."""
    decoders: dict[bool, HostDecoder] = _per_thread.__dict__.setdefault("decoders", {})
    if fancy_upsampling not in decoders:
        decoders[fancy_upsampling] = HostDecoder(fancy_upsampling=fancy_upsampling)
    return decoders[fancy_upsampling]


class HostPipeline:
    """Starts jobs on worker threads that read, plan, decode and augment."""

    def __init__(self, settings: Settings, recorder: Recorder, threads: int) -> None:
        self._settings = settings
        self._recorder = recorder
        self._workers = Workers(threads)
        self._memory = Recycler(keep=_KEEP_BLOCKS)

    def start(self, epoch: int, indices: NDArray[np.int64]) -> Job:
        job = _HostJob(self._settings, self._workers, self._recorder, epoch, indices)
        job.memory = self._memory
        return job.start()

    def close(self) -> None:
        self._workers.close()


class _HostJob(Job):
    """A batch in host memory."""

    memory: Recycler

    def _run(self, good: NDArray[np.int64], headers: list[Header], tables: Tables, channels: int) -> None:
        images = self.memory.empty(self.shape(tables, channels), dtype_of(tables.target_type))
        program = HostProgram(tables)
        regions = tables.regions().tolist()
        address, step = images.data_ptr(), images.stride(0) * images.element_size()

        def decode_and_run(part: range) -> None:
            decoder, decode, augment = _decoder(self.settings.fancy_upsampling), 0.0, 0.0
            for i in part:
                if self._cancelled:
                    return
                start = time.perf_counter()
                y0, x0, y1, x1 = regions[i]
                try:
                    pixels = decoder.decode(headers[i], (y0, x0, y1, x1))
                except DecodeError as error:
                    self.fail(int(good[i]), error)
                    continue
                decode += (now := time.perf_counter()) - start
                program.run(i, pixels, address + i * step, y=y0, x=x0)
                augment += time.perf_counter() - now
            self._recorder.add_seconds(decode=decode, augment=augment)

        self._each_part(len(headers), decode_and_run, lambda: self.finish(images, good))
