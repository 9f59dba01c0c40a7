"""Rotation, affine maps and perspective. Arguments, defaults and meaning are torchvision v2's, drawn for each sample.

Crops and flips before a warp, and crops, flips and padding after it, fold into its one interpolation; a resize or
another warp takes a pass of its own, as does a warp that follows pixel operations. None antialiases, as in torchvision:
shrink with `Resize`. `padding_mode` is an addition: beyond the image lies `fill`, or with "edge", "reflect",
"symmetric" or "wrap" the image continued.
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
    """How a warp samples, which `RandomRotation` and its like have in common; `how` says it to `Plan.warp`."""

    def __init__(
        self, interpolation: arguments.Interpolation, fill: float | Sequence[float] | None, padding_mode: str
    ) -> None:
        self.interpolation = interpolation
        self.fill = fill
        self.padding_mode = padding_mode
        self.how: dict[str, Any] = {
            "filter": arguments.interpolation(interpolation),
            "border": arguments.border(padding_mode),
            "fill": arguments.color("fill", fill),
        }


def _middle(plan: Plan, center: tuple[float, float] | None) -> NDArray[np.float64]:
    """(N, 2), or (2,) if it is given: the point that stays where it is."""
    heights, widths = plan.sizes
    return np.stack([widths, heights], axis=1) / 2.0 if center is None else np.array(center)


class RandomRotation(Warp):
    """Turns by a random angle, counter-clockwise.

    Args:
        degrees: a number d draws from [-d, d]; (lower, upper) draws from that.
        interpolation: "nearest", "bilinear" or "bicubic".
        expand: grow the image so that all of it stays in the picture, around its middle whatever `center` is; the
            images of a batch then come out with sizes of their own.
        center: (x, y) in pixels from the upper left corner; None: the middle.
        fill: a number or one per channel, in image units.
        padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: arguments.Interpolation = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: float | Sequence[float] | None = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.degrees = arguments.either_way("degrees", degrees)
        self.expand = expand
        self.center = None if center is None else arguments.point("center", center)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        return {"angle": rng.uniform(None, *self.degrees)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        linear, (heights, widths) = matrices.rotation(params["angle"]), plan.sizes
        old = new = _middle(plan, None if self.expand else self.center)
        if self.expand:
            heights, widths = matrices.expanded(linear, heights, widths)
            new = np.stack([widths, heights], axis=1) / 2.0
        plan.warp(matrices.about(linear, old, new), heights, widths, **self.how, where=where)


class RandomAffine(Warp):
    """A random rotation (clockwise, as torchvision's), shift, scale and shear that keep the middle in the middle.

    Args:
        degrees: a number d draws the angle from [-d, d]; (lower, upper) draws from that.
        translate: (across, down): the shifts are drawn up to these parts of the width and the height, either way, and
            rounded to whole pixels. None: none.
        scale: bounds of the scale; None: 1.
        shear: a number d draws the shear along x from [-d, d] degrees, (lower, upper) draws it from that; four draw
            that along y too. None: none.
        interpolation, center, fill, padding_mode: as for `RandomRotation`.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: arguments.Interpolation = "nearest",
        fill: float | Sequence[float] | None = 0,
        center: Sequence[float] | None = None,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.degrees = arguments.either_way("degrees", degrees)
        self.translate = None if translate is None else arguments.point("translate", translate)
        if self.translate is not None and not all(0.0 <= part <= 1.0 for part in self.translate):
            raise TransformError(f"translate is two parts of the image's size, from 0 to 1, not {translate!r}")
        self.scale = None if scale is None else arguments.span("scale", scale, low=1e-6)
        self.shear = None if shear is None else self._shears(shear)
        self.center = None if center is None else arguments.point("center", center)

    @staticmethod
    def _shears(shear: float | Sequence[float]) -> tuple[float, ...]:
        numbers = arguments.values(shear, float)
        if len(numbers) != 4:
            return arguments.either_way("shear", shear)
        return arguments.either_way("shear", numbers[:2]) + arguments.either_way("shear", numbers[2:])

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        angle = rng.uniform(None, *self.degrees)
        most = np.multiply(self.translate or (0.0, 0.0), np.stack([widths, heights], axis=1))
        translate = np.rint(rng.uniform(2, -most, most))
        scale = rng.uniform(None, *(self.scale or (1.0, 1.0)))
        low_x, high_x, low_y, high_y = (*(self.shear or (0.0, 0.0)), 0.0, 0.0)[:4]
        shear = rng.uniform(2, np.array([low_x, low_y]), np.array([high_x, high_y]))
        return {"angle": angle, "translate": translate, "scale": scale, "shear": shear}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        linear, middle = matrices.affine(params["angle"], params["scale"], params["shear"]), _middle(plan, self.center)
        plan.warp(matrices.about(linear, middle, middle + params["translate"]), *plan.sizes, **self.how, where=where)


class RandomPerspective(Warp, RandomTransform):
    """Moves the corners to random places inside the image, with probability p.

    The corners are torchvision's: (0, 0), (w - 1, 0), (w - 1, h - 1) and (0, h - 1). Where three of the new ones lie on
    a line (images of one row or column, or a `distortion_scale` near 1), the image stays as it is.

    Args:
        distortion_scale: from 0 to 1, how far corners move: up to this part of half the width and height.
        p: probability, for each sample.
        interpolation, fill, padding_mode: as for `RandomRotation`.
    """

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: arguments.Interpolation = "bilinear",
        fill: float | Sequence[float] | None = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(interpolation, fill, padding_mode)
        self.distortion_scale = arguments.probability("distortion_scale", distortion_scale)
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        last = np.stack([widths, heights], axis=1)[:, None] - 1  # (N, 1, 2)
        room = np.floor(self.distortion_scale * ((last + 1) // 2)) + 1.0
        inwards = np.floor(rng.uniform(8).reshape(-1, 4, 2) * room)
        far = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
        return {"startpoints": far * last, "endpoints": np.where(far, last - inwards, inwards)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        matrix = matrices.perspective(params["startpoints"], params["endpoints"])
        plan.warp(matrix, *plan.sizes, **self.how, where=where)
