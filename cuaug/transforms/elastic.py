"""Displacement fields: smooth noise, or a grid of stretched cells.

A field is given at nodes; the kernel interpolates between them.
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
_IDENTITY = np.eye(3)
# OpenBLAS splits larger products over one thread per core. The threads wait for each other: on a busy machine that
# takes up to a hundred times as long as the product.
_MAX_MULTIPLICATIONS = 1 << 18
# 2 GB. A batch of 64 images of 4,000 x 4,000 pixels, of different sizes, takes a third of that.
_MAX_VALUES = 1 << 28


class ElasticTransform(Warp):
    """Displace each pixel by smooth random noise (Simard et al. 2003).

    torchvision draws uniform noise in [-1, 1] per pixel and direction, mirrors it at the borders, blurs it with a
    Gaussian and scales it. Here the noise is a sum of cosines: blurring only scales each cosine. The field is computed
    at nodes 2/3 of sigma apart, a dozen times fewer values for sigma 5. Its standard deviation and correlation are
    torchvision's, also near the borders, where mirroring up to doubles the variance (here at the edge of the first
    pixel, there at its center). Linear interpolation between nodes differs from the smooth field by at most 5 % of
    its standard deviation along each axis.

    Args:
        alpha: strength, a number or (x, y): moves by alpha / 2 pixels times noise, whose standard deviation inside the
            image is 0.163 / sigma. As torchvision 0.29; 0.20 moved x by width / height of that, y by height / width.
        sigma: standard deviation of the Gaussian in pixels, at least 1: a number or (x, y).
        interpolation: "nearest", "bilinear" or "bicubic".
        fill: value beyond the image: a number or one per channel, in image units.
        padding_mode: border beyond the image, as for `Pad`.
    """

    _NODE_SPACING = 2.0 / 3.0  # in sigmas
    _NOISE_STEP, _WAVE_STEP = 2.0**-11, 2.0**-18

    def __init__(
        self,
        alpha: float | Sequence[float] = 50.0,
        sigma: float | Sequence[float] = 5.0,
        interpolation: arguments.Interpolation = "bilinear",
        fill: arguments.Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.alpha = self._xy("alpha", alpha, 0.0)
        self.sigma = self._xy("sigma", sigma, 1.0)

    @staticmethod
    def _xy(name: str, value: float | Sequence[float], low: float) -> tuple[float, float]:
        values = arguments.numbers(value, float)
        if len(values) not in (1, 2) or not all(low <= item < float("inf") for item in values):
            raise TransformError(f"{name} must be a number of at least {low:g}, or two, for x and y, not {value!r}")
        return values[0], values[-1]

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        (rows, down), (columns, across) = self._cosines(heights, self.sigma[1]), self._cosines(widths, self.sigma[0])
        _check_memory(len(heights), 2 * rows.max(initial=0), columns.max(initial=0))
        # One draw per pair of cosines and direction. The draws of a sample depend on its own size only.
        count = int(((rows - 1) * (columns - 1)).max(initial=0))
        draws = rng.uniform(2 * count, -1.0, 1.0).reshape(len(rng), count, 2)
        row, column = np.ogrid[: down.shape[2], : across.shape[2]]
        place = np.minimum(row * (columns - 1)[:, None, None] + column, count - 1)
        noise = draws[np.arange(len(rng))[:, None, None], place].transpose(3, 0, 1, 2)
        # Multiples of a small step: their sums are exact, in whatever order a machine adds them.
        noise = np.rint(noise / self._NOISE_STEP) * self._NOISE_STEP
        move_y, move_x = _matmul(_matmul(down, np.ascontiguousarray(noise)), across.swapaxes(1, 2))
        deviation = self._interpolated_deviation(heights, rows, self.sigma[1])
        deviation = deviation * self._interpolated_deviation(widths, columns, self.sigma[0])
        move_y *= (self.alpha[1] / 2.0 / deviation)[:, None, None]
        move_x *= (self.alpha[0] / 2.0 / deviation)[:, None, None]
        return {"field": np.stack([move_y, move_x], axis=-1), "rows": rows, "columns": columns}

    def _cosines(self, lengths: Sizes, sigma: float) -> tuple[Sizes, NDArray[np.float64]]:
        """(N,) node counts R, and (N, R, Q): the blurred cosines at the nodes.

        White noise on a length L with mirrored borders is the sum of cos(pi q y / L), q = 0, 1, ..., times independent
        draws of equal variance. A Gaussian blur multiplies each by exp(-(sigma pi q / L)^2 / 2). The omitted terms
        are below 2e-5.
        """
        unique, inverse = np.unique(lengths, return_inverse=True)
        cells = np.ceil(unique / (self._NODE_SPACING * sigma)).astype(np.int64)
        _check_memory(len(unique), cells.max(initial=0), cells.max(initial=0))
        node, wave = np.ogrid[: cells.max(initial=0) + 1, : cells.max(initial=0)]
        length, cell = unique[:, None, None], cells[:, None, None]
        cosines = np.cos(np.pi * node * wave / cell) * np.exp(-0.5 * (sigma * np.pi * wave / length) ** 2)
        cosines *= np.sqrt(np.where(wave == 0, 1.0, 2.0) / length) * ((wave < cell) & (node <= cell))
        return (cells + 1)[inverse], (np.rint(cosines / self._WAVE_STEP) * self._WAVE_STEP)[inverse]

    @staticmethod
    def _interpolated_deviation(lengths: Sizes, nodes: Sizes, sigma: float) -> NDArray[np.float64]:
        """The share of the standard deviation that linear interpolation between nodes keeps, averaged over an axis."""
        correlation = np.exp(-((lengths / (nodes - 1) / (2.0 * sigma)) ** 2))
        return np.sqrt((2.0 + correlation) / 3.0)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        nodes = params["rows"], params["columns"]
        plan.warp(_IDENTITY, *plan.sizes, **self.warp_options, field=params["field"], nodes=nodes, where=where)


def _check_memory(*shape: Any) -> None:
    """Refuse arrays that only an image of hostile size would need."""
    if (size := math.prod(map(int, shape))) > _MAX_VALUES:
        raise MemoryError(f"the displacements of a batch would take {8 * size:,} bytes")


def _matmul(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """(..., R, P): left (..., R, Q) @ right (..., Q, P), in blocks that stay on one thread."""
    rows, (inner, columns) = left.shape[-2], right.shape[-2:]
    result = np.empty((*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), rows, columns))
    high = max(8, _MAX_MULTIPLICATIONS // max(1, inner * columns))
    wide = max(1, _MAX_MULTIPLICATIONS // max(1, inner * high))
    for y, x in itertools.product(range(0, rows, high), range(0, columns, wide)):
        np.matmul(left[..., y : y + high, :], right[..., x : x + wide], out=result[..., y : y + high, x : x + wide])
    return result


class GridDistortion(Warp, RandomTransform):
    """Stretch and squeeze the cells of a grid with probability `p` (Albumentations).

    All cells have equal size before the distortion. In Albumentations the cells at the right and the bottom are
    smaller where `num_steps` does not divide the image's size.

    Args:
        num_steps: number of cells along each axis.
        distort_limit: a number d below 1 draws from [-d, d] by how much more of the image a cell shows than its size;
            (lower, upper) draws from that.
        interpolation: "nearest", "bilinear" or "bicubic".
        normalized: scale the cells so that together they show exactly the image. Otherwise they may end before its
            border, or beyond.
        fill: value beyond the image: a number or one per channel, in image units.
        padding_mode: border beyond the image, as for `Pad`.
        p: probability, per sample.
    """

    def __init__(
        self,
        num_steps: int = 5,
        distort_limit: float | Sequence[float] = (-0.3, 0.3),
        interpolation: arguments.Interpolation = "bilinear",
        normalized: bool = True,
        fill: arguments.Fill = 0,
        padding_mode: str = "constant",
        p: float = 0.5,
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.num_steps = arguments.integer("num_steps", num_steps, low=1)
        self.distort_limit = arguments.symmetric_bounds("distort_limit", distort_limit)
        if not -1.0 < self.distort_limit[0] <= self.distort_limit[1] <= 1.0:
            raise TransformError(f"distort_limit must be within (-1, 1], not {distort_limit!r}")
        self.normalized = normalized
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        steps_y, steps_x = (1.0 + rng.uniform(self.num_steps, *self.distort_limit) for _ in "yx")
        if self.normalized:
            steps_y, steps_x = (steps / steps.mean(axis=1, keepdims=True) for steps in (steps_y, steps_x))
        return {"steps_y": steps_y, "steps_x": steps_x}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        nodes = self.num_steps + 1
        field = np.zeros((len(plan), nodes, nodes, 2))
        heights, widths = plan.sizes
        field[:, 1:, :, 0] = self._displacements(params["steps_y"], heights)[:, :, None]
        field[:, :, 1:, 1] = self._displacements(params["steps_x"], widths)[:, None, :]
        plan.warp(_IDENTITY, *plan.sizes, **self.warp_options, field=field, where=where)

    @staticmethod
    def _displacements(steps: NDArray[np.float64], sizes: Sizes) -> NDArray[np.float64]:
        """(N, num_steps): how far the end of each cell moves, in pixels."""
        return np.cumsum(steps - 1.0, axis=1) * (sizes / steps.shape[1])[:, None]
