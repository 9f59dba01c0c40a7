"""Pinned memory for the input of batches on a GPU: JPEGs, or parts of them, and regions of decoded images.

Worker threads copy the input there: of a JPEG for our kernels the entropy-coded bytes that its region needs, of others
the file. nvJPEG copies encoded bytes to the GPU from where they are, and may do so after its call:
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
    DecodedImage,
    DeviceJpegs,
    EncodedJpeg,
    JpegIndex,
    ResidentJpeg,
    memory_bound,
    open_jpegs,
)
from cuaug.errors import DecodeError
from cuaug.pipeline.image_table import ImageTable
from cuaug.pipeline.native_work import JpegStaging, Times
from cuaug.pipeline.pending import PendingCacheEntry
from cuaug.pipeline.planning import Planned

__all__ = ["StagedBatch", "StagingPool"]

_ALIGN = 64  # bytes of a cache line: threads write neighboring images


class StagingPool:
    """Pinned buffers that batches use in turns. As many exist as batches are staged or decoded at once.

    Pinning 1 GiB takes longer than a batch: buffers of any size are kept. One that has become more than twice as large
    as batches need is freed.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: deque[torch.Tensor] = deque()
        self._capacity = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> torch.Tensor:
        """At least `size` bytes of pinned memory, (n,) uint8, for the caller alone."""
        with self._lock:
            # An eighth more: later batches of the data set will fit. After a giant batch it shrinks, slowly.
            capacity = self._capacity = max(size * 9 // 8, self._capacity * 63 // 64)
            buffer = self._free.popleft() if self._free else None
        if buffer is None or not size <= buffer.nelement() <= 2 * capacity:
            buffer = None  # freed before the new allocation
            with torch.cuda.device(self._device):  # pinning makes a context on the thread's current device: GPU 0
                buffer = torch.empty(capacity, dtype=torch.uint8, pin_memory=True)
        return buffer

    def give_back(self, buffer: torch.Tensor) -> None:
        """Returns a buffer that nothing reads or writes any more."""
        with self._lock:
            self._free.append(buffer)


class StagedBatch:
    """The input of a batch, for pinned memory: `fill` writes it, `take_memory` hands it to the batch's arena.

    The decoded part of an image is all of it, or the region that the plan reads.

    Args:
        images: of N samples.
        index: entry points of JPEGs without restart markers.
        fancy_upsampling: for our kernels.
        decode_all: our kernels decode all of each image, for a cache on the GPU.

    Attributes:
        images: as given; the files of JPEGs for nvImageCodec become copies in pinned memory.
        parts: (N, 4) y0, x0, y1, x1 of each decoded part in the image that the plan takes.
        pixel_rows, pixel_starts: (P,) the samples that arrive decoded, and where in `pixels` they begin.
        pixels: pinned memory of these, (n,) uint8, to be uploaded.
        is_kept: (N,) whether it is decoded for the decoded cache.
        for_kernels: (N,) whether our kernels decode it.
        jpegs: the JPEGs for our kernels, and where in `jpeg_memory` (n,) uint8 they lie; set if there are any JPEGs.
        launch: of these, once all are added.
        pool: where the memory comes from.
    """

    def __init__(
        self,
        images: ImageTable,
        planned: Planned,
        pool: StagingPool,
        index: JpegIndex | None = None,
        *,
        fancy_upsampling: bool = True,
        decode_all: bool = False,
    ) -> None:
        self.images, self.pool, self._index = images, pool, index
        count = len(images)
        self.parts = np.zeros((count, 4), dtype=np.int64)
        self.parts[:, 2:] = planned.sources.T
        self.for_kernels, self.is_kept = np.zeros((2, count), dtype=np.bool_)
        self.pixel_rows, self.pixel_starts = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64)
        self._starts: dict[int, int] = {}
        self._rows, self._files, self._regions = images.rows, images.files, planned.regions()
        pixel_rows: list[int] = []
        resident_rows: list[int] = []
        for i in sorted(images.objects):
            if isinstance(pending := images.objects[i], PendingCacheEntry):
                self._keep(i, pending)
            image = self.encoded(i)
            if isinstance(image, DecodedImage):
                pixel_rows.append(i)
            elif isinstance(image, ResidentJpeg):
                resident_rows.append(i)
        for name, values in zip(("y0", "x0", "y1", "x1"), self._regions.T, strict=True):
            self._rows[name] = values
        pixel_bytes = self._place_pixels(pixel_rows) if pixel_rows else 0
        self._jpeg_numbers = self._rows["is_jpeg"].nonzero()[0]
        residents = [cast(ResidentJpeg, images.objects[i]) for i in resident_rows]
        resident_table = self._rows[np.array(resident_rows, dtype=np.int64)]
        resident_table["orientation"], resident_table["is_jpeg"] = [jpeg.orientation for jpeg in residents], 1
        size = pixel_bytes + memory_bound(self._rows) + memory_bound(resident_table)
        self._memory = pool.take(size) if size else None
        self._more_memory: list[torch.Tensor] = []
        if self._memory is not None:
            self.pixels, self.jpeg_memory = self._memory[:pixel_bytes], self._memory[pixel_bytes:]
            self._address = self._memory.data_ptr()
        if len(self._jpeg_numbers) or residents:
            self._jpeg_array: NDArray[np.uint8] = self.jpeg_memory.numpy()
            self.jpegs = DeviceJpegs(
                self._jpeg_array, count, fancy_upsampling=fancy_upsampling, scan=True, decode_all=decode_all
            )
        if residents:
            self.for_kernels[resident_rows] = True
            self.jpegs.add_residents(np.array(resident_rows, dtype=np.int64), residents, resident_table)
            if not len(self._jpeg_numbers):
                self.launch = self.jpegs.prepare()
                self._use_regions(self.for_kernels)

    def _place_pixels(self, rows: list[int]) -> int:
        """Where the regions of images that arrive decoded go in pinned memory; returns the bytes of all."""
        y0, x0, y1, x1 = self._regions[rows].T
        sizes = -(-3 * (y1 - y0) * (x1 - x0) // _ALIGN) * _ALIGN
        *starts, pixel_bytes = itertools.accumulate(sizes.tolist(), initial=0)
        self._starts = dict(zip(rows, starts, strict=True))
        self.pixel_rows, self.pixel_starts = np.array(rows, dtype=np.int64), np.array(starts, dtype=np.uint64)
        return pixel_bytes

    def _keep(self, i: int, pending: PendingCacheEntry) -> None:
        """Has the whole image decoded, for the cache."""
        if self._rows is self.images.rows:
            self._rows, self._files = self._rows.copy(), self._files.copy()
        encoded = pending.encoded
        self.is_kept[i], self._regions[i] = True, (0, 0, encoded.height, encoded.width)
        if isinstance(encoded, EncodedJpeg):
            *fields, self._files[i] = encoded.staging_row()
            self._rows[i] = (*fields, 0, 0, 0, 0)

    def encoded(self, i: int) -> Any:
        """The image of a row as it comes: of one for the decoded cache, the whole image."""
        item = self.images.item(i)
        return item.encoded if isinstance(item, PendingCacheEntry) else item

    def take_memory(self) -> list[torch.Tensor]:
        """Hands the memory to the caller, who gives it back to `pool`; none if it was taken."""
        memory, self._memory = self._memory, None
        more, self._more_memory = self._more_memory, []
        return more if memory is None else [memory, *more]

    def kernel_staging(self, make_times: Callable[[NDArray[np.int64]], Times]) -> JpegStaging | None:
        """Native work that adds the JPEGs to those for our kernels; None without any. `finish_kernel_staging` follows.

        Args:
            make_times: of these rows.
        """
        if not len(self._jpeg_numbers):
            return None
        numbers = self._jpeg_numbers
        return JpegStaging(
            self.jpegs, self._rows, self._files, numbers, self.for_kernels, make_times(numbers), self._index
        )

    def finish_kernel_staging(self, staging: JpegStaging) -> None:
        """Takes what the native work has prepared."""
        self.launch = staging.launch()
        self._use_regions(self.for_kernels)

    def _use_regions(self, rows: NDArray[np.bool_]) -> None:
        """Of these rows the regions are decoded; but all of images for the cache, which the plan takes scaled down."""
        np.copyto(self.parts, self._regions, where=(rows & ~self.is_kept)[:, None])

    def rows_to_fill(self) -> list[int]:
        """The samples that `fill` has to put into pinned memory, those that arrive decoded first."""
        numbers = self._jpeg_numbers
        return [*self._starts, *numbers[~self.for_kernels[numbers]].tolist()]

    def sources(self, addresses: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """(N,) addresses that whole images would have, and bytes from row to row, by those of the decoded parts."""
        y0, x0, _, x1 = self.parts.T
        pitches = 3 * (x1 - x0)
        return addresses - (y0 * pitches + 3 * x0).astype(np.uint64), pitches

    def fill(self, rows: Sequence[int], on_error: Callable[[int, DecodeError], None]) -> None:
        """Copies some of `rows_to_fill` to pinned memory. Threads may fill different ones at once.

        Args:
            on_error: called with the row of a file that is read only now and cannot be read.
        """
        copies = []
        jpegs: list[EncodedJpeg] = []
        memories: list[NDArray[np.uint8]] = []
        for i in rows:
            if i in self._starts:
                copies.append(self._pixel_copy(i))
                continue
            image = cast(EncodedJpeg, self.encoded(i))
            try:
                size = len(image.data)
            except DecodeError as error:
                on_error(i, error.with_traceback(None))
                continue
            memories.append(self._memory_for(i, size))
            copies.append((data_address(image.data), 0, 1, size, address(memories[-1])))
            jpegs.append(image)
        if copies:
            table = np.array(copies, dtype=np.int64)
            library.cuaug_copy_rows(address(table), len(table))
        open_jpegs(jpegs, memories)

    def _memory_for(self, i: int, size: int) -> NDArray[np.uint8]:
        """Pinned memory for a JPEG that our kernels do not decode."""
        start = self.jpegs.reserve(i, size)
        if start is not None:
            return self._jpeg_array[start : start + size]
        self._more_memory.append(self.pool.take(size))
        more: NDArray[np.uint8] = self._more_memory[-1].numpy()
        return more[:size]

    def _pixel_copy(self, i: int) -> tuple[int, int, int, int, int]:
        """The `RowCopy` (kernels/cpu/copy_rows.h) of a decoded image's region."""
        image = cast(DecodedImage, self.encoded(i))
        (y0, x0, y1, x1), stride = self._regions[i].tolist(), image.array.strides[0]
        self._set_part(i, self._regions[i])
        first = address(image.array) + y0 * stride + 3 * x0
        return first, stride, y1 - y0, 3 * (x1 - x0), self._address + self._starts[i]

    def keep_segments(self, segments: NDArray[np.uint8], statuses: NDArray[np.int32]) -> None:
        """Adds what the kernels found of JPEGs without an entry in the index; as `DeviceJpegs.keep`."""
        if self._index is not None:
            self.jpegs.keep(segments, statuses, self._index)

    @property
    def new_for_kernels(self) -> dict[int, EncodedJpeg]:
        """The JPEGs for our kernels that are not in the GPU's memory yet, by row."""
        rows = self._jpeg_numbers[self.for_kernels[self._jpeg_numbers]]
        return {i: self.encoded(i) for i in rows.tolist()}

    def use_whole(self, i: int) -> EncodedJpeg:
        """The file of a JPEG for our kernels, all of which another decoder decodes."""
        image = cast(EncodedJpeg, self.encoded(i))
        self._set_part(i, (0, 0, image.height, image.width))
        return image

    def _set_part(self, i: int, part: Sequence[int] | NDArray[np.int64]) -> None:
        if not self.is_kept[i]:
            self.parts[i] = part
