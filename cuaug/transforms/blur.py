"""Filters: blurs, sharpness, and what a lower resolution or a JPEG encoder leaves of an image.

Each begins a pass over the image (`cuaug.plan.filters`); what follows folds into it. Values are not rounded after it,
except by `JPEG`, whose codec does that itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.plan import Filter, Plan
from cuaug.plan.filters import MEDIAN_SIZES
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import RandomTransform, Transform, Where

__all__ = [
    "JPEG",
    "Downscale",
    "GaussianBlur",
    "MedianBlur",
    "MotionBlur",
    "RandomAdjustSharpness",
    "gaussian_weights",
    "motion_taps",
    "odd_sizes",
    "sharpness_taps",
]


def gaussian_weights(size: int, sigma: ArrayLike) -> NDArray[np.float64]:
    """(N, size): torchvision's and OpenCV's kernel for each of N sigmas, in pixels."""
    x = np.arange(size) - (size - 1) / 2
    weights = np.exp(-((x / np.reshape(sigma, (-1, 1))) ** 2) / 2)
    return weights / weights.sum(axis=1, keepdims=True)


_SMOOTH = np.array([(dy, dx, (1.0 if dy or dx else 5.0) / 13.0) for dy in (-1, 0, 1) for dx in (-1, 0, 1)])


def sharpness_taps(factor: ArrayLike) -> NDArray[np.float64]:
    """(N, 9, 3): factor * image + (1 - factor) * smoothed, with Pillow's kernel of 1s around a 5."""
    rest = 1.0 - np.reshape(factor, -1).astype(np.float64)
    taps = np.repeat(_SMOOTH[None], len(rest), axis=0)
    taps[:, :, 2] *= rest[:, None]
    taps[:, 4, 2] += 1.0 - rest
    return taps


def motion_taps(
    size: NDArray[np.int64], angle_degrees: NDArray[np.float64], direction: NDArray[np.float64], filter: Filter
) -> NDArray[np.float64]:
    """(N, K, 3): Kornia's motion kernels, a line through the centre turned counter-clockwise, that sum to 1."""
    radius = int(size.max(initial=1)) // 2
    dy, dx = (axis.reshape(-1) - radius for axis in np.mgrid[: 2 * radius + 1, : 2 * radius + 1])
    turn = np.radians(angle_degrees)[:, None]
    # Where on the line that was not yet turned; rounded, so that no platform's sine decides on which side a tie falls.
    along = np.round(np.cos(turn) * dx - np.sin(turn) * dy, 9)
    beside = np.round(np.sin(turn) * dx + np.cos(turn) * dy, 9)
    half = (size // 2)[:, None]
    start = (np.clip(direction, -1.0, 1.0)[:, None] + 1.0) / 2.0

    def on_line(k: NDArray[Any]) -> NDArray[np.float64]:
        """The line's weight at its pixel k, counted from the centre."""
        inside = np.abs(k) <= half
        return np.where(inside, start + (1.0 - 2.0 * start) * (k + half) / (2 * half), 0.0)

    if filter == Filter.NEAREST:
        weights = on_line(np.rint(along)) * (np.rint(beside) == 0)
    else:
        low = np.floor(along)
        weights = on_line(low) * (1.0 - (along - low)) + on_line(low + 1) * (along - low)
        weights = weights * np.maximum(1.0 - np.abs(beside), 0.0)
    weights = weights * ((np.abs(dy) <= half) & (np.abs(dx) <= half))
    return _as_taps(dy, dx, weights / weights.sum(axis=1, keepdims=True))


def _as_taps(dy: NDArray[Any], dx: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack(np.broadcast_arrays(dy, dx, weights), axis=-1).astype(np.float64)


def odd_sizes(name: str, value: int | Sequence[int], least: int, most: int | None = None) -> tuple[int, int]:
    """(lowest, highest), odd, from one odd number or two."""
    numbers = arguments.values(value, arguments.index)
    highest = float("inf") if most is None else most
    fits = len(numbers) in (1, 2) and all(n % 2 for n in numbers) and least <= numbers[0] <= numbers[-1] <= highest
    if not fits:
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise TransformError(f"{name} is an odd number {allowed}, or (lowest, highest) of two, not {value!r}")
    return numbers[0], numbers[-1]


class GaussianBlur(Transform):
    """Blurs with a Gaussian of a sigma drawn for each sample; the image is mirrored at its edges.

    Args:
        kernel_size: odd, in pixels; or (x, y).
        sigma: in pixels: a number, or (lower, upper) to draw from.
    """

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        numbers = arguments.values(kernel_size, arguments.index)
        if len(numbers) not in (1, 2) or any(n < 1 or n % 2 == 0 for n in numbers):
            raise TransformError(f"kernel_size is an odd number of at least 1, or (x, y) of two, not {kernel_size!r}")
        self.kernel_size = numbers[0], numbers[-1]
        self.sigma = arguments.one_or_span("sigma", sigma)
        if self.sigma[0] == 0.0:
            raise TransformError(f"sigma is above 0, not {sigma!r}")

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"sigma": rng.uniform(None, *self.sigma)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        across, down = (gaussian_weights(size, params["sigma"]) for size in self.kernel_size)
        plan.convolve(down, across, where=where)


class RandomAdjustSharpness(RandomTransform):
    """Blends with a smoothed image: factor 0 is that, 1 the image, 2 sharper. The outermost pixels stay.

    Args:
        sharpness_factor: 0 or more.
        p: the probability with which it acts on a sample.
    """

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        self.sharpness_factor = arguments.number("sharpness_factor", sharpness_factor, 0)
        self.p = arguments.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.stencil(sharpness_taps(self.sharpness_factor)[0], frame=1, saturate=True, where=where)


class MotionBlur(RandomTransform):
    """Blurs along a line, as Kornia's RandomMotionBlur does.

    Args:
        kernel_size: the line's length in pixels, odd and at least 3; or (lowest, highest), drawn from the odd numbers.
        angle: of the line in degrees, counter-clockwise: a number v draws from [-v, v], (lower, upper) from that.
        direction: -1 weighs one end of the line most, 1 the other, 0 all alike: v, or (lower, upper), as `angle`.
        padding_mode: what lies outside the image; "constant" is black.
        interpolation: how the line is turned, "nearest" or "bilinear".
        p: the probability with which it acts on a sample.
    """

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        angle: float | Sequence[float],
        direction: float | Sequence[float],
        padding_mode: str = "constant",
        interpolation: arguments.Interpolation = "nearest",
        p: float = 0.5,
    ) -> None:
        self.kernel_size, self.angle, self.direction = kernel_size, angle, direction
        self.padding_mode, self.interpolation = padding_mode, interpolation
        self.p = arguments.probability("p", p)
        self._sizes = odd_sizes("kernel_size", kernel_size, 3)
        self._angles = arguments.either_way("angle", angle)
        self._directions = arguments.either_way("direction", direction)
        if not -1.0 <= self._directions[0] <= self._directions[1] <= 1.0:
            raise TransformError(f"direction is within [-1, 1], not {direction!r}")
        self._border = arguments.border(padding_mode)
        self._filter = arguments.interpolation(interpolation)
        if self._filter == Filter.BICUBIC:
            raise TransformError("interpolation is 'nearest' or 'bilinear' for MotionBlur, not 'bicubic'")

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        low, high = self._sizes
        return {
            "size": 2 * rng.integers(low // 2, high // 2) + 1,
            "angle": rng.uniform(None, *self._angles),
            "direction": rng.uniform(None, *self._directions),
        }

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        taps = motion_taps(params["size"], params["angle"], params["direction"], self._filter)
        plan.stencil(taps, border=self._border, where=where)


class MedianBlur(RandomTransform):
    """The median of each channel around each pixel; beyond the edge its pixels repeat, as OpenCV has it.

    Args:
        kernel_size: 3, 5 or 7 pixels on a side; or (lowest, highest), drawn from those.
        p: the probability with which it acts on a sample.
    """

    def __init__(self, kernel_size: int | Sequence[int] = 3, p: float = 0.5) -> None:
        self.kernel_size = kernel_size
        self._sizes = odd_sizes("kernel_size", kernel_size, MEDIAN_SIZES[0], MEDIAN_SIZES[-1])
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        low, high = self._sizes
        return {"size": 2 * rng.integers(low // 2, high // 2) + 1}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.median(params["size"], where=where)


class Downscale(RandomTransform):
    """Shrinks by a factor and enlarges to the size it was, as Albumentations' Downscale.

    Args:
        scale_range: (lower, upper), above 0 and up to 1, of the factor drawn for each sample.
        interpolation_pair: the interpolations, neither antialiased, by the names "downscale" and "upscale".
        p: the probability with which it acts on a sample.
    """

    def __init__(
        self,
        scale_range: Sequence[float] = (0.25, 0.25),
        interpolation_pair: Mapping[str, Any] = {"downscale": "nearest", "upscale": "nearest"},
        p: float = 0.5,
    ) -> None:
        self.scale_range = arguments.span("scale_range", scale_range, high=1.0)
        if self.scale_range[0] == 0.0:
            raise TransformError(f"scale_range is above 0, not {scale_range!r}")
        if not isinstance(interpolation_pair, Mapping) or set(interpolation_pair) != {"downscale", "upscale"}:
            raise TransformError(f"interpolation_pair has 'downscale' and 'upscale', not {interpolation_pair!r}")
        self.interpolation_pair = dict(interpolation_pair)
        self._filters = [arguments.interpolation(interpolation_pair[name]) for name in ("downscale", "upscale")]
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"scale": rng.uniform(None, *self.scale_range)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        heights, widths = plan.sizes
        small = [np.maximum(np.rint(size * params["scale"]), 1).astype(np.int64) for size in (heights, widths)]
        down, up = self._filters
        plan.resize(*small, filter=down, antialias=False, where=where)
        plan.barrier(where)  # two interpolations, not one
        plan.resize(heights, widths, filter=up, antialias=False, where=where)


class JPEG(Transform):
    """Encodes as JPEG (baseline, 4:2:0) and decodes again, bit for bit as libjpeg, Pillow and torchvision do.

    Args:
        quality: 1 ... 100, or (lowest, highest), drawn for each sample.
    """

    def __init__(self, quality: int | Sequence[int]) -> None:
        numbers = arguments.values(quality, arguments.index)
        if len(numbers) not in (1, 2) or not 1 <= numbers[0] <= numbers[-1] <= 100:
            raise TransformError(f"quality is from 1 to 100, or (lowest, highest) of two, not {quality!r}")
        self.quality = numbers[0], numbers[-1]

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"quality": rng.integers(*self.quality)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.jpeg(params["quality"], where=where)
