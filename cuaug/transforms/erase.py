"""Masking transforms: erase rectangles, single pixels or the squares of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.errors import TransformError
from cuaug.plan import Plan, operations
from cuaug.plan.regions import first_window
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import RandomTransform, Where
from cuaug.transforms.filters import keep_gray


class RandomErasing(RandomTransform):
    """Erase a random rectangle with probability `p` (Zhong et al. 2017).

    Args:
        p: probability, per sample.
        scale: (lower, upper) bounds of the rectangle's share of the image's area.
        ratio: (lower, upper) bounds of its height / width, drawn uniformly on a logarithmic scale.
        value: a number or one per channel, in image units at this point of the chain; or "random": normal noise for
            each pixel and channel, with mean 0 and deviation 1 on floats, 127.5 and 63.75 on uint8.
        inplace: accepted for torchvision's sake; the input is never written to.
    """

    _TRIES = 10  # as torchvision; if no rectangle fits, the image is unchanged

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0,
        inplace: bool = False,
    ) -> None:
        self.p = parameters.probability("p", p)
        self.scale = parameters.bounds("scale", scale, high=1.0)
        self.ratio = parameters.bounds("ratio", ratio, low=1e-6)
        self._log_ratio = np.log(self.ratio).tolist()
        self.inplace = inplace
        self.value = value
        if isinstance(value, str) and value != "random":
            raise TransformError(f"value must be a number, one per channel, or 'random', not {value!r}")
        self._color = None if isinstance(value, str) else parameters.fill("value", value)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        area = rng.uniform(self._TRIES, *self.scale)
        log_ratio = rng.uniform(self._TRIES, *self._log_ratio)
        place = rng.uniform(2)
        # first_window takes width / height, so height and width swap. margin=1: sides are shorter than the image's.
        window, _ = first_window(area, log_ratio, place[:, ::-1], widths, heights, margin=1)
        window[2:] += window[:2]
        left, top, right, bottom = window
        return {"rectangle": np.array([top, left, bottom, right]).T, "keys": rng.keys()}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        rectangle, keys = params["rectangle"], params["keys"]
        if self._color is not None:
            color = plan.of_channels("value", self._color)
            plan.append(operations.erase(len(plan), rectangle, color), where)
        else:
            mean, std = (0.0, 1.0) if plan.is_float else (127.5, 63.75)
            plan.append(operations.erase_with_noise(len(plan), rectangle, keys, mean, std), where)
            keep_gray(plan, where)


class RandomMask(RandomTransform):
    """Mask random pixels of the image with probability `p`.

    Args:
        ratio: probability of each pixel, independent of its neighbors.
        fill: value of masked pixels: a number or one per channel, in image units.
        p: probability, per sample.
    """

    def __init__(self, ratio: float = 0.5, fill: parameters.Fill = 0, p: float = 1.0) -> None:
        self.ratio = parameters.probability("ratio", ratio)
        self.fill = fill
        self.p = parameters.probability("p", p)
        self._fill = parameters.fill("fill", fill)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"keys": rng.keys()}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        fill = plan.of_channels("fill", self._fill)
        plan.append(operations.mask(len(plan), self.ratio, params["keys"], fill), where)


class CoarseDropout(RandomTransform):
    """Erase random rectangles inside the image with probability `p` (Albumentations).

    Args:
        num_holes_range: (fewest, most) rectangles per sample, both inclusive.
        hole_height_range, hole_width_range: (lower, upper) bounds of each rectangle's sides: in pixels if both are
            integers, otherwise as shares of the image's side, up to 1.
        fill: value of erased pixels: a number or one per channel, in image units.
        p: probability, per sample.
    """

    def __init__(
        self,
        num_holes_range: Sequence[int] = (1, 2),
        hole_height_range: Sequence[float] = (0.1, 0.2),
        hole_width_range: Sequence[float] = (0.1, 0.2),
        fill: parameters.Fill = 0,
        p: float = 0.5,
    ) -> None:
        self.num_holes_range = num_holes_range
        self.hole_height_range = hole_height_range
        self.hole_width_range = hole_width_range
        self.fill = fill
        self.p = parameters.probability("p", p)
        counts = parameters.numbers(num_holes_range, parameters.to_int)
        if len(counts) != 2 or not 1 <= counts[0] <= counts[1]:
            raise TransformError(
                f"num_holes_range must be (fewest, most), integers of at least 1, not {num_holes_range!r}"
            )
        self._counts = counts
        self._fill = parameters.fill("fill", fill)
        self._heights = self._sides("hole_height_range", hole_height_range)
        self._widths = self._sides("hole_width_range", hole_width_range)

    @staticmethod
    def _sides(name: str, value: Sequence[float]) -> tuple[float, float]:
        pixels = parameters.numbers(value, parameters.to_int)
        return pixels if len(pixels) == 2 and 1 <= pixels[0] <= pixels[1] else parameters.bounds(name, value, high=1.0)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        count, most = rng.integers(*self._counts), self._counts[1]

        def ends(sides: Any, bounds: tuple[float, float]) -> tuple[Any, Any]:
            """(N, most) first pixel of each rectangle along an axis, and the pixel after its last."""
            sides, length_draw, place_draw = sides[:, None], rng.uniform(most), rng.uniform(most)
            if isinstance(bounds[0], int):
                length = bounds[0] + np.floor(length_draw * (bounds[1] - bounds[0] + 1))
            else:
                length = np.rint((bounds[0] + length_draw * (bounds[1] - bounds[0])) * sides)
            length = np.clip(length, 1, sides)
            begin = np.floor(place_draw * (sides - length + 1))
            return begin, begin + length

        (top, bottom), (left, right) = ends(heights, self._heights), ends(widths, self._widths)
        return {"count": count, "rectangles": np.stack([top, left, bottom, right], axis=2)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        fill = plan.of_channels("fill", self._fill)
        for number in range(self._counts[1]):
            acts = params["count"] > number
            ops = operations.erase(len(plan), params["rectangles"][:, number], fill)
            plan.append(ops, acts if where is None else acts & where)


class GridMask(RandomTransform):
    """Mask the squares of a random grid with probability `p` (Chen et al. 2020; DALI).

    Args:
        tile: side of a grid tile in pixels, or (lower, upper) to draw from.
        ratio: side of the masked square, as a share of the tile's side; or (lower, upper) to draw from.
        angle: rotation of the grid in degrees. A number v draws from [-v, v], (lower, upper) from that.
        fill: value of masked pixels: a number or one per channel, in image units.
        p: probability, per sample.
    """

    def __init__(
        self,
        tile: float | Sequence[float] = (96, 224),
        ratio: float | Sequence[float] = 0.5,
        angle: float | Sequence[float] = 0.0,
        fill: parameters.Fill = 0,
        p: float = 0.5,
    ) -> None:
        self.tile, self.ratio, self.angle, self.fill = tile, ratio, angle, fill
        self.p = parameters.probability("p", p)
        self._tile = parameters.number_or_bounds("tile", tile, low=1.0)
        self._ratio = parameters.number_or_bounds("ratio", ratio, high=1.0)
        self._angle = parameters.symmetric_bounds("angle", angle)
        self._fill = parameters.fill("fill", fill)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {
            "tile": rng.uniform(None, *self._tile),
            "ratio": rng.uniform(None, *self._ratio),
            "angle": np.deg2rad(rng.uniform(None, *self._angle)),
            "shift": rng.uniform(2),
        }

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        fill = plan.of_channels("fill", self._fill)
        plan.append(operations.grid(len(plan), **params, fill=fill), where)
