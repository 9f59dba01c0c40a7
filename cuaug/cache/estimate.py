"""What a dataset would take in a cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuaug.arguments import integer
from cuaug.cache.limits import format_bytes
from cuaug.codec import DecodedImage, EncodedImage, read_header
from cuaug.errors import DecodeError, LoaderError
from cuaug.limits import DEFAULT_MAX_BYTES
from cuaug.sources import open_source
from cuaug.sources._bytes import read_bytes
from cuaug.sources.open import Loadable

__all__ = ["SizeEstimate", "estimate", "shrunken_size"]


def shrunken_size(height: int, width: int, short_side: int | None) -> tuple[int, int]:
    """(height, width) in pixels at which a picture is cached: its short side at most `short_side`, never made larger.

    It is the size that `Resize(short_side)` gives, where that is smaller; with None nothing is scaled.

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
    """What the samples of a source would take in each cache.

    Attributes:
        count: samples in the source.
        samples: how many of them the estimate is made from.
        damaged: how many more were looked at and could not be read; the others stand for them.
        encoded_bytes: of all files, as they are; a source of decoded arrays has none.
        decoded_bytes: of all pictures as (h, w, 3) uint8, at `short_side`.
        short_side: in pixels; None: the pictures' own size.
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
            f"{self.count:,} images: {format_bytes(self.encoded_bytes)} encoded, {format_bytes(self.decoded_bytes)} decoded "
            f"{side} (from {self.samples:,} samples{damaged})"
        )


def estimate(source: Loadable, short_side: int | None = None, samples: int = 256, seed: int = 0) -> SizeEstimate:
    """Reads some samples and their headers, and says what all would take; decodes nothing.

    Args:
        source: what `Loader` takes.
        short_side: as for `DecodedCache`.
        samples: how many to look at: one at random from each of as many equal parts of the source.
        seed: which ones.

    Raises:
        LoaderError: not one of them could be read, or arguments that do not fit.
    """
    source = open_source(source)
    count, samples = integer("len(source)", len(source), 1), integer("samples", samples, 1)
    if short_side is not None:
        integer("short_side", short_side, 1)
    parts = min(samples, count)
    bounds = np.arange(parts + 1) * count // parts
    encoded = decoded = good = damaged = 0
    failure: Exception | None = None
    for index in np.random.default_rng(seed).integers(bounds[:-1], bounds[1:]).tolist():
        try:
            size, header = _look(source.read(index)[0])
        except (OSError, DecodeError) as error:
            damaged, failure = damaged + 1, error
            continue
        height, width = shrunken_size(header.height, header.width, short_side)
        encoded, decoded, good = encoded + size, decoded + 3 * height * width, good + 1
    if not good:
        raise LoaderError(f"no size can be estimated: of {damaged} samples none could be read ({failure})") from failure
    return SizeEstimate(count, good, damaged, encoded * count // good, decoded * count // good, short_side)


def _look(data: Any) -> tuple[int, EncodedImage | DecodedImage]:
    """Bytes that `EncodedCache` would hold, and the picture's size, of what a source gave."""
    if isinstance(data, np.ndarray) and data.ndim > 1:
        return 0, DecodedImage(data)
    if isinstance(data, (str, os.PathLike)):
        data = read_bytes(data, DEFAULT_MAX_BYTES)
    return memoryview(data).nbytes, read_header(data)
