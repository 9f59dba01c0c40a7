"""Rotation, affine and perspective transforms, with torchvision v2's arguments, defaults and meaning.

Crops and flips before a warp, and crops, flips and padding after it, fold into its one interpolation. A resize, another
warp, or a warp after pixel operations takes a pass of its own. As in torchvision, warps do not antialias: shrink with
`Resize`. `padding_mode` is an addition to torchvision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments, matrices
from cuaug.transforms.base import RandomTransform, Transform, Where

__all__ = ["RandomAffine", "RandomPerspective", "RandomRotation", "Warp"]

Sizes = NDArray[np.int64]


class Warp(Transform):
    """Base class of warps. `warp_options` are keyword arguments of `Plan.warp`."""

    def __init__(self, interpolation: arguments.Interpolation, fill: arguments.Fill, padding_mode: str) -> None:
        self.interpolation = interpolation
        self.fill = fill
        self.padding_mode = padding_mode
        self.warp_options: dict[str, Any] = {
            "filter": arguments.warp_filter(interpolation),
            "border": arguments.border(padding_mode),
            "fill": arguments.fill("fill", fill),
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
        interpolation: arguments.Interpolation = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: arguments.Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.degrees = arguments.symmetric_bounds("degrees", degrees)
        self.expand = expand
        self.center = None if center is None else arguments.xy("center", center)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        return {"angle": rng.uniform(None, *self.degrees)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        linear, (heights, widths) = matrices.rotation(params["angle"]), plan.sizes
        old = new = _fixed_point(plan, None if self.expand else self.center)
        if self.expand:
            heights, widths = matrices.expanded(linear, heights, widths)
            new = np.stack([widths, heights], axis=1) / 2.0
        plan.warp(matrices.about(linear, old, new), heights, widths, **self.warp_options, where=where)


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
        interpolation: arguments.Interpolation = "nearest",
        fill: arguments.Fill = 0,
        center: Sequence[float] | None = None,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.degrees = arguments.symmetric_bounds("degrees", degrees)
        self.translate = None if translate is None else arguments.xy("translate", translate)
        if self.translate is not None and not all(0.0 <= share <= 1.0 for share in self.translate):
            raise TransformError(f"translate must be two shares of the image's size, from 0 to 1, not {translate!r}")
        self.scale = None if scale is None else arguments.bounds("scale", scale, low=1e-6)
        self.shear = None if shear is None else self._shear_bounds(shear)
        self.center = None if center is None else arguments.xy("center", center)

    @staticmethod
    def _shear_bounds(shear: float | Sequence[float]) -> tuple[float, ...]:
        values = arguments.numbers(shear, float)
        if len(values) != 4:
            return arguments.symmetric_bounds("shear", shear)
        return arguments.symmetric_bounds("shear", values[:2]) + arguments.symmetric_bounds("shear", values[2:])

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        angle = rng.uniform(None, *self.degrees)
        limit = np.multiply(self.translate or (0.0, 0.0), np.stack([widths, heights], axis=1))
        translate = np.rint(rng.uniform(2, -limit, limit))
        scale = rng.uniform(None, *(self.scale or (1.0, 1.0)))
        low_x, high_x, low_y, high_y = (*(self.shear or (0.0, 0.0)), 0.0, 0.0)[:4]
        shear = rng.uniform(2, np.array([low_x, low_y]), np.array([high_x, high_y]))
        return {"angle": angle, "translate": translate, "scale": scale, "shear": shear}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        linear = matrices.affine(params["angle"], params["scale"], params["shear"])
        center = _fixed_point(plan, self.center)
        matrix = matrices.about(linear, center, center + params["translate"])
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
        interpolation: arguments.Interpolation = "bilinear",
        fill: arguments.Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.distortion_scale = arguments.probability("distortion_scale", distortion_scale)
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        last = np.stack([widths, heights], axis=1)[:, None] - 1  # (N, 1, 2)
        limit = np.floor(self.distortion_scale * ((last + 1) // 2)) + 1.0
        inwards = np.floor(rng.uniform(8).reshape(-1, 4, 2) * limit)
        at_end = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
        return {"startpoints": at_end * last, "endpoints": np.where(at_end, last - inwards, inwards)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        matrix = matrices.perspective(params["startpoints"], params["endpoints"])
        plan.warp(matrix, *plan.sizes, **self.warp_options, where=where)
