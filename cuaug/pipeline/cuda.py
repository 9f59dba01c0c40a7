"""Batches on a GPU: workers read and parse, one producer thread decodes and launches, events hand over.

The producer owns a stream and a ring of arenas; an arena holds all that a batch needs on its way: a slot of device
memory for each image, and the workspaces of its uploads and passes. For each batch it waits on the host until all that
used the arena has run (the hardware JPEG decoder may not wait for work queued on its stream), decodes, launches the
kernels into memory of torch's for the images, and records an event. Taking the batch makes the consumer's current
stream wait for that event and tells torch's allocator of that stream.

The images are the consumer's to keep, for as long as it likes and on whatever streams. So their memory does not come
from a ring, which would have to guess when they are let go, but from torch's caching allocator: it sees the last
reference go, has been told of the streams (`record_stream`), and hands the same block out again once the work that they
had queued by then has run. Batches of one size ask the driver for no memory after the first few.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.batch import Batch, each_tensor
from cuaug.codec import CudaDecoder, DecodedImage, EncodedImage, EncodedJpeg
from cuaug.devices import streams
from cuaug.devices.cuda import CudaExecutor, Workspace, forked
from cuaug.errors import DecodeError, DeviceError
from cuaug.interop import dtype_of
from cuaug.pipeline.decode_autotune import DecodeAutotuner
from cuaug.pipeline.images import Images
from cuaug.pipeline.job import Job
from cuaug.pipeline.pipeline import Pipeline
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.reader import Item, PendingCacheEntry, shrinking
from cuaug.pipeline.settings import BatchConfig
from cuaug.pipeline.thread_pool import ThreadPool
from cuaug.profiling.cuda_events import CudaClock, CudaEvents
from cuaug.profiling.recorder import Recorder

__all__ = ["CudaPipeline"]

# While the kernels read one arena, the decoder fills the other.
_ARENAS = 2
# A slot grown beyond this by one giant image is given back after its batch.
_KEEP_BYTES = 3 * (21 << 20)
_ENCODED = {EncodedImage, EncodedJpeg}


class CudaPipeline(Pipeline):
    """Starts jobs whose images are decoded and augmented on one GPU."""

    def __init__(self, settings: BatchConfig, recorder: Recorder, threads: int, device: torch.device) -> None:
        if reason := forked():
            raise DeviceError(reason)
        super().__init__(settings, recorder, threads)
        self.job = _CudaJob
        self.ranges = torch.cuda.nvtx
        self.producer_thread = ThreadPool(1, "cuaug-producer")
        self.producer = _Producer(settings, recorder, threads, device)

    @property
    def pools(self) -> list[ThreadPool]:
        return [self.workers, self.producer_thread]

    def close(self) -> None:
        super().close()
        self.producer.release()


class _Slot:
    """Device memory for one decoded image, wrapped for the decoder once."""

    def __init__(self) -> None:
        self.memory: torch.Tensor | None = None
        self.wrapped: Any = None

    def take(self, size: int, producer: _Producer) -> tuple[int, int]:
        """Takes new memory for so many bytes, in place of what it had: its address, and how many it has."""
        self.memory = self.wrapped = None  # before more is asked for
        pixels = -(-max(size, min(size * 9 // 8, _KEEP_BYTES)) // 3)  # some more, for a larger one next time
        self.memory = torch.empty((1, pixels, 3), dtype=torch.uint8, device=producer.device)
        self.wrapped = producer.decoder.wrap(self.memory, producer.stream.cuda_stream)
        return self.memory.data_ptr(), 3 * pixels


class _Arena:
    """What one batch uses until its images are made, and the next batch but one again.

    Attributes:
        slots: for what the decoder writes, the largest first.
        addresses, capacities: (n,) of these, in bytes.
        pixels: for pictures that come from the host.
        work: for the kernels.
        scaled: pictures that were made smaller for a cache.
        free: has passed once nothing uses them any more.
        times: when the GPU worked on the batch.
    """

    def __init__(self, device: torch.device, times: CudaEvents) -> None:
        self.times = times
        self.slots: list[_Slot] = []
        self.addresses: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self.capacities: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.pixels, self.work = Workspace(device), Workspace(device)
        self.scaled: dict[int, torch.Tensor] = {}
        self.free = torch.cuda.Event(blocking=True)  # whoever waits for it sleeps instead of spinning


class _Producer:
    """What the producer thread owns. It is made empty: the CUDA objects belong to that thread."""

    def __init__(self, settings: BatchConfig, recorder: Recorder, threads: int, device: torch.device) -> None:
        self.device = device
        self._settings = settings
        self._recorder = recorder
        self.splits = DecodeAutotuner(settings.load_hint, settings.decode_threads, threads)
        self._tell_split()
        self._ready = False
        self._turn = 0
        self._most_images = 0

    def _prepare(self, images: int) -> None:
        torch.cuda.set_device(self.device)
        self.stream = streams.take(self.device)
        self._open_decoder(images)
        clock = CudaClock(self._recorder, self.stream)
        self._arenas = [_Arena(self.device, CudaEvents(clock)) for _ in range(_ARENAS)]
        self._ready = True

    def _tell_split(self) -> None:
        hint, threads = self.splits.split
        self._recorder.setup = replace(
            self._recorder.setup, load_hint=hint, decode_threads=threads, split_because=self.splits.because
        )

    def _open_decoder(self, images: int) -> None:
        """A decoder for batches of up to so many images, with the split that is to be had."""
        self._split = split = self.splits.split
        self.decoder = CudaDecoder(
            self.device.index,
            fancy_upsampling=self._settings.fancy_upsampling,
            threads=split.max_num_cpu_threads,
            load_hint=split.load_hint,
        )
        self.decoder.prime(images, self.stream.cuda_stream)
        self._most_images = images

    def release(self) -> None:
        """Gives the device memory back, once what is queued has run."""
        if self._ready:
            self.stream.synchronize()
            self._ready = False
            with torch.cuda.device(self.device):
                del self._arenas, self.decoder
            del self.stream

    def produce(
        self, job: _CudaJob, good: NDArray[np.int64], items: list[Item], planned: Planned, parts: _Parts
    ) -> None:
        most = max(len(items), self._settings.most_images)
        if not self._ready:
            self._prepare(most)
        elif most > self._most_images:  # the chain has been edited, and mixes more now
            self.stream.synchronize()
            self._open_decoder(most)
        arena = self._arenas[self._turn % _ARENAS]
        self._turn += 1
        producer_thread = job.pipeline.producer_thread
        with torch.cuda.stream(self.stream):
            with self._recorder.at("wait_for_gpu", job.number) as clock:
                arena.free.synchronize()
                arena.times.read()
                arena.scaled.clear()
                clock.at("decode")
                producer_thread.doing(clock)
                arena.times.begin(job.number)
                try:
                    addresses, failed = self._pictures(job, good, items, parts, arena)
                    addresses -= parts.missing
                    clock.at("augment")
                    arena.times.decoded()
                    tables, stacks, views = planned.tables, planned.stacks, planned.stacks.count
                    dtype = dtype_of(tables.target_type)
                    targets = [torch.empty(shape, dtype=dtype, device=self.device) for shape in stacks.shapes]
                    CudaExecutor(tables).run(
                        addresses.repeat(views),
                        targets[0],
                        finals=stacks.addresses(targets),
                        pitches=parts.pitches.repeat(views),
                        skip=failed.repeat(views) if failed.any() else None,
                        workspace=arena.work,
                    )
                    arena.times.end()
                finally:
                    arena.free.record(self.stream)
            job.finishing(producer_thread)
            job.ran(Images(targets, stacks.views), good)

    def _pictures(
        self, job: _CudaJob, good: NDArray[np.int64], items: list[Item], parts: _Parts, arena: _Arena
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Where each sample's pixels are, (height, width, 3) uint8, and which of them could not be decoded."""
        addresses, failed = np.zeros(len(items), dtype=np.uint64), np.zeros(len(items), dtype=bool)
        arrays: dict[int, NDArray[np.uint8]] = {}
        if all_encoded := set(map(type, items)) <= _ENCODED:  # as by far most batches are
            places, headers, sizes = np.arange(len(items)), cast(list[EncodedImage], items), parts.sizes
        else:
            places, headers = _sorted_out(items, addresses, arrays)
            sizes = np.array([3 * header.height * header.width for header in headers], dtype=np.int64)
        slots, addresses[places] = self._slots(arena, sizes)
        kinds = [header.for_gpu for header in headers]
        by = Counter(gpu=kinds.count(True), cpu=kinds.count(False))
        decoder = self.decoder  # `_decode` may put another in its place
        left = [(k, outcome) for k, outcome in enumerate(self._decode(headers, slots)) if outcome is not None]
        for k, lines in decoder.messages.items():
            job.warn(int(good[places[k]]), lines)
        for k, outcome in left:
            i = int(places[k])
            by["gpu" if kinds[k] else "cpu"] -= 1
            if isinstance(outcome, DecodeError):
                job.fail(int(good[i]), outcome)
                failed[i] = True
            else:
                by["pillow"] += 1
                arrays[i] = outcome
        uploaded = dict(zip(arrays, arena.pixels.upload(*arrays.values()) if arrays else [], strict=True))
        for i, memory in uploaded.items():
            addresses[i] = memory.data_ptr()
        if not all_encoded:
            others = set(range(len(items))) - set(places.tolist())
            by += Counter("source" if isinstance(items[i], PendingCacheEntry) else job.given for i in others)
            fresh = {i: item for i, item in enumerate(items) if isinstance(item, PendingCacheEntry) and not failed[i]}
            memories = {i: slot.memory for i, slot in zip(places.tolist(), slots, strict=True)} | uploaded
            pictures = {i: _picture(memories[i], item.encoded) for i, item in fresh.items()}
            arena.scaled = self._cached(fresh, pictures) if fresh else {}
            for i, picture in arena.scaled.items():
                addresses[i] = picture.data_ptr()
        self._recorder.decoded(by)
        return addresses, failed

    def _decode(self, headers: list[EncodedImage], slots: list[_Slot]) -> list[NDArray[np.uint8] | DecodeError | None]:
        """As `CudaDecoder.decode`. While the split is being chosen, it waits for the GPU and takes the time."""
        wrapped = [slot.wrapped for slot in slots]
        if self.splits.done:
            return self.decoder.decode_batch(headers, wrapped, self.stream.cuda_stream)
        start = time.perf_counter()
        outcomes = self.decoder.decode_batch(headers, wrapped, self.stream.cuda_stream)
        self.stream.synchronize()
        pixels = sum(header.height * header.width for header in headers)
        self.splits.add(time.perf_counter() - start, len(headers), pixels)
        if self.splits.split != self._split:
            self._open_decoder(self._most_images)
        self._tell_split()
        return outcomes

    def _cached(
        self, fresh: dict[int, PendingCacheEntry], pictures: dict[int, torch.Tensor]
    ) -> dict[int, torch.Tensor]:
        """Scales decoded samples to the size that they have in the cache, and puts them there."""
        small = {i: sample for i, sample in fresh.items() if sample.shrinks}
        made = {i: pictures[i] for i in fresh}
        if small:
            sizes = [sample.height * sample.width * 3 for sample in small.values()]
            rows = torch.empty((len(small), max(sizes)), dtype=torch.uint8, device=self.device)
            addresses = np.array([pictures[i].data_ptr() for i in small], dtype=np.uint64)
            CudaExecutor(shrinking(list(small.values()))).run(addresses, rows)
            for (i, sample), row, size in zip(small.items(), rows, sizes, strict=True):
                made[i] = row[:size].view(sample.height, sample.width, 3)
        cache = self._settings.reader.decoded
        assert cache is not None
        cache.put_from_device({sample.index: made[i] for i, sample in fresh.items()})
        return made

    def _slots(self, arena: _Arena, sizes: NDArray[np.int64]) -> tuple[list[_Slot], NDArray[np.uint64]]:
        """A slot for each image of so many bytes, and their addresses.

        The largest of every batch take the same slots: only those grow large.
        """
        n = len(sizes)
        if (more := n - len(arena.slots)) > 0:
            arena.slots += [_Slot() for _ in range(more)]
            arena.addresses = np.pad(arena.addresses, (0, more))
            arena.capacities = np.pad(arena.capacities, (0, more))
        order = (-sizes).argsort(kind="stable")
        wanted, held = sizes[order], arena.capacities[:n]
        unfit = ((held < wanted) | (held > np.maximum(wanted, _KEEP_BYTES))).nonzero()[0].tolist()
        arena.capacities[unfit] = 0  # until they have what they ask for, which may fail
        for k in unfit:
            arena.addresses[k], arena.capacities[k] = arena.slots[k].take(int(wanted[k]), self)
        if unfit:
            # Work queued on this stream may still use the memory that torch handed out; the decoder might not wait.
            self.stream.synchronize()
        ranks = order.argsort()
        return [arena.slots[k] for k in ranks.tolist()], arena.addresses[ranks]


def _sorted_out(
    items: list[Item], addresses: NDArray[np.uint64], arrays: dict[int, NDArray[np.uint8]]
) -> tuple[NDArray[np.int64], list[EncodedImage]]:
    """Which items have to be decoded; of the others it notes the address, or the pixels to upload."""
    places, headers = [], []
    for i, item in enumerate(items):
        encoded = item.encoded if isinstance(item, PendingCacheEntry) else item
        if isinstance(encoded, EncodedImage):
            places.append(i)
            headers.append(encoded)
        elif isinstance(encoded, DecodedImage):
            arrays[i] = encoded.array
        else:
            addresses[i] = encoded.tensor.data_ptr()
    return np.array(places, dtype=np.int64), headers


def _picture(memory: torch.Tensor | None, size: EncodedImage | DecodedImage) -> torch.Tensor:
    """(height, width, 3): the picture at the start of that memory."""
    assert memory is not None
    return memory.view(-1)[: size.height * size.width * 3].view(size.height, size.width, 3)


class _Parts:
    """How much of each picture is decoded: all, but for JPEGs of which the part that holds the region can be cut out.

    Attributes:
        sizes: (n,) bytes that are decoded.
        pitches: (n,) bytes from one row of them to the next.
        missing: (n,) bytes by which the whole picture would begin before them.
    """

    def __init__(self, planned: Planned) -> None:
        heights, widths = planned.sources
        self.pitches = 3 * widths
        self.sizes = heights * self.pitches
        self.missing = np.zeros(len(widths), dtype=np.uint64)

    def cut(self, i: int, header: EncodedJpeg, region: tuple[int, int, int, int]) -> EncodedJpeg:
        """The header of the i-th picture's part, or its own."""
        part = header.crop_jpeg(region)
        if part is None:
            return header
        alone, (y0, x0, _, _) = part
        self.pitches[i] = pitch = 3 * alone.width
        self.sizes[i] = alone.height * pitch
        self.missing[i] = (region[0] - y0) * pitch + 3 * (region[1] - x0)
        return alone


class _CudaJob(Job):
    """A batch in device memory."""

    pipeline: CudaPipeline

    def _run(self, good: NDArray[np.int64], items: list[Item], planned: Planned) -> None:
        parts = _Parts(planned)
        cuttable = [i for i, item in enumerate(items) if type(item) is EncodedJpeg and item.restart_interval]
        regions = planned.regions().tolist() if cuttable else []

        def cut(some: range) -> None:
            with self._recorder.at("parse", batch=self.number) as clock:
                self._workers.doing(clock)
                for i in cuttable[some.start : some.stop]:
                    whole = cast(EncodedJpeg, items[i])
                    items[i] = parts.cut(i, whole, regions[i])
                    clock.count("parts", items[i] is not whole)

        def produce() -> None:
            then = partial(self.pipeline.producer.produce, self, good, items, planned, parts)
            self.pipeline.producer_thread.submit(partial(self._go_on, then), self.number)

        if cuttable:
            self._each_part(len(cuttable), cut, produce)
        else:
            produce()

    def _queued(self) -> None:
        self._ready = torch.cuda.Event()
        self._ready.record()  # on the producer's stream, after everything that makes the images

    def take(self) -> Batch:
        batch = super().take()
        current = torch.cuda.current_stream(self.pipeline.producer.device)
        current.wait_event(self._ready)
        for tensor in each_tensor(batch.images):
            tensor.record_stream(current)
        return batch
