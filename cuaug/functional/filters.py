"""Blurs, noise, encoding and erasing, with explicit parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.apply import apply
from cuaug.errors import TransformError
from cuaug.plan import Plan, operations
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


def adjust_sharpness(image: Any, sharpness_factor: float) -> Any:
    """Blended with a smoothed image: 0 is that, 1 the image, 2 sharper. The outermost pixels stay."""
    return apply(image, lambda plan: RandomAdjustSharpness(sharpness_factor).write(plan, None))


def gaussian_blur(image: Any, kernel_size: int | Sequence[int], sigma: float | Sequence[float] | None = None) -> Any:
    """Blurred by a Gaussian; `kernel_size` and `sigma` are numbers, or (x, y). None: 0.15 * kernel_size + 0.35."""
    sizes = GaussianBlur(kernel_size).kernel_size
    sigmas = [0.15 * size + 0.35 for size in sizes] if sigma is None else list(arguments.values(sigma, float))
    if len(sigmas) not in (1, 2) or min(sigmas) <= 0.0:
        raise TransformError(f"sigma is a number above 0, or (x, y) of two, not {sigma!r}")
    across, down = (blur.gaussian_weights(size, value)[0] for size, value in zip(sizes, (sigmas * 2)[:2], strict=True))
    return apply(image, lambda plan: plan.convolve(down, across))


def motion_blur(
    image: Any,
    kernel_size: int,
    angle: float,
    direction: float = 0.0,
    padding_mode: str = "constant",
    interpolation: Any = "nearest",
) -> Any:
    """Blurred along a line of `kernel_size` pixels at `angle` degrees; see `MotionBlur`."""
    chain = MotionBlur(kernel_size, (angle, angle), (direction, direction), padding_mode, interpolation)

    def write(plan: Plan) -> None:
        chain.write(plan, None, **{name: np.full(len(plan), value) for name, value in one.items()})

    one = {"size": kernel_size, "angle": angle, "direction": direction}
    return apply(image, write)


def median_blur(image: Any, kernel_size: int) -> Any:
    """The median of each channel in 3, 5 or 7 pixels on a side."""
    return apply(image, lambda plan: plan.median(kernel_size))


def jpeg(image: Any, quality: int) -> Any:
    """Encoded as JPEG at a quality of 1 ... 100 (baseline, 4:2:0), and decoded again."""
    return apply(image, lambda plan: plan.jpeg(quality))


def gaussian_noise(image: Any, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> Any:
    """A normal draw added to each pixel and channel; mean and sigma are parts of white. Torch's generator draws."""
    return GaussianNoise(mean, sigma, clip)(image)


def erase(image: Any, top: int, left: int, height: int, width: int, value: Any = 0) -> Any:
    """`value`, a number or one per channel, in the rectangle."""
    rectangle = (top, left, top + height, left + width)
    color = arguments.color("value", value)
    return apply(image, lambda plan: plan.append(operations.erase(len(plan), rectangle, color)))
