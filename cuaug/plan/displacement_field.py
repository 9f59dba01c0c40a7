"""`DisplacementField`: where a warp by a displacement field moves boxes and keypoints."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["DisplacementField"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

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
