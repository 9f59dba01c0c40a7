"""The operations with explicit parameters, on images in memory. Only `gaussian_noise` is random.

Each function takes the inputs of `cuaug.transforms.Compose` and returns the same kind: a torch tensor, (C, H, W) or
(N, C, H, W); a NumPy or CuPy array, (H, W), (H, W, C) or (N, H, W, C); or a PIL image. Names and meaning are
torchvision's. An invalid argument raises a `TransformError` that names it and the allowed values.

pixel_functions.py     color operations, filters, noise, JPEG artifacts and erasing with explicit parameters
geometry_functions.py  geometry with explicit parameters
"""

from typing import TYPE_CHECKING, Any

from cuaug._runtime.migration_hints import missing_function, suggest_arguments
from cuaug.functional.geometry_functions import (
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
from cuaug.functional.pixel_functions import (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    autocontrast,
    clahe,
    convert_color,
    equalize,
    erase,
    gaussian_blur,
    gaussian_noise,
    grayscale_to_rgb,
    invert,
    jpeg,
    lut,
    matrix,
    median_blur,
    motion_blur,
    normalize,
    permute_channels,
    posterize,
    rgb_to_grayscale,
    solarize,
    to_dtype,
)
from cuaug.images.interop import disable_compile

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
    "grayscale_to_rgb",
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
    "to_dtype",
    "vertical_flip",
]

if not TYPE_CHECKING:  # a type checker would accept every name
    for _name in __all__:
        globals()[_name] = disable_compile(suggest_arguments({})(globals()[_name]))

    def __getattr__(name: str) -> Any:
        raise missing_function(__name__, name, __all__)
