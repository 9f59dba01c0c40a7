"""Operations on colours and values, with explicit parameters."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cuaug.apply import apply
from cuaug.errors import TransformError
from cuaug.plan import Plan, operations
from cuaug.transforms import (
    CLAHE,
    Grayscale,
    RandomPosterize,
    RandomSolarize,
    arguments,
)
from cuaug.transforms.color import jittered

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
    "invert",
    "lut",
    "matrix",
    "normalize",
    "permute_channels",
    "posterize",
    "rgb_to_grayscale",
    "solarize",
]


def adjust_brightness(image: Any, brightness_factor: float) -> Any:
    """Values times the factor, saturated."""
    return apply(image, lambda plan: plan.append(operations.brightness(len(plan), plan.limit, brightness_factor)))


def adjust_contrast(image: Any, contrast_factor: float) -> Any:
    """Blended with the image's mean gray level: 0 is that gray, 1 the image."""
    return apply(image, lambda plan: plan.append(operations.contrast(len(plan), plan.limit, contrast_factor)))


def adjust_saturation(image: Any, saturation_factor: float) -> Any:
    """Blended with the gray image: 0 is gray, 1 the image."""
    return apply(image, lambda plan: plan.append(jittered(plan, "saturation", saturation_factor)))


def adjust_gamma(image: Any, gamma: float, gain: float = 1.0) -> Any:
    """gain * v ** gamma with black as 0 and white as 1, saturated."""
    for name, value in (("gamma", gamma), ("gain", gain)):
        arguments.span(name, (value, value))
    return apply(image, lambda plan: plan.append(operations.gamma(len(plan), plan.limit, gamma, gain)))


def posterize(image: Any, bits: int) -> Any:
    """The upper `bits` bits of each level; floats in [0, 1] become the lower end of each of 2**bits equal steps."""
    return apply(image, lambda plan: RandomPosterize(bits).write(plan, None))


def solarize(image: Any, threshold: float) -> Any:
    """Values inverted from `threshold` on, which is in the image's units."""
    return apply(image, lambda plan: RandomSolarize(threshold).write(plan, None))


def invert(image: Any) -> Any:
    """The negative."""
    return apply(image, lambda plan: plan.append(operations.invert(len(plan), plan.limit)))


def autocontrast(image: Any) -> Any:
    """Each channel stretched from black to white."""
    return apply(image, lambda plan: plan.append(operations.autocontrast(len(plan), plan.limit)))


def equalize(image: Any) -> Any:
    """Each channel's levels spread evenly, by Pillow's formula."""
    return apply(image, lambda plan: plan.append(operations.equalize(len(plan), plan.limit)))


def clahe(image: Any, clip_limit: float = 4.0, tile_grid_size: Sequence[int] = (8, 8)) -> Any:
    """Each channel equalized around each pixel; see `CLAHE`. A `clip_limit` of 0 limits nothing."""
    arguments.span("clip_limit", (clip_limit, clip_limit))
    chain = CLAHE(tile_grid_size=tile_grid_size)
    return apply(image, lambda plan: chain.write(plan, None, clip_limit=clip_limit))


def permute_channels(image: Any, permutation: Sequence[int]) -> Any:
    """Channel c of the result is channel permutation[c]."""
    order = arguments.values(permutation, operator.index)

    def write(plan: Plan) -> None:
        if sorted(order) != list(range(plan.channels)):
            raise TransformError(f"permutation is an order of 0 ... {plan.channels - 1}, not {permutation!r}")
        if plan.channels == 3:
            plan.append(operations.permutation(len(plan), order))

    return apply(image, write)


def adjust_hue(image: Any, hue_factor: float) -> Any:
    """The hue turned by the factor, in parts of the full circle, [-0.5, 0.5]."""
    arguments.span("hue_factor", (hue_factor, hue_factor), low=-0.5, high=0.5)
    return apply(image, lambda plan: plan.append(operations.hue(len(plan), plan.limit, hue_factor)))


def rgb_to_grayscale(image: Any, num_output_channels: int = 1) -> Any:
    """Gray by ITU-R BT.601 luma, in 1 channel or 3."""

    return apply(image, lambda plan: Grayscale(num_output_channels).write(plan, None))


def convert_color(image: Any, source: str = "RGB", target: str = "YUV") -> Any:
    """RGB to full-range BT.601 YUV, or back."""
    from cuaug.transforms import ConvertColor

    return apply(image, lambda plan: ConvertColor(source, target).write(plan, None))


def matrix(image: Any, values: ArrayLike) -> Any:
    """values[:, :3] @ (r, g, b) + values[:, 3], saturated; `values` is (3, 4), in the image's units."""
    return apply(image, lambda plan: plan.append(operations.matrix(len(plan), plan.limit, np.asarray(values))))


def lut(image: Any, table: ArrayLike) -> Any:
    """Each level's entry in `table`, (256,) or (3, 256), in uint8 levels."""
    return apply(image, lambda plan: plan.lut(table))


def normalize(image: Any, mean: Sequence[float], std: Sequence[float]) -> Any:
    """(v - mean) / std for each channel, of values in [0, 1] (uint8 images are scaled to that)."""
    return apply(image, lambda plan: plan.normalize(mean, std))
