"""JPEG compression against Pillow, bit for bit, and against the standard in float64."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuaug import TransformError
from cuaug._runtime.native import ISAS
from cuaug.plan import Border, Layout, Type, operations
from cuaug.plan.filter_passes import quantization_tables
from tests.references import jpeg as reference
from tests.references import sampling
from tests.support.run_plans import assert_same, plan_for, run, run_one
from tests.support.strategies import boxes, images, sizes

qualities = st.integers(1, 100)
tiles = st.none() | st.tuples(st.integers(1, 40), st.integers(1, 70))
small = st.tuples(st.integers(1, 70), st.integers(1, 70))


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(10 * np.log10(255.0**2 / max(np.mean((a.astype(float) - b) ** 2), 1e-9)))


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


@pytest.mark.parametrize("quality", [10, 50, 75, 95])
def test_is_near_the_standard_in_float64(quality):
    """Differences on a smooth image: half a level of rounding in each of four steps, and coefficients near the middle
    of two quantization_tables steps. The artifacts themselves are far larger."""
    noise = np.random.default_rng(0).integers(0, 256, (61, 75, 3), dtype=np.uint8)
    image = cv2.GaussianBlur(noise, (0, 0), 2)
    got, want = coded(image, quality), reference.jpeg(image, quality)
    assert psnr(got, want) > 45
    assert psnr(got, want) > psnr(got, image) + 3
    assert psnr(got, image) < 48


def test_quantization_steps_equal_pillows_header():
    for quality in range(1, 101):
        np.testing.assert_array_equal(quantization_tables(quality)[0], reference.steps(quality))


@settings(max_examples=50)
@given(st.data(), images(size=small), qualities)
def test_geometry_around_it_shares_its_pass(data, image, quality):
    """A crop before it, geometry and operations after it: one pass, which reads only its region."""
    box = top, left, height, width = data.draw(boxes(*image.shape[:2]))
    inner = data.draw(boxes(height, width))
    border = data.draw(st.sampled_from([Border.CONSTANT, Border.EDGE, Border.REFLECT, Border.SYMMETRIC]))
    plan = plan_for(image)
    plan.crop(*box)
    plan.jpeg(quality)
    plan.flip()
    plan.crop(*inner)
    plan.pad(3, 2, 1, 4, border=border, fill=9)
    plan.rot90(1)
    plan.append(operations.brightness(1, 255.0, 0.5))
    assert plan.compile().launches == 1
    got = run_one(plan, image, Type.UINT8, only_regions=True, tile=data.draw(tiles))
    want = reference.by_pillow(np.ascontiguousarray(image[top : top + height, left : left + width]), quality)[:, ::-1]
    want = np.ascontiguousarray(want[inner[0] : inner[0] + inner[2], inner[1] : inner[1] + inner[3]])
    rest = plan_for(want)
    rest.pad(3, 2, 1, 4, border=border, fill=9)
    rest.rot90(1)
    rest.append(operations.brightness(1, 255.0, 0.5))
    assert_same(got, run_one(rest, want, Type.UINT8))


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


def test_each_sample_has_its_quality():
    batch = [np.random.default_rng(k).integers(0, 256, (20 + k, 33, 3), dtype=np.uint8) for k in range(4)]
    plan = plan_for(*batch)
    plan.jpeg([90, 5, 50, 30], where=np.array([True, True, False, True]))
    for k, (got, quality) in enumerate(zip(run(plan, batch, Type.UINT8), (90, 5, None, 30), strict=True)):
        assert_same(got, batch[k] if quality is None else reference.by_pillow(batch[k], quality))


def test_another_quality_is_detected():
    image = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    with pytest.raises(AssertionError):
        assert_same(coded(image, 50), reference.by_pillow(image, 51))


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
