"""Batches on the CPU: each worker decodes its samples and runs their plans straight into their slots of the batch."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cuaug.cache import DevicePixels
from cuaug.codec import HostDecoder, JpegIndex, Pixels, nv
from cuaug.devices import HostProgram
from cuaug.errors import DecodeError
from cuaug.interop import dtype_of
from cuaug.machine import own_memory
from cuaug.pipeline.choices import SAMPLES_PER_TASK
from cuaug.pipeline.images import Images
from cuaug.pipeline.job import Job, Pipeline
from cuaug.pipeline.memory import Recycler
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.reading import Item, Uncached
from cuaug.pipeline.settings import Settings
from cuaug.pipeline.stats import Recorder
from cuaug.sampling import Epoch, Share

__all__ = ["HostPipeline"]

_per_thread = threading.local()
# Beside those made ready: a batch in the consumer's hands, the one it let go last, and one to spare.
_BLOCKS_BESIDE_PREFETCH = 3
_INDEX_SHARE = 64  # one part of so many of the memory that is available
_PIXELS_PER_TASK = 1 << 21  # one picture of 1920 x 1080, eight of 500 x 375: 13 ms of decoding


def _samples_per_task(items: Sequence[Item]) -> int:
    """Fewer where pictures are large: at an epoch's end one thread waits for the last task of another."""
    pixels = sum(item.height * item.width for item in items)
    return max(1, min(SAMPLES_PER_TASK, _PIXELS_PER_TASK * len(items) // pixels))


def _decoder(fancy_upsampling: bool) -> HostDecoder:
    """This thread's own decoder: one shared by two threads corrupts the heap."""
    decoders: dict[bool, HostDecoder] = _per_thread.__dict__.setdefault("decoders", {})
    if fancy_upsampling not in decoders:
        decoders[fancy_upsampling] = HostDecoder(fancy_upsampling=fancy_upsampling)
    return decoders[fancy_upsampling]


class HostPipeline(Pipeline):
    """Starts jobs on worker threads that read, plan, decode and augment."""

    def __init__(self, settings: Settings, recorder: Recorder, threads: int) -> None:
        super().__init__(settings, recorder, threads)
        self.job = _HostJob
        self.memory = Recycler(keep=settings.prefetch + _BLOCKS_BESIDE_PREFETCH)
        limit = own_memory() // _INDEX_SHARE if settings.index_bytes is None else settings.index_bytes
        self.index: JpegIndex | None = JpegIndex(limit) if limit else None

    def start(self, epoch: Epoch, share: Share) -> Job:
        # Imported here and not by the workers, who would all wait for it.
        nv()
        return super().start(epoch, share)

    def rest(self) -> None:
        self.memory.clear()

    def close(self) -> None:
        super().close()
        self.index = None  # a thread that still uses it keeps it alive


class _HostJob(Job):
    """A batch in host memory."""

    pipeline: HostPipeline

    def _run(self, good: NDArray[np.int64], items: list[Item], planned: Planned) -> None:
        with self._recorder.at("plan", self.number):
            tables, views = planned.tables, planned.stacks.count
            memory = self.pipeline.memory.empty(planned.stacks.shapes, dtype_of(tables.target_type))
            images = Images(memory, planned.stacks.views)
            program = HostProgram(tables)
            regions, addresses = planned.regions().tolist(), planned.stacks.addresses(memory).tolist()

        def decode_and_run(part: range) -> None:
            decoder = _decoder(self.settings.fancy_upsampling)
            with self._recorder.at(batch=self.number) as clock:
                self._workers.doing(clock)
                for i in part:
                    if self.cancelled:
                        return
                    y0, x0, y1, x1 = regions[i]
                    k = int(good[i])
                    index = int(self.indices[k])
                    clock.at("decode", index)
                    try:
                        pixels = self._decode(decoder, items[i], (y0, x0, y1, x1))
                    except DecodeError as error:
                        self.fail(k, error)
                        continue
                    clock.at("augment", index)
                    clock.count("parts", decoder.in_part)
                    clock.count(("decoded_by", self.given if isinstance(items[i], Pixels) else decoder.decoded_by))
                    for row in range(i * views, (i + 1) * views):
                        program.run(row, pixels, addresses[row], y=y0, x=x0)

        self._each_part(len(items), decode_and_run, lambda: self.ran(images, good), _samples_per_task(items))

    def _decode(self, decoder: HostDecoder, item: Item, region: tuple[int, int, int, int]) -> NDArray[np.uint8]:
        if isinstance(item, Uncached):
            assert self.settings.reader.decoded is not None
            y0, x0, y1, x1 = region
            return item.decode(decoder, self.settings.reader.decoded)[y0:y1, x0:x1]
        assert not isinstance(item, DevicePixels)
        return decoder.decode(item, region, index=self.pipeline.index)
