"""Operations with statistics of the image, and point operations on levels, against Pillow, OpenCV and references."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from cuaug._runtime.native import ISAS
from cuaug.plan import Border, Layout, Type, operations
from tests.properties.test_color import ALL_LEVELS, applied
from tests.references import color as reference
from tests.references import statistics
from tests.support import tolerances
from tests.support.run_plans import assert_close, assert_same, plan_for, run, run_one
from tests.support.strategies import images, sizes

uint8_images = images(sizes(5000))
float_images = images(sizes(5000), dtype=np.float32)
tiles = st.tuples(st.integers(1, 40), st.integers(1, 70))
seeds = st.integers(0, 2**32 - 1)
makes = st.sampled_from(
    [operations.autocontrast, operations.equalize, lambda n, limit: operations.clahe(n, limit, 3.0, (3, 2))]
)


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


# --- point operations ------------------------------------------------------------------------------------------------


@given(some_images, st.integers(1, 8), st.integers(0, 256))
def test_point_operations_on_uint8_equal_pillow(image, bits, threshold):
    assert_same(applied(operations.posterize, image, bits), pillow(image, ImageOps.posterize, bits))
    assert_same(applied(operations.solarize, image, threshold), pillow(image, ImageOps.solarize, threshold))
    assert_same(applied(operations.invert, image), pillow(image, ImageOps.invert))


def test_posterize_to_0_bits_is_black():
    assert_same(applied(operations.posterize, ALL_LEVELS, 0), np.zeros_like(ALL_LEVELS))


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


# --- autocontrast ----------------------------------------------------------------------------------------------------


@given(some_images)
def test_autocontrast_equals_pillow_before_truncation(image):
    plan = plan_for(image)
    plan.append(operations.autocontrast(1, 255.0))
    got = run_one(plan, image).astype(np.float64) * 255.0
    want = pillow(image, ImageOps.autocontrast).astype(np.float64)
    # Pillow's product may be just below the exact integer.
    assert ((got > want - 1e-4) & (got < want + 1 + 1e-4)).all()
    assert_close(applied(operations.autocontrast, image), want, tolerances.PILLOW_AUTOCONTRAST_LEVELS)


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


# --- equalize --------------------------------------------------------------------------------------------------------


@given(some_images)
def test_equalize_equals_pillow(image):
    assert_same(applied(operations.equalize, image), pillow(image, ImageOps.equalize))


@given(some_images)
def test_equalize_of_floats_uses_their_levels(image):
    floats = image.astype(np.float32) / np.float32(255)
    want = pillow(image, ImageOps.equalize) / 255.0
    assert_close(applied(operations.equalize, floats), want, tolerances.COLOR)


def test_equalize_is_near_opencv():
    """OpenCV counts the pixels of the level itself as darker, Pillow does not: they differ by its share."""
    rng = np.random.default_rng(0)
    image = np.clip(rng.normal(110, 25, (400, 500)), 0, 255).astype(np.uint8)
    got = applied(operations.equalize, np.repeat(image[..., None], 3, axis=2))[..., 0]
    share = 255.0 * np.bincount(image.reshape(-1), minlength=256)[image] / image.size
    ahead = cv2.equalizeHist(image).astype(np.float64) - got
    assert (np.abs(ahead - share / 2) <= share / 2 + tolerances.OPENCV_EQUALIZE_LEVELS.most).all()
    assert np.abs(got.astype(int) - image).mean() > 20, "that is not what it was"


@given(images(sizes(3000)), st.integers(20, 60), st.integers(20, 60))
def test_equalize_counts_the_resized_image(image, h, w):
    plan = plan_for(image)
    plan.resize(h, w)
    resized = run_one(plan, image, Type.UINT8)
    plan = plan_for(image)
    plan.resize(h, w)
    plan.append(operations.equalize(1, 255.0))
    assert_same(run_one(plan, image, Type.UINT8), pillow(resized, ImageOps.equalize))


# --- CLAHE -----------------------------------------------------------------------------------------------------------

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


def test_another_clip_limit_is_detected():
    image = np.random.default_rng(0).normal(90, 20, (64, 64, 3)).astype(np.uint8)
    with pytest.raises(AssertionError):
        assert_opencvs(clahe(image, 2.0, (2, 2)), opencv_clahe(image, 2.5, (2, 2)))


# --- statistics of the whole image ------------------------------------------------------------------------------------


def measured_plan(image: np.ndarray, make, warped: bool):
    plan = plan_for(image)
    h, w = image.shape[:2]
    if warped:
        plan.warp([[0.9, 0.1, 0.3], [-0.2, 1.1, 0.1], [0, 0, 1]], h, w, border=Border.REFLECT)
    else:
        plan.resize(h + 3, w + 5)
    plan.append(make(1, plan.limit))
    if warped:
        plan.warp(np.diag([0.7, 0.8, 1.0]), h, w, border=Border.EDGE)
    plan.append(operations.equalize(1, plan.limit))
    plan.append(operations.contrast(1, plan.limit, 1.3))
    return plan


@given(uint8_images | float_images, makes, st.booleans(), tiles)
def test_tiles_and_instruction_sets_do_not_change_statistics(image, make, warped, tile):
    whole = run_one(measured_plan(image, make, warped), image)
    assert_same(run_one(measured_plan(image, make, warped), image, tile=tile), whole)
    for isa in ISAS:
        assert_same(run_one(measured_plan(image, make, warped), image, isa=isa), whole)


@given(st.lists(some_images, min_size=2, max_size=5), seeds)
def test_each_sample_has_its_own_statistics(batch, seed):
    """Different operations per sample, some twice and some never, equal single samples."""
    rng = np.random.default_rng(seed)
    known = [operations.autocontrast, operations.equalize, lambda n, limit: operations.contrast(n, limit, 0.7)]
    known += [lambda n, limit, grid=grid: operations.clahe(n, limit, 2.0, grid) for grid in ((2, 3), (8, 8))]
    which = rng.integers(0, 6, (3, len(batch)))
    plan = plan_for(*batch)
    for row in which:
        for k, make in enumerate(known):
            plan.append(make(len(batch), 255.0), row == k)
    for i, got in enumerate(run(plan, batch, Type.UINT8)):
        alone = plan_for(batch[i])
        for k in which[:, i]:
            if k < len(known):
                alone.append(known[k](1, 255.0))
        assert_same(got, run_one(alone, batch[i], Type.UINT8))


def test_one_append_may_hold_different_operations():
    """Mixed rows, one barrier each, as ColorJitter's random order and policies write them."""
    batch = [np.random.default_rng(k).integers(40, 200, (20, 30, 3), dtype=np.uint8) for k in range(4)]
    mixed = np.concatenate(
        [make(1, 255.0) for make in (operations.equalize, operations.autocontrast, operations.invert)]
        + [operations.contrast(1, 255.0, 0.4)]
    )
    plan = plan_for(*batch)
    plan.append(mixed)
    assert plan.compile(Type.UINT8, Layout.HWC).launches == 2
    plan = plan_for(*batch)
    plan.append(mixed)
    got = run(plan, batch, Type.UINT8)
    assert_same(got[0], pillow(batch[0], ImageOps.equalize))
    assert_close(got[1], pillow(batch[1], ImageOps.autocontrast), tolerances.PILLOW_AUTOCONTRAST_LEVELS)
    assert_same(got[2], 255 - batch[2])
    want = reference.levels(reference.contrast(batch[3].astype(np.float64), 0.4, 255.0))
    assert_close(got[3], want, tolerances.COLOR_LEVELS)


def test_only_measured_statistics_take_memory():
    batch = [np.zeros((9, 9, 3), np.uint8)] * 4
    plan = plan_for(*batch)
    plan.append(operations.equalize(4, 255.0), where=np.array([True, False, False, False]))
    plan.append(operations.autocontrast(4, 255.0), where=np.array([True, True, False, False]))
    tables = plan.compile(Type.UINT8, Layout.HWC)
    assert tables.statistics == 384 + 2 * 3 and tables.launches == 3
    measured = tables.rows["measure"].reshape(-1)
    used = [(row["at"], row["kind"]) for row in measured if row["kind"]]
    assert len({at for at, _ in used}) == 3
    for before, after in zip(tables.rows[:-1], tables.rows[1:], strict=True):
        assert (after["measured"] == before["measure"]).all()
