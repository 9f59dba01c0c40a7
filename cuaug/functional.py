"""The operations with explicit parameters, on images in hand. Nothing here is random.

Each function takes and returns what `cuaug.transforms.Compose` does: a torch tensor, (C, H, W) or (N, C, H, W); a
NumPy or CuPy array, (H, W), (H, W, C) or (N, H, W, C); or a PIL image. Names and meaning are torchvision's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cuaug.apply import apply
from cuaug.plan import Plan, operations
from cuaug.transforms import Resize, arguments

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "convert_color",
    "crop",
    "erase",
    "horizontal_flip",
    "lut",
    "matrix",
    "normalize",
    "pad",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "vertical_flip",
]


def resize(
    image: Any,
    size: int | Sequence[int] | None,
    interpolation: Any = "bilinear",
    max_size: int | None = None,
    antialias: bool = True,
) -> Any:
    """Resizes to (height, width), or with one number to that shorter side, the longer in proportion, as `Resize`."""
    chain = Resize(size, interpolation, max_size, antialias)
    return apply(image, lambda plan: chain.write(plan, None, **chain.resized(*plan.sizes)))


def crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """The window of height x width whose first pixel is (top, left)."""
    return apply(image, lambda plan: plan.crop(top, left, height, width))


def resized_crop(
    image: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: Any = "bilinear",
    antialias: bool = True,
) -> Any:
    """The window, resized to `size`; sampling stops at the window's edge."""
    h, w = arguments.pair("size", size)
    filter = arguments.interpolation(interpolation)

    def write(plan: Plan) -> None:
        plan.crop(top, left, height, width)
        plan.resize(h, w, filter=filter, antialias=antialias)

    return apply(image, write)


def horizontal_flip(image: Any) -> Any:
    """Left and right exchanged."""
    return apply(image, lambda plan: plan.flip())


def vertical_flip(image: Any) -> Any:
    """Top and bottom exchanged."""
    return apply(image, lambda plan: plan.flip(vertical=True))


def pad(image: Any, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Pixels added on the sides: one number, (left/right, top/bottom), or (left, top, right, bottom)."""
    sides, border, color = arguments.sides(padding), arguments.border(padding_mode), arguments.color("fill", fill)
    return apply(image, lambda plan: plan.pad(*sides, border=border, fill=color))


def adjust_brightness(image: Any, brightness_factor: float) -> Any:
    """Values times the factor, saturated."""
    return apply(image, lambda plan: plan.append(operations.brightness(len(plan), plan.limit, brightness_factor)))


def adjust_contrast(image: Any, contrast_factor: float) -> Any:
    """Blended with the image's mean gray level: 0 is that gray, 1 the image."""
    return apply(image, lambda plan: plan.append(operations.contrast(len(plan), plan.limit, contrast_factor)))


def adjust_saturation(image: Any, saturation_factor: float) -> Any:
    """Blended with the gray image: 0 is gray, 1 the image."""
    return apply(image, lambda plan: plan.append(operations.saturation(len(plan), plan.limit, saturation_factor)))


def adjust_hue(image: Any, hue_factor: float) -> Any:
    """The hue turned by the factor, in parts of the full circle, [-0.5, 0.5]."""
    arguments.span("hue_factor", (hue_factor, hue_factor), low=-0.5, high=0.5)
    return apply(image, lambda plan: plan.append(operations.hue(len(plan), plan.limit, hue_factor)))


def rgb_to_grayscale(image: Any, num_output_channels: int = 1) -> Any:
    """Gray by ITU-R BT.601 luma, in 1 channel or 3."""
    from cuaug.transforms import Grayscale

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


def erase(image: Any, top: int, left: int, height: int, width: int, value: Any = 0) -> Any:
    """`value`, a number or one per channel, in the rectangle."""
    rectangle = (top, left, top + height, left + width)
    color = arguments.color("value", value)
    return apply(image, lambda plan: plan.append(operations.erase(len(plan), rectangle, color)))


def normalize(image: Any, mean: Sequence[float], std: Sequence[float]) -> Any:
    """(v - mean) / std for each channel, of values in [0, 1] (uint8 images are scaled to that)."""
    return apply(image, lambda plan: plan.normalize(mean, std))
