"""Batches on a GPU: worker threads read and parse; one producer thread decodes and launches kernels.

The producer thread owns a stream and a ring of arenas. An arena holds the memory of a batch in progress: a slot of
device memory per image, and workspaces for uploads and passes. For each batch the producer waits on the CPU until the
arena's last work has run, as the hardware JPEG decoder may not wait for work queued on its stream. Then it decodes,
launches the kernels and records an event. `take` makes the consumer's current stream wait for that event.

The output images come from torch's caching allocator, not from a ring: the consumer may keep them for any time, on any
stream. The allocator sees the last reference go. It knows the streams (`record_stream`), and reuses a block once their
queued work has run. After a few batches of one size it needs no memory from the driver.
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
from cuaug.devices.cuda import CudaExecutor, Workspace, fork_error
from cuaug.errors import DecodeError, DeviceError
from cuaug.interop import dtype_of
from cuaug.pipeline.config import BatchConfig
from cuaug.pipeline.decode_autotune import DecodeAutotuner
from cuaug.pipeline.job import Job
from cuaug.pipeline.label_upload import upload_labels
from cuaug.pipeline.pipeline import Pipeline
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.reader import Item, PendingCacheEntry, plan_shrinking
from cuaug.pipeline.samples import Images
from cuaug.pipeline.thread_pool import ThreadPool
from cuaug.profiling.cuda_events import CudaClock, CudaEvents
from cuaug.profiling.recorder import Recorder

__all__ = ["CudaPipeline"]

# The decoder fills one arena while the kernels read the other.
_ARENAS = 2
# A slot larger than this, grown by one giant image, is freed after its batch.
_MAX_KEPT_BYTES = 3 * (21 << 20)
_ENCODED = {EncodedImage, EncodedJpeg}


class CudaPipeline(Pipeline):
    """Decodes and augments on one GPU."""

    def __init__(self, config: BatchConfig, recorder: Recorder, threads: int, device: torch.device) -> None:
        if reason := fork_error():
            raise DeviceError(reason)
        super().__init__(config, recorder, threads)
        self.job_type = _CudaJob
        self.ranges = torch.cuda.nvtx
        self.producer_thread = ThreadPool(1, "cuaug-producer")
        self.producer = _Producer(config, recorder, threads, device)

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

    def reallocate(self, size: int, producer: _Producer) -> tuple[int, int]:
        """Frees the memory and allocates at least `size` bytes. Returns the address and the capacity."""
        self.memory = self.wrapped = None
        pixels = -(-max(size, min(size * 9 // 8, _MAX_KEPT_BYTES)) // 3)  # an eighth more, for a larger image later
        self.memory = torch.empty((1, pixels, 3), dtype=torch.uint8, device=producer.device)
        self.wrapped = producer.decoder.wrap(self.memory, producer.stream.cuda_stream)
        return self.memory.data_ptr(), 3 * pixels


class _Arena:
    """The memory of one batch in progress.

    Attributes:
        slots: for decoded images, the largest first.
        addresses, capacities: (n,) of the slots; capacities in bytes.
        uploads: workspace for images that arrive decoded in host memory.
        work: workspace for the kernels.
        shrunken: images that were scaled down for a cache, by row.
        free: event that passes once nothing uses the arena.
        times: times of the GPU's work.
    """

    def __init__(self, device: torch.device, times: CudaEvents) -> None:
        self.times = times
        self.slots: list[_Slot] = []
        self.addresses: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self.capacities: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.uploads, self.work = Workspace(device), Workspace(device)
        self.shrunken: dict[int, torch.Tensor] = {}
        self.free = torch.cuda.Event(blocking=True)  # waiting for it sleeps instead of spinning


class _Producer:
    """The producer thread's resources. That thread creates its CUDA objects, not the constructor."""

    def __init__(self, config: BatchConfig, recorder: Recorder, threads: int, device: torch.device) -> None:
        self.device = device
        self._config = config
        self._recorder = recorder
        self.autotuner = DecodeAutotuner(config.load_hint, config.decode_threads, threads)
        self._record_split()
        self._prepared = False
        self._batches = 0
        self._max_images = 0

    def _prepare(self, images: int) -> None:
        torch.cuda.set_device(self.device)
        self.stream = streams.acquire(self.device)
        self._open_decoder(images)
        clock = CudaClock(self._recorder, self.stream)
        self._arenas = [_Arena(self.device, CudaEvents(clock)) for _ in range(_ARENAS)]
        self._prepared = True

    def _record_split(self) -> None:
        hint, threads = self.autotuner.split
        self._recorder.setup = replace(
            self._recorder.setup, load_hint=hint, decode_threads=threads, split_because=self.autotuner.because
        )

    def _open_decoder(self, images: int) -> None:
        """Opens a decoder for batches of up to `images` images, with the autotuner's split."""
        self._split = split = self.autotuner.split
        self.decoder = CudaDecoder(
            self.device.index,
            fancy_upsampling=self._config.fancy_upsampling,
            threads=split.max_num_cpu_threads,
            load_hint=split.load_hint,
        )
        self.decoder.prime(images, self.stream.cuda_stream)
        self._max_images = images

    def release(self) -> None:
        """Frees the device memory, after all queued work has run."""
        if self._prepared:
            self.stream.synchronize()
            self._prepared = False
            with torch.cuda.device(self.device):
                del self._arenas, self.decoder
            del self.stream

    def produce(
        self, job: _CudaJob, positions: NDArray[np.int64], items: list[Item], planned: Planned, crops: _JpegCrops
    ) -> None:
        """Decodes and augments a batch."""
        max_images = max(len(items), self._config.max_images)
        if not self._prepared:
            self._prepare(max_images)
        elif max_images > self._max_images:  # the user edited the chain, which now mixes more images
            self.stream.synchronize()
            self._open_decoder(max_images)
        arena = self._arenas[self._batches % _ARENAS]
        self._batches += 1
        producer_thread = job.pipeline.producer_thread
        with torch.cuda.stream(self.stream):
            with self._recorder.at("wait_for_gpu", job.number) as clock:
                arena.free.synchronize()
                arena.times.read()
                arena.shrunken.clear()
                clock.at("decode")
                producer_thread.track(clock)
                arena.times.begin(job.number)
                try:
                    addresses, failed = self._decode_batch(job, positions, items, crops, arena)
                    addresses -= crops.offsets
                    clock.at("augment")
                    arena.times.decoded()
                    tables, stacks, views = planned.tables, planned.stacks, planned.stacks.count
                    dtype = dtype_of(tables.target_type)
                    outputs = [torch.empty(shape, dtype=dtype, device=self.device) for shape in stacks.shapes]
                    CudaExecutor(tables).run(
                        addresses.repeat(views),
                        outputs[0],
                        target_addresses=stacks.addresses(outputs),
                        pitches=crops.pitches.repeat(views),
                        skip=failed.repeat(views) if failed.any() else None,
                        workspace=arena.work,
                    )
                    arena.times.end()
                finally:
                    arena.free.record(self.stream)
            job.track_batch(producer_thread)
            job.finish_run(Images(outputs, stacks.views), positions)

    def _decode_batch(
        self, job: _CudaJob, positions: NDArray[np.int64], items: list[Item], crops: _JpegCrops, arena: _Arena
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Decodes or uploads all images. Returns (N,) addresses of (height, width, 3) uint8, and (N,) failed."""
        addresses, failed = np.zeros(len(items), dtype=np.uint64), np.zeros(len(items), dtype=bool)
        arrays: dict[int, NDArray[np.uint8]] = {}
        if all_encoded := set(map(type, items)) <= _ENCODED:  # the common case
            rows, headers, sizes = np.arange(len(items)), cast(list[EncodedImage], items), crops.sizes
        else:
            rows, headers = _select_encoded(items, addresses, arrays)
            sizes = np.array([3 * header.height * header.width for header in headers], dtype=np.int64)
        slots, addresses[rows] = self._reserve_slots(arena, sizes)
        on_gpu = [header.for_gpu for header in headers]
        decoded_by = Counter(gpu=on_gpu.count(True), cpu=on_gpu.count(False))
        decoder = self.decoder  # `_decode` may replace it
        results = self._decode(headers, slots)
        for n, lines in decoder.messages.items():
            job.warn(int(positions[rows[n]]), lines)
        for n, result in enumerate(results):
            if result is None:
                continue
            i = int(rows[n])
            decoded_by["gpu" if on_gpu[n] else "cpu"] -= 1
            if isinstance(result, DecodeError):
                job.add_error(int(positions[i]), result)
                failed[i] = True
            else:
                decoded_by["pillow"] += 1
                arrays[i] = result
        uploaded = dict(zip(arrays, arena.uploads.upload(*arrays.values()) if arrays else [], strict=True))
        for i, memory in uploaded.items():
            addresses[i] = memory.data_ptr()
        if not all_encoded:
            origin = job.config.reader.origin_of_decoded
            others = set(range(len(items))) - set(rows.tolist())
            decoded_by += Counter("source" if isinstance(items[i], PendingCacheEntry) else origin for i in others)
            entries = {i: item for i, item in enumerate(items) if isinstance(item, PendingCacheEntry) and not failed[i]}
            memories = {i: slot.memory for i, slot in zip(rows.tolist(), slots, strict=True)} | uploaded
            images = {i: _image_view(memories[i], item.encoded) for i, item in entries.items()}
            arena.shrunken = self._fill_cache(entries, images) if entries else {}
            for i, image in arena.shrunken.items():
                addresses[i] = image.data_ptr()
        self._recorder.add({("decoded_by", name): count for name, count in decoded_by.items() if count})
        return addresses, failed

    def _decode(self, headers: list[EncodedImage], slots: list[_Slot]) -> list[NDArray[np.uint8] | DecodeError | None]:
        """As `CudaDecoder.decode`. While autotuning, waits for the GPU and measures the time."""
        wrapped = [slot.wrapped for slot in slots]
        if self.autotuner.done:
            return self.decoder.decode_batch(headers, wrapped, self.stream.cuda_stream)
        start = time.perf_counter()
        results = self.decoder.decode_batch(headers, wrapped, self.stream.cuda_stream)
        self.stream.synchronize()
        pixels = sum(header.height * header.width for header in headers)
        self.autotuner.add(time.perf_counter() - start, len(headers), pixels)
        if self.autotuner.split != self._split:
            self._open_decoder(self._max_images)
        self._record_split()
        return results

    def _fill_cache(
        self, entries: dict[int, PendingCacheEntry], images: dict[int, torch.Tensor]
    ) -> dict[int, torch.Tensor]:
        """Scales decoded images to their cached sizes, caches and returns them, by row."""
        shrinking = {i: entry for i, entry in entries.items() if entry.shrinks}
        cached = {i: images[i] for i in entries}
        if shrinking:
            sizes = [entry.height * entry.width * 3 for entry in shrinking.values()]
            outputs = torch.empty((len(shrinking), max(sizes)), dtype=torch.uint8, device=self.device)
            addresses = np.array([images[i].data_ptr() for i in shrinking], dtype=np.uint64)
            CudaExecutor(plan_shrinking(list(shrinking.values()))).run(addresses, outputs)
            for (i, entry), output, size in zip(shrinking.items(), outputs, sizes, strict=True):
                cached[i] = output[:size].view(entry.height, entry.width, 3)
        cache = self._config.reader.decoded
        assert cache is not None
        cache.put_from_device({entry.index: cached[i] for i, entry in entries.items()})
        return cached

    def _reserve_slots(self, arena: _Arena, sizes: NDArray[np.int64]) -> tuple[list[_Slot], NDArray[np.uint64]]:
        """Slots of at least these sizes in bytes, and their addresses.

        The largest images of every batch take the same slots, so that few slots grow large.
        """
        n = len(sizes)
        if (missing := n - len(arena.slots)) > 0:
            arena.slots += [_Slot() for _ in range(missing)]
            arena.addresses = np.pad(arena.addresses, (0, missing))
            arena.capacities = np.pad(arena.capacities, (0, missing))
        order = (-sizes).argsort(kind="stable")
        needed, capacities = sizes[order], arena.capacities[:n]
        unfit = (capacities < needed) | (capacities > np.maximum(needed, _MAX_KEPT_BYTES))
        unfit_slots = unfit.nonzero()[0].tolist()
        arena.capacities[unfit_slots] = 0  # until the allocation, which may fail, has succeeded
        for k in unfit_slots:
            arena.addresses[k], arena.capacities[k] = arena.slots[k].reallocate(int(needed[k]), self)
        if unfit_slots:
            # Earlier work on this stream may still use memory from torch's allocator; the decoder might not wait.
            self.stream.synchronize()
        ranks = order.argsort()
        return [arena.slots[k] for k in ranks.tolist()], arena.addresses[ranks]


def _select_encoded(
    items: list[Item], addresses: NDArray[np.uint64], arrays: dict[int, NDArray[np.uint8]]
) -> tuple[NDArray[np.int64], list[EncodedImage]]:
    """The rows and headers to decode. Enters the other items in `addresses`, or in `arrays` for upload."""
    rows, headers = [], []
    for i, item in enumerate(items):
        image = item.encoded if isinstance(item, PendingCacheEntry) else item
        if isinstance(image, EncodedImage):
            rows.append(i)
            headers.append(image)
        elif isinstance(image, DecodedImage):
            arrays[i] = image.array
        else:
            addresses[i] = image.tensor.data_ptr()
    return np.array(rows, dtype=np.int64), headers


def _image_view(memory: torch.Tensor | None, image: EncodedImage | DecodedImage) -> torch.Tensor:
    """(height, width, 3): the image at the start of a slot's memory."""
    assert memory is not None
    return memory.view(-1)[: image.height * image.width * 3].view(image.height, image.width, 3)


class _JpegCrops:
    """The decoded part of each image: all of it, or a JPEG crop that holds the region.

    Attributes:
        sizes: (n,) decoded bytes.
        pitches: (n,) bytes from one decoded row to the next.
        offsets: (n,) bytes from the whole image's start to the crop's.
    """

    def __init__(self, planned: Planned) -> None:
        heights, widths = planned.sources
        self.pitches = 3 * widths
        self.sizes = heights * self.pitches
        self.offsets = np.zeros(len(widths), dtype=np.uint64)

    def cut(self, i: int, header: EncodedJpeg, region: tuple[int, int, int, int]) -> EncodedJpeg:
        """The header of the i-th image's crop, or the image's own."""
        part = header.crop_jpeg(region)
        if part is None:
            return header
        crop, (y0, x0, _, _) = part
        self.pitches[i] = pitch = 3 * crop.width
        self.sizes[i] = crop.height * pitch
        self.offsets[i] = (region[0] - y0) * pitch + 3 * (region[1] - x0)
        return crop


class _CudaJob(Job):
    """A batch in device memory."""

    pipeline: CudaPipeline

    def _run(self, positions: NDArray[np.int64], items: list[Item], planned: Planned) -> None:
        crops = _JpegCrops(planned)
        cuttable = [i for i, item in enumerate(items) if type(item) is EncodedJpeg and item.restart_interval]
        regions = planned.regions().tolist() if cuttable else []

        def cut(task: range) -> None:
            with self._recorder.at("parse", batch=self.number) as clock:
                self._workers.track(clock)
                for i in cuttable[task.start : task.stop]:
                    whole = cast(EncodedJpeg, items[i])
                    items[i] = crops.cut(i, whole, regions[i])
                    clock.count("parts", items[i] is not whole)

        def produce() -> None:
            step = partial(self.pipeline.producer.produce, self, positions, items, planned, crops)
            self.pipeline.producer_thread.submit(partial(self.run_step, step), self.number)

        if cuttable:
            self._submit_tasks(len(cuttable), cut, produce)
        else:
            produce()

    def _record_ready(self) -> None:
        # On the producer's stream: the event comes after all work on the images and after the labels' copy.
        assert self._batch is not None
        self._label_memory: torch.Tensor | None = None
        if self.config.uploads_labels:
            labels, self._label_memory = upload_labels(self._batch.labels, self.pipeline.producer.device)
            self._batch = self._batch._replace(labels=labels)
        self._ready = torch.cuda.Event()
        self._ready.record()

    def take(self) -> Batch:
        batch = super().take()
        current = torch.cuda.current_stream(self.pipeline.producer.device)
        current.wait_event(self._ready)
        memory, self._label_memory = self._label_memory, None
        for tensor in (*each_tensor(batch.images), *([] if memory is None else [memory])):
            tensor.record_stream(current)
        return batch
