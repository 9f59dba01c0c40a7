"""Geometry with explicit parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.apply import apply
from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.transforms import (
    CenterCrop,
    RandomAffine,
    RandomRotation,
    Resize,
    arguments,
    matrices,
)
from cuaug.transforms.warps import Warp

__all__ = [
    "affine",
    "center_crop",
    "crop",
    "elastic",
    "five_crop",
    "horizontal_flip",
    "pad",
    "perspective",
    "resize",
    "resized_crop",
    "rot90",
    "rotate",
    "ten_crop",
    "vertical_flip",
]


def resize(
    image: Any,
    size: int | Sequence[int] | None,
    interpolation: Any = "bilinear",
    max_size: int | None = None,
    antialias: bool = True,
) -> Any:
    """Resizes to (height, width), or with one number to that shorter side, the longer in proportion, as `Resize`."""
    chain = Resize(size, interpolation, max_size, antialias)
    return apply(image, lambda plan: chain.write(plan, None, **chain.resized(*plan.sizes)))


def crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """The window of height x width whose first pixel is (top, left)."""
    return apply(image, lambda plan: plan.crop(top, left, height, width))


def resized_crop(
    image: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: Any = "bilinear",
    antialias: bool = True,
) -> Any:
    """The window, resized to `size`; sampling stops at the window's edge."""
    h, w = arguments.pair("size", size)
    filter = arguments.interpolation(interpolation)

    def write(plan: Plan) -> None:
        plan.crop(top, left, height, width)
        plan.resize(h, w, filter=filter, antialias=antialias)

    return apply(image, write)


def horizontal_flip(image: Any) -> Any:
    """Left and right exchanged."""
    return apply(image, lambda plan: plan.flip())


def vertical_flip(image: Any) -> Any:
    """Top and bottom exchanged."""
    return apply(image, lambda plan: plan.flip(vertical=True))


def center_crop(image: Any, output_size: int | Sequence[int]) -> Any:
    """The pixels in the middle, (height, width) or one number for both; smaller images are padded with 0 first."""
    return apply(image, lambda plan: CenterCrop(output_size).write(plan, None))


def five_crop(image: Any, size: int | Sequence[int]) -> tuple[Any, ...]:
    """The corners (upper left, upper right, lower left, lower right) and the middle: five images of `size`."""
    height, width = arguments.pair("size", size)

    def corner(down: int, across: int) -> Any:
        def write(plan: Plan) -> None:
            h, w = plan.sizes
            plan.crop(down * (h - height), across * (w - width), height, width)

        return apply(image, write)

    return (*(corner(down, across) for down in (0, 1) for across in (0, 1)), center_crop(image, (height, width)))


def ten_crop(image: Any, size: int | Sequence[int], vertical_flip: bool = False) -> tuple[Any, ...]:
    """`five_crop` of the image and of its mirror image, left and right or with `vertical_flip` top and bottom."""
    mirrored = apply(image, lambda plan: plan.flip(vertical=vertical_flip))
    return five_crop(image, size) + five_crop(mirrored, size)


def rot90(image: Any, k: int = 1) -> Any:
    """Turned by `k` quarters of the circle, counter-clockwise, as `numpy.rot90`."""
    return apply(image, lambda plan: plan.rot90(arguments.whole("k", k)))


def rotate(
    image: Any,
    angle: float,
    interpolation: Any = "nearest",
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = None,
    padding_mode: str = "constant",
) -> Any:
    """Turned counter-clockwise by `angle` degrees; the arguments are those of `transforms.RandomRotation`."""
    chain = RandomRotation((angle, angle), interpolation, expand, center, fill, padding_mode)
    return apply(image, lambda plan: chain.write(plan, None, angle=np.full(len(plan), angle)))


def affine(
    image: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: Any = "nearest",
    fill: Any = None,
    center: Sequence[float] | None = None,
    padding_mode: str = "constant",
) -> Any:
    """Sheared by `shear` degrees along x, or (x, y), scaled, turned clockwise by `angle` degrees around `center`, and
    shifted by `translate` (x, y) pixels; `center` is (x, y) in pixels from the upper left corner, None the middle."""
    shears = arguments.values(shear, float)
    if len(shears) == 1:  # as torchvision: a number is along x, a list of one along both
        shears = (shears[0], shears[0] if isinstance(shear, Sequence) else 0.0)
    chain = RandomAffine((angle, angle), None, (scale, scale), None, interpolation, fill, center, padding_mode)
    moves = arguments.point("translate", translate), arguments.point("shear", shears)

    def write(plan: Plan) -> None:
        angles, scales = np.full(len(plan), angle), np.full(len(plan), scale)
        shift, slant = (np.broadcast_to(np.array(move), (len(plan), 2)) for move in moves)
        chain.write(plan, None, angle=angles, translate=shift, scale=scales, shear=slant)

    return apply(image, write)


def perspective(
    image: Any,
    startpoints: Sequence[Sequence[float]] | None,
    endpoints: Sequence[Sequence[float]] | None,
    interpolation: Any = "bilinear",
    fill: Any = None,
    coefficients: Sequence[float] | None = None,
    padding_mode: str = "constant",
) -> Any:
    """The corners `startpoints`, four times (x, y), moved to `endpoints`; or torchvision's eight `coefficients`.

    Those lead back, from a new point (x, y) to ((a x + b y + c) / (g x + h y + 1), (d x + e y + f) / (g x + h y + 1)).

    Raises:
        TransformError: not four corners, or three of them on a line.
    """
    if coefficients is not None:
        numbers = arguments.values(coefficients, float)
        if len(numbers) != 8:
            raise TransformError(f"coefficients are eight numbers, not {coefficients!r}")
        matrix = np.append(numbers, 1.0).reshape(3, 3)
    else:
        corners = [np.asarray(points, dtype=np.float64) for points in (startpoints, endpoints)]
        for name, points in zip(("startpoints", "endpoints"), corners, strict=True):
            if points.shape != (4, 2) or not matrices.regular(points[None]).all():
                raise TransformError(f"{name} are four (x, y), no three of them on a line, not {points.tolist()}")
        matrix = matrices.perspective(corners[0][None], corners[1][None])[0]
    how = Warp(interpolation, fill, padding_mode).how
    return apply(image, lambda plan: plan.warp(matrix, *plan.sizes, **how))


def elastic(
    image: Any,
    displacement: Any,
    interpolation: Any = "bilinear",
    fill: Any = None,
    padding_mode: str = "constant",
) -> Any:
    """Each pixel shows what lies `displacement` away from it: (1, H, W, 2) for all images, or (N, H, W, 2), x before y,
    in halves of the width and of the height, as torchvision has it."""
    how = Warp(interpolation, fill, padding_mode).how
    moves = np.asarray(displacement, dtype=np.float64)

    def write(plan: Plan) -> None:
        heights, widths = plan.sizes
        if moves.shape not in ((n, heights[0], widths[0], 2) for n in (1, len(plan))):
            raise TransformError(f"displacement is (1, {heights[0]}, {widths[0]}, 2) here, not {moves.shape}")
        # Nodes half a pixel apart: every other one is the centre of a pixel, which is all that is asked for.
        nodes = [np.arange(2 * int(size[0]) + 1) // 2 for size in plan.sizes]
        rows, columns = (np.minimum(own, own[-1] - 1) for own in nodes)
        field = moves[:, rows][:, :, columns, ::-1] * [heights[0] / 2.0, widths[0] / 2.0]
        plan.warp(np.eye(3), heights, widths, **how, field=field if len(field) > 1 else field[0])

    return apply(image, write)


def pad(image: Any, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Pixels added on the sides: one number, (left/right, top/bottom), or (left, top, right, bottom)."""
    sides, border, color = arguments.sides(padding), arguments.border(padding_mode), arguments.color("fill", fill)
    return apply(image, lambda plan: plan.pad(*sides, border=border, fill=color))
