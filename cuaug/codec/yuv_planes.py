"""Copies the rows of video frames' planes that conversion to RGB reads, packed, for the upload to a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address, library

__all__ = ["PlaneRows"]

_ALIGN = 64  # bytes of a cache line


class PlaneRows:
    """The rows of planes that the conversion of some frames reads.

    Chroma takes a row more above and below the region, as upsampling blends two rows. Rows are whole: 1.5 bytes a pixel
    of 4:2:0, twice as many with 10 bits.

    Args:
        images: (F,) `YUV_IMAGE` of `describe_frames`, with planes in host memory.

    Attributes:
        bytes: size of the copy.
    """

    def __init__(self, images: NDArray[Any]) -> None:
        self._images = images
        top, end = images["top"].astype(np.int64), images["top"].astype(np.int64) + images["rows"]
        shift_y, shift_x = images["shift_y"].astype(np.int64), images["shift_x"].astype(np.int64)
        is_gray, is_interleaved = images["u"] == 0, images["uv_step"] > 1
        chroma_height = (images["height"] + (1 << shift_y) - 1) >> shift_y
        chroma_width = (images["width"] + (1 << shift_x) - 1) >> shift_x
        # With subsampling, row y lies between two chroma rows: y >> 1 and a neighbour.
        first = np.maximum((top >> shift_y) - shift_y, 0)
        last = np.minimum(((end - 1) >> shift_y) + shift_y, chroma_height - 1)
        chroma_rows = np.where(is_gray, 0, last + 1 - first)
        samples = images["sample_bytes"].astype(np.int64)
        # (3, F) planes Y, U and V; an interleaved plane counts as U.
        self._firsts = np.stack([top, first, first])
        self._counts = np.stack([end - top, chroma_rows, np.where(is_interleaved, 0, chroma_rows)])
        chroma_pitch = chroma_width * images["uv_step"] * samples
        self._pitches = np.stack([images["width"] * samples, chroma_pitch, chroma_pitch])
        sizes = (-(-self._counts * self._pitches // _ALIGN) * _ALIGN).T.ravel()  # the planes of a frame together
        self._starts = (sizes.cumsum() - sizes).reshape(-1, 3).T
        self._v_in_u = np.where(is_interleaved, samples, 0)
        self.bytes = int(sizes.sum())

    def copy(self, target: int) -> NDArray[Any]:
        """Copy the rows to the address `target`.

        Returns:
            (F,) `YUV_IMAGE` that convert the same regions from the copy.
        """
        images = self._images
        planes = np.stack([images["y"], images["u"], images["v"]]).astype(np.int64)
        pitches = np.stack([images["y_pitch"], images["uv_pitch"], images["uv_pitch"]])
        table = np.empty((3, len(images), 5), dtype=np.int64)  # RowCopy: kernels/cpu/copy_rows.h
        table[..., 0], table[..., 1] = planes + self._firsts * pitches, pitches
        table[..., 2], table[..., 3] = self._counts, self._pitches
        table[..., 4] = self._starts + target
        library.cuaug_copy_rows(address(table), table.shape[0] * table.shape[1])
        moved = images.copy()
        # The address that row 0 would have.
        y, u, v = (table[..., 4] - self._firsts * self._pitches).astype(np.uint64)
        moved["y"] = y
        moved["u"] = np.where(images["u"] == 0, 0, u)
        moved["v"] = np.where(images["u"] == 0, 0, np.where(self._v_in_u > 0, u + self._v_in_u.astype(np.uint64), v))
        moved["y_pitch"], moved["uv_pitch"] = self._pitches[0], self._pitches[1]
        return moved
