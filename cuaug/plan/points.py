"""Boxes and keypoints of a batch, moved by the very steps that move its pixels.

Coordinates are (x, y) in pixels; pixel (0, 0) covers the square from (0, 0) to (1, 1), and its centre is (0.5, 0.5).
What leaves the image is lost there and then, as its pixels are: a later step does not bring it back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Bends", "Points", "mirror", "scaling", "shift", "swap"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

# A corner may leave the image by rounding alone, in pixels.
_SLACK = 1e-6
# Steps of the iteration that undoes a field, and how near it must come, in pixels.
_MOST_STEPS, _NEAR = 60, 1e-4


class Bends(NamedTuple):
    """Displacements (dy, dx) of a warp: nodes (n, R, C, 2), of which a sample has its first `rows` and `columns`."""

    nodes: NDArray[np.float32]
    rows: Indices
    columns: Indices


class Points:
    """What is to be moved of N images.

    Args:
        count: N.
        boxes: (B, 4): x0, y0, x1, y1; `box_of` is (B,), whose each is.
        keypoints: (K, 2): x, y; `keypoint_of` is (K,), whose each is.

    Attributes:
        corners: (B, 4, 2) of the boxes: of quadrangles, once something has turned or bent them.
        kept: (B,) the share of each box's area that is still in the image.
        wanted: (B,) False for boxes that a transform has sorted out.
        visible: (K,) False for keypoints that have left the image.
    """

    def __init__(
        self, count: int, boxes: ArrayLike, box_of: ArrayLike, keypoints: ArrayLike, keypoint_of: ArrayLike
    ) -> None:
        self.count = count
        x0, y0, x1, y1 = np.asarray(boxes, dtype=np.float64).reshape(-1, 4).T
        self.corners = _rectangles(x0, y0, x1, y1)
        self.box_of = np.asarray(box_of, dtype=np.int64)
        self.keypoints = np.array(keypoints, dtype=np.float64).reshape(-1, 2)
        self.keypoint_of = np.asarray(keypoint_of, dtype=np.int64)
        self.kept = np.ones(len(self.corners))
        self.wanted = np.ones(len(self.corners), dtype=bool)
        self.visible = np.ones(len(self.keypoints), dtype=bool)

    def boxes(self) -> Floats:
        """(B, 4): x0, y0, x1, y1 of what encloses each box now."""
        return np.concatenate([self.corners.min(axis=1), self.corners.max(axis=1)], axis=1)

    def move(
        self,
        chosen: Indices,
        matrix: Floats,
        heights: Indices,
        widths: Indices,
        *,
        bends: Bends | None = None,
        back: bool = False,
    ) -> None:
        """Moves the points of some images.

        Args:
            chosen: (n,) the images.
            matrix: (n, 3, 3): from a point (x, y, 1) of the image so far to its new place; with `back`, from new
                places to those so far.
            heights, widths: (n,) of the new images.
            bends: displacements that are added to new places before `matrix` leads back from them.
        """
        place = np.full(self.count, -1)
        place[chosen] = np.arange(len(chosen))
        matrix = _inverse(matrix) if back else matrix

        which, at = _of(place, self.keypoint_of)
        self.keypoints[which] = _moved(self.keypoints[which], at, matrix, heights, widths, bends)
        x, y = self.keypoints[which].T
        self.visible[which] &= (x >= 0) & (y >= 0) & (x <= widths[at]) & (y <= heights[at])

        which, at = _of(place, self.box_of)
        corners = _moved(self.corners[which].reshape(-1, 2), np.repeat(at, 4), matrix, heights, widths, bends)
        corners = np.nan_to_num(corners, nan=0.0).reshape(-1, 4, 2)
        self.corners[which], kept = _clipped(corners, heights[at], widths[at])
        self.kept[which] *= kept


def shift(x: ArrayLike, y: ArrayLike) -> Floats:
    """(n, 3, 3): adds x and y."""
    return _matrices(1.0, 1.0, x, y)


def scaling(x: ArrayLike, y: ArrayLike) -> Floats:
    return _matrices(x, y, 0.0, 0.0)


def mirror(size: ArrayLike, *, vertical: bool = False) -> Floats:
    """Mirrors x in a width, or with `vertical` y in a height."""
    return _matrices(1.0, -1.0, 0.0, size) if vertical else _matrices(-1.0, 1.0, size, 0.0)


def swap(count: int) -> Floats:
    """Exchanges x and y."""
    return np.broadcast_to(np.eye(3)[[1, 0, 2]], (count, 3, 3))


def _matrices(scale_x: ArrayLike, scale_y: ArrayLike, x: ArrayLike, y: ArrayLike) -> Floats:
    columns = np.broadcast_arrays(*np.atleast_1d(scale_x, scale_y, x, y))
    matrices = np.zeros((len(columns[0]), 3, 3))
    matrices[:, 0, 0], matrices[:, 1, 1], matrices[:, 0, 2], matrices[:, 1, 2] = columns
    matrices[:, 2, 2] = 1.0
    return matrices


def _inverse(matrices: Floats) -> Floats:
    """Of matrices that flatten the image there is none: NaN, and so every point is lost."""
    regular = np.abs(np.linalg.det(matrices)) > 1e-12
    inverse = np.full(matrices.shape, np.nan)
    inverse[regular] = np.linalg.inv(matrices[regular])
    return inverse


def _of(place: Indices, owner: Indices) -> tuple[Indices, Indices]:
    """Which points are the chosen images', and whose of those."""
    which = np.flatnonzero(place[owner] >= 0)
    return which, place[owner[which]]


def _rectangles(x0: Floats, y0: Floats, x1: Floats, y1: Floats) -> Floats:
    """(B, 4, 2)"""
    return np.stack([np.stack([x0, x1, x1, x0], axis=1), np.stack([y0, y0, y1, y1], axis=1)], axis=2)


def _moved(
    points: Floats, at: Indices, matrix: Floats, heights: Indices, widths: Indices, bends: Bends | None
) -> Floats:
    """(K, 2) new places of points of images `at`; NaN beyond the horizon of a perspective."""
    x, y = points.T
    m = matrix[at]
    depth = m[:, 2, 0] * x + m[:, 2, 1] * y + m[:, 2, 2]
    depth = np.where(depth > 1e-9, depth, np.nan)
    across = (m[:, 0, 0] * x + m[:, 0, 1] * y + m[:, 0, 2]) / depth
    down = (m[:, 1, 0] * x + m[:, 1, 1] * y + m[:, 1, 2]) / depth
    if bends is not None and len(at):
        down, across = _unbent(down, across, at, heights[at], widths[at], bends)
    return np.stack([across, down], axis=1)


def _unbent(
    y: Floats, x: Floats, at: Indices, heights: Indices, widths: Indices, bends: Bends
) -> tuple[Floats, Floats]:
    """The points that displacements move to (y, x): the fixed point of (y, x) - displacement.

    Where a field folds the image over itself there are several, and the iteration, damped, comes near to one.
    """
    down, across, step = y.copy(), x.copy(), 1.0
    for number in range(_MOST_STEPS):
        dy, dx = _displacement(down, across, at, heights, widths, bends)
        miss_y, miss_x = y - dy - down, x - dx - across
        if np.nanmax(np.abs([miss_y, miss_x]), initial=0.0) < _NEAR:
            break
        step = 1.0 if number < _MOST_STEPS // 3 else 0.4
        down, across = down + step * miss_y, across + step * miss_x
    return down, across


def _displacement(
    y: Floats, x: Floats, at: Indices, heights: Indices, widths: Indices, bends: Bends
) -> tuple[Floats, Floats]:
    """As kernels/warp.h interpolates between the nodes."""
    rows, columns = bends.rows[at], bends.columns[at]
    down, across = np.nan_to_num(y / heights * (rows - 1)), np.nan_to_num(x / widths * (columns - 1))
    i = np.clip(np.trunc(down).astype(np.int64), 0, rows - 2)
    j = np.clip(np.trunc(across).astype(np.int64), 0, columns - 2)
    t, s = (down - i)[:, None], (across - j)[:, None]
    nodes = bends.nodes
    above = nodes[at, i, j] * (1 - s) + nodes[at, i, j + 1] * s
    below = nodes[at, i + 1, j] * (1 - s) + nodes[at, i + 1, j + 1] * s
    moved = above * (1 - t) + below * t
    return moved[:, 0], moved[:, 1]


def _clipped(corners: Floats, heights: Indices, widths: Indices) -> tuple[Floats, Floats]:
    """The boxes within their images, and the share of each area that is left.

    What lies wholly inside keeps its corners; of the rest the enclosing rectangle is cut off.
    """
    low, high = corners.min(axis=1), corners.max(axis=1)
    size = np.stack([widths, heights], axis=1).astype(np.float64)
    inside = ((low >= -_SLACK) & (high <= size + _SLACK)).all(axis=1)
    first, end = np.clip(low, 0.0, size), np.clip(high, 0.0, size)
    cut = _rectangles(first[:, 0], first[:, 1], end[:, 0], end[:, 1])
    area, left = (high - low).prod(axis=1), (end - first).prod(axis=1)
    share = np.where(inside, 1.0, np.divide(left, area, out=np.zeros_like(area), where=area > 0))
    return np.where(inside[:, None, None], corners, cut), share
