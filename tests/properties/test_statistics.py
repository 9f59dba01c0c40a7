"""Operations with statistics of the image, and point operations on levels, against Pillow, OpenCV and references."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from cuaug.plan import Type, operations
from tests.properties.test_color import ALL_LEVELS, applied, float_images, seeds, uint8_images
from tests.references import color as reference
from tests.references import statistics
from tests.support import tolerances
from tests.support.run_plans import assert_close, assert_same, plan_for, run_one
from tests.support.strategies import images, sizes

tiles = st.tuples(st.integers(1, 40), st.integers(1, 70))


@st.composite
def narrow_images(draw) -> np.ndarray:
    """(H, W, 3) uint8 whose channels use a range of levels, down to a single one."""
    h, w = draw(sizes(5000))
    rng = np.random.default_rng(draw(seeds))
    low = rng.integers(0, 256, 3)
    high = np.minimum(low + draw(st.sampled_from([0, 1, 2, 30, 255])), 255)
    return rng.integers(low, high + 1, (h, w, 3)).astype(np.uint8)


some_images = uint8_images | narrow_images()


def pillow(image: np.ndarray, operation, *arguments) -> np.ndarray:
    return np.asarray(operation(Image.fromarray(image), *arguments))


@given(some_images, st.integers(1, 8), st.integers(0, 256))
def test_point_operations_on_uint8_equal_pillow(image, bits, threshold):
    assert_same(applied(operations.posterize, image, bits), pillow(image, ImageOps.posterize, bits))
    assert_same(applied(operations.solarize, image, threshold), pillow(image, ImageOps.solarize, threshold))
    assert_same(applied(operations.invert, image), pillow(image, ImageOps.invert))


@given(float_images, st.integers(0, 8), st.floats(0, 1))
def test_point_operations_on_floats(image, bits, threshold):
    exact = image.astype(np.float64)
    assert_close(applied(operations.posterize, image, bits), reference.posterize(exact, bits, 1.0), tolerances.EXACT)
    threshold = float(np.float32(threshold) if bits % 2 else image.flat[0])
    assert_close(
        applied(operations.solarize, image, threshold), reference.solarize(exact, threshold, 1.0), tolerances.COLOR
    )
    assert_close(applied(operations.invert, image), reference.invert(exact, 1.0), tolerances.COLOR)


@given(float_images | uint8_images, st.just(0.0) | st.floats(0.01, 8), st.floats(0, 2))
def test_gamma(image, gamma, gain):
    white = 255.0 if image.dtype == np.uint8 else 1.0
    want = reference.gamma(image.astype(np.float64), gamma, gain, white)
    got = applied(operations.gamma, image, gamma, gain)
    assert_close(got, want, tolerances.ROUNDING_LEVELS if white == 255.0 else tolerances.COLOR)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.45, 1.0, 2.2, 5.0, 30.0])
def test_gamma_of_every_level(gamma):
    want = reference.gamma(ALL_LEVELS.astype(np.float64), gamma, 1.0, 255.0)
    assert_close(applied(operations.gamma, ALL_LEVELS, gamma), want, tolerances.ROUNDING_LEVELS)
    if gamma == 1.0:
        assert_same(applied(operations.gamma, ALL_LEVELS, gamma), ALL_LEVELS)


@given(some_images, st.permutations(range(3)))
def test_permutation(image, order):
    assert_same(applied(lambda n, limit: operations.permutation(n, order), image), image[..., order])


@given(images(sizes(2000)), st.integers(1, 7), st.integers(1, 255), st.integers(5, 30), st.integers(5, 30))
def test_levels_are_rounded_before_comparison(image, bits, threshold, h, w):
    """Levels have fractions after a resize: bit masks and comparisons use the nearest integer."""
    base = plan_for(image)
    base.resize(h, w)
    sampled = run_one(base, image).astype(np.float64) * 255.0
    near = np.abs(sampled - np.floor(sampled) - 0.5) < 1e-3  # near a boundary both are right
    for make, formula, argument in (
        (operations.posterize, reference.posterize, bits),
        (operations.solarize, reference.solarize, threshold),
    ):
        plan = plan_for(image)
        plan.resize(h, w)
        plan.append(make(1, 255.0, argument))
        got = run_one(plan, image).astype(np.float64) * 255.0
        assert_close(
            np.where(near, 0, got), np.where(near, 0, formula(sampled, argument, 255.0)), tolerances.ROUNDING_LEVELS
        )


@given(some_images)
def test_autocontrast_rounds_exactly(image):
    """Halves round up, also where 255 * (v - low) / (high - low) is exactly a half."""
    low = image.min(axis=(0, 1)).astype(np.int64)
    span = image.max(axis=(0, 1)) - low
    stretched = (2 * 255 * (image - low) + span) // np.maximum(2 * span, 1)
    assert_same(applied(operations.autocontrast, image), np.where(span > 0, stretched, image).astype(np.uint8))


@given(float_images, st.floats(0.001, 3), st.floats(-2, 2))
def test_autocontrast_of_floats_has_the_exact_range(image, factor, bias):
    image = (image * np.float32(factor) + np.float32(bias)).astype(np.float32)
    want = statistics.autocontrast(image.astype(np.float64), 1.0)
    assert_close(applied(operations.autocontrast, image), want, tolerances.COLOR)


@given(st.integers(0, 255), st.tuples(st.integers(2, 40), st.integers(2, 40)), st.tuples(*[st.integers(1, 60)] * 2))
def test_a_resized_flat_image_is_still_flat(level, size, resized):
    """The weights sum to 1 only approximately: autocontrast must not stretch the error."""
    image = np.full((*size, 3), level, np.uint8)
    plan = plan_for(image)
    plan.resize(*resized)
    plan.append(operations.autocontrast(1, 255.0))
    assert_same(run_one(plan, image, Type.UINT8), np.full((*resized, 3), level, np.uint8))


@given(some_images)
def test_equalize_equals_pillow(image):
    assert_same(applied(operations.equalize, image), pillow(image, ImageOps.equalize))


@given(some_images)
def test_equalize_of_floats_uses_their_levels(image):
    floats = image.astype(np.float32) / np.float32(255)
    want = pillow(image, ImageOps.equalize) / 255.0
    assert_close(applied(operations.equalize, floats), want, tolerances.COLOR)


@given(images(sizes(3000)), st.integers(20, 60), st.integers(20, 60))
def test_equalize_counts_the_resized_image(image, h, w):
    plan = plan_for(image)
    plan.resize(h, w)
    resized = run_one(plan, image, Type.UINT8)
    plan = plan_for(image)
    plan.resize(h, w)
    plan.append(operations.equalize(1, 255.0))
    assert_same(run_one(plan, image, Type.UINT8), pillow(resized, ImageOps.equalize))


grids = st.tuples(st.integers(1, 9), st.integers(1, 9))
clips = st.just(0.0) | st.floats(0.01, 40) | st.integers(1, 40).map(lambda n: n / 10)


def clahe(image: np.ndarray, clip_limit: float, grid: tuple[int, int], **how) -> np.ndarray:
    plan = plan_for(image)
    plan.append(operations.clahe(1, plan.limit, clip_limit, grid))
    return run_one(plan, image, Type.UINT8 if image.dtype == np.uint8 else Type.FLOAT32, **how)


def opencv_clahe(image: np.ndarray, clip_limit: float, grid: tuple[int, int]) -> np.ndarray:
    clahe = cv2.createCLAHE(clip_limit, grid[::-1])
    return np.stack([clahe.apply(np.ascontiguousarray(image[..., c])) for c in range(3)], axis=2)


def assert_opencvs(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    assert_close(got, want, tolerances.OPENCV_CLAHE_LEVELS)


@given(some_images, clips, grids, st.none() | tiles)
def test_clahe_equals_opencv(image, clip_limit, grid, tile):
    """Bit for bit on x86-64, also if the grid does not divide the image or has more cells than pixels."""
    assert_opencvs(clahe(image, clip_limit, grid, tile=tile), opencv_clahe(image, clip_limit, grid))


@pytest.mark.parametrize("size", [(224, 224), (223, 317), (512, 100), (256, 320)])
def test_clahe_of_large_images_equals_opencv(size):
    image = np.clip(np.random.default_rng(1).normal(90, 30, (*size, 3)), 0, 255).astype(np.uint8)
    for clip_limit in (1.0, 2.8, 4.0):
        assert_opencvs(clahe(image, clip_limit, (8, 8)), opencv_clahe(image, clip_limit, (8, 8)))


@settings(max_examples=30)
@given(images(sizes(400), np.float32), clips, grids)
def test_clahe_of_floats_equals_the_reference(image, clip_limit, grid):
    want = statistics.clahe(image.astype(np.float64), clip_limit, grid, 1.0)
    assert_close(clahe(image, clip_limit, grid), want, tolerances.CLAHE)


@given(some_images, clips, grids, st.integers(0, 3), tiles)
def test_clahe_of_a_rotated_image(image, clip_limit, grid, turns, tile):
    """The grid lies over the image as it is at that point."""
    plan = plan_for(image)
    plan.rot90(turns)
    plan.append(operations.clahe(1, plan.limit, clip_limit, grid))
    plan.rot90(1)
    want = np.rot90(opencv_clahe(np.rot90(image, turns), clip_limit, grid))
    assert_opencvs(run_one(plan, image, Type.UINT8, tile=tile), want)
