"""`BatchDecoding`: the decoding of one batch on a GPU, by our kernels, by nvImageCodec, or on the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.cache import DeviceImage
from cuaug.codec import CpuFallback, DecodedImage, EncodedImage, EncodedJpeg, NvImageCodecDecoder, Places, ResidentJpeg
from cuaug.devices.cuda import CudaExecutor, decode_jpegs
from cuaug.errors import DecodeError
from cuaug.pipeline.cuda.arena import Arena
from cuaug.pipeline.cuda.staging import StagedBatch
from cuaug.pipeline.part import BatchPart
from cuaug.pipeline.pending import PendingCacheEntry, plan_shrinking
from cuaug.profiling.recorder import Clock

__all__ = ["BatchDecoding"]

_ALIGN = 16  # bytes, of data and segments in device memory


class BatchDecoding:
    """Decodes a batch of N images: `launch_kernels`, `decode_others`, then `replace_damaged` and `fill_cache`.

    Everything is queued on the current stream; `replace_damaged` waits for the kernels.

    Args:
        fallback: decodes what the kernels find damaged.
        clock: of the producer; it is at "decode" after `replace_damaged` has waited for the GPU.

    Attributes:
        addresses: (N,) device addresses of (height, width, 3) uint8: the decoded parts.
        failed: (N,) samples without pixels.
        entries: the samples for the decoded cache, by row.
        decoded_by: number of images by what decoded them, as in `Stats.decoded_by`.
    """

    def __init__(
        self,
        part: BatchPart,
        positions: NDArray[np.int64],
        staged: StagedBatch,
        arena: Arena,
        fallback: CpuFallback,
        clock: Clock,
    ) -> None:
        self._part, self._positions, self._staged, self._arena, self._fallback = (
            part,
            positions,
            staged,
            arena,
            fallback,
        )
        self._clock = clock
        count = len(staged.images)
        self.addresses: NDArray[np.uint64] = np.zeros(count, dtype=np.uint64)
        # Samples whose targets failed.
        self.failed = np.isin(positions, list(part.errors)) if part.errors else np.zeros(count, dtype=np.bool_)
        kept = staged.is_kept.nonzero()[0].tolist()
        self.entries = {i: cast(PendingCacheEntry, staged.images.item(i)) for i in kept}
        self.decoded_by: Counter[str] = Counter()
        # The kernels' statuses and the segments that they found, until these are looked at.
        self._found: tuple[NDArray[np.int32], NDArray[np.uint8]] | None = None
        self._memories: dict[int, torch.Tensor] = {}  # of the cache's images

    def launch_kernels(self) -> None:
        """Uploads the JPEGs for our kernels, and queues their launches."""
        staged = self._staged
        if not staged.for_kernels.any():
            return
        launch = staged.launch
        memory = self._memory = self._arena.jpeg_memory(launch)
        upload, _, pixels, lookups, _ = memory.addresses
        targets = staged.jpegs.finish(*memory.addresses)
        memory.upload.copy_(staged.jpeg_memory[: launch.upload_bytes], non_blocking=True)
        decode_jpegs(memory.upload.device, launch, upload, lookups)
        rows = staged.for_kernels
        np.copyto(self.addresses, targets, where=rows)
        self._found = self._arena.copy_back(memory, launch, len(rows))
        self.decoded_by["kernels"] += int(np.count_nonzero(rows & ~self.failed))
        for i in [i for i in self.entries if rows[i]]:
            self._memories[i] = memory.targets[int(targets[i]) - pixels :]

    def decode_others(self, open_decoder: Callable[[], NvImageCodecDecoder]) -> None:
        """Decodes or uploads all other images. `open_decoder` gives the decoder of other files."""
        staged, arena = self._staged, self._arena
        pixels = arena.upload_pixels(staged)
        if pixels is not None:
            self.addresses[staged.pixel_rows] = staged.pixel_starts + np.uint64(pixels.data_ptr())
            starts = zip(staged.pixel_rows.tolist(), staged.pixel_starts.tolist(), strict=True)
            self._memories |= {i: pixels[start:] for i, start in starts if i in self.entries}
        if staged.for_kernels.all():
            return
        rows, headers = self._encoded()
        if headers:
            self._decode_encoded(rows, headers, open_decoder())
        origin = self._part.config.reader.origin_of_decoded
        encoded = set(rows.tolist())
        others = [i for i in np.flatnonzero(~self.failed & ~staged.for_kernels).tolist() if i not in encoded]
        self.decoded_by += Counter("source" if i in self.entries else origin for i in others)

    def _encoded(self) -> tuple[NDArray[np.int64], list[EncodedImage]]:
        """The rows and headers of images for nvImageCodec or Pillow. Enters the addresses of those on the device."""
        rows, headers = [], []
        for i in np.flatnonzero(~self.failed & ~self._staged.for_kernels).tolist():
            image = self._staged.encoded(i)
            if isinstance(image, EncodedImage):
                rows.append(i)
                headers.append(image)
            elif isinstance(image, DeviceImage):
                self.addresses[i] = image.tensor.data_ptr()
        return np.array(rows, dtype=np.int64), headers

    def _decode_encoded(
        self, rows: NDArray[np.int64], headers: list[EncodedImage], decoder: NvImageCodecDecoder
    ) -> None:
        """Decodes into slots by nvImageCodec; what the CPU decodes is uploaded."""
        sizes = np.array([0 if header.for_pillow else 3 * header.height * header.width for header in headers])
        arena = self._arena
        slots, self.addresses[rows] = arena.reserve_slots(sizes, decoder)
        results = decoder.decode_batch(headers, [slot.wrapped for slot in slots], arena.stream.cuda_stream)
        on_gpu = [header.for_gpu for header in headers]
        self.decoded_by.update(gpu=on_gpu.count(True), cpu=on_gpu.count(False))
        fallbacks = set(decoder.fallbacks)
        outcomes = {}
        for n, result in enumerate(results):
            i = int(rows[n])
            if result is not None:
                self.decoded_by["gpu" if on_gpu[n] else "cpu"] -= 1
                outcomes[i] = result, "cpu_fallback" if n in fallbacks else "pillow"
            elif i in self.entries and (memory := slots[n].memory) is not None:
                self._memories[i] = memory.view(-1)
        self._warn({int(rows[n]): lines for n, lines in decoder.messages.items()})
        self._enter(outcomes, lambda arrays: arena.uploads.upload(*arrays))
        if fallbacks:
            name = self._part.name_at(int(self._positions[rows[min(fallbacks)]]))
            messages = self._part.pipeline.messages
            messages.warn_fallback(name, len(fallbacks), self.decoded_by["gpu"], decoder.cause)

    def replace_damaged(self) -> bool:
        """Waits for the kernels, and keeps the segments that they found in the index.

        Decodes the JPEGs that they found damaged on the CPU, and returns whether there were any.

        The CPU decides what becomes of such a file: its pixels, or its error.
        """
        if self._found is None:
            return False
        self._wait_for_gpu(self._arena.settled)
        (statuses, segments), self._found = self._found, None
        if len(segments):
            self._staged.keep_segments(segments, statuses)
        is_damaged = statuses != 0
        self._fill_device_cache(is_damaged)
        rows = (is_damaged & ~self.failed).nonzero()[0].tolist()
        self.decoded_by["kernels"] -= len(rows)
        residents = [i for i in rows if isinstance(self._staged.images.objects.get(i), ResidentJpeg)]
        for i in residents:  # it was sound when it was kept
            self._part.add_error(int(self._positions[i]), DecodeError("its data in the GPU's memory are damaged"))
            self.failed[i] = True
        rows = [i for i in rows if not self.failed[i]]
        if not rows:
            return False
        decoded = self._fallback.decode([self._staged.use_whole(i) for i in rows])
        self._warn({i: lines for i, (_, lines) in zip(rows, decoded, strict=True)})
        outcomes = {i: (outcome, "cpu_fallback") for i, (outcome, _) in zip(rows, decoded, strict=True)}
        self._enter(outcomes, self._arena.upload_more)
        name = self._part.name_at(int(self._positions[rows[0]]))
        messages = self._part.pipeline.messages
        messages.warn_fallback(name, len(rows), self.decoded_by["kernels"], "its data is damaged or unusual")
        return True

    def _fill_device_cache(self, is_damaged: NDArray[np.bool_]) -> None:
        """Keeps the sound JPEGs of the batch in the GPU's memory, if the loader has such a cache."""
        cache, staged = self._part.config.reader.device_cache, self._staged
        if cache is None:
            return
        images = {}
        for i, image in staged.new_for_kernels.items():
            if not is_damaged[i]:
                description, places = staged.jpegs.make_resident(i)
                size = -(-places.data_bytes // _ALIGN) * _ALIGN + places.segment_bytes
                make = partial(self._make_resident, image, description, places)
                images[int(self._part.indices[self._positions[i]])] = size, make
        cache.put_residents(images, partial(self._wait_for_gpu, self._arena.stream))

    def _wait_for_gpu(self, queued: torch.cuda.Event | torch.cuda.Stream) -> None:
        self._clock.at("wait_for_gpu")
        queued.synchronize()
        self._clock.at("decode")

    def _make_resident(
        self, image: EncodedJpeg, description: NDArray[np.uint8], places: Places, target: torch.Tensor
    ) -> ResidentJpeg:
        """Copies an image's data and segments to `target`, (n,) uint8, on the current stream."""
        data, segments = target[: places.data_bytes], target[len(target) - places.segment_bytes :]
        data.copy_(self._memory.upload[places.data_at :][: places.data_bytes])
        source = self._memory.scans if places.in_scans else self._memory.upload
        segments.copy_(source[places.segments_at :][: places.segment_bytes])
        description[:16].view(np.uint64)[:] = data.data_ptr(), segments.data_ptr()
        return ResidentJpeg(image.height, image.width, image.orientation, description, target)

    def _warn(self, printed: dict[int, list[str]]) -> None:
        """Logs the lines that image libraries printed, by row."""
        for i, lines in printed.items():
            self._part.warn(int(self._positions[i]), lines)

    def _enter(
        self,
        outcomes: dict[int, tuple[NDArray[np.uint8] | DecodeError, str]],
        upload: Callable[[list[NDArray[np.uint8]]], list[torch.Tensor]],
    ) -> None:
        """Uploads pixels from the CPU and records errors, by row: the outcome, and what decoded it."""
        arrays = {}
        for i, (outcome, decoded_by) in outcomes.items():
            if isinstance(outcome, DecodeError):
                self._part.add_error(int(self._positions[i]), outcome)
                self.failed[i] = True
            else:
                self.decoded_by[decoded_by] += 1
                arrays[i] = outcome
        uploaded = upload(list(arrays.values())) if arrays else []
        for i, memory in zip(arrays, uploaded, strict=True):
            self.addresses[i] = memory.data_ptr()
            if i in self.entries:
                self._memories[i] = memory.view(-1)

    def fill_cache(self) -> None:
        """Scales the cache's images to their sizes there, keeps them, and enters their addresses."""
        entries = {i: entry for i, entry in self.entries.items() if not self.failed[i]}
        if not entries:
            return
        cached = {i: _image_view(self._memories[i], entry.encoded) for i, entry in entries.items()}
        shrinking = {i: entry for i, entry in entries.items() if entry.shrinks}
        if shrinking:
            sizes = [entry.height * entry.width * 3 for entry in shrinking.values()]
            device = self._arena.device
            outputs = torch.empty((len(shrinking), max(sizes)), dtype=torch.uint8, device=device)
            addresses = np.array([cached[i].data_ptr() for i in shrinking], dtype=np.uint64)
            CudaExecutor(plan_shrinking(list(shrinking.values()))).run(addresses, outputs)
            for (i, entry), output, size in zip(shrinking.items(), outputs, sizes, strict=True):
                cached[i] = output[:size].view(entry.height, entry.width, 3)
        cache = self._part.config.reader.decoded
        assert cache is not None
        cache.put_from_device({entry.index: cached[i] for i, entry in entries.items()})
        self._arena.shrunken = cached
        for i, image in cached.items():
            self.addresses[i] = image.data_ptr()


def _image_view(memory: torch.Tensor, image: EncodedImage | DecodedImage) -> torch.Tensor:
    """(height, width, 3): the image at the start of memory, (n,) uint8."""
    return memory[: image.height * image.width * 3].view(image.height, image.width, 3)
