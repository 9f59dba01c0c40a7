"""Rasterizes COCO segmentations: polygons and run lengths, bit-identical to pycocotools.

Annotations are untrusted, so no C code sees them, and work is bounded by the image size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_UPSAMPLING = 5
_MAX_CHARACTERS = 7  # of one run length: 35 bits
#: Limit on all outlines of one segmentation together, in pixels. Drawing takes about 100 bytes per pixel.
MAX_OUTLINE_PIXELS = 1 << 21


def draw(segment: Any, mask: NDArray[np.uint8]) -> None:
    """Draws polygons, or either kind of run lengths, into an empty mask (H, W).

    Raises:
        ValueError, TypeError, KeyError, OverflowError: the segmentation makes no mask of this size.
    """
    height, width = mask.shape
    flat = np.zeros(height * width, dtype=np.uint8)  # column-major
    if isinstance(segment, list):
        _fill_polygons(segment, flat, height, width)
    else:
        counts = segment["counts"]
        _fill_runs(_parse_rle(counts, flat.size) if isinstance(counts, str) else _to_array(counts, "iu"), flat)
    mask[...] = flat.reshape(width, height).T


def _fill_runs(counts: NDArray[Any], flat: NDArray[np.uint8]) -> None:
    """Fills the image with alternating runs of 0 and 1."""
    if counts.ndim != 1 or len(counts) > flat.size + 2 or (len(counts) and counts.min() < 0):
        raise ValueError(f"run lengths must be a list of numbers from 0, not {counts!r:.100}")
    total = int(counts.sum(dtype=np.float64))
    if total != flat.size:
        raise ValueError(f"its runs have {total} pixels, the image has {flat.size}")
    flat[:] = np.repeat(np.arange(len(counts), dtype=np.int64).astype(np.uint8) & 1, counts.astype(np.int64))


def _parse_rle(text: str, size: int) -> NDArray[np.int64]:
    """Parses COCO's compressed run lengths.

    A number is a sequence of 5-bit groups, lowest first, as characters from "0". Bit 5 marks a continuation; bit 4 of
    the last group is the sign. From the fourth number on, it is the difference to the number two before.
    Source: maskApi.c, rleFrString.
    """
    if len(text) > _MAX_CHARACTERS * (size + 2):
        raise ValueError(f"{len(text)} characters of run lengths for {size} pixels")
    bits = np.frombuffer(text.encode("ascii"), dtype=np.uint8).astype(np.int64) - ord("0")
    if not len(bits):
        return bits
    ends = np.flatnonzero(bits & 0x20 == 0)
    starts = np.append(0, ends[:-1] + 1)
    lengths = ends - starts + 1
    if not len(ends) or ends[-1] != len(bits) - 1 or bits.min() < 0 or bits.max() > 63:
        raise ValueError("its run lengths are truncated or hold other characters")
    if lengths.max() > _MAX_CHARACTERS:
        raise ValueError("a run length has more than 35 bits")
    position = np.arange(len(bits)) - np.repeat(starts, lengths)
    values = np.add.reduceat((bits & 0x1F) << (5 * position), starts)
    values -= np.where(bits[ends] & 0x10, 1 << (5 * lengths), 0)
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    return values


def _to_array(values: Any, kinds: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.size and (array.ndim != 1 or array.dtype.kind not in kinds):
        raise ValueError(f"expected a list of numbers, not {values!r:.100}")
    return array


def _fill_polygons(polygons: list[Any], flat: NDArray[np.uint8], height: int, width: int) -> None:
    if len(polygons) > 2 and all(len(point) == 2 for point in polygons):
        raise ValueError(f"each polygon must be a list x, y, x, y, ..., not a list of points: {polygons!r:.100}")
    budget: float = MAX_OUTLINE_PIXELS
    for polygon in polygons:
        if len(polygon) < 6:
            continue
        points = _to_array(polygon, "iuf")[: len(polygon) // 2 * 2].astype(np.float64).reshape(-1, 2)
        is_bounded = bool((np.abs(points) <= MAX_OUTLINE_PIXELS).all())  # False for NaN and infinity
        budget -= np.abs(np.diff(points, axis=0, append=points[:1])).max(axis=1).sum() if is_bounded else np.inf
        if budget < 0:
            raise ValueError(f"a polygon is too large or malformed: {polygon!r:.100}")
        crossings = _crossings(points, height, width)
        if len(crossings):
            first = crossings.min()
            last = crossings.max() if len(crossings) % 2 == 0 else flat.size
            inside = np.bincount(crossings - first, minlength=1)[: last - first].cumsum() & 1
            flat[first : first + len(inside)] |= inside.astype(np.uint8)
            flat[first + len(inside) : last] |= np.uint8(len(crossings) & 1)


def _crossings(points: NDArray[np.float64], height: int, width: int) -> NDArray[np.int64]:
    """Column-major positions at which an outline crosses columns of pixels.

    Source: maskApi.c, rleFrPoly: it walks the outline in fifths of a pixel.
    """
    x, y = (points * _UPSAMPLING + 0.5).astype(np.int64).T
    dx, dy = np.roll(x, -1) - x, np.roll(y, -1) - y
    is_flat = np.abs(dx) >= np.abs(dy)
    steps = np.maximum(np.abs(dx), np.abs(dy))
    # The formula walks an edge from its lower end; its points are listed from its start.
    is_reversed = np.where(is_flat, dx, dy) < 0
    x0, y0 = np.where(is_reversed, x + dx, x), np.where(is_reversed, y + dy, y)
    slope = np.where(is_flat, dy, dx) / np.maximum(steps, 1) * np.where(is_reversed, -1, 1)
    edge = np.repeat(np.arange(len(x)), steps + 1)
    step = np.arange(len(edge)) - np.repeat(np.cumsum(steps + 1) - steps - 1, steps + 1)
    step = np.where(is_reversed[edge], steps[edge] - step, step)
    across = (np.where(is_flat, y0, x0)[edge] + slope[edge] * step + 0.5).astype(np.int64)
    along = np.where(is_flat, x0, y0)[edge] + step
    u, v = np.where(is_flat[edge], along, across), np.where(is_flat[edge], across, along)

    changes = np.flatnonzero(u[1:] != u[:-1])
    column = (np.where(u[changes + 1] < u[changes], u[changes + 1], u[changes + 1] - 1) + 0.5) / _UPSAMPLING - 0.5
    row = (np.minimum(v[changes + 1], v[changes]) + 0.5) / _UPSAMPLING - 0.5
    is_center = (np.floor(column) == column) & (column >= 0) & (column <= width - 1)
    row = np.ceil(np.clip(row[is_center], 0, height))
    return column[is_center].astype(np.int64) * height + row.astype(np.int64)
