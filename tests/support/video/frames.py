"""Random frames of FFmpeg's pixel formats, with planes as NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import av
import av.filter
import numpy as np
from numpy.typing import NDArray

from cuaug.codec.video.yuv import FORMATS, VideoFrame, convert_frames, describe_frames

#: libswscale's most exact settings.
EXACT = "bilinear+accurate_rnd+full_chroma_int"
_COLOR_SPACES = {"bt709": 1, "fcc": 4, "bt601": 5, "smpte240m": 7, "bt2020": 9}
_COLOR_SPACE_NAMES = {"bt601": "bt470bg", "bt2020": "bt2020nc"}  # others have our names


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
        """legal: samples inside the range of the standard; else any."""
        form, frame = FORMATS[name], av.VideoFrame(width, height, name)
        frame.colorspace, frame.color_range = _COLOR_SPACES[matrix], 2 if full_range else 1
        small = (height + form.shift_y) >> form.shift_y, (width + form.shift_x) >> form.shift_x
        top = 2**form.bits
        if legal:
            luma, u, v = legal_levels((height, width), small, form.bits, full_range or form.gray, rng)
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
    size: tuple[int, int], small: tuple[int, int], bits: int, full_range: bool, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Y, U and V samples over all of their range: saturated colors, and many outside of RGB, which are clamped."""
    level = 2 ** (bits - 8)
    low, *tops = (0, 2**bits - 1, 2**bits - 1) if full_range else (16 * level, 235 * level, 240 * level)
    return [rng.integers(low, top, shape, endpoint=True) for top, shape in ((tops[0], size), *[(tops[1], small)] * 2)]


def swscale(frame: RandomFrame, cosited: bool) -> NDArray[np.uint8]:
    """(H, W, 3) RGB by libswscale at its most exact settings, for chroma at even columns or between columns."""
    source, graph = frame.frame, av.filter.Graph()
    name, color_range = _COLOR_SPACE_NAMES.get(frame.matrix, frame.matrix), "pc" if frame.full_range else "tv"
    steps = [
        graph.add_buffer(width=source.width, height=source.height, format=source.format, time_base=Fraction(1, 25)),
        graph.add("setparams", f"colorspace={name}:range={color_range}"),
        # PyAV's reformatter cannot be told where chroma lies: only the frames of decoders say it.
        graph.add("scale", f"flags={EXACT}:in_chroma_loc={'left' if cosited else 'center'}"),
        graph.add("format", "rgb24"),
        graph.add("buffersink"),
    ]
    graph.link_nodes(*steps).configure()
    source.pts, source.time_base = 0, Fraction(1, 25)
    graph.push(source)
    return graph.pull().to_ndarray()


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
