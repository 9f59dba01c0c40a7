"""RandomIoUCrop and SanitizeBoundingBoxes against torchvision's documentation and source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import TransformError
from cuaug import transforms as T
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.targets import Targets


def random_boxes(rng: np.random.Generator, count: int, h: int, w: int) -> np.ndarray:
    first = rng.uniform(0, (w * 0.9, h * 0.9), (count, 2))
    return np.concatenate([first, first + rng.uniform(0, 1, (count, 2)) * ((w, h) - first)], axis=1)


def planned(transform: T.Transform, boxes: list[np.ndarray], h: int, w: int, seed: int = 0, where: Any = None) -> Plan:
    n = len(boxes)
    plan = Plan([h] * n, [w] * n)
    Targets([{"boxes": b} for b in boxes], [h] * n, [w] * n).attach(plan)
    transform.plan(plan, SampleRNG(seed, 0, np.arange(n)), where)
    return plan


def iou(boxes: np.ndarray, window: np.ndarray) -> np.ndarray:
    """torchvision.ops.box_iou."""
    low, high = np.maximum(boxes[:, :2], window[:2]), np.minimum(boxes[:, 2:], window[2:])
    both = np.clip(high - low, 0, None).prod(axis=1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return both / (area + (window[2:] - window[:2]).prod() - both)


# --- RandomIoUCrop ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 0.5, 0.7]))
def test_a_window_has_the_drawn_iou_with_a_box(seed, min_iou):
    rng = np.random.default_rng(seed)
    h, w = rng.integers(10, 200, 2)
    boxes = [random_boxes(rng, rng.integers(0, 6), h, w) for _ in range(8)]
    crop = T.RandomIoUCrop(0.4, 0.9, 0.8, 1.5, sampler_options=[min_iou])
    plan = planned(crop, boxes, h, w, seed)
    step = plan.trace.steps[0]
    for i, before in enumerate(boxes):
        top, left, height, width = (int(step.params[name][i]) for name in ("top", "left", "height", "width"))
        moved = plan.points.boxes()[plan.points.box_of == i]
        if not step.where[i]:
            assert (plan.sizes[0][i], plan.sizes[1][i]) == (h, w)
            np.testing.assert_allclose(moved, before)
            continue
        assert (plan.sizes[0][i], plan.sizes[1][i]) == (height, width)
        assert 0.8 <= width / height <= 1.5 and 0 <= top <= h - height and 0 <= left <= w - width
        for side, size in ((height, h), (width, w)):
            assert int(0.4 * size) <= side <= 0.9 * size
        window = np.array([left, top, left + width, top + height])
        x, y = (before[:, :2] + before[:, 2:]).T / 2
        inside = (left < x) & (x < left + width) & (top < y) & (y < top + height)
        assert inside.any() and iou(before[inside], window).max() >= min_iou - 1e-9
        np.testing.assert_array_equal(moved[~inside], 0)
        low, high = np.clip(before[:, :2], window[:2], window[2:]), np.clip(before[:, 2:], window[:2], window[2:])
        want = np.concatenate([low - window[:2], high - window[:2]], axis=1)
        np.testing.assert_allclose(moved[inside], want[inside], atol=1e-9)


def test_options_are_equally_likely_and_one_in_seven_changes_nothing():
    boxes = [np.array([[20.0, 20.0, 80.0, 80.0]])] * 2000
    plan = planned(T.RandomIoUCrop(), boxes, 100, 100)
    step = plan.trace.steps[0]
    assert 0.1 < 1 - step.where.mean() < 0.25
    windows = np.stack([step.params[name][step.where] for name in ("left", "top", "width", "height")], axis=1)
    found = np.array([iou(boxes[0], np.array([x, y, x + w, y + h]))[0] for x, y, w, h in windows])
    assert found.min() < 0.3 and found.max() > 0.9 and len(np.unique(windows, axis=0)) > 1000


def test_a_center_on_the_edge_is_outside_the_window():
    plan = planned(T.RandomIoUCrop(sampler_options=[0.0]), [np.array([[3.0, 3, 5, 5]])] * 500, 8, 8)
    step = plan.trace.steps[0]
    for begin, length in (("left", "width"), ("top", "height")):
        first, size = (step.params[name][step.where] for name in (begin, length))
        assert first.max() == 3 and (first + size).min() == 5


def test_where_selects_samples_and_a_batch_equals_its_images_one_by_one():
    rng = np.random.default_rng(0)
    boxes = [random_boxes(rng, 3, 60, 50) for _ in range(12)]
    where = np.arange(12) % 3 == 0
    whole, limited = (planned(T.RandomIoUCrop(), boxes, 60, 50, 4, mask) for mask in (None, where))
    for plan in (whole, limited):
        for i in range(12):
            alone = Plan([60], [50])
            Targets([{"boxes": boxes[i]}], [60], [50]).attach(alone)
            if plan is whole or where[i]:
                T.RandomIoUCrop().plan(alone, SampleRNG(4, 0, [i]))
            np.testing.assert_array_equal(plan.points.boxes()[plan.points.box_of == i], alone.points.boxes())
            assert (plan.sizes[0][i], plan.sizes[1][i]) == (alone.sizes[0][0], alone.sizes[1][0])


def test_random_iou_crop_needs_boxes():
    with pytest.raises(TransformError, match="RandomIoUCrop needs boxes: call the chain with targets"):
        T.RandomIoUCrop()(np.zeros((9, 9, 3), np.uint8))
    with pytest.raises(TransformError, match="RandomIoUCrop needs boxes"):
        T.RandomIoUCrop()(np.zeros((9, 9, 3), np.uint8), {"labels": 3})


def test_random_iou_crop_replays():
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    target = {"boxes": random_boxes(np.random.default_rng(1), 5, 40, 50), "labels": np.arange(5)}
    chain = T.Compose([T.RandomIoUCrop(), T.SanitizeBoundingBoxes(), T.RandomHorizontalFlip()])
    for _ in range(5):
        (made, moved), told = chain.trace(image, target)
        again, also = chain.replay(told, image, target)
        np.testing.assert_array_equal(again, made)
        assert all(np.array_equal(also[key], moved[key]) for key in target)


# --- SanitizeBoundingBoxes --------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.floats(0, 8), st.floats(0, 40))
def test_it_keeps_the_same_boxes_as_torchvision(seed, min_size, min_area):
    """The conditions of torchvision's _get_sanitize, for boxes inside the image."""
    rng = np.random.default_rng(seed)
    boxes = random_boxes(rng, 20, 12, 15).astype(np.float32)
    target = {"boxes": boxes, "labels": np.arange(20)}
    image = np.zeros((12, 15, 3), np.uint8)
    got = T.SanitizeBoundingBoxes(min_size, min_area)(image, target)[1]
    w, h = (boxes.astype(np.float64)[:, 2:] - boxes[:, :2]).T
    keep = (w >= min_size) & (h >= min_size) & (w * h >= min_area)
    np.testing.assert_array_equal(got["labels"], np.arange(20)[keep])
    np.testing.assert_array_equal(got["boxes"], boxes[keep])


def test_min_visibility_is_relative_to_the_original_box():
    """Two crops leave one half each; the resize does not count."""
    boxes = np.array([[0.0, 0, 8, 8], [4, 4, 8, 8], [2, 2, 6, 6]])
    image, labels = np.zeros((16, 16, 3), np.uint8), np.arange(3)

    def kept(min_visibility: float) -> list[int]:
        crops = T.Compose([T.CenterCrop((16, 8)), T.Resize((40, 40)), T.CenterCrop((20, 40))])
        chain = T.Compose([crops, T.SanitizeBoundingBoxes(0, 0, min_visibility=min_visibility)])
        return chain(image, {"boxes": boxes, "labels": labels})[1]["labels"].tolist()

    # They keep 4 of 8, 4 of 4 and 2 of 4 pixels along x, and again along y.
    assert [kept(share) for share in (0.0, 0.25, 0.26, 1.0)] == [[0, 1, 2], [0, 1, 2], [1], [1]]


def test_boxes_are_checked_at_its_place_in_the_chain():
    image, boxes = np.zeros((16, 16, 3), np.uint8), np.array([[0.0, 0, 4, 4], [0, 0, 16, 16]])
    first = T.Compose([T.SanitizeBoundingBoxes(3), T.Resize((4, 4))])(image, {"boxes": boxes})[1]["boxes"]
    last = T.Compose([T.Resize((4, 4)), T.SanitizeBoundingBoxes(3)])(image, {"boxes": boxes})[1]["boxes"]
    assert len(first) == 2 and len(last) == 1


def test_where_selects_samples_to_sanitize():
    boxes = [np.array([[0.0, 0, 0.5, 0.5], [0, 0, 5, 5]])] * 4
    plan = planned(T.SanitizeBoundingBoxes(), boxes, 9, 9, where=np.array([True, False, True, False]))
    assert plan.points.selected.tolist() == [False, True, True, True] * 2


def test_without_targets_it_changes_nothing():
    image = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    np.testing.assert_array_equal(T.SanitizeBoundingBoxes()(image), image)
    np.testing.assert_array_equal(T.SanitizeBoundingBoxes()(image, 5)[0], image)
