"""NumPy references of the transforms: functions of a transform's arguments that return a reference.

A reference takes an (H, W, 3) float64 image in levels 0 ... 255 and the parameters drawn for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.references import auto, color, filters, jpeg, masks, noise, sampling, statistics
from tests.references import warp as warping

Image = np.ndarray
Reference = Callable[..., Image]

TABLE = np.random.default_rng(7).integers(0, 256, (3, 256)).astype(np.float32)
YUV = np.array([[0.299, 0.587, 0.114], [-0.147108, -0.288804, 0.435912], [0.614777, -0.514799, -0.099978]])


def resize(filter: str = "bilinear", antialias: bool = True) -> Reference:
    def run(image: Image, height: int, width: int) -> Image:
        return sampling.resize(image, int(height), int(width), filter, antialias)

    return run


def center_crop(height: int, width: int, fill: Any = 0.0) -> Reference:
    """torchvision's center_crop: padding, smaller half first, then a crop at round((h - height) / 2)."""

    def run(image: Image) -> Image:
        h, w, _ = image.shape
        left, right = max((width - w) // 2, 0), max((width - w + 1) // 2, 0)
        top, bottom = max((height - h) // 2, 0), max((height - h + 1) // 2, 0)
        image = sampling.pad(image, left, top, right, bottom, "constant", fill)
        h, w, _ = image.shape
        return sampling.crop(image, round((h - height) / 2.0), round((w - width) / 2.0), height, width)

    return run


def pad(left: int, top: int, right: int, bottom: int, border: str = "constant", fill: Any = 0.0) -> Reference:
    return lambda image: sampling.pad(image, left, top, right, bottom, border, fill)


def random_crop(height: int, width: int, border: str = "constant", fill: Any = 0.0) -> Reference:
    def run(image: Image, sides: list[int], top: int, left: int) -> Image:
        image = sampling.pad(image, *(int(side) for side in sides), border, fill)
        return sampling.crop(image, int(top), int(left), height, width)

    return run


def cut(image: Image, top: int, left: int, height: int, width: int) -> Image:
    return sampling.crop(image, int(top), int(left), int(height), int(width))


def fixed_size(height: int, width: int, border: str = "constant", fill: Any = 0.0) -> Reference:
    def run(image: Image, top: int, left: int) -> Image:
        image = image[int(top) : int(top) + height, int(left) : int(left) + width]
        h, w, _ = image.shape
        return sampling.pad(image, 0, 0, width - w, height - h, border, fill)

    return run


def resized_crop(height: int, width: int, filter: str = "bilinear", antialias: bool = True) -> Reference:
    def run(image: Image, top: float, left: float, **window: float) -> Image:
        h, w = int(window["height"]), int(window["width"])
        image = sampling.crop(image, int(top), int(left), h, w)
        return sampling.resize(image, height, width, filter, antialias)

    return run


def jitter(*names: str) -> Reference:
    def run(image: Image, order: np.ndarray, **factors: float) -> Image:
        for k in np.atleast_1d(order):
            image = getattr(color, names[k])(image, factors[names[k]], 255.0)
        return image

    return run


def yuv(inverse: bool = False) -> Reference:
    """OpenCV's COLOR_RGB2YUV; V - Y = 0.877 (R - Y), U - Y = 0.492 (B - Y)."""

    def run(image: Image) -> Image:
        gray = np.array([0.0, 128.0, 128.0])
        result = (image - gray) @ np.linalg.inv(YUV).T if inverse else image @ YUV.T + gray
        return color.saturate(result, 255.0)

    return run


def erasing(value: Any) -> Reference:
    def run(image: Image, rectangle: np.ndarray, keys: np.ndarray) -> Image:
        if value == "random":
            return masks.erase_noise(image, rectangle, keys, 127.5, 63.75)
        return masks.erase(image, rectangle, value)

    return run


def mask(ratio: float, fill: Any = 0.0) -> Reference:
    return lambda image, keys: masks.mask(image, ratio, keys, fill)


def gaussian_blur(width: int, height: int) -> Reference:
    return lambda image, sigma: filters.gaussian_blur(image, (width, height), sigma)


def motion_blur(border: str = "constant", filter: str = "nearest") -> Reference:
    def run(image: Image, size: int, angle: float, direction: float) -> Image:
        return filters.correlate(image, filters.motion_kernel(size, angle, direction, filter), border)

    return run


def downscale(down: str, up: str) -> Reference:
    def run(image: Image, scale: float) -> Image:
        h, w, _ = image.shape
        small = sampling.resize(image, max(round(h * scale), 1), max(round(w * scale), 1), down, False)
        return sampling.resize(small, h, w, up, False)

    return run


def by_pillow(image: Image, quality: int) -> Image:
    return jpeg.by_pillow(image.astype(np.uint8), int(quality)).astype(np.float64)


def normalize(mean: Any, std: Any) -> Reference:
    return lambda image: (image / 255.0 - np.asarray(mean)) / np.asarray(std)


def mirrored(vertical: bool) -> Reference:
    return lambda image: sampling.flip(image, vertical)


def rotation(filter: str = "nearest", expand: bool = False, center: Any = None, **options: Any) -> Reference:
    def run(image: Image, angle: float) -> Image:
        h, w, _ = image.shape
        size = warping.expanded_size(h, w, angle) if expand else (h, w)
        matrix = warping.affine(h, w, -angle, (0, 0), 1.0, (0, 0), None if expand else center, size)
        return warping.warp(image, matrix, *size, filter, **options)

    return run


def affine(filter: str = "nearest", center: Any = None, **options: Any) -> Reference:
    def run(image: Image, **params: Any) -> Image:
        h, w, _ = image.shape
        return warping.warp(image, warping.affine(h, w, **params, center=center), h, w, filter, **options)

    return run


def perspective(filter: str = "bilinear", **options: Any) -> Reference:
    def run(image: Image, startpoints: np.ndarray, endpoints: np.ndarray) -> Image:
        return warping.warp(image, warping.perspective(startpoints, endpoints), *image.shape[:2], filter, **options)

    return run


def elastic(filter: str = "bilinear", **options: Any) -> Reference:
    def run(image: Image, field: np.ndarray, rows: int, columns: int) -> Image:
        return warping.warp(image, np.eye(3), *image.shape[:2], filter, field=field[:rows, :columns], **options)

    return run


def grid_distortion(filter: str = "bilinear", **options: Any) -> Reference:
    """Maps cell borders of the new image to the old one; linear in between."""

    def run(image: Image, steps_y: np.ndarray, steps_x: np.ndarray) -> Image:
        places = []
        for size, steps in zip(image.shape[:2], (steps_y, steps_x), strict=True):
            cell = size / len(steps)
            places.append(
                np.interp(
                    np.arange(size) + 0.5, cell * np.arange(len(steps) + 1), cell * np.append(0, np.cumsum(steps))
                )
            )
        return warping.remap(image, np.stack(np.meshgrid(*places, indexing="ij"), axis=-1), filter, **options)

    return run


def quarter_turns(image: Image, k: int, transpose: bool = False) -> Image:
    turned = np.rot90(image, k)
    return turned.swapaxes(0, 1) if transpose else turned


def zoom_out(fill: Any = 0.0) -> Reference:
    return lambda image, sides: sampling.pad(image, *(int(side) for side in sides), "constant", fill)


def single(name: str) -> Reference:
    """One operation of ColorJitter."""
    return lambda image, factor: getattr(color, name)(image, factor, 255.0)


def distort(image: Image, acts: Any, contrast_before: bool, permutation: Any, **factors: float) -> Image:
    """torchvision's RandomPhotometricDistort."""
    does = dict(zip(["brightness", "contrast", "saturation", "hue", "permutation"], acts, strict=True))
    for name, due in (
        ("brightness", True),
        ("contrast", contrast_before),
        ("saturation", True),
        ("hue", True),
        ("contrast", not contrast_before),
    ):
        if does[name] and due:
            image = getattr(color, name)(image, factors[name], 255.0)
    return color.permutation(image, permutation) if does["permutation"] else image


def at_white_255(operation: Reference, *arguments: Any) -> Reference:
    return lambda image, **params: operation(image, *arguments, **params, limit=255.0)


def clahe(grid: tuple[int, int]) -> Reference:
    return lambda image, clip_limit: statistics.clahe(image, clip_limit, grid, 255.0)


def salt_and_pepper(image: Image, amount: float, pepper: float, keys: np.ndarray) -> Image:
    return masks.mask(masks.mask(image, amount, keys, 255.0), pepper, keys, 0.0)


def gaussian(mean: float) -> Reference:
    return lambda image, keys, sigma: noise.noise(image, keys, 255.0 * mean, 255.0 * sigma)


def shot(image: Image, keys: np.ndarray, scale: float) -> Image:
    return noise.shot_noise(image, keys, scale, 255.0)


def coarse(fill: Any = 0.0) -> Reference:
    def run(image: Image, count: int, rectangles: np.ndarray) -> Image:
        for rectangle in rectangles[:count]:
            image = masks.erase(image, rectangle, fill)
        return image

    return run


def grid(fill: Any = 0.0) -> Reference:
    return lambda image, **params: masks.grid(image, **params, fill=fill)


def timm_policy(filter: str | None = None, fill: Any = 128.0) -> Reference:
    def run(image: Image, operation: Any, magnitude: Any, is_cubic: Any) -> Image:
        for name, amount, cubic in zip(operation, magnitude, is_cubic, strict=True):
            kind = filter or ("bicubic" if cubic else "bilinear")
            image = auto.step(image, name, amount, filter=kind, fill=fill)
        return image

    return run


def automatic(filter: str = "nearest", fill: Any = 0.0) -> Reference:
    return lambda image, **params: auto.steps(image, **params, filter=filter, fill=fill)
