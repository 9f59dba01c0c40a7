"""The operations with explicit parameters, on images in hand. Nothing here is random but `gaussian_noise`.

Each function takes and returns what `cuaug.transforms.Compose` does: a torch tensor, (C, H, W) or (N, C, H, W); a
NumPy or CuPy array, (H, W), (H, W, C) or (N, H, W, C); or a PIL image. Names and meaning are torchvision's. An argument
that does not fit is a `TransformError`, which names it and what was allowed.
"""

import sys
from typing import TYPE_CHECKING, Any

from cuaug.functional.color import (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    autocontrast,
    clahe,
    convert_color,
    equalize,
    invert,
    lut,
    matrix,
    normalize,
    permute_channels,
    posterize,
    rgb_to_grayscale,
    solarize,
)
from cuaug.functional.filters import (
    adjust_sharpness,
    erase,
    gaussian_blur,
    gaussian_noise,
    jpeg,
    median_blur,
    motion_blur,
)
from cuaug.functional.geometry import (
    affine,
    center_crop,
    crop,
    elastic,
    five_crop,
    horizontal_flip,
    pad,
    perspective,
    resize,
    resized_crop,
    rot90,
    rotate,
    ten_crop,
    vertical_flip,
)

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "adjust_sharpness",
    "affine",
    "autocontrast",
    "center_crop",
    "clahe",
    "convert_color",
    "crop",
    "elastic",
    "equalize",
    "erase",
    "five_crop",
    "gaussian_blur",
    "gaussian_noise",
    "horizontal_flip",
    "invert",
    "jpeg",
    "lut",
    "matrix",
    "median_blur",
    "motion_blur",
    "normalize",
    "pad",
    "permute_channels",
    "perspective",
    "posterize",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "rot90",
    "rotate",
    "solarize",
    "ten_crop",
    "vertical_flip",
]

_INSTEAD = {
    "convert_image_dtype": "transforms.ToDtype(dtype, scale=True) is the same",
    "hflip": "horizontal_flip is the same",
    "pil_to_tensor": "not needed: functions take tensors, arrays and PIL images",
    "to_dtype": "transforms.ToDtype(dtype, scale) is the same",
    "to_image": "not needed: functions take tensors, arrays and PIL images",
    "to_pil_image": "not needed: PIL images come back as PIL images",
    "to_tensor": "transforms.ToDtype(torch.float32, scale=True): floats in [0, 1], of PIL images (C, H, W) tensors",
    "vflip": "vertical_flip is the same",
}

if not TYPE_CHECKING:  # to which every name would be there

    def __getattr__(name: str) -> Any:
        """Says for torchvision's names that are not here what to do instead."""
        hint = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}{hint}", name=name, obj=sys.modules[__name__]
        )
