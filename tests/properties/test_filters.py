"""Blurs and sharpness against OpenCV, Pillow and tests/references/filters.py; properties of all filters."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from cuaug import TransformError
from cuaug._runtime.native import ISAS
from cuaug.plan import Border, Filter, Type, operations
from cuaug.transforms.filters import gaussian_weights, motion_taps, sharpness_taps
from tests.references import filters as reference
from tests.support.run_plans import assert_close, assert_same, plan_for, run_one
from tests.support.strategies import BORDERS, boxes, images, sizes, steps
from tests.support.tolerances import CONVOLUTION, PILLOW_SHARPNESS_LEVELS

small = st.tuples(st.integers(1, 24), st.integers(1, 24))
any_size = st.tuples(st.integers(1, 70), st.integers(1, 70)) | sizes(20_000)
odd = st.integers(0, 7).map(lambda k: 2 * k + 1)
sigmas = st.floats(0.05, 5)
tiles = st.none() | st.tuples(st.integers(1, 40), st.integers(1, 70))
OPENCV_BORDERS = {
    Border.CONSTANT: cv2.BORDER_CONSTANT,
    Border.EDGE: cv2.BORDER_REPLICATE,
    Border.REFLECT: cv2.BORDER_REFLECT_101,
    Border.SYMMETRIC: cv2.BORDER_REFLECT,
}


def blurred(image, kernel_size, sigma, **options):
    plan = plan_for(image)
    across, down = (gaussian_weights(size, sigma)[0] for size in kernel_size)
    plan.convolve(down, across)
    return run_one(plan, image, Type.UINT8 if image.dtype == np.uint8 else Type.FLOAT32, **options)


def sharpened(image, factor, **options):
    plan = plan_for(image)
    plan.stencil(sharpness_taps(factor)[0], frame=1, saturate=True)
    return run_one(plan, image, Type.UINT8 if image.dtype == np.uint8 else Type.FLOAT32, **options)


def taps_of(kernel):
    """The weights of a (K, L) kernel as taps."""
    dy, dx = np.mgrid[: kernel.shape[0], : kernel.shape[1]]
    return np.stack([dy - kernel.shape[0] // 2, dx - kernel.shape[1] // 2, kernel], axis=-1).reshape(-1, 3)


@given(images(size=any_size, dtype=np.float32), odd, odd, sigmas, tiles)
def test_gaussian_blur_equals_opencv(image, across, down, sigma, tile):
    want = cv2.GaussianBlur(image, (across, down), sigma, borderType=cv2.BORDER_REFLECT_101)
    assert_close(blurred(image, (across, down), sigma, tile=tile), want, CONVOLUTION)


@given(st.data(), images(size=any_size, dtype=np.float32), odd, odd, BORDERS, tiles)
def test_a_stencil_equals_opencvs_filter2d(data, image, height, width, border, tile):
    kernel = np.random.default_rng(data.draw(st.integers(0, 99))).normal(0, 0.3, (height, width))
    kernel[np.random.default_rng(0).random(kernel.shape) < 0.5] = 0
    kernel /= max(np.abs(kernel).sum(), 1e-3)
    plan = plan_for(image)
    plan.stencil(taps_of(kernel), border=border)
    reach = height // 2, width // 2
    # OpenCV mirrors only once, and does not wrap.
    is_small = image.shape[0] <= reach[0] or image.shape[1] <= reach[1]
    if border is Border.WRAP or (border in (Border.REFLECT, Border.SYMMETRIC) and is_small):
        want = reference.correlate(image, kernel, border.name.lower())
    else:
        want = cv2.filter2D(image, -1, kernel, borderType=OPENCV_BORDERS[border])
    assert_close(run_one(plan, image, tile=tile, only_regions=True), want, CONVOLUTION)


@given(images(size=any_size), st.floats(0, 3), tiles)
def test_sharpness_equals_pillow(image, factor, tile):
    want = np.asarray(ImageEnhance.Sharpness(Image.fromarray(image)).enhance(factor))
    assert_close(sharpened(image, factor, tile=tile), want, PILLOW_SHARPNESS_LEVELS)


@given(images(size=any_size, dtype=np.float32), st.floats(0, 3), tiles)
def test_sharpness_equals_the_reference(image, factor, tile):
    assert_close(sharpened(image, factor, tile=tile), reference.adjust_sharpness(image, factor, 1.0), CONVOLUTION)


def motion_kernel(size, angle, direction, filter=Filter.NEAREST):
    """(size, size): the taps as a dense kernel."""
    (taps,) = motion_taps(np.array([size]), np.array([angle]), np.array([direction]), filter)
    kernel = np.zeros((size, size))
    for dy, dx, weight in taps:
        kernel[int(dy) + size // 2, int(dx) + size // 2] += weight
    return kernel


@given(odd.filter(lambda k: k > 1), st.floats(-360, 360), st.floats(-1, 1), st.sampled_from(["nearest", "bilinear"]))
def test_motion_kernels_equal_the_reference(size, angle, direction, filter):
    got = motion_kernel(size, angle, direction, Filter[filter.upper()])
    np.testing.assert_allclose(got, reference.motion_kernel(size, angle, direction, filter), atol=1e-8)
    assert abs(got.sum() - 1) < 1e-9


def test_motion_angle_and_direction():
    """0 degrees: along the row, heaviest at the left end for direction 1; 45 degrees: up to the right."""
    row = motion_kernel(5, 0.0, 1.0)
    np.testing.assert_allclose(row[2], np.array([4, 3, 2, 1, 0]) / 10, atol=1e-9)
    np.testing.assert_allclose(np.delete(row, 2, axis=0), 0)
    np.testing.assert_allclose(motion_kernel(5, 90.0, 0.0)[:, 2], 0.2, atol=1e-9)
    # Direction 1 is heaviest at the left end; a quarter rotation counter-clockwise moves it to the lower end.
    np.testing.assert_allclose(motion_kernel(5, 90.0, 1.0)[:, 2], np.array([0, 1, 2, 3, 4]) / 10, atol=1e-9)
    slanted = motion_kernel(3, 45.0, 0.0)
    assert slanted[0, 2] > 0 and slanted[2, 0] > 0 and slanted[0, 0] == slanted[2, 2] == 0


FILTERS = {
    "convolve": lambda plan: plan.convolve(gaussian_weights(5, 1.2)[0], gaussian_weights(3, 0.8)[0]),
    "stencil": lambda plan: plan.stencil(motion_taps(np.array([7]), np.array([20.0]), np.array([0.5]), Filter.NEAREST)),
    "sharpness": lambda plan: plan.stencil(sharpness_taps(2.0)[0], frame=1, saturate=True),
    "median": lambda plan: plan.median(5),
    "jpeg": lambda plan: plan.jpeg(40),
}


@pytest.mark.parametrize("name", FILTERS)
@given(st.data(), images(size=any_size), tiles)
def test_geometry_around_a_filter_shares_its_pass(name, data, image, tile):
    """A crop before it, geometry and operations after it: one pass, with the bytes of single steps."""
    top, left, height, width = data.draw(boxes(*image.shape[:2]))
    inner = data.draw(boxes(height, width))
    border = data.draw(st.sampled_from([Border.CONSTANT, Border.EDGE, Border.REFLECT, Border.SYMMETRIC]))

    def rest(plan):
        plan.crop(*inner)
        plan.flip()
        plan.pad(1, 5, 3, 2, border=border, fill=40)
        plan.rot90(3)
        plan.append(operations.saturation(1, plan.limit, 0.3))

    plan = plan_for(image)
    plan.crop(top, left, height, width)
    FILTERS[name](plan)
    rest(plan)
    assert plan.compile().launches == 1
    got = run_one(plan, image, tile=tile, only_regions=True)
    cropped = np.ascontiguousarray(image[top : top + height, left : left + width])
    alone = plan_for(cropped)
    FILTERS[name](alone)
    alone.barrier()
    rest(alone)
    assert alone.compile().launches == 2
    assert_same(got, run_one(alone, cropped))


EARLIER_STEPS = {
    "flip": lambda plan: plan.flip(),
    "turn": lambda plan: plan.rot90(1),
    "pad": lambda plan: plan.pad(1, 2, 3, 4, border=Border.WRAP),
    "resize": lambda plan: plan.resize(27, 25),
    "operation": lambda plan: plan.append(operations.brightness(1, plan.limit, 0.7)),
    "filter": lambda plan: plan.median(3),
}


@pytest.mark.parametrize("name", FILTERS)
@settings(max_examples=25)
@given(images(size=small), st.sampled_from(sorted(EARLIER_STEPS)))
def test_a_filter_sees_the_result_of_earlier_steps(name, image, before):
    """A filter begins a pass after anything but a crop, so a barrier before it changes nothing."""
    plan, with_barrier = plan_for(image), plan_for(image)
    EARLIER_STEPS[before](plan)
    FILTERS[name](plan)
    assert plan.compile().launches == 2
    EARLIER_STEPS[before](with_barrier)
    with_barrier.barrier()
    FILTERS[name](with_barrier)
    assert_same(run_one(plan, image), run_one(with_barrier, image))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: p.convolve([0.5, 0.5], [1]), r"down must be \(K,\) or \(N, K\) weights, K odd, not \(2,\)"),
        (lambda p: p.convolve([1], [[[1]]]), r"across must be .* not \(1, 1, 1\)"),
        (lambda p: p.stencil([[1, 2]]), r"taps must be \(K, 3\).* not \(1, 2\)"),
        (lambda p: p.median(4), r"size must be one of \(3, 5, 7\), not \[4\]"),
        (lambda p: p.median(9), r"not \[9\]"),
    ],
)
def test_invalid_arguments_are_refused(write, message):
    with pytest.raises(TransformError, match=message):
        write(plan_for(np.zeros((3, 3, 3), np.uint8)))


def test_no_sample_is_selected():
    image = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    plan, nobody = plan_for(image), np.array([False])
    plan.convolve(gaussian_weights(5, [1.2]), [1.0], where=nobody)
    plan.stencil(sharpness_taps([2.0]), where=nobody)
    plan.median([3], where=nobody)
    plan.jpeg([3], where=nobody)
    assert plan.compile(Type.UINT8).launches == 1
    assert_same(run_one(plan, image, Type.UINT8), image)


@given(st.data(), any_size, st.booleans(), tiles)
def test_a_frame_wider_than_the_taps_stays_unchanged(data, size, turned, tile):
    image = data.draw(images(size=st.just(size), dtype=np.uint8))
    plan = plan_for(image)
    plan.stencil([[0, 0, 0.5]], frame=2)
    if turned:
        plan.flip()
    expected = image // 2 + image % 2
    for edge in (np.s_[:2], np.s_[-2:], np.s_[:, :2], np.s_[:, -2:]):
        expected[edge] = image[edge]
    for isa in ISAS:
        assert_same(run_one(plan, image, Type.UINT8, tile=tile, isa=isa), expected[:, ::-1] if turned else expected)


wide = st.tuples(st.integers(1, 4), st.integers(250, 530))


def assert_flips_change_no_bits(image, write, dtype, **options):
    """A flip after the filter disables the sliding window (kernels/cpu/sliding_window.h)."""
    made = []
    for flipped in (False, True):
        plan = plan_for(image)
        write(plan, flipped)
        for isa in ISAS:
            found = run_one(plan, image, dtype, isa=isa, **options)
            made.append(found[:, ::-1] if flipped else found)
    for other in made[1:]:
        assert_same(other, made[0])


@given(
    st.data(), any_size | wide, st.sampled_from([np.uint8, np.float32]), st.sampled_from(["convolve", "stencil"]), tiles
)
def test_sliding_window_equals_the_common_path(data, size, dtype, name, tile):
    image = data.draw(images(size=st.just(size), dtype=dtype))
    step, _, _ = data.draw(steps(name, *size))
    mix = data.draw(st.booleans())
    top, left, h, w = data.draw(boxes(*size))

    def write(plan, flipped):
        step.write(plan)
        plan.crop(top, left, h, w)
        if flipped:
            plan.flip()
        if mix:
            plan.append(operations.saturation(1, plan.limit, 0.5))

    assert_flips_change_no_bits(image, write, data.draw(st.sampled_from([Type.UINT8, Type.FLOAT32])), tile=tile)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("count", [15, 17, 31, 33])
def test_sliding_window_of_wide_filters_equals_the_common_path(count, dtype):
    """Rows around the limit of the window, and images wider than a group of columns."""
    rng = np.random.default_rng(count)
    down, across = (rng.uniform(-1, 1, count).astype(np.float32) for _ in range(2))

    def write(plan, flipped):
        plan.convolve(down, across)
        if flipped:
            plan.flip()

    for h, w in ((40, 70), (3, 530)):
        assert_flips_change_no_bits((rng.random((h, w, 3)) * 255).astype(dtype), write, Type.FLOAT32)
