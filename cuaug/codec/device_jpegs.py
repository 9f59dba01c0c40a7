"""`DeviceJpegs`: what a GPU decodes of a batch's JPEGs, in one block of pinned memory (kernels/jpeg/device_batch.h).

`ResidentJpeg`: a JPEG whose data and segments stay in device memory (kernels/jpeg/resident_jpeg.h).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address, library
from cuaug.codec.jpeg_index import JpegIndex

__all__ = ["DeviceJpegs", "JpegLaunch", "Places", "ResidentJpeg", "empty_launch", "memory_bound"]


class JpegLaunch(NamedTuple):
    """The struct `JpegLaunch`: counts, offsets in the batch's memory, and sizes in bytes of device memory.

    Attributes:
        images, blocks, tiles, sets, scans: how many images, thread blocks that decode, tiles, sets of Huffman tables,
            images whose segments the GPU finds.
        images_at, blocks_at, tiles_at, definitions_at, scans_at: where their tables begin.
        statuses_at: where the N statuses begin, (N,) int32: 0 unless an image is damaged.
        upload_bytes: the part of the memory to copy to the device.
        sample_bytes, target_bytes, lookup_bytes, scan_bytes: device memory for samples, pixels, Huffman look-up
            tables, and segments that the GPU finds.
        segment_bytes: the part of the last, from its begin on, that `DeviceJpegs.keep` takes.
        parts: images of which not all is decoded, without residents.
    """

    images: int
    blocks: int
    tiles: int
    sets: int
    scans: int
    images_at: int
    blocks_at: int
    tiles_at: int
    definitions_at: int
    scans_at: int
    statuses_at: int
    upload_bytes: int
    sample_bytes: int
    target_bytes: int
    lookup_bytes: int
    scan_bytes: int
    segment_bytes: int
    parts: int

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> JpegLaunch:
        """The struct that native code has written to `empty_launch()`.

        Raises:
            MemoryError: it has not, for lack of memory.
        """
        launch = cls(*values.tolist())
        if not launch.upload_bytes:
            raise MemoryError("there is no memory to prepare a batch of JPEGs")
        return launch


def empty_launch() -> NDArray[np.int64]:
    """Memory for a `JpegLaunch`."""
    return np.zeros(len(JpegLaunch._fields), dtype=np.int64)


def memory_bound(rows: NDArray[Any]) -> int:
    """Bytes of a batch's memory that suffice for the JPEGs among its images.

    Args:
        rows: (n,) `IMAGE`.
    """
    return int(library.cuaug_device_batch_bound(address(rows), len(rows)))


class ResidentJpeg:
    """A JPEG whose entropy-coded data and segments are in device memory.

    Attributes:
        height, width: displayed size in pixels.
        orientation: EXIF, 1 to 8.
        description: (n,) uint8, the struct `ResidentJpeg`.
        address: of the description.
        memory: keeps the device memory.
    """

    __slots__ = ("address", "description", "height", "memory", "orientation", "width")

    def __init__(self, height: int, width: int, orientation: int, description: NDArray[np.uint8], memory: Any) -> None:
        self.height, self.width, self.orientation = height, width, orientation
        self.description, self.address, self.memory = description, address(description), memory


class Places(NamedTuple):
    """Where the data and the segments of an image are: offsets and bytes in the upload, or in the memory for scans."""

    data_at: int
    data_bytes: int
    segments_at: int
    segment_bytes: int
    in_scans: int


class DeviceJpegs:
    """Collects the segments of N images: native work adds them and prepares the batch (`JpegStaging`), then `finish`.

    Args:
        memory: (n,) uint8, from a multiple of 16 bytes on: `memory_bound` of them.
        count: N.
        fancy_upsampling: interpolate chroma, as libjpeg does.
        scan: let the GPU find the segments of JPEGs without an entry in the index.
        decode_all: decode all of each image, not only what its region needs.

    Attributes:
        handle: the `DeviceBatch` of kernels/jpeg/device_batch.h.
    """

    def __init__(
        self,
        memory: NDArray[np.uint8],
        count: int,
        *,
        fancy_upsampling: bool = True,
        scan: bool = False,
        decode_all: bool = False,
    ) -> None:
        self._memory, self._count = memory, count
        options = fancy_upsampling, scan, decode_all
        self.handle = library.cuaug_device_batch_new(address(memory), len(memory), count, *options)
        if self.handle is None:
            raise MemoryError("there is no memory to describe a batch of JPEGs")
        weakref.finalize(self, library.cuaug_device_batch_delete, self.handle)

    def __reduce__(self) -> NoReturn:
        raise TypeError("DeviceJpegs belong to this process: they can be neither copied nor pickled")

    def add(self, numbers: NDArray[np.int64], rows: NDArray[Any], index: JpegIndex | None) -> NDArray[np.bool_]:
        """Adds n images in the calling thread; as `JpegStaging` on the threads of a loader.

        Args:
            numbers: (n,) their places in the batch.
            rows: (n,) `IMAGE`; keep the files during the call.
            index: entry points of JPEGs without restart markers.

        Returns:
            (n,) whether the kernels decode it; if not, another decoder has to.
        """
        added = np.zeros(len(numbers), dtype=np.bool_)
        handle = None if index is None else index.handle
        arguments = address(numbers), address(rows), len(numbers), handle, address(added)
        library.cuaug_device_batch_add(self.handle, *arguments)
        return added

    def add_residents(self, numbers: NDArray[np.int64], residents: Sequence[ResidentJpeg], rows: NDArray[Any]) -> None:
        """Adds n images that are in device memory.

        Args:
            numbers: (n,) their places in the batch.
            rows: (n,) `IMAGE`.
        """
        descriptions = np.array([resident.address for resident in residents], dtype=np.uint64)
        library.cuaug_device_batch_add_residents(
            self.handle, address(numbers), address(descriptions), address(rows), len(numbers)
        )

    def make_resident(self, number: int) -> tuple[NDArray[np.uint8], Places]:
        """The description of an image of a finished batch that decodes all of it, and what to copy.

        The first two uint64 of the description are to become the addresses of the copies.
        """
        description = np.zeros(library.cuaug_resident_jpeg_bytes(), dtype=np.uint8)
        places = np.zeros(len(Places._fields), dtype=np.int64)
        library.cuaug_device_batch_make_resident(self.handle, number, address(description), address(places))
        return description, Places(*places.tolist())

    def reserve(self, number: int, size: int) -> int | None:
        """Offset of `size` bytes of the memory, a multiple of 16, for an image that another decoder decodes.

        None if its share is taken: it has changed after its data were to be copied.
        """
        offset = int(library.cuaug_device_batch_reserve(self.handle, number, size))
        return None if offset < 0 else offset

    def prepare(self) -> JpegLaunch:
        """Sizes the batch after all images were added, and writes its tables; as `JpegStaging` at its end."""
        launch = empty_launch()
        library.cuaug_device_batch_prepare(self.handle, address(launch))
        return JpegLaunch.of(launch)

    def finish(self, upload: int, samples: int, targets: int, lookups: int, scans: int = 0) -> NDArray[np.uint64]:
        """Writes the addresses into the tables of the prepared batch.

        Args:
            upload: the address that the memory is copied to.
            samples, targets, lookups, scans: addresses of the memory that `prepare` sized.

        Returns:
            (N,) address of each image's region, packed [h, w, 3] as displayed; 0 for those not added.
        """
        addresses = np.array([upload, samples, targets, lookups, scans], dtype=np.uint64)
        images = np.zeros(self._count, dtype=np.uint64)
        library.cuaug_device_batch_finish(self.handle, address(addresses), address(images))
        return images

    def keep(self, segments: NDArray[np.uint8], statuses: NDArray[np.int32], index: JpegIndex) -> None:
        """Adds the entry points that the GPU has found to the index that the images were added with.

        Args:
            segments: (segment_bytes,) copy from the memory for scans.
            statuses: (N,) as the kernels left them.
        """
        library.cuaug_device_batch_keep(self.handle, address(segments), address(statuses), index.handle)
