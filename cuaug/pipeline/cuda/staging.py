"""Pinned memory for the input of batches on a GPU: JPEGs, or parts of them, and regions of decoded images.

Worker threads copy the input there: of a JPEG for our kernels the entropy-coded bytes that its region needs, of others
the file or a crop of it. nvJPEG copies encoded bytes to the GPU from where they are, and may do so after its call:
pinned memory makes that copy asynchronous, and must stay as it is until the event of the batch has passed.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.native import address, data_address, library
from cuaug.codec import (
    SPARE_BYTES,
    DecodedImage,
    DeviceJpegs,
    EncodedJpeg,
    JpegIndex,
    Region,
    ResidentJpeg,
    memory_bound,
    open_jpegs,
    resident_table,
)
from cuaug.errors import DecodeError
from cuaug.pipeline.native_work import JpegStaging, Times
from cuaug.pipeline.pending import PendingCacheEntry
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.reader import Item

__all__ = ["StagedBatch", "StagingPool"]

_ALIGN = 64  # bytes of a cache line: threads write neighboring images
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
        fancy_upsampling: for our kernels.
        decode_all: our kernels decode all of each image, for a cache on the GPU.

    Attributes:
        items: N samples; JPEGs for nvImageCodec become their crops, or copies in pinned memory.
        sizes: (N,) bytes of the decoded parts.
        pitches: (N,) bytes from one row of a decoded part to the next.
        offsets: (N,) bytes from the whole image's start to the decoded part's.
        rows: the samples that `stage` puts into pinned memory, those that arrive decoded first.
        pixel_rows, pixel_starts: (P,) the samples that arrive decoded, and where in `pixels` they begin.
        pixels: pinned memory of these, (n,) uint8, to be uploaded.
        is_kept: (N,) whether it is decoded for the decoded cache.
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
        fancy_upsampling: bool = True,
        decode_all: bool = False,
    ) -> None:
        self.items, self.pool, self._index = items, pool, index
        heights, widths = planned.sources
        self.pitches = 3 * widths
        self.sizes = heights * self.pitches
        self.offsets = np.zeros(len(widths), dtype=np.uint64)
        self.for_kernels = np.zeros(len(items), dtype=np.bool_)
        self._regions = regions = planned.regions()
        self._images: list[Any] = list(items)
        self.is_kept = np.zeros(len(items), dtype=np.bool_)
        for i in _rows_of(items, PendingCacheEntry):  # the cache takes the whole image
            self._images[i] = encoded = cast(PendingCacheEntry, items[i]).encoded
            self.is_kept[i], regions[i] = True, (0, 0, encoded.height, encoded.width)
        images = self._images
        pixel_rows, jpeg_rows = _rows_of(images, DecodedImage), _rows_of(images, EncodedJpeg)
        resident_rows = np.array(_rows_of(images, ResidentJpeg), dtype=np.int64)
        self.rows = pixel_rows + jpeg_rows
        y0, x0, y1, x1 = regions[pixel_rows].T
        sizes = -(-3 * (y1 - y0) * (x1 - x0) // _ALIGN) * _ALIGN
        *starts, pixel_bytes = itertools.accumulate(sizes.tolist(), initial=0)
        self._starts = dict(zip(pixel_rows, starts, strict=True))
        self.pixel_rows = np.array(pixel_rows, dtype=np.int64)
        self.pixel_starts = np.array(starts, dtype=np.uint64)
        self._jpeg_numbers = np.array(jpeg_rows, dtype=np.int64)
        jpegs = np.array([images[i].staging_row() for i in jpeg_rows], dtype=np.int64).reshape(-1, 8)
        self._jpeg_table, self._jpeg_files = self._request(jpeg_rows, jpegs[:, :-1]), jpegs[:, -1].copy()
        resident_jpegs: list[ResidentJpeg] = [images[i] for i in resident_rows.tolist()]
        residents = resident_table(resident_jpegs, planned.sources[:, resident_rows], regions[resident_rows])
        size = pixel_bytes + memory_bound(self._jpeg_table) + memory_bound(residents)
        self._memory = pool.take(size) if size else None
        if self._memory is not None:
            self.pixels, self.jpeg_memory = self._memory[:pixel_bytes], self._memory[pixel_bytes:]
            self._address = self._memory.data_ptr()
        if jpeg_rows or resident_jpegs:
            self._jpeg_array: NDArray[np.uint8] = self.jpeg_memory.numpy()
            self.jpegs = DeviceJpegs(
                self._jpeg_array, len(items), fancy_upsampling=fancy_upsampling, scan=True, decode_all=decode_all
            )
        if resident_jpegs:
            self.for_kernels[resident_rows] = True
            self.jpegs.add_residents(resident_rows, resident_jpegs, residents)
            y0, x0, y1, x1 = residents[:, -4:].T
            self._set_parts(resident_rows, y1 - y0, x1 - x0, y0, x0)

    def _request(self, rows: list[int], fields: Any) -> NDArray[np.int64]:
        """(n, 11), an `EncodedRegion` (kernels/jpeg/decode_region.h) for each of the rows, by its first fields."""
        table = np.empty((len(rows), EncodedJpeg.ROW_FIELDS), dtype=np.int64)
        table[:, :-4], table[:, -4:] = fields, self._regions[rows]
        return table

    def take_memory(self) -> list[torch.Tensor]:
        """Hands the memory to the caller, who gives it back to `pool`; none if it was taken."""
        memory, self._memory = self._memory, None
        return [] if memory is None else [memory]

    def kernel_staging(self, make_times: Callable[[NDArray[np.int64]], Times]) -> JpegStaging | None:
        """Native work that adds the JPEGs to those for our kernels; None without any. `finish_kernel_staging` follows.

        Args:
            make_times: of these rows.
        """
        if not len(self._jpeg_numbers):
            return None
        numbers = self._jpeg_numbers
        return JpegStaging(self.jpegs, self._jpeg_table, self._jpeg_files, numbers, make_times(numbers), self._index)

    def finish_kernel_staging(self, staging: JpegStaging) -> int:
        """Takes the JPEGs that were added from `rows`. Returns the number of those of which a part is decoded."""
        added = self._jpeg_numbers[staging.is_added]
        self.for_kernels[added] = True
        is_added = self.for_kernels.tolist()
        self.rows = [i for i in self.rows if not is_added[i]]
        _, _, height, width, *_, y0, x0, y1, x1 = self._jpeg_table[staging.is_added].T
        self._set_parts(added, y1 - y0, x1 - x0, y0, x0)
        return int(np.count_nonzero((y1 - y0 != height) | (x1 - x0 != width)))

    def stage(self, part: range, on_error: Callable[[int, DecodeError], None]) -> int:
        """Copies some of `rows` to pinned memory, or crops them there. Threads may stage different parts at once.

        Args:
            on_error: called with the row of a file that is read only now and cannot be read.

        Returns:
            the number of JPEG crops.
        """
        crops, copies = 0, []
        jpegs: list[EncodedJpeg] = []
        memories: list[NDArray[np.uint8]] = []
        for i in self.rows[part.start : part.stop]:
            if i in self._starts:
                copies.append(self._pixel_copy(i))
                continue
            image = cast(EncodedJpeg, self._images[i])
            try:
                size = len(image.data)
            except DecodeError as error:
                on_error(i, error.with_traceback(None))
                continue
            start = self.jpegs.reserve(size + SPARE_BYTES)
            assert start is not None, "memory_bound is too small"
            memory = self._jpeg_array[start : start + size + SPARE_BYTES]
            crop = self._crop(i, image, memory) if image.restart_interval or self._index is not None else None
            if crop is None:
                memory = memory[:size]
                copies.append((data_address(image.data), 0, 1, size, address(memory)))
            else:
                self.items[i], image, memory = crop, crop, crop.data
                crops += 1
            jpegs.append(image)
            memories.append(memory)
        if copies:
            table = np.array(copies, dtype=np.int64)
            library.cuaug_copy_rows(address(table), len(table))
        open_jpegs(jpegs, memories)
        return crops

    def _pixel_copy(self, i: int) -> tuple[int, int, int, int, int]:
        """The `RowCopy` (kernels/cpu/copy_rows.h) of a decoded image's region."""
        image = cast(DecodedImage, self._images[i])
        (y0, x0, y1, x1), stride = self._regions[i].tolist(), image.array.strides[0]
        self._set_parts([i], y1 - y0, x1 - x0, y0, x0)
        first = address(image.array) + y0 * stride + 3 * x0
        return first, stride, y1 - y0, 3 * (x1 - x0), self._address + self._starts[i]

    def _crop(self, i: int, image: EncodedJpeg, memory: NDArray[np.uint8]) -> EncodedJpeg | None:
        """Crops a JPEG into pinned memory; None if that is impossible or does not pay."""
        if self.is_kept[i]:  # the cache takes the whole image
            return None
        region = cast(Region, tuple(self._regions[i].tolist()))
        found = image.crop_jpeg(region, self._index, memory)
        if found is None:
            return None
        crop, (y0, x0, _, _) = found
        self._set_parts([i], crop.height, crop.width, region[0] - y0, region[1] - x0)
        return crop

    def keep_segments(self, segments: NDArray[np.uint8], statuses: NDArray[np.int32]) -> None:
        """Adds what the kernels found of JPEGs without an entry in the index; as `DeviceJpegs.keep`."""
        if self._index is not None:
            self.jpegs.keep(segments, statuses, self._index)

    @property
    def new_for_kernels(self) -> dict[int, EncodedJpeg]:
        """The JPEGs for our kernels that are not in the GPU's memory yet, by row."""
        rows = self._jpeg_numbers[self.for_kernels[self._jpeg_numbers]]
        return {i: self._images[i] for i in rows.tolist()}

    def use_whole(self, i: int) -> EncodedJpeg:
        """The file of a JPEG for our kernels, all of which another decoder decodes."""
        image = cast(EncodedJpeg, self._images[i])
        self._set_parts([i], image.height, image.width, 0, 0)
        return image

    def _set_parts(self, rows: Any, height: Any, width: Any, top: Any, left: Any) -> None:
        """The decoded parts of n rows: height x width pixels from (top, left) on.

        Images for the cache are scaled to the plan's size first: theirs stay.
        """
        pitch, is_kept = 3 * width, self.is_kept[rows]
        for values, new in (
            (self.pitches, pitch),
            (self.sizes, height * pitch),
            (self.offsets, top * pitch + 3 * left),
        ):
            values[rows] = np.where(is_kept, values[rows], new)


def _rows_of(items: Sequence[Any], kind: type) -> list[int]:
    """The numbers of the items of this type; quick where all are, or none is."""
    types = set(map(type, items))
    found = {each for each in types if issubclass(each, kind)}
    if found == types:
        return list(range(len(items)))
    return [i for i, item in enumerate(items) if type(item) in found] if found else []
