"""Pinned memory for the input of batches on a GPU: JPEGs, or crops of them, and regions of decoded images.

Worker threads copy the input there. nvJPEG copies encoded bytes to the GPU from where they are, and may do so after its
call: pinned memory makes that copy asynchronous, and must stay as it is until the event of the batch has passed.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.native import address, data_address, library
from cuaug.codec import SPARE_BYTES, DecodedImage, EncodedJpeg, JpegIndex, open_jpegs
from cuaug.pipeline.pending import PendingCacheEntry
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.reader import Item

__all__ = ["StagedBatch", "StagingPool"]

_ALIGN = 64  # bytes of a cache line: threads write neighbouring images
# A larger buffer is freed after its batch.
_MAX_KEPT_BYTES = 512 << 20


class StagingPool:
    """Pinned buffers that batches use in turns. As many exist as batches are staged or decoded at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: deque[torch.Tensor] = deque()
        self._capacity = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> torch.Tensor:
        """At least `size` bytes of pinned memory, (n,) uint8, for the caller alone."""
        with self._lock:
            if size > self._capacity:  # an eighth more: later batches of the data set will fit
                self._capacity = min(size * 9 // 8, _MAX_KEPT_BYTES)
            capacity = max(size, self._capacity)
            buffer = self._free.popleft() if self._free else None
        if buffer is None or buffer.nelement() < capacity:
            buffer = None  # freed before the new allocation
            with torch.cuda.device(self._device):  # pinning makes a context on the thread's current device: GPU 0
                buffer = torch.empty(capacity, dtype=torch.uint8, pin_memory=True)
        return buffer

    def give_back(self, buffer: torch.Tensor) -> None:
        """Returns a buffer that nothing reads or writes any more."""
        if buffer.nelement() <= _MAX_KEPT_BYTES:
            with self._lock:
                self._free.append(buffer)


class StagedBatch:
    """The input of a batch, for pinned memory: `stage` fills it, `take_memory` hands it to the batch's arena.

    The decoded part of an image is all of it, or a JPEG crop that holds the region which the plan reads. Images that
    arrive decoded come as their region alone.

    Args:
        items: N samples.
        index: crops JPEGs without restart markers.

    Attributes:
        items: N samples; JPEGs become their crops, or copies in pinned memory.
        sizes: (N,) bytes of the decoded parts.
        pitches: (N,) bytes from one row of a decoded part to the next.
        offsets: (N,) bytes from the whole image's start to the decoded part's.
        rows: the samples in pinned memory, those that arrive decoded first.
        pixel_rows, pixel_starts: (P,) the samples that arrive decoded, and where in `pixels` they begin.
        pixels: pinned memory of these, (n,) uint8, to be uploaded.
        pool: where the memory comes from.
    """

    def __init__(self, items: list[Item], planned: Planned, pool: StagingPool, index: JpegIndex | None = None) -> None:
        self.items = items
        heights, widths = planned.sources
        self.pitches = 3 * widths
        self.sizes = heights * self.pitches
        self.offsets = np.zeros(len(widths), dtype=np.uint64)
        self._regions, self._index = planned.regions().tolist(), index
        self._images = images = [item.encoded if isinstance(item, PendingCacheEntry) else item for item in items]
        pixel_rows = [i for i, image in enumerate(images) if isinstance(image, DecodedImage)]
        jpegs = {i: len(image.data) + SPARE_BYTES for i, image in enumerate(images) if isinstance(image, EncodedJpeg)}
        sizes = [3 * (y1 - y0) * (x1 - x0) for y0, x0, y1, x1 in map(self._pixel_region, pixel_rows)]
        sizes += jpegs.values()
        self.rows = [*pixel_rows, *jpegs]
        *self._starts, total = itertools.accumulate((-(-size // _ALIGN) * _ALIGN for size in sizes), initial=0)
        self.pixel_rows = np.array(pixel_rows, dtype=np.int64)
        self.pixel_starts = np.array(self._starts[: len(pixel_rows)], dtype=np.uint64)
        self.pool = pool
        self._memory = pool.take(total) if sizes else None
        if self._memory is not None:
            self.pixels = self._memory[: [*self._starts, total][len(pixel_rows)]]
            self._array: NDArray[np.uint8] = self._memory.numpy()
            self._address = self._memory.data_ptr()

    def take_memory(self) -> list[torch.Tensor]:
        """Hands the memory to the caller, who gives it back to `pool`; none if it was taken."""
        memory, self._memory = self._memory, None
        return [] if memory is None else [memory]

    def stage(self, part: range) -> int:
        """Copies some of `rows` to pinned memory, or crops them there. Threads may stage different parts at once.

        Returns:
            the number of JPEG crops.
        """
        crops, copies = 0, []
        jpegs: list[EncodedJpeg] = []
        memories: list[NDArray[np.uint8]] = []
        rows, starts = self.rows[part.start : part.stop], self._starts[part.start : part.stop]
        for i, start in zip(rows, starts, strict=True):
            image = self._images[i]
            if isinstance(image, DecodedImage):
                copies.append((*self._copied_region(i, image), self._address + start))
                continue
            assert isinstance(image, EncodedJpeg)
            data = image.data
            crop = self._crop(i, image, start) if image.restart_interval or self._index is not None else None
            if crop is None:
                size = len(data)
                copies.append((data_address(data), 0, 1, size, self._address + start))
                memories.append(self._array[start : start + size])
            else:
                self.items[i], image = crop, crop
                memories.append(crop.data)
                crops += 1
            jpegs.append(image)
        if copies:
            table = np.array(copies, dtype=np.int64)
            library.cuaug_copy_rows(address(table), len(table))
        open_jpegs(jpegs, memories)
        return crops

    def _pixel_region(self, i: int) -> tuple[int, int, int, int]:
        item = self.items[i]
        if isinstance(item, PendingCacheEntry):  # the cache takes the whole image
            return 0, 0, item.encoded.height, item.encoded.width
        y0, x0, y1, x1 = self._regions[i]
        return y0, x0, y1, x1

    def _copied_region(self, i: int, image: DecodedImage) -> tuple[int, int, int, int]:
        """The first columns of `RowCopy` (kernels/cpu/copy_rows.h) for a decoded image's region."""
        (y0, x0, y1, x1), stride = self._pixel_region(i), image.array.strides[0]
        if self.items[i] is image:
            self._set_part(i, y1 - y0, x1 - x0, y0, x0)
        return address(image.array) + y0 * stride + 3 * x0, stride, y1 - y0, 3 * (x1 - x0)

    def _crop(self, i: int, image: EncodedJpeg, start: int) -> EncodedJpeg | None:
        """Crops a JPEG into pinned memory; None if that is impossible or does not pay."""
        if self.items[i] is not image:  # the cache takes the whole image
            return None
        region, memory = self._regions[i], self._array[start : start + len(image.data) + SPARE_BYTES]
        found = image.crop_jpeg(region, self._index, memory)
        if found is None:
            return None
        crop, (y0, x0, _, _) = found
        self._set_part(i, crop.height, crop.width, region[0] - y0, region[1] - x0)
        return crop

    def _set_part(self, i: int, height: int, width: int, top: int, left: int) -> None:
        """The decoded part is height x width pixels from (top, left) on."""
        self.pitches[i] = pitch = 3 * width
        self.sizes[i] = height * pitch
        self.offsets[i] = top * pitch + 3 * left
