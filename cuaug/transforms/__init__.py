"""Transforms, with torchvision v2's names, arguments and meaning, drawn for each sample on its own.

>>> from cuaug import transforms as T
>>> T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
Compose([
    RandomResizedCrop(size=(224, 224)),
    RandomHorizontalFlip(),
])
"""

from cuaug.transforms.arguments import InterpolationMode
from cuaug.transforms.base import Compose, RandomApply, RandomTransform, Transform
from cuaug.transforms.color import LUT, ColorJitter, ConvertColor, Grayscale, RandomGrayscale
from cuaug.transforms.dtype import Normalize, ToDtype
from cuaug.transforms.geometry import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from cuaug.transforms.mask import RandomErasing, RandomMask

__all__ = [
    "LUT",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertColor",
    "Grayscale",
    "InterpolationMode",
    "Normalize",
    "Pad",
    "RandomApply",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomMask",
    "RandomResizedCrop",
    "RandomTransform",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
    "Transform",
]
