"""Boxes and keypoints of a batch, moved by the same steps as its pixels.

Coordinates are (x, y) in pixels. Pixel (0, 0) covers the square from (0, 0) to (1, 1); its center is (0.5, 0.5). A
point that leaves the image is lost, like its pixel; a later step does not bring it back.

Every step moves a box's four corners, and their bounding rectangle is the new box at the end. If a step takes a part of
the box out of the image, the bounding rectangle is cut off at the image's edge then.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.plan import regions
from cuaug.plan.padding_displacement import DisplacementField
from cuaug.plan.regions import move_boxes

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

#: The four numbers of a box: two corners, a corner and a size, or a center and a size.
BOX_FORMATS = ("xyxy", "xywh", "cxcywh")

# How far rounding may move a point out of the image, in pixels; as in kernels/planner/geometry.h.
_SLACK = 1e-6
# Least depth of a point before the horizon of a perspective.
_MIN_DEPTH = 1e-9


class BoxesKeypoints:
    """The boxes and keypoints of N images.

    Args:
        count: N.
        boxes: (B, 4) xyxy, pixels.
        box_of: (B,) image of each box, ascending.
        keypoints: (K, 2) x, y, pixels.
        keypoint_of: (K,) image of each keypoint.

    Attributes:
        corners: (B, 4, 2) corners of the boxes; a quadrangle after a rotation or a warp.
        area_fraction: (B,) fraction of each box's area that is still in the image.
        selected: (B,) False for boxes that a transform removed.
        visible: (K,) False for keypoints that left the image.
        keypoint_selected: (K,) False for keypoints that a transform removed.
        labels_follow_keypoints: the labels of removed keypoints go too.
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
        self.keypoint_selected = np.ones(len(self.keypoints), dtype=bool)
        self.labels_follow_keypoints = False

    def boxes(self) -> Floats:
        """(B, 4) xyxy bounds of each box's corners."""
        return np.concatenate(_bounds(self.corners), axis=1)

    def empty(self, which: NDArray[np.bool_]) -> None:
        """Shrinks the boxes `which`, (B,) bool, to nothing."""
        self.corners[which], self.area_fraction[which] = 0.0, 0.0

    def move(
        self,
        chosen: Indices,
        matrix: Floats,
        heights: Indices,
        widths: Indices,
        *,
        field: DisplacementField | None = None,
        inverse: bool = False,
    ) -> None:
        """Moves the points of some images.

        Args:
            chosen: (n,) numbers of the images.
            matrix: (n, 3, 3) affine maps from old points (x, y, 1) to new ones; with `inverse`, perspective maps from
                new points to old ones.
            heights, widths: (n,) sizes of the new images.
            field: displacements added to new points before the inverse `matrix` applies.
        """
        position = np.full(self.count, -1)
        position[chosen] = np.arange(len(chosen))
        matrix = _invert(matrix) if inverse else matrix
        size = np.stack([widths, heights], axis=1).astype(np.float64)

        if len(self.keypoints):
            rows, owner = _points_of(position, self.keypoint_of)
            moved = _divide(_transform(matrix[owner], self.keypoints[rows]))
            moved = moved if field is None else field.undo(moved, owner, size[owner])
            self.keypoints[rows] = moved
            self.visible[rows] &= ((moved >= -_SLACK) & (moved <= size[owner] + _SLACK)).all(axis=1)

        if not inverse:
            move_boxes(self.corners, self.area_fraction, position[self.box_of], matrix, size)
            return
        rows, owner = _points_of(position, self.box_of)
        old = self.corners[rows]
        projected = _transform(matrix[owner][:, None], old)
        depth = projected[..., 2]
        whole = (depth > _MIN_DEPTH).all(axis=1) | (depth < -_MIN_DEPTH).all(axis=1)
        moved = _divide(projected[whole])
        if field is not None:
            owner4 = np.repeat(owner[whole], 4)
            moved = field.undo(moved.reshape(-1, 2), owner4, size[owner4])
        corners, fraction = np.zeros_like(old), np.zeros(len(old))
        corners[whole], fraction[whole] = _clip(moved.reshape(-1, 4, 2), size[owner[whole]])
        for i in np.flatnonzero(~whole & np.isfinite(depth).all(axis=1)):
            corners[i], fraction[i] = _clip_at_horizon(old[i], matrix[owner[i]], size[owner[i]])
        self.corners[rows] = corners
        self.area_fraction[rows] *= fraction


def shift(x: ArrayLike, y: ArrayLike) -> Floats:
    """(n, 3, 3) matrices that add x and y."""
    return _matrices(1.0, 1.0, x, y)


def scaling(x: ArrayLike, y: ArrayLike) -> Floats:
    """(n, 3, 3) matrices that multiply by x and y."""
    return _matrices(x, y, 0.0, 0.0)


def mirror(size: ArrayLike, *, vertical: bool = False) -> Floats:
    """(n, 3, 3) matrices that mirror x in a width, or with `vertical` y in a height."""
    return _matrices(1.0, -1.0, 0.0, size) if vertical else _matrices(-1.0, 1.0, size, 0.0)


def swap(count: int) -> Floats:
    """(count, 3, 3) matrices that exchange x and y."""
    return np.broadcast_to(np.eye(3)[[1, 0, 2]], (count, 3, 3))


def _matrices(scale_x: ArrayLike, scale_y: ArrayLike, x: ArrayLike, y: ArrayLike) -> Floats:
    matrices = np.zeros((np.broadcast(scale_x, scale_y, x, y).size, 3, 3))
    matrices[:, 0, 0], matrices[:, 1, 1], matrices[:, 0, 2], matrices[:, 1, 2] = scale_x, scale_y, x, y
    matrices[:, 2, 2] = 1.0
    return matrices


def _invert(matrices: Floats) -> Floats:
    """Inverses up to a factor; NaN for a singular matrix, which loses every point.

    The scale of a matrix is free. The test for singularity sets it so that the last row's largest entry is 1.
    """
    scale = np.abs(matrices[:, 2:]).max(axis=2, keepdims=True)
    matrices = matrices / np.where(scale > 0.0, scale, 1.0)
    adjugate = regions.adjugate(matrices)
    determinant = regions.product(matrices, adjugate)[:, :1, :1]
    return adjugate / np.where(np.abs(determinant) > 1e-12, determinant, np.nan)


def _points_of(position: Indices, image_of: Indices) -> tuple[Indices, Indices]:
    """Rows of the chosen images' points, and each one's position among the chosen images."""
    rows = np.flatnonzero(position[image_of] >= 0)
    return rows, position[image_of[rows]]


def _rectangles(x0: ArrayLike, y0: ArrayLike, x1: ArrayLike, y1: ArrayLike) -> Floats:
    """(B, 4, 2) corners, or (4, 2) of one box."""
    corners = np.empty((*np.shape(x0), 4, 2))
    for i, x, y in ((0, x0, y0), (1, x1, y0), (2, x1, y1), (3, x0, y1)):
        corners[..., i, 0], corners[..., i, 1] = x, y
    return corners


def _bounds(corners: Floats) -> tuple[Floats, Floats]:
    """(B, 2) least and (B, 2) greatest coordinates; NumPy reduces along so short an axis slowly."""
    a, b, c, d = corners.transpose(1, 0, 2)
    return np.minimum(np.minimum(a, b), np.minimum(c, d)), np.maximum(np.maximum(a, b), np.maximum(c, d))


def _transform(matrices: Floats, points: Floats) -> Floats:
    """(..., 3) matrices times (x, y, 1)."""
    x, y = points[..., 0], points[..., 1]
    m = np.moveaxis(matrices, (-2, -1), (0, 1))
    return np.stack([m[i, 0] * x + m[i, 1] * y + m[i, 2] for i in range(3)], axis=-1)


def _divide(projected: Floats) -> Floats:
    """(..., 2) points; NaN on the horizon of a perspective. Points beyond it appear on its other side."""
    depth = projected[..., 2:]
    return projected[..., :2] / np.where(np.abs(depth) > _MIN_DEPTH, depth, np.nan)


def _clip(corners: Floats, size: Floats) -> tuple[Floats, Floats]:
    """(B, 4, 2) boxes in their images, and (B,) the fraction of each area that is left.

    A box inside keeps its corners; any other becomes its bounding rectangle, cut off.
    """
    low, high = _bounds(corners)
    inside: NDArray[np.bool_] = np.all((low >= -_SLACK) & (high <= size + _SLACK), axis=1)
    if inside.all():
        return corners, np.ones(len(corners))
    first, end = (np.minimum(np.maximum(ends, 0.0), size) for ends in (low, high))
    area, left = ((b - a)[:, 0] * (b - a)[:, 1] for a, b in ((low, high), (first, end)))
    fraction = np.where(inside, 1.0, np.divide(left, area, out=np.zeros_like(area), where=area > 0))
    return np.where(inside[:, None, None], corners, _rectangles(*first.T, *end.T)), fraction


def _clip_at_horizon(corners: Floats, matrix: Floats, size: Floats) -> tuple[Floats, float]:
    """The visible rectangle of a box that a perspective's horizon cuts, and the visible fraction of its area."""
    width, height = size
    pieces, visible_area = [], 0.0
    for side in (matrix, -matrix):
        x, y, depth = side
        piece = corners
        for line in (depth - [0, 0, _MIN_DEPTH], x, width * depth - x, y, height * depth - y):
            piece = _cut(piece, line)
        if len(piece) > 2:
            pieces.append(_divide(_transform(side, piece)))
            visible_area += _area(piece)
    area = _area(corners)
    if not pieces or area == 0.0:
        return np.zeros((4, 2)), 0.0
    points = np.concatenate(pieces)
    low, high = (np.clip(ends, 0.0, size) for ends in (points.min(axis=0), points.max(axis=0)))
    return _rectangles(*low, *high), min(visible_area / area, 1.0)


def _cut(polygon: Floats, line: Floats) -> Floats:
    """The part of a convex polygon, (n, 2), where line . (x, y, 1) >= 0 (Sutherland and Hodgman 1974)."""
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
