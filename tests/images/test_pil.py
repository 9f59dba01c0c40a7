"""PIL images of every mode, and the kind of their results."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from tests.images.test_interop import CROP, FLOATS, PIXELS, H, W, cropped


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "RGBX"])
def test_pil_images_give_pil_images(mode):
    rgb = Image.fromarray(PIXELS[0])
    image = rgb.convert("L").convert(mode) if mode in ("1", "LA") else rgb.convert(mode)
    before = image.tobytes()
    got = CROP(image)
    result_mode = {"1": "L", "P": "RGB", "RGBX": "RGB"}.get(mode, mode)
    assert isinstance(got, Image.Image) and got.mode == result_mode and got.size == (6, 5)
    want = np.asarray(image.convert(result_mode)).reshape(H, W, -1)
    np.testing.assert_array_equal(np.asarray(got).reshape(5, 6, -1), cropped(want))
    assert image.tobytes() == before


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_moves_with_the_image(mode):
    image = Image.fromarray(PIXELS[0]).convert(mode)
    image.putalpha(Image.fromarray(PIXELS[1, ..., 0]))
    np.testing.assert_array_equal(np.asarray(CROP(image))[..., -1:], cropped(PIXELS[1, ..., :1]))


def test_a_transparent_palette_becomes_rgba():
    image = Image.fromarray(PIXELS[0]).convert("P")
    image.info["transparency"] = 0
    got = CROP(image)
    assert got.mode == "RGBA"
    np.testing.assert_array_equal(np.asarray(got), cropped(np.asarray(image.convert("RGBA"))))


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "HSV", "LAB"])
def test_color_spaces_are_converted_by_the_user(mode):
    image = Image.new(mode, (W, H))
    with pytest.raises(cuaug.TransformError, match=f"mode '{mode}' must be converted first"):
        CROP(image)


def test_pil_images_of_16_bits_keep_all_of_them():
    levels = (PIXELS[0, ..., 0].astype(np.uint16) << 8) + 5
    got = CROP(Image.fromarray(levels))
    assert got.mode == "I;16"
    np.testing.assert_array_equal(np.asarray(got)[..., None], cropped(levels[..., None]))


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pil_images_without_a_range_are_refused(mode):
    with pytest.raises(cuaug.TransformError, match=f"mode '{mode}' has no fixed range"):
        CROP(Image.new(mode, (W, H)))


def test_a_subclass_of_a_pil_image():
    """Plugins outside Pillow make such classes."""

    class PluginFile(Image.Image):
        pass

    image = Image.fromarray(PIXELS[0])
    image.__class__ = PluginFile
    np.testing.assert_array_equal(np.asarray(CROP(image)), cropped(PIXELS[0]))


def test_a_float_result_of_a_pil_image_is_a_tensor():
    image = Image.fromarray(PIXELS[0])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        got = T.ToDtype(dtype, scale=True)(image)
        assert got.shape == (3, H, W) and got.dtype == dtype and got.is_contiguous()
        want = torch.from_numpy(PIXELS[0].copy()).permute(2, 0, 1) / 255
        torch.testing.assert_close(got.float(), want, atol=FLOATS[dtype], rtol=0)
    assert T.Normalize([0.5], [0.5])(image.convert("L")).shape == (1, H, W)


def test_premultiplied_alpha_is_divided_out():
    image = Image.new("LA", (6, 4), (200, 255)).convert("La")
    assert T.RandomHorizontalFlip(1)(image).getpixel((0, 0)) == (200, 255)
