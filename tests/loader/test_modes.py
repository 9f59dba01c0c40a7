"""`DecodeOptions(mode=)`: images of other channels and depths than 8-bit RGB."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from tests.support.codec.encoded_images import encode
from tests.support.loader.further_pictures import Bytes, epoch_of, png

pytestmark = pytest.mark.cpu_only

CHAIN = [T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.GaussianBlur(3)]


class Arrays:
    """Ten arrays (H, W, C) of different sizes, or some of their channels."""

    def __init__(self, channels: int, dtype: Any = np.uint8, *, only: slice = slice(None)) -> None:
        self.channels, self.dtype, self.only = channels, dtype, only

    def __len__(self) -> int:
        return 10

    def array(self, index: int) -> np.ndarray:
        rng, shape = np.random.default_rng(index), (20 + index, 30, self.channels)
        if self.dtype == np.float32:
            return rng.random(shape, dtype=np.float32)
        return rng.integers(0, np.iinfo(self.dtype).max, shape, dtype=self.dtype, endpoint=True)

    def read(self, index: int) -> tuple[np.ndarray, int]:
        return self.array(index)[..., self.only], index


def load(files: Any, chain: Any = CHAIN, mode: str = "unchanged", **options: Any) -> list[cuaug.Batch]:
    options = {"batch_size": 4, "seed": 1, "device": "cpu", **options}
    return epoch_of(files, chain, decode=cuaug.DecodeOptions(mode=mode), **options)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7, 16])
def test_each_channel_is_as_alone(channels, dtype, layout):
    batches = load(Arrays(channels, dtype), layout=layout)
    form = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    for batch in batches:
        assert batch.images.dtype == torch.from_numpy(np.zeros(0, dtype)).dtype
        assert batch.images.shape[1:] == (channels, 16, 16) and batch.images.is_contiguous(memory_format=form)
    for channel in {0, channels // 2, channels - 1}:
        alone = load(Arrays(channels, dtype, only=slice(channel, channel + 1)), batch_size=3)
        got = torch.cat([batch.images[:, channel].to(torch.float64) for batch in batches])
        want = torch.cat([batch.images[:, 0].to(torch.float64) for batch in alone])
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_three_channels_of_uint8_are_as_with_rgb():
    for batch, rgb in zip(load(Arrays(3)), load(Arrays(3), mode="RGB"), strict=True):
        assert torch.equal(batch.images, rgb.images)


def test_uint16_becomes_float_where_the_chain_asks():
    crop = [T.CenterCrop(16)]
    (exact,) = load(Arrays(4, np.uint16), crop, batch_size=10)
    unit = exact.images.to(torch.float32) / 65535
    (scaled,) = load(Arrays(4, np.uint16), [*crop, T.ToDtype(torch.float32, scale=True)], batch_size=10)
    torch.testing.assert_close(scaled.images, unit)
    mean, std = [0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]
    (normalized,) = load(Arrays(4, np.uint16), [*crop, T.Normalize(mean, std)], batch_size=10)
    want = (unit - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    torch.testing.assert_close(normalized.images, want)
    (mixed,) = load(Arrays(4, np.uint16), [*crop, T.MixUp(num_classes=10)], batch_size=10)
    assert mixed.images.dtype == torch.float32 and mixed.images.min() >= 0 and mixed.images.max() <= 1


def test_views_and_lists_take_any_channels():
    (batch,) = load(Arrays(5), [T.FiveCrop(8)], batch_size=10)
    for index in range(10):
        want = torch.from_numpy(Arrays(5).array(index)[:8, :8]).permute(2, 0, 1)
        assert torch.equal(batch.images[index, 0], want)
    (batch,) = load(Arrays(5), [T.RandomHorizontalFlip(1.0)], batch_size=10, stack=False)
    for index, image in enumerate(batch.images):
        assert torch.equal(image, torch.from_numpy(Arrays(5).array(index)).permute(2, 0, 1).flip(-1))


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGBA", 4)])
def test_encoded_files_take_the_mode(mode, channels):
    image = Image.fromarray(Arrays(4).array(3))
    files = [encode(image, "PNG"), encode(image.convert("RGB"), "JPEG")]
    (batch,) = load(Bytes(*files), [T.CenterCrop(16)], mode=mode, batch_size=2)
    assert batch.images.shape == (2, channels, 16, 16) and batch.images.dtype == torch.uint8
    for data, got in zip(files, batch.images, strict=True):
        want = T.CenterCrop(16)(Image.open(io.BytesIO(data)).convert(mode))
        np.testing.assert_array_equal(got.permute(1, 2, 0).squeeze(-1).numpy(), np.asarray(want))


@pytest.mark.parametrize(
    ("pil_mode", "converted"),
    [("P", "RGB"), ("transparent P", "RGBA"), ("PA", "RGBA"), ("F", "F")]
    + [(mode, mode) for mode in ("L", "LA", "RGB", "RGBA", "I;16")],
)
def test_pil_images_of_a_dataset_keep_their_channels(pil_mode, converted):
    image = Image.fromarray(Arrays(4).array(3))
    if pil_mode == "I;16":
        image = Image.fromarray(Arrays(1, np.uint16).array(3)[..., 0])
    else:
        between = {"P": "RGB", "PA": "LA"}.get(mode := pil_mode.split()[-1], mode)
        image = image.convert(between).convert(mode)
    if pil_mode == "transparent P":
        image.info["transparency"] = image.getpixel((0, 0))
    source = cuaug.sources.FromDataset([image] * 2, mode="unchanged")
    (batch,) = load(source, [], batch_size=2)
    pixels = np.array(image.convert(converted))
    want = torch.from_numpy(pixels).reshape(image.height, image.width, -1).permute(2, 0, 1)
    assert torch.equal(batch.images[0].to(torch.float64), want.to(torch.float64))
    assert batch.images[0, -1, 0, 0] == 0 or pil_mode != "transparent P"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: load(Arrays(5), [T.RandomGrayscale(1.0)]), "it has 5 channels, but MATRIX acts on colors"),
        (lambda: load(Arrays(5), cache="decoded"), "decoded images are cached as RGB, not with mode='unchanged'"),
        (lambda: load(Arrays(5), mode="L"), "with mode='L' an array must be uint8 of 1 channel, not uint8"),
        (lambda: load(Arrays(17)), "of 1 to 16 channels, not uint8"),
        (lambda: load(Arrays(3, np.int64)), "must be uint8, uint16 or float32"),
        (
            lambda: load(cuaug.sources.FromDataset([Image.new("L", (9, 9))])),
            r"give cuaug.sources.FromDataset\(dataset, mode='unchanged'\)",
        ),
        (lambda: cuaug.DecodeOptions(mode="CMYK"), "mode must be one of"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(cuaug.CuaugError, match=message):
        make()


def test_further_pictures_need_rgb():
    class Pairs(Arrays):
        def read(self, index: int) -> tuple[np.ndarray, Any]:
            return self.array(index), {"images": {"right": np.zeros((20 + index, 30, 3), np.uint8)}}

    with pytest.raises(cuaug.TransformError, match="further pictures need a loader of 8-bit RGB images"):
        load(Pairs(5))


def test_images_of_one_batch_have_the_same_channels():
    class Mixed(Arrays):
        def read(self, index: int) -> tuple[np.ndarray, int]:
            return self.array(index)[..., : 3 if index == 2 else 5], index

    with pytest.raises(cuaug.TransformError, match=r"sample 0 has 5 of uint8, sample 2 has 3 of uint8"):
        load(Mixed(5))


def test_a_damaged_array_costs_its_own_sample():
    class Damaged(Arrays):
        def read(self, index: int) -> tuple[np.ndarray, int]:
            return self.array(index) if index != 2 else np.zeros((4, 4, 40), np.uint8), index

    batches = load(Damaged(5), on_error="skip")
    assert torch.cat([batch.indices for batch in batches]).tolist() == [0, 1, *range(3, 10)]


def test_decode_refuses_two_modes():
    with pytest.raises(cuaug.LoaderError, match="mode='L' contradicts"):
        cuaug.decode(png(0), mode="L", decode=cuaug.DecodeOptions(mode="RGBA"))


@pytest.mark.parametrize("mode", ["I", "CMYK", "1"])
def test_pil_images_without_a_counterpart_are_refused(mode):
    source = cuaug.sources.FromDataset([Image.new(mode, (4, 3))], mode="unchanged")
    with pytest.raises(cuaug.DecodeError, match=f"mode '{mode}' has no counterpart: let the Dataset convert it"):
        source.read(0)
