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
from cuaug.codec import CudaDecoder
from cuaug.devices.cuda import CudaProgram, forked
from cuaug.errors import DecodeError, DeviceError
from cuaug.interop import dtype_of
from cuaug.pipeline.job import Job, Pipeline, Settings
from cuaug.pipeline.reading import Item
from cuaug.pipeline.stats import Recorder
from cuaug.pipeline.workers import Workers
from cuaug.plan import Tables

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

    @property
    def address(self) -> int:
        assert self.memory is not None
        return self.memory.data_ptr()


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

    def produce(self, job: _CudaJob, good: NDArray[np.int64], items: list[Item], tables: Tables, channels: int) -> None:
        if not self._ready:
            self._prepare()
        arena = self._arenas[self._turn % _ARENAS]
        self._turn += 1
        with torch.cuda.stream(self.stream):
            with self._recorder.stage("decode"):
                arena.free.synchronize()
                slots = self._slots(arena, items)
                failed = self._decode(job, good, items, slots)
            with self._recorder.stage("augment"):
                shape, dtype = job.shape(tables, channels), dtype_of(tables.target_type)
                images = torch.empty(shape, dtype=dtype, device=self.device)
                addresses = np.array([slot.address for slot in slots], dtype=np.uint64)
                try:
                    CudaProgram(tables).run(addresses, images, skip=failed)
                finally:
                    arena.free.record(self.stream)
                job.ran(images, good)

    def _slots(self, arena: _Arena, items: list[Item]) -> list[_Slot]:
        """A slot for each image. The largest of every batch take the same slots: only those grow large."""
        arena.slots += [_Slot() for _ in range(len(items) - len(arena.slots))]
        sizes = np.array([item.height * item.width * 3 for item in items])
        slots: list[_Slot] = [arena.slots[0]] * len(items)
        grown = False
        for slot, i in zip(arena.slots, np.argsort(-sizes, kind="stable").tolist(), strict=False):
            slots[i] = slot
            grown |= slot.hold(int(sizes[i]), self)
        if grown:
            # Work queued on this stream may still use the memory that torch handed out; the decoder might not wait.
            self.stream.synchronize()
        return slots

    def _decode(
        self, job: _CudaJob, good: NDArray[np.int64], items: list[Item], slots: list[_Slot]
    ) -> NDArray[np.bool_]:
        """Fills the slots; which of the images could not be decoded."""
        failed = np.zeros(len(items), dtype=bool)
        outcomes = self.decoder.decode(items, [slot.wrapped for slot in slots], self.stream.cuda_stream)
        for i, outcome in enumerate(outcomes):
            if isinstance(outcome, DecodeError):
                job.fail(int(good[i]), outcome)
                failed[i] = True
            elif outcome is not None:
                pixels = torch.from_numpy(np.ascontiguousarray(outcome)).reshape(-1)
                memory = slots[i].memory
                assert memory is not None
                memory.view(-1)[: len(pixels)].copy_(pixels)
        return failed


class _CudaJob(Job):
    """A batch in device memory."""

    pipeline: CudaPipeline

    def _run(self, good: NDArray[np.int64], items: list[Item], tables: Tables, channels: int) -> None:
        producer = self.pipeline.producer
        self._after(self.pipeline.producer_thread, lambda: producer.produce(self, good, items, tables, channels))

    def _queued(self) -> None:
        self._ready = torch.cuda.Event()
        self._ready.record()  # on the producer's stream, after everything that makes the images

    def take(self) -> Batch:
        batch = super().take()
        current = torch.cuda.current_stream(batch.images.device)
        current.wait_event(self._ready)
        batch.images.record_stream(current)
        return batch
