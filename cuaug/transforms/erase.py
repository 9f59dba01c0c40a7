"""Hiding parts of the image: rectangles, single pixels and grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.errors import TransformError
from cuaug.plan import Plan, operations
from cuaug.plan.geometry import first_window
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import RandomTransform, Where
from cuaug.transforms.noise import keep_gray

__all__ = ["CoarseDropout", "GridMask", "RandomErasing", "RandomMask"]


class RandomErasing(RandomTransform):
    """Erases a random rectangle (Zhong et al. 2017), with probability p.

    Args:
        p: probability, for each sample.
        scale: bounds of the rectangle's share of the image's area.
        ratio: bounds of its height / width; drawn uniformly on a logarithmic scale.
        value: a number or one per channel, in the units that the image has at that point; or "random": a normal draw
            for each pixel and channel, standard on float images; on uint8 with mean 127.5 and deviation 63.75.
        inplace: taken for torchvision's sake; what comes in is never written to.
    """

    _TRIES = 10  # as torchvision; an image into which none fits stays as it is

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0,
        inplace: bool = False,
    ) -> None:
        self.p = arguments.probability("p", p)
        self.scale = arguments.span("scale", scale, high=1.0)
        self.ratio = arguments.span("ratio", ratio, low=1e-6)
        self._log_ratio = np.log(self.ratio).tolist()
        self.inplace = inplace
        self.value = value
        if isinstance(value, str) and value != "random":
            raise TransformError(f"value is a number, one per channel, or 'random', not {value!r}")
        self._color = None if isinstance(value, str) else arguments.color("value", value)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        share = rng.uniform(self._TRIES, *self.scale)
        log_ratio = rng.uniform(self._TRIES, *self._log_ratio)
        place = rng.uniform(2)
        # The ratio here is height / width, so height and width change places; each side is shorter than the image's.
        window, _ = first_window(share, log_ratio, place[:, ::-1], widths, heights, margin=1)
        window[2:] += window[:2]
        left, top, right, bottom = window
        return {"rectangle": np.array([top, left, bottom, right]).T, "keys": rng.keys()}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        rectangle, keys = params["rectangle"], params["keys"]
        if self._color is not None:
            plan.check_channels("value", self._color)
            ops = operations.erase(len(plan), rectangle, self._color)
        else:
            mean, std = (0.0, 1.0) if plan.is_float else (127.5, 63.75)
            ops = operations.erase_with_noise(len(plan), rectangle, keys, mean, std)
        plan.append(ops, where)
        if self._color is None:
            keep_gray(plan, where)


class RandomMask(RandomTransform):
    """Hides each pixel with probability `ratio`, independently of its neighbours.

    Args:
        ratio: the expected share of hidden pixels.
        fill: what stands there instead, a number or one per channel, in the image's units.
        p: probability that a sample is masked at all.
    """

    def __init__(self, ratio: float = 0.5, fill: float | Sequence[float] = 0, p: float = 1.0) -> None:
        self.ratio = arguments.probability("ratio", ratio)
        self.fill = fill
        self.p = arguments.probability("p", p)
        self._fill = arguments.color("fill", fill)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"keys": rng.keys()}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.check_channels("fill", self._fill)
        plan.append(operations.mask(len(plan), self.ratio, params["keys"], self._fill), where)


class CoarseDropout(RandomTransform):
    """Hides rectangles of random sizes, anywhere inside the image; how many is drawn too (Albumentations' names).

    Args:
        num_holes_range: (fewest, most) rectangles, drawn for each sample.
        hole_height_range, hole_width_range: (lower, upper) bounds of each rectangle's sides, drawn for each: in pixels
            where both are integers, else as parts of the image's side, up to 1.
        fill: what stands there instead, a number or one per channel, in the image's units.
        p: probability, for each sample.
    """

    def __init__(
        self,
        num_holes_range: Sequence[int] = (1, 2),
        hole_height_range: Sequence[float] = (0.1, 0.2),
        hole_width_range: Sequence[float] = (0.1, 0.2),
        fill: float | Sequence[float] = 0,
        p: float = 0.5,
    ) -> None:
        self.num_holes_range = num_holes_range
        self.hole_height_range = hole_height_range
        self.hole_width_range = hole_width_range
        self.fill = fill
        self.p = arguments.probability("p", p)
        numbers = arguments.values(num_holes_range, arguments.index)
        if len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1]:
            raise TransformError(f"num_holes_range is (fewest, most), integers of at least 1, not {num_holes_range!r}")
        self._counts = numbers
        self._fill = arguments.color("fill", fill)
        self._heights = self._sides("hole_height_range", hole_height_range)
        self._widths = self._sides("hole_width_range", hole_width_range)

    @staticmethod
    def _sides(name: str, value: Sequence[float]) -> tuple[float, float]:
        pixels = arguments.values(value, arguments.index)
        return pixels if len(pixels) == 2 and 1 <= pixels[0] <= pixels[1] else arguments.span(name, value, high=1.0)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        count, most = rng.integers(*self._counts), self._counts[1]

        def along(sides: Any, bounds: tuple[float, float]) -> tuple[Any, Any]:
            """(N, most): where each rectangle begins and ends."""
            sides, unit, place = sides[:, None], rng.uniform(most), rng.uniform(most)
            if isinstance(bounds[0], int):
                length = bounds[0] + np.floor(unit * (bounds[1] - bounds[0] + 1))
            else:
                length = np.rint((bounds[0] + unit * (bounds[1] - bounds[0])) * sides)
            length = np.clip(length, 1, sides)
            begin = np.floor(place * (sides - length + 1))
            return begin, begin + length

        (top, bottom), (left, right) = along(heights, self._heights), along(widths, self._widths)
        return {"count": count, "rectangles": np.stack([top, left, bottom, right], axis=2)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.check_channels("fill", self._fill)
        for number in range(self._counts[1]):
            has = params["count"] > number
            ops = operations.erase(len(plan), params["rectangles"][:, number], self._fill)
            plan.append(ops, has if where is None else has & where)


class GridMask(RandomTransform):
    """Hides a square of each tile of a grid that lies at a random place (Chen et al. 2020; DALI's names).

    Args:
        tile: side of the grid's tiles in pixels; (lower, upper) is drawn from for each sample.
        ratio: side of the hidden square, as a part of the tile's; (lower, upper) is drawn from.
        angle: by which the grid is turned, in degrees; a number v draws from [-v, v], (lower, upper) from that.
        fill: what stands there instead, a number or one per channel, in the image's units.
        p: probability, for each sample.
    """

    def __init__(
        self,
        tile: float | Sequence[float] = (96, 224),
        ratio: float | Sequence[float] = 0.5,
        angle: float | Sequence[float] = 0.0,
        fill: float | Sequence[float] = 0,
        p: float = 0.5,
    ) -> None:
        self.tile, self.ratio, self.angle, self.fill = tile, ratio, angle, fill
        self.p = arguments.probability("p", p)
        self._tile = arguments.one_or_span("tile", tile, low=1.0)
        self._ratio = arguments.one_or_span("ratio", ratio, high=1.0)
        self._angle = arguments.either_way("angle", angle)
        self._fill = arguments.color("fill", fill)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {
            "tile": rng.uniform(None, *self._tile),
            "ratio": rng.uniform(None, *self._ratio),
            "angle": np.deg2rad(rng.uniform(None, *self._angle)),
            "shift": rng.uniform(2),
        }

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.check_channels("fill", self._fill)
        plan.append(operations.grid(len(plan), **params, fill=self._fill), where)
