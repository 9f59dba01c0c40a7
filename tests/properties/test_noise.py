"""Positional operations against the references: noise, grids, erasing and masks; distribution of the draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug.plan import Type, operations
from tests.references import masks, noise
from tests.support import tolerances
from tests.support.run_plans import assert_same, assert_same_noise, plan_for, run_one
from tests.support.strategies import images, sizes

words = st.integers(0, 2**32 - 1)
keys = st.tuples(words, words)
rectangles = st.tuples(st.integers(-3, 60), st.integers(-3, 60), st.integers(-3, 80), st.integers(-3, 80))
uint8_images = images(sizes(5000))
float_images = images(sizes(5000), dtype=np.float32)


def as_keys(key):
    return np.array([key], dtype=np.uint32)


def noisy(image, make, *parameters, dtype=Type.FLOAT32, **options):
    plan = plan_for(image)
    plan.append(make(1, *parameters))
    return run_one(plan, image, dtype, **options)


def with_noise(image, key, mean, std, limit=-1.0, **options):
    return noisy(image, operations.noise, limit, as_keys(key), mean, std, **options)


def with_shots(image, key, scale, **options):
    return noisy(image, operations.shot_noise, 1.0, as_keys(key), scale, **options)


@given(float_images, keys, st.floats(-1, 1), st.floats(0, 2))
def test_gaussian(image, key, mean, std):
    want = noise.noise(image.astype(np.float64), key, mean, std) / max(std, 1)
    got = with_noise(image, key, mean, std) / max(std, 1)
    assert_same_noise(got, want)
    clipped = with_noise(image, key, mean, std, 1.0) / max(std, 1)
    assert_same_noise(clipped, np.clip(want, 0, 1 / max(std, 1)))


def test_gaussian_noise_of_a_radius_near_0():
    """Found by the property above."""
    image = np.zeros((15, 127, 3), dtype=np.float32)
    got, want = with_noise(image, (1436, 1436), 0.0, 1.0), noise.noise(image, (1436, 1436), 0.0, 1.0)
    off = np.abs(got - want)
    assert tolerances.NOISE.most < off.max() <= tolerances.RARE_NOISE.most and (off > tolerances.NOISE.most).sum() == 1


@given(images(sizes(300), dtype=np.float32), keys, st.floats(0.002, 0.5))
def test_shot(image, key, scale):
    """Counts are integers: float32's error changes one in ten thousand."""
    want = noise.shot_noise(image.astype(np.float64), key, scale, 1.0)
    off = np.abs(with_shots(image, key, scale) - want) > tolerances.COLOR.most
    assert off.sum() <= 1 + off.size / 1000


@given(
    uint8_images, st.floats(1, 50), st.integers(0, 16), st.floats(-4, 4), st.tuples(st.floats(0, 1), st.floats(0, 1))
)
def test_grid(image, tile, sixteenths, angle, shift):
    got = noisy(image, operations.grid, tile, sixteenths / 16, angle, shift, (1, 2, 3), dtype=Type.UINT8)
    low, high = (masks.grid(image, tile, sixteenths / 16 + d, angle, shift, (1, 2, 3)) for d in (-1e-4, 1e-4))
    early, late = (masks.grid(image, tile, sixteenths / 16, angle, np.add(shift, d), (1, 2, 3)) for d in (-1e-4, 1e-4))
    sure = (low == high).all(axis=2) & (early == late).all(axis=2)  # not on an edge of a square
    want = masks.grid(image, tile, sixteenths / 16, angle, shift, (1, 2, 3))
    assert_same(got[sure], want[sure])


def test_a_grid_of_whole_pixels_is_exact():
    image = np.full((40, 60, 3), 9, np.uint8)
    got = noisy(image, operations.grid, 8, 0.375, 0.0, (0.25, 0.5), 0.0, dtype=Type.UINT8)
    y, x = np.mgrid[:40, :60]
    assert_same(got, np.where((((y + 2) % 8 < 3) & ((x + 4) % 8 < 3))[..., None], 0, image).astype(np.uint8))


@given(float_images, keys)
def test_neutral_parameters_change_nothing(image, key):
    assert_same(with_noise(image, key, 0.0, 0.0), image)
    assert_same(with_noise(image, key, 0.0, 0.0, 1.0), image)
    assert_same(noisy(image, operations.grid, 8, 0.0, 0.3, (0.1, 0.2), 0.5), image)
    black = np.zeros_like(image)
    assert_same(with_shots(black, key, 0.1), black)


H, W = 300, 500
BLANK = np.zeros((H, W, 3), dtype=np.float32)


def assert_independent(first, second):
    """Checks that values of mean 0 and deviation 1 are uncorrelated."""
    assert abs((first * second).mean()) < 4.5 / math.sqrt(first.size)


def test_gaussian_noise_is_normal_and_independent():
    values = with_noise(BLANK, (1, 2), 0.0, 1.0).astype(np.float64)
    n = values.size
    assert abs(values.mean()) < 4 / n**0.5 and abs(values.std() - 1) < 4 / (2 * n) ** 0.5
    for level in (-2, -1, -0.5, 0, 0.5, 1, 2, 3):
        share = 0.5 * (1 + math.erf(level / 2**0.5))
        assert abs((values < level).mean() - share) < 4.5 * (share * (1 - share) / n) ** 0.5
    assert np.abs(values).max() > 4
    for c in range(3):
        assert_independent(values[..., c], values[..., (c + 1) % 3])
    for down, across in ((1, 0), (0, 1), (1, 1), (0, 32), (8, 0)):
        assert_independent(values[down:, across:], values[: H - down, : W - across])
    for other in ((2, 2), (1, 3), (2, 1)):
        assert_independent(values, with_noise(BLANK, other, 0.0, 1.0).astype(np.float64))


@pytest.mark.parametrize("mean", [0.05, 0.7, 3.0, 11.9, 12.1, 40.0, 900.0])
def test_shot_noise_is_poisson(mean):
    """Mean, variance, skewness and frequencies of the counts for light of `mean` photons."""
    scale = 1 / (mean + 10 * mean**0.5 + 10)  # white clips the counts, so it is far away
    light = np.full_like(BLANK, (mean * scale) ** (1 / 2.2))
    counts = np.rint(with_shots(light, (5, 6), scale).astype(np.float64) ** 2.2 / scale)
    n, limit = counts.size, round(1 / scale)
    expected = np.exp(np.arange(limit + 1) * math.log(mean) - mean - [math.lgamma(k + 1) for k in range(limit + 1)])
    expected = np.append(expected[:-1], max(1 - expected[:-1].sum(), 0.0))
    found = np.bincount(np.minimum(counts, limit).astype(int).reshape(-1), minlength=limit + 1) / n
    assert np.abs(found.cumsum() - expected.cumsum()).max() < 2 / n**0.5 + 5e-4
    if mean > 2:
        assert abs(counts.mean() - mean) < 5 * (mean / n) ** 0.5 + 1e-3 * mean
        assert abs(counts.var() / mean - 1) < 0.02
    standard = (counts - counts.mean()) / counts.std()
    assert_independent(standard[1:], standard[:-1])
    assert_independent(standard[:, 1:], standard[:, :-1])
    assert_independent(standard[..., 0], standard[..., 1])


def test_shot_noise_has_no_outliers():
    """A sum of probabilities that ends just below 1 must still end the count."""
    light = np.full((1000, 1000, 3), 0.5, np.float32)
    for mean in (0.01, 1.0, 11.9, 12.1):
        scale = float(np.float32(0.5) ** 2.2) / mean
        counts = np.rint(with_shots(light, (7, 8), scale).astype(np.float64) ** 2.2 / scale)
        assert counts.max() <= mean + 6 * math.sqrt(mean) + 12


@given(uint8_images, rectangles, st.tuples(*[st.integers(0, 255)] * 3))
def test_erase(image, rectangle, value):
    plan = plan_for(image)
    plan.append(operations.erase(1, rectangle, value))
    assert_same(run_one(plan, image, Type.UINT8), masks.erase(image, rectangle, value))


@given(uint8_images, st.integers(0, 16), keys, st.tuples(*[st.integers(0, 255)] * 3))
def test_mask(image, sixteenths, key, fill):
    plan = plan_for(image)
    plan.append(operations.mask(1, sixteenths / 16, as_keys(key), fill))
    assert_same(run_one(plan, image, Type.UINT8), masks.mask(image, sixteenths / 16, key, fill))


@given(float_images, rectangles, keys, st.floats(-1, 1), st.floats(0.01, 2))
def test_noise_in_a_rectangle(image, rectangle, key, mean, std):
    plan = plan_for(image)
    plan.append(operations.erase_with_noise(1, rectangle, as_keys(key), mean, std))
    got = run_one(plan, image)
    want = masks.erase_noise(image.astype(np.float64), rectangle, key, mean, std)
    assert_same_noise(got / max(std, 1), want / max(std, 1))
    outside = ~masks.inside(*image.shape[:2], rectangle)
    assert_same(got[outside], image[outside])


@given(uint8_images, keys, st.integers(1, 15), st.booleans())
def test_positions_refer_to_the_image_at_that_point(image, key, sixteenths, vertical):
    """Later geometry moves the masked pixels; it does not move pixels under the mask."""
    plan = plan_for(image)
    plan.flip(vertical=vertical)
    plan.append(operations.mask(1, sixteenths / 16, as_keys(key)))
    plan.flip()
    plan.pad(1, 2, 3, 4, fill=7)
    plan.append(operations.erase(1, (0, 0, 2, 2), 9))
    step = image[::-1] if vertical else image[:, ::-1]
    step = masks.mask(step, sixteenths / 16, key, 0)[:, ::-1]
    step = np.pad(step, ((2, 4), (1, 3), (0, 0)), constant_values=7)
    assert_same(run_one(plan, image, Type.UINT8), masks.erase(step, (0, 0, 2, 2), 9))
