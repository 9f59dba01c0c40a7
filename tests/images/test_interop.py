"""Inputs of every kind: the input stays unchanged, and the result has its kind and meaning."""

from __future__ import annotations

import copy
import warnings
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import cuaug
from cuaug import functional as F
from cuaug import transforms as T
from cuaug._runtime.native import BEST_ISA
from cuaug.images import interop

H, W = 9, 12
PIXELS = np.random.default_rng(0).integers(0, 256, (4, H, W, 3), dtype=np.uint8)
FOUR_CHANNELS = np.concatenate([PIXELS, PIXELS[..., :1]], axis=-1)
CROP = T.Compose([T.CenterCrop((5, 6)), T.RandomHorizontalFlip(1.0)])


def cropped(images: np.ndarray) -> np.ndarray:
    """The result of CROP for (..., H, W, C)."""
    return images[..., 2:7, 3:9, :][..., ::-1, :]


FLOATS = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-6, torch.float64: 1e-6}


def assert_same_tensor(got: torch.Tensor, given: torch.Tensor, want: np.ndarray) -> None:
    """`want` is (..., H, W, C)."""
    assert type(got) is torch.Tensor and got.dtype == given.dtype and got.device == given.device
    np.testing.assert_array_equal(got.movedim(-3, -1).double().numpy(), want)


@pytest.mark.parametrize("dtype", [torch.uint8, *FLOATS])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("batch", [False, True])
def test_tensors_give_tensors_of_the_same_dtype_and_axes(dtype, channels, batch):
    data = torch.from_numpy(FOUR_CHANNELS[..., :channels].copy()).permute(0, 3, 1, 2)
    data = (data if dtype == torch.uint8 else data / 255).to(dtype).contiguous()
    data = data if batch else data[0]
    before = data.clone()
    got = CROP(data)
    assert_same_tensor(got, data, cropped(data.movedim(-3, -1).double().numpy()))
    assert data.equal(before) and got.is_contiguous()


VIEWS = {
    "contiguous": lambda images: images,
    "without two columns": lambda images: images[..., 2:],
    "without a row": lambda images: images[:, :, 1:],
    "every other row": lambda images: images[:, :, ::2],
    "every other column": lambda images: images[..., ::2],
    "transposed": lambda images: images.transpose(-1, -2),
    "every other channel": lambda images: images.repeat_interleave(2, 1)[:, ::2],
    "channels last": lambda images: images.contiguous(memory_format=torch.channels_last),
    "one image expanded": lambda images: images[:1].expand(3, -1, -1, -1),
}


@given(
    st.sampled_from(list(VIEWS)),
    st.sampled_from([torch.uint8, torch.float16, torch.float32, torch.float64]),
    st.sampled_from([1, 3]),
    st.integers(1, 3),
    st.integers(2, 9) | st.integers(30, 40),
    st.integers(4, 9) | st.integers(30, 140),
)
def test_planar_images_are_packed(name, dtype, channels, n, height, width):
    """With each instruction set, for any strides."""
    values = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (n, channels, height, width)))
    images = VIEWS[name](values.to(dtype))
    want = images.permute(0, 2, 3, 1).expand(-1, -1, -1, 3).to(torch.uint8 if dtype == torch.uint8 else torch.float32)
    for isa in range(BEST_ISA + 1):
        with mock.patch.object(interop, "BEST_ISA", isa):
            packed = interop.open_images(images).images
        assert packed.is_contiguous() and packed.dtype == want.dtype and torch.equal(packed, want)


def test_images_stay_on_their_device_under_another_default_device():
    """torch makes tensors without a device argument on the default device."""
    images = torch.arange(2 * 3 * 5 * 7, dtype=torch.uint8).view(2, 3, 5, 7)
    with torch.device("meta"):
        packed = interop.open_images(images).images
    assert packed.device.type == "cpu" and torch.equal(packed, images.permute(0, 2, 3, 1))


def test_channels_last_batches_stay_channels_last():
    for pixels in (PIXELS, FOUR_CHANNELS):
        data = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        assert data.is_contiguous(memory_format=torch.channels_last)
        got = CROP(data)
        assert got.is_contiguous(memory_format=torch.channels_last)
        assert_same_tensor(got, data, cropped(pixels))


def test_tensor_subclasses_are_accepted():
    class Picture(torch.Tensor):
        pass

    data = torch.from_numpy(PIXELS.copy()).permute(0, 3, 1, 2).contiguous()
    assert CROP(data.as_subclass(Picture)).equal(CROP(data))


def test_cuda_tensors_stay_on_their_device(device):
    data = torch.from_numpy(PIXELS.copy()).permute(0, 3, 1, 2).contiguous().to(device)
    got = CROP(data)
    assert got.device == data.device
    assert_same_tensor(got.cpu(), data.cpu(), cropped(PIXELS))


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize("shape", ["HW", "HW1", "HWC", "HW4", "NHWC", "NHW1", "NHW4"])
def test_arrays_give_arrays_of_the_same_dtype_and_axes(dtype, shape):
    data = {
        "HW": PIXELS[0, ..., 0],
        "HW1": PIXELS[0, ..., :1],
        "HWC": PIXELS[0],
        "NHWC": PIXELS,
        "NHW1": PIXELS[..., :1],
        "HW4": FOUR_CHANNELS[0],
        "NHW4": FOUR_CHANNELS,
    }
    pixels = data[shape] if dtype == np.uint8 else (data[shape] / 255).astype(dtype)
    before = pixels.copy()
    got = CROP(pixels)
    assert type(got) is np.ndarray and got.dtype == np.dtype(dtype).newbyteorder("=") and got.flags.c_contiguous
    want = cropped(pixels[..., None])[..., 0] if shape == "HW" else cropped(pixels)
    np.testing.assert_array_equal(got, want.astype(np.float32) if dtype == np.float64 else want)
    np.testing.assert_array_equal(pixels, before)


@given(st.data())
def test_arrays_with_any_strides(data):
    """Any order of axes in memory, any steps and directions."""
    batch = data.draw(st.booleans())
    axes = 4 if batch else 3
    pixels = PIXELS if batch else PIXELS[0]
    order = data.draw(st.permutations(range(axes)))
    steps = [data.draw(st.sampled_from([1, 2, -1, -2])) for _ in range(axes)]
    room = np.zeros([2 * pixels.shape[axis] for axis in order], np.uint8).transpose(np.argsort(order))
    view = room[
        tuple(
            slice(None, None, step) if abs(step) == 2 else slice(0, n)
            for n, step in zip(pixels.shape, steps, strict=True)
        )
    ]
    view = view[tuple(slice(None, None, -1) if step < 0 else slice(None) for step in steps)]
    view[:] = pixels
    view.setflags(write=data.draw(st.booleans()))
    got = CROP(view)
    np.testing.assert_array_equal(got, cropped(pixels))
    np.testing.assert_array_equal(view, pixels)


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["one row", "one column", "gray"])
def test_an_axis_of_length_one_may_have_a_negative_stride(axis):
    """NumPy calls such an array contiguous; torch refuses negative strides."""
    pixels = PIXELS[0].take([0], axis)
    np.testing.assert_array_equal(F.vertical_flip(np.flip(pixels, axis)), pixels[::-1])


def test_read_only_arrays_give_no_warning():
    pixels = PIXELS[0].copy()
    pixels.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = CROP(pixels)
        assert got.flags.writeable
        CROP(np.asarray(Image.fromarray(pixels)))
        CROP(np.asfortranarray(pixels))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("given", [np.uint8, np.float16, np.float32, np.float64])
def test_to_dtype_decides_the_dtype_of_the_result(dtype, given):
    pixels = PIXELS[0] if given == np.uint8 else (PIXELS[0] / 255).astype(given)
    got = T.ToDtype(dtype, scale=True)(pixels)
    assert torch.from_numpy(got).dtype == dtype
    np.testing.assert_allclose(got, PIXELS[0] / 255, atol=1e-3)
    back = T.Compose([T.ToDtype(dtype, scale=True), T.ToDtype(torch.uint8, scale=True)])(pixels)
    assert back.dtype == np.uint8
    np.testing.assert_array_equal(back, PIXELS[0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_normalize_keeps_a_float_dtype(dtype):
    data = (torch.from_numpy(PIXELS.copy()).permute(0, 3, 1, 2) / 255).to(dtype)
    got = T.Normalize([0.5, 0.4, 0.3], [0.5, 0.5, 0.5])(data)
    want = (data.double() - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / 0.5
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), want.double(), atol=2 * FLOATS[dtype], rtol=0)


def test_a_bfloat16_result_of_an_array_is_refused():
    with pytest.raises(cuaug.TransformError, match="NumPy has no bfloat16"):
        T.ToDtype(torch.bfloat16, scale=True)(PIXELS)


def test_rgb_to_grayscale_changes_the_channels_of_every_kind():
    gray = PIXELS[0, ..., 0]
    assert F.rgb_to_grayscale(gray, 3).shape == (H, W, 3) and F.rgb_to_grayscale(gray).shape == (H, W)
    assert F.rgb_to_grayscale(PIXELS).shape == (4, H, W, 1)
    assert F.rgb_to_grayscale(Image.fromarray(PIXELS[0])).mode == "L"
    assert F.rgb_to_grayscale(torch.zeros(1, H, W), 3).shape == (3, H, W)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: torch.zeros(H, W),
            r"a tensor must be \(C, H, W\) or \(N, C, H, W\) with 1 to 16 channels, not \(9, 12\)",
        ),
        (lambda: torch.zeros(17, H, W), r"not \(17, 9, 12\)"),
        (lambda: torch.zeros(2, 2, 2, 3, H, W), r"not \(2, 2, 2, 3, 9, 12\)"),
        (lambda: torch.zeros(3, H, W, dtype=torch.int32), "uint8, uint16 or floating point, not torch.int32"),
        (lambda: torch.zeros(3, H, W, dtype=torch.bool), "not torch.bool"),
        (lambda: torch.zeros(3, H, W, dtype=torch.complex64), "not torch.complex64"),
        (lambda: torch.zeros(0, 3, H, W), r"of shape \(0, 3, 9, 12\) have no pixels"),
        (lambda: torch.zeros(3, 0, W), "have no pixels"),
        (lambda: np.zeros((3, H, 20), np.uint8), r"an array must be \(H, W\), .* not \(3, 9, 20\)"),
        (lambda: np.zeros(5), r"not \(5,\)"),
        (lambda: np.float32(5.0), "a PIL image, not numpy.float32"),
        (lambda: np.array(5.0), r"not \(\)"),
        (lambda: np.zeros((H, W, 3), np.int64), "not int64"),
        (lambda: np.zeros((H, W, 3), np.int16), "not int16"),
        (lambda: np.zeros((H, W, 3), bool), "not bool"),
        (lambda: np.zeros((H, W, 3), np.longdouble), "not (float128|longdouble)"),
        (lambda: np.zeros((H, W, 3), object), "not object"),
        (lambda: np.zeros((0, H, W, 3), np.uint8), "have no pixels"),
        (lambda: np.zeros((H, 0), np.uint8), "have no pixels"),
        (lambda: Image.new("RGB", (0, 4)), "have no pixels"),
        (lambda: [[1, 2], [3, 4]], "none of the 2 values is an image"),
        (lambda: "cat.jpg", "not builtins.str"),
        (lambda: None, "not builtins.NoneType"),
    ],
)
def test_unsupported_inputs_are_refused(make, message):
    with pytest.raises(cuaug.TransformError, match=message):
        CROP(make())


CHANNELS_LAST = torch.from_numpy(PIXELS).permute(0, 3, 1, 2)
BATCHES = {
    "uint8": CHANNELS_LAST.contiguous(),
    "float32": CHANNELS_LAST.contiguous().float() / 255,
    "float64": CHANNELS_LAST.contiguous().double() / 255,
    "channels last": CHANNELS_LAST,
    "NumPy": PIXELS,
}


@pytest.mark.parametrize("chain", [[], [T.RandomHorizontalFlip(0.0)], [T.CenterCrop((H, W))], [T.Normalize([0], [1])]])
@pytest.mark.parametrize("kind", BATCHES)
def test_the_result_never_shares_memory_with_the_input(chain, kind):
    """Even if the chain changes nothing."""
    data, before = copy.deepcopy(BATCHES[kind]), BATCHES[kind]
    T.Compose(chain)(data)[:] = 7
    assert (data == before).all()
    image = Image.fromarray(PIXELS[0])
    assert T.Compose(chain)(image) is not image


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
