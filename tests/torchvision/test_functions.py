"""Each function of `cuaug.functional` that torchvision has, called alike on the same image."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torchvision.transforms.v2 import InterpolationMode as M
from torchvision.transforms.v2 import functional as theirs

from cuaug import functional as ours
from tests.support.torchvision.photos import KINDS, SIZES, as_kind, difference, levels, picture


class Case(NamedTuple):
    """A call, and the largest difference in levels for tensors of uint8, floats, and PIL images.

    With `ties`, a tenth of the values may differ by any number: a point between two pixels takes one or the other.
    With `inside`, two pixels at the border of warped PIL images are left out: Pillow does not blend there.
    """

    call: Callable[[Any, Any], Any]
    uint8: float = 0
    float: float = 0
    pil: float = 0
    kinds: tuple[str, ...] = KINDS
    smallest: int = 1  # side
    ties: bool = False
    inside: bool = False


def warps(call: Callable[[Any, Any, Any], Any]) -> list[Case]:
    """A case for each interpolation mode.

    torchvision's tensors know no bicubic warps. Pillow's cubic has a = -1, torch's, OpenCV's and cuaug's -0.75.
    """
    return [
        Case(lambda F, x: call(F, x, M.NEAREST), ties=True),
        Case(lambda F, x: call(F, x, M.BILINEAR), 1, 0.02, 1, inside=True),
        Case(lambda F, x: call(F, x, M.BICUBIC), pil=30, kinds=("pil",), inside=True),
    ]


FROM, TO = [[0, 0], [30, 0], [30, 20], [0, 20]], [[2, 1], [33, 4], [28, 22], [1, 17]]
COEFFICIENTS = [1, 0.1, 2, 0, 1.1, 1, 0.001, 0]
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

CASES: dict[str, list[Case]] = {
    "resize": [
        Case(lambda F, x: F.resize(x, [33, 47], M.NEAREST), kinds=("uint8", "float")),
        Case(lambda F, x: F.resize(x, [33, 47], M.NEAREST_EXACT), ties=True),
        Case(lambda F, x: F.resize(x, [33, 47], M.BILINEAR), 1, 0.01, 1),
        Case(lambda F, x: F.resize(x, [33, 47], M.BICUBIC), 2, 0.01, 4),
        Case(lambda F, x: F.resize(x, [33, 47], M.LANCZOS), pil=4, kinds=("pil",)),
        Case(lambda F, x: F.resize(x, [33, 47], M.HAMMING), pil=2, kinds=("pil",)),
        Case(lambda F, x: F.resize(x, [33, 47], M.BOX), pil=1, kinds=("pil",), ties=True),
        Case(lambda F, x: F.resize(x, 20), 1, 0.01, 1),
        Case(lambda F, x: F.resize(x, [20], max_size=25), 1, 0.01, 1),
        Case(lambda F, x: F.resize(x, None, max_size=90), 1, 0.01, 1),
        Case(lambda F, x: F.resize(x, [29, 31], antialias=False), 1, 0.01, kinds=("uint8", "float")),
    ],
    "crop": [Case(lambda F, x, a=a: F.crop(x, *a)) for a in ((1, 2, 4, 3), (-3, -2, 20, 20), (3, 2, 80, 90))],
    "center_crop": [Case(lambda F, x, s=s: F.center_crop(x, s)) for s in ([4, 3], 5, [70, 21], [90])],
    "resized_crop": [Case(lambda F, x: F.resized_crop(x, 1, 1, 5, 4, [17, 23]), 1, 0.01, 1)],
    "five_crop": [Case(lambda F, x: F.five_crop(x, [4, 3]))],
    "ten_crop": [Case(lambda F, x, v=v: F.ten_crop(x, [4, 3], vertical_flip=v)) for v in (False, True)],
    "horizontal_flip": [Case(lambda F, x: F.horizontal_flip(x))],
    "vertical_flip": [Case(lambda F, x: F.vertical_flip(x))],
    "hflip": [Case(lambda F, x: F.hflip(x))],
    "vflip": [Case(lambda F, x: F.vflip(x))],
    "pad": [
        *(Case(lambda F, x, mode=mode: F.pad(x, [1, 2, 3, 4], padding_mode=mode), smallest=7)
          for mode in ("constant", "edge", "reflect", "symmetric")),
        Case(lambda F, x: F.pad(x, [2, 5], fill=7), float=1e-9),
        Case(lambda F, x: F.pad(x, 3, fill=[1, 2, 3])),
        Case(lambda F, x: F.pad(x, [-1, 2, 3, -2])),
    ],
    "rotate": [
        *warps(lambda F, x, mode: F.rotate(x, 30, mode)),
        Case(lambda F, x: F.rotate(x, -75, expand=True), ties=True),
        Case(lambda F, x: F.rotate(x, 10, center=[3, 4], fill=[9, 8, 7]), ties=True),
    ],
    "affine": [
        *warps(lambda F, x, mode: F.affine(x, 20, [2, -3], 1.2, [10, 4], mode)),
        Case(lambda F, x: F.affine(x, -5, [0, 0], 0.7, 3, center=[2, 2], fill=5), ties=True),
    ],
    "perspective": [
        *warps(lambda F, x, mode: F.perspective(x, FROM, TO, mode)),
        Case(lambda F, x: F.perspective(x, None, None, M.NEAREST, coefficients=COEFFICIENTS), ties=True),
    ],
    "elastic": [Case(lambda F, x: F.elastic(x, displacement(x)), 1, 0.02, 1)],
    "elastic_transform": [Case(lambda F, x: F.elastic_transform(x, displacement(x)), 1, 0.02, 1)],
    "adjust_brightness": [Case(lambda F, x, f=f: F.adjust_brightness(x, f), 1, 0.01, 1) for f in (0, 0.6, 1.3)],
    "adjust_contrast": [Case(lambda F, x, f=f: F.adjust_contrast(x, f), 2, 0.01, 2) for f in (0.6, 1.7)],
    "adjust_saturation": [Case(lambda F, x, f=f: F.adjust_saturation(x, f), 2, 0.01, 2) for f in (0, 0.6, 1.7)],
    "adjust_hue": [Case(lambda F, x, f=f: F.adjust_hue(x, f), 1, 0.01, 16) for f in (-0.2, 0.1)],
    "adjust_gamma": [Case(lambda F, x: F.adjust_gamma(x, 0.6, 1.1), 1, 0.01, 1)],
    "adjust_sharpness": [Case(lambda F, x, f=f: F.adjust_sharpness(x, f), 2, 0.01, 2) for f in (0, 0.5, 2.5)],
    "autocontrast": [Case(lambda F, x: F.autocontrast(x), 1, 0.01, 1)],
    "equalize": [Case(lambda F, x: F.equalize(x), 0, 2, 0)],
    "invert": [Case(lambda F, x: F.invert(x), float=1e-4)],
    "posterize": [Case(lambda F, x, b=b: F.posterize(x, b), float=1e-4) for b in (1, 3, 8)],
    "solarize": [Case(lambda F, x: F.solarize(x, 100), float=1e-4, kinds=("uint8", "pil")),
                 Case(lambda F, x: F.solarize(x, 0.4), float=1e-4, kinds=("float",))],
    "rgb_to_grayscale": [Case(lambda F, x, c=c: F.rgb_to_grayscale(x, c), 1, 0.01, 1) for c in (1, 3)],
    "to_grayscale": [Case(lambda F, x, c=c: F.to_grayscale(x, c), 1, 0.01, 1) for c in (1, 3)],
    "grayscale_to_rgb": [Case(lambda F, x: F.grayscale_to_rgb(F.rgb_to_grayscale(x, 1)), 1, 0.01, 1),
                         Case(lambda F, x: F.grayscale_to_rgb(x))],
    "permute_channels": [Case(lambda F, x: F.permute_channels(x, [2, 0, 1]))],
    "normalize": [Case(lambda F, x: F.normalize(x, MEAN, STD), float=2e-4, kinds=("float",))],
    "erase": [Case(lambda F, x: F.erase(x, 1, 2, 4, 3, torch.tensor([9.0, 8, 7])[:, None, None]), kinds=("uint8",)),
              Case(lambda F, x: F.erase(x, 1, 2, 4, 3, torch.full((3, 1, 1), 0.3)), kinds=("float",))],
    "gaussian_blur": [Case(lambda F, x, a=a: F.gaussian_blur(x, *a), 1, 0.01, 1, smallest=10)
                      for a in (([5, 9], [1.7, 0.8]), (3,))],
    "jpeg": [Case(lambda F, x, q=q: F.jpeg(x, q), kinds=("uint8", "pil")) for q in (10, 75, 100)],
    "to_dtype": [Case(lambda F, x: F.to_dtype(x, torch.float32, scale=True), 1e-4, 0, kinds=("uint8", "float"))],
    "pil_to_tensor": [Case(lambda F, x: F.pil_to_tensor(x), kinds=("pil",))],
    "to_image": [Case(lambda F, x: F.to_image(x))],
}  # fmt: skip
#: Names that both have and that return random or no pixels.
OTHERS = {"InterpolationMode", "gaussian_noise"}


def displacement(image: Any) -> torch.Tensor:
    """(1, H, W, 2), in halves of the image's size."""
    width, height = getattr(image, "size", None) if not torch.is_tensor(image) else tuple(image.shape[:0:-1])
    generator = torch.Generator().manual_seed(0)
    return torch.rand((1, height, width, 2), generator=generator) * 0.1 - 0.05


def names(module: Any) -> set[str]:
    return {name for name in dir(module) if not name.startswith("_") and callable(getattr(module, name))}


COMMON = names(theirs) & names(ours)


def test_every_common_function_has_a_case():
    assert set(CASES) >= COMMON - OTHERS


def errors(case: Case, got: Any, want: Any, white: Any) -> np.ndarray:
    """The differences in levels, without the values that the case leaves out."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        return np.concatenate([errors(case, *pair, white) for pair in zip(got, want, strict=True)])
    found = difference(got, want)
    if case.inside and isinstance(want, Image.Image):
        covered = [levels(case.call(F, white).filter(ImageFilter.MinFilter(5))) == 255 for F in (ours, theirs)]
        found = found[covered[0] & covered[1]]
    if case.ties:
        assert (found > 0.01).mean() <= 0.1, f"{(found > 0.01).mean():.1%} of the values differ"
        found = found[found <= 0.01]
    return found.ravel()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(COMMON & set(CASES)))
def test_pixels(name, kind):
    for case in CASES[name]:
        for seed, size in enumerate(SIZES):
            if kind not in case.kinds or min(size) < max(case.smallest, 8 * case.ties):
                continue
            image, white = picture(size, kind, seed), as_kind(torch.full((3, *size), 255, dtype=torch.uint8), kind)
            got, want = case.call(ours, image), case.call(theirs, image)
            most = errors(case, got, want, white).max(initial=0)
            assert most <= getattr(case, kind), f"{inspect.getsource(case.call)} of {size} differs by {most} levels"


def test_uint16():
    """Solarize is equal; equalize has torchvision's level, of 0 to 255, in 257 steps here and 256 there."""
    image = (picture((64, 48)).to(torch.int32) * 257).to(torch.uint16)
    assert torch.equal(ours.solarize(image, 32767.5), theirs.solarize(image, 32767.5))
    got, want = (F.equalize(image).to(torch.int32) for F in (ours, theirs))
    assert torch.equal(got // 257, want // 256) and int(got.max()) == 65535 and int(want.max()) == 65280
