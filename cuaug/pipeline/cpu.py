"""Batches on the CPU: each worker decodes its samples and runs their plans straight into their slots of the batch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.cpu_limits import own_memory
from cuaug._runtime.native import address
from cuaug.codec import CpuDecoder, DecodedImage, DecodeResult, EncodedImage, JpegIndex, Region, load_codec
from cuaug.devices import CpuExecutor
from cuaug.errors import DecodeError
from cuaug.interop import dtype_of
from cuaug.pipeline.buffer_pool import BufferPool
from cuaug.pipeline.config import SAMPLES_PER_TASK
from cuaug.pipeline.images import Images
from cuaug.pipeline.job import Job
from cuaug.pipeline.pipeline import Pipeline
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.reader import Item, PendingCacheEntry
from cuaug.pipeline.settings import BatchConfig
from cuaug.profiling.recorder import Recorder
from cuaug.sampling import Epoch, RankSlice

__all__ = ["CpuPipeline"]

_per_thread = threading.local()
# Beside those made ready: a batch in the consumer's hands, the one it let go last, and one to spare.
_BLOCKS_BESIDE_PREFETCH = 3
_INDEX_SHARE = 64  # one part of so many of the memory that is available
_NO_ROOM = "the transforms need more memory for it than there is, or than pictures of max_pixels take"
_PIXELS_PER_TASK = 1 << 21  # one picture of 1920 x 1080, eight of 500 x 375: 13 ms of decoding


def _samples_per_task(items: Sequence[Item]) -> int:
    """Fewer where pictures are large: at an epoch's end one thread waits for the last task of another."""
    pixels = sum(item.height * item.width for item in items)
    return max(1, min(SAMPLES_PER_TASK, _PIXELS_PER_TASK * len(items) // pixels))


def _decoder(fancy_upsampling: bool) -> CpuDecoder:
    """This thread's own decoder: one shared by two threads corrupts the heap."""
    decoders: dict[bool, CpuDecoder] = _per_thread.__dict__.setdefault("decoders", {})
    if fancy_upsampling not in decoders:
        decoders[fancy_upsampling] = CpuDecoder(fancy_upsampling=fancy_upsampling)
    return decoders[fancy_upsampling]


class CpuPipeline(Pipeline):
    """Starts jobs on worker threads that read, plan, decode and augment."""

    def __init__(self, settings: BatchConfig, recorder: Recorder, threads: int) -> None:
        super().__init__(settings, recorder, threads)
        self.job = _CpuJob
        self.memory = BufferPool(keep=settings.prefetch + _BLOCKS_BESIDE_PREFETCH)
        limit = own_memory() // _INDEX_SHARE if settings.index_bytes is None else settings.index_bytes
        self.index: JpegIndex | None = JpegIndex(limit, len(settings.reader.source)) if limit else None

    def start(self, epoch: Epoch, share: RankSlice) -> Job:
        load_codec()  # and not in the workers, who would all wait for it
        return super().start(epoch, share)

    def rest(self) -> None:
        self.memory.clear()

    def close(self) -> None:
        super().close()
        self.index = None  # a thread that still uses it keeps it alive


class _CpuJob(Job):
    """A batch in host memory."""

    pipeline: CpuPipeline

    def _run(self, good: NDArray[np.int64], items: list[Item], planned: Planned) -> None:
        with self._recorder.at("plan", self.number):
            tables, views = planned.tables, planned.stacks.count
            memory = self.pipeline.memory.empty(planned.stacks.shapes, dtype_of(tables.target_type))
            images = Images(memory, planned.stacks.views)
            program = CpuExecutor(tables)
            regions = cast(list[Region], planned.regions().tolist())
            addresses = planned.stacks.addresses(memory).tolist()

        def decode_and_run(part: range) -> None:
            decoder = _decoder(self.settings.fancy_upsampling)
            with self._recorder.at(batch=self.number) as clock:
                self._workers.doing(clock)
                for some in self._together(part, items):
                    if self.cancelled:
                        return
                    places = good[some.start : some.stop].tolist()
                    indices = self.indices[places].tolist()
                    clock.among("decode", indices)
                    outcomes = self._decode(decoder, [items[i] for i in some], [regions[i] for i in some])
                    for place, lines in decoder.messages.items():
                        self.warn(places[place], lines)
                    clock.among("augment", indices)
                    runs = []
                    for i, k, outcome in zip(some, places, outcomes, strict=True):
                        if isinstance(outcome, DecodeError):
                            self.fail(k, outcome)
                            continue
                        pixels, by, in_part = outcome
                        clock.count("parts", in_part)
                        clock.count(("decoded_by", self.given if isinstance(items[i], DecodedImage) else by))
                        # Of its first row: all of it has gaps where more than the region was decoded.
                        at, pitch, (y, x, _, _) = address(pixels[0]), pixels.strides[0], regions[i]
                        runs += [(row, at, pitch, y, x, addresses[row]) for row in range(i * views, (i + 1) * views)]
                    for row in program.run_some(runs, max_pixels=self.settings.max_pixels):
                        self.fail(int(good[row // views]), DecodeError(_NO_ROOM))
                    outcomes.clear()

        self._each_part(len(items), decode_and_run, lambda: self.ran(images, good), _samples_per_task(items))

    def _together(self, part: range, items: Sequence[Item]) -> list[range]:
        """Which samples of a task are decoded in one call, and then augmented in one.

        For all of them a thread waits once for its turn at the interpreter, which is long where threads are many. Where
        they are few, it is better that the kernels find the pixels in the cache.
        """
        most = min(len(part), self._workers.threads)
        if any(isinstance(items[i], PendingCacheEntry) for i in part):
            most = 1  # such pixels may be in the decoder's memory until it decodes again
        return [part[begin : begin + most] for begin in range(0, len(part), most)]

    def _decode(
        self, decoder: CpuDecoder, items: Sequence[Item], regions: Sequence[Region]
    ) -> list[DecodeResult | DecodeError]:
        """The pixels of the regions of these samples; of what goes into a cache, of one alone."""
        (first, *others) = items
        if not isinstance(first, PendingCacheEntry):
            return decoder.decode_batch(
                cast(Sequence[EncodedImage | DecodedImage], items), regions, index=self.pipeline.index
            )
        assert self.settings.reader.decoded is not None and not others
        y0, x0, y1, x1 = regions[0]
        try:
            pixels = first.decode(decoder, self.settings.reader.decoded)
        except DecodeError as error:
            return [error]
        return [DecodeResult(pixels[y0:y1, x0:x1], decoder.decoded_by)]
