"""Filters: blur, sharpness, lower resolution and JPEG compression. Noise, drawn for each pixel of each sample.

Each filter begins a pass; later operations fold into it. Values are not rounded after a filter, except by `JPEG`, whose
codec rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.plan import Filter, Plan, operations
from cuaug.plan.filter_passes import MEDIAN_SIZES
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import RandomTransform, Transform, Where


def keep_gray(plan: Plan, where: Where) -> None:
    """Copy the first channel's noise to all channels of gray images, which the kernels see as three channels."""
    if plan.channels == 1:
        plan.append(operations.first_channel(len(plan)), where)


class GaussianNoise(Transform):
    """Add Gaussian noise to the image.

    Args:
        mean: mean of the noise, as a share of white: 0.1 is 0.1 on floats and 25.5 levels on uint8.
        sigma: standard deviation of the noise, as a share of white; or (lower, upper), to draw from.
        clip: saturate to [black, white]. uint8 images saturate at the end of the chain anyway.
    """

    def __init__(self, mean: float = 0.0, sigma: float | Sequence[float] = 0.1, clip: bool = True) -> None:
        self.mean = parameters.number("mean", mean)
        self.sigma = sigma
        self.clip = clip
        self._sigma = parameters.number_or_bounds("sigma", sigma)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"keys": rng.keys(), "sigma": rng.uniform(None, *self._sigma)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        mean, sigma = plan.limit * self.mean, plan.limit * params["sigma"]
        limit = plan.limit if self.clip else -1.0
        plan.append(operations.noise(len(plan), limit, plan.keys_per_frame(params["keys"]), mean, sigma), where)
        keep_gray(plan, where)


class SaltAndPepper(RandomTransform):
    """Set random pixels to white or black with probability `p` (Albumentations).

    Args:
        amount: (lower, upper) bounds of the expected share of such pixels.
        salt_vs_pepper: (lower, upper) bounds of the share of white pixels among them.
        p: probability, per sample.
    """

    def __init__(
        self,
        amount: Sequence[float] = (0.01, 0.06),
        salt_vs_pepper: Sequence[float] = (0.4, 0.6),
        p: float = 0.5,
    ) -> None:
        self.amount = parameters.bounds("amount", amount, high=1.0)
        self.salt_vs_pepper = parameters.bounds("salt_vs_pepper", salt_vs_pepper, high=1.0)
        self.p = parameters.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        amount, salt = rng.uniform(None, *self.amount), rng.uniform(None, *self.salt_vs_pepper)
        return {"amount": amount, "pepper": amount * (1.0 - salt), "keys": rng.keys()}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        # Both operations use the same draws: a pixel below `amount` becomes white, a pixel below `pepper` then black.
        keys = plan.keys_per_frame(params["keys"])
        for ratio, color in ((params["amount"], plan.limit), (params["pepper"], 0.0)):
            plan.append(operations.mask(len(plan), ratio, keys, color), where)


class ShotNoise(RandomTransform):
    """Add photon noise to the image with probability `p` (Albumentations).

    Linear light, v ** 2.2, is replaced by a Poisson draw with that mean.

    Args:
        scale_range: (lower, upper) bounds, above 0, of the light of one photon, as a share of white. 0.1 leaves white
            about ten photons.
        p: probability, per sample.
    """

    def __init__(self, scale_range: Sequence[float] = (0.1, 0.3), p: float = 0.5) -> None:
        self.scale_range = parameters.bounds("scale_range", scale_range, low=1e-6)
        self.p = parameters.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"keys": rng.keys(), "scale": rng.uniform(None, *self.scale_range)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        keys = plan.keys_per_frame(params["keys"])
        plan.append(operations.shot_noise(len(plan), plan.limit, keys, params["scale"]), where)
        keep_gray(plan, where)


def gaussian_weights(size: int, sigma: ArrayLike) -> NDArray[np.float64]:
    """(N, size): the Gaussian kernels of torchvision and OpenCV, for N sigmas in pixels."""
    x = np.arange(size) - (size - 1) / 2
    weights = np.exp(-((x / np.reshape(sigma, (-1, 1))) ** 2) / 2)
    return weights / weights.sum(axis=1, keepdims=True)


# Pillow's smoothing kernel: eight 1s around a 5.
_SMOOTH = np.array([(dy, dx, (1.0 if dy or dx else 5.0) / 13.0) for dy in (-1, 0, 1) for dx in (-1, 0, 1)])


def sharpness_taps(factor: ArrayLike) -> NDArray[np.float64]:
    """(N, 9, 3) taps (dy, dx, weight): factor * image + (1 - factor) * smoothed image."""
    smooth_weight = 1.0 - np.reshape(factor, -1).astype(np.float64)
    taps = np.repeat(_SMOOTH[None], len(smooth_weight), axis=0)
    taps[:, :, 2] *= smooth_weight[:, None]
    taps[:, 4, 2] += 1.0 - smooth_weight
    return taps


def motion_taps(
    size: NDArray[np.int64], angle_degrees: NDArray[np.float64], direction: NDArray[np.float64], filter: Filter
) -> NDArray[np.float64]:
    """(N, K, 3) taps (dy, dx, weight): Kornia's motion kernels, lines rotated counter-clockwise; weights sum to 1."""
    radius = int(size.max(initial=1)) // 2
    dy, dx = (axis.reshape(-1) - radius for axis in np.mgrid[: 2 * radius + 1, : 2 * radius + 1])
    angle = np.radians(angle_degrees)[:, None]
    # Position relative to the line before rotation. Rounded, so that ties fall alike on every platform.
    along = np.round(np.cos(angle) * dx - np.sin(angle) * dy, 9)
    across = np.round(np.sin(angle) * dx + np.cos(angle) * dy, 9)
    half = (size // 2)[:, None]
    start = (np.clip(direction, -1.0, 1.0)[:, None] + 1.0) / 2.0

    def line_weight(k: NDArray[Any]) -> NDArray[np.float64]:
        """The weight of the line's pixel k, counted from its center."""
        inside = np.abs(k) <= half
        return np.where(inside, start + (1.0 - 2.0 * start) * (k + half) / (2 * half), 0.0)

    if filter == Filter.NEAREST:
        weights = line_weight(np.rint(along)) * (np.rint(across) == 0)
    else:
        low = np.floor(along)
        weights = line_weight(low) * (1.0 - (along - low)) + line_weight(low + 1) * (along - low)
        weights = weights * np.maximum(1.0 - np.abs(across), 0.0)
    weights = weights * ((np.abs(dy) <= half) & (np.abs(dx) <= half))
    weights = weights / weights.sum(axis=1, keepdims=True)
    return np.stack(np.broadcast_arrays(dy, dx, weights), axis=-1).astype(np.float64)


def odd_sizes(value: int | Sequence[int], low: int, high: int | None = None) -> tuple[int, int]:
    """(smallest, largest) odd `kernel_size` from one odd number or two."""
    sizes = parameters.numbers(value, parameters.to_int)
    upper = float("inf") if high is None else high
    if len(sizes) not in (1, 2) or not all(n % 2 for n in sizes) or not low <= sizes[0] <= sizes[-1] <= upper:
        allowed = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise TransformError(f"kernel_size must be an odd number {allowed}, or (lowest, highest) of two, not {value!r}")
    return sizes[0], sizes[-1]


class GaussianBlur(Transform):
    """Blur the image with a Gaussian of random standard deviation.

    The image is mirrored at its edges.

    Args:
        kernel_size: odd kernel size in pixels, or (x, y).
        sigma: standard deviation in pixels, or (lower, upper) to draw from.
    """

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        sizes = parameters.numbers(kernel_size, parameters.to_int)
        if len(sizes) not in (1, 2) or any(n < 1 or n % 2 == 0 for n in sizes):
            raise TransformError(
                f"kernel_size must be an odd number of at least 1, or (x, y) of two, not {kernel_size!r}"
            )
        self.kernel_size = sizes[0], sizes[-1]
        self.sigma = parameters.number_or_bounds("sigma", sigma)
        if self.sigma[0] == 0.0:
            raise TransformError(f"sigma must be above 0, not {sigma!r}")

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"sigma": rng.uniform(None, *self.sigma)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        across, down = (gaussian_weights(size, params["sigma"]) for size in self.kernel_size)
        plan.convolve(down, across, where=where)


class RandomAdjustSharpness(RandomTransform):
    """Adjust the sharpness of the image with probability `p`.

    Formula: factor * image + (1 - factor) * smoothed image. The outermost pixels are unchanged.

    Args:
        sharpness_factor: 0 or more. 0 is the smoothed image, 1 the image itself, 2 a sharper one.
        p: probability, per sample.
    """

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        self.sharpness_factor = parameters.number("sharpness_factor", sharpness_factor, 0)
        self.p = parameters.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.stencil(sharpness_taps(self.sharpness_factor)[0], frame=1, saturate=True, where=where)


class MotionBlur(RandomTransform):
    """Blur the image along a line with probability `p` (Kornia's `RandomMotionBlur`).

    Args:
        kernel_size: length of the line in pixels, odd and at least 3; or (lowest, highest), to draw odd numbers from.
        angle: angle of the line in degrees, counter-clockwise. A number v draws from [-v, v], (lower, upper) from that.
        direction: weight along the line: -1 and 1 weight one end most, 0 is uniform. A number or (lower, upper), as
            `angle`.
        padding_mode: border beyond the image, as for `Pad`; "constant" is black.
        interpolation: "nearest" or "bilinear", to rotate the line.
        p: probability, per sample.
    """

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        angle: float | Sequence[float],
        direction: float | Sequence[float],
        padding_mode: str = "constant",
        interpolation: parameters.Interpolation = "nearest",
        p: float = 0.5,
    ) -> None:
        self.kernel_size, self.angle, self.direction = kernel_size, angle, direction
        self.padding_mode, self.interpolation = padding_mode, interpolation
        self.p = parameters.probability("p", p)
        self._sizes = odd_sizes(kernel_size, 3)
        self._angles = parameters.symmetric_bounds("angle", angle)
        self._directions = parameters.symmetric_bounds("direction", direction)
        if not -1.0 <= self._directions[0] <= self._directions[1] <= 1.0:
            raise TransformError(f"direction must be within [-1, 1], not {direction!r}")
        self._border = parameters.border(padding_mode)
        self._filter = parameters.warp_filter(interpolation)
        if self._filter == Filter.BICUBIC:
            raise TransformError("interpolation must be 'nearest' or 'bilinear' for MotionBlur, not 'bicubic'")

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
    """Replace each value by the median of its neighborhood with probability `p`.

    Channels are filtered separately. Edge pixels are replicated beyond the edge, as in OpenCV.

    Args:
        kernel_size: 3, 5 or 7 pixels per side; or (lowest, highest), to draw from.
        p: probability, per sample.
    """

    def __init__(self, kernel_size: int | Sequence[int] = 3, p: float = 0.5) -> None:
        self.kernel_size = kernel_size
        self._sizes = odd_sizes(kernel_size, MEDIAN_SIZES[0], MEDIAN_SIZES[-1])
        self.p = parameters.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        low, high = self._sizes
        return {"size": 2 * rng.integers(low // 2, high // 2) + 1}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.median(params["size"], where=where)


class Downscale(RandomTransform):
    """Shrink the image and enlarge it again with probability `p` (Albumentations).

    Args:
        scale_range: (lower, upper) bounds of the factor, above 0 and at most 1.
        interpolation_pair: the "downscale" and "upscale" interpolation. Neither antialiases.
        p: probability, per sample.
    """

    def __init__(
        self,
        scale_range: Sequence[float] = (0.25, 0.25),
        interpolation_pair: Mapping[str, Any] = {"downscale": "nearest", "upscale": "nearest"},
        p: float = 0.5,
    ) -> None:
        self.scale_range = parameters.bounds("scale_range", scale_range, high=1.0)
        if self.scale_range[0] == 0.0:
            raise TransformError(f"scale_range must be above 0, not {scale_range!r}")
        if not isinstance(interpolation_pair, Mapping) or set(interpolation_pair) != {"downscale", "upscale"}:
            raise TransformError(
                f"interpolation_pair must have the keys 'downscale' and 'upscale', not {interpolation_pair!r}"
            )
        self.interpolation_pair = dict(interpolation_pair)
        self._filters = [
            parameters.resize_filter(interpolation_pair[name], antialias=False)[0] for name in ("downscale", "upscale")
        ]
        self.p = parameters.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"scale": rng.uniform(None, *self.scale_range)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        heights, widths = plan.sizes
        small = [np.maximum(np.rint(size * params["scale"]), 1).astype(np.int64) for size in (heights, widths)]
        down, up = self._filters
        plan.resize(*small, filter=down, antialias=False, as_opencv=True, where=where)
        plan.barrier(where)  # two interpolations, not one
        plan.resize(heights, widths, filter=up, antialias=False, as_opencv=True, where=where)


class JPEG(Transform):
    """Compress the image as JPEG and decode it again.

    Baseline, 4:2:0 chroma. The result equals libjpeg's, Pillow's and torchvision's, bit for bit.

    Args:
        quality: from 1 to 100, or (lowest, highest), to draw from.
    """

    def __init__(self, quality: int | Sequence[int]) -> None:
        qualities = parameters.numbers(quality, parameters.to_int)
        if len(qualities) not in (1, 2) or not 1 <= qualities[0] <= qualities[-1] <= 100:
            raise TransformError(f"quality must be from 1 to 100, or (lowest, highest) of two, not {quality!r}")
        self.quality = qualities[0], qualities[-1]

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"quality": rng.integers(*self.quality)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.jpeg(params["quality"], where=where)
