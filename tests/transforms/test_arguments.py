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
    (lambda: T.RandomRotation(1, center=(NAN, 0)), r"center must be two numbers, \(x, y\), not \(nan, 0\)"),
    *[(lambda v=v: T.Pad(1, v), f"fill must be a number or a sequence .*, not {v}") for v in (NAN, INF)],
    *[(lambda v=v: T.Resize(8, max_size=v), f"max_size must be an integer .* not {v!r}")
      for v in (NAN, 20.7, "x", LONG)],
    *[(lambda v=v: T.Resize(None, max_size=v), f"max_size must be an integer .* not {v!r}") for v in (0, 20.7)],
    *[(lambda v=v: T.Pad(v), f"padding must be .* from -2147483647 to 2147483647 each, not {v}")
      for v in (True, 1.5, LONG, -LONG)],
    *[(lambda v=v: T.Resize(8, v), "interpolation must be one of .*, not") for v in ([], {}, np.zeros(2), True, False)],
    *[(lambda v=v: T.Pad(1, padding_mode=v), "padding_mode must be one of .*, not") for v in ([], np.zeros(2))],
    *[(lambda v=v: T.ConvertColor(v), "source and target must be 'RGB' and 'YUV'") for v in ([], np.zeros(2))],
    (lambda: T.PlanckianJitter([]), r"mode must be one of 'blackbody', 'CIED', not \[\]"),
    (lambda: T.AutoAugment(np.zeros(2)), "policy must be one of .*, not array"),
    (lambda: T.Compose([], box_format=[]), r"box_format must be one of .*, not \[\]"),
    *[(lambda v=v: T.Downscale(interpolation_pair=v), f"interpolation_pair .* not {v}") for v in (3, None)],
    *[(lambda v=v: T.Resize(8, antialias=v), f"antialias must be True or False, not {v!r}") for v in (1, "warn", 0.0)],
    (lambda: T.TenCrop(8, None), "vertical_flip must be True or False, not None"),
    (lambda: T.LUT("abc"), r"table must be finite numbers of shape \(256,\) or \(C, 256\), not 'abc'"),
    (lambda: T.LUT(np.full(256, NAN)), r"table must be finite numbers .*, not nan at \(0,\)"),
    (lambda: T.LUT(torch.zeros(256, requires_grad=True)), "table must be finite numbers .*, not tensor"),
    (lambda: T.RandomShortestSize(8, 2**70), "max_size must be an integer from 1 to 2147483647, not 1180"),
    (lambda: T.CLAHE(INF), r"clip_limit .* not \(1.0, inf\)"),
    (lambda: T.Mosaic(min_bbox_size=INF), "min_bbox_size must be a number of at least 0, not inf"),
    (lambda: T.RandomGamma((0, INF)), r"gamma must be \(lower, upper\) of at least 0, in that order, not \(0, inf\)"),
    (lambda: T.SanitizeBoundingBoxes(-1), "min_size must be a number of at least 0, not -1"),
    (lambda: T.SanitizeBoundingBoxes(min_visibility=2), "min_visibility must be a probability .* not 2"),
    (lambda: T.RandomIoUCrop(0.9, 0.5), r"min_scale, max_scale must be .* not \(0.9, 0.5\)"),
    (lambda: T.RandomIoUCrop(sampler_options=[]), r"sampler_options must be numbers of 0 or more, not \[\]"),
    (lambda: T.RandomIoUCrop(trials=0), "trials must be an integer of at least 1, not 0"),
    *[(lambda v=v: T.RandomCrop(v), r"size must be an integer .* not .*True") for v in (True, [8, True])],
    (lambda: T.SomeOf([T.Pad(1)], True), "n must be an integer .* not True"),
    *[(lambda v=v: T.Resize(v), f"size must be an integer from 1 to 2147483647 .* not {v!r}")
      for v in (0, -3, 1.5, "a", LONG, 10**30)],
    (lambda: T.Resize((1, 2, 3)), r"not \(1, 2, 3\)"),
    (lambda: T.Resize((4, 4), max_size=9), r"max_size \(9\) needs a single size"),
    (lambda: T.Resize(9, "linear"),
     "interpolation must be one of 'nearest', 'nearest-exact', .* 'lanczos', not 'linear'"),
    (lambda: T.Resize(9, 6), "interpolation must be one of .*, not 6"),
    *[(lambda v=v: T.Resize(9, v, antialias=False), f"antialias must be True with interpolation '{v}'")
      for v in ("box", "hamming", "lanczos")],
    *[(lambda v=v: T.RandomRotation(9, v), "interpolation must be one of 'nearest', .* 'bicubic', not")
      for v in ("box", 5, T.InterpolationMode.LANCZOS)],
    (lambda: T.Resize(9, None), "interpolation must be one of .*, not None"),
    (lambda: T.CenterCrop((3, 0)), r"not \(3, 0\)"),
    (lambda: T.CenterCrop(3, fill="red"), "fill must be a number or a sequence of one per channel, not 'red'"),
    (lambda: T.Pad((1, 2, 3)), r"padding .* not \(1, 2, 3\)"),
    (lambda: T.Pad(1, fill=()), r"fill .* not \(\)"),
    (lambda: T.Pad(1, padding_mode="mirror"), "padding_mode must be one of 'constant', .*, not 'mirror'"),
    (lambda: T.RandomCrop(4, padding="1"), "padding .* not '1'"),
    *[(lambda v=v: T.RandomRelativeCrop(v), f"scale_height must be .* not {v}") for v in (0, 1.5, -0.1, 24)],
    (lambda: T.RandomRelativeCrop(0.5, (0.9, 0.5)), r"scale_width must be .* not \(0.9, 0.5\)"),
    (lambda: T.RandomResizedCrop(4, scale=0.5), "scale must be .* not 0.5"),
    (lambda: T.RandomResizedCrop(4, ratio=(0, 1)), r"ratio .* not \(0, 1\)"),
    (lambda: T.RandomResizedCrop(4, scale=(float("nan"), 1)), "scale .* not .nan"),
    *[(lambda v=v: T.RandomHorizontalFlip(v), f"p must be a probability .* not {v}") for v in (1.1, -0.1, None)],
    (lambda: T.Rot90(0.5), "k must be an integer, not 0.5"),
    (lambda: T.RandomRot90((2, 1)), r"times must be \(fewest, most\) .* not \(2, 1\)"),
    (lambda: T.RandomZoomOut(side_range=(0.5, 2)), r"side_range .* not \(0.5, 2\)"),
    (lambda: T.RandomResize(9, 9), "max_size must be an integer from 10 to 2147483647, not 9"),
    (lambda: T.RandomShortestSize([]), r"min_size .* not \[\]"),
    (lambda: T.RandomShortestSize(9, 0), "max_size must be .* not 0"),
    *[(lambda v=v: T.RandomRotation(v), "degrees must be a number of 0 or more, or .* not")
      for v in (-1, (2, 1), "x")],
    (lambda: T.RandomRotation(1, center=3), r"center must be two numbers, \(x, y\), not 3"),
    (lambda: T.RandomAffine(1, (0.5, 1.5)), r"translate .* not \(0.5, 1.5\)"),
    (lambda: T.RandomAffine(1, scale=(0, 1)), r"scale .* not \(0, 1\)"),
    (lambda: T.RandomAffine(1, shear=(1, 2, 3)), r"shear .* not \(1, 2, 3\)"),
    (lambda: T.RandomPerspective(1.5), "distortion_scale .* not 1.5"),
    (lambda: T.ElasticTransform(-1), "alpha must be a number of at least 0, .* not -1"),
    (lambda: T.ElasticTransform(sigma=(5, 0.5)), r"sigma must be a number of at least 1, .* not \(5, 0.5\)"),
    (lambda: T.GridDistortion(0), "num_steps must be an integer of at least 1, not 0"),
    (lambda: T.GridDistortion(distort_limit=1), r"distort_limit must be within \(-1, 1\], not 1"),
    *[(lambda v=v: T.ColorJitter(v), f"brightness must be .* not {v!r}") for v in (-0.1, INF, "x")],
    (lambda: T.ColorJitter(contrast=(-1, 1)), r"contrast .* not \(-1, 1\)"),
    (lambda: T.ColorJitter(hue=0.6), "hue .* not 0.6"),
    (lambda: T.ColorJitter(hue=(-0.6, 0)), r"hue .* from -0.5 to 0.5, .* not \(-0.6, 0\)"),
    (lambda: T.Grayscale(2), "num_output_channels must be 1 or 3, not 2"),
    (lambda: T.LUT(np.zeros(255)), r"table .* of shape \(256,\) or \(C, 256\), not \(255,\)"),
    (lambda: T.ConvertColor("RGB", "HSV"), "source and target must be .* not 'RGB' and 'HSV'"),
    (lambda: T.RandomErasing(scale=(0.1, 1.2)), r"scale .* not \(0.1, 1.2\)"),
    *[(lambda v=v: T.RandomErasing(value=v), f"value .* not {v!r}") for v in (NAN, "black")],
    (lambda: T.RandomBrightness(-0.1), "brightness must be 0 or more, .*not -0.1"),
    (lambda: T.RandomHue(0.6), "hue must be from 0 to 0.5, .*not 0.6"),
    (lambda: T.RandomPhotometricDistort(contrast=(2, 1)), r"contrast .* not \(2, 1\)"),
    (lambda: T.RandomGamma((-1, 1)), r"gamma .* not \(-1, 1\)"),
    *[(lambda v=v: T.RandomPosterize(v), f"bits must be an integer from 0 to 8, not {v}")
      for v in (9, -1, 2.5, None)],
    (lambda: T.RandomSolarize("x"), "threshold must be a number, not 'x'"),
    (lambda: T.CLAHE(0.5), r"clip_limit .* of at least 1, .* not \(1.0, 0.5\)"),
    (lambda: T.CLAHE(tile_grid_size=8), "tile_grid_size must be .across, down., .* not 8"),
    (lambda: T.CLAHE(tile_grid_size=(8, 65)), r"tile_grid_size .* 1 to 64, not \(8, 65\)"),
    (lambda: T.RGBShift(r_shift_limit=(3, 2)), r"r_shift_limit .* not \(3, 2\)"),
    (lambda: T.PlanckianJitter("sun"), "mode must be one of 'blackbody', 'CIED', not 'sun'"),
    (lambda: T.PlanckianJitter(select_from=25), "illuminant numbers from 0 to 24, not 25"),
    (lambda: T.GaussianNoise(mean=float("nan")), "mean must be a number, not nan"),
    (lambda: T.GaussianNoise(sigma=-1), "sigma .* not -1"),
    (lambda: T.SaltAndPepper((0, 2)), r"amount .* not \(0, 2\)"),
    (lambda: T.ShotNoise((0, 1)), r"scale_range .* not \(0, 1\)"),
    (lambda: T.CoarseDropout((0, 1)), r"num_holes_range .* not \(0, 1\)"),
    (lambda: T.CoarseDropout(hole_width_range=(0.5, 2)), r"hole_width_range .* not \(0.5, 2\)"),
    (lambda: T.GridMask(tile=0), "tile .* not 0"),
    (lambda: T.GridMask(ratio=1.5), "ratio .* not 1.5"),
    *[(lambda v=v: T.GaussianBlur(v), f"kernel_size must be an odd number .* not {v}") for v in (4, 0, 2.5)],
    (lambda: T.GaussianBlur((3, 3, 3)), r"kernel_size .* not \(3, 3, 3\)"),
    *[(lambda v=v: T.GaussianBlur(3, v), f"sigma .* not {v}") for v in (INF, NAN)],
    (lambda: T.GaussianBlur(3, 0), "sigma must be above 0, not 0"),
    (lambda: T.GaussianBlur(3, (2, 1)), r"sigma .* not \(2, 1\)"),
    (lambda: T.RandomAdjustSharpness(-1), "sharpness_factor must be a number of at least 0, not -1"),
    (lambda: T.MotionBlur(4, 0, 0), "kernel_size must be an odd number of at least 3, .* not 4"),
    (lambda: T.MotionBlur((5, 3), 0, 0), r"kernel_size .* not \(5, 3\)"),
    (lambda: T.MotionBlur(3, -4, 0), "angle .* not -4"),
    (lambda: T.MotionBlur(3, 4, 1.5), r"direction .*\[-1, 1\].* not 1.5"),
    (lambda: T.MotionBlur(3, 4, 1, interpolation="bicubic"), "interpolation must be 'nearest' or 'bilinear'"),
    (lambda: T.Downscale((0, 1)), r"scale_range must be above 0.* not \(0, 1\)"),
    (lambda: T.Downscale(interpolation_pair={"up": 0}), "interpolation_pair .* not {'up': 0}"),
    *[(lambda v=v: T.JPEG(v), f"quality must be from 1 to 100.* not {v}") for v in (0, 101, 2.5)],
    (lambda: T.JPEG((9, 3)), r"quality .* not \(9, 3\)"),
    (lambda: T.AutoAugment("coco"), "policy must be one of 'imagenet', 'cifar10', 'svhn', not 'coco'"),
    *[(lambda v=v: T.AugMix(v), f"severity must be an integer from 1 to 10, not {v}") for v in (0, 11)],
    (lambda: T.AugMix(mixture_width=0), "mixture_width must be an integer of at least 1, not 0"),
    (lambda: T.AugMix(alpha=0), "alpha must be a number above 0, not 0"),
    (lambda: T.AugMix(chain_depth=1.5), "chain_depth must be an integer, not 1.5"),
    (lambda: T.AugMix(interpolation="lanczos"), "interpolation must be one of .* not 'lanczos'"),
    (lambda: T.RandAugment(-1), "num_ops must be an integer of at least 0, not -1"),
    (lambda: T.RandAugment(2, 31), "magnitude must be an integer from 0 to 30, not 31"),
    (lambda: T.RandAugment(fill=()), r"fill .* not \(\)"),
    (lambda: T.TimmRandAugment("augmix-m5"), "config must begin with 'rand', .* not 'augmix-m5'"),
    (lambda: T.TimmRandAugment("rand-tweights"), "config must have sections m, n, p, .* has 'tweights'"),
    (lambda: T.TimmRandAugment("rand-m9-x1"), "config must have sections .* has 'x1'"),
    (lambda: T.TimmRandAugment("rand-n1.5"), "config must have a whole number n, not 1.5"),
    (lambda: T.TimmRandAugment("rand-p2"), "config: p must be a probability in .* not 2.0"),
    (lambda: T.TrivialAugmentWide(1), "num_magnitude_bins must be an integer of at least 2, not 1"),
    (lambda: T.TrivialAugmentWide(interpolation="lanczos"), "interpolation must be one of .* not 'lanczos'"),
    *[(lambda v=v: T.RandomChoice([T.Pad(1)], v), "p must be a weight .* 1 transforms")
      for v in ([1, 1], [0], [-1])],
    (lambda: T.RandomOrder([]), "transforms of RandomOrder must hold at least one transform"),
    (lambda: T.SomeOf([T.Pad(1)], 2), "n must be an integer of 0 or more up to 1, .* not 2"),
    *[(lambda v=v: T.SomeOf([T.Pad(1)], v, True), "n must be an integer of 0 or more or")
      for v in ((3, 2), -1, 1.5)],
    (lambda: T.RandomMask(ratio=2), "ratio must be a probability .* not 2"),
    (lambda: T.Normalize([0.5], [0.0]), "std must be above 0"),
    (lambda: T.ToDtype(torch.int32), "dtype must be one of .*not torch.int32"),
    (lambda: T.Compose(T.Resize(3)), "transforms must be a sequence of transforms, not Resize"),
    (lambda: T.Compose([T.Resize(3), str]), r"not the class str: write str\(\.\.\.\)"),
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
    with pytest.raises(TransformError, match=message) as caught:
        make()
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("name", "given", "message"), FUNCTIONS, ids=lambda value: value if type(value) is str else "")
def test_invalid_arguments_of_functions_are_refused(name, given, message):
    for image in (IMAGE, "no image") if name != "permute_channels" else (IMAGE,):  # it checks the image's channels
        with pytest.raises(TransformError, match=message) as caught:
            getattr(F, name)(image, **given)
        assert "low" not in str(caught.value), "a function takes one number"


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
