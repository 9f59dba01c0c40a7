"""Evaluation chains with `pillow` equal PIL's and torch's in every bit, from encoded files to normalized floats."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

import cuaug
from cuaug import functional
from cuaug import transforms as T
from cuaug.errors import ArgumentError, TransformError
from tests.support.codec.encoded_images import encode_jpeg, photo, tagged_files, tiff_block

INSTALLED = 13 if int(PIL.__version__.partition(".")[0]) >= 13 else 12
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FILTERS = {
    name: Image.Resampling[name.upper()] for name in ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
}
names = st.sampled_from(list(FILTERS))


def opened(data: bytes) -> Image.Image:
    return ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")


def evaluated(image: Image.Image, size: int, crop: int, name: str) -> np.ndarray:
    """torchvision's Resize(size) and CenterCrop(crop) of a PIL image."""
    w, h = image.size
    short, long = size, int(size * max(h, w) / min(h, w))
    image = image.resize((short, long) if w <= h else (long, short), FILTERS[name])
    w, h = image.size
    left, top = round((w - crop) / 2.0), round((h - crop) / 2.0)
    return np.array(image.crop((left, top, left + crop, top + crop)))


def as_tensor(pixels: np.ndarray, *, v2: bool = False) -> torch.Tensor:
    """ToTensor divides by 255; the ToDtype of v2 multiplies by 1 / 255."""
    levels = torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float()
    return levels.mul_(1.0 / 255) if v2 else levels.div_(255)


def normalized(image: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    return image.sub(mean).div_(std)


def encoded(height: int, width: int, seed: int, orientation: int, subsampling: int, progressive: bool) -> bytes:
    options: dict[str, Any] = {"quality": 88, "subsampling": subsampling, "progressive": progressive}
    return encode_jpeg(
        Image.fromarray(photo(height, width, seed)), exif=b"Exif\0\0" + tiff_block(orientation), **options
    )


jpegs = st.builds(
    encoded, st.integers(20, 150), st.integers(20, 150), st.integers(0, 9), st.integers(1, 8),
    st.sampled_from([0, 1, 2]), st.booleans(),
)  # fmt: skip


@given(st.lists(jpegs, min_size=1, max_size=3), st.integers(16, 90), names, st.booleans())
def test_evaluation_from_jpegs(files, size, name, v2):
    crop = size * 7 // 8
    floats = [T.ToDtype(torch.float32, scale=True)] if v2 else []
    chain = T.Compose([T.Resize(size, name), T.CenterCrop(crop), *floats, T.Normalize(MEAN, STD)], pillow=INSTALLED)
    got = cuaug.decode(files, chain)
    for image, data in zip(got, files, strict=True):
        expected = normalized(as_tensor(evaluated(opened(data), size, crop, name), v2=v2))
        assert torch.equal(image.cpu(), expected)
        assert torch.equal(chain(opened(data)), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_loader(tmp_path, dtype):
    files = [encoded(60 + 9 * i, 100 - 7 * i, i, i + 1, 2, progressive=False) for i in range(8)]
    for number, data in enumerate(files):
        (tmp_path / f"{number}.jpg").write_bytes(data)
    chain = [T.Resize(40, "bicubic"), T.CenterCrop(32), T.Normalize(MEAN, STD)]
    loader = cuaug.Loader(str(tmp_path / "*.jpg"), chain, batch_size=3, pillow=INSTALLED, device="cpu", dtype=dtype)
    assert f"pillow={INSTALLED}" in repr(loader.transforms)
    images = torch.cat([batch.images for batch in loader])
    expected = [normalized(as_tensor(evaluated(opened(data), 40, 32, "bicubic"))).to(dtype) for data in files]
    assert torch.equal(images, torch.stack(expected))


@pytest.mark.parametrize("value", range(1, 9))
def test_every_tagged_file(value):
    chain = T.Compose([T.Resize(20), T.CenterCrop(18)], pillow=INSTALLED)
    for name, data in tagged_files(value).items():
        if "cmyk" not in name and "palette" not in name:
            got = cuaug.decode(data, chain).permute(1, 2, 0).cpu().numpy()
            np.testing.assert_array_equal(got, evaluated(opened(data), 20, 18, "bilinear"), name)


@given(st.data(), st.integers(5, 90), st.integers(5, 90), names)
def test_functions(data, height, width, name):
    image, size = photo(height, width, 3), data.draw(st.tuples(st.integers(1, 60), st.integers(1, 60)))
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    h, w = data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left))
    picture, new = Image.fromarray(image), size[::-1]
    np.testing.assert_array_equal(
        functional.resize(image, size, name, pillow=INSTALLED), np.asarray(picture.resize(new, FILTERS[name]))
    )
    cropped = picture.crop((left, top, left + w, top + h)).resize(new, FILTERS[name])
    got = functional.resized_crop(picture, top, left, h, w, size, name, pillow=INSTALLED)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(cropped))


@given(st.integers(8, 90), st.integers(8, 90), names, st.integers(0, 2**31))
def test_training_crops(height, width, name, seed):
    """The region is drawn as without `pillow`, and cropped before the resize."""
    image = photo(height, width, 4)
    crop = [T.RandomResizedCrop(24, interpolation=name), T.RandomHorizontalFlip()]
    chain = T.Compose(crop, pillow=INSTALLED, generator=torch.Generator().manual_seed(seed))
    got, steps = chain.trace(image)
    region = steps[0]["params"]
    left, top, w, h = (region[key] for key in ("left", "top", "width", "height"))
    expected = Image.fromarray(image).crop((left, top, left + w, top + h)).resize((24, 24), FILTERS[name])
    expected = ImageOps.mirror(expected) if len(steps) == 2 else expected
    np.testing.assert_array_equal(got, np.asarray(expected))
    plain = T.Compose(crop, generator=torch.Generator().manual_seed(seed))
    assert plain.trace(image)[1] == steps


def test_a_setting_of_the_whole_chain():
    inner, image = T.Compose([T.Resize((20, 30))], pillow=12), photo(90, 40)
    outer = T.Compose([T.RandomHorizontalFlip(0), inner])
    np.testing.assert_array_equal(outer(image), functional.resize(image, (20, 30), pillow=12))
    assert not np.array_equal(outer(image), functional.resize(image, (20, 30), pillow=True))
    with pytest.raises(TransformError, match="pillow must be the same for a chain and its inner chains, not both"):
        T.Compose([inner], pillow=13)
    mixed = T.Compose([T.Resize((20, 30)), T.MixUp(num_classes=2), T.Normalize(MEAN, STD)], pillow=12)
    assert all(segment.resizes_as_pillow for segment in mixed.segments[::2])


@pytest.mark.parametrize("value", [11, 14, 12.0, "13", False, 1])
def test_unknown_versions(value):
    with pytest.raises(TransformError, match="pillow must be 12, 13, True"):
        T.Compose([], pillow=value)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((9, 9, 3), np.float32), "resizes uint8 images, but these are floats"),
        (np.zeros((9, 9, 3), np.uint16), "resizes uint8 images, but these are floats"),
        (np.zeros((9, 9, 4), np.uint8), "resizes gray and RGB images, but these have 4 channels"),
        (Image.new("RGBA", (9, 9)), "resizes gray and RGB images, but these have 4 channels"),
    ],
)
def test_images_that_are_refused(image, message):
    with pytest.raises(TransformError, match=f"pillow=13 {message}"):
        functional.resize(image, 5, pillow=True)


def test_chains_that_are_refused():
    for chain, message in (
        ([T.ToDtype(torch.float32, scale=True), T.Resize(5)], "these are floats"),
        ([T.Resize(5, antialias=False)], "antialias must be True for BILINEAR"),
    ):
        with pytest.raises(TransformError, match=message):
            T.Compose(chain, pillow=13)(photo(9, 9))
    downscaled = T.Compose([T.Downscale(p=1)])(photo(20, 20))
    np.testing.assert_array_equal(T.Compose([T.Downscale(p=1)], pillow=13)(photo(20, 20)), downscaled)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": cuaug.DecodedCache(16, limit_bytes=1 << 20)}, "cache must keep full-size images"),
        ({"decode": cuaug.DecodeOptions(fancy_upsampling=False)}, "decode must have fancy_upsampling=True"),
        ({"decode": cuaug.DecodeOptions(decoder="nvimgcodec")}, "decode must have decoder='auto'"),
    ],
)
def test_loaders_that_are_refused(tmp_path, options, message):
    (tmp_path / "a.jpg").write_bytes(encoded(30, 30, 0, 1, 2, progressive=False))
    for pillow, chain in ((13, [T.Resize(5)]), (None, T.Compose([T.Resize(5)], pillow=13))):
        with pytest.raises(ArgumentError, match=message):
            cuaug.Loader(str(tmp_path / "*.jpg"), chain, pillow=pillow, device="cpu", **options)
