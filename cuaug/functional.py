"""The operations with explicit parameters, on images in hand. Nothing here is random but `gaussian_noise`.

Each function takes and returns what `cuaug.transforms.Compose` does: a torch tensor, (C, H, W) or (N, C, H, W); a
NumPy or CuPy array, (H, W), (H, W, C) or (N, H, W, C); or a PIL image. Names and meaning are torchvision's.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cuaug.apply import apply
from cuaug.errors import TransformError
from cuaug.plan import Plan, operations
from cuaug.transforms import (
    CLAHE,
    CenterCrop,
    GaussianBlur,
    GaussianNoise,
    MotionBlur,
    RandomAdjustSharpness,
    RandomAffine,
    RandomPosterize,
    RandomRotation,
    RandomSolarize,
    Resize,
    arguments,
    blur,
    matrices,
)
from cuaug.transforms.warps import Warp

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "adjust_sharpness",
    "affine",
    "autocontrast",
    "center_crop",
    "clahe",
    "convert_color",
    "crop",
    "elastic",
    "equalize",
    "erase",
    "five_crop",
    "gaussian_blur",
    "gaussian_noise",
    "horizontal_flip",
    "invert",
    "jpeg",
    "lut",
    "matrix",
    "median_blur",
    "motion_blur",
    "normalize",
    "pad",
    "permute_channels",
    "perspective",
    "posterize",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "rot90",
    "rotate",
    "solarize",
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
        plan.warp(np.eye(3), heights, widths, **how, field=np.broadcast_to(field, (len(plan), *field.shape[1:])))

    return apply(image, write)


def pad(image: Any, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Pixels added on the sides: one number, (left/right, top/bottom), or (left, top, right, bottom)."""
    sides, border, color = arguments.sides(padding), arguments.border(padding_mode), arguments.color("fill", fill)
    return apply(image, lambda plan: plan.pad(*sides, border=border, fill=color))


def adjust_brightness(image: Any, brightness_factor: float) -> Any:
    """Values times the factor, saturated."""
    return apply(image, lambda plan: plan.append(operations.brightness(len(plan), plan.limit, brightness_factor)))


def adjust_contrast(image: Any, contrast_factor: float) -> Any:
    """Blended with the image's mean gray level: 0 is that gray, 1 the image."""
    return apply(image, lambda plan: plan.append(operations.contrast(len(plan), plan.limit, contrast_factor)))


def adjust_saturation(image: Any, saturation_factor: float) -> Any:
    """Blended with the gray image: 0 is gray, 1 the image."""
    return apply(image, lambda plan: plan.append(operations.saturation(len(plan), plan.limit, saturation_factor)))


def adjust_gamma(image: Any, gamma: float, gain: float = 1.0) -> Any:
    """gain * v ** gamma with black as 0 and white as 1, saturated."""
    for name, value in (("gamma", gamma), ("gain", gain)):
        arguments.span(name, (value, value))
    return apply(image, lambda plan: plan.append(operations.gamma(len(plan), plan.limit, gamma, gain)))


def posterize(image: Any, bits: int) -> Any:
    """The upper `bits` bits of each level; floats in [0, 1] become the lower end of each of 2**bits equal steps."""
    return apply(image, lambda plan: RandomPosterize(bits).write(plan, None))


def solarize(image: Any, threshold: float) -> Any:
    """Values inverted from `threshold` on, which is in the image's units."""
    return apply(image, lambda plan: RandomSolarize(threshold).write(plan, None))


def invert(image: Any) -> Any:
    """The negative."""
    return apply(image, lambda plan: plan.append(operations.invert(len(plan), plan.limit)))


def autocontrast(image: Any) -> Any:
    """Each channel stretched from black to white."""
    return apply(image, lambda plan: plan.append(operations.autocontrast(len(plan), plan.limit)))


def equalize(image: Any) -> Any:
    """Each channel's levels spread evenly, by Pillow's formula."""
    return apply(image, lambda plan: plan.append(operations.equalize(len(plan), plan.limit)))


def clahe(image: Any, clip_limit: float = 4.0, tile_grid_size: Sequence[int] = (8, 8)) -> Any:
    """Each channel equalized around each pixel; see `CLAHE`. A `clip_limit` of 0 limits nothing."""
    arguments.span("clip_limit", (clip_limit, clip_limit))
    chain = CLAHE(tile_grid_size=tile_grid_size)
    return apply(image, lambda plan: chain.write(plan, None, clip_limit=clip_limit))


def permute_channels(image: Any, permutation: Sequence[int]) -> Any:
    """Channel c of the result is channel permutation[c]."""
    order = arguments.values(permutation, operator.index)

    def write(plan: Plan) -> None:
        if sorted(order) != list(range(plan.channels)):
            raise TransformError(f"permutation is an order of 0 ... {plan.channels - 1}, not {permutation!r}")
        if plan.channels == 3:
            plan.append(operations.permutation(len(plan), order))

    return apply(image, write)


def gaussian_noise(image: Any, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> Any:
    """A normal draw added to each pixel and channel; mean and sigma are parts of white. Torch's generator draws."""
    return GaussianNoise(mean, sigma, clip)(image)


def adjust_hue(image: Any, hue_factor: float) -> Any:
    """The hue turned by the factor, in parts of the full circle, [-0.5, 0.5]."""
    arguments.span("hue_factor", (hue_factor, hue_factor), low=-0.5, high=0.5)
    return apply(image, lambda plan: plan.append(operations.hue(len(plan), plan.limit, hue_factor)))


def adjust_sharpness(image: Any, sharpness_factor: float) -> Any:
    """Blended with a smoothed image: 0 is that, 1 the image, 2 sharper. The outermost pixels stay."""
    return apply(image, lambda plan: RandomAdjustSharpness(sharpness_factor).write(plan, None))


def gaussian_blur(image: Any, kernel_size: int | Sequence[int], sigma: float | Sequence[float] | None = None) -> Any:
    """Blurred by a Gaussian; `kernel_size` and `sigma` are numbers, or (x, y). None: 0.15 * kernel_size + 0.35."""
    sizes = GaussianBlur(kernel_size).kernel_size
    sigmas = [0.15 * size + 0.35 for size in sizes] if sigma is None else list(arguments.values(sigma, float))
    if len(sigmas) not in (1, 2) or min(sigmas) <= 0.0:
        raise TransformError(f"sigma is a number above 0, or (x, y) of two, not {sigma!r}")
    across, down = (blur.gaussian_weights(size, value)[0] for size, value in zip(sizes, (sigmas * 2)[:2], strict=True))
    return apply(image, lambda plan: plan.convolve(down, across))


def motion_blur(
    image: Any,
    kernel_size: int,
    angle: float,
    direction: float = 0.0,
    padding_mode: str = "constant",
    interpolation: Any = "nearest",
) -> Any:
    """Blurred along a line of `kernel_size` pixels at `angle` degrees; see `MotionBlur`."""
    chain = MotionBlur(kernel_size, (angle, angle), (direction, direction), padding_mode, interpolation)

    def write(plan: Plan) -> None:
        chain.write(plan, None, **{name: np.full(len(plan), value) for name, value in one.items()})

    one = {"size": kernel_size, "angle": angle, "direction": direction}
    return apply(image, write)


def median_blur(image: Any, kernel_size: int) -> Any:
    """The median of each channel in 3, 5 or 7 pixels on a side."""
    return apply(image, lambda plan: plan.median(kernel_size))


def jpeg(image: Any, quality: int) -> Any:
    """Encoded as JPEG at a quality of 1 ... 100 (baseline, 4:2:0), and decoded again."""
    return apply(image, lambda plan: plan.jpeg(quality))


def rgb_to_grayscale(image: Any, num_output_channels: int = 1) -> Any:
    """Gray by ITU-R BT.601 luma, in 1 channel or 3."""
    from cuaug.transforms import Grayscale

    return apply(image, lambda plan: Grayscale(num_output_channels).write(plan, None))


def convert_color(image: Any, source: str = "RGB", target: str = "YUV") -> Any:
    """RGB to full-range BT.601 YUV, or back."""
    from cuaug.transforms import ConvertColor

    return apply(image, lambda plan: ConvertColor(source, target).write(plan, None))


def matrix(image: Any, values: ArrayLike) -> Any:
    """values[:, :3] @ (r, g, b) + values[:, 3], saturated; `values` is (3, 4), in the image's units."""
    return apply(image, lambda plan: plan.append(operations.matrix(len(plan), plan.limit, np.asarray(values))))


def lut(image: Any, table: ArrayLike) -> Any:
    """Each level's entry in `table`, (256,) or (3, 256), in uint8 levels."""
    return apply(image, lambda plan: plan.lut(table))


def erase(image: Any, top: int, left: int, height: int, width: int, value: Any = 0) -> Any:
    """`value`, a number or one per channel, in the rectangle."""
    rectangle = (top, left, top + height, left + width)
    color = arguments.color("value", value)
    return apply(image, lambda plan: plan.append(operations.erase(len(plan), rectangle, color)))


def normalize(image: Any, mean: Sequence[float], std: Sequence[float]) -> Any:
    """(v - mean) / std for each channel, of values in [0, 1] (uint8 images are scaled to that)."""
    return apply(image, lambda plan: plan.normalize(mean, std))
