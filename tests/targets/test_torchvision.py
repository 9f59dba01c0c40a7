"""Boxes against torchvision 0.20's box kernels, rewritten in NumPy, for single transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuaug import transforms as T
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.targets import Targets
from tests.references.warp import displacement, expanded_size, inverse_affine, perspective
from tests.targets.test_boxes import random_boxes

H, W, N, K = 44, 60, 10, 30


def planned(transform: T.Transform) -> tuple[Plan, np.ndarray]:
    """The plan of N images with K boxes each after a transform, and the original boxes, (N, K, 4)."""
    boxes = random_boxes(np.random.default_rng(0), N * K, H, W).reshape(N, K, 4)
    plan = Plan([H] * N, [W] * N)
    Targets([{"boxes": b} for b in boxes], [H] * N, [W] * N).attach(plan)
    transform.plan(plan, SampleRNG(0, 0, np.arange(N)))
    return plan, boxes


def params(plan: Plan, i: int) -> dict[str, Any]:
    return {name: values[i] for name, values in plan.trace.steps[0].params.items()}


def corners(boxes: np.ndarray) -> np.ndarray:
    return np.stack([boxes[:, [0, 1]], boxes[:, [2, 1]], boxes[:, [2, 3]], boxes[:, [0, 3]]], axis=1)


def enclosed(points: np.ndarray) -> np.ndarray:
    return np.concatenate([points.min(axis=1), points.max(axis=1)], axis=1)


def clamp(boxes: np.ndarray, height: float, width: float) -> np.ndarray:
    return np.clip(boxes, 0, [width, height, width, height])


def horizontal_flip(boxes: np.ndarray) -> np.ndarray:
    return np.stack([W - boxes[:, 2], boxes[:, 1], W - boxes[:, 0], boxes[:, 3]], axis=1)


def vertical_flip(boxes: np.ndarray) -> np.ndarray:
    return np.stack([boxes[:, 0], H - boxes[:, 3], boxes[:, 2], H - boxes[:, 1]], axis=1)


def crop(boxes: np.ndarray, top: int, left: int, height: int = 20, width: int = 31, **_: Any) -> np.ndarray:
    return clamp(boxes - [left, top, left, top], height, width)


def resize(boxes: np.ndarray, height: int, width: int, old: tuple[int, int] = (H, W)) -> np.ndarray:
    ratio = width / old[1], height / old[0]
    return boxes * (ratio * 2)


def resized_crop(boxes: np.ndarray, top: int, left: int, height: int, width: int) -> np.ndarray:
    return resize(crop(boxes, top, left, height, width), 20, 30, (height, width))


def pad(boxes: np.ndarray, sides: np.ndarray) -> np.ndarray:
    return boxes + [sides[0], sides[1], sides[0], sides[1]]


def forward_affine(center: Any, angle: float, translate: Any, scale: float, shear: Any) -> np.ndarray:
    """(3, 3): _get_inverse_affine_matrix with inverted=False."""
    return np.linalg.inv(inverse_affine(center, angle, translate, scale, shear))


def moved(boxes: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    points = np.concatenate([corners(boxes), np.ones((len(boxes), 4, 1))], axis=2) @ matrix.T
    return enclosed(points[..., :2] / points[..., 2:])


def affine(boxes: np.ndarray, **drawn: Any) -> np.ndarray:
    return clamp(moved(boxes, forward_affine((W * 0.5, H * 0.5), **drawn)), H, W)


def rotate(boxes: np.ndarray, angle: float) -> np.ndarray:
    return clamp(moved(boxes, forward_affine((W * 0.5, H * 0.5), -angle, (0, 0), 1.0, (0, 0))), H, W)


def rotate_expand(boxes: np.ndarray, angle: float) -> np.ndarray:
    matrix = forward_affine((W * 0.5, H * 0.5), -angle, (0, 0), 1.0, (0, 0))
    frame = moved(np.array([[0.0, 0.0, W, H]]), matrix)[0]
    return clamp(moved(boxes, matrix) - np.tile(frame[:2], 2), *expanded_size(H, W, angle))


def through_perspective(boxes: np.ndarray, startpoints: np.ndarray, endpoints: np.ndarray) -> np.ndarray:
    return clamp(moved(boxes, np.linalg.inv(perspective(startpoints, endpoints))), H, W)


@pytest.mark.parametrize(
    ("transform", "reference"),
    [
        (T.RandomHorizontalFlip(1), horizontal_flip),
        (T.RandomVerticalFlip(1), vertical_flip),
        (T.RandomCrop((20, 31)), crop),
        (T.RandomResize(20, 70), resize),
        (T.RandomResizedCrop((20, 30)), resized_crop),
        (T.RandomZoomOut(p=1), pad),
        (T.RandomAffine(40, (0.2, 0.3), (0.5, 1.5), (-20, 20, -10, 30)), affine),
        (T.RandomRotation(180), rotate),
        (T.RandomPerspective(0.6, p=1), through_perspective),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_boxes_move_as_torchvisions_do(transform, reference):
    plan, boxes = planned(transform)
    for i in range(N):
        want = reference(boxes[i], **params(plan, i))
        np.testing.assert_allclose(plan.points.boxes().reshape(N, K, 4)[i], want, atol=1e-6)


def test_the_comparison_rejects_the_other_direction():
    plan, boxes = planned(T.RandomRotation(180))
    want = rotate(boxes[0], -params(plan, 0)["angle"])
    assert np.abs(plan.points.boxes().reshape(N, K, 4)[0] - want).max() > 5


def test_boxes_of_expanding_rotations_follow_the_image():
    """torchvision shifts boxes by the rotated frame, but the image by whole pixels: up to a pixel apart.

    Here boxes follow the image (test_every_transform.py).
    """
    plan, boxes = planned(T.RandomRotation(180, expand=True))
    off = [plan.points.boxes().reshape(N, K, 4)[i] - rotate_expand(boxes[i], **params(plan, i)) for i in range(N)]
    assert 0.1 < np.abs(off).max() <= 1.0


def test_elastic_boxes_are_near_torchvisions():
    """torchvision uses the displacement at the source point, which is close for smooth fields."""
    plan, boxes = planned(T.ElasticTransform(50, 8))
    for i in range(N):
        drawn = params(plan, i)
        field = drawn["field"][: int(drawn["rows"]), : int(drawn["columns"])]
        inside = (boxes[i, :, :2] > 4).all(axis=1) & (boxes[i, :, 2:] < (W - 4, H - 4)).all(axis=1)
        assert inside.any()
        points = corners(boxes[i])[inside]
        shift = np.array([[displacement(field, y, x, H, W)[::-1] for x, y in box] for box in points])
        got = plan.points.boxes().reshape(N, K, 4)[i][inside]
        np.testing.assert_allclose(got, enclosed(points - shift), atol=0.5)
