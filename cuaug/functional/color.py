"""Colour operations with explicit parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import ArrayLike

from cuaug.apply import ImageT, apply
from cuaug.errors import TransformError
from cuaug.plan import Plan, is_rgb_or_gray, operations
from cuaug.transforms import (
    CLAHE,
    LUT,
    RGB,
    ConvertColor,
    Grayscale,
    Normalize,
    RandomPosterize,
    RandomSolarize,
    ToDtype,
    arguments,
)
from cuaug.transforms.color import jitter_operations

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "autocontrast",
    "clahe",
    "convert_color",
    "equalize",
    "grayscale_to_rgb",
    "invert",
    "lut",
    "matrix",
    "normalize",
    "permute_channels",
    "posterize",
    "rgb_to_grayscale",
    "solarize",
    "to_dtype",
]


def adjust_brightness(image: ImageT, brightness_factor: float) -> ImageT:
    """Multiplies values by a factor, 0 or more, and saturates."""
    factor = arguments.number("brightness_factor", brightness_factor, 0)
    return apply(image, lambda plan: plan.append(operations.brightness(len(plan), plan.limit, factor)))


def adjust_contrast(image: ImageT, contrast_factor: float) -> ImageT:
    """Blends with the image's mean gray level.

    A factor of 0 gives that gray, 1 the image, 2 twice the contrast.
    """
    factor = arguments.number("contrast_factor", contrast_factor, 0)
    return apply(image, lambda plan: plan.append(operations.contrast(len(plan), plan.limit, factor)))


def adjust_saturation(image: ImageT, saturation_factor: float) -> ImageT:
    """Blends with the gray image.

    A factor of 0 gives gray, 1 the image, 2 twice the saturation. Gray images stay as they are.
    """
    factor = arguments.number("saturation_factor", saturation_factor, 0)
    return apply(image, lambda plan: plan.append(jitter_operations(plan, "saturation", factor)))


def adjust_gamma(image: ImageT, gamma: float, gain: float = 1.0) -> ImageT:
    """Computes gain * v ** gamma, saturated.

    Black is 0 and white is 1; both arguments are 0 or more.
    """
    power, factor = arguments.number("gamma", gamma, 0), arguments.number("gain", gain, 0)
    return apply(image, lambda plan: plan.append(operations.gamma(len(plan), plan.limit, power, factor)))


def posterize(image: ImageT, bits: int) -> ImageT:
    """Keeps the upper `bits` bits, 0 to 8, of each uint8 level.

    Floats in [0, 1] are rounded down to a multiple of 2 ** -bits.
    """
    transform = RandomPosterize(bits)
    return apply(image, lambda plan: transform.write(plan, None))


def solarize(image: ImageT, threshold: float) -> ImageT:
    """Inverts values from `threshold` to white; the threshold is in the image's units."""
    transform = RandomSolarize(threshold)
    return apply(image, lambda plan: transform.write(plan, None))


def invert(image: ImageT) -> ImageT:
    """Inverts the image: white minus each value."""
    return apply(image, lambda plan: plan.append(operations.invert(len(plan), plan.limit)))


def autocontrast(image: ImageT) -> ImageT:
    """Stretches each channel's range from black to white."""
    return apply(image, lambda plan: plan.append(operations.autocontrast(len(plan), plan.limit)))


def equalize(image: ImageT) -> ImageT:
    """Equalizes each channel's histogram by Pillow's formula."""
    return apply(image, lambda plan: plan.append(operations.equalize(len(plan), plan.limit)))


def clahe(image: ImageT, clip_limit: float = 4.0, tile_grid_size: Sequence[int] = (8, 8)) -> ImageT:
    """Equalizes each channel locally (CLAHE), see `CLAHE`; a `clip_limit` of 0 clips nothing."""
    limit, transform = arguments.number("clip_limit", clip_limit, 0), CLAHE(tile_grid_size=tile_grid_size)
    return apply(image, lambda plan: transform.write(plan, None, clip_limit=limit))


def permute_channels(image: ImageT, permutation: Sequence[int]) -> ImageT:
    """Reorders channels: channel c becomes channel permutation[c]. For gray images it is (0,)."""
    order = arguments.numbers(permutation, arguments.to_int)

    def write(plan: Plan) -> None:
        if sorted(order) != list(range(plan.channels)):
            raise TransformError(f"permutation must be an order of 0 ... {plan.channels - 1}, not {permutation!r}")
        if not is_rgb_or_gray(plan.channels):
            raise TransformError(f"image: it has {plan.channels} channels, but 1 or 3 are permuted: index its channels")
        if plan.channels == 3:
            plan.append(operations.permutation(len(plan), order))

    return apply(image, write)


def adjust_hue(image: ImageT, hue_factor: float) -> ImageT:
    """Rotates the hue by a fraction of the full circle, in [-0.5, 0.5]."""
    turn = arguments.number("hue_factor", hue_factor, -0.5, 0.5)
    return apply(image, lambda plan: plan.append(operations.hue(len(plan), plan.limit, turn)))


def rgb_to_grayscale(image: ImageT, num_output_channels: int = 1) -> ImageT:
    """Converts to gray by ITU-R BT.601 luma.

    The result has 1 channel or 3. Gray images keep their values.
    """
    transform = Grayscale(num_output_channels)
    return apply(image, lambda plan: transform.write(plan, None))


def grayscale_to_rgb(image: ImageT) -> ImageT:
    """Makes three equal channels of gray images; RGB images stay as they are."""
    return apply(image, lambda plan: RGB().write(plan, None))


def to_dtype(image: Any, dtype: torch.dtype = torch.float32, scale: bool = False) -> Any:
    """Converts to a dtype, optionally from [0, 255] to [0, 1] or back; see `ToDtype`.

    PIL images become a tensor (C, H, W) unless `dtype` is torch.uint8.
    """
    transform = ToDtype(dtype, scale)
    return apply(image, lambda plan: transform.write(plan, None))


def convert_color(image: ImageT, source: str = "RGB", target: str = "YUV") -> ImageT:
    """Converts RGB to full-range BT.601 YUV, or back; see `ConvertColor`."""
    transform = ConvertColor(source, target)
    return apply(image, lambda plan: transform.write(plan, None))


def matrix(image: ImageT, values: ArrayLike) -> ImageT:
    """Computes values[:, :3] @ (r, g, b) + values[:, 3], saturated.

    `values` is (3, 4), in the image's units.
    """
    numbers = arguments.array("values", values, (3, 4))
    return apply(image, lambda plan: plan.append(operations.matrix(len(plan), plan.limit, numbers)))


def lut(image: ImageT, table: ArrayLike) -> ImageT:
    """Maps each uint8 level by a look-up table, (256,) or (C, 256); see `LUT`."""
    transform = LUT(table)
    return apply(image, lambda plan: transform.write(plan, None))


def normalize(image: Any, mean: float | Sequence[float], std: float | Sequence[float], inplace: bool = False) -> Any:
    """Computes (v - mean) / std for each channel.

    Values are in [0, 1], `std` is above 0. uint8 images are scaled to [0, 1] and become float32; PIL images become a
    float32 (C, H, W) tensor. `inplace` must be False, torchvision's default: inputs are never written to.
    """
    arguments.not_inplace(inplace)
    transform = Normalize(mean, std)
    return apply(image, lambda plan: transform.write(plan, None))
