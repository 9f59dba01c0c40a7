"""Padding and displacement fields of `Plan`, which take several library calls.

`DisplacementField` says where a warp by a displacement field moves boxes and keypoints.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.native import address, library
from cuaug.errors import TransformError
from cuaug.plan.layout import Border, Neighborhood
from cuaug.plan.pass_table import POINTWISE, POSITIONAL, Indices, PassTable

Floats = NDArray[np.float64]

# Newton's method: its steps, its tolerance in pixels, and the shortest step that it takes as a fraction of a full one.
_MAX_STEPS, _TOLERANCE, _MIN_STEP = 60, 1e-5, 2.0**-12


class DisplacementField(NamedTuple):
    """Displacements of a warp at the nodes of a grid, one grid per sample.

    Attributes:
        nodes: (n, R, C, 2) displacements (dy, dx) in pixels.
        rows, columns: (n,) how many of R and C a sample uses.
    """

    nodes: NDArray[np.float32]
    rows: Indices
    columns: Indices

    def undo(self, points: Floats, owner: Indices, size: Floats) -> Floats:
        """The points that the field moves to `points`, by Newton's method with halved steps.

        If the field folds the image over itself, there are several solutions; this returns one, or the nearest point
        found. Beyond the image the displacement is the edge's.

        Args:
            points: (K, 2) x, y in pixels.
            owner: (K,) sample of each point.
            size: (K, 2) width and height of its image.
        """
        solution = points.copy()
        moved, slopes = self._displace(solution, owner, size)
        error, step = points - moved, np.ones(len(points))
        for _ in range(_MAX_STEPS):
            # A point that has converged stays put, so a result does not depend on the other points.
            pending = np.flatnonzero((np.abs(error) > _TOLERANCE).any(axis=1) & (step > _MIN_STEP))
            if len(pending) == 0:
                break
            trial = solution[pending] + step[pending, None] * _newton_steps(slopes[pending], error[pending])
            moved, new_slopes = self._displace(trial, owner[pending], size[pending])
            new_error = points[pending] - moved
            better = (new_error**2).sum(axis=1) < (error[pending] ** 2).sum(axis=1)
            improved = pending[better]
            solution[improved], error[improved], slopes[improved] = trial[better], new_error[better], new_slopes[better]
            step[pending] = np.where(better, np.minimum(2.0 * step[pending], 1.0), step[pending] / 2.0)
        return solution

    def _displace(self, points: Floats, owner: Indices, size: Floats) -> tuple[Floats, Floats]:
        """(K, 2) moved points and (K, 2, 2) their derivatives by x and y; the same formula as core/warp.h."""
        cells = np.stack([self.columns[owner], self.rows[owner]], axis=1) - 1
        place = np.nan_to_num(np.clip(points, 0.0, size) / size * cells)
        cell = np.minimum(place.astype(np.int64), cells - 1)
        (s, t), (j, i) = (place - cell).T[:, :, None], cell.T
        a, b = self.nodes[owner, i, j, ::-1].astype(np.float64), self.nodes[owner, i, j + 1, ::-1]
        c, d = self.nodes[owner, i + 1, j, ::-1], self.nodes[owner, i + 1, j + 1, ::-1]
        moved = points + (a * (1 - s) + b * s) * (1 - t) + (c * (1 - s) + d * s) * t
        slopes = np.stack([(b - a) * (1 - t) + (d - c) * t, (c - a) * (1 - s) + (d - b) * s], axis=2)
        inside = (points >= 0.0) & (points <= size)
        return moved, np.eye(2) + slopes * (np.where(inside, cells / size, 0.0))[:, None, :]


def _newton_steps(slopes: Floats, error: Floats) -> Floats:
    """(K, 2) solutions of slopes @ step = error; the errors themselves where slopes are singular."""
    (a, b), (c, d) = slopes.transpose(1, 2, 0)
    determinant = a * d - b * c
    regular = np.abs(determinant) > 1e-9
    x, y = error.T
    steps = np.stack([d * x - b * y, a * y - c * x], axis=1) / np.where(regular, determinant, 1.0)[:, None]
    return np.where(regular[:, None], steps, error)


#: The longest side of an image, in pixels: kernels/planner/geometry.h.
MAX_SIDE = 2**31 - 1
#: Why a crop, flip or transposition begins a pass, and why a resampling does.
AFTER_POSITIONAL = ("an operation that depends on pixel positions comes before geometry",)
AFTER_RESAMPLING = ("point operations come before a resampling", "a second resampling of another kind")


def size_error(name: str, size: Indices) -> TransformError:
    """The error for the first invalid size in (2, n) heights and widths."""
    height, width = size[:, ((size < 1) | (size > MAX_SIDE)).any(axis=0).argmax()]
    return TransformError(f"{name} to {height} x {width}: both sides are from 1 to {MAX_SIDE} pixels")


def crop_error(table: PassTable, chosen: Indices, window: Indices) -> TransformError:
    """The error for the first of the chosen samples whose window, (4, n), leaves its image."""
    worst = table.first_misfit(chosen, window)
    (top, left, height, width), (image_height, image_width) = window[:, worst], table.sizes(chosen)[:, worst]
    which = f"; image {chosen[worst]} of the batch" if len(table) > 1 else ""
    return TransformError(
        f"crop of {height} x {width} at row {top}, column {left} does not fit "
        f"an image of {image_height} x {image_width} (height x width{which})"
    )


def uncut_window(sizes: tuple[Indices, Indices], chosen: Indices, sides: Indices) -> Indices:
    """(4, N) top, left, height and width of the windows left of the images.

    Args:
        sizes: (N,) heights and widths.
        sides: (4, n) pixels to cut off the chosen samples: top, left, bottom and right.
    """
    height, width = sizes
    result = np.stack([np.zeros_like(height), np.zeros_like(width), height, width])
    result[:, chosen] += [sides[0], sides[1], -sides[0] - sides[2], -sides[1] - sides[3]]
    if (empty := (result[2:] < 1).any(axis=0)).any():
        worst = int(empty.argmax())
        cut = ", ".join(map(str, sides[:, chosen == worst][:, 0].tolist()))
        raise TransformError(
            f"padding cuts {cut} pixels (top, left, bottom, right) off an image of {height[worst]} x {width[worst]}: "
            "at least one row and column must be left"
        )
    return result


def add_padding(table: PassTable, chosen: Indices, sides: Indices, border: Border, fill: ArrayLike) -> None:
    """Pads the chosen samples by `sides`, (4, n): top, left, bottom and right, in pixels."""
    color = np.broadcast_to(np.asarray(fill, dtype=np.float32), (3,))
    current, op_kind = table.current, table.op_kind[chosen]
    table.begin_pass(chosen[op_kind == POSITIONAL], *AFTER_POSITIONAL)
    if border == Border.CONSTANT:
        table.begin_pass(chosen[op_kind == POINTWISE], "point operations come before a border of constant color")
    if border == Border.WRAP:
        # A tile of a JPEG pass has room for neighboring blocks only, not for blocks of the opposite edge.
        is_jpeg = current["neighborhood"][chosen] == Neighborhood.JPEG
        table.begin_pass(chosen[is_jpeg], "a border that wraps comes after a JPEG")
    padded, has_source = table.padding_visible(chosen)
    same = (current["after"]["border"][chosen] == border) & (border <= Border.EDGE)
    same &= (border == Border.EDGE) | (current["after"]["fill"][chosen] == color).all(axis=1)
    table.begin_pass(chosen[padded & ~(same & has_source)], "a border of another kind comes after the first")

    index = table.index(chosen)
    current["after"]["border"][index], current["after"]["fill"][index] = border, color
    if not table.change((), library.cuaug_pad, chosen, address(sides)):
        raise TransformError(f"padding by up to {sides.max()}: an image cannot reach beyond {MAX_SIDE} pixels")


def add_field(
    table: PassTable, chosen: Indices, field: NDArray[np.float32], nodes: tuple[ArrayLike, ArrayLike] | None
) -> DisplacementField:
    """Stores the field of `Plan.warp` for the chosen samples."""
    if field.ndim not in (3, 4) or field.shape[-1] != 2 or min(field.shape[-3:-1]) < 2:
        raise TransformError(f"field must be (R, C, 2) or (N, R, C, 2), R and C at least 2, not {field.shape}")
    fields = table.rows_of("field", field, chosen) if field.ndim == 4 else field[None]
    rows, columns = table.per_sample(chosen, *(field.shape[-3:-1] if nodes is None else nodes))
    if (min(rows.min(), columns.min()) < 2) | (rows > field.shape[-3]).any() | (columns > field.shape[-2]).any():
        raise TransformError(f"nodes must be from 2 to the field's own, {field.shape[-3:-1]}, not {nodes}")
    packed = fields
    if (columns != field.shape[-2]).any():
        # Each sample's own nodes, row after row without gaps.
        place = np.arange(fields[0].size // 2)
        row, column = np.divmod(place, columns[:, None])
        place = np.minimum(row * field.shape[-2] + column, place[-1])
        packed = np.broadcast_to(fields, (len(chosen), *fields.shape[1:])).reshape(len(chosen), -1, 2)
        packed = np.take_along_axis(packed, place[:, :, None], axis=1)
    current = table.current
    current["field"]["at"][chosen] = table.add_values(packed.reshape(len(packed), -1))
    current["field"]["rows"][chosen], current["field"]["columns"][chosen] = rows, columns
    heights, widths = table.sizes(chosen)
    current["field_step"][chosen] = np.stack([(rows - 1 << 32) // heights, (columns - 1 << 32) // widths], axis=1)
    return DisplacementField(np.broadcast_to(fields, (len(chosen), *fields.shape[1:])), rows, columns)
