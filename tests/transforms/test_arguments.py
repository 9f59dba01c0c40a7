"""Invalid arguments: each error names the argument, its value and the allowed values."""

from __future__ import annotations

from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

from cuaug import TransformError
from cuaug import functional as F
from cuaug import transforms as T

NAN, INF, LONG = float("nan"), float("inf"), 2**31
IMAGE = np.zeros((8, 9, 3), np.uint8)
SQUARE = [(0, 0), (9, 0), (9, 9), (0, 9)]

TRANSFORMS = [
    (lambda: T.Normalize(NAN, 1), "mean must be a number or a sequence of one per channel, not nan"),
    *[(lambda v=v: T.Normalize(0, v), f"std .* not {v!r}") for v in (NAN, INF, None, "x")],
    *[(lambda v=v: T.GaussianBlur(3, v), f"sigma .* not {v}") for v in (INF, NAN)],
    (lambda: T.RandomRotation(1, center=(NAN, 0)), r"center must be two numbers, \(x, y\), not \(nan, 0\)"),
    *[(lambda v=v: T.Pad(1, v), f"fill must be a number or a sequence .*, not {v}") for v in (NAN, INF)],
    (lambda: T.RandomErasing(value=NAN), "value .* not nan"),
    *[(lambda v=v: T.Resize(8, max_size=v), f"max_size must be an integer .* not {v!r}")
      for v in (NAN, 20.7, "x", LONG)],
    *[(lambda v=v: T.Resize(None, max_size=v), f"max_size must be an integer .* not {v!r}") for v in (0, 20.7)],
    *[(lambda v=v: T.Resize(v), f"size must be an integer from 1 to 2147483647 .* not {v}") for v in (LONG, 10**30)],
    (lambda: T.Pad(LONG), "padding must be .* from -2147483647 to 2147483647 each, not 2147483648"),
    *[(lambda v=v: T.Resize(8, v), "interpolation must be one of .*, not") for v in ([], {}, np.zeros(2), True, False)],
    *[(lambda v=v: T.Pad(1, padding_mode=v), "padding_mode must be one of .*, not") for v in ([], np.zeros(2))],
    *[(lambda v=v: T.ConvertColor(v), "source and target must be 'RGB' and 'YUV'") for v in ([], np.zeros(2))],
    (lambda: T.PlanckianJitter([]), r"mode must be one of 'blackbody', 'CIED', not \[\]"),
    (lambda: T.AutoAugment(np.zeros(2)), "policy must be one of .*, not array"),
    (lambda: T.Compose([], box_format=[]), r"box_format must be one of .*, not \[\]"),
    *[(lambda v=v: T.Downscale(interpolation_pair=v), f"interpolation_pair .* not {v}") for v in (3, None)],
    *[(lambda v=v: T.Resize(8, antialias=v), f"antialias must be True or False, not {v!r}") for v in (1, "warn", 0.0)],
    (lambda: T.RandomResizedCrop(8, antialias="warn"), "antialias must be True or False, not 'warn'"),
    (lambda: T.TenCrop(8, None), "vertical_flip must be True or False, not None"),
    (lambda: T.LUT("abc"), r"table must be finite numbers of shape \(256,\) or \(C, 256\), not 'abc'"),
    (lambda: T.LUT(np.full(256, NAN)), r"table must be finite numbers .*, not nan at \(0,\)"),
    (lambda: T.LUT(torch.zeros(256, requires_grad=True)), "table must be finite numbers .*, not tensor"),
    (lambda: T.RandomShortestSize(2**70), "min_size must be one or several lengths from 1 to 2147483647, not 1180"),
    (lambda: T.RandomShortestSize(8, 2**70), "max_size must be an integer from 1 to 2147483647, not 1180"),
    (lambda: T.ColorJitter(INF), "brightness must be 0 or more, .* not inf"),
    (lambda: T.CLAHE(INF), r"clip_limit .* not \(1.0, inf\)"),
    (lambda: T.Mosaic(min_bbox_size=INF), "min_bbox_size must be a number of at least 0, not inf"),
    (lambda: T.RandomGamma((0, INF)), r"gamma must be \(lower, upper\) of at least 0, in that order, not \(0, inf\)"),
    (lambda: T.SanitizeBoundingBoxes(-1), "min_size must be a number of at least 0, not -1"),
    *[(lambda v=v: T.RandomCrop(v), r"size must be an integer .* not .*True") for v in (True, [8, True])],
    (lambda: T.Resize(True), "size must be an integer .* not True"),
    (lambda: T.Resize(8, max_size=True), "max_size must be an integer .* not True"),
    (lambda: T.Pad(True), "padding must be one integer, .* not True"),
    (lambda: T.GaussianBlur(True), "kernel_size .* not True"),
    (lambda: T.RandomPosterize(True), "bits must be an integer .* not True"),
    (lambda: T.SomeOf([T.Pad(1)], True), "n must be an integer .* not True"),
    (lambda: T.MixUp(num_classes=True), "num_classes must be an integer of at least 1, not True"),
    (lambda: T.RandomRot90((False, True)), r"times .* not \(False, True\)"),
    (lambda: T.JPEG((True, 9)), r"quality .* not \(True, 9\)"),
    (lambda: T.RandomShortestSize([True]), r"min_size .* not \[True\]"),
]  # fmt: skip

FUNCTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("resize", {"size": 8, "antialias": "warn"}, "antialias must be True or False, not 'warn'"),
    ("resized_crop", {"top": 0.5, "left": 0, "height": 4, "width": 4, "size": 4}, "top must be an integer .* not 0.5"),
    ("resized_crop", {"top": 0, "left": 0, "height": 4, "width": 4, "size": 4, "antialias": 2}, "antialias .* not 2"),
    ("crop", {"top": 1.9, "left": 1, "height": 5, "width": 5}, "top must be an integer from -2147483647 .*, not 1.9"),
    ("crop", {"top": 0, "left": "x", "height": 5, "width": 5}, "left must be an integer .* not 'x'"),
    ("crop", {"top": True, "left": 0, "height": 5, "width": 5}, "top must be an integer from .* not True"),
    ("permute_channels", {"permutation": (False, True, 2)}, r"permutation .* not \(False, True, 2\)"),
    ("crop", {"top": 2**70, "left": 0, "height": 5, "width": 5}, "top must be an integer .* not 1180"),
    ("crop", {"top": 0, "left": 0, "height": 0, "width": 5}, "height must be an integer from 1 to 2147483647, not 0"),
    ("rot90", {"k": 0.5}, "k must be an integer, not 0.5"),
    ("rotate", {"angle": NAN}, "angle must be a number, not nan"),
    ("ten_crop", {"size": 4, "vertical_flip": "x"}, "vertical_flip must be True or False, not 'x'"),
    ("affine", {"angle": 0, "translate": (NAN, 0), "scale": 1, "shear": 0}, r"translate must be two .* not \(nan, 0\)"),
    ("affine", {"angle": 0, "translate": None, "scale": 1, "shear": 0}, "translate must be two .* not None"),
    ("affine", {"angle": 0, "translate": (0, 0), "scale": 0, "shear": 0},
     "scale must be a number of at least 1e-06, not 0"),
    ("affine", {"angle": 0, "translate": (0, 0), "scale": 1, "shear": INF}, "shear must be .* not .inf"),
    ("affine", {"angle": 0, "translate": (0, 0), "scale": 1, "shear": "x"}, "shear must be .* not 'x'"),
    ("perspective", {"startpoints": "x", "endpoints": SQUARE}, "startpoints must be .* not 'x'"),
    ("perspective", {"startpoints": SQUARE, "endpoints": [(NAN, 0), *SQUARE[1:]]}, "endpoints must be .* not .*nan"),
    ("perspective", {"startpoints": None, "endpoints": None}, "startpoints must be .* not None"),
    ("perspective", {"startpoints": None, "endpoints": None, "coefficients": [NAN] * 8},
     r"coefficients must be .* not nan at \(0,\)"),
    ("elastic", {"displacement": "x"}, "displacement must be finite numbers, not 'x'"),
    *[(f"adjust_{name}", {f"{name}_factor": v}, f"{name}_factor must be a number of at least 0, not ")
      for name in ("brightness", "contrast", "saturation", "sharpness") for v in (-1, NAN, INF, "x", [], (1, 2))],
    ("adjust_hue", {"hue_factor": 0.7}, "hue_factor must be a number from -0.5 to 0.5, not 0.7"),
    ("adjust_gamma", {"gamma": -1}, "gamma must be a number of at least 0, not -1"),
    ("adjust_gamma", {"gamma": 1, "gain": INF}, "gain must be a number of at least 0, not inf"),
    ("clahe", {"clip_limit": -1}, "clip_limit must be a number of at least 0, not -1"),
    ("matrix", {"values": np.eye(3)}, r"values must be finite numbers of shape \(3, 4\), not \(3, 3\)"),
    ("matrix", {"values": "x"}, "values must be finite numbers .* not 'x'"),
    ("lut", {"table": "a"}, "table must be finite numbers .* not 'a'"),
    ("normalize", {"mean": 0, "std": 0}, "std must be above 0"),
    ("normalize", {"mean": [0] * 17, "std": 1}, r"mean must be a number or a sequence of one per channel, not \[0, 0"),
    ("gaussian_blur", {"kernel_size": 3, "sigma": NAN}, "sigma must be a number above 0, .* not nan"),
    ("gaussian_noise", {"sigma": -1}, "sigma must be a number of at least 0, not -1"),
    ("motion_blur", {"kernel_size": (3, 7), "angle": 0}, r"kernel_size must be an integer of at least 3, not \(3, 7\)"),
    ("motion_blur", {"kernel_size": 4, "angle": 0}, "kernel_size must be an odd number, not 4"),
    ("motion_blur", {"kernel_size": 3, "angle": "x"}, "angle must be a number, not 'x'"),
    ("motion_blur", {"kernel_size": 3, "angle": 0, "direction": 2}, "direction must be a number from -1 to 1, not 2"),
    ("median_blur", {"kernel_size": 4}, "kernel_size must be one of 3, 5 and 7, not 4"),
    *[("jpeg", {"quality": v}, f"quality must be an integer from 1 to 100, not {v!r}") for v in (None, 0, 50.9, "x")],
    ("erase", {"top": None, "left": 0, "height": 1, "width": 1}, "top must be an integer .* not None"),
    ("erase", {"top": 0, "left": 0, "height": 1, "width": 1, "inplace": True}, "inplace must be False"),
    ("normalize", {"mean": 0.5, "std": 0.5, "inplace": True}, "inplace must be False"),
    ("erase", {"top": 0, "left": 0, "height": -1, "width": 1},
     "height must be an integer from 0 to 2147483647, not -1"),
    ("posterize", {"bits": 9}, "bits must be an integer from 0 to 8, not 9"),
    ("solarize", {"threshold": "x"}, "threshold must be a number, not 'x'"),
    ("permute_channels", {"permutation": "abc"}, "permutation must be an order of 0 ... 2, not 'abc'"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), TRANSFORMS)
def test_invalid_arguments_of_transforms_are_refused(make, message):
    with pytest.raises(TransformError, match=message):
        make()


@pytest.mark.parametrize(("name", "given", "message"), FUNCTIONS, ids=lambda value: value if type(value) is str else "")
def test_invalid_arguments_of_functions_are_refused(name, given, message):
    with pytest.raises(TransformError, match=message) as caught:
        getattr(F, name)(IMAGE, **given)
    assert "low" not in str(caught.value), "a function takes one number"


def test_functions_check_arguments_before_the_image():
    for name, given, message in FUNCTIONS:
        if name != "permute_channels":  # its check needs the image's channels
            with pytest.raises(TransformError, match=message):
                getattr(F, name)("no image", **given)


def test_numpy_and_torch_numbers_are_accepted():
    """Scalars and arrays of one element."""
    for kind in (np.float32, np.array, torch.tensor):
        assert T.RandomHorizontalFlip(kind(0.25)).p == 0.25
        assert T.Normalize(kind(0.5), kind(0.25)).std == [0.25]
        assert T.RandomSolarize(kind(2.0)).threshold == 2.0
    assert T.Resize(np.int64(7)).size == 7 and T.Resize(torch.tensor([7, 8])).size == (7, 8)


def test_antialias_may_be_none():
    """torchvision before 0.17 read None as True for PIL images."""
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    want = F.resize(image, 9)
    for got in (
        T.Resize(9, antialias=None)(image),
        T.RandomResizedCrop(9, (1, 1), (1, 1), antialias=None)(image),
        F.resize(image, 9, antialias=None),
        F.resized_crop(image, 0, 0, 40, 40, 9, antialias=None),
    ):
        np.testing.assert_array_equal(got, want)


def test_erasing_three_values_needs_three_channels():
    with pytest.raises(TransformError, match="value has 3 entries, one per channel, but the images have 1"):
        F.erase(IMAGE[..., 0], 0, 0, 1, 1, (1, 2, 3))
    with pytest.raises(TransformError, match=r"value must be \(C, height, width\), \(1, 1, 2\) here, not \(3, 1, 1\)"):
        F.erase(IMAGE[..., 0], 0, 0, 1, 2, torch.zeros(3, 1, 1))


def test_a_huge_clip_limit_equals_no_limit():
    image = np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)
    np.testing.assert_array_equal(F.clahe(image, 1e30), F.clahe(image, 0))


@pytest.mark.parametrize("place", [(2, 3), (-2, 3), (4, -3), (8, 30), (-9, 0)])
@pytest.mark.parametrize("shape", [(3, 5, 7), (3, 1, 1), (1, 5, 7), (1, 1, 7)])
def test_erase_pastes_a_tensor(place, shape):
    patch = np.random.default_rng(0).uniform(-20, 270, shape)
    canvas = np.pad(IMAGE, ((40, 40), (40, 40), (0, 0)))
    whole = np.broadcast_to(patch, (3, 5, 7)).transpose(1, 2, 0)
    y, x = place[0] + 40, place[1] + 40
    canvas[y : y + 5, x : x + 7] = np.clip(np.floor(whole + 0.5), 0, 255)
    want = canvas[40:-40, 40:-40]
    before = IMAGE.copy()
    np.testing.assert_array_equal(F.erase(IMAGE, *place, 5, 7, patch), want)
    np.testing.assert_array_equal(IMAGE, before)
    batch = torch.from_numpy(IMAGE.transpose(2, 0, 1)[None].repeat(2, 0))
    got = F.erase(batch, *place, 5, 7, torch.from_numpy(patch))
    np.testing.assert_array_equal(got.numpy(), want.transpose(2, 0, 1)[None].repeat(2, 0))


def test_erase_pastes_into_floats_and_pil_images():
    image, patch = torch.zeros(1, 6, 6, dtype=torch.float16), torch.rand(1, 2, 3)
    got = F.erase(image, 1, 2, 2, 3, patch)
    assert (
        got.dtype == torch.float16 and torch.equal(got[:, 1:3, 2:5], patch.half()) and got.sum() == patch.half().sum()
    )
    pasted = F.erase(PIL.Image.fromarray(IMAGE), 0, 0, 2, 2, torch.full((3, 2, 2), 9.0))
    assert isinstance(pasted, PIL.Image.Image) and (np.asarray(pasted)[:2, :2] == 9).all()


def test_erase_clips_the_rectangle_to_the_image():
    want = IMAGE.copy()
    want[:2, 5:] = 9
    np.testing.assert_array_equal(F.erase(IMAGE, -3, 5, 5, 2**31 - 1, 9), want)
