"""JPEG compression against Pillow, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import TransformError
from cuaug._runtime.native import ISAS
from cuaug.plan import Border, Layout, Type
from tests.references import jpeg as reference
from tests.references import sampling
from tests.support.run_plans import assert_same, plan_for, run_one
from tests.support.strategies import images, sizes

qualities = st.integers(1, 100)
tiles = st.none() | st.tuples(st.integers(1, 40), st.integers(1, 70))
small = st.tuples(st.integers(1, 70), st.integers(1, 70))


def coded(image: np.ndarray, quality: int, **options) -> np.ndarray:
    plan = plan_for(image)
    plan.jpeg(quality)
    return run_one(plan, image, Type.UINT8, **options)


@given(images(size=small | sizes(20_000)), qualities, tiles)
def test_equals_pillows_save_and_load(image, quality, tile):
    """Bit for bit, for every size, quality and tile."""
    assert_same(coded(image, quality, tile=tile), reference.by_pillow(image, quality))


@pytest.mark.parametrize("quality", [1, 2, 25, 50, 99, 100])
def test_the_largest_coefficients_equal_pillow(quality):
    """Blocks of white, black, and the sign of each of the DCT's 64 patterns: no block has larger sums."""
    i = np.arange(8)
    waves = np.cos((2 * i + 1) * i[:, None] * np.pi / 16) >= 0
    patterns = waves[:, None, :, None] == waves[None, :, None, :]  # [down, across, y, x]
    blocks = patterns.transpose(0, 2, 1, 3).reshape(64, 64)
    levels = np.block([[blocks, ~blocks], [np.ones_like(blocks), np.zeros_like(blocks)]]) * np.uint8(255)
    for image in (np.repeat(levels[..., None], 3, axis=2), np.stack([levels, 255 - levels, levels.T], axis=2)):
        for isa in ISAS:
            assert_same(coded(image, quality, isa=isa), reference.by_pillow(image, quality))


@given(images(size=small, dtype=np.float32), qualities)
def test_floats_are_coded_as_levels(image, quality):
    levels = np.floor(image * 255 + 0.5).astype(np.uint8)
    plan = plan_for(image)
    plan.jpeg(quality)
    assert_same(np.round(run_one(plan, image) * 255).astype(np.uint8), reference.by_pillow(levels, quality))


@given(images(size=small), qualities)
def test_a_border_that_wraps_is_a_pass_of_its_own(image, quality):
    plan = plan_for(image)
    plan.jpeg(quality)
    plan.pad(5, 6, 7, 8, border=Border.WRAP)
    assert plan.compile().launches == 2
    want = sampling.pad(reference.by_pillow(image, quality), 5, 6, 7, 8, "wrap")
    assert_same(run_one(plan, image, Type.UINT8, tile=(8, 16)), want)


@given(images(size=small), qualities)
def test_gray_stays_gray(image, quality):
    gray = np.repeat(image[..., :1], 3, axis=2)
    plan = plan_for(gray, channels=1)
    plan.jpeg(quality)
    got = run_one(plan, gray, Type.UINT8)
    assert_same(np.repeat(got, 3, axis=2), coded(gray, quality))


def test_the_region_of_a_corner_is_its_blocks():
    image = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    plan = plan_for(image)
    plan.jpeg(30)
    plan.crop(100, 200, 16, 16)
    ((y0, x0, y1, x1),) = plan.compile(Type.UINT8, Layout.HWC).regions().tolist()
    assert y1 - y0 <= 100 and x1 - x0 <= 100
    assert_same(run_one(plan, image, Type.UINT8, only_regions=True), reference.by_pillow(image, 30)[100:116, 200:216])


def test_floats_far_outside_the_range_stay_in_their_memory():
    image = np.random.default_rng(0).random((19, 23, 3), dtype=np.float32)
    image[::3, ::4] = [np.nan, np.inf, -np.inf]
    plan = plan_for(image)
    plan.jpeg(20)
    assert np.isfinite(run_one(plan, image)).all()


@pytest.mark.parametrize("quality", [0, 101, -1])
def test_a_quality_out_of_range_is_refused(quality):
    with pytest.raises(TransformError, match=f"quality must be 1 to 100, not .{quality}"):
        plan_for(np.zeros((3, 3, 3), np.uint8)).jpeg(quality)


def test_normalized_images_are_refused():
    plan = plan_for(np.zeros((3, 3, 3), np.uint8))
    plan.normalize(0.5, 0.5)
    with pytest.raises(TransformError, match="normalized"):
        plan.jpeg(50)
