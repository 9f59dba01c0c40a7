"""COCO's segmentations as masks: polygons and run lengths, bounded by the picture's size.

The annotations may come from anybody, so no C code sees them. Pixels are those of pycocotools, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw"]

_UPSAMPLING = 5
_MOST_CHARACTERS = 7  # of one run length: 35 bits
#: In pixels: all outlines of one segmentation together. Each takes about 100 bytes while it is drawn.
LONGEST_OUTLINE = 1 << 21


def draw(segment: Any, mask: NDArray[np.uint8]) -> None:
    """Draws polygons, or run lengths of either kind, into an empty mask (H, W).

    Raises:
        ValueError, TypeError, KeyError, OverflowError: the segmentation makes no mask of this size.
    """
    height, width = mask.shape
    flat = np.zeros(height * width, dtype=np.uint8)  # column by column
    if isinstance(segment, list):
        _fill_polygons(segment, flat, height, width)
    else:
        counts = segment["counts"]
        _fill_runs(_parsed(counts, flat.size) if isinstance(counts, str) else _numbers(counts, "iu"), flat)
    mask[...] = flat.reshape(width, height).T


def _fill_runs(counts: NDArray[Any], flat: NDArray[np.uint8]) -> None:
    """Runs of 0 and 1 in turn, which fill the picture."""
    if counts.ndim != 1 or len(counts) > flat.size + 2 or (len(counts) and counts.min() < 0):
        raise ValueError(f"run lengths are a list of numbers from 0 on, not {counts!r:.100}")
    total = int(counts.sum(dtype=np.float64))
    if total != flat.size:
        raise ValueError(f"its runs are of {total} pixels, the picture has {flat.size}")
    flat[:] = np.repeat(np.arange(len(counts), dtype=np.int64).astype(np.uint8) & 1, counts.astype(np.int64))


def _parsed(text: str, size: int) -> NDArray[np.int64]:
    """Run lengths of COCO's compressed form.

    A number is written in groups of 5 bits, the lowest first, as characters from "0" on; bit 5 says that more follow,
    bit 4 of the last group is the sign. From the fourth on, it is the difference from the number before the last.
    Source: maskApi.c, rleFrString.
    """
    if len(text) > _MOST_CHARACTERS * (size + 2):
        raise ValueError(f"{len(text)} characters of run lengths for {size} pixels")
    bits = np.frombuffer(text.encode("ascii"), dtype=np.uint8).astype(np.int64) - ord("0")
    if not len(bits):
        return bits
    ends = np.flatnonzero(bits & 0x20 == 0)
    starts = np.append(0, ends[:-1] + 1)
    lengths = ends - starts + 1
    if not len(ends) or ends[-1] != len(bits) - 1 or bits.min() < 0 or bits.max() > 63:
        raise ValueError("its run lengths are cut short, or hold other characters")
    if lengths.max() > _MOST_CHARACTERS:
        raise ValueError("a run length has more than 35 bits")
    place = np.arange(len(bits)) - np.repeat(starts, lengths)
    values = np.add.reduceat((bits & 0x1F) << (5 * place), starts)
    values -= np.where(bits[ends] & 0x10, 1 << (5 * lengths), 0)
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    return values


def _numbers(values: Any, kinds: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.size and (array.ndim != 1 or array.dtype.kind not in kinds):
        raise ValueError(f"a list of numbers should stand here, not {values!r:.100}")
    return array


def _fill_polygons(polygons: list[Any], flat: NDArray[np.uint8], height: int, width: int) -> None:
    if len(polygons) > 2 and all(len(point) == 2 for point in polygons):
        raise ValueError(f"polygons are lists of x, y, x, y, ... each, got a list of points: {polygons!r:.100}")
    left: float = LONGEST_OUTLINE
    for polygon in polygons:
        if len(polygon) < 6:
            continue
        points = _numbers(polygon, "iuf")[: len(polygon) // 2 * 2].astype(np.float64).reshape(-1, 2)
        is_near = bool((np.abs(points) <= LONGEST_OUTLINE).all())  # neither NaN nor infinity is
        left -= np.abs(np.diff(points, axis=0, append=points[:1])).max(axis=1).sum() if is_near else np.inf
        if left < 0:
            raise ValueError(f"a polygon reaches too far, or is no polygon: {polygon!r:.100}")
        crossings = _crossings(points, height, width)
        if len(crossings):
            first = crossings.min()
            last = crossings.max() if len(crossings) % 2 == 0 else flat.size
            inside = np.bincount(crossings - first, minlength=1)[: last - first].cumsum() & 1
            flat[first : first + len(inside)] |= inside.astype(np.uint8)
            flat[first + len(inside) : last] |= np.uint8(len(crossings) & 1)


def _crossings(points: NDArray[np.float64], height: int, width: int) -> NDArray[np.int64]:
    """Where an outline enters or leaves columns of pixels: places in the picture, column by column.

    Source: maskApi.c, rleFrPoly: the outline is walked in fifths of a pixel.
    """
    x, y = (points * _UPSAMPLING + 0.5).astype(np.int64).T
    dx, dy = np.roll(x, -1) - x, np.roll(y, -1) - y
    is_flat = np.abs(dx) >= np.abs(dy)
    steps = np.maximum(np.abs(dx), np.abs(dy))
    # Each edge is walked from its lower end, and its points are listed from its beginning.
    is_reversed = np.where(is_flat, dx, dy) < 0
    x0, y0 = np.where(is_reversed, x + dx, x), np.where(is_reversed, y + dy, y)
    slope = np.where(is_flat, dy, dx) / np.maximum(steps, 1) * np.where(is_reversed, -1, 1)
    edge = np.repeat(np.arange(len(x)), steps + 1)
    step = np.arange(len(edge)) - np.repeat(np.cumsum(steps + 1) - steps - 1, steps + 1)
    step = np.where(is_reversed[edge], steps[edge] - step, step)
    across = (np.where(is_flat, y0, x0)[edge] + slope[edge] * step + 0.5).astype(np.int64)
    along = np.where(is_flat, x0, y0)[edge] + step
    u, v = np.where(is_flat[edge], along, across), np.where(is_flat[edge], across, along)

    moved = np.flatnonzero(u[1:] != u[:-1])
    column = (np.where(u[moved + 1] < u[moved], u[moved + 1], u[moved + 1] - 1) + 0.5) / _UPSAMPLING - 0.5
    row = (np.minimum(v[moved + 1], v[moved]) + 0.5) / _UPSAMPLING - 0.5
    is_centre = (np.floor(column) == column) & (column >= 0) & (column <= width - 1)
    row = np.ceil(np.clip(row[is_centre], 0, height))
    return column[is_centre].astype(np.int64) * height + row.astype(np.int64)
