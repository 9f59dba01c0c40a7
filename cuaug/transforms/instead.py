"""Torchvision's names that are not here, and what to do instead."""

from __future__ import annotations

import sys
from collections.abc import Mapping

__all__ = ["FUNCTIONS", "TRANSFORMS", "no_such"]

TRANSFORMS = {
    "ConvertImageDtype": "ToDtype(dtype, scale=True) is the same",
    "PILToTensor": "not needed: chains take tensors, arrays and PIL images, and a Loader's images come out as tensors",
    "ToImage": "not needed: chains take tensors, arrays and PIL images, and a Loader's images come out as tensors",
    "ToPILImage": "not needed: PIL images come back as PIL images",
    "ToPureTensor": "not needed: images come out as plain tensors",
    "ToTensor": "ToDtype(torch.float32, scale=True) makes floats in [0, 1], of PIL images (C, H, W) tensors",
}

FUNCTIONS = {
    "convert_image_dtype": "transforms.ToDtype(dtype, scale=True) is the same",
    "hflip": "horizontal_flip is the same",
    "pil_to_tensor": "not needed: functions take tensors, arrays and PIL images",
    "to_dtype": "transforms.ToDtype(dtype, scale) is the same",
    "to_image": "not needed: functions take tensors, arrays and PIL images",
    "to_pil_image": "not needed: PIL images come back as PIL images",
    "to_tensor": "transforms.ToDtype(torch.float32, scale=True): floats in [0, 1], of PIL images (C, H, W) tensors",
    "vflip": "vertical_flip is the same",
}


def no_such(module: str, name: str, instead: Mapping[str, str]) -> AttributeError:
    """What Python raises for a name that a module does not have, with a hint if there is one."""
    hint = f": {instead[name]}" if name in instead else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name, obj=sys.modules[module])
