"""RandomErasing, RandomMask, Normalize and ToDtype: distributions of draws, and resulting values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cuaug import TransformError
from cuaug import functional as F
from cuaug import transforms as T
from tests.transforms.test_geometry import params

WHITE = np.full((40, 60, 3), 255, np.uint8)


def test_random_erasing_rectangles_have_the_documented_distribution():
    drawn = params(T.RandomErasing(1, (0.1, 0.3), (0.5, 2.0)), 800, 1000, n=20_000)["rectangle"]
    top, left, bottom, right = drawn.T
    area, aspect = (bottom - top) * (right - left) / 8e5, (bottom - top) / (right - left)
    assert 0.099 < area.min() < 0.102 and 0.297 < area.max() < 0.301 and abs(area.mean() - 0.2) < 0.003
    assert 0.495 < aspect.min() < 0.51 and 1.96 < aspect.max() < 2.01
    quarters = np.histogram(np.log2(aspect), bins=4, range=(-1, 1))[0] / 20_000
    assert np.abs(quarters - 0.25).max() < 0.02, "height / width, uniform on a logarithmic scale"
    assert (top >= 0).all() and (left >= 0).all() and (bottom <= 800).all() and (right <= 1000).all()
    assert abs((top / (800 - bottom + top)).mean() - 0.5) < 0.01


def test_random_erasing_skips_images_without_room():
    """As torchvision: after ten rectangles that are not smaller than the image, it is unchanged."""
    for size, scale in [((4, 100), (0.9, 1.0)), ((1, 1), (0.02, 0.33)), ((1, 30), (0.02, 0.33))]:
        image = np.full((*size, 3), 9, np.uint8)
        np.testing.assert_array_equal(T.RandomErasing(1, scale, (3.0, 3.3))(image), image)


def test_random_erasing_values_are_in_the_units_of_the_image():
    color = T.RandomErasing(1, (0.3, 0.33), value=(10, 20, 30))(WHITE)
    assert sorted(map(tuple, np.unique(color.reshape(-1, 3), axis=0))) == [(10, 20, 30), (255, 255, 255)]
    chain = T.Compose([T.ToDtype(torch.float32, scale=True), T.RandomErasing(1, (0.3, 0.33), value=0.5)])
    assert np.unique(chain(WHITE)).tolist() == [0.5, 1.0]
    chain = T.Compose([T.Normalize([0.5], [0.25]), T.RandomErasing(1, (0.3, 0.33), value=-9)])
    assert np.unique(chain(WHITE)).tolist() == [-9.0, 2.0]


def test_random_erasing_with_noise():
    chain = T.Compose([T.Normalize([1.0], [1.0]), T.RandomErasing(1, (0.3, 0.33), value="random")])
    images = chain(np.full((40, 40, 60, 3), 255, np.uint8))
    noise = images[images != 0]
    assert len(noise) > 20_000 and abs(noise.mean()) < 0.02 and abs(noise.std() - 1) < 0.02
    levels = T.RandomErasing(1, (0.3, 0.33), value="random")(np.zeros((40, 40, 60, 3), np.uint8))
    levels = levels[(levels > 0).any(axis=3)]
    assert abs(levels.mean() - 127.5) < 2 and 58 < levels.std() < 64, "saturated on both sides"


@pytest.mark.parametrize("ratio", [0, 0.1, 0.5, 1])
def test_random_mask_masks_each_pixel_with_its_ratio(ratio):
    masked = (T.RandomMask(ratio, fill=(1, 2, 3))(np.stack([WHITE] * 8)) == [1, 2, 3]).all(axis=3)
    n = masked.size
    assert abs(masked.mean() - ratio) <= 5 * math.sqrt(ratio * (1 - ratio) / n)
    if ratio == 0.5:
        for shifted in (masked[:, 1:] ^ masked[:, :-1], masked[:, :, 1:] ^ masked[:, :, :-1], masked[1:] ^ masked[:-1]):
            assert abs(shifted.mean() - 0.5) < 0.02, "neighbors and images are independent"


LEVELS = np.arange(256, dtype=np.uint8).reshape(16, 16)


def test_to_dtype_scales_or_keeps_values():
    for dtype, epsilon in ((torch.float32, 1e-7), (torch.float16, 5e-4)):
        assert np.abs(T.ToDtype(dtype, scale=True)(LEVELS) - LEVELS / 255).max() <= epsilon
        np.testing.assert_array_equal(T.ToDtype(dtype)(LEVELS), LEVELS)
    floats = T.ToDtype(torch.float32, scale=True)(LEVELS)
    np.testing.assert_array_equal(T.ToDtype(torch.uint8, scale=True)(floats), LEVELS)
    np.testing.assert_array_equal(T.ToDtype(torch.uint8)(LEVELS.astype(np.float32) + 0.4), LEVELS)
    saturated = T.ToDtype(torch.uint8, scale=True)(np.array([[-0.5, 0.0, 0.501, 1.0, 1.7]], np.float32))
    assert saturated.tolist() == [[0, 0, 128, 255, 255]]


def test_forms_of_mean_and_std():
    want = (LEVELS / 255 - 0.4) / 0.2
    for mean, std in (([0.4], [0.2]), (0.4, 0.2)):
        np.testing.assert_allclose(T.Normalize(mean, std)(LEVELS), want, atol=1e-5)
    rgb = np.stack([LEVELS] * 3, axis=-1)
    got = T.Normalize(np.float32([0.4] * 3), torch.full((3,), 0.2))(rgb)
    np.testing.assert_allclose(got, np.stack([want] * 3, axis=-1), atol=1e-5)
    after = T.Compose([T.ToDtype(torch.float32, scale=True), T.Normalize([0.4], [0.2])])
    np.testing.assert_allclose(after(LEVELS), want, atol=1e-5)


@pytest.mark.parametrize(("mean", "std"), [([123.7, 116.3, 103.5], [58.4, 57.1, 57.4]), (0, 255), (127.5, 0.5)])
def test_mean_and_std_in_levels_are_refused_for_uint8(mean, std):
    """DALI, OpenCV and Caffe use levels; each image would become nearly constant."""
    rgb = np.stack([LEVELS] * 3, axis=-1)
    for normalize in (T.Normalize(mean, std), lambda image: F.normalize(image, mean, std)):
        with pytest.raises(TransformError, match=r"(mean|std) must be at most 1, not .*by 255.*ToDtype"):
            normalize(rgb)
    want = (rgb - np.broadcast_to(mean, 3)) / std
    keep_levels = T.Compose([T.ToDtype(torch.float32), T.Normalize(mean, std)])
    np.testing.assert_allclose(keep_levels(rgb), want, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(T.Normalize(mean, std)(rgb.astype(np.float32)), want, rtol=1e-5, atol=1e-4)


def test_to_dtype_and_normalize_inside_random_apply():
    """The dtype belongs to the batch. Normalize is per sample, but makes all samples float."""
    with pytest.raises(TransformError, match="move ToDtype out of RandomApply"):
        T.RandomApply([T.ToDtype(torch.float32)])(LEVELS)
    got = T.RandomApply([T.Normalize([0.5], [0.5])])(np.full((50, 2, 2, 3), 255, np.uint8))
    assert np.unique(got).tolist() == [1.0]
    got = T.RandomApply([T.Normalize([0.0], [0.5])])(np.full((50, 2, 2, 3), 255, np.uint8))
    assert np.unique(got).tolist() == [1.0, 2.0]


def test_normalized_images_cannot_become_uint8():
    with pytest.raises(TransformError, match="normalized images are not in"):
        T.Compose([T.Normalize([0.5], [0.5]), T.ToDtype(torch.uint8, scale=True)])(LEVELS)


@pytest.mark.parametrize(
    "transform",
    [
        T.Normalize([0.5] * 3, [0.5] * 3),
        T.LUT(np.zeros((3, 256))),
        T.Pad(2, fill=(1, 2, 3)),
        T.RandomErasing(1, value=(1, 2, 3)),
        T.RandomMask(fill=(1, 2, 3)),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_values_per_channel_need_three_channels(transform):
    with pytest.raises(TransformError, match="3 entries, one per channel, but the images have 1"):
        transform(np.zeros((9, 9), np.uint8))
    with pytest.raises(TransformError, match="3 entries"):
        T.Compose([T.Grayscale(), transform])(np.zeros((9, 9, 3), np.uint8))


def test_distance_of_uint8_conversion_from_torchvisions():
    """torchvision's formulas; docs/parity.md states the distance."""
    values = np.random.default_rng(0).random((3, 200, 200), dtype=np.float32)
    got = T.ToDtype(torch.uint8, scale=True)(torch.from_numpy(values)).numpy()
    apart = got.astype(int) - (values * np.float32(255.999)).astype(np.uint8)
    assert set(np.unique(np.abs(apart))) == {0, 1} and abs((apart != 0).mean() - 0.25) < 0.01
    floats = torch.tensor([2.6, 2.4, -3.0, 300.0]).expand(3, 1, 4)
    assert T.ToDtype(torch.uint8)(floats)[0].tolist() == [[3, 2, 0, 255]]
