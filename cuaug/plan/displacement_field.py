"""Displacement fields, as points see them: where a warp by a field shows what lies at a place of the old image."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["DisplacementField"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

# Steps of the iteration that undoes a field, and how near it must come, in pixels.
_MOST_STEPS, _NEAR = 60, 1e-5
_LEAST_STEP = 2.0**-12


class DisplacementField(NamedTuple):
    """Displacements (dy, dx) of a warp: nodes (n, R, C, 2), of which a sample has its first `rows` and `columns`."""

    nodes: NDArray[np.float32]
    rows: Indices
    columns: Indices

    def undo(self, points: Floats, at: Indices, size: Floats) -> Floats:
        """(K, 2): the places that displacements move to `points`, both (x, y), in images `at` of `size` (K, 2).

        Newton's method, whose steps are halved where they come no nearer. Where a field folds the image over itself
        there are several such places and this finds one, or what is nearest to one. Beyond the image the displacement
        is that of its edge.
        """
        now = points.copy()
        moved, slopes = self._displaced(now, at, size)
        miss, step = points - moved, np.ones(len(points))
        for _ in range(_MOST_STEPS):
            # A point that is there stays: where it ends does not depend on how long others take.
            far = np.flatnonzero((np.abs(miss) > _NEAR).any(axis=1) & (step > _LEAST_STEP))
            if len(far) == 0:
                break
            trial = now[far] + step[far, None] * _solved(slopes[far], miss[far])
            moved, new_slopes = self._displaced(trial, at[far], size[far])
            new_miss = points[far] - moved
            better = (new_miss**2).sum(axis=1) < (miss[far] ** 2).sum(axis=1)
            which = far[better]
            now[which], miss[which], slopes[which] = trial[better], new_miss[better], new_slopes[better]
            step[far] = np.where(better, np.minimum(2.0 * step[far], 1.0), step[far] / 2.0)
        return now

    def _displaced(self, points: Floats, at: Indices, size: Floats) -> tuple[Floats, Floats]:
        """(K, 2) where points are moved to, and (K, 2, 2) how that changes with x and with y; as core/warp.h."""
        cells = np.stack([self.columns[at], self.rows[at]], axis=1) - 1
        place = np.nan_to_num(np.clip(points, 0.0, size) / size * cells)
        cell = np.minimum(place.astype(np.int64), cells - 1)
        (s, t), (j, i) = (place - cell).T[:, :, None], cell.T
        a, b = self.nodes[at, i, j, ::-1].astype(np.float64), self.nodes[at, i, j + 1, ::-1]
        c, d = self.nodes[at, i + 1, j, ::-1], self.nodes[at, i + 1, j + 1, ::-1]
        moved = points + (a * (1 - s) + b * s) * (1 - t) + (c * (1 - s) + d * s) * t
        slopes = np.stack([(b - a) * (1 - t) + (d - c) * t, (c - a) * (1 - s) + (d - b) * s], axis=2)
        inside = (points >= 0.0) & (points <= size)
        return moved, np.eye(2) + slopes * (np.where(inside, cells / size, 0.0))[:, None, :]


def _solved(slopes: Floats, miss: Floats) -> Floats:
    """(K, 2): the steps that end the misses if the slopes last; where they are singular, the misses themselves."""
    (a, b), (c, d) = slopes.transpose(1, 2, 0)
    det = a * d - b * c
    regular = np.abs(det) > 1e-9
    x, y = miss.T
    steps = np.stack([d * x - b * y, a * y - c * x], axis=1) / np.where(regular, det, 1.0)[:, None]
    return np.where(regular[:, None], steps, miss)
