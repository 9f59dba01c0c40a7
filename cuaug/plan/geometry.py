"""What the library knows of geometry beside rows that are being written: planner/geometry.h's arithmetic, mostly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address, library
from cuaug.plan.layout import Border

__all__ = ["first_holding", "first_window", "move_boxes", "packed_taps", "regions", "sizes_made"]

Values = NDArray[np.int64]
Floats = NDArray[np.float64]
_RADIUS = np.array([0.5, 1.0, 2.0])  # of Filter.NEAREST, BILINEAR, BICUBIC


def regions(rows: NDArray[Any]) -> NDArray[np.int64]:
    """(N, 4): y0, x0, y1, x1 of what finished rows read: what a decoder has to decode, at least one pixel."""
    found = np.empty((len(rows), 4), dtype=np.int64)
    if library.cuaug_regions(address(rows), len(rows), address(found)):
        found = np.where(rows["warped"][:, None] != 0, _warped_region(rows), found)
    return found


def sizes_made(rows: NDArray[Any]) -> NDArray[np.int64]:
    """(2, N): heights and widths of what finished rows, (P, N), make in the end."""
    found = np.empty((2, rows.shape[1]), dtype=np.int64)
    library.cuaug_sizes_made(address(rows), *rows.shape, address(found))
    return found


def packed_taps(taps: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Of (n, K, 3) taps (dy, dx, weight) those that weigh anything.

    Returns:
        (n, k, 3) with these first, at least one; (n,) how many they are; (2, n) how far they look down and across.
    """
    taps = np.ascontiguousarray(taps)
    n, count, _ = taps.shape
    packed, used, reach = np.empty_like(taps), np.empty(n, dtype=np.int64), np.empty((2, n), dtype=np.int64)
    library.cuaug_pack_taps(address(taps), n, count, address(packed), address(reach), address(used))
    return packed[:, : max(1, used.max(initial=0))], used, reach


def first_window(
    share: Floats, log_ratio: Floats, place: Floats, heights: Values, widths: Values, *, margin: int = 0
) -> tuple[Values, NDArray[np.bool_]]:
    """The first of T random windows that fits, for each of N images.

    Args:
        share: (N, T) of the image's area.
        log_ratio: (N, T) logarithms of each window's width / height.
        place: (N, 2) in [0, 1): where it lies, down and across.
        heights, widths: (N,) of the images, in pixels.
        margin: by how many pixels, at least, a window's height and width are below the image's.

    Returns:
        (4, N) int64 top, left, height and width, and (N,) whether any fits; where none does, the sides are 0.
    """
    window, found = np.empty((4, len(share))), np.empty(len(share), dtype=bool)
    ratio = np.exp(log_ratio)  # NumPy's, of which the last bit may differ from the C library's
    given = [np.ascontiguousarray(values) for values in (share, ratio, place, heights, widths)]
    library.cuaug_first_window(*share.shape, *map(address, given), margin, address(window), address(found))
    return window.astype(np.int64), found


def first_holding(
    numbers: Floats,
    heights: Values,
    widths: Values,
    least: Floats,
    boxes: Floats,
    wanted: NDArray[np.bool_],
    ends: Values,
    shapes: Floats,
) -> tuple[Values, NDArray[np.bool_]]:
    """The first of T random windows that has a box's centre in it, and with such a box enough in common.

    Args:
        numbers: (n, T, 4) in [0, 1): of width, height, left and top, for each of n images.
        heights, widths: (n,) of the images, in pixels.
        least: (n,) intersections over union.
        boxes: (B, 4): x0, y0, x1, y1; `wanted` is (B,).
        ends: (2, n): which boxes are each image's, from and up to.
        shapes: (4,): bounds of a window's sides, in parts of the image's, and of its width / height.

    Returns:
        (4, n) int64 top, left, height and width, and (n,) whether there is any.
    """
    n, tries, _ = numbers.shape
    window, found = np.empty((4, n)), np.empty(n, dtype=bool)
    given = [np.ascontiguousarray(one) for one in (numbers, heights, widths, least, boxes, wanted, ends, shapes)]
    library.cuaug_first_holding(n, tries, *map(address, given), address(window), address(found))
    return window.astype(np.int64), found


def move_boxes(corners: Floats, kept: Floats, of: Values, matrices: Floats, sizes: Floats) -> None:
    """Moves boxes by affine maps, into images of other sizes; what leaves these is cut off.

    Args:
        corners: (B, 4, 2), changed; `kept`, (B,), the share of each box's area that is left, too.
        of: (B,) by which of the maps; -1: not at all.
        matrices, sizes: (n, 3, 3), and (n, 2) widths and heights.
    """
    matrices = np.ascontiguousarray(matrices)
    boxes = address(corners), address(kept), address(of), len(of)
    library.cuaug_move_boxes(*boxes, address(matrices), address(sizes))


def _warped_region(rows: NDArray[Any]) -> NDArray[np.int64]:
    """(N, 4): the inner source indices y0, x0, y1, x1 that warped samples can read, the ends excluded."""
    matrix = rows["matrix"].reshape(-1, 3, 3)
    x, y = rows["x"], rows["y"]
    ends, ones = ("seen_low", "seen_high"), np.ones(len(rows))
    corners = np.array([(x[a], y[b], ones) for a in ends for b in ends])  # (4, 3, N)
    places = np.einsum("nij,kjn->nki", matrix, corners)
    depth = places[..., 2]
    # Beyond the horizon of a perspective, with a field, or with a border that leads back inside: everything.
    whole = (depth <= 0).any(axis=1) | (rows["field_rows"] > 0) | (rows["border_before"] > Border.EDGE)
    with np.errstate(divide="ignore", invalid="ignore"):
        places = places[..., :2] / depth[..., None]
    places = np.nan_to_num(np.clip(places, -1e9, 1e9))
    reach = _RADIUS[rows["filter"]] + 1
    found = []
    for number, axis in ((1, y), (0, x)):
        low = np.floor(places[..., number].min(axis=1) - reach).astype(np.int64)
        high = np.ceil(places[..., number].max(axis=1) + reach).astype(np.int64)
        inner_low, inner_high = axis["inner_low"].astype(np.int64), axis["inner_high"].astype(np.int64)
        found.append(np.where(whole, inner_low, np.clip(low, inner_low, inner_high - 1)))
        found.append(np.where(whole, inner_high, np.clip(high, inner_low + 1, inner_high)))
    y0, y1, x0, x1 = found
    return np.stack([y0, x0, y1, x1], axis=1)
