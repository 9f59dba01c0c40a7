"""Native work on files and images, without a loader."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cuaug.codec import DecodedImage as Decoded
from cuaug.codec import EncodedImage, JpegIndex, Region
from cuaug.pipeline.image_table import ImageTable
from cuaug.pipeline.native_work import FileReads, SampleRuns, Times
from cuaug.plan import Layout, Plan, Type
from cuaug.sources.file_bytes import FileRanges

__all__ = ["Decoded", "Runs", "read", "run"]


def read(
    data: Sequence[str | None],
    batch: int = 0,
    cancelled: NDArray[np.int64] | None = None,
    ranges: FileRanges | None = None,
) -> FileReads:
    """Work that reads files or ranges of files, and parses their headers."""
    return FileReads(data, ranges, _times(len(data), batch, cancelled), 1 << 40, 1 << 30)


class Runs(SampleRuns):
    """`SampleRuns` that keeps its output, (h, w, 3) uint8 of each sample."""

    outputs: list[NDArray[np.uint8]]


def run(
    items: Sequence[EncodedImage | Decoded],
    regions: Sequence[Region],
    batch: int = 0,
    cancelled: NDArray[np.int64] | None = None,
    index: JpegIndex | None = None,
) -> Runs:
    """Work that decodes a region of each image."""
    plan = Plan([item.height for item in items], [item.width for item in items])
    y0, x0, y1, x1 = np.array(regions).T
    plan.crop(y0, x0, y1 - y0, x1 - x0)
    outputs = [np.zeros((bottom - top, right - left, 3), dtype=np.uint8) for top, left, bottom, right in regions]
    images = ImageTable(len(items))
    for i, item in enumerate(items):
        images.add(i, item)
    runs = Runs(
        images,
        range(len(items)),
        np.array(regions),
        plan.compile(Type.UINT8, Layout.HWC),
        np.array([output.ctypes.data for output in outputs], dtype=np.uint64),
        _times(len(items), batch, cancelled),
        views=1,
        index=index,
        fancy_upsampling=True,
        max_pixels=1 << 30,
    )
    runs.outputs = outputs
    return runs


def _times(count: int, batch: int, cancelled: NDArray[np.int64] | None) -> Times:
    cancelled = np.zeros(1, dtype=np.int64) if cancelled is None else cancelled
    return Times(batch, cancelled, np.arange(count), ("read", "parse"))
