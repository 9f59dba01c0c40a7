"""Point operations against OpenCV, Pillow and tests/references/color.py."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from cuaug.errors import TransformError
from cuaug.plan import Layout, Type, operations
from cuaug.plan.layout import OpCode
from tests.references import color as reference
from tests.references import masks, noise, pixel_function, statistics
from tests.support import tolerances
from tests.support.run_plans import assert_close, assert_same, plan_for, run_one
from tests.support.strategies import images, sizes

factors = st.floats(0, 2)
turns = st.floats(-0.5, 0.5)
uint8_images = images(sizes(5000))
float_images = images(sizes(5000), dtype=np.float32)
seeds = st.integers(0, 2**32 - 1)

# (16, 16, 3): every level of every channel, combined with grays and with other levels.
RAMP = np.stack([np.arange(256), np.arange(256)[::-1], np.roll(np.arange(256), 85)], axis=1).reshape(16, 16, 3)
GRAYS = np.repeat(np.arange(256), 3).reshape(16, 16, 3)
ALL_LEVELS = np.concatenate([RAMP, GRAYS]).astype(np.uint8)

# name -> (operation, reference), each with one parameter
ONE_PARAMETER = {
    "brightness": (operations.brightness, reference.brightness),
    "contrast": (operations.contrast, reference.contrast),
    "saturation": (operations.saturation, reference.saturation),
    "hue": (operations.hue, reference.hue),
}


def applied(make, image, *parameters, dtype=None):
    """Runs one operation on `image`."""
    plan = plan_for(image)
    plan.append(make(1, plan.limit, *parameters))
    return run_one(plan, image, dtype if dtype is not None else _same_type(image))


def _same_type(image):
    return Type.UINT8 if image.dtype == np.uint8 else Type.FLOAT32


def looked_up(image, table):
    plan = plan_for(image)
    plan.lut(table)
    return run_one(plan, image, _same_type(image))


@pytest.mark.parametrize("operation", OpCode, ids=lambda operation: operation.name)
def test_every_operation_has_a_reference(operation):
    if operation.name.startswith("FUNCTION_OF_"):
        assert hasattr(pixel_function, "evaluate")  # of all functions; tests/ops/test_bits.py
        return
    if operation == OpCode.NORMALIZE:  # torch is its reference: tests/properties/test_pillow.py
        return
    name = operation.name.lower()
    assert any(hasattr(module, name) for module in (reference, masks, noise, statistics)), f"tests/references: {name}"


@pytest.mark.parametrize("name", ONE_PARAMETER)
@pytest.mark.parametrize("parameter", [-0.5, -0.3, 0.0, 0.1, 0.37, 0.5, 1.0, 1.001, 1.9])
def test_all_levels_are_rounded_and_saturated(name, parameter):
    if parameter < 0 and name != "hue":
        parameter = 2 - parameter
    make, formula = ONE_PARAMETER[name]
    want = formula(ALL_LEVELS.astype(np.float64), parameter, 255.0)
    assert_close(applied(make, ALL_LEVELS, parameter), want, tolerances.ROUNDING_LEVELS)


def test_truncation_is_detected():
    want = reference.brightness(ALL_LEVELS.astype(np.float64), 0.37, 255.0)
    with pytest.raises(AssertionError):
        assert_close(want.astype(np.uint8), want, tolerances.ROUNDING_LEVELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_PARAMETER)
@given(image=float_images, factor=factors)
def test_on_floats(name, image, factor):
    make, formula = ONE_PARAMETER[name]
    factor = factor / 2 - 0.5 if name == "hue" else factor
    want = formula(image.astype(np.float64), factor, 1.0)
    assert_close(applied(make, image, factor), want, tolerances.HUE if name == "hue" else tolerances.COLOR)


@pytest.mark.parametrize(
    ("name", "enhance"),
    [("brightness", ImageEnhance.Brightness), ("contrast", ImageEnhance.Contrast), ("saturation", ImageEnhance.Color)],
)
@given(image=uint8_images, factor=factors)
def test_enhancements_equal_pillow(name, enhance, image, factor):
    want = np.asarray(enhance(Image.fromarray(image)).enhance(factor))
    assert_close(applied(ONE_PARAMETER[name][0], image, factor), want, tolerances.PILLOW_COLOR_LEVELS)


@given(uint8_images)
def test_gray_equals_pillow(image):
    plan = plan_for(image)
    plan.append(operations.grayscale(1))
    got = run_one(plan, image, Type.UINT8)
    want = np.asarray(Image.fromarray(image).convert("L"))
    assert_close(got, np.repeat(want[..., None], 3, axis=2), tolerances.COLOR_LEVELS)
    exact = reference.grayscale(image.astype(np.float64))
    assert_close(got, exact, tolerances.ROUNDING_LEVELS)


@given(uint8_images, turns)
def test_hue_equals_opencv(image, turn):
    hsv = cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0] + 360 * turn) % 360
    want = reference.levels(255.0 * cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB).astype(np.float64))
    assert_close(applied(operations.hue, image, turn), want, tolerances.OPENCV_HUE_LEVELS)


@pytest.mark.parametrize(("turn", "order"), [(1 / 3, [2, 0, 1]), (-1 / 3, [1, 2, 0]), (1.0, [0, 1, 2])])
def test_a_hue_shift_of_a_third_permutes_channels(turn, order):
    assert_same(applied(operations.hue, ALL_LEVELS, turn), ALL_LEVELS[..., order])


@given(float_images, st.lists(st.floats(-2, 2), min_size=12, max_size=12), st.tuples(*[st.integers(0, 2)] * 3))
def test_matrix_equals_the_reference(image, values, rows):
    values = np.array(values).reshape(3, 4)[list(rows)]  # some or all rows may be equal
    want = reference.matrix(image.astype(np.float64), values, 1.0)
    assert_close(applied(operations.matrix, image, values), want, tolerances.MATRIX)


@given(uint8_images, seeds)
def test_lut_equals_opencv(image, seed):
    table = np.random.default_rng(seed).integers(0, 256, (3, 256), dtype=np.uint8)
    assert_same(looked_up(image, table), cv2.LUT(image, np.ascontiguousarray(table.T[None])))
    assert_same(looked_up(image, table[0]), cv2.LUT(image, table[0]))


@given(float_images, seeds)
def test_lut_of_floats_equals_the_reference(image, seed):
    table = np.random.default_rng(seed).integers(0, 256, (3, 256), dtype=np.uint8)
    want = reference.lut(image.astype(np.float64), table, 1.0)
    assert_close(looked_up(image, table), want, tolerances.COLOR)


def test_lut_saturates_its_index():
    image = np.array([[[-3.0, 1.7, np.nan], [np.inf, -np.inf, 0.5]]], dtype=np.float32)
    table = np.arange(256)[::-1]
    assert_close(looked_up(image, table), np.array([[[255, 0, 255], [0, 255, 127]]]) / 255, tolerances.COLOR)


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(TransformError, match=r"not \(3, 255\)"):
        plan_for(ALL_LEVELS).lut(np.zeros((3, 255)))


means = st.lists(st.floats(0, 1), min_size=3, max_size=3)
stds = st.lists(st.floats(0.05, 1), min_size=3, max_size=3)


@given(uint8_images, means, stds, st.sampled_from(Layout))
def test_normalize(image, mean, std, layout):
    plan = plan_for(image)
    plan.normalize(mean, std)
    got = run_one(plan, image, Type.FLOAT32, layout)
    got = got.transpose(1, 2, 0) if layout == Layout.CHW else got
    want = (image / 255.0 - mean) / std
    assert_close(got * std, want * std, tolerances.NORMALIZE)


@given(uint8_images, st.booleans())
def test_to_float_scales(image, scale):
    plan = plan_for(image)
    plan.to_float(scale=scale)
    plan.to_float()
    assert_close(run_one(plan, image), image / (255.0 if scale else 1.0), tolerances.COLOR)


@given(uint8_images, factors, factors, turns)
def test_nothing_is_rounded_between_operations(image, brightness, saturation, turn):
    plan = plan_for(image)
    for ops in (
        operations.brightness(1, 255.0, brightness),
        operations.saturation(1, 255.0, saturation),
        operations.hue(1, 255.0, turn),
    ):
        plan.append(ops)
    assert plan.compile(Type.UINT8, Layout.HWC).launches == 1
    want = reference.brightness(image.astype(np.float64), brightness, 255.0)
    want = reference.hue(reference.saturation(want, saturation, 255.0), turn, 255.0)
    assert_close(run_one(plan, image, Type.UINT8), want, tolerances.ROUNDING_LEVELS)


@given(float_images, factors, factors)
def test_contrast_uses_the_mean_at_its_point_in_the_program(image, first, second):
    plan = plan_for(image)
    plan.flip()
    plan.append(operations.brightness(1, 1.0, first))
    plan.append(operations.contrast(1, 1.0, second))
    plan.append(operations.contrast(1, 1.0, first))
    want = reference.brightness(image[:, ::-1].astype(np.float64), first, 1.0)
    want = reference.contrast(reference.contrast(want, second, 1.0), first, 1.0)
    assert_close(run_one(plan, image), want, tolerances.COLOR)
