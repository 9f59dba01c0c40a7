"""Keypoints and boxes land where their pixels land, after any chain of geometry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuaug.plan import Border, BoxesKeypoints, Filter, Plan
from tests.support.run_plans import plan_for, run_one
from tests.support.strategies import Step, write
from tests.support.targets.ramps import moves, points_of, ramp, shown

WHOLE = ("crop", "flip", "pad", "transpose", "rot90")
sides = st.integers(1, 60)


@st.composite
def chain_and_points(draw):
    h, w = draw(sides), draw(sides)
    chain = draw(moves((h, w)))
    return h, w, chain, draw(st.integers(0, 2**32 - 1))


def random_points(h: int, w: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, (w, h), (60, 2))


def misses(h: int, w: int, chain: list[Step], keypoints: np.ndarray) -> list[float]:
    """The distance between each keypoint and the origin that the moved ramp shows there, in tolerances."""
    plan = plan_for(ramp(h, w))
    points = points_of(plan, keypoints)
    moved = run_one(write(plan, chain), ramp(h, w))
    found, margin = [], distorted_margin(h, w, chain)
    inside = ((keypoints >= margin) & (keypoints <= np.array([w, h]) - margin)).all(axis=1)
    for before, after, usable in zip(keypoints, points.keypoints, points.visible & inside, strict=True):
        seen = shown(moved, after) if usable else None
        if seen is not None:
            found.append(float(np.abs(seen[0] - before).max() / seen[1]))
    return found


def distorted_margin(h: int, w: int, chain: list[Step]) -> float:
    """The margin, in source pixels, where a ramp may be distorted but look straight.

    Enlarging distorts the outer pixels, and a second enlargement makes many of them. The margin ends at the first pixel
    center that is not clamped to the border, at most 1.5 pixels inside.
    """
    sides = [
        min(step.arguments["height"], step.arguments["width"]) for step in chain if step.name in ("resize", "warp")
    ]
    return 1.5 * max(1.0, max(h, w) / min(sides)) if len(sides) > 1 else 0.0


def enlarged_twice() -> list[Step]:
    """Two rows become four, then eleven; the first four of these lie between the outer two of the four."""
    how = {"filter": Filter.BILINEAR, "width": 5}
    matrix = np.array([[1.0, 0.0, 0.125], [0.0, 0.325, 0.03], [0.0, 0.0, 1.0]])
    warp = {"matrix": matrix, "height": 11, "border": Border.CONSTANT, "fill": 0.0, "field": None}
    return [Step("resize", how | {"height": 4, "antialias": False}), Step("warp", how | warp)]


@given(chain_and_points())
@example((2, 5, enlarged_twice(), 0))
def test_a_keypoint_lands_where_its_pixel_does(case):
    h, w, chain, seed = case
    assert max(misses(h, w, chain, random_points(h, w, seed)), default=0.0) <= 1.0


@given(st.data())
def test_whole_pixel_geometry_moves_keypoints_exactly(data):
    """Crops, flips, 90-degree rotations, pads: a point is visible exactly if its pixel is, and lies at its center."""
    h, w = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    chain = data.draw(moves((h, w), names=WHOLE))
    image = np.repeat(np.arange(1, h * w + 1, dtype=np.float32).reshape(h, w, 1), 3, axis=2)
    y, x = np.mgrid[:h, :w].reshape(2, -1) + 0.5
    plan = plan_for(image)
    points = points_of(plan, np.stack([x, y], axis=1))
    moved = run_one(write(plan, chain), image)[..., 0]
    for number, (place, visible) in enumerate(zip(points.keypoints, points.visible, strict=True), 1):
        found = np.argwhere(moved == number)
        assert visible == (len(found) > 0)
        if visible:
            np.testing.assert_array_equal(place[::-1], found[0] + 0.5)


@given(st.data())
def test_boxes_of_whole_pixels_are_exact(data):
    """A box encloses its remaining pixels, and `kept` is their share."""
    h, w = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    chain = data.draw(moves((h, w), names=WHOLE))
    y0, x0 = data.draw(st.integers(0, h - 1)), data.draw(st.integers(0, w - 1))
    y1, x1 = data.draw(st.integers(y0 + 1, h)), data.draw(st.integers(x0 + 1, w))
    image = np.zeros((h, w, 3), np.float32)
    image[y0:y1, x0:x1] = 1
    plan = plan_for(image)
    points = points_of(plan, boxes=[x0, y0, x1, y1])
    rows, columns = np.nonzero(run_one(write(plan, chain), image)[..., 0])
    share = len(rows) / ((y1 - y0) * (x1 - x0))
    assert points.area_fraction[0] == pytest.approx(share, abs=1e-12)
    if len(rows):
        enclosing = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        np.testing.assert_array_equal(points.boxes()[0], enclosing)
    else:
        assert np.prod(points.boxes()[0, 2:] - points.boxes()[0, :2]) == 0


@given(chain_and_points())
def test_a_box_encloses_its_corners(case):
    """A box fully inside the image encloses its corners. Any box lies inside the image, and is not inverted."""
    h, w, chain, seed = case
    keypoints = random_points(h, w, seed)
    first, last = np.sort(keypoints.reshape(-1, 2, 2), axis=1).swapaxes(0, 1)
    corners = np.stack([first, np.stack([last[:, 0], first[:, 1]], 1), last, np.stack([first[:, 0], last[:, 1]], 1)], 1)
    plan = Plan([h], [w])
    points = points_of(plan, corners, np.concatenate([first, last], axis=1))
    write(plan, chain)
    boxes, (height,), (width,) = points.boxes(), *plan.sizes
    assert (boxes[:, :2] >= -1e-5).all() and (boxes[:, 2:] <= np.array([width, height]) + 1e-5).all()
    assert (boxes[:, :2] <= boxes[:, 2:]).all() and ((points.area_fraction >= 0) & (points.area_fraction <= 1)).all()
    whole = points.area_fraction == 1.0
    moved = points.keypoints.reshape(-1, 4, 2)[whole]
    enclosing = np.concatenate([moved.min(axis=1), moved.max(axis=1)], axis=1)
    np.testing.assert_allclose(boxes[whole], enclosing, atol=1e-5)
    seen = points.visible.reshape(-1, 4)[whole]
    if not any(step.name == "warp" for step in chain):
        assert seen.all()


@given(chain_and_points(), st.integers(1, 4))
def test_where_selects_the_images_whose_points_move(case, n):
    h, w, chain, seed = case
    keypoints = random_points(h, w, seed)
    plan, alone = Plan([h] * n, [w] * n), Plan([h], [w])
    everyone = np.repeat(np.arange(n), len(keypoints))
    boxes = np.concatenate([keypoints / 2, keypoints], axis=1)
    plan.points = BoxesKeypoints(n, np.tile(boxes, (n, 1)), everyone, np.tile(keypoints, (n, 1)), everyone)
    one = points_of(alone, keypoints, boxes)
    write(plan, chain, np.arange(n) == n - 1)
    write(alone, chain)
    last = everyone == n - 1
    np.testing.assert_array_equal(plan.points.keypoints[last], one.keypoints)
    np.testing.assert_array_equal(plan.points.boxes()[last], one.boxes())
    np.testing.assert_array_equal(plan.points.area_fraction[last], one.area_fraction)
    np.testing.assert_array_equal(plan.points.keypoints[~last], np.tile(keypoints, (n - 1, 1)))
    assert (plan.points.area_fraction[~last] == 1).all()


@given(st.integers(0, 2**32 - 1))
def test_a_box_cut_by_the_horizon_of_a_perspective(seed):
    """A box with corners on both sides of the horizon encloses its visible part."""
    rng = np.random.default_rng(seed)
    h, w, height, width = rng.integers(20, 60, 4)
    matrix = np.diag([w / width, h / height, 1.0]) @ (np.eye(3) + rng.normal(0, 0.3, (3, 3)))
    matrix[2] = [*rng.uniform(-2, 2, 2) / (width, height), 1.0]
    matrix *= rng.choice([-1, 1])  # the same map, with the visible side behind the horizon
    if abs(np.linalg.det(matrix)) < 1e-3:
        return
    first = rng.integers(0, (w // 2, h // 2))
    last = rng.integers(first + 1, (w + 1, h + 1))
    image = np.zeros((h, w, 3), np.float32)
    image[first[1] : last[1], first[0] : last[0]] = 1
    plan = plan_for(image)
    points = points_of(plan, boxes=[*first, *last])
    plan.warp(matrix, height, width, filter=Filter.NEAREST)
    rows, columns = np.nonzero(run_one(plan, image)[..., 0])
    box = points.boxes()[0]
    if len(rows):
        assert (box <= np.array([columns.min(), rows.min(), width, height]) + 0.5 + 1e-6).all()
        assert (box[2:] >= np.array([columns.max(), rows.max()]) + 0.5 - 1e-6).all()
        assert points.area_fraction[0] > 0
    if len(rows) > 30:  # enough pixels: the box's edges are near its outermost pixel centers
        inverse = np.linalg.inv(matrix)
        ends = np.array([[x, y, 1] for x in (first[0], last[0]) for y in (first[1], last[1])]) @ inverse.T
        if (ends[:, 2] > 0).all() or (ends[:, 2] < 0).all():
            inside = np.clip(ends[:, :2] / ends[:, 2:], 0, (width, height))
            np.testing.assert_allclose(box, [*inside.min(axis=0), *inside.max(axis=0)], atol=1e-6)


@pytest.mark.parametrize("times", [-1.0, 1e-4, -1e-12, 1e-60, 1e12])
@pytest.mark.parametrize("last", [[0, 0, 1], [0.01, 0.002, 1]])
def test_points_ignore_the_scale_of_a_matrix(times, last):
    matrix, found = np.array([[1.0, 0.1, 3.0], [0.05, 1.0, -2.0], last]), []
    for each in (matrix, times * matrix):
        plan = Plan([40], [40])
        found.append(points_of(plan, [[20, 20]], [8, 9, 25, 30]))
        plan.warp(each, 40, 40)
    one, other = found
    assert one.visible[0] and other.visible[0] and other.area_fraction[0] == pytest.approx(one.area_fraction[0])
    np.testing.assert_allclose(other.keypoints, one.keypoints)
    np.testing.assert_allclose(other.boxes(), one.boxes())


def test_a_matrix_that_flattens_the_image_loses_everything():
    plan = Plan([9], [9])
    points = points_of(plan, [[3, 3]], [1, 1, 8, 8])
    plan.warp(np.array([[1.0, 0, 0], [1.0, 0, 0], [0, 0, 1]]), 9, 9)
    assert points.area_fraction[0] == 0 and not points.visible[0]
    np.testing.assert_array_equal(points.boxes(), [[0, 0, 0, 0]])
