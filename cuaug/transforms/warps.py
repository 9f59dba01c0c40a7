"""Rotation, affine and perspective transforms, and displacement fields, after torchvision v2.

Crops and flips before a warp, and crops, flips and padding after it, fold into its one interpolation. A resize, another
warp, or a warp after pixel operations takes a pass of its own. As in torchvision, warps do not antialias: shrink with
`Resize`. `padding_mode` is an addition to torchvision.

Points are (x, y) in pixels; pixel i covers [i, i + 1), and y points down. Every matrix maps points of the new image to
points of the old one, as `Plan.warp` takes it. Angles are in degrees. A displacement field, smooth noise or a grid of
stretched cells, is given at nodes; the kernel interpolates between them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.plan.regions import adjugate, product
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import RandomTransform, Transform, Where

Array = NDArray[np.float64]


def _cos_sin(degrees: ArrayLike) -> tuple[Array, Array]:
    """Cosine and sine, exact at multiples of 90 degrees: a rotation by 90 degrees must move whole pixels."""
    degrees = np.asarray(degrees, dtype=np.float64)
    is_exact = degrees % 90.0 == 0.0
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.where(is_exact, np.rint(cos), cos), np.where(is_exact, np.rint(sin), sin)


def _two_by_two(a: ArrayLike, b: ArrayLike, c: ArrayLike, d: ArrayLike) -> Array:
    """(..., 2, 2) from four numbers or arrays."""
    matrix = np.empty((*np.broadcast(a, b, c, d).shape, 2, 2))
    matrix[..., 0, 0], matrix[..., 0, 1], matrix[..., 1, 0], matrix[..., 1, 1] = a, b, c, d
    return matrix


def rotation(degrees: ArrayLike) -> Array:
    """(N, 2, 2): rotates the image counter-clockwise by `degrees`, (N,)."""
    cos, sin = _cos_sin(degrees)
    return _two_by_two(cos, -sin, sin, cos)


def affine(degrees: ArrayLike, scale: ArrayLike, shear: ArrayLike) -> Array:
    """(N, 2, 2): torchvision's rotation (clockwise), scale and shear.

    torchvision shears along x, then along y, then rotates. The matrix is the inverse: last step first.

    Args:
        degrees, scale: (N,).
        shear: (N, 2) degrees along x and y.
    """
    radians = np.deg2rad(np.asarray(shear, dtype=np.float64))
    # sin / cos: the last bits of NumPy's tangent depend on the processor, those of its sine and cosine do not.
    across, down = np.moveaxis(np.sin(radians) / np.cos(radians), -1, 0)
    unsheared = _two_by_two(1.0 + across * down, across, down, 1.0)
    unrotated = product(unsheared, rotation(-np.asarray(degrees)))
    return unrotated / np.asarray(scale, dtype=np.float64)[..., None, None]


def about(linear: Array, old: ArrayLike, new: ArrayLike) -> Array:
    """(N, 3, 3): the linear map, shifted so that it maps point `new` of the new image to `old`; (N, 2) or (2,) each."""
    matrix = np.zeros((len(linear), 3, 3))
    matrix[:, :2, :2] = linear
    matrix[:, :2, 2] = np.asarray(old) - product(linear, np.asarray(new)[..., None])[..., 0]
    matrix[:, 2, 2] = 1.0
    return matrix


def expanded(linear: Array, heights: ArrayLike, widths: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(N,) heights and widths that show the whole rotated image, by torchvision's (and Pillow's) rule.

    Sides round outwards from the old image's bounds, so the center stays the center. Values within 1e-4 of a whole
    pixel count as that pixel. Multiples of 90 degrees give the exact sides.
    """
    old = np.stack([np.broadcast_to(widths, len(linear)), np.broadcast_to(heights, len(linear))], axis=1) / 2.0
    reach = product(np.abs(linear), old[..., None])[..., 0]
    high, low = (np.trunc((old + side) * 1e4) / 1e4 for side in (reach, -reach))
    is_exact = (np.abs(linear) % 1.0 == 0.0).all(axis=(1, 2))
    size = np.where(is_exact[:, None], 2.0 * reach, np.ceil(high) - np.floor(low)).astype(np.int64)
    return size[:, 1], size[:, 0]


def is_regular(corners: ArrayLike) -> NDArray[np.bool_]:
    """(N,): whether no three of the four corners, (N, 4, 2), are collinear, so that they define a perspective."""
    corners = np.asarray(corners, dtype=np.float64)
    one, other = np.roll(corners, -1, axis=1) - corners, np.roll(corners, -2, axis=1) - corners
    return (one[..., 0] * other[..., 1] != one[..., 1] * other[..., 0]).all(axis=1)


def _basis(corners: Array) -> Array:
    """(N, 3, 3): maps (1, 0, 0), (0, 1, 0), (0, 0, 1) and (1, 1, 1) to the corners; at any scale."""
    points = np.append(corners, np.ones((len(corners), 4, 1)), axis=2).swapaxes(1, 2)
    return points[:, :, :3] * product(adjugate(points[:, :, :3]), points[:, :, 3:]).swapaxes(1, 2)


def perspective(old: ArrayLike, new: ArrayLike) -> Array:
    """(N, 3, 3): maps the corners `new` of the new image to `old`, (N, 4, 2) each.

    The map equals torchvision's eight coefficients. Two bases of the projective plane also find maps that send the
    point (0, 0) to infinity. Corners that are not regular give the identity.
    """
    valid = (is_regular(old) & is_regular(new))[:, None, None]
    square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    old, new = (np.where(valid, corners, square) for corners in (old, new))
    matrix = product(_basis(old), adjugate(_basis(new)))
    last = matrix[:, 2:, 2:]
    return matrix / np.where(last == 0.0, 1.0, last)


Sizes = NDArray[np.int64]


class Warp(Transform):
    """Base class of warps. `warp_options` are keyword arguments of `Plan.warp`."""

    def __init__(self, interpolation: parameters.Interpolation, fill: parameters.Fill, padding_mode: str) -> None:
        self.interpolation = interpolation
        self.fill = fill
        self.padding_mode = padding_mode
        self.warp_options: dict[str, Any] = {
            "filter": parameters.warp_filter(interpolation),
            "border": parameters.border(padding_mode),
            "fill": parameters.fill("fill", fill),
        }


def _fixed_point(plan: Plan, center: tuple[float, float] | None) -> NDArray[np.float64]:
    """(N, 2), or (2,) for a given center: the point that stays in place."""
    heights, widths = plan.sizes
    return np.stack([widths, heights], axis=1) / 2.0 if center is None else np.array(center)


class RandomRotation(Warp):
    """Rotate the image by a random angle, counter-clockwise.

    Args:
        degrees: a number d draws from [-d, d], (lower, upper) from that.
        interpolation: "nearest" or "nearest-exact" (the pixel that holds the point), "bilinear" or "bicubic".
        expand: enlarge the result to show the whole rotated image, around its center whatever `center` is. Images of a
            batch then have different sizes.
        center: (x, y) in pixels from the upper left corner; None: the image's center.
        fill: value beyond the image: a number or one per channel, in image units.
        padding_mode: border beyond the image, as for `Pad`.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: parameters.Interpolation = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: parameters.Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.degrees = parameters.symmetric_bounds("degrees", degrees)
        self.expand = expand
        self.center = None if center is None else parameters.xy("center", center)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        return {"angle": rng.uniform(None, *self.degrees)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        linear, (heights, widths) = rotation(params["angle"]), plan.sizes
        old = new = _fixed_point(plan, None if self.expand else self.center)
        if self.expand:
            heights, widths = expanded(linear, heights, widths)
            new = np.stack([widths, heights], axis=1) / 2.0
        plan.warp(about(linear, old, new), heights, widths, **self.warp_options, where=where)


class RandomAffine(Warp):
    """Apply a random affine transformation that keeps the center in place.

    Args:
        degrees: rotation, clockwise as in torchvision. A number d draws from [-d, d], (lower, upper) from that.
        translate: (across, down) largest shifts, in either direction, as shares of width and height. Shifts are
            rounded to whole pixels. None: no shift.
        scale: (lower, upper) bounds of the scale; None: 1.
        shear: shear along x in degrees. A number d draws from [-d, d], (lower, upper) from that; four numbers draw the
            shear along y too. None: no shear.
        interpolation, center, fill, padding_mode: as for `RandomRotation`.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: parameters.Interpolation = "nearest",
        fill: parameters.Fill = 0,
        center: Sequence[float] | None = None,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.degrees = parameters.symmetric_bounds("degrees", degrees)
        self.translate = None if translate is None else parameters.xy("translate", translate)
        if self.translate is not None and not all(0.0 <= share <= 1.0 for share in self.translate):
            raise TransformError(f"translate must be two shares of the image's size, from 0 to 1, not {translate!r}")
        self.scale = None if scale is None else parameters.bounds("scale", scale, low=1e-6)
        self.shear = None if shear is None else self._shear_bounds(shear)
        self.center = None if center is None else parameters.xy("center", center)

    @staticmethod
    def _shear_bounds(shear: float | Sequence[float]) -> tuple[float, ...]:
        values = parameters.numbers(shear, float)
        if len(values) != 4:
            return parameters.symmetric_bounds("shear", shear)
        return parameters.symmetric_bounds("shear", values[:2]) + parameters.symmetric_bounds("shear", values[2:])

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        angle = rng.uniform(None, *self.degrees)
        limit = np.multiply(self.translate or (0.0, 0.0), np.stack([widths, heights], axis=1))
        translate = np.rint(rng.uniform(2, -limit, limit))
        scale = rng.uniform(None, *(self.scale or (1.0, 1.0)))
        low_x, high_x, low_y, high_y = (*(self.shear or (0.0, 0.0)), 0.0, 0.0)[:4]
        shear = rng.uniform(2, np.array([low_x, low_y]), np.array([high_x, high_y]))
        return {"angle": angle, "translate": translate, "scale": scale, "shear": shear}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        linear = affine(params["angle"], params["scale"], params["shear"])
        center = _fixed_point(plan, self.center)
        matrix = about(linear, center, center + params["translate"])
        plan.warp(matrix, *plan.sizes, **self.warp_options, where=where)


class RandomPerspective(Warp, RandomTransform):
    """Apply a random perspective transformation with probability `p`.

    Each corner moves to a random place inside the image. Corners are torchvision's: (0, 0), (w - 1, 0), (w - 1, h - 1)
    and (0, h - 1). If three new corners are collinear, the image is unchanged: in images of one row or column, or with
    a `distortion_scale` near 1.

    Args:
        distortion_scale: from 0 to 1, largest movement of a corner, as a share of half the width and height.
        p: probability, per sample.
        interpolation, fill, padding_mode: as for `RandomRotation`.
    """

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: parameters.Interpolation = "bilinear",
        fill: parameters.Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.distortion_scale = parameters.probability("distortion_scale", distortion_scale)
        self.p = parameters.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        last = np.stack([widths, heights], axis=1)[:, None] - 1  # (N, 1, 2)
        limit = np.floor(self.distortion_scale * ((last + 1) // 2)) + 1.0
        inwards = np.floor(rng.uniform(8).reshape(-1, 4, 2) * limit)
        at_end = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
        return {"startpoints": at_end * last, "endpoints": np.where(at_end, last - inwards, inwards)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        matrix = perspective(params["startpoints"], params["endpoints"])
        plan.warp(matrix, *plan.sizes, **self.warp_options, where=where)


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
        interpolation: parameters.Interpolation = "bilinear",
        fill: parameters.Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.alpha = self._xy("alpha", alpha, 0.0)
        self.sigma = self._xy("sigma", sigma, 1.0)

    @staticmethod
    def _xy(name: str, value: float | Sequence[float], low: float) -> tuple[float, float]:
        values = parameters.numbers(value, float)
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
        interpolation: parameters.Interpolation = "bilinear",
        normalized: bool = True,
        fill: parameters.Fill = 0,
        padding_mode: str = "constant",
        p: float = 0.5,
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.num_steps = parameters.integer("num_steps", num_steps, low=1)
        self.distort_limit = parameters.symmetric_bounds("distort_limit", distort_limit)
        if not -1.0 < self.distort_limit[0] <= self.distort_limit[1] <= 1.0:
            raise TransformError(f"distort_limit must be within (-1, 1], not {distort_limit!r}")
        self.normalized = normalized
        self.p = parameters.probability("p", p)

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
