"""Converts parts of decoded video frames to RGB: chroma upsampling and the color matrix run in the kernel.

For a GPU, `PlaneRows` copies the rows of the planes that the conversion reads, packed for the upload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import BEST_ISA, address, library
from cuaug.codec.sniff import Region, orient_region, swaps_axes
from cuaug.plan.layout import YUV_IMAGE


@dataclass(frozen=True)
class PixelFormat:
    """How a format of FFmpeg stores its samples.

    Attributes:
        bits: per sample.
        shift_y, shift_x: log2 of the chroma subsampling.
        interleaved: one plane holds U and V in turns.
        low_bits: unused bits below each sample, as in p010.
        gray: there is no chroma.
    """

    bits: int
    shift_y: int
    shift_x: int
    interleaved: bool = False
    low_bits: int = 0
    gray: bool = False


#: Formats that the kernel reads, by FFmpeg's name. yuvj formats and gray have full range, as libswscale takes them.
FORMATS = {
    "yuv420p": PixelFormat(8, 1, 1),
    "yuv422p": PixelFormat(8, 0, 1),
    "yuv444p": PixelFormat(8, 0, 0),
    "yuvj420p": PixelFormat(8, 1, 1),
    "yuvj422p": PixelFormat(8, 0, 1),
    "yuvj444p": PixelFormat(8, 0, 0),
    "nv12": PixelFormat(8, 1, 1, interleaved=True),
    "yuv420p10le": PixelFormat(10, 1, 1),
    "yuv422p10le": PixelFormat(10, 0, 1),
    "yuv444p10le": PixelFormat(10, 0, 0),
    "p010le": PixelFormat(10, 1, 1, interleaved=True, low_bits=6),
    "gray": PixelFormat(8, 0, 0, gray=True),
    "gray10le": PixelFormat(10, 0, 0, gray=True),
}

# (Kr, Kb) of the matrices: ITU-R BT.601, BT.709, BT.2020 with non-constant luminance, SMPTE 240M, FCC.
_WEIGHTS = {
    "bt601": (0.299, 0.114),
    "bt709": (0.2126, 0.0722),
    "bt2020": (0.2627, 0.0593),
    "smpte240m": (0.212, 0.087),
    "fcc": (0.30, 0.11),
}


@dataclass
class VideoFrame:
    """A decoded frame. Its planes are all in host memory, or all on one GPU.

    Attributes:
        planes: (address, bytes from one row to the next) of each plane: Y, U and V; Y and UV; or Y. On a GPU,
            `CudaExecutor.run` takes the rows that `describe_frames` makes of them.
        height, width: of the luma plane, as stored.
        format: FFmpeg's name, a key of `FORMATS`.
        matrix: a key of `color_coefficients`: "bt601", "bt709", "bt2020", "smpte240m" or "fcc".
        full_range: whether luma spans [0, 255] instead of [16, 235].
        cosited: whether chroma columns lie on even luma columns, as MPEG-2, H.264 and HEVC have it by default.
        owner: keeps the memory alive.
    """

    planes: Sequence[tuple[int, int]]
    height: int
    width: int
    format: str
    matrix: str
    full_range: bool
    cosited: bool
    owner: Any


@cache
def color_coefficients(matrix: str, bits: int, low_bits: int, full_range: bool) -> dict[str, float]:
    """The coefficients of `YuvImage` for samples of `bits` bits.

    Source: ITU-R BT.601-7, BT.709-6 and BT.2020-2: E'Y = Kr R + Kg G + Kb B, scaled to [16, 235] and [16, 240] in
    limited range.
    """
    red, blue = _WEIGHTS[matrix]
    green = 1.0 - red - blue
    unit = 2.0 ** (bits - 8 + low_bits)  # one 8-bit level
    if full_range:
        largest = (2.0**bits - 1) * 2.0**low_bits
        luma, chroma, offset = 255.0 / largest, 255.0 / largest, 0.0
    else:
        luma, chroma, offset = 255.0 / (219.0 * unit), 255.0 / (224.0 * unit), 16.0 * unit
    return {
        "y_offset": offset,
        "y_scale": luma,
        "uv_offset": 128.0 * unit,
        "red_v": chroma * 2 * (1 - red),
        "green_u": -chroma * 2 * (1 - blue) * blue / green,
        "green_v": -chroma * 2 * (1 - red) * red / green,
        "blue_u": chroma * 2 * (1 - blue),
    }


def describe_frames(
    frames: Sequence[VideoFrame], region: Region, targets: Sequence[int], pitch: int, *, orientation: int = 1
) -> NDArray[Any]:
    """Rows of `YuvImage` that write a displayed region of each frame to packed RGB.

    Args:
        frames: of one video.
        region: y0, x0, y1, x1 of the displayed image.
        targets: addresses of the region's first displayed pixel; for `CudaExecutor.run` 0.
        pitch: bytes from one displayed row to the next.
        orientation: the EXIF orientation that turns stored frames into displayed ones.
    """
    rows = np.zeros(len(frames), dtype=YUV_IMAGE)
    for row, frame, target in zip(rows, frames, targets, strict=True):
        form, matrix = FORMATS[frame.format], frame.matrix
        bytes_per_sample = 1 if form.bits == 8 else 2
        (row["y"], row["y_pitch"]), *chroma = frame.planes
        if not form.gray:
            row["u"], row["uv_pitch"] = chroma[0]
            row["v"] = chroma[0][0] + bytes_per_sample if form.interleaved else chroma[1][0]
        row["height"], row["width"], row["sample_bytes"] = frame.height, frame.width, bytes_per_sample
        row["uv_step"], row["cosited"] = 1 + form.interleaved, frame.cosited
        row["shift_y"], row["shift_x"] = form.shift_y, form.shift_x
        full = frame.full_range or form.gray or frame.format.startswith("yuvj")
        for name, value in color_coefficients(matrix, form.bits, form.low_bits, full).items():
            row[name] = value
        size = (frame.width, frame.height) if swaps_axes(orientation) else (frame.height, frame.width)
        top, left, bottom, right = orient_region(region, size, orientation, inverse=True)
        row["top"], row["left"], row["rows"], row["columns"] = top, left, bottom - top, right - left
        # Where the stored region's first row and column come to lie, and the way from there.
        y0, x0, *_ = orient_region((top, left, top + 1, left + 1), (frame.height, frame.width), orientation)
        row["target"] = target + (y0 - region[0]) * pitch + 3 * (x0 - region[1])
        down = orient_region((top + 1, left, top + 2, left + 1), (frame.height, frame.width), orientation)
        across = orient_region((top, left + 1, top + 1, left + 2), (frame.height, frame.width), orientation)
        row["target_row"] = (down[0] - y0) * pitch + 3 * (down[1] - x0)
        row["target_column"] = (across[0] - y0) * pitch + 3 * (across[1] - x0)
    return rows


def convert_frames(rows: NDArray[Any]) -> None:
    """Run the conversion of `describe_frames` on the calling thread, without the GIL."""
    library.cuaug_convert_yuv(BEST_ISA, address(rows), len(rows))


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
        # With subsampling, row y lies between two chroma rows: y >> 1 and a neighbor.
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
