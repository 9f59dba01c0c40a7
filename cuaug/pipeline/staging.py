"""Pinned memory for the input of batches on a GPU: JPEGs, or parts of them, and regions of decoded images.

Worker threads copy the input there: of a JPEG for our kernels the entropy-coded bytes that its region needs, of others
the file or a crop of it. nvJPEG copies encoded bytes to the GPU from where they are, and may do so after its call:
pinned memory makes that copy asynchronous, and must stay as it is until the event of the batch has passed.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.native import address, data_address, library
from cuaug.codec import SPARE_BYTES, DecodedImage, DeviceJpegs, EncodedJpeg, JpegIndex, memory_bound, open_jpegs
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

    The decoded part of an image is all of it, its region, or a JPEG crop that holds the region which the plan reads.

    Args:
        items: N samples.
        index: entry points of JPEGs without restart markers.
        by_kernels: our kernels decode the JPEGs that they can, else nvImageCodec.
        fancy_upsampling: for the kernels.

    Attributes:
        items: N samples; JPEGs for nvImageCodec become their crops, or copies in pinned memory.
        sizes: (N,) bytes of the decoded parts.
        pitches: (N,) bytes from one row of a decoded part to the next.
        offsets: (N,) bytes from the whole image's start to the decoded part's.
        rows: the samples in pinned memory, those that arrive decoded first.
        pixel_rows, pixel_starts: (P,) the samples that arrive decoded, and where in `pixels` they begin.
        pixels: pinned memory of these, (n,) uint8, to be uploaded.
        for_kernels: (N,) whether our kernels decode it.
        jpegs: the JPEGs for our kernels, and where in `jpeg_memory` (n,) uint8 they lie; set if there are any JPEGs.
        pool: where the memory comes from.
    """

    def __init__(
        self,
        items: list[Item],
        planned: Planned,
        pool: StagingPool,
        index: JpegIndex | None = None,
        *,
        by_kernels: bool = True,
        fancy_upsampling: bool = True,
    ) -> None:
        self.items = items
        heights, widths = planned.sources
        self.pitches = 3 * widths
        self.sizes = heights * self.pitches
        self.offsets = np.zeros(len(widths), dtype=np.uint64)
        self.for_kernels = np.zeros(len(items), dtype=np.bool_)
        self._regions, self._index, self._by_kernels = planned.regions().tolist(), index, by_kernels
        self._images = images = [item.encoded if isinstance(item, PendingCacheEntry) else item for item in items]
        pixel_rows = [i for i, image in enumerate(images) if isinstance(image, DecodedImage)]
        jpegs = {i: image for i, image in enumerate(images) if isinstance(image, EncodedJpeg)}
        sizes = [3 * (y1 - y0) * (x1 - x0) for y0, x0, y1, x1 in map(self._region, pixel_rows)]
        self.rows = [*pixel_rows, *jpegs]
        *starts, pixel_bytes = itertools.accumulate((-(-size // _ALIGN) * _ALIGN for size in sizes), initial=0)
        self._starts = dict(zip(pixel_rows, starts, strict=True))
        self.pixel_rows = np.array(pixel_rows, dtype=np.int64)
        self.pixel_starts = np.array(starts, dtype=np.uint64)
        self.pool = pool
        jpeg_bytes = sum(memory_bound(len(image.data), image.height, image.width) for image in jpegs.values())
        self._memory = pool.take(pixel_bytes + jpeg_bytes) if self.rows else None
        if self._memory is not None:
            self.pixels, self.jpeg_memory = self._memory[:pixel_bytes], self._memory[pixel_bytes:]
            self._address = self._memory.data_ptr()
        if jpegs:
            self._jpeg_array: NDArray[np.uint8] = self.jpeg_memory.numpy()
            self.jpegs = DeviceJpegs(self._jpeg_array, len(items), fancy_upsampling=fancy_upsampling)

    def take_memory(self) -> list[torch.Tensor]:
        """Hands the memory to the caller, who gives it back to `pool`; none if it was taken."""
        memory, self._memory = self._memory, None
        return [] if memory is None else [memory]

    def stage(self, part: range) -> int:
        """Copies some of `rows` to pinned memory, or parts of them. Threads may stage different parts at once.

        Returns:
            the number of JPEGs of which a part is decoded.
        """
        rows = self.rows[part.start : part.stop]
        copies = [self._pixel_copy(i) for i in rows if i in self._starts]
        jpegs = [i for i in rows if i not in self._starts]
        parts = 0
        if self._by_kernels and jpegs:
            parts, jpegs = self._add_to_kernels(jpegs)
        memories: list[NDArray[np.uint8]] = []
        opened: list[EncodedJpeg] = []
        for i in jpegs:
            image = cast(EncodedJpeg, self._images[i])
            start = self.jpegs.reserve(len(image.data) + SPARE_BYTES)
            assert start is not None, "memory_bound is too small"
            memory = self._jpeg_array[start : start + len(image.data) + SPARE_BYTES]
            crop = self._crop(i, image, memory) if image.restart_interval or self._index is not None else None
            if crop is None:
                memory = memory[: len(image.data)]
                copies.append((data_address(image.data), 0, 1, len(memory), address(memory)))
            else:
                self.items[i] = image = crop
                memory = crop.data
                parts += 1
            memories.append(memory)
            opened.append(image)
        if copies:
            table = np.array(copies, dtype=np.int64)
            library.cuaug_copy_rows(address(table), len(table))
        open_jpegs(opened, memories)
        return parts

    def _add_to_kernels(self, rows: list[int]) -> tuple[int, list[int]]:
        """Adds JPEGs to those for our kernels. Returns how many of these are decoded in part, and the other rows."""
        images = [cast(EncodedJpeg, self._images[i]) for i in rows]
        regions = [self._region(i) for i in rows]
        table = np.array([(*image.file_row(), *region) for image, region in zip(images, regions, strict=True)])
        added = self.jpegs.add(np.array(rows, dtype=np.int64), table, self._index)
        parts = 0
        for i, image, (y0, x0, y1, x1), is_added in zip(rows, images, regions, added.tolist(), strict=True):
            if is_added:
                self._set_part(i, y1 - y0, x1 - x0, y0, x0)
                parts += (y1 - y0, x1 - x0) != (image.height, image.width)
        self.for_kernels[rows] = added
        return parts, [i for i, is_added in zip(rows, added.tolist(), strict=True) if not is_added]

    def _region(self, i: int) -> tuple[int, int, int, int]:
        """What is decoded or copied of an image, y0, x0, y1, x1."""
        item = self.items[i]
        if isinstance(item, PendingCacheEntry):  # the cache takes the whole image
            return 0, 0, item.encoded.height, item.encoded.width
        y0, x0, y1, x1 = self._regions[i]
        return y0, x0, y1, x1

    def _pixel_copy(self, i: int) -> tuple[int, int, int, int, int]:
        """The `RowCopy` (kernels/cpu/copy_rows.h) of a decoded image's region."""
        image = cast(DecodedImage, self._images[i])
        (y0, x0, y1, x1), stride = self._region(i), image.array.strides[0]
        self._set_part(i, y1 - y0, x1 - x0, y0, x0)
        first = address(image.array) + y0 * stride + 3 * x0
        return first, stride, y1 - y0, 3 * (x1 - x0), self._address + self._starts[i]

    def _crop(self, i: int, image: EncodedJpeg, memory: NDArray[np.uint8]) -> EncodedJpeg | None:
        """Crops a JPEG into pinned memory; None if that is impossible or does not pay."""
        if self.items[i] is not image:  # the cache takes the whole image
            return None
        region = self._regions[i]
        found = image.crop_jpeg(region, self._index, memory)
        if found is None:
            return None
        crop, (y0, x0, _, _) = found
        self._set_part(i, crop.height, crop.width, region[0] - y0, region[1] - x0)
        return crop

    def _set_part(self, i: int, height: int, width: int, top: int, left: int) -> None:
        """The decoded part is height x width pixels from (top, left) on. The cache scales its images first."""
        if isinstance(self.items[i], PendingCacheEntry):
            return
        self.pitches[i] = pitch = 3 * width
        self.sizes[i] = height * pitch
        self.offsets[i] = top * pitch + 3 * left

    def use_whole(self, i: int) -> EncodedJpeg:
        """The file of a JPEG for our kernels, all of which another decoder decodes."""
        image = cast(EncodedJpeg, self._images[i])
        self._set_part(i, image.height, image.width, 0, 0)
        return image
