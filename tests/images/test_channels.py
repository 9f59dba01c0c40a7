"""Images of 2 to 16 channels, and uint16 images: each channel as a gray image of its own."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cuaug
from cuaug import TransformError
from cuaug import functional as F
from cuaug import transforms as T
from tests.support.transforms.cases import CASES

H, W = 24, 29
#: Transforms that act on colors: the others act on each channel alone.
OF_COLORS = {
    *("AutoAugment", "ColorJitter", "ConvertColor", "Grayscale", "JPEG", "PlanckianJitter", "RandAugment", "RGBShift"),
    *("RandomChannelPermutation", "RandomContrast", "RandomGrayscale", "RandomHue", "RandomPhotometricDistort"),
    *("RandomSaturation", "TrivialAugmentWide"),
}
NOISY = {"GaussianNoise", "SaltAndPepper", "ShotNoise", "RandomErasing"}


def images(channels: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (2, channels, H, W), dtype=np.uint8))


def run(transform: T.Transform, image: torch.Tensor, seed: int = 3) -> torch.Tensor:
    return T.Compose([transform], generator=torch.Generator().manual_seed(seed))(image)


@pytest.mark.parametrize("name", CASES)
def test_each_channel_is_as_a_gray_image(name):
    for transform, _ in CASES[name]:
        batch = images(5)[:1]
        try:
            got = run(transform, batch)
        except cuaug.TransformError as error:
            per_channel = re.search(r"has 3 entries, one per channel, but the images have 5 channels", str(error))
            assert per_channel or name in OF_COLORS, error
            continue
        assert got.shape[1] == 5
        for channel in range(5) if name not in NOISY else ():
            torch.testing.assert_close(
                got[:, channel : channel + 1], run(transform, batch[:, channel : channel + 1]), rtol=0, atol=0
            )


@given(st.integers(2, 16), st.integers(0, 2**31), st.sampled_from([torch.uint8, torch.float32, torch.float64]))
def test_any_number_of_channels(channels, seed, dtype):
    batch = images(channels, seed)
    batch = batch if dtype == torch.uint8 else batch.to(dtype) / 255
    chain = [T.RandomResizedCrop(11), T.RandomHorizontalFlip(), T.RandomRotation(20, fill=list(range(channels)))]
    got = T.Compose(chain, generator=torch.Generator().manual_seed(seed))(batch)
    assert got.shape == (2, channels, 11, 11) and got.dtype == dtype
    for channel in range(channels):
        chain[2] = T.RandomRotation(20, fill=channel)
        gray = T.Compose(chain, generator=torch.Generator().manual_seed(seed))(batch[:, channel : channel + 1])
        torch.testing.assert_close(got[:, channel : channel + 1], gray, rtol=0, atol=0)


@pytest.mark.parametrize("channels", [2, 4, 5, 16])
def test_normalize_and_look_up_tables_have_one_entry_per_channel(channels):
    rng = np.random.default_rng(channels)
    mean, std = rng.random(channels).tolist(), rng.uniform(0.1, 1, channels).tolist()
    batch = images(channels)
    want = (batch / 255 - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    torch.testing.assert_close(F.normalize(batch, mean, std), want, rtol=0, atol=1e-5)
    table = rng.integers(0, 256, (channels, 256)).astype(np.uint8)
    want = np.stack([table[c][batch[:, c].numpy()] for c in range(channels)], 1)
    np.testing.assert_array_equal(F.lut(batch, table).numpy(), want)
    with pytest.raises(cuaug.TransformError, match=f"mean has 3 entries, .* have {channels} channels"):
        T.Normalize([0.5] * 3, [0.5] * 3)(batch)


@pytest.mark.parametrize("transform", [T.RandomErasing(1.0, value="random"), T.GaussianNoise(0, 0.1)])
def test_groups_of_channels_have_noise_of_their_own(transform):
    flat = torch.full((1, 7, H, W), 128, dtype=torch.uint8)
    changes = run(transform, flat).float()[0] - 128
    flattened = changes.reshape(7, -1)
    noisy = flattened[:, flattened.abs().amax(0) > 0]
    correlation = torch.corrcoef(noisy) - torch.eye(7)
    assert correlation.abs().max() < 0.4


def test_batch_transforms_and_views_take_any_channels():
    batch = images(4)
    mixed, labels = T.MixUp(num_classes=3)(batch, torch.tensor([0, 1]))
    assert mixed.shape == batch.shape and labels.shape == (2, 3)
    crops = T.FiveCrop(8)(batch)
    assert crops.shape == (2, 5, 4, 8, 8)
    torch.testing.assert_close(crops[:, 0], batch[..., :8, :8], rtol=0, atol=0)


def levels16(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 65536, shape).astype(np.uint16)


def test_geometry_without_interpolation_keeps_every_uint16_level():
    every = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    for image in (every, every[..., None], torch.from_numpy(every)[None]):
        got = T.RandomVerticalFlip(1.0)(image)
        assert type(got) is type(image) and got.dtype == image.dtype
        np.testing.assert_array_equal(np.squeeze(got), every[::-1])


def test_a_resize_of_uint16_is_that_of_floats_rounded():
    image = levels16(H, W, 4)
    want = F.resize(image.astype(np.float32) / 65535, (11, 13)) * 65535
    np.testing.assert_array_equal(F.resize(image, (11, 13)), np.rint(want))


def test_uint16_becomes_float_where_the_chain_asks():
    image = torch.from_numpy(levels16(3, H, W))
    unit = image.to(torch.float32) / 65535
    torch.testing.assert_close(T.ToDtype(torch.float32, scale=True)(image), unit)
    torch.testing.assert_close(T.Normalize(0.5, 0.5)(image), (unit - 0.5) / 0.5)
    byte = T.ToDtype(torch.uint8, scale=True)(image)
    assert byte.dtype == torch.uint8 and torch.equal(byte, (unit * 255).round().to(torch.uint8))
    jittered = T.ColorJitter(brightness=(0.5, 0.5))(image)
    assert jittered.dtype == torch.uint16
    torch.testing.assert_close(jittered.to(torch.float32), (unit * 0.5 * 65535).round(), rtol=0, atol=1)


@pytest.mark.parametrize("threshold", [2, 32767.5, 32768, 50_001, 65535])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_solarize_takes_a_uint16_level(threshold, as_tensor):
    every = np.arange(65536, dtype=np.uint16).reshape(1, 256, 256)
    want = np.where(every >= threshold, 65535 - every, every)
    image = torch.from_numpy(every) if as_tensor else every[0]
    for got in (F.solarize(image, threshold), T.RandomSolarize(threshold, 1)(image)):
        assert got.dtype == image.dtype
        np.testing.assert_array_equal(np.asarray(got).reshape(want.shape), want)


def test_solarize_takes_a_fraction_of_white_for_uint16():
    image = levels16(H, W)
    np.testing.assert_array_equal(F.solarize(image, 0.5), F.solarize(image, 32767.5))


def test_a_uint16_threshold_beyond_white_is_refused():
    with pytest.raises(TransformError, match="threshold must be at most the image's white, 65535, not 65536"):
        F.solarize(levels16(H, W), 65536)
    chain = T.Compose([T.ToDtype(torch.float32, scale=True), T.RandomSolarize(32767.5, 1)])
    with pytest.raises(TransformError, match=r"threshold must be at most .*, 1, not 32767\.5"):
        chain(torch.from_numpy(levels16(1, H, W)))


def test_equalize_of_uint16_is_that_of_its_nearest_256_levels():
    levels = np.random.default_rng(2).integers(0, 256, (64, 64)).astype(np.uint8)
    want = F.equalize(levels).astype(np.uint16) * 257
    for offset in (0, -128, 128):
        image = (levels.astype(np.int64) * 257 + offset).clip(0, 65535).astype(np.uint16)
        np.testing.assert_array_equal(F.equalize(image), want)
