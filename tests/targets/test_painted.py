"""A spot painted at a keypoint, or a filled box, is found where the moved target says."""

from __future__ import annotations

import numpy as np
import pytest

from cuaug import transforms as T
from tests.support.run_plans import run
from tests.targets.test_every_transform import MOVING, H, N, W, planned, smooth

SPOT = 1.0  # standard deviation in pixels
BENDING = ("ElasticTransform", "GridDistortion", "RandomPerspective")


def spot(x: float, y: float) -> np.ndarray:
    rows, columns = np.mgrid[:H, :W] + 0.5
    value = np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * SPOT**2))
    return np.repeat(value[..., None], 3, axis=2).astype(np.float32)


@pytest.mark.parametrize("transform", MOVING)
def test_a_painted_spot(transform):
    transform, found = smooth(transform), 0
    for seed in range(8):
        places = np.random.default_rng(seed).uniform((W * 0.4, H * 0.4), (W * 0.6, H * 0.6), (N, 2))
        plan, mover = planned(transform, [{"keypoints": np.array([[x, y, 1.0]])} for x, y in places], seed)
        images = run(plan, [spot(x, y) for x, y in places])
        for image, target in zip(images, map(mover(plan.compile()), range(N)), strict=True):
            ((x, y, v),) = target["keypoints"]
            light = image[..., 0].astype(np.float64)
            edge = light.copy()
            edge[1:-1, 1:-1] = 0
            if not v or light.max() < 0.2 or edge.max() > 0.05:  # the spot is cut off or too small
                continue
            rows, columns = np.mgrid[: light.shape[0], : light.shape[1]] + 0.5
            center = np.array([(columns * light).sum(), (rows * light).sum()]) / light.sum()
            if type(transform).__name__ in BENDING:  # the two sides of the spot may be stretched differently
                assert light[int(y), int(x)] > 0.6 * light.max()
            else:
                assert np.abs(center - (x, y)).max() < 0.35
            found += 1
    assert found or isinstance(
        transform, T.RandomCrop
    )  # all windows may miss the spot; test_boxes_keypoints.py checks them


@pytest.mark.parametrize("transform", MOVING)
def test_a_filled_box(transform):
    """The outermost pixels of mask and image lie at the box's sides, or inside where sides are slanted."""
    transform = smooth(transform)
    image, mask = np.zeros((H, W, 3), np.float32), np.zeros((1, H, W), bool)
    image[14:30, 20:42], mask[:, 14:30, 20:42] = 1, True
    target = {"boxes": np.array([[20.0, 14.0, 42.0, 30.0]]), "masks": mask}
    plan, mover = planned(transform, [target] * N, 0)
    for moved_image, moved in zip(run(plan, [image] * N), map(mover(plan.compile()), range(N)), strict=True):
        (x0, y0, x1, y1), shown = moved["boxes"][0], moved["masks"][0]
        rows, columns = np.nonzero(shown)
        if len(rows) == 0:
            assert (x1 - x0) * (y1 - y0) < 30
            continue
        bends = 2.5 if type(transform).__name__ in BENDING else 0.51  # curved warps move the sides between the corners
        assert columns.min() + 0.5 >= x0 - bends and columns.max() + 0.5 <= x1 + bends
        assert rows.min() + 0.5 >= y0 - bends and rows.max() + 0.5 <= y1 + bends
        is_clear = np.abs(moved_image[..., 0] - 0.5) > 0.45
        np.testing.assert_array_equal(shown[is_clear], moved_image[..., 0][is_clear] > 0.5)
