"""Transforms, with torchvision v2's names, arguments and meaning, drawn for each sample on its own.

>>> from cuaug import transforms as T
>>> T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
Compose([
    RandomResizedCrop(size=(224, 224)),
    RandomHorizontalFlip(),
])

base.py                              what a transform is, and one of whole batches
compose.py, running.py, explain.py   chains: as they are planned, run on images in hand, and told in words
choices.py, views.py                 several transforms: which of them, or one for each view
geometry.py, sizes.py                crops, flips, turns and pads; resizes
warps.py, elastic.py, matrices.py    rotations and the like; fields of displacements
color.py, jitter.py, illuminants.py  colours
point.py, dtype.py                   values, each by itself; their range
blur.py, noise.py, mask.py           neighbourhoods, noise, what hides parts
auto.py, augmix.py, policies.py      what is drawn from policies
mixes.py, mosaic.py, boxes.py        several samples; boxes
function.py                          a function of your own
arguments.py, instead.py             checked arguments; torchvision's names that are not here
"""

from typing import TYPE_CHECKING, Any

from cuaug.transforms.arguments import InterpolationMode
from cuaug.transforms.augmix import AugMix
from cuaug.transforms.auto import AutoAugment, AutoAugmentPolicy, RandAugment, TrivialAugmentWide
from cuaug.transforms.base import BatchTransform, RandomTransform, Transform
from cuaug.transforms.blur import (
    JPEG,
    Downscale,
    GaussianBlur,
    MedianBlur,
    MotionBlur,
    RandomAdjustSharpness,
)
from cuaug.transforms.boxes import RandomIoUCrop, SanitizeBoundingBoxes
from cuaug.transforms.color import LUT, ColorJitter, ConvertColor, Grayscale, RandomGrayscale
from cuaug.transforms.color_jitter import (
    PlanckianJitter,
    RandomBrightness,
    RandomChannelPermutation,
    RandomContrast,
    RandomHue,
    RandomPhotometricDistort,
    RandomSaturation,
    RGBShift,
)
from cuaug.transforms.compose import Compose
from cuaug.transforms.containers import RandomApply, RandomChoice, RandomOrder, SomeOf
from cuaug.transforms.dtype import Normalize, ToDtype
from cuaug.transforms.elastic import ElasticTransform, GridDistortion
from cuaug.transforms.erase import CoarseDropout, GridMask, RandomErasing, RandomMask
from cuaug.transforms.function import Lambda
from cuaug.transforms.geometry import (
    D4,
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRot90,
    RandomVerticalFlip,
    RandomZoomOut,
    Rot90,
)
from cuaug.transforms.migration_hints import TRANSFORMS, no_such
from cuaug.transforms.mixes import CutMix, MixUp
from cuaug.transforms.mosaic import CopyPaste, Mosaic
from cuaug.transforms.noise import GaussianNoise, SaltAndPepper, ShotNoise
from cuaug.transforms.point import (
    CLAHE,
    RandomAutocontrast,
    RandomEqualize,
    RandomGamma,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from cuaug.transforms.sizes import RandomResize, RandomShortestSize, Resize, ScaleJitter
from cuaug.transforms.views import FiveCrop, MultiView, TenCrop
from cuaug.transforms.warps import RandomAffine, RandomPerspective, RandomRotation

__all__ = [
    "CLAHE",
    "D4",
    "JPEG",
    "LUT",
    "AugMix",
    "AutoAugment",
    "AutoAugmentPolicy",
    "BatchTransform",
    "CenterCrop",
    "CoarseDropout",
    "ColorJitter",
    "Compose",
    "ConvertColor",
    "CopyPaste",
    "CutMix",
    "Downscale",
    "ElasticTransform",
    "FiveCrop",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "GridDistortion",
    "GridMask",
    "InterpolationMode",
    "Lambda",
    "MedianBlur",
    "MixUp",
    "Mosaic",
    "MotionBlur",
    "MultiView",
    "Normalize",
    "Pad",
    "PlanckianJitter",
    "RGBShift",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomBrightness",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomContrast",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGamma",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomHue",
    "RandomInvert",
    "RandomIoUCrop",
    "RandomMask",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRot90",
    "RandomRotation",
    "RandomSaturation",
    "RandomShortestSize",
    "RandomSolarize",
    "RandomTransform",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "Rot90",
    "SaltAndPepper",
    "SanitizeBoundingBoxes",
    "ScaleJitter",
    "ShotNoise",
    "SomeOf",
    "TenCrop",
    "ToDtype",
    "Transform",
    "TrivialAugmentWide",
]

if not TYPE_CHECKING:  # to which every name would be there

    def __getattr__(name: str) -> Any:
        raise no_such(__name__, name, TRANSFORMS)
