"""Resizing to a size or a random one. Arguments, defaults and meaning are torchvision's, drawn for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import Transform, Where

__all__ = ["RandomResize", "RandomShortestSize", "Resize", "ScaleJitter"]

Sizes = NDArray[np.int64]


def _upright(tall: NDArray[np.bool_], short: Sizes, long: Sizes) -> dict[str, Sizes]:
    return {"height": np.where(tall, long, short), "width": np.where(tall, short, long)}


class _Resizes(Transform):
    """Resamples to what `make_params` finds."""

    def __init__(self, interpolation: arguments.Interpolation, antialias: bool | None) -> None:
        self.interpolation = interpolation
        self.antialias = arguments.antialias(antialias)
        self._filter = arguments.interpolation(interpolation)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.resize(**params, filter=self._filter, antialias=self.antialias, where=where)


class Resize(_Resizes):
    """Resizes to `size`.

    Args:
        size: (height, width), or one number for the shorter side, the longer in proportion (rounded down); None:
            `max_size` decides alone.
        interpolation: "nearest", "bilinear" or "bicubic".
        max_size: with a single number: the longer side is at most this, the shorter in proportion. With None: the
            longer side is this.
        antialias: widen the filter when shrinking, as Pillow does. None is True.
    """

    def __init__(
        self,
        size: int | Sequence[int] | None,
        interpolation: arguments.Interpolation = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        super().__init__(interpolation, antialias)
        self.size: int | tuple[int, int] | None = None if size is None else arguments.pair("size", size)
        if self.size is not None and len(arguments.values(size, int)) == 1:
            self.size = self.size[0]
        self.max_size = None if max_size is None else arguments.whole("max_size", max_size, 1, arguments.MAX_SIDE)
        if self.max_size is None:
            if self.size is None:
                raise TransformError("size is None: then max_size must be given")
        elif isinstance(self.size, tuple) or (self.size is not None and self.max_size <= self.size):
            raise TransformError(f"max_size ({max_size}) goes with a single size smaller than it, not {size!r}")

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        return self.resized(heights, widths)

    def resized(self, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        """The height and width that images of these heights and widths are resized to."""
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
        return _upright(heights > widths, short, long)


class RandomResize(_Resizes):
    """Resizes the shorter side to a random length, the longer in proportion.

    The images of a batch come out with sizes of their own, here as in the other random resizes: something must follow
    that gives them one size, a crop for instance.

    Args:
        min_size, max_size: the shorter side is drawn from min_size ... max_size - 1, in pixels.
        interpolation, antialias: as for `Resize`.
    """

    def __init__(
        self,
        min_size: int,
        max_size: int,
        interpolation: arguments.Interpolation = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        super().__init__(interpolation, antialias)
        self.min_size = arguments.whole("min_size", min_size, 1, arguments.MAX_SIDE)
        self.max_size = arguments.whole("max_size", max_size, self.min_size + 1, arguments.MAX_SIDE)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        short = rng.integers(self.min_size, self.max_size - 1)
        return _upright(heights > widths, short, short * np.maximum(heights, widths) // np.minimum(heights, widths))


def _scaled(heights: Sizes, widths: Sizes, ratio: NDArray[np.float64]) -> dict[str, Sizes]:
    """Rounded down as torchvision does, but never to nothing."""
    height, width = (np.maximum(np.floor(size * ratio), 1.0).astype(np.int64) for size in (heights, widths))
    return {"height": height, "width": width}


class RandomShortestSize(_Resizes):
    """Resizes the shorter side to one of several lengths, but the longer to at most `max_size`.

    Args:
        min_size: lengths in pixels, each as likely, or one.
        max_size: bound of the longer side, in pixels; the shorter follows. None: no bound.
        interpolation, antialias: as for `Resize`.
    """

    def __init__(
        self,
        min_size: int | Sequence[int],
        max_size: int | None = None,
        interpolation: arguments.Interpolation = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        super().__init__(interpolation, antialias)
        self.min_size = list(arguments.values(min_size, arguments.index))
        if not self.min_size or not 1 <= min(self.min_size) <= max(self.min_size) <= arguments.MAX_SIDE:
            raise TransformError(f"min_size is a length from 1 to {arguments.MAX_SIDE}, or several, not {min_size!r}")
        self.max_size = None if max_size is None else arguments.whole("max_size", max_size, 1, arguments.MAX_SIDE)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        short = np.array(self.min_size)[rng.integers(0, len(self.min_size) - 1)]
        ratio = short / np.minimum(heights, widths)
        if self.max_size is not None:
            ratio = np.minimum(ratio, self.max_size / np.maximum(heights, widths))
        return _scaled(heights, widths, ratio)


class ScaleJitter(_Resizes):
    """Resizes so as to fit into `target_size`, times a random scale (Ghiasi et al. 2021).

    Args:
        target_size: (width, height), in the order that torchvision has here; one number for both.
        scale_range: bounds of the scale.
        interpolation, antialias: as for `Resize`.
    """

    def __init__(
        self,
        target_size: int | Sequence[int],
        scale_range: Sequence[float] = (0.1, 2.0),
        interpolation: arguments.Interpolation = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        super().__init__(interpolation, antialias)
        self.target_size = arguments.pair("target_size", target_size)
        self.scale_range = arguments.span("scale_range", scale_range)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        width, height = self.target_size
        scale = rng.uniform(None, *self.scale_range)
        return _scaled(heights, widths, np.minimum(height / heights, width / widths) * scale)
