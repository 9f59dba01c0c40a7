"""Cuts JPEGs down to the parts that their crops need, before they are decoded on a GPU."""

from __future__ import annotations

import numpy as np

from cuaug.codec import EncodedJpeg
from cuaug.pipeline.planning import Planned

__all__ = ["JpegCrops"]


class JpegCrops:
    """The decoded part of each image: all of it, or a JPEG crop that holds the region.

    Attributes:
        sizes: (n,) decoded bytes.
        pitches: (n,) bytes from one decoded row to the next.
        offsets: (n,) bytes from the whole image's start to the crop's.
    """

    def __init__(self, planned: Planned) -> None:
        heights, widths = planned.sources
        self.pitches = 3 * widths
        self.sizes = heights * self.pitches
        self.offsets = np.zeros(len(widths), dtype=np.uint64)

    def cut(self, i: int, header: EncodedJpeg, region: tuple[int, int, int, int]) -> EncodedJpeg:
        """The header of the i-th image's crop, or the image's own."""
        part = header.crop_jpeg(region)
        if part is None:
            return header
        crop, (y0, x0, _, _) = part
        self.pitches[i] = pitch = 3 * crop.width
        self.sizes[i] = crop.height * pitch
        self.offsets[i] = (region[0] - y0) * pitch + 3 * (region[1] - x0)
        return crop
