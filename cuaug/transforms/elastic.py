"""Distortion by a field of displacements: smooth noise (elastic), or a grid with stretched and squeezed cells.

The field is given at nodes; between them the kernel interpolates. Parameters are drawn for each sample.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import RandomTransform, Where
from cuaug.transforms.warps import Warp

__all__ = ["ElasticTransform", "GridDistortion"]

Sizes = NDArray[np.int64]
_UPRIGHT = np.eye(3)
# OpenBLAS shares larger products out among threads, one for each processor. They wait for each other: on a machine that
# has other work to do, that takes up to a hundred times as long as the product.
_MOST_MULTIPLICATIONS = 1 << 18
# 2 GB: a batch of 64 pictures of 4,000 x 4,000 pixels, of different sizes, takes a third of that.
_MOST_NUMBERS = 1 << 28


class ElasticTransform(Warp):
    """Moves each pixel by smooth noise (Simard et al. 2003).

    torchvision blurs noise that is uniform in [-1, 1], one number per pixel and direction, by a Gaussian, mirrored at
    the borders, and scales it by alpha / size in half widths and half heights. Here the noise is drawn as a sum of
    cosines, in which that blur is only a factor for each, and the field is made only at nodes 2 / 3 of sigma apart: a
    dozen times fewer numbers for sigma 5, with the same standard deviation and correlation, also near the borders,
    where mirroring up to doubles the variance (here at the edge of the first pixel, there at its centre). Between
    nodes linear interpolation stands for the smooth field: at most 5 % of its standard deviation from it along each
    axis.

    Args:
        alpha: strength: a number, or one for x and one for y. x moves by alpha / height of half the width, y by
            alpha / width of half the height, times noise whose standard deviation inside the image is 0.163 / sigma.
        sigma: of the Gaussian in pixels, at least 1: a number, or one along x and one along y.
        interpolation: "nearest", "bilinear" or "bicubic".
        fill: a number or one per channel, in image units.
        padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
    """

    _SPACING = 2.0 / 3.0  # of nodes, in parts of sigma
    _NOISE_STEP, _WAVE_STEP = 2.0**-11, 2.0**-18

    def __init__(
        self,
        alpha: float | Sequence[float] = 50.0,
        sigma: float | Sequence[float] = 5.0,
        interpolation: arguments.Interpolation = "bilinear",
        fill: float | Sequence[float] | None = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.alpha = self._two("alpha", alpha, 0.0)
        self.sigma = self._two("sigma", sigma, 1.0)

    @staticmethod
    def _two(name: str, value: float | Sequence[float], low: float) -> tuple[float, float]:
        numbers = arguments.values(value, float)
        if len(numbers) not in (1, 2) or not all(low <= number < float("inf") for number in numbers):
            raise TransformError(f"{name} is a number of at least {low:g}, or two, for x and y, not {value!r}")
        return numbers[0], numbers[-1]

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        (rows, down), (columns, across) = self._waves(heights, self.sigma[1]), self._waves(widths, self.sigma[0])
        _check_room(len(heights), 2 * rows.max(initial=0), columns.max(initial=0))
        # One number for each pair of waves and direction; which draws a sample takes depends on its own size alone.
        most = int(((rows - 1) * (columns - 1)).max(initial=0))
        drawn = rng.uniform(2 * most, -1.0, 1.0).reshape(len(rng), most, 2)
        row, column = np.ogrid[: down.shape[2], : across.shape[2]]
        place = np.minimum(row * (columns - 1)[:, None, None] + column, most - 1)
        noise = drawn[np.arange(len(rng))[:, None, None], place].transpose(3, 0, 1, 2)
        # Whole multiples of small steps: their sums are exact, whatever the order in which a machine adds.
        noise = np.rint(noise / self._NOISE_STEP) * self._NOISE_STEP
        move_y, move_x = _product(_product(down, np.ascontiguousarray(noise)), across.swapaxes(1, 2))
        kept = self._kept(heights, rows, self.sigma[1]) * self._kept(widths, columns, self.sigma[0])
        move_y *= (self.alpha[1] / widths * heights / 2.0 / kept)[:, None, None]
        move_x *= (self.alpha[0] / heights * widths / 2.0 / kept)[:, None, None]
        return {"field": np.stack([move_y, move_x], axis=-1), "rows": rows, "columns": columns}

    def _waves(self, lengths: Sizes, sigma: float) -> tuple[Sizes, NDArray[np.float64]]:
        """(N,) counts of nodes, and (N, R, Q): at each node each cosine, blurred.

        White noise on a length L with mirrored borders is the sum of cos(pi q y / L), q = 0, 1, ..., times independent
        numbers of equal variance; a Gaussian blur takes exp(-(sigma pi q / L)^2 / 2) of each. What is left out comes
        to less than 2e-5.
        """
        own, which = np.unique(lengths, return_inverse=True)
        cells = np.ceil(own / (self._SPACING * sigma)).astype(np.int64)
        _check_room(len(own), cells.max(initial=0), cells.max(initial=0))
        node, wave = np.ogrid[: cells.max(initial=0) + 1, : cells.max(initial=0)]
        length, cell = own[:, None, None], cells[:, None, None]
        waves = np.cos(np.pi * node * wave / cell) * np.exp(-0.5 * (sigma * np.pi * wave / length) ** 2)
        waves *= np.sqrt(np.where(wave == 0, 1.0, 2.0) / length) * ((wave < cell) & (node <= cell))
        return (cells + 1)[which], (np.rint(waves / self._WAVE_STEP) * self._WAVE_STEP)[which]

    @staticmethod
    def _kept(lengths: Sizes, nodes: Sizes, sigma: float) -> NDArray[np.float64]:
        """What linear interpolation between nodes leaves of the standard deviation, on average over an axis."""
        neighbours = np.exp(-((lengths / (nodes - 1) / (2.0 * sigma)) ** 2))
        return np.sqrt((2.0 + neighbours) / 3.0)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        nodes = params["rows"], params["columns"]
        plan.warp(_UPRIGHT, *plan.sizes, **self.how, field=params["field"], nodes=nodes, where=where)


def _check_room(*shape: Any) -> None:
    """Refuses arrays that an image of a hostile size would make far larger than any picture needs."""
    if (size := math.prod(map(int, shape))) > _MOST_NUMBERS:
        raise MemoryError(f"the displacements of a batch would take {8 * size:,} bytes")


def _product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """(..., R, P): left @ right, of (..., R, Q) and (..., Q, P), a part of its rows and columns at a time."""
    rows, (inner, columns) = left.shape[-2], right.shape[-2:]
    made = np.empty((*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), rows, columns))
    high = max(8, _MOST_MULTIPLICATIONS // max(1, inner * columns))
    wide = max(1, _MOST_MULTIPLICATIONS // max(1, inner * high))
    for y, x in itertools.product(range(0, rows, high), range(0, columns, wide)):
        np.matmul(left[..., y : y + high, :], right[..., x : x + wide], out=made[..., y : y + high, x : x + wide])
    return made


class GridDistortion(Warp, RandomTransform):
    """Cuts the image into cells and stretches or squeezes each row and each column of them, with probability p.

    As Albumentations', except that all cells are equal: there, what the division by `num_steps` leaves of the image
    goes to smaller ones at the right and at the bottom.

    Args:
        num_steps: cells along each axis.
        distort_limit: a number d below 1 draws from [-d, d] by how much more of the image a cell shows than its size;
            (lower, upper) draws from that.
        interpolation: "nearest", "bilinear" or "bicubic".
        normalized: scale the cells so that together they show exactly the image; else they may end short of its
            border, or show what lies beyond it.
        fill: a number or one per channel, in image units.
        padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
        p: probability, for each sample.
    """

    def __init__(
        self,
        num_steps: int = 5,
        distort_limit: float | Sequence[float] = (-0.3, 0.3),
        interpolation: arguments.Interpolation = "bilinear",
        normalized: bool = True,
        fill: float | Sequence[float] | None = 0,
        padding_mode: str = "constant",
        p: float = 0.5,
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.num_steps = arguments.whole("num_steps", num_steps, low=1)
        self.distort_limit = arguments.either_way("distort_limit", distort_limit)
        if not -1.0 < self.distort_limit[0] <= self.distort_limit[1] <= 1.0:
            raise TransformError(f"distort_limit lies within (-1, 1], not {distort_limit!r}")
        self.normalized = normalized
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        drawn = [1.0 + rng.uniform(self.num_steps, *self.distort_limit) for _ in "yx"]
        steps_y, steps_x = (steps / steps.mean(axis=1, keepdims=True) if self.normalized else steps for steps in drawn)
        return {"steps_y": steps_y, "steps_x": steps_x}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        nodes = self.num_steps + 1
        field = np.zeros((len(plan), nodes, nodes, 2))
        heights, widths = plan.sizes
        field[:, 1:, :, 0] = self._moves(params["steps_y"], heights)[:, :, None]
        field[:, :, 1:, 1] = self._moves(params["steps_x"], widths)[:, None, :]
        plan.warp(_UPRIGHT, *plan.sizes, **self.how, field=field, where=where)

    @staticmethod
    def _moves(steps: NDArray[np.float64], sizes: Sizes) -> NDArray[np.float64]:
        """How far the end of each cell is moved, in pixels."""
        return np.cumsum(steps - 1.0, axis=1) * (sizes / steps.shape[1])[:, None]
