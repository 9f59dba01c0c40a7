"""Replacements for torchvision names that cuaug does not have."""

from __future__ import annotations

import sys
from collections.abc import Mapping

__all__ = ["FUNCTIONS", "TRANSFORMS", "missing_name"]

_IMAGE_TYPES = "not needed: {} take tensors, arrays and PIL images"
_LOADER_TENSORS = f"{_IMAGE_TYPES.format('chains')}, and a Loader yields tensors"
TRANSFORMS = {
    "ConvertImageDtype": "ToDtype(dtype, scale=True) is the same",
    "LargeScaleJitter": "ScaleJitter(target_size), then FixedSizeCrop(size)",
    "LinearTransformation": "Lambda(function) takes any function of a batch of images",
    "ToPILImage": "not needed: PIL images come back as PIL images",
    "ToTensor": "ToDtype(torch.float32, scale=True) makes floats in [0, 1]; PIL images become (C, H, W) tensors",
}

FUNCTIONS = {
    "convert_image_dtype": "transforms.ToDtype(dtype, scale=True) is the same",
    "elastic_transform": "elastic is the same",
    "grayscale_to_rgb": "rgb_to_grayscale(image, 3) for images of one channel",
    "hflip": "horizontal_flip is the same",
    "pil_to_tensor": _IMAGE_TYPES.format("functions"),
    "to_dtype": "transforms.ToDtype(dtype, scale) is the same",
    "to_grayscale": "rgb_to_grayscale is the same",
    "to_image": _IMAGE_TYPES.format("functions"),
    "to_pil_image": "not needed: PIL images come back as PIL images",
    "to_tensor": "transforms.ToDtype(torch.float32, scale=True) makes floats in [0, 1]; PIL images become tensors",
    "vflip": "vertical_flip is the same",
}


def missing_name(module: str, name: str, hints: Mapping[str, str]) -> AttributeError:
    """The AttributeError for a name that a module lacks, with a hint if there is one."""
    hint = f": {hints[name]}" if name in hints else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name, obj=sys.modules[module])
