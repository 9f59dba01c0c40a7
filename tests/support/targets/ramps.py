"""Coordinate ramps: images whose pixels hold their own coordinates, so that a moved ramp shows its origin."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from cuaug.plan import Border, BoxesKeypoints, Filter, Plan
from cuaug.plan.padding_displacement import DisplacementField
from tests.support.strategies import GEOMETRY, TURNS, Step, steps

MOVES = (*GEOMETRY, *TURNS)


def ramp(h: int, w: int) -> np.ndarray:
    """(h, w, 3) float32: x and y of each pixel's center, and 1 inside the image."""
    y, x = np.mgrid[:h, :w] + 0.5
    return np.stack([x, y, np.ones((h, w))], axis=-1).astype(np.float32)


def curvature(values: np.ndarray) -> float:
    """The largest second difference along either axis: 0 for linear values."""
    return max(np.abs(np.diff(values, 2, axis=axis)).max(initial=0.0) for axis in (0, 1))


def shown(image: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, float] | None:
    """The coordinates that a moved ramp shows at (x, y), and their tolerance; None near a border of either image."""
    left, top = np.floor(np.asarray(place) - 0.5).astype(int)
    if min(left, top) < 1 or left + 3 > image.shape[1] or top + 3 > image.shape[0]:
        return None
    around = image[top - 1 : top + 3, left - 1 : left + 3].astype(np.float64)
    if around[..., 2].min() < 0.9999:
        return None
    s, t = np.asarray(place) - 0.5 - (left, top)
    inner = around[1:3, 1:3, :2]
    value = (inner[0, 0] * (1 - s) + inner[0, 1] * s) * (1 - t) + (inner[1, 0] * (1 - s) + inner[1, 1] * s) * t
    down, across = np.diff(around[:, :3, :2], axis=0), np.diff(around[:3, :, :2], axis=1)
    slopes = [np.linalg.norm(steps, axis=2) for steps in (down, across)]
    # Flat in part or in one direction: the outer half pixel of an enlarged image.
    if any(slope.min() <= 0.25 * slope.max() for slope in slopes):
        return None
    if (
        np.abs(down[..., 0] * across[..., 1] - down[..., 1] * across[..., 0]).min()
        <= 0.02 * slopes[0].max() * slopes[1].max()
    ):
        return None
    return value, 0.02 + 0.05 * max(slope.max() for slope in slopes) + 4.0 * curvature(around[..., :2])


def folds(step: Step) -> bool:
    """Whether a warp's field shows any point twice."""
    field = step.arguments.get("field")
    if field is None:
        return False
    rows, columns = field.shape[:2]
    size = np.array([step.arguments["width"], step.arguments["height"]], dtype=float)
    displacement = DisplacementField(field[None], np.array([rows]), np.array([columns]))
    cells = size / (columns - 1, rows - 1)
    for i in range(rows - 1):
        for j in range(columns - 1):
            inside = (np.array([[j, i], [j + 1, i], [j, i + 1], [j + 1, i + 1]]) * 0.9998 + 1e-4) * cells
            _, slopes = displacement._displace(inside, np.zeros(4, int), np.broadcast_to(size, (4, 2)))
            if np.linalg.det(slopes).min() < 0.05:
                return True
    return False


@st.composite
def moves(draw, size: tuple[int, int], longest: int = 6, names: Any = MOVES, smooth: bool = True) -> list[Step]:
    """A random chain of geometry. `smooth`: linear interpolation, black borders, and no antialiasing.

    Antialiasing distorts a ramp at its ends, where the filter is cut off.
    """
    (h, w), chain, curved = size, [], False
    for _ in range(draw(st.integers(1, longest))):
        # No second interpolation after a curved warp: on few pixels it would cut curves short.
        usable = [name for name in names if not (smooth and curved and name in ("resize", "warp"))]
        step, new_h, new_w = draw(steps(draw(st.sampled_from(usable)), h, w))
        if smooth:
            how = {"filter": Filter.BILINEAR, "antialias": False, "border": Border.CONSTANT, "fill": 0.0}
            step = Step(step.name, step.arguments | {k: v for k, v in how.items() if k in step.arguments})
        if not folds(step):
            chain.append(step)
            h, w = new_h, new_w
            curved |= step.name == "warp"
    return chain


def points_of(plan: Plan, keypoints: Any = (), boxes: Any = ()) -> BoxesKeypoints:
    """Attach points to a plan of one image."""
    boxes, keypoints = np.reshape(boxes, (-1, 4)), np.reshape(keypoints, (-1, 2))
    plan.points = BoxesKeypoints(1, boxes, np.zeros(len(boxes), int), keypoints, np.zeros(len(keypoints), int))
    return plan.points
