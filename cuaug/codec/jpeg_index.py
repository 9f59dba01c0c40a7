"""`JpegIndex`: entry points into the entropy-coded data of JPEGs. Crops JPEGs without decoding.

The index is a file that processes share. `crop_jpeg` makes a smaller JPEG of the MCUs around a region, which decodes to
the same pixels. A decoder reads an entropy-coded segment from its first byte, so a region costs everything above it and
to its left. Cropping the bitstream first leaves that work out, and the pixels stay the same, bit for bit.

- Restart markers: the data between two of them decodes alone (ITU-T T.81, E.1.4). Some cameras write them.
- Files without them are cropped by a `JpegIndex`, which records where their MCU rows begin.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address, data_address, library
from cuaug.codec.sniff import Region, orient_region, swaps_axes

log = logging.getLogger("cuaug")

_FOREIGN, _UNUSABLE = 1, 2
_MIN_BYTES = 88  # the header's


class IndexFile(NamedTuple):
    """An open index file.

    Attributes:
        fd: its descriptor.
        can_write: whether `fd` is open for writing.
        path: its path; None: memory of this process.
        limit_bytes: largest size where the user gives none.
    """

    fd: int
    can_write: bool
    path: str | None
    limit_bytes: int = 0


class IndexStats(NamedTuple):
    """Contents of a `JpegIndex`, as far as this process has read its file.

    Attributes:
        images: files with an entry.
        bytes: size of the index.
        made: entries that this process made.
        damaged: damaged entries that were found, and incomplete ones of killed processes.
    """

    images: int = 0
    bytes: int = 0
    made: int = 0
    damaged: int = 0


class JpegIndex:
    """Entry points into the entropy-coded data of JPEGs without restart markers.

    A file is indexed when a region of it is first decoded. A checksum of its bytes identifies it. Threads and processes
    may share an index. In a forked child the parent's index is empty and stays so.

    Args:
        limit_bytes: largest size of the index; no file is added beyond it. None: as the index's file says.
        files: number of files that share the limit. Entry points are 16, 32 or 64 pixels apart, the smallest distance
            at which all files of the current file's size fit. A crop extends to the next entry point on either side.
        open_file: opens the index's file, at the first use of `handle`. None: memory.
    """

    def __init__(
        self, limit_bytes: int | None, files: int = 1, open_file: Callable[[], IndexFile] | None = None
    ) -> None:
        self._limit, self._files = limit_bytes, files
        self._open_file, self._lock = open_file or memory_file, threading.Lock()
        self._handle: int | None = None
        self._path: str | None = None
        self._reported: set[str] = set()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a JpegIndex belongs to this process: it can be neither copied nor pickled")

    @property
    def handle(self) -> int:
        """Address of the index in the compiled library. The first use opens the file."""
        if self._handle is None:
            with self._lock:
                if self._handle is None:
                    self._handle = self._open()
        return self._handle

    @property
    def open_handle(self) -> int | None:
        """The handle, if the file is open."""
        return self._handle

    def handle_for(self, rows: NDArray[Any]) -> int | None:
        """The handle if one of the regions can use the index; else None, so that no index file is made in vain.

        Args:
            rows: (n,) `IMAGE`.
        """
        if self._handle is None:
            needs_index = (rows["is_jpeg"] != 0) & (rows["restart_interval"] == 0)
            starts_later, ends_earlier = rows["y0"] + rows["x0"] != 0, rows["y1"] < rows["height"]
            is_crop = starts_later | ends_earlier | (rows["x1"] < rows["width"])
            if not (needs_index & is_crop).any():
                return None
        return self.handle

    def _open(self) -> int:
        file = self._open_file()
        self._path = file.path
        self._limit = min(file.limit_bytes if self._limit is None else self._limit, sys.maxsize)
        handle = library.cuaug_jpeg_index_new(file.fd, self._limit, self._files, file.can_write)
        if handle is None:
            os.close(file.fd)
            raise MemoryError("there is no memory for a JPEG index")
        weakref.finalize(self, library.cuaug_jpeg_index_delete, handle).atexit = False  # still in use at exit
        return handle

    def stats(self) -> IndexStats:
        return IndexStats(*self._values()[:4])

    def _values(self) -> list[int]:
        values = (ctypes.c_int64 * 7)()
        if self._handle is not None:
            library.cuaug_jpeg_index_stats(self._handle, values)
        return list(values)

    @property
    def has_stopped(self) -> bool:
        """Whether the limit, or an error, keeps further files out."""
        _, _, _, _, error, is_full, state = self._values()
        return bool(error or is_full or state == _UNUSABLE)

    def report(self) -> None:
        """Logs each fault that this process found in the index's file, once."""
        if self._handle is None:
            return
        _, size, _, damaged, error, is_full, state = self._values()
        name = self._path or "in memory"
        if state == _FOREIGN:
            self._warn("foreign", f"{name} was no JPEG index of this version of cuaug: it is made again")
        elif state == _UNUSABLE and self._limit is not None and self._limit >= _MIN_BYTES:
            self._warn("unusable", f"the JPEG index {name} cannot be used: further JPEGs are decoded without it")
        if damaged:
            self._warn("damaged", f"the JPEG index {name} had {damaged} damaged entries: they are made again")
        if error:
            self._warn("error", f"the JPEG index {name} takes no more images: {os.strerror(error)}")
        if is_full and "full" not in self._reported:
            self._reported.add("full")
            log.info(
                "the JPEG index %s is full with %d bytes; DecodeOptions(index_bytes=) raises its limit", name, size
            )

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            log.warning("%s", text)


def memory_file(limit_bytes: int = 0) -> IndexFile:
    """A file in the memory of this process."""
    return IndexFile(os.memfd_create("cuaug-jpeg-index"), True, None, limit_bytes)


SPARE_BYTES = 64
"""A cropped JPEG may be larger than its file by this much: its codes are aligned differently and may need stuffing."""


def crop_jpeg(
    data: bytes | NDArray[np.uint8],
    region: Region,
    size: tuple[int, int],
    orientation: int,
    index: JpegIndex | None = None,
    out: NDArray[np.uint8] | None = None,
) -> tuple[NDArray[np.uint8], tuple[int, int], Region] | None:
    """Crop a JPEG to the smallest one that decodes to the same pixels of a region.

    Args:
        data: the whole file; an array must be contiguous.
        region, size: as displayed, in pixels; size is (height, width).
        orientation: the EXIF orientation, which applies to the crop too.
        index: for files without restart markers.
        out: memory for the crop, of `SPARE_BYTES` more than the file; None allocates.

    Returns:
        (n,) bytes of the crop, in `out`; its displayed (height, width); the region within it. None if the file has no
        suitable restart markers and no index entry, or if the crop would be the whole file.
    """
    stored = orient_region(region, size, orientation, inverse=True)
    out = np.empty(len(data) + SPARE_BYTES, dtype=np.uint8) if out is None else out
    crop = (ctypes.c_int64 * 4)()
    corners, handle = (ctypes.c_int64 * 4)(*stored), None if index is None else index.handle
    written = library.cuaug_crop_jpeg(data_address(data), len(data), corners, handle, address(out), len(out), crop)
    if not written:
        return None
    y0, x0, y1, x1 = stored
    top, left, bottom, right = crop
    height, width = bottom - top, right - left
    inner = orient_region((y0 - top, x0 - left, y1 - top, x1 - left), (height, width), orientation)
    return out[:written], (width, height) if swaps_axes(orientation) else (height, width), inner
