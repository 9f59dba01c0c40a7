"""Each class of `cuaug.transforms` that torchvision has, where its arguments leave nothing to chance.

test_draws.py compares the draws of random transforms, test_targets.py the transforms of boxes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torchvision.transforms.v2 as theirs
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms.v2 import InterpolationMode as M

from cuaug import transforms as ours
from tests.support.torchvision.photos import KINDS, difference, picture

#: Sides of square images, so that `RandomResizedCrop` has one region to take.
SIDES = (48, 31)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Case(NamedTuple):
    """A transform for images of a side, and its largest difference in levels for uint8, floats, and PIL images.

    With `inside`, a quarter at each border is left out: warps blend with `fill` there, torchvision's tensors with 0,
    and Pillow does not blend.
    """

    make: Callable[[Any, int], Callable[[Any], Any]]
    uint8: float = 0
    float: float = 0
    pil: float = 0
    kinds: tuple[str, ...] = KINDS
    inside: bool = False


CASES: dict[str, list[Case]] = {
    "Resize": [
        *(Case(lambda T, n, s=s: T.Resize(s), 1, 0.01, 1) for s in (20, [33, 17], (70,))),
        Case(lambda T, n: T.Resize(20, M.BICUBIC, max_size=22), 3, 0.01, 4),
    ],
    "CenterCrop": [Case(lambda T, n, s=s: T.CenterCrop(s)) for s in (20, (15, 60), [33])],
    "Pad": [
        Case(lambda T, n: T.Pad(3, 7), float=1e-4),
        Case(lambda T, n: T.Pad([1, 2, 3, 4], padding_mode="reflect")),
        Case(lambda T, n: T.Pad(2, {torch.Tensor: 4}), kinds=("uint8",)),
    ],
    "RandomCrop": [
        Case(lambda T, n: T.RandomCrop(n)),
        Case(lambda T, n: T.RandomCrop(n + 4, padding=2, fill=3), float=1e-4),
    ],
    "RandomResizedCrop": [
        Case(lambda T, n: T.RandomResizedCrop(24, (1, 1), (1, 1)), 1, 0.01, 1),
        Case(lambda T, n: T.RandomResizedCrop((30, 21), (1, 1), (1, 1), M.BICUBIC), 2, 0.01, 4),
    ],
    "FiveCrop": [Case(lambda T, n: T.FiveCrop((11, 20)))],
    "TenCrop": [Case(lambda T, n: T.TenCrop(20)), Case(lambda T, n: T.TenCrop((11, 20), vertical_flip=True))],
    "RandomHorizontalFlip": [Case(lambda T, n, p=p: T.RandomHorizontalFlip(p)) for p in (0, 1)],
    "RandomVerticalFlip": [Case(lambda T, n, p=p: T.RandomVerticalFlip(p)) for p in (0, 1)],
    "RandomZoomOut": [Case(lambda T, n: T.RandomZoomOut(5, (1, 1), p=1))],
    "RandomResize": [Case(lambda T, n: T.RandomResize(21, 22), 1, 0.01, 1)],
    "RandomShortestSize": [Case(lambda T, n: T.RandomShortestSize([21], 30), 1, 0.01, 1)],
    "ScaleJitter": [Case(lambda T, n: T.ScaleJitter((37, 22), (1, 1)), 1, 0.01, 1)],
    "RandomRotation": [
        Case(lambda T, n: T.RandomRotation((30, 30), M.BILINEAR), 1, 0.02, 1, inside=True),
        Case(lambda T, n: T.RandomRotation((90, 90), expand=True, fill=3)),
    ],
    "RandomAffine": [
        Case(lambda T, n: T.RandomAffine((9, 9), None, (0.9, 0.9), (5, 5, 3, 3), M.BILINEAR), 1, 0.02, 1, inside=True),
    ],
    "ColorJitter": [
        Case(lambda T, n: T.ColorJitter(brightness=(1.3, 1.3)), 1, 0.01, 1),
        Case(lambda T, n: T.ColorJitter(contrast=(0.6, 0.6)), 2, 0.01, 2),
        Case(lambda T, n: T.ColorJitter(saturation=(1.7, 1.7)), 2, 0.01, 2),
        Case(lambda T, n: T.ColorJitter(hue=(0.1, 0.1)), 1, 0.01, 16),
    ],
    "Grayscale": [Case(lambda T, n, c=c: T.Grayscale(c), 1, 0.01, 1) for c in (1, 3)],
    "RandomGrayscale": [Case(lambda T, n, p=p: T.RandomGrayscale(p), 1, 0.01, 1) for p in (0, 1)],
    "RandomPhotometricDistort": [
        Case(lambda T, n: T.RandomPhotometricDistort((1.2, 1.2), (1, 1), (1, 1), (0, 0), p=0)),
    ],
    "RandomInvert": [Case(lambda T, n: T.RandomInvert(1), float=1e-4)],
    "RandomPosterize": [Case(lambda T, n: T.RandomPosterize(3, 1), float=1e-4)],
    "RandomSolarize": [
        Case(lambda T, n: T.RandomSolarize(99, 1), kinds=("uint8", "pil")),
        Case(lambda T, n: T.RandomSolarize(0.4, 1), float=1e-4, kinds=("float",)),
    ],
    "RandomAutocontrast": [Case(lambda T, n: T.RandomAutocontrast(1), 1, 0.01, 1)],
    "RandomEqualize": [Case(lambda T, n: T.RandomEqualize(1), 0, 2, 0)],
    "RandomAdjustSharpness": [Case(lambda T, n: T.RandomAdjustSharpness(2.5, 1), 2, 0.01, 2)],
    "GaussianBlur": [Case(lambda T, n: T.GaussianBlur((5, 9), (1.3, 1.3)), 1, 0.01, 1)],
    "JPEG": [Case(lambda T, n: T.JPEG((40, 40)), kinds=("uint8", "pil"))],
    "Normalize": [Case(lambda T, n: T.Normalize(MEAN, STD), float=2e-4, kinds=("float",))],
    "ToDtype": [
        Case(lambda T, n: T.ToDtype(torch.float32, scale=True), 1e-4, 0, kinds=("uint8", "float")),
        Case(lambda T, n: T.ToDtype(torch.uint8, scale=True), 0, 1, kinds=("uint8", "float")),
    ],
    "RandomErasing": [Case(lambda T, n: T.RandomErasing(0), kinds=("uint8", "float"))],
    "Compose": [
        Case(lambda T, n: T.Compose([T.CenterCrop(30), T.RandomHorizontalFlip(1), T.Pad(2)])),
        Case(lambda T, n: T.Compose([T.Resize(30), T.CenterCrop(24)]), 1, 0.01, 1),
    ],
    "RandomApply": [Case(lambda T, n, p=p: T.RandomApply([T.RandomInvert(1)], p), float=1e-4) for p in (0, 1)],
    "RandomChoice": [Case(lambda T, n: T.RandomChoice([T.CenterCrop(9), T.Pad(1)], p=[0, 1]))],
    "RandomOrder": [Case(lambda T, n: T.RandomOrder([T.CenterCrop(9)]))],
    "AutoAugment": [Case(lambda T, n: T.Compose([T.RandomApply([T.AutoAugment()], 0), T.Pad(1)]))],
    "Identity": [Case(lambda T, n: T.Identity())],
    "RGB": [Case(lambda T, n: T.RGB())],
    "ToImage": [Case(lambda T, n: T.ToImage())],
    "PILToTensor": [Case(lambda T, n: T.PILToTensor(), kinds=("pil",))],
    "ToPureTensor": [Case(lambda T, n: T.ToPureTensor(), kinds=("uint8", "float"))],
}  # fmt: skip
#: Compared in test_draws.py, in test_targets.py, or no transforms.
OTHERS = {
    *("RandomPerspective", "ElasticTransform", "RandomChannelPermutation", "GaussianNoise", "RandomIoUCrop"),
    *("RandAugment", "TrivialAugmentWide", "AugMix", "MixUp", "CutMix"),
    *("SanitizeBoundingBoxes", "ConvertBoundingBoxFormat", "ClampBoundingBoxes", "ClampKeyPoints", "SanitizeKeyPoints"),
    *("Transform", "Lambda", "AutoAugmentPolicy", "InterpolationMode", "UniformTemporalSubsample"),
}
COMMON = {name for name in dir(theirs) if inspect.isclass(getattr(theirs, name)) and name in ours.__all__}


def test_every_common_class_has_a_case():
    assert set(CASES) | OTHERS >= COMMON


def errors(case: Case, got: Any, want: Any) -> np.ndarray:
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        return np.concatenate([errors(case, *pair) for pair in zip(got, want, strict=True)])
    found = difference(got, want)
    if case.inside:
        image = found if isinstance(want, Image.Image) else np.moveaxis(found, 0, -1)
        border = len(image) // 4
        found = image[border:-border, border:-border]
    return found.ravel()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(COMMON & set(CASES)))
def test_pixels(name, kind):
    for case in CASES[name]:
        for seed, side in enumerate(SIDES):
            if kind in case.kinds:
                image = picture((side, side), kind, seed)
                most = errors(case, case.make(ours, side)(image), case.make(theirs, side)(image)).max(initial=0)
                assert most <= getattr(case, kind), f"{inspect.getsource(case.make)} differs by {most} levels"


#: torchvision leaves videos as they are.
IMAGES_ALONE = {"Grayscale", "RandomGrayscale"}


@pytest.mark.parametrize("name", sorted(COMMON & set(CASES) - IMAGES_ALONE))
def test_videos(name):
    """Three frames that differ: one draw for all, statistics of each frame."""
    for case in CASES[name]:
        kind = case.kinds[0]
        by_type = "torch.Tensor: 4" in inspect.getsource(case.make)  # torchvision takes no subclass of a `fill`'s type
        for side in SIDES if kind != "pil" and not by_type else ():
            frames = torch.stack([picture((side, side), kind, seed) for seed in range(3)])
            got, want = (case.make(library, side)(tv_tensors.Video(frames)) for library in (ours, theirs))
            if not isinstance(want, tuple):  # ours are a stack of crops
                assert type(got) is type(want)
            most = video_errors(case, got, want).max(initial=0)
            assert most <= getattr(case, kind), f"{inspect.getsource(case.make)} differs by {most} levels"


def video_errors(case: Case, got: Any, want: Any) -> np.ndarray:
    if isinstance(want, (tuple, list)):
        return np.concatenate([video_errors(case, *pair) for pair in zip(got, want, strict=True)])
    return np.concatenate([errors(case, *pair) for pair in zip(got, want, strict=True)])
