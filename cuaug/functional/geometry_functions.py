"""Geometry with explicit parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from cuaug.errors import TransformError
from cuaug.plan import MAX_SIDE, Plan
from cuaug.transforms import CenterCrop, RandomAffine, RandomRotation, Resize, parameters, warps
from cuaug.transforms.execute import ImageT, apply
from cuaug.transforms.warps import Warp


def resize(
    image: ImageT,
    size: int | Sequence[int] | None,
    interpolation: parameters.Interpolation = "bilinear",
    max_size: int | None = None,
    antialias: bool | None = True,
    pillow: Literal[12, 13, True] | None = None,
) -> ImageT:
    """Resizes to (height, width); see `Resize`.

    A single number is the shorter side; the longer one keeps the proportions. `pillow` gives uint8 images the pixels
    of that version of Pillow; see `Compose`.
    """
    transform, version = Resize(size, interpolation, max_size, antialias), parameters.pillow(pillow)

    def write(plan: Plan) -> None:
        plan.pillow = version
        transform.write(plan, None, **transform.resized(*plan.sizes))

    return apply(image, write)


def crop(image: ImageT, top: int, left: int, height: int, width: int) -> ImageT:
    """Crops height x width pixels from (top, left) on.

    Parts of the window outside the image are 0.
    """
    window = _window(top, left, height, width)
    return apply(image, lambda plan: plan.window(*window))


def _window(top: int, left: int, height: int, width: int) -> tuple[int, int, int, int]:
    y, x = (parameters.integer(name, place, -MAX_SIDE, MAX_SIDE) for name, place in (("top", top), ("left", left)))
    h, w = (parameters.integer(name, side, 1, MAX_SIDE) for name, side in (("height", height), ("width", width)))
    return y, x, h, w


def resized_crop(
    image: ImageT,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: parameters.Interpolation = "bilinear",
    antialias: bool | None = True,
    pillow: Literal[12, 13, True] | None = None,
) -> ImageT:
    """Crops a window, as `crop`, and resizes it to `size`.

    Sampling stops at the window's edge. `pillow`: as for `resize`.
    """
    version = parameters.pillow(pillow)
    window, (h, w) = _window(top, left, height, width), parameters.size("size", size)
    filter, smooth = parameters.resize_filter(interpolation, antialias)

    def write(plan: Plan) -> None:
        plan.pillow = version
        plan.window(*window)
        plan.resize(h, w, filter=filter, antialias=smooth)

    return apply(image, write)


def horizontal_flip(image: ImageT) -> ImageT:
    """Mirrors left and right."""
    return apply(image, lambda plan: plan.flip())


def vertical_flip(image: ImageT) -> ImageT:
    """Mirrors top and bottom."""
    return apply(image, lambda plan: plan.flip(vertical=True))


def center_crop(image: ImageT, output_size: int | Sequence[int], fill: float | Sequence[float] | None = 0) -> ImageT:
    """Crops the middle to (height, width), or one number for both.

    Smaller images are padded with `fill` first.
    """
    transform = CenterCrop(output_size, fill)
    return apply(image, lambda plan: transform.write(plan, None))


def five_crop(image: ImageT, size: int | Sequence[int]) -> tuple[ImageT, ...]:
    """Crops the four corners and the middle.

    Returns:
        five images of `size`, at most the image's: upper left, upper right, lower left, lower right and the middle.
    """
    height, width = parameters.size("size", size)

    def corner(down: int, across: int) -> Any:
        def write(plan: Plan) -> None:
            h, w = plan.sizes
            plan.crop(down * (h - height), across * (w - width), height, width)

        return apply(image, write)

    return (*(corner(down, across) for down in (0, 1) for across in (0, 1)), center_crop(image, (height, width)))


def ten_crop(image: ImageT, size: int | Sequence[int], vertical_flip: bool = False) -> tuple[ImageT, ...]:
    """Returns `five_crop` of the image and of its mirror image.

    With `vertical_flip` the mirror image is upside down.
    """
    parameters.flag("vertical_flip", vertical_flip)
    mirrored = apply(image, lambda plan: plan.flip(vertical=vertical_flip))
    return five_crop(image, size) + five_crop(mirrored, size)


def rot90(image: ImageT, k: int = 1) -> ImageT:
    """Rotates by `k` quarter turns, counter-clockwise, as `numpy.rot90`."""
    turns = parameters.integer("k", k) % 4
    return apply(image, lambda plan: plan.rot90(turns))


def rotate(
    image: ImageT,
    angle: float,
    interpolation: parameters.Interpolation = "nearest",
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: float | Sequence[float] | None = None,
    padding_mode: str = "constant",
) -> ImageT:
    """Rotates counter-clockwise by `angle` degrees.

    The other arguments are as in `transforms.RandomRotation`.
    """
    angle = parameters.number("angle", angle)
    transform = RandomRotation((angle, angle), interpolation, expand, center, fill, padding_mode)
    return apply(image, lambda plan: transform.write(plan, None, angle=np.full(len(plan), angle)))


def affine(
    image: ImageT,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: parameters.Interpolation = "nearest",
    fill: float | Sequence[float] | None = None,
    center: Sequence[float] | None = None,
    padding_mode: str = "constant",
) -> ImageT:
    """Shears, scales, rotates and shifts the image.

    Args:
        angle: in degrees, clockwise around `center`.
        translate: (x, y) in pixels.
        shear: in degrees, along x or (x, y).
        center: (x, y) in pixels from the upper left corner; None for the middle.
    """
    angle, scale = parameters.number("angle", angle), parameters.number("scale", scale, 1e-6)
    shears: Any = parameters.numbers(shear, float) or shear
    if isinstance(shears, tuple) and len(shears) == 1:  # as torchvision: a number shears x, a list of one both
        shears = (shears[0], shears[0] if isinstance(shear, Sequence) else 0.0)
    transform = RandomAffine((angle, angle), None, (scale, scale), None, interpolation, fill, center, padding_mode)
    moves = parameters.xy("translate", translate), parameters.xy("shear", shears)

    def write(plan: Plan) -> None:
        angles, scales = np.full(len(plan), angle), np.full(len(plan), scale)
        shift, slant = (np.broadcast_to(np.array(move), (len(plan), 2)) for move in moves)
        transform.write(plan, None, angle=angles, translate=shift, scale=scales, shear=slant)

    return apply(image, write)


def perspective(
    image: ImageT,
    startpoints: Sequence[Sequence[float]] | None,
    endpoints: Sequence[Sequence[float]] | None,
    interpolation: parameters.Interpolation = "bilinear",
    fill: float | Sequence[float] | None = None,
    coefficients: Sequence[float] | None = None,
    padding_mode: str = "constant",
) -> ImageT:
    """Moves four corners, (x, y) each, from `startpoints` to `endpoints`.

    Args:
        coefficients: torchvision's eight, a to h, instead of corners. They map a new point (x, y) to the old point
            ((a x + b y + c) / (g x + h y + 1), (d x + e y + f) / (g x + h y + 1)).

    Raises:
        TransformError: not four corners, or three of them on a line.
    """
    if coefficients is not None:
        matrix = np.append(parameters.array("coefficients", coefficients, (8,)), 1.0).reshape(3, 3)
    else:
        named = {"startpoints": startpoints, "endpoints": endpoints}
        corners = {name: parameters.array(name, points, (4, 2))[None] for name, points in named.items()}
        for name, points in corners.items():
            if not warps.is_regular(points).all():
                raise TransformError(
                    f"{name} must be four (x, y), no three of them on a line, not {points[0].tolist()}"
                )
        matrix = warps.perspective(*corners.values())[0]
    warp_options = Warp(interpolation, fill, padding_mode).warp_options
    return apply(image, lambda plan: plan.warp(matrix, *plan.sizes, **warp_options))


def elastic(
    image: ImageT,
    displacement: Any,
    interpolation: parameters.Interpolation = "bilinear",
    fill: float | Sequence[float] | None = None,
    padding_mode: str = "constant",
) -> ImageT:
    """Moves each pixel by a displacement, as torchvision does.

    Args:
        displacement: (1, H, W, 2) for all images or (N, H, W, 2): from a new pixel to the old one, (x, y), in halves of
            the width and of the height.
    """
    warp_options = Warp(interpolation, fill, padding_mode).warp_options
    moves = parameters.array("displacement", displacement)

    def write(plan: Plan) -> None:
        heights, widths = plan.sizes
        if moves.shape not in [(n, heights[0], widths[0], 2) for n in (1, len(plan))]:
            raise TransformError(f"displacement must be (1, {heights[0]}, {widths[0]}, 2) here, not {moves.shape}")
        # Nodes half a pixel apart: every other one is the center of a pixel, and only centers are sampled.
        nodes = [np.arange(2 * int(size[0]) + 1) // 2 for size in plan.sizes]
        rows, columns = (np.minimum(own, own[-1] - 1) for own in nodes)
        field = moves[:, rows][:, :, columns, ::-1] * [heights[0] / 2.0, widths[0] / 2.0]
        plan.warp(np.eye(3), heights, widths, **warp_options, field=field if len(field) > 1 else field[0])

    return apply(image, write)


def pad(
    image: ImageT,
    padding: int | Sequence[int],
    fill: float | Sequence[float] | None = 0,
    padding_mode: str = "constant",
) -> ImageT:
    """Adds pixels on the sides, or cuts them off; see `Pad`.

    `padding` is one number, (left/right, top/bottom) or (left, top, right, bottom).
    """
    sides, border, color = parameters.padding(padding), parameters.border(padding_mode), parameters.fill("fill", fill)
    return apply(image, lambda plan: plan.pad(*sides, border=border, fill=color))
