"""The producer: decodes batches and launches kernels, on the one thread that owns the stream and the arenas.

For each batch the producer waits on the CPU until the arena's last work has run, as the hardware JPEG decoder may not
wait for work queued on its stream. Then it decodes, launches the kernels and records an event.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.cache import DeviceImage
from cuaug.codec import CudaDecoder, DecodedImage, DecoderPaths, EncodedImage, EncodedJpeg
from cuaug.devices import streams
from cuaug.devices.cuda import CudaExecutor
from cuaug.devices.specialize import Specializer
from cuaug.devices.workspace import ReusedBuffer
from cuaug.errors import DecodeError
from cuaug.interop import dtype_of
from cuaug.pipeline.arena import Arena
from cuaug.pipeline.config import BatchConfig
from cuaug.pipeline.nvdec_pool import NvdecPool
from cuaug.pipeline.pending import PendingCacheEntry, plan_shrinking
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.reader import Item
from cuaug.pipeline.samples import Images
from cuaug.pipeline.staged_clips import StagedClips
from cuaug.pipeline.staging import StagedBatch, StagingPool
from cuaug.profiling.cuda_events import CudaClock, CudaEvents
from cuaug.profiling.recorder import Clock, Recorder

if TYPE_CHECKING:
    from cuaug.pipeline.cuda import CudaJob

__all__ = ["CudaProducer"]

# The decoder fills one arena while the kernels read the other.
_ARENAS = 2
_ENCODED = {EncodedImage, EncodedJpeg}


class CudaProducer:
    """Owns the producer thread's resources. That thread creates its CUDA objects, not the constructor."""

    def __init__(self, config: BatchConfig, recorder: Recorder, threads: int, device: torch.device) -> None:
        self.device = device
        self.staging = StagingPool(device)
        self._config = config
        self._recorder = recorder
        self._paths = DecoderPaths(fancy_upsampling=config.fancy_upsampling)
        if config.load_hint is not None:
            self._paths = replace(self._paths, load_hint=config.load_hint)
        # The other half of the threads reads and parses the next batches meanwhile.
        self._decode_threads = config.decode_threads or (threads + 1) // 2
        self.specializer = Specializer()
        self.nvdec = NvdecPool(device) if config.video_decoder == "nvdec" else None
        if config.reader.clip_sampler is None:  # no decoder of images is opened for clips
            given = config.load_hint is not None or config.decode_threads is not None
            recorder.setup = replace(
                recorder.setup,
                load_hint=self._paths.load_hint,
                decode_threads=self._decode_threads,
                split_because="as given" if given else "default",
            )
        self.decoder: CudaDecoder
        self._prepared = False
        self._batches = 0
        self._max_images = 0

    def _prepare(self) -> None:
        if self._prepared:
            return
        torch.cuda.set_device(self.device)
        self.stream = streams.acquire(self.device)
        clock = CudaClock(self._recorder, self.stream)
        intermediates = ReusedBuffer(device=self.device)
        self._arenas = [Arena(self.device, self.stream, CudaEvents(clock), intermediates) for _ in range(_ARENAS)]
        self._prepared = True

    def _open_decoder(self, images: int) -> None:
        """Opens a decoder for batches of up to `images` images.

        It first closes the last one: two would hold twice the device memory. The caller holds no reference to it.
        """
        if self._max_images:
            self.stream.synchronize()
            self._max_images = 0  # if opening fails, the next batch opens one
            del self.decoder
        self.decoder = CudaDecoder(self.device.index, self._paths, threads=self._decode_threads)
        self.decoder.prime(images, self.stream.cuda_stream)
        self._max_images = images

    def release(self) -> None:
        """Frees the device memory, after all queued work has run."""
        if self.nvdec is not None:
            self.nvdec.close()
        if self._prepared:
            self.stream.synchronize()
            self._prepared = False
            with torch.cuda.device(self.device):
                del self._arenas
                if self._max_images:
                    del self.decoder
            self._max_images = 0
            del self.stream

    def produce(self, job: CudaJob, positions: NDArray[np.int64], staged: StagedBatch, planned: Planned) -> None:
        """Decodes and augments a batch of images."""
        self._prepare()
        if (max_images := max(len(staged.items), self._config.max_images)) > self._max_images:
            self._open_decoder(max_images)  # the first batch, or the user edited the chain, which now mixes more images
        with self._begin_batch(job, staged) as (arena, clock):
            clock.at("decode")
            addresses, failed = self._decode_batch(job, positions, staged, arena)
            addresses -= staged.offsets
            clock.at("augment")
            arena.times.decoded()
            outputs = self._augment(planned, arena, addresses, staged.pitches, failed)
        self._finish_batch(job, positions, planned, outputs)

    def produce_clips(self, job: CudaJob, positions: NDArray[np.int64], staged: StagedClips, planned: Planned) -> None:
        """Uploads, converts and augments a batch of decoded clips."""
        self._prepare()
        with self._begin_batch(job, staged) as (arena, clock):
            clock.at("augment")
            failed = np.isin(positions, list(job.errors))
            staged.wait_for_decoders(self.stream)
            images, sources = staged.on_device(arena.upload(staged.blocks), failed)
            arena.times.decoded()
            pitches, skip = staged.pitches.repeat(planned.frames), failed.repeat(planned.frames)
            outputs = self._augment(planned, arena, sources, pitches, skip, images)
        self._finish_batch(job, positions, planned, outputs)

    @contextlib.contextmanager
    def _begin_batch(self, job: CudaJob, staged: StagedBatch | StagedClips) -> Iterator[tuple[Arena, Clock]]:
        """Waits for an arena and makes the stream current. At the end records the event that frees the arena."""
        arena = self._arenas[self._batches % _ARENAS]
        self._batches += 1
        producer_thread = job.pipeline.producer_thread
        with torch.cuda.stream(self.stream), self._recorder.at("wait_for_gpu", job.number) as clock:
            arena.free.synchronize()
            arena.times.read()
            arena.begin(staged)
            producer_thread.track(clock)
            arena.times.begin(job.number)
            try:
                yield arena, clock
                arena.times.end()
            finally:
                arena.free.record(self.stream)

    def _augment(
        self,
        planned: Planned,
        arena: Arena,
        sources: NDArray[np.uint64],
        pitches: NDArray[np.int64],
        failed: NDArray[np.bool_],
        frames: NDArray[Any] | None = None,
    ) -> list[torch.Tensor]:
        """Queues the kernels for M images, each with its views, and returns their outputs; as `CudaExecutor.run`."""
        tables, stacks, views = planned.tables, planned.stacks, planned.stacks.count
        dtype = dtype_of(tables.target_type)
        outputs = [torch.empty(shape, dtype=dtype, device=self.device) for shape in stacks.shapes]
        CudaExecutor(tables).run(
            sources.repeat(views),
            outputs[0],
            target_addresses=stacks.addresses(outputs),
            pitches=pitches.repeat(views),
            skip=failed.repeat(views) if failed.any() else None,
            workspace=arena.work,
            specializer=self.specializer,
            frames=frames,
        )
        launches = self.specializer.take_launches()
        self._recorder.add({("kernels", name): count for name, count in launches.items()})
        return outputs

    def _finish_batch(
        self, job: CudaJob, positions: NDArray[np.int64], planned: Planned, outputs: list[torch.Tensor]
    ) -> None:
        with torch.cuda.stream(self.stream):
            job.track_batch(job.pipeline.producer_thread)
            images = Images(outputs, planned.stacks.views)
            job.finish_run(images.of_loader(planned, job.config.layout), positions)

    def _decode_batch(
        self, job: CudaJob, positions: NDArray[np.int64], staged: StagedBatch, arena: Arena
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Decodes or uploads all images. Returns (N,) addresses of (height, width, 3) uint8, and (N,) failed."""
        items = staged.items
        addresses: NDArray[np.uint64] = np.zeros(len(items), dtype=np.uint64)
        failed = np.isin(positions, list(job.errors))  # samples whose targets failed are not decoded
        pixels = arena.upload_pixels(staged)
        if pixels is not None:
            addresses[staged.pixel_rows] = staged.pixel_starts + np.uint64(pixels.data_ptr())
        arrays: dict[int, NDArray[np.uint8]] = {}
        if all_encoded := not failed.any() and set(map(type, items)) <= _ENCODED:  # the common case
            rows, headers, sizes = np.arange(len(items)), cast(list[EncodedImage], items), staged.sizes
        else:
            rows, headers = _select_encoded(items, failed, addresses)
            sizes = np.array([3 * header.height * header.width for header in headers], dtype=np.int64)
        for_pillow = np.array([header.for_pillow for header in headers], dtype=bool)
        decoder = self.decoder
        slots, addresses[rows] = arena.reserve_slots(np.where(for_pillow, 0, sizes), decoder)
        results = decoder.decode_batch(headers, [slot.wrapped for slot in slots], self.stream.cuda_stream)
        on_gpu = [header.for_gpu for header in headers]
        decoded_by = Counter(gpu=on_gpu.count(True), cpu=on_gpu.count(False))
        for n, lines in decoder.messages.items():
            job.warn(int(positions[rows[n]]), lines)
        fallbacks = set(decoder.fallbacks)
        for n, result in enumerate(results):
            if result is None:
                continue
            i = int(rows[n])
            decoded_by["gpu" if on_gpu[n] else "cpu"] -= 1
            if isinstance(result, DecodeError):
                job.add_error(int(positions[i]), result)
                failed[i] = True
            else:
                decoded_by["cpu_fallback" if n in fallbacks else "pillow"] += 1
                arrays[i] = result
        if fallbacks:
            name = job.name_at(int(positions[rows[min(fallbacks)]]))
            job.pipeline.messages.warn_fallback(name, len(fallbacks), decoded_by["gpu"], decoder.cause)
        uploaded = dict(zip(arrays, arena.uploads.upload(*arrays.values()) if arrays else [], strict=True))
        for i, memory in uploaded.items():
            addresses[i] = memory.data_ptr()
        if not all_encoded:
            origin = job.config.reader.origin_of_decoded
            others = set(np.flatnonzero(~failed).tolist()) - set(rows.tolist())
            decoded_by += Counter("source" if isinstance(items[i], PendingCacheEntry) else origin for i in others)
            entries = {i: item for i, item in enumerate(items) if isinstance(item, PendingCacheEntry) and not failed[i]}
            memories = {i: slot.memory for i, slot in zip(rows.tolist(), slots, strict=True)} | uploaded
            if pixels is not None:
                starts = zip(staged.pixel_rows.tolist(), staged.pixel_starts.tolist(), strict=True)
                memories |= {i: pixels[start:] for i, start in starts}
            images = {i: _image_view(memories[i], item.encoded) for i, item in entries.items()}
            arena.shrunken = self._fill_cache(entries, images) if entries else {}
            for i, image in arena.shrunken.items():
                addresses[i] = image.data_ptr()
        self._recorder.add({("decoded_by", name): count for name, count in decoded_by.items() if count})
        return addresses, failed

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


def _select_encoded(
    items: list[Item], failed: NDArray[np.bool_], addresses: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], list[EncodedImage]]:
    """The rows and headers to decode. Enters images that are on the device in `addresses`."""
    rows, headers = [], []
    for i, item in enumerate(items):
        if failed[i]:
            continue
        image = item.encoded if isinstance(item, PendingCacheEntry) else item
        if isinstance(image, EncodedImage):
            rows.append(i)
            headers.append(image)
        elif isinstance(image, DeviceImage):
            addresses[i] = image.tensor.data_ptr()
    return np.array(rows, dtype=np.int64), headers


def _image_view(memory: torch.Tensor | None, image: EncodedImage | DecodedImage) -> torch.Tensor:
    """(height, width, 3): the image at the start of a slot's memory."""
    assert memory is not None
    return memory.view(-1)[: image.height * image.width * 3].view(image.height, image.width, 3)
