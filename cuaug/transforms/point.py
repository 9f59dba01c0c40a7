"""Point operations with probability p: each value by itself, or by what its channel holds in the whole image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuaug.errors import TransformError
from cuaug.plan import Plan, operations
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import RandomTransform, Where

__all__ = [
    "CLAHE",
    "RandomAutocontrast",
    "RandomEqualize",
    "RandomGamma",
    "RandomInvert",
    "RandomPosterize",
    "RandomSolarize",
]


class RandomGamma(RandomTransform):
    """gain * v ** gamma, where black is 0 and white 1, saturated.

    Args:
        gamma, gain: (lower, upper) bounds, 0 or more; drawn for each sample. A gamma below 1 brightens.
        p: probability, for each sample.
    """

    def __init__(self, gamma: Sequence[float] = (1.0, 1.0), gain: Sequence[float] = (1.0, 1.0), p: float = 1.0) -> None:
        self.gamma = arguments.span("gamma", gamma)
        self.gain = arguments.span("gain", gain)
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"gamma": rng.uniform(None, *self.gamma), "gain": rng.uniform(None, *self.gain)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.gamma(len(plan), plan.limit, **params), where)


class RandomPosterize(RandomTransform):
    """Keeps the upper `bits` bits of each level, with probability p.

    Floats become the lower end of each of 2**bits equal steps, as in torchvision: white becomes less than 1.

    Args:
        bits: from 0 to 8.
        p: probability, for each sample.
    """

    def __init__(self, bits: int, p: float = 0.5) -> None:
        self.bits = arguments.whole("bits", bits, 0, 8)
        self.p = arguments.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.posterize(len(plan), plan.limit, self.bits), where)


class RandomSolarize(RandomTransform):
    """Inverts all values from `threshold` on, with probability p; `threshold` is in the image's units at that point."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        self.threshold = arguments.number("threshold", threshold)
        self.p = arguments.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if self.threshold > plan.limit:
            raise TransformError(
                f"threshold {self.threshold:g} is above the image's white, {plan.limit:g}: nothing would be inverted"
            )
        plan.append(operations.solarize(len(plan), plan.limit, self.threshold), where)


class RandomInvert(RandomTransform):
    """The negative, with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = arguments.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.invert(len(plan), plan.limit), where)


class RandomAutocontrast(RandomTransform):
    """Stretches each channel so that its least value becomes black and its greatest white, with probability p.

    A channel of one value only stays as it is.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = arguments.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.autocontrast(len(plan), plan.limit), where)


class RandomEqualize(RandomTransform):
    """Spreads each channel's levels evenly (its histogram is equalized), with probability p.

    By Pillow's formula, of the nearest uint8 levels. A channel with fewer than 255 pixels that are darker than its
    brightest level stays as it is.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = arguments.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.equalize(len(plan), plan.limit), where)


class CLAHE(RandomTransform):
    """Contrast-limited adaptive histogram equalization of each channel, with probability p.

    OpenCV's algorithm, of the nearest uint8 levels: uint8 images become its bytes; where more follows, or floats are
    asked for, values are not rounded. Channels are treated apart, as in Kornia's `equalize_clahe`; Albumentations
    equalizes the L of CIELAB.

    Args:
        clip_limit: (lower, upper) bounds, 1 or more, drawn for each sample, or a number v for (1, v): how often a level
            may count in a cell, as a multiple of the mean.
        tile_grid_size: cells (across, down), as OpenCV has it.
        p: probability, for each sample.
    """

    def __init__(
        self, clip_limit: float | Sequence[float] = 4.0, tile_grid_size: Sequence[int] = (8, 8), p: float = 0.5
    ) -> None:
        numbers = arguments.values(clip_limit, float)
        self.clip_limit = arguments.span("clip_limit", (1.0, *numbers) if len(numbers) == 1 else clip_limit, low=1.0)
        cells = arguments.values(tile_grid_size, arguments.index)
        if len(cells) != 2 or not all(1 <= number <= 64 for number in cells):
            raise TransformError(f"tile_grid_size is (across, down), two integers from 1 to 64, not {tile_grid_size!r}")
        self.tile_grid_size = cells[0], cells[1]
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"clip_limit": rng.uniform(None, *self.clip_limit)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.clahe(len(plan), plan.limit, **params, grid=self.tile_grid_size[::-1]), where)
