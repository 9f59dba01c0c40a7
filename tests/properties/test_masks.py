"""Positional operations: erase, noise and masks, against tests/references/masks.py."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cuaug.plan import Type, operations
from tests.references import masks as reference
from tests.support.run_plans import assert_same, assert_same_noise, plan_for, run_one
from tests.support.strategies import images, sizes

words = st.integers(0, 2**32 - 1)
keys = st.tuples(words, words)
rectangles = st.tuples(st.integers(-3, 60), st.integers(-3, 60), st.integers(-3, 80), st.integers(-3, 80))
some_images = images(sizes(5000))
float_images = images(sizes(5000), dtype=np.float32)


def as_keys(key):
    return np.array([key], dtype=np.uint32)


@given(some_images, rectangles, st.tuples(*[st.integers(0, 255)] * 3))
def test_erase(image, rectangle, value):
    plan = plan_for(image)
    plan.append(operations.erase(1, rectangle, value))
    assert_same(run_one(plan, image, Type.UINT8), reference.erase(image, rectangle, value))


@given(some_images, st.integers(0, 16), keys, st.tuples(*[st.integers(0, 255)] * 3))
def test_mask(image, sixteenths, key, fill):
    plan = plan_for(image)
    plan.append(operations.mask(1, sixteenths / 16, as_keys(key), fill))
    assert_same(run_one(plan, image, Type.UINT8), reference.mask(image, sixteenths / 16, key, fill))


@given(float_images, rectangles, keys, st.floats(-1, 1), st.floats(0.01, 2))
def test_noise(image, rectangle, key, mean, std):
    plan = plan_for(image)
    plan.append(operations.erase_with_noise(1, rectangle, as_keys(key), mean, std))
    got = run_one(plan, image)
    want = reference.erase_noise(image.astype(np.float64), rectangle, key, mean, std)
    assert_same_noise(got / max(std, 1), want / max(std, 1))
    outside = ~reference.inside(*image.shape[:2], rectangle)
    assert_same(got[outside], image[outside])


@given(some_images, keys)
def test_ratios_of_0_and_1(image, key):
    for ratio, want in ((0.0, image), (1.0, np.zeros_like(image))):
        plan = plan_for(image)
        plan.append(operations.mask(1, ratio, as_keys(key)))
        assert_same(run_one(plan, image, Type.UINT8), want)


@given(some_images, keys, st.integers(1, 15), st.booleans())
def test_positions_refer_to_the_image_at_that_point(image, key, sixteenths, vertical):
    """Later geometry moves the masked pixels; it does not move pixels under the mask."""
    plan = plan_for(image)
    plan.flip(vertical=vertical)
    plan.append(operations.mask(1, sixteenths / 16, as_keys(key)))
    plan.flip()
    plan.pad(1, 2, 3, 4, fill=7)
    plan.append(operations.erase(1, (0, 0, 2, 2), 9))
    step = image[::-1] if vertical else image[:, ::-1]
    step = reference.mask(step, sixteenths / 16, key, 0)[:, ::-1]
    step = np.pad(step, ((2, 4), (1, 3), (0, 0)), constant_values=7)
    assert_same(run_one(plan, image, Type.UINT8), reference.erase(step, (0, 0, 2, 2), 9))


BIG = np.zeros((300, 500, 3), dtype=np.float32)


def noise_of(key):
    plan = plan_for(BIG)
    plan.append(operations.erase_with_noise(1, (0, 0, 300, 500), as_keys(key), 0.0, 1.0))
    return run_one(plan, BIG).astype(np.float64)


def test_noise_is_normal_and_independent():
    noise = noise_of((1, 2))
    n = noise.size
    assert abs(noise.mean()) < 4 / n**0.5 and abs(noise.std() - 1) < 4 / n**0.5
    assert abs((noise**3).mean()) < 4 * (15 / n) ** 0.5 and abs((noise**4).mean() - 3) < 4 * (96 / n) ** 0.5
    together = np.corrcoef(noise.reshape(-1, 3).T) - np.eye(3)
    assert np.abs(together).max() < 4 / (n / 3) ** 0.5
    for neighbor in (noise[1:] * noise[:-1], noise[:, 1:] * noise[:, :-1]):
        assert abs(neighbor.mean()) < 4 / n**0.5
    assert len(np.unique(noise)) > 0.95 * n


def test_other_keys_give_other_noise():
    base = noise_of((1, 2))
    for key in ((2, 2), (1, 3), (2, 1)):
        assert abs((noise_of(key) * base).mean()) < 4 / base.size**0.5


def test_mask_keeps_its_ratio():
    for ratio in (0.1, 0.5, 0.75):
        plan = plan_for(BIG)
        plan.append(operations.mask(1, ratio, as_keys((3, 4)), 1.0))
        dropped = run_one(plan, BIG)[..., 0]
        assert abs(dropped.mean() - ratio) < 4 * (ratio * (1 - ratio) / dropped.size) ** 0.5
