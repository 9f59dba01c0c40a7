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
from cuaug.transforms.elastic import ElasticTransform, GridDistortion
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
from cuaug.transforms.mask import RandomErasing, RandomMask
from cuaug.transforms.sizes import RandomResize, RandomShortestSize, Resize, ScaleJitter
from cuaug.transforms.warps import RandomAffine, RandomPerspective, RandomRotation

__all__ = [
    "D4",
    "LUT",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertColor",
    "ElasticTransform",
    "Grayscale",
    "GridDistortion",
    "InterpolationMode",
    "Normalize",
    "Pad",
    "RandomAffine",
    "RandomApply",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomMask",
    "RandomPerspective",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRot90",
    "RandomRotation",
    "RandomShortestSize",
    "RandomTransform",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "Rot90",
    "ScaleJitter",
    "ToDtype",
    "Transform",
]
