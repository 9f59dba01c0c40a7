"""Random frames of FFmpeg's pixel formats, with planes as NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass

import av
import numpy as np
from numpy.typing import NDArray

from cuaug.codec.yuv import FORMATS, VideoFrame, convert_frames, describe_frames

__all__ = ["RandomFrame", "convert", "legal_levels"]

_COLOR_SPACES = {"bt709": 1, "fcc": 4, "bt601": 5, "smpte240m": 7, "bt2020": 9}


@dataclass
class RandomFrame:
    """A frame of FFmpeg's, and its samples: (H, W) luma, (h, w) u and v; None for gray."""

    frame: av.VideoFrame
    luma: NDArray[np.int64]
    u: NDArray[np.int64] | None
    v: NDArray[np.int64] | None
    matrix: str
    full_range: bool

    @classmethod
    def make(
        cls, name: str, height: int, width: int, matrix: str, full_range: bool, rng: np.random.Generator, legal: bool
    ) -> RandomFrame:
        """legal: samples that stand for an RGB colour; else any."""
        form, frame = FORMATS[name], av.VideoFrame(width, height, name)
        frame.colorspace, frame.color_range = _COLOR_SPACES[matrix], 2 if full_range else 1
        small = (height + form.shift_y) >> form.shift_y, (width + form.shift_x) >> form.shift_x
        top = 2**form.bits
        if legal:
            luma, u, v = legal_levels((height, width), small, form.bits, matrix, full_range, rng)
        else:
            luma, u, v = (rng.integers(0, top, size) for size in ((height, width), small, small))
        planes = [luma] if form.gray else [luma, u, v]
        if form.interleaved:
            planes = [luma, np.stack([u, v], axis=-1).reshape(small[0], -1)]
        for plane, samples in zip(frame.planes, planes, strict=True):
            rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
            rows[:] = 0xAB  # what lies beside the image is never read
            rows = rows.view(np.uint8 if form.bits == 8 else "<u2")
            rows[: len(samples), : samples.shape[1]] = samples << form.low_bits
        return cls(frame, luma, None if form.gray else u, None if form.gray else v, matrix, full_range)

    def described(self, cosited: bool = False) -> VideoFrame:
        frame = self.frame
        planes = [(plane.buffer_ptr, plane.line_size) for plane in frame.planes]
        name = frame.format.name
        return VideoFrame(planes, frame.height, frame.width, name, self.matrix, self.full_range, cosited, frame)


def legal_levels(
    size: tuple[int, int], small: tuple[int, int], bits: int, matrix: str, full_range: bool, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Y, U and V samples of a picture whose colours all lie inside RGB: chroma near gray, medium luma."""
    top, low, high = 2**bits, 0.35, 0.65
    luma = rng.integers(int(low * top), int(high * top), size)
    return [luma, *(rng.integers(int(0.42 * top), int(0.58 * top), small) for _ in range(2))]


def convert(
    frame: VideoFrame, region: tuple[int, int, int, int] | None = None, orientation: int = 1
) -> NDArray[np.uint8]:
    """(h, w, 3) the displayed region of a frame, by the kernel. What lies around it stays unwritten."""
    if region is None:
        sides = (frame.width, frame.height) if orientation > 4 else (frame.height, frame.width)
        region = (0, 0, *sides)
    h, w = region[2] - region[0], region[3] - region[1]
    memory = np.full((h + 2, w + 2, 3), 77, np.uint8)
    target = memory[1:-1, 1:-1]
    rows = describe_frames([frame], region, [target.ctypes.data], memory.strides[0], orientation=orientation)
    convert_frames(rows)
    around = memory.copy()
    around[1:-1, 1:-1] = 77
    assert (around == 77).all(), "pixels outside the target were written"
    return target.copy()
