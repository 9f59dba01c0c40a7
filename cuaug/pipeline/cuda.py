"""Batches on a GPU: workers read and parse, one producer thread decodes and launches, events hand over.

The producer owns a stream and a ring of arenas; an arena holds a slot of device memory for each image of a batch. For
each batch it waits on the host until the arena's last reader has run (the hardware JPEG decoder may not wait for work
queued on its stream), decodes, launches the kernels into fresh memory of torch's, and records an event. Taking the
batch makes the consumer's current stream wait for that event and tells torch's allocator of that stream, so the memory
is not reused before the consumer's queued work is done with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.batch import Batch
from cuaug.cache import DevicePixels
from cuaug.codec import CudaDecoder, Header, Pixels
from cuaug.devices.cuda import CudaProgram, forked
from cuaug.errors import DecodeError, DeviceError
from cuaug.interop import dtype_of
from cuaug.pipeline.job import Job, Pipeline
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.reading import Item, Uncached, shrinking
from cuaug.pipeline.settings import Settings
from cuaug.pipeline.stats import Recorder
from cuaug.pipeline.workers import Workers

__all__ = ["CudaPipeline"]

# While the kernels read one arena, the decoder fills the other.
_ARENAS = 2
# A slot grown beyond this by one giant image is given back after its batch.
_KEEP_BYTES = 3 * (21 << 20)


class CudaPipeline(Pipeline):
    """Starts jobs whose images are decoded and augmented on one GPU."""

    def __init__(self, settings: Settings, recorder: Recorder, threads: int, device: torch.device) -> None:
        if reason := forked():
            raise DeviceError(reason)
        super().__init__(settings, recorder, threads)
        self.job = _CudaJob
        self.producer_thread = Workers(1)
        self.producer = _Producer(settings, recorder, threads, device)

    def close(self) -> None:
        super().close()
        self.producer_thread.close()
        self.producer.release()


class _Slot:
    """Device memory for one decoded image, wrapped for the decoder once."""

    def __init__(self) -> None:
        self.memory: torch.Tensor | None = None
        self.wrapped: Any = None

    def hold(self, size: int, producer: _Producer) -> bool:
        """Makes room for so many bytes; True if that took new memory."""
        if self.memory is not None and size <= self.memory.nelement() <= max(size, _KEEP_BYTES):
            return False
        self.memory = self.wrapped = None
        capacity = max(size, min(size * 9 // 8, _KEEP_BYTES))  # some more, for a larger one next time
        self.memory = torch.empty((1, -(-capacity // 3), 3), dtype=torch.uint8, device=producer.device)
        self.wrapped = producer.decoder.wrap(self.memory, producer.stream.cuda_stream)
        return True

    def picture(self, height: int, width: int) -> torch.Tensor:
        """(height, width, 3): the image that was decoded into it."""
        assert self.memory is not None
        return self.memory.view(-1)[: height * width * 3].view(height, width, 3)


class _Arena:
    def __init__(self) -> None:
        self.slots: list[_Slot] = []  # the largest first
        self.free = torch.cuda.Event(blocking=True)  # whoever waits for it sleeps instead of spinning


class _Producer:
    """What the producer thread owns. It is made empty: the CUDA objects belong to that thread."""

    def __init__(self, settings: Settings, recorder: Recorder, threads: int, device: torch.device) -> None:
        self.device = device
        self._settings = settings
        self._recorder = recorder
        self._threads = threads
        self._ready = False
        self._turn = 0

    def _prepare(self) -> None:
        torch.cuda.set_device(self.device)
        # Priority 0 is the lowest there is: training keeps its multiprocessors.
        self.stream = torch.cuda.Stream(self.device, priority=0)
        self.decoder = CudaDecoder(
            self.device.index, fancy_upsampling=self._settings.fancy_upsampling, threads=self._threads
        )
        self._arenas = [_Arena() for _ in range(_ARENAS)]
        self._ready = True

    def release(self) -> None:
        """Gives the device memory back, once what is queued has run."""
        if self._ready:
            self.stream.synchronize()
            self._ready = False
            with torch.cuda.device(self.device):
                del self._arenas, self.decoder

    def produce(self, job: _CudaJob, good: NDArray[np.int64], items: list[Item], planned: Planned) -> None:
        if not self._ready:
            self._prepare()
        arena = self._arenas[self._turn % _ARENAS]
        self._turn += 1
        with torch.cuda.stream(self.stream):
            with self._recorder.stage("decode"):
                arena.free.synchronize()
                pictures, failed = self._pictures(job, good, items, arena)
            with self._recorder.stage("augment"):
                tables, views = planned.tables, planned.views
                images = torch.empty(planned.shape(), dtype=dtype_of(tables.target_type), device=self.device)
                addresses = np.array([picture.data_ptr() for picture in pictures], dtype=np.uint64).repeat(views)
                try:
                    CudaProgram(tables).run(addresses, images.flatten(0, int(views > 1)), skip=failed.repeat(views))
                finally:
                    arena.free.record(self.stream)
                job.ran(images, good)

    def _pictures(
        self, job: _CudaJob, good: NDArray[np.int64], items: list[Item], arena: _Arena
    ) -> tuple[list[torch.Tensor], NDArray[np.bool_]]:
        """Each sample's pixels in device memory, (height, width, 3) uint8, and which of them could not be decoded."""
        failed = np.zeros(len(items), dtype=bool)
        kept = {i: item.tensor for i, item in enumerate(items) if isinstance(item, DevicePixels)}
        others = [i for i in range(len(items)) if i not in kept]
        encoded = [_encoded(items[i]) for i in others]
        slots = self._slots(arena, encoded)
        failed[others] = self._decode(job, good[others], encoded, slots)
        for i, item, slot in zip(others, encoded, slots, strict=True):
            kept[i] = slot.picture(item.height, item.width)
        fresh = {i: item for i, item in enumerate(items) if isinstance(item, Uncached) and not failed[i]}
        if fresh:
            kept.update(self._cached(fresh, kept))
        return [kept[i] for i in range(len(items))], failed

    def _cached(self, fresh: dict[int, Uncached], pictures: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """Scales decoded samples to the size that they have in the cache, and puts them there."""
        small = {i: sample for i, sample in fresh.items() if sample.shrinks}
        made = {i: pictures[i] for i in fresh}
        if small:
            sizes = [sample.height * sample.width * 3 for sample in small.values()]
            rows = torch.empty((len(small), max(sizes)), dtype=torch.uint8, device=self.device)
            addresses = np.array([pictures[i].data_ptr() for i in small], dtype=np.uint64)
            CudaProgram(shrinking(list(small.values()))).run(addresses, rows)
            for (i, sample), row, size in zip(small.items(), rows, sizes, strict=True):
                made[i] = row[:size].view(sample.height, sample.width, 3)
        cache = self._settings.reader.decoded
        assert cache is not None
        cache.put_from_device({sample.index: made[i] for i, sample in fresh.items()})
        return made

    def _slots(self, arena: _Arena, items: list[Header | Pixels]) -> list[_Slot]:
        """A slot for each image. The largest of every batch take the same slots: only those grow large."""
        arena.slots += [_Slot() for _ in range(len(items) - len(arena.slots))]
        sizes = np.array([item.height * item.width * 3 for item in items])
        slots: list[_Slot] = arena.slots[: len(items)]
        grown = False
        for slot, i in zip(arena.slots, np.argsort(-sizes, kind="stable").tolist(), strict=False):
            slots[i] = slot
            grown |= slot.hold(int(sizes[i]), self)
        if grown:
            # Work queued on this stream may still use the memory that torch handed out; the decoder might not wait.
            self.stream.synchronize()
        return slots

    def _decode(
        self, job: _CudaJob, good: NDArray[np.int64], items: list[Header | Pixels], slots: list[_Slot]
    ) -> NDArray[np.bool_]:
        """Fills the slots; which of the images could not be decoded."""
        failed = np.zeros(len(items), dtype=bool)
        outcomes = self.decoder.decode(items, [slot.wrapped for slot in slots], self.stream.cuda_stream)
        for i, outcome in enumerate(outcomes):
            if isinstance(outcome, DecodeError):
                job.fail(int(good[i]), outcome)
                failed[i] = True
            elif outcome is not None:
                # torch keeps a pinned block from reuse until the copy out of it has run.
                pinned = torch.empty(outcome.shape, dtype=torch.uint8, pin_memory=True)
                pinned.numpy()[...] = outcome
                slots[i].picture(*outcome.shape[:2]).copy_(pinned, non_blocking=True)
        return failed


def _encoded(item: Item) -> Header | Pixels:
    assert not isinstance(item, DevicePixels)
    return item.encoded if isinstance(item, Uncached) else item


class _CudaJob(Job):
    """A batch in device memory."""

    pipeline: CudaPipeline

    def _run(self, good: NDArray[np.int64], items: list[Item], planned: Planned) -> None:
        producer = self.pipeline.producer
        self._after(self.pipeline.producer_thread, lambda: producer.produce(self, good, items, planned))

    def _queued(self) -> None:
        self._ready = torch.cuda.Event()
        self._ready.record()  # on the producer's stream, after everything that makes the images

    def take(self) -> Batch:
        batch = super().take()
        current = torch.cuda.current_stream(batch.images.device)
        current.wait_event(self._ready)
        batch.images.record_stream(current)
        return batch
