"""Boxes and keypoints of a batch, moved by the very steps that move its pixels.

Coordinates are (x, y) in pixels; pixel (0, 0) covers the square from (0, 0) to (1, 1), and its centre is (0.5, 0.5).
What leaves the image is lost there and then, as its pixels are: a later step does not bring it back.

A box's four corners go through every step, and only what encloses them in the end is a box again; where a step takes
part of it out of the image, what encloses it is cut off there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.plan import linear
from cuaug.plan.displacement_field import DisplacementField
from cuaug.plan.geometry import move_boxes

__all__ = ["BOX_FORMATS", "BoxesKeypoints", "mirror", "scaling", "shift", "swap"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

#: What the four numbers of a box may be: corners, a corner and a size, or a centre and a size.
BOX_FORMATS = ("xyxy", "xywh", "cxcywh")

# A point may leave the image by rounding alone, in pixels.
_SLACK = 1e-6
# Nearer to the horizon of a perspective there is no place for a point.
_HORIZON = 1e-9


class BoxesKeypoints:
    """What is to be moved of N images.

    Args:
        count: N.
        boxes: (B, 4): x0, y0, x1, y1; `box_of` is (B,), whose each is, in ascending order.
        keypoints: (K, 2): x, y; `keypoint_of` is (K,), whose each is.

    Attributes:
        corners: (B, 4, 2) of the boxes: of quadrangles, once something has turned or bent them.
        area_fraction: (B,) the share of each box's area that is still in the image.
        selected: (B,) False for boxes that a transform has sorted out.
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
        self.area_fraction = np.ones(len(self.corners))
        self.selected = np.ones(len(self.corners), dtype=bool)
        self.visible = np.ones(len(self.keypoints), dtype=bool)

    def boxes(self) -> Floats:
        """(B, 4): x0, y0, x1, y1 of what encloses each box now."""
        return np.concatenate(_bounds(self.corners), axis=1)

    def empty(self, which: NDArray[np.bool_]) -> None:
        """Nothing is left of these boxes, (B,)."""
        self.corners[which], self.area_fraction[which] = 0.0, 0.0

    def move(
        self,
        chosen: Indices,
        matrix: Floats,
        heights: Indices,
        widths: Indices,
        *,
        bends: DisplacementField | None = None,
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
        size = np.stack([widths, heights], axis=1).astype(np.float64)

        if len(self.keypoints):
            which, at = _of(place, self.keypoint_of)
            moved = _divided(_times(matrix[at], self.keypoints[which]))
            moved = moved if bends is None else bends.undo(moved, at, size[at])
            self.keypoints[which] = moved
            self.visible[which] &= ((moved >= -_SLACK) & (moved <= size[at] + _SLACK)).all(axis=1)

        if not back:  # then it is affine
            move_boxes(self.corners, self.area_fraction, place[self.box_of], matrix, size)
            return
        which, at = _of(place, self.box_of)
        old = self.corners[which]
        far = _times(matrix[at][:, None], old)
        depth = far[..., 2]
        whole = (depth > _HORIZON).all(axis=1) | (depth < -_HORIZON).all(axis=1)
        moved = _divided(far[whole])
        if bends is not None:
            moved = bends.undo(moved.reshape(-1, 2), np.repeat(at[whole], 4), size[np.repeat(at[whole], 4)])
        corners, share = np.zeros_like(old), np.zeros(len(old))
        corners[whole], share[whole] = _clipped(moved.reshape(-1, 4, 2), size[at[whole]])
        for i in np.flatnonzero(~whole & np.isfinite(depth).all(axis=1)):
            corners[i], share[i] = _beyond_horizon(old[i], matrix[at[i]], size[at[i]])
        self.corners[which] = corners
        self.area_fraction[which] *= share


def shift(x: ArrayLike, y: ArrayLike) -> Floats:
    """(n, 3, 3): adds x and y."""
    return _matrices(1.0, 1.0, x, y)


def scaling(x: ArrayLike, y: ArrayLike) -> Floats:
    """(n, 3, 3): multiplies by x and y."""
    return _matrices(x, y, 0.0, 0.0)


def mirror(size: ArrayLike, *, vertical: bool = False) -> Floats:
    """Mirrors x in a width, or with `vertical` y in a height."""
    return _matrices(1.0, -1.0, 0.0, size) if vertical else _matrices(-1.0, 1.0, size, 0.0)


def swap(count: int) -> Floats:
    """Exchanges x and y."""
    return np.broadcast_to(np.eye(3)[[1, 0, 2]], (count, 3, 3))


def _matrices(scale_x: ArrayLike, scale_y: ArrayLike, x: ArrayLike, y: ArrayLike) -> Floats:
    matrices = np.zeros((np.broadcast(scale_x, scale_y, x, y).size, 3, 3))
    matrices[:, 0, 0], matrices[:, 1, 1], matrices[:, 0, 2], matrices[:, 1, 2] = scale_x, scale_y, x, y
    matrices[:, 2, 2] = 1.0
    return matrices


def _inverse(matrices: Floats) -> Floats:
    """Of matrices that flatten the image there is none: NaN, and so every point is lost.

    Any multiple of a matrix is the same map: whether its determinant is 0 is asked of the one whose last row's largest
    entry is 1.
    """
    scale = np.abs(matrices[:, 2:]).max(axis=2, keepdims=True)
    matrices = matrices / np.where(scale > 0.0, scale, 1.0)
    adjugate = linear.adjugate(matrices)
    determinant = linear.product(matrices, adjugate)[:, :1, :1]
    return adjugate / np.where(np.abs(determinant) > 1e-12, determinant, np.nan)


def _of(place: Indices, owner: Indices) -> tuple[Indices, Indices]:
    """Which points are the chosen images', and whose of those."""
    which = np.flatnonzero(place[owner] >= 0)
    return which, place[owner[which]]


def _rectangles(x0: ArrayLike, y0: ArrayLike, x1: ArrayLike, y1: ArrayLike) -> Floats:
    """(B, 4, 2), or (4, 2)"""
    corners = np.empty((*np.shape(x0), 4, 2))
    for i, x, y in ((0, x0, y0), (1, x1, y0), (2, x1, y1), (3, x0, y1)):
        corners[..., i, 0], corners[..., i, 1] = x, y
    return corners


def _bounds(corners: Floats) -> tuple[Floats, Floats]:
    """(B, 2) least and (B, 2) greatest coordinates; a reduction along so short an axis is slow."""
    a, b, c, d = corners.transpose(1, 0, 2)
    return np.minimum(np.minimum(a, b), np.minimum(c, d)), np.maximum(np.maximum(a, b), np.maximum(c, d))


def _times(matrices: Floats, points: Floats) -> Floats:
    """(..., 3): matrices times (x, y, 1)."""
    x, y = points[..., 0], points[..., 1]
    m = np.moveaxis(matrices, (-2, -1), (0, 1))
    return np.stack([m[i, 0] * x + m[i, 1] * y + m[i, 2] for i in range(3)], axis=-1)


def _divided(far: Floats) -> Floats:
    """(..., 2); NaN on the horizon of a perspective. What lies beyond it is shown as well: on its other side."""
    depth = far[..., 2:]
    return far[..., :2] / np.where(np.abs(depth) > _HORIZON, depth, np.nan)


def _clipped(corners: Floats, size: Floats) -> tuple[Floats, Floats]:
    """(B, 4, 2) boxes within their images, and (B,) the share of each area that is left.

    What lies wholly inside keeps its corners; of the rest the enclosing rectangle is cut off.
    """
    low, high = _bounds(corners)
    inside: NDArray[np.bool_] = np.all((low >= -_SLACK) & (high <= size + _SLACK), axis=1)
    if inside.all():
        return corners, np.ones(len(corners))
    first, end = (np.minimum(np.maximum(ends, 0.0), size) for ends in (low, high))
    area, left = ((b - a)[:, 0] * (b - a)[:, 1] for a, b in ((low, high), (first, end)))
    share = np.where(inside, 1.0, np.divide(left, area, out=np.zeros_like(area), where=area > 0))
    return np.where(inside[:, None, None], corners, _rectangles(*first.T, *end.T)), share


def _beyond_horizon(corners: Floats, matrix: Floats, size: Floats) -> tuple[Floats, float]:
    """What the image shows of a box that the horizon of a perspective cuts: a rectangle, and the share of the area."""
    width, height = size
    parts, seen = [], 0.0
    for side in (matrix, -matrix):
        x, y, depth = side
        part = corners
        for line in (depth - [0, 0, _HORIZON], x, width * depth - x, y, height * depth - y):
            part = _cut(part, line)
        if len(part) > 2:
            parts.append(_divided(_times(side, part)))
            seen += _area(part)
    whole = _area(corners)
    if not parts or whole == 0.0:
        return np.zeros((4, 2)), 0.0
    shown = np.concatenate(parts)
    low, high = (np.clip(ends, 0.0, size) for ends in (shown.min(axis=0), shown.max(axis=0)))
    return _rectangles(*low, *high), min(seen / whole, 1.0)


def _cut(polygon: Floats, line: Floats) -> Floats:
    """The part of a convex polygon, (n, 2), where line . (x, y, 1) is 0 or more (Sutherland and Hodgman 1974)."""
    value = polygon @ line[:2] + line[2]
    kept: list[Floats] = []
    for i, after in enumerate(np.roll(np.arange(len(polygon)), -1)):
        if value[i] >= 0:
            kept.append(polygon[i])
        if (value[i] >= 0) != (value[after] >= 0):
            kept.append(polygon[i] + (polygon[after] - polygon[i]) * (value[i] / (value[i] - value[after])))
    return np.array(kept).reshape(-1, 2)


def _area(polygon: Floats) -> float:
    x, y = polygon.T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2.0)
