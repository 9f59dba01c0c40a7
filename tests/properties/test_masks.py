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
