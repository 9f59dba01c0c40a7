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

__all__ = ["RandomResize", "RandomShortestSize", "Resize", "ScaleJitter"]

Sizes = NDArray[np.int64]


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
        if self.size is not None and len(parameters.numbers(size, int)) == 1:
            self.size = self.size[0]
        self.max_size = None if max_size is None else parameters.integer("max_size", max_size, 1, parameters.MAX_SIDE)
        if self.max_size is None:
            if self.size is None:
                raise TransformError("max_size must be given if size is None")
        elif isinstance(self.size, tuple) or (self.size is not None and self.max_size <= self.size):
            raise TransformError(f"max_size ({max_size}) needs a single size that is smaller, not {size!r}")

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        return self.resized(heights, widths)

    def resized(self, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        """The new height and width, (N,) each, for images of these heights and widths."""
        if isinstance(self.size, tuple):
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
