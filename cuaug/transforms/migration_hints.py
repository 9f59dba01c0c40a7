"""Torchvision's names that are not here, and what to do instead."""

from __future__ import annotations

import sys
from collections.abc import Mapping

__all__ = ["FUNCTIONS", "TRANSFORMS", "no_such"]

TRANSFORMS = {
    "ClampBoundingBoxes": "not needed: boxes are cut off at the image's edge, at first and at each step",
    "ConvertBoundingBoxFormat": 'Compose(..., box_format=...) or "format" beside the boxes says what theirs is',
    "ConvertImageDtype": "ToDtype(dtype, scale=True) is the same",
    "Identity": "Compose([]) changes nothing",
    "LinearTransformation": "Lambda(function) takes any function of a batch of images",
    "PILToTensor": "not needed: chains take tensors, arrays and PIL images, and a Loader's images come out as tensors",
    "RGB": "Grayscale(3) for images of one channel; a Loader's images have three",
    "ToImage": "not needed: chains take tensors, arrays and PIL images, and a Loader's images come out as tensors",
    "ToPILImage": "not needed: PIL images come back as PIL images",
    "ToPureTensor": "not needed: images come out as plain tensors",
    "ToTensor": "ToDtype(torch.float32, scale=True) makes floats in [0, 1], of PIL images (C, H, W) tensors",
}

FUNCTIONS = {
    "convert_image_dtype": "transforms.ToDtype(dtype, scale=True) is the same",
    "elastic_transform": "elastic is the same",
    "grayscale_to_rgb": "rgb_to_grayscale(image, 3) for images of one channel",
    "hflip": "horizontal_flip is the same",
    "pil_to_tensor": "not needed: functions take tensors, arrays and PIL images",
    "to_dtype": "transforms.ToDtype(dtype, scale) is the same",
    "to_grayscale": "rgb_to_grayscale is the same",
    "to_image": "not needed: functions take tensors, arrays and PIL images",
    "to_pil_image": "not needed: PIL images come back as PIL images",
    "to_tensor": "transforms.ToDtype(torch.float32, scale=True): floats in [0, 1], of PIL images (C, H, W) tensors",
    "vflip": "vertical_flip is the same",
}


def no_such(module: str, name: str, instead: Mapping[str, str]) -> AttributeError:
    """What Python raises for a name that a module does not have, with a hint if there is one."""
    hint = f": {instead[name]}" if name in instead else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name, obj=sys.modules[module])
