"""Hiding parts of the image: rectangles and single pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.errors import TransformError
from cuaug.plan import Plan, operations
from cuaug.random import Draws
from cuaug.transforms import arguments
from cuaug.transforms.base import RandomTransform, Where

__all__ = ["RandomErasing", "RandomMask"]


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
        self.inplace = inplace
        self.value = value
        if isinstance(value, str) and value != "random":
            raise TransformError(f"value is a number, one per channel, or 'random', not {value!r}")
        self._color = None if isinstance(value, str) else arguments.color("value", value)

    def make_params(self, draws: Draws, heights: Any, widths: Any) -> dict[str, Any]:
        area = (heights * widths)[:, None] * draws.uniform(self._TRIES, *self.scale)
        aspect = np.exp(draws.uniform(self._TRIES, *np.log(self.ratio)))
        place = draws.uniform(2)
        h, w = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
        fits = (h > 0) & (w > 0) & (h < heights[:, None]) & (w < widths[:, None])
        first, everyone = fits.argmax(axis=1), np.arange(len(heights))
        found = fits.any(axis=1)
        height, width = np.where(found, h[everyone, first], 0), np.where(found, w[everyone, first], 0)
        top = np.floor(place[:, 0] * (heights - height + 1))
        left = np.floor(place[:, 1] * (widths - width + 1))
        return {"rectangle": np.stack([top, left, top + height, left + width], axis=1), "keys": draws.keys()}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        rectangle, keys = params["rectangle"], params["keys"]
        if self._color is not None:
            plan.check_channels("value", self._color)
            ops = operations.erase(len(plan), rectangle, self._color)
        else:
            mean, std = (0.0, 1.0) if plan.is_float else (127.5, 63.75)
            ops = operations.erase_with_noise(len(plan), rectangle, keys, mean, std)
        plan.append(ops, where)


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

    def make_params(self, draws: Draws, heights: Any, widths: Any) -> dict[str, Any]:
        return {"keys": draws.keys()}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.check_channels("fill", self._fill)
        plan.append(operations.mask(len(plan), self.ratio, params["keys"], self._fill), where)
