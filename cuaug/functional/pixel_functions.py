"""Color operations, filters, noise, JPEG artifacts and erasing with explicit parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.images.interop import open_images
from cuaug.plan import MAX_SIDE, Plan, is_rgb_or_gray, operations
from cuaug.plan.filter_passes import MEDIAN_SIZES
from cuaug.transforms import (
    CLAHE,
    LUT,
    RGB,
    ConvertColor,
    GaussianBlur,
    GaussianNoise,
    Grayscale,
    MotionBlur,
    Normalize,
    RandomAdjustSharpness,
    RandomPosterize,
    RandomSolarize,
    ToDtype,
    filters,
    parameters,
)
from cuaug.transforms.color import jitter_operations
from cuaug.transforms.execute import ImageT, apply, run_plan


def adjust_brightness(image: ImageT, brightness_factor: float) -> ImageT:
    """Multiplies values by a factor, 0 or more, and saturates."""
    factor = parameters.number("brightness_factor", brightness_factor, 0)
    return apply(image, lambda plan: plan.append(operations.brightness(len(plan), plan.limit, factor)))


def adjust_contrast(image: ImageT, contrast_factor: float) -> ImageT:
    """Blends with the image's mean gray level.

    A factor of 0 gives that gray, 1 the image, 2 twice the contrast.
    """
    factor = parameters.number("contrast_factor", contrast_factor, 0)
    return apply(image, lambda plan: plan.append(operations.contrast(len(plan), plan.limit, factor)))


def adjust_saturation(image: ImageT, saturation_factor: float) -> ImageT:
    """Blends with the gray image.

    A factor of 0 gives gray, 1 the image, 2 twice the saturation. Gray images stay as they are.
    """
    factor = parameters.number("saturation_factor", saturation_factor, 0)
    return apply(image, lambda plan: plan.append(jitter_operations(plan, "saturation", factor)))


def adjust_gamma(image: ImageT, gamma: float, gain: float = 1.0) -> ImageT:
    """Computes gain * v ** gamma, saturated.

    Black is 0 and white is 1; both arguments are 0 or more.
    """
    power, factor = parameters.number("gamma", gamma, 0), parameters.number("gain", gain, 0)
    return apply(image, lambda plan: plan.append(operations.gamma(len(plan), plan.limit, power, factor)))


def posterize(image: ImageT, bits: int) -> ImageT:
    """Keeps the upper `bits` bits, 0 to 8, of each uint8 level.

    Floats in [0, 1] are rounded down to a multiple of 2 ** -bits.
    """
    transform = RandomPosterize(bits)
    return apply(image, lambda plan: transform.write(plan, None))


def solarize(image: ImageT, threshold: float) -> ImageT:
    """Inverts values from `threshold` to white; it is in the image's units: up to 255, to 65,535 or to 1."""
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
    limit, transform = parameters.number("clip_limit", clip_limit, 0), CLAHE(tile_grid_size=tile_grid_size)
    return apply(image, lambda plan: transform.write(plan, None, clip_limit=limit))


def permute_channels(image: ImageT, permutation: Sequence[int]) -> ImageT:
    """Reorders channels: channel c becomes channel permutation[c]. For gray images it is (0,)."""
    order = parameters.numbers(permutation, parameters.to_int)

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
    turn = parameters.number("hue_factor", hue_factor, -0.5, 0.5)
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
    numbers = parameters.array("values", values, (3, 4))
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
    parameters.not_inplace(inplace)
    transform = Normalize(mean, std)
    return apply(image, lambda plan: transform.write(plan, None))


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
    sigmas = [0.15 * size + 0.35 for size in sizes] if sigma is None else list(parameters.numbers(sigma, float))
    if len(sigmas) not in (1, 2) or not all(0.0 < value < float("inf") for value in sigmas):
        raise TransformError(f"sigma must be a number above 0, or (x, y) of two, not {sigma!r}")
    across, down = (
        filters.gaussian_weights(size, value)[0] for size, value in zip(sizes, (sigmas * 2)[:2], strict=True)
    )
    return apply(image, lambda plan: plan.convolve(down, across))


def motion_blur(
    image: ImageT,
    kernel_size: int,
    angle: float,
    direction: float = 0.0,
    padding_mode: str = "constant",
    interpolation: parameters.Interpolation = "nearest",
) -> ImageT:
    """Blurs along a line; see `MotionBlur`.

    Args:
        kernel_size: length in pixels, odd and at least 3.
        angle: of the line, in degrees.
        direction: weight of its ends, from -1 to 1.
    """
    params = {
        "size": parameters.integer("kernel_size", kernel_size, 3),
        "angle": parameters.number("angle", angle),
        "direction": parameters.number("direction", direction, -1, 1),
    }
    if params["size"] % 2 == 0:
        raise TransformError(f"kernel_size must be an odd number, not {kernel_size!r}")
    transform = MotionBlur(kernel_size, (angle, angle), (direction, direction), padding_mode, interpolation)

    def write(plan: Plan) -> None:
        transform.write(plan, None, **{name: np.full(len(plan), value) for name, value in params.items()})

    return apply(image, write)


def median_blur(image: ImageT, kernel_size: int) -> ImageT:
    """Takes medians of each channel over a square of 3, 5 or 7 pixels a side."""
    size = parameters.integer("kernel_size", kernel_size)
    if size not in MEDIAN_SIZES:
        raise TransformError(f"kernel_size must be one of 3, 5 and 7, not {kernel_size!r}")
    return apply(image, lambda plan: plan.median(size))


def jpeg(image: ImageT, quality: int) -> ImageT:
    """Encodes as JPEG (baseline, 4:2:0) at a quality of 1 to 100, and decodes."""
    number = parameters.integer("quality", quality, 1, 100)
    return apply(image, lambda plan: plan.jpeg(number))


def gaussian_noise(image: ImageT, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> ImageT:
    """Adds normal noise to each pixel and channel.

    `mean` and `sigma` are fractions of white. The noise comes from torch's default generator.
    """
    return GaussianNoise(parameters.number("mean", mean), parameters.number("sigma", sigma, 0), clip)(image)


def erase(image: ImageT, top: int, left: int, height: int, width: int, value: Any = 0, inplace: bool = False) -> ImageT:
    """Fills a rectangle with `value`.

    Parts of the rectangle outside the image are ignored.

    Args:
        value: a number, one per channel, or a tensor or array (C, height, width), in the image's units; an axis may
            have length 1. It is rounded for uint8 images.
        inplace: must be False, torchvision's default: inputs are never written to.
    """
    parameters.not_inplace(inplace)
    y, x = (parameters.integer(name, place, -MAX_SIDE, MAX_SIDE) for name, place in (("top", top), ("left", left)))
    h, w = (parameters.integer(name, side, 0, MAX_SIDE) for name, side in (("height", height), ("width", width)))
    if np.ndim(value) == 3:
        return _paste(image, y, x, h, w, parameters.array("value", value))
    color = parameters.fill("value", value)

    def write(plan: Plan) -> None:
        values = plan.of_channels("value", color)
        plan.append(operations.erase(len(plan), (y, x, y + h, x + w), values))

    return apply(image, write)


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
