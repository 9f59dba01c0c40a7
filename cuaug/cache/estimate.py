"""`estimate`: predicts the size of a dataset in each cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuaug._runtime.arguments import integer
from cuaug._runtime.limits import DEFAULT_MAX_BYTES
from cuaug.cache.cache_limits import format_bytes
from cuaug.codec import DecodedImage, EncodedImage, read_header
from cuaug.codec.video.video_index import VideoIndex
from cuaug.errors import DecodeError, SourceError
from cuaug.sources import open_source
from cuaug.sources.file_bytes import read_bytes
from cuaug.sources.open import Loadable
from cuaug.sources.video_index_file import open_index
from cuaug.sources.videos import ClipRequest

__all__ = ["SizeEstimate", "estimate", "shrunken_size"]


def shrunken_size(height: int, width: int, short_side: int | None) -> tuple[int, int]:
    """(height, width) in pixels at which an image is cached: short side at most `short_side`, never upscaled.

    It is the size that `Resize(short_side)` gives, if smaller. None: the full size.

    >>> shrunken_size(375, 500, 256), shrunken_size(200, 1000, 256)
    ((256, 341), (200, 1000))
    """
    shorter = min(height, width)
    if short_side is None or shorter <= short_side:
        return height, width
    if height == shorter:
        return short_side, short_side * width // height
    return short_side * height // width, short_side


@dataclass(frozen=True)
class SizeEstimate:
    """Predicted size of a source in each cache.

    Attributes:
        count: number of samples in the source.
        samples: number of samples that were measured.
        damaged: number of further samples that could not be read; the measured ones represent them.
        encoded_bytes: size of all files; 0 for a source of decoded arrays.
        decoded_bytes: size of all images as (h, w, 3) uint8, at `short_side`; of clips, of all their frames.
        short_side: in pixels; None: full size.
    """

    count: int
    samples: int
    damaged: int
    encoded_bytes: int
    decoded_bytes: int
    short_side: int | None

    def __str__(self) -> str:
        side = "in full size" if self.short_side is None else f"at short side {self.short_side}"
        damaged = f"; {self.damaged} more are damaged" if self.damaged else ""
        return (
            f"{self.count:,} samples: {format_bytes(self.encoded_bytes)} encoded, "
            f"{format_bytes(self.decoded_bytes)} decoded {side} (from {self.samples:,} of them{damaged})"
        )


def estimate(source: Loadable, short_side: int | None = None, samples: int = 256, seed: int = 0) -> SizeEstimate:
    """Reads random samples and their headers, and predicts the size of all. Decodes nothing.

    Args:
        source: anything that `Loader` takes.
        short_side: as for `DecodedCache`.
        samples: number of samples to measure: a random one from each of as many equal parts of the source.
        seed: selects the samples.

    Raises:
        LoaderError: no sample could be read, or an argument is invalid.
    """
    source = open_source(source)
    count, samples = integer("len(source)", len(source), 1), integer("samples", samples, 1)
    if short_side is not None:
        integer("short_side", short_side, 1)
    parts = min(samples, count)
    bounds = np.arange(parts + 1) * count // parts
    encoded = decoded = measured = damaged = 0
    last_error: Exception | None = None
    for index in np.random.default_rng(seed).integers(bounds[:-1], bounds[1:]).tolist():
        try:
            size, image, frames = _measure(source.read(index)[0])
        except (OSError, DecodeError) as error:
            damaged, last_error = damaged + 1, error
            continue
        height, width = shrunken_size(image.height, image.width, short_side)
        encoded, decoded, measured = encoded + size, decoded + 3 * frames * height * width, measured + 1
    if not measured:
        raise SourceError(f"source: none of {damaged} samples could be read ({last_error})") from last_error
    return SizeEstimate(count, measured, damaged, encoded * count // measured, decoded * count // measured, short_side)


def _measure(data: Any) -> tuple[int, EncodedImage | DecodedImage | VideoIndex, int]:
    """Returns (bytes that `EncodedCache` would hold, image or video with height and width, number of frames)."""
    if isinstance(data, ClipRequest):  # a video is kept once for all its clips
        index = open_index(data.path)
        clips = data.sampler.count(index.seconds, *data.frame_range(index.seconds))
        return os.path.getsize(data.path) // clips, index, data.sampler.frames
    if isinstance(data, np.ndarray) and data.ndim > 1:
        return 0, DecodedImage(data), 1
    if isinstance(data, (str, os.PathLike)):
        data = read_bytes(data, DEFAULT_MAX_BYTES)
    return memoryview(data).nbytes, read_header(data, lossy=True), 1  # the size alone matters
