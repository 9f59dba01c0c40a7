"""Transforms after torchvision v2, with independent draws for each sample.

>>> from cuaug import transforms as T
>>> T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
Compose([
    RandomResizedCrop(size=(224, 224)),
    RandomHorizontalFlip(),
])

base.py          base classes, and Lambda
compose.py       chains
containers.py    random choices, and other transforms of transforms
execute.py       running chains and functions on images in memory; describing the launches of a chain
geometry.py      crops, flips, 90-degree rotations, padding
sizes.py         resizing
warps.py         rotation, affine, perspective; displacement fields; matrices of warps
color.py         color and point operations
random_color.py  random color changes; colors of illuminants
dtype.py         dtype and value range; torchvision's conversions of types
filters.py       blur, sharpness, JPEG compression; noise
erase.py         erasing
auto.py          automatic augmentation: torchvision's, AugMix, timm's
policies.py      operations of automatic augmentation, their magnitude ranges, and the learned policies
mixes.py         transforms of several samples
detection.py     transforms of boxes and keypoints
packing.py       images of any size in one tensor: patches, and padding to the largest
tiles.py         grids of tiles with a thumbnail
views.py         several views of an image; frames of clips
inputs.py        the arguments of a call
pictures.py      further pictures of the samples of a call: the chain runs again for each
parameters.py    checks of transform arguments
order.py         finds transforms whose order does harm, when a chain is made
"""

from typing import TYPE_CHECKING, Any

from cuaug._runtime.migration_hints import RENAMED_TRANSFORMS, missing_name
from cuaug.transforms.auto import (
    AugMix,
    AutoAugment,
    AutoAugmentPolicy,
    RandAugment,
    TimmRandAugment,
    TrivialAugmentWide,
)
from cuaug.transforms.base import BatchTransform, Lambda, RandomTransform, Transform
from cuaug.transforms.color import (
    CLAHE,
    LUT,
    ColorJitter,
    ConvertColor,
    Grayscale,
    RandomAutocontrast,
    RandomEqualize,
    RandomGamma,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from cuaug.transforms.compose import Compose
from cuaug.transforms.containers import RandomApply, RandomChoice, RandomOrder, SomeOf
from cuaug.transforms.detection import ClampKeyPoints, RandomIoUCrop, SanitizeBoundingBoxes, SanitizeKeyPoints
from cuaug.transforms.dtype import (
    RGB,
    ClampBoundingBoxes,
    ConvertBoundingBoxFormat,
    Identity,
    Normalize,
    PILToTensor,
    ToDtype,
    ToImage,
    ToPureTensor,
)
from cuaug.transforms.erase import CoarseDropout, GridMask, RandomErasing, RandomMask
from cuaug.transforms.filters import (
    JPEG,
    Downscale,
    GaussianBlur,
    GaussianNoise,
    MedianBlur,
    MotionBlur,
    RandomAdjustSharpness,
    SaltAndPepper,
    ShotNoise,
)
from cuaug.transforms.geometry import (
    D4,
    CenterCrop,
    FixedSizeCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomRelativeCrop,
    RandomResizedCrop,
    RandomRot90,
    RandomVerticalFlip,
    RandomZoomOut,
    Rot90,
)
from cuaug.transforms.mixes import CopyPaste, CutMix, MixUp, Mosaic
from cuaug.transforms.packing import PadToLargest, Patches
from cuaug.transforms.parameters import InterpolationMode
from cuaug.transforms.random_color import (
    PlanckianJitter,
    RandomBrightness,
    RandomChannelPermutation,
    RandomContrast,
    RandomHue,
    RandomPhotometricDistort,
    RandomSaturation,
    RGBShift,
)
from cuaug.transforms.sizes import (
    RandomResize,
    RandomShortestSize,
    Resize,
    ResizeToCover,
    ResizeToMultiple,
    ScaleJitter,
)
from cuaug.transforms.tiles import Tiles
from cuaug.transforms.views import FiveCrop, MultiView, PerFrame, TenCrop, UniformTemporalSubsample
from cuaug.transforms.warps import ElasticTransform, GridDistortion, RandomAffine, RandomPerspective, RandomRotation

__all__ = [
    "CLAHE",
    "D4",
    "JPEG",
    "LUT",
    "RGB",
    "AugMix",
    "AutoAugment",
    "AutoAugmentPolicy",
    "BatchTransform",
    "CenterCrop",
    "ClampBoundingBoxes",
    "ClampKeyPoints",
    "CoarseDropout",
    "ColorJitter",
    "Compose",
    "ConvertBoundingBoxFormat",
    "ConvertColor",
    "CopyPaste",
    "CutMix",
    "Downscale",
    "ElasticTransform",
    "FiveCrop",
    "FixedSizeCrop",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "GridDistortion",
    "GridMask",
    "Identity",
    "InterpolationMode",
    "Lambda",
    "MedianBlur",
    "MixUp",
    "Mosaic",
    "MotionBlur",
    "MultiView",
    "Normalize",
    "PILToTensor",
    "Pad",
    "PadToLargest",
    "Patches",
    "PerFrame",
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
    "RandomRelativeCrop",
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
    "ResizeToCover",
    "ResizeToMultiple",
    "Rot90",
    "SaltAndPepper",
    "SanitizeBoundingBoxes",
    "SanitizeKeyPoints",
    "ScaleJitter",
    "ShotNoise",
    "SomeOf",
    "TenCrop",
    "Tiles",
    "TimmRandAugment",
    "ToDtype",
    "ToImage",
    "ToPureTensor",
    "Transform",
    "TrivialAugmentWide",
    "UniformTemporalSubsample",
]

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name, RENAMED_TRANSFORMS)
