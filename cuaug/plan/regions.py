"""Geometry computed by the library: regions, sizes, filter taps, random windows, boxes; products of small matrices.

Products and adjugates are computed here since BLAS and LAPACK choose the order of additions and the fused steps by
processor, so their last bits differ. These bits decide what a sample looks like.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address, library
from cuaug.plan.layout import Border

Floats = NDArray[np.float64]

# For each of three rows, or columns: the two that follow it in cyclic order.
_NEXT, _LAST = [1, 2, 0], [2, 0, 1]


def product(left: Floats, right: Floats) -> Floats:
    """(..., R, P) left @ right, of (..., R, Q) and (..., Q, P)."""
    terms = [left[..., :, k, None] * right[..., k, None, :] for k in range(left.shape[-1])]
    return functools.reduce(np.add, terms)


def adjugate(matrices: Floats) -> Floats:
    """The inverse of (..., 3, 3) times the determinant; as a perspective map it is the inverse."""
    first, second = matrices[..., _NEXT, :], matrices[..., _LAST, :]
    minors = first[..., _NEXT] * second[..., _LAST] - first[..., _LAST] * second[..., _NEXT]
    return minors.swapaxes(-1, -2)


Indices = NDArray[np.int64]
_RADIUS = np.array([0.5, 1.0, 2.0, 0.5, 1.0, 3.0, 0.5])  # by Filter, in pixels


def regions(rows: NDArray[Any]) -> Indices:
    """(N, 4) y0, x0, y1, x1 of the pixels that (N,) first rows read."""
    result = np.empty((len(rows), 4), dtype=np.int64)
    if library.cuaug_regions(address(rows), len(rows), address(result)):
        result = np.where(rows["warped"][:, None] != 0, _warped_regions(rows), result)
    return result


def output_sizes(rows: NDArray[Any]) -> Indices:
    """(2, N) heights and widths of the finished images of (P, N) rows."""
    sizes = np.empty((2, rows.shape[1]), dtype=np.int64)
    library.cuaug_output_sizes(address(rows), *rows.shape, address(sizes))
    return sizes


def moves(rows: NDArray[Any], still: NDArray[Any]) -> NDArray[np.bool_]:
    """(N,) whether the passes (P, N) change where an image's pixels are, unlike the rows (N,) of an empty plan."""
    same = (rows["warped"] == 0) & (rows["transposed"] == 0) & (rows["field"]["rows"] == 0)
    for axis in ("y", "x"):
        for field in ("offset", "scale", "origin", "start", "step", "out"):
            same &= rows[axis][field] == still[axis][field]
    return (~same & (rows["active"] != 0)).any(axis=0)


def pack_taps(taps: NDArray[np.float32]) -> tuple[NDArray[np.float32], Indices, Indices]:
    """Moves the taps (dy, dx, weight) of non-zero weight to the front of (n, K, 3).

    Returns:
        (n, k, 3) taps, k at least 1; (n,) how many have a weight; (2, n) their reach down and across, in pixels.
    """
    taps = np.ascontiguousarray(taps)
    n, count, _ = taps.shape
    packed, used, reach = np.empty_like(taps), np.empty(n, dtype=np.int64), np.empty((2, n), dtype=np.int64)
    library.cuaug_pack_taps(address(taps), n, count, address(packed), address(reach), address(used))
    return packed[:, : max(1, used.max(initial=0))], used, reach


def first_window(
    share: Floats, log_ratio: Floats, place: Floats, heights: Indices, widths: Indices, *, margin: int = 0
) -> tuple[Indices, NDArray[np.bool_]]:
    """The first of T random windows that fits into its image.

    Args:
        share: (N, T) window area, as a fraction of the image's.
        log_ratio: (N, T) logarithm of window width / height.
        place: (N, 2) position in [0, 1), down and across.
        heights, widths: (N,) image sizes in pixels.
        margin: pixels by which a window is at least smaller than its image, down and across.

    Returns:
        (4, N) top, left, height and width, and (N,) bool whether any window fits; else its sides are 0.
    """
    window, found = np.empty((4, len(share))), np.empty(len(share), dtype=bool)
    ratio = np.exp(log_ratio)  # by NumPy: the C library's last bit may differ
    inputs = [np.ascontiguousarray(values) for values in (share, ratio, place, heights, widths)]
    library.cuaug_first_window(*share.shape, *map(address, inputs), margin, address(window), address(found))
    return window.astype(np.int64), found


def first_window_with_box(
    numbers: Floats,
    heights: Indices,
    widths: Indices,
    min_overlaps: Floats,
    boxes: Floats,
    selected: NDArray[np.bool_],
    ends: Indices,
    shapes: Floats,
) -> tuple[Indices, NDArray[np.bool_]]:
    """The first of T random windows that overlaps a box enough.

    The box's center must lie in the window.

    Args:
        numbers: (n, T, 4) random numbers in [0, 1) for a window's width, height, left and top.
        heights, widths: (n,) image sizes in pixels.
        min_overlaps: (n,) least intersection over union.
        boxes: (B, 4) xyxy, pixels; `selected` is (B,).
        ends: (2, n) first and end index of each image's boxes.
        shapes: (4,) bounds of a window's sides, as fractions of the image's, and of its width / height.

    Returns:
        (4, n) top, left, height and width, and (n,) bool whether there is such a window.
    """
    n, tries, _ = numbers.shape
    window, found = np.empty((4, n)), np.empty(n, dtype=bool)
    arrays = (numbers, heights, widths, min_overlaps, boxes, selected, ends, shapes)
    inputs = [np.ascontiguousarray(values) for values in arrays]
    library.cuaug_first_window_with_box(n, tries, *map(address, inputs), address(window), address(found))
    return window.astype(np.int64), found


def move_boxes(corners: Floats, area_fraction: Floats, owner: Indices, matrices: Floats, sizes: Floats) -> None:
    """Moves boxes by affine maps, in place, and clips them.

    Args:
        corners: (B, 4, 2) x, y in pixels.
        area_fraction: (B,) fraction of each box's area that is still visible.
        owner: (B,) number of the map; -1 leaves the box alone.
        matrices: (n, 3, 3) maps from old points to new ones.
        sizes: (n, 2) widths and heights of the new images.
    """
    matrices = np.ascontiguousarray(matrices)
    boxes = address(corners), address(area_fraction), address(owner), len(owner)
    library.cuaug_move_boxes(*boxes, address(matrices), address(sizes))


def _warped_regions(rows: NDArray[Any]) -> Indices:
    """(N, 4) y0, x0, y1, x1 of the source pixels that warped samples can read."""
    matrix = rows["matrix"].reshape(-1, 3, 3)
    x, y = rows["x"], rows["y"]
    ends, ones = ("seen_low", "seen_high"), np.ones(len(rows))
    corners = np.array([(x[a], y[b], ones) for a in ends for b in ends])  # [4, 3, N] x, y, 1 of the output
    points = np.einsum("nij,kjn->nki", matrix, corners)
    depth = points[..., 2]
    # A horizon in the image, a displacement field or a border that leads back inside can reach every pixel.
    whole = (depth <= 0).any(axis=1) | (rows["field"]["rows"] > 0) | (rows["before"]["border"] > Border.EDGE)
    with np.errstate(divide="ignore", invalid="ignore"):
        points = points[..., :2] / depth[..., None]
    points = np.nan_to_num(np.clip(points, -1e9, 1e9))
    reach = _RADIUS[rows["filter"]] + 1
    bounds = []
    for coordinate, axis in ((1, y), (0, x)):
        low = np.floor(points[..., coordinate].min(axis=1) - reach).astype(np.int64)
        high = np.ceil(points[..., coordinate].max(axis=1) + reach).astype(np.int64)
        inner_low, inner_high = axis["inner_low"].astype(np.int64), axis["inner_high"].astype(np.int64)
        bounds.append(np.where(whole, inner_low, np.clip(low, inner_low, inner_high - 1)))
        bounds.append(np.where(whole, inner_high, np.clip(high, inner_low + 1, inner_high)))
    y0, y1, x0, x1 = bounds
    return np.stack([y0, x0, y1, x1], axis=1)
