"""Deliberate differences from torchvision, by its formulas: the third table of docs/parity.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from cuaug import transforms as T
from tests.references import color, filters, sampling, statistics, warp
from tests.tools.peer_outputs import PIL, DecodedImage, by_pillow, rotated, warped

__all__ = ["DIFFERENCES", "Difference"]


def rounded(*steps: Callable[[DecodedImage], DecodedImage]) -> Callable[[DecodedImage], DecodedImage]:
    """The steps in order, each rounded to uint8, as torchvision does after geometry."""

    def run(image: DecodedImage) -> DecodedImage:
        for step in steps:
            image = color.levels(step(image.astype(np.float64)))
        return image

    return run


def resized(height: int, width: int) -> Callable[[DecodedImage], DecodedImage]:
    return lambda image: sampling.resize(image, height, width, "bilinear", True)


def brightness(factor: float) -> Callable[[DecodedImage], DecodedImage]:
    return truncated(lambda image: color.brightness(image, factor, 255.0))


def contrast(factor: float) -> Callable[[DecodedImage], DecodedImage]:
    return truncated(lambda image: color.blend(image, np.floor(color.gray(image)).mean(), factor, 255.0))


def saturation(factor: float) -> Callable[[DecodedImage], DecodedImage]:
    return truncated(lambda image: color.blend(image, np.floor(color.gray(image))[..., None], factor, 255.0))


def hue(shift: float) -> Callable[[DecodedImage], DecodedImage]:
    return truncated(lambda image: color.hue(image / 255.0, shift, 1.0) * 255.999)


def truncated(change: Callable[[DecodedImage], DecodedImage]) -> Callable[[DecodedImage], DecodedImage]:
    """A color change with dropped fractions, as torchvision, in float32, where 1.3 * 10 is not quite 13."""
    return lambda image: np.floor(change(image.astype(np.float32)))


def filled(image: DecodedImage, fill: float = 0.0) -> DecodedImage:
    """A rotation with a `fill`: torchvision weights the edge twice, in grid_sample and with the fill."""
    inside = rotated(np.ones_like(image, dtype=np.float64))
    return (rotated(image) - fill) * inside + fill


def smooth_rounded(image: DecodedImage) -> DecodedImage:
    smooth = color.levels(filters.adjust_sharpness(image, 0.0, 255.0)).astype(np.float64)
    return np.clip(3.0 * image - 2.0 * smooth, 0, 255)


BOX = np.array([[60.0, 70.0, 140.0, 120.0]])


def boxes(box: DecodedImage, image: DecodedImage, transform: Any) -> DecodedImage:
    return T.Compose([transform])(image, {"boxes": box})[1]["boxes"]


@dataclass(frozen=True)
class Difference:
    """A chain whose result differs from torchvision's, and torchvision's computation."""

    case: str
    reason: str
    chain: tuple[Any, ...]
    theirs: Callable[[DecodedImage], DecodedImage]
    ours: Callable[[T.Compose, DecodedImage], Any] = lambda chain, image: chain(image)


ROTATION = T.RandomRotation((30, 30), "bilinear", fill=None)

DIFFERENCES = (
    Difference("Brightness, contrast, saturation and hue of uint8",
               "rounded once at the end; torchvision truncates four times",
               (T.RandomBrightness((1.3, 1.3)), T.RandomContrast((0.7, 0.7)), T.RandomSaturation((1.4, 1.4)),
                T.RandomHue((0.05, 0.05))),
               rounded(brightness(1.3), contrast(0.7), saturation(1.4), hue(0.05))),
    Difference("`ColorJitter(brightness=(1.3, 1.3))` of uint8", "rounded; torchvision truncates",
               (T.ColorJitter(brightness=(1.3, 1.3)),), rounded(brightness(1.3))),
    Difference("`ColorJitter(saturation=(1.3, 1.3))` of uint8", "the same, also for the gray it blends with",
               (T.ColorJitter(saturation=(1.3, 1.3)),), rounded(saturation(1.3))),
    Difference("`ColorJitter(contrast=(2.9, 2.9))` of uint8", "the same",
               (T.ColorJitter(contrast=(2.9, 2.9)),), rounded(contrast(2.9))),
    Difference("`ColorJitter(hue=(0.05, 0.05))` of uint8", "rounded; torchvision truncates v * 255.999",
               (T.ColorJitter(hue=(0.05, 0.05)),), rounded(hue(0.05))),
    Difference("`Grayscale(3)` of uint8", "rounded; torchvision truncates", (T.Grayscale(3),),
               rounded(truncated(color.grayscale))),
    Difference("`Resize` then `CenterCrop` of uint8", "one pass: the sums have another order",
               (T.Resize((80, 96)), T.CenterCrop(64)), rounded(resized(80, 96), lambda v: v[8:72, 16:80])),
    Difference("`Resize` then `ColorJitter(contrast=(1.5, 1.5))` of uint8", "rounded once at the end",
               (T.Resize((80, 96)), T.ColorJitter(contrast=(1.5, 1.5))), rounded(resized(80, 96), contrast(1.5))),
    Difference("`Resize` then `Normalize` of uint8, in levels", "the resized image is not rounded",
               (T.Resize((80, 96)), T.Normalize(0.0, 1.0)),
               lambda v: color.levels(resized(80, 96)(v.astype(np.float64))) / 255.0),
    Difference("`RandomRotation(30)`, bilinear, at the edge of the rotated image",
               "blended with `fill`, 0 by default; torchvision's weights sum to less than 1: darker",
               (T.RandomRotation((30, 30), "bilinear"),), rounded(filled)),
    Difference("The same with `fill=None`", "torchvision then blends with 0", (ROTATION,), rounded(rotated)),
    Difference("`RandomRotation(30)`, bilinear, of a PIL image", "Pillow does not blend at the edge",
               (T.RandomRotation((30, 30), "bilinear"),), by_pillow(Image.Image.rotate, 30, PIL.BILINEAR)),
    Difference("`Resize` then `RandomRotation(30, fill=None)`, bilinear",
               "two interpolations as well, without rounding between them", (T.Resize((80, 96)), ROTATION),
               rounded(resized(80, 96), rotated)),
    Difference("`RandomRotation(30, fill=None)`, then by -10, bilinear", "the same",
               (ROTATION, T.RandomRotation((-10, -10), "bilinear", fill=None)),
               rounded(rotated, warped(lambda h, w: warp.affine(h, w, 10, (0, 0), 1.0, (0, 0)), "bilinear"))),
    Difference("`Resize` to 3/4, then to half of that", "one interpolation instead of two: sharper",
               (T.Resize((72, 96)), T.Resize((36, 48))), rounded(resized(72, 96), resized(36, 48))),
    Difference('`Resize(..., "bicubic")` of uint8', "saturated and rounded once; Pillow does so after each pass",
               (T.Resize((70, 96), "bicubic"),), by_pillow(Image.Image.resize, (96, 70), PIL.BICUBIC)),
    Difference("`RandomAutocontrast` of uint8", "rounded; torchvision and Pillow truncate", (T.RandomAutocontrast(1),),
               lambda v: np.floor(statistics.autocontrast(v.astype(np.float64), 255.0))),
    Difference("`RandomAdjustSharpness(3)` of uint8", "the smoothed image is not rounded before blending",
               (T.RandomAdjustSharpness(3, 1),), rounded(smooth_rounded)),
    Difference("The box 60, 70, 140, 120, rotated by 30 degrees and back, in pixels",
               "its four corners move, and are enclosed once at the end",
               (T.RandomRotation((30, 30)), T.RandomRotation((-30, -30))),
               lambda v: boxes(boxes(BOX, v, T.RandomRotation((30, 30))), v, T.RandomRotation((-30, -30))),
               lambda chain, v: boxes(BOX, v, chain)),
)  # fmt: skip
