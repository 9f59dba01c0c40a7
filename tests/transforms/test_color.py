"""Color transforms: distributions of factors and orders, and special cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cuaug import TransformError
from cuaug import functional as F
from cuaug import transforms as T
from cuaug.transforms.execute import apply
from tests.transforms.test_geometry import params

COLORS = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)


def test_color_jitter_factors_are_uniform_in_their_ranges():
    drawn = params(T.ColorJitter(0.4, (0.5, 2.0), 3.0, 0.1), 9, 9, n=20_000)
    ranges = {"brightness": (0.6, 1.4), "contrast": (0.5, 2.0), "saturation": (0.0, 4.0), "hue": (-0.1, 0.1)}
    assert set(drawn) == {"order", *ranges}
    for name, (low, high) in ranges.items():
        unit = (drawn[name] - low) / (high - low)
        assert 0 <= unit.min() < 0.01 and 0.99 < unit.max() < 1
        assert np.abs(np.histogram(unit, bins=5, range=(0, 1))[0] / 20_000 - 0.2).max() < 0.02, name
    correlation = np.corrcoef([drawn[name] for name in ranges]) - np.eye(4)
    assert np.abs(correlation).max() < 0.03, "the factors are independent"


def test_color_jitter_orders_are_equally_likely():
    n = 12_000
    order = params(T.ColorJitter(0.1, 0.1, 0.1, 0.1), 9, 9, n)["order"]
    orders, counts = np.unique(order, axis=0, return_counts=True)
    assert {tuple(row) for row in orders.tolist()} == set(itertools.permutations(range(4)))
    assert np.abs(counts - n / 24).max() < 5 * math.sqrt(n / 24)


@pytest.mark.parametrize(
    ("arguments", "drawn"),
    [
        ({}, set()),
        ({"brightness": 0, "contrast": 0.0, "saturation": None, "hue": 0}, set()),
        ({"contrast": (1, 1)}, set()),
        ({"brightness": 0.5}, {"brightness"}),
        ({"hue": (0.1, 0.1), "contrast": [0, 2]}, {"hue", "contrast"}),
    ],
)
def test_color_jitter_skips_neutral_arguments(arguments, drawn):
    assert set(params(T.ColorJitter(**arguments), 9, 9)) - {"order"} == drawn
    if not drawn:
        np.testing.assert_array_equal(T.ColorJitter(**arguments)(COLORS), COLORS)


def test_one_channel_has_no_saturation():
    """As in torchvision, although the luma weights sum to 0.9999."""
    gray = np.random.default_rng(0).random((20, 9, 9), dtype=np.float32)
    for transform in (
        T.Grayscale(),
        T.RandomGrayscale(1),
        T.RandomSaturation((3, 3)),
        T.ColorJitter(saturation=(3, 3), hue=0.1),
        T.RandomPhotometricDistort((1, 1), (1, 1), p=1),
    ):
        np.testing.assert_array_equal(transform(gray[0]), gray[0])
    np.testing.assert_array_equal(T.Grayscale(3)(gray[0]), np.stack([gray[0]] * 3, axis=-1))
    np.testing.assert_array_equal(F.rgb_to_grayscale(gray[0]), gray[0])
    np.testing.assert_array_equal(F.adjust_saturation(gray[0], 0.3), gray[0])
    after = T.Compose([T.Grayscale(), T.RandomSaturation((0, 0))])
    np.testing.assert_array_equal(after(COLORS / np.float32(255)), T.Grayscale()(COLORS / np.float32(255)))
    color = {"operation": np.array([["Color"]]), "magnitude": np.array([[0.9]])}
    np.testing.assert_array_equal(apply(gray[0], lambda plan: T.RandAugment().write(plan, None, **color)), gray[0])


@pytest.mark.parametrize("container", [T.RandomApply, T.RandomChoice])
def test_grayscale_to_one_channel_inside_a_container_is_refused(container):
    with pytest.raises(TransformError, match="num_output_channels=1 changes the channels of the whole batch"):
        container([T.Grayscale(), T.RandomInvert()])(COLORS)
    assert T.RandomApply([T.Grayscale(3)])(COLORS).shape == COLORS.shape


def test_convert_color_needs_three_channels():
    with pytest.raises(TransformError, match="needs 3 channels; the image has 1"):
        T.ConvertColor()(COLORS[..., 0])


def test_lut_forms():
    inverse = 255 - np.arange(256)
    for table in (inverse, inverse.tolist(), np.stack([inverse] * 3), inverse.astype(np.float64)):
        np.testing.assert_array_equal(T.LUT(table)(COLORS), 255 - COLORS)
    table = np.stack([np.arange(256), inverse, np.zeros(256)])
    got = T.LUT(table)(COLORS)
    np.testing.assert_array_equal(got, np.stack([COLORS[..., 0], 255 - COLORS[..., 1], 0 * COLORS[..., 2]], axis=-1))
    floats = T.LUT(inverse)(COLORS / np.float32(255))
    np.testing.assert_allclose(floats, 1 - COLORS / 255, atol=1e-6)


def test_lut_keeps_its_own_copy_of_the_table():
    table = np.arange(256)
    transform = T.LUT(table)
    table[:] = 0
    np.testing.assert_array_equal(transform(COLORS), COLORS)
