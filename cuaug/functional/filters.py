"""Filters, noise, JPEG artefacts and erasing with explicit parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.apply import ImageT, apply, run_plan
from cuaug.errors import TransformError
from cuaug.interop import disable_compile, open_images
from cuaug.plan import MAX_SIDE, Plan, operations
from cuaug.plan.filters import MEDIAN_SIZES
from cuaug.transforms import (
    GaussianBlur,
    GaussianNoise,
    MotionBlur,
    RandomAdjustSharpness,
    arguments,
    blur,
)

__all__ = [
    "adjust_sharpness",
    "erase",
    "gaussian_blur",
    "gaussian_noise",
    "jpeg",
    "median_blur",
    "motion_blur",
]


def adjust_sharpness(image: ImageT, sharpness_factor: float) -> ImageT:
    """Blends with a smoothed image.

    A factor of 0 gives the smoothed image, 1 the image, 2 a sharper one. The outermost pixels stay as they are.
    """
    transform = RandomAdjustSharpness(sharpness_factor)
    return apply(image, lambda plan: transform.write(plan, None))


def gaussian_blur(
    image: ImageT, kernel_size: int | Sequence[int], sigma: float | Sequence[float] | None = None
) -> ImageT:
    """Applies a Gaussian blur.

    Args:
        kernel_size: odd, in pixels; a number or (x, y).
        sigma: standard deviation above 0, in pixels; a number or (x, y). None: 0.15 * kernel_size + 0.35.
    """
    sizes = GaussianBlur(kernel_size).kernel_size
    sigmas = [0.15 * size + 0.35 for size in sizes] if sigma is None else list(arguments.numbers(sigma, float))
    if len(sigmas) not in (1, 2) or not all(0.0 < value < float("inf") for value in sigmas):
        raise TransformError(f"sigma must be a number above 0, or (x, y) of two, not {sigma!r}")
    across, down = (blur.gaussian_weights(size, value)[0] for size, value in zip(sizes, (sigmas * 2)[:2], strict=True))
    return apply(image, lambda plan: plan.convolve(down, across))


def motion_blur(
    image: ImageT,
    kernel_size: int,
    angle: float,
    direction: float = 0.0,
    padding_mode: str = "constant",
    interpolation: arguments.Interpolation = "nearest",
) -> ImageT:
    """Blurs along a line; see `MotionBlur`.

    Args:
        kernel_size: length in pixels, odd and at least 3.
        angle: of the line, in degrees.
        direction: weight of its ends, from -1 to 1.
    """
    params = {
        "size": arguments.integer("kernel_size", kernel_size, 3),
        "angle": arguments.number("angle", angle),
        "direction": arguments.number("direction", direction, -1, 1),
    }
    if params["size"] % 2 == 0:
        raise TransformError(f"kernel_size must be an odd number, not {kernel_size!r}")
    transform = MotionBlur(kernel_size, (angle, angle), (direction, direction), padding_mode, interpolation)

    def write(plan: Plan) -> None:
        transform.write(plan, None, **{name: np.full(len(plan), value) for name, value in params.items()})

    return apply(image, write)


def median_blur(image: ImageT, kernel_size: int) -> ImageT:
    """Takes medians of each channel over a square of 3, 5 or 7 pixels a side."""
    size = arguments.integer("kernel_size", kernel_size)
    if size not in MEDIAN_SIZES:
        raise TransformError(f"kernel_size must be one of 3, 5 and 7, not {kernel_size!r}")
    return apply(image, lambda plan: plan.median(size))


def jpeg(image: ImageT, quality: int) -> ImageT:
    """Encodes as JPEG (baseline, 4:2:0) at a quality of 1 to 100, and decodes."""
    number = arguments.integer("quality", quality, 1, 100)
    return apply(image, lambda plan: plan.jpeg(number))


def gaussian_noise(image: ImageT, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> ImageT:
    """Adds normal noise to each pixel and channel.

    `mean` and `sigma` are fractions of white. The noise comes from torch's default generator.
    """
    return GaussianNoise(arguments.number("mean", mean), arguments.number("sigma", sigma, 0), clip)(image)


def erase(image: ImageT, top: int, left: int, height: int, width: int, value: Any = 0, inplace: bool = False) -> ImageT:
    """Fills a rectangle with `value`.

    Parts of the rectangle outside the image are ignored.

    Args:
        value: a number, one per channel, or a tensor or array (C, height, width), in the image's units; an axis may
            have length 1. It is rounded for uint8 images.
        inplace: must be False, torchvision's default: inputs are never written to.
    """
    arguments.not_inplace(inplace)
    y, x = (arguments.integer(name, place, -MAX_SIDE, MAX_SIDE) for name, place in (("top", top), ("left", left)))
    h, w = (arguments.integer(name, side, 0, MAX_SIDE) for name, side in (("height", height), ("width", width)))
    if np.ndim(value) == 3:
        return _paste(image, y, x, h, w, arguments.array("value", value))
    color = arguments.fill("value", value)

    def write(plan: Plan) -> None:
        values = plan.of_channels("value", color)
        plan.append(operations.erase(len(plan), (y, x, y + h, x + w), values))

    return apply(image, write)


@disable_compile
def _paste(image: Any, top: int, left: int, height: int, width: int, patch: NDArray[np.float64]) -> Any:
    """The image with a patch (C, height, width) at (top, left); axes of length 1 are repeated."""
    inputs = open_images(image)
    (result,), _ = run_plan(inputs, lambda plan: None)
    shape = (result.shape[1], height, width)
    if any(length not in (1, side) for length, side in zip(patch.shape, shape, strict=True)):
        raise TransformError(f"value must be (C, height, width), {shape} here, not {patch.shape}")
    bottom, right = np.minimum([top + height, left + width], result.shape[-2:])
    y, x = max(top, 0), max(left, 0)
    if bottom > y and right > x:
        part = np.broadcast_to(patch, shape)[:, y - top : bottom - top, x - left : right - left]
        if result.dtype == torch.uint8:
            part = np.clip(np.floor(part + 0.5), 0, 255)
        result[..., y:bottom, x:right] = torch.from_numpy(part.copy()).to(result)
    return inputs.finish(result)
