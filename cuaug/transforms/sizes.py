"""Resizing, with torchvision's arguments, defaults and meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import Transform, Where

Sizes = NDArray[np.int64]
_MAX_RATIO = 200  # of an image's sides, in Qwen-VL's rule
_SCALE_STEP = 1e-5


class _Resize(Transform):
    """Base class: resizes to the height and width of `make_params`."""

    def __init__(self, interpolation: parameters.Interpolation, antialias: bool | None) -> None:
        self.interpolation = interpolation
        self._filter, self.antialias = parameters.resize_filter(interpolation, antialias)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.resize(**params, filter=self._filter, antialias=self.antialias, where=where)


def _oriented(is_tall: NDArray[np.bool_], short: Sizes, long: Sizes) -> dict[str, Sizes]:
    return {"height": np.where(is_tall, long, short), "width": np.where(is_tall, short, long)}


def _scaled(heights: Sizes, widths: Sizes, ratio: NDArray[np.float64]) -> dict[str, Sizes]:
    """The scaled sizes, rounded down as torchvision does, but at least 1."""
    height, width = (np.maximum(np.floor(size * ratio), 1.0).astype(np.int64) for size in (heights, widths))
    return {"height": height, "width": width}


class Resize(_Resize):
    """Resize the image to the given size.

    Args:
        size: (height, width) in pixels; or one number for the shorter side, with the longer side in proportion,
            rounded down; None: `max_size` alone decides.
        interpolation: an `InterpolationMode` or its value: "nearest" (as OpenCV), "nearest-exact" (the pixel under the
            new center, as Pillow), "bilinear", "bicubic", "box", "hamming" or "lanczos"; or Pillow's number.
        max_size: with a single number: upper bound of the longer side, with the shorter side in proportion. With None:
            length of the longer side.
        antialias: widen the filter when shrinking, as Pillow does. None is True. "box", "hamming" and "lanczos" need
            it.
    """

    def __init__(
        self,
        size: int | Sequence[int] | None,
        interpolation: parameters.Interpolation = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        super().__init__(interpolation, antialias)
        self.size: int | tuple[int, int] | None = None if size is None else parameters.size("size", size)
        if isinstance(self.size, tuple) and len(parameters.numbers(size, int)) == 1:
            self.size = self.size[0]
        self.max_size = None if max_size is None else parameters.integer("max_size", max_size, 1, parameters.MAX_SIDE)
        if self.max_size is None:
            if self.size is None:
                raise TransformError("max_size must be given if size is None")
        elif isinstance(self.size, (tuple, parameters.Bucket)) or (
            self.size is not None and self.max_size <= self.size
        ):
            raise TransformError(f"max_size ({max_size}) needs a single size that is smaller, not {size!r}")

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        return self.resized(heights, widths)

    def resized(self, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        """The new height and width, (N,) each, for images of these heights and widths."""
        if isinstance(self.size, (tuple, parameters.Bucket)):
            return {"height": np.full_like(heights, self.size[0]), "width": np.full_like(widths, self.size[1])}
        shorter, longer = np.minimum(heights, widths), np.maximum(heights, widths)
        if self.size is None:
            long = np.full(len(heights), self.max_size)
            short = np.maximum(long * shorter // longer, 1)
        else:
            short = np.full(len(heights), self.size)
            long = short * longer // shorter
            if self.max_size is not None:
                over = long > self.max_size
                short = np.where(over, np.maximum(self.max_size * short // long, 1), short)
                long = np.where(over, self.max_size, long)
        return _oriented(heights > widths, short, long)


class ResizeToCover(_Resize):
    """Resize the image to the smallest size that covers another, keeping its proportions.

    As `PIL.ImageOps.cover`, and "object-fit: cover" in CSS. A crop to `size` follows: together they fill `size` with as
    much of the image as its proportions allow. An addition to torchvision.

    Args:
        size: (height, width) to cover, in pixels, or one number for both; or `cuaug.BUCKET`.
        interpolation, antialias: as for `Resize`.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: parameters.Interpolation = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        super().__init__(interpolation, antialias)
        self.size = parameters.size("size", size)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        height, width = self.size
        is_narrow = widths / heights < width / height
        # Rounding may fall below the side to cover, by one.
        tall = np.maximum(np.rint(heights / widths * width).astype(np.int64), height)
        wide = np.maximum(np.rint(widths / heights * height).astype(np.int64), width)
        return {"height": np.where(is_narrow, tall, height), "width": np.where(is_narrow, width, wide)}


class ResizeToMultiple(_Resize):
    """Resize both sides to multiples of a number, with the proportions nearly kept, as vision-language models do.

    Both sides are rounded to the nearest multiple; an area outside the bounds is brought inside: Qwen-VL's
    `smart_resize`. With `max_size` or `max_patches` another model's rule applies.

    Args:
        of: the number in pixels: a patch's side, times the patches that are merged along a side.
        min_pixels, max_pixels: bounds of height * width; None: no bound.
        max_size: the longer side is rounded up to a multiple, at most this one; the shorter side follows in proportion,
            rounded up. nanoVLM's rule.
        max_patches: the image becomes as large as possible, in steps of 1e-5 of its size, with at most this many
            squares of `of` pixels. SigLIP 2's rule for NaFlex.
        interpolation, antialias: as for `Resize`.

    Raises:
        TransformError: a side is more than 200 times the other, which Qwen-VL refuses, too, under its own rule.
    """

    def __init__(
        self,
        of: int,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        interpolation: parameters.Interpolation = "bicubic",
        antialias: bool | None = True,
        *,
        max_size: int | None = None,
        max_patches: int | None = None,
    ) -> None:
        super().__init__(interpolation, antialias)
        most = parameters.MAX_SIDE**2
        self.of = parameters.integer("of", of, 1, parameters.MAX_SIDE)
        self.min_pixels = None if min_pixels is None else parameters.integer("min_pixels", min_pixels, 1, most)
        self.max_pixels = None if max_pixels is None else parameters.integer("max_pixels", max_pixels, self.of**2, most)
        self.max_size = (
            None if max_size is None else parameters.integer("max_size", max_size, self.of, parameters.MAX_SIDE)
        )
        self.max_patches = None if max_patches is None else parameters.integer("max_patches", max_patches, 1, most)
        rules = [min_pixels is not None or max_pixels is not None, max_size is not None, max_patches is not None]
        if sum(rules) > 1:
            raise TransformError("max_size, max_patches, and bounds of pixels are three rules: give one of them")
        if (self.min_pixels or 1) > (self.max_pixels or most):
            raise TransformError(f"min_pixels must be at most max_pixels, not {min_pixels} and {max_pixels}")
        if self.max_size is not None and self.max_size % self.of:
            raise TransformError(f"max_size must be a multiple of {self.of}, not {max_size}")

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        sides = np.stack([heights, widths])
        if self.max_size is not None:
            multiples = self._of_longest(sides, self.max_size)
        elif self.max_patches is not None:
            multiples = self._of_patches(sides, self.max_patches)
        else:
            multiples = self._of_pixels(sides)
        height, width = self.of * multiples.astype(np.int64)
        return {"height": height, "width": width}

    def _of_pixels(self, sides: Sizes) -> NDArray[np.float64]:
        ratios = sides.max(axis=0) / sides.min(axis=0)
        if (ratios > _MAX_RATIO).any():
            height, width = sides[:, ratios.argmax()]
            raise TransformError(
                f"an image of {height} x {width} pixels (height x width) is too narrow: one side is more than "
                f"{_MAX_RATIO} times the other; crop it, or leave it out"
            )
        multiples = np.rint(sides / self.of)
        area, pixels = multiples.prod(axis=0) * self.of**2, sides.prod(axis=0)
        if self.max_pixels is not None:
            smaller = np.maximum(1.0, np.floor(sides / np.sqrt(pixels / self.max_pixels) / self.of))
            multiples = np.where(area > self.max_pixels, smaller, multiples)
        larger = np.ceil(sides * np.sqrt((self.min_pixels or 1) / pixels) / self.of)
        return np.where(area < (self.min_pixels or 1), larger, multiples)

    def _of_longest(self, sides: Sizes, max_size: int) -> NDArray[np.float64]:
        longest = np.minimum(-(-sides.max(axis=0) // self.of), max_size // self.of)
        scaled = np.ceil(sides * (longest * self.of / sides.max(axis=0)) / self.of)
        return np.where(sides == sides.max(axis=0), longest, np.maximum(scaled, 1.0))

    def _of_patches(self, sides: Sizes, max_patches: int) -> NDArray[np.float64]:
        """By bisection of the scale, in the steps of Transformers' Siglip2ImageProcessor."""

        def scaled(scale: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.maximum(1.0, np.ceil(sides * scale / self.of))

        low, high = np.full(sides.shape[1], _SCALE_STEP / 10), np.full(sides.shape[1], 100.0)
        while (high - low >= _SCALE_STEP).any():
            middle = (low + high) / 2
            fits = scaled(middle).prod(axis=0) <= max_patches
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return scaled(low)


class RandomResize(_Resize):
    """Resize the image to a random size, keeping its proportions.

    Like other random resizes, it gives each image of a batch its own size. A transform such as a crop must follow.

    Args:
        min_size, max_size: bounds of the shorter side in pixels, from min_size to max_size - 1.
        interpolation, antialias: as for `Resize`.
    """

    def __init__(
        self,
        min_size: int,
        max_size: int,
        interpolation: parameters.Interpolation = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        super().__init__(interpolation, antialias)
        self.min_size = parameters.integer("min_size", min_size, 1, parameters.MAX_SIDE)
        self.max_size = parameters.integer("max_size", max_size, self.min_size + 1, parameters.MAX_SIDE)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        short = rng.integers(self.min_size, self.max_size - 1)
        long = short * np.maximum(heights, widths) // np.minimum(heights, widths)
        return _oriented(heights > widths, short, long)


class RandomShortestSize(_Resize):
    """Resize the shorter side to a random length, keeping the image's proportions.

    Args:
        min_size: lengths in pixels to draw from, or one length.
        max_size: upper bound of the longer side in pixels; None: no bound.
        interpolation, antialias: as for `Resize`.
    """

    def __init__(
        self,
        min_size: int | Sequence[int],
        max_size: int | None = None,
        interpolation: parameters.Interpolation = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        super().__init__(interpolation, antialias)
        self.min_size = list(parameters.numbers(min_size, parameters.to_int))
        if not self.min_size or not 1 <= min(self.min_size) <= max(self.min_size) <= parameters.MAX_SIDE:
            raise TransformError(
                f"min_size must be one or several lengths from 1 to {parameters.MAX_SIDE}, not {min_size!r}"
            )
        self.max_size = None if max_size is None else parameters.integer("max_size", max_size, 1, parameters.MAX_SIDE)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        short = np.array(self.min_size)[rng.integers(0, len(self.min_size) - 1)]
        ratio = short / np.minimum(heights, widths)
        if self.max_size is not None:
            ratio = np.minimum(ratio, self.max_size / np.maximum(heights, widths))
        return _scaled(heights, widths, ratio)


class ScaleJitter(_Resize):
    """Fit the image into a target size, times a random scale (Ghiasi et al. 2021).

    Args:
        target_size: (width, height) in pixels, in torchvision's order; or one number for both.
        scale_range: (lower, upper) bounds of the scale.
        interpolation, antialias: as for `Resize`.
    """

    def __init__(
        self,
        target_size: int | Sequence[int],
        scale_range: Sequence[float] = (0.1, 2.0),
        interpolation: parameters.Interpolation = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        super().__init__(interpolation, antialias)
        self.target_size = parameters.size("target_size", target_size)
        self.scale_range = parameters.bounds("scale_range", scale_range)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        width, height = self.target_size
        scale = rng.uniform(None, *self.scale_range)
        return _scaled(heights, widths, np.minimum(height / heights, width / widths) * scale)
