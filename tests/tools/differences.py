"""What differs on purpose from torchvision, step by step, by its formulas: the third table of docs/parity.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from cuaug import transforms as T
from tests.references import color, filters, sampling, statistics, warp
from tests.tools.peer_outputs import PIL, DecodedImage, by_pillow, turned, warped

__all__ = ["DIFFERENCES", "Difference"]


def rounded(*steps: Callable[[DecodedImage], DecodedImage]) -> Callable[[DecodedImage], DecodedImage]:
    """The steps one by one, rounded to uint8 after each, as torchvision does it where pixels move."""

    def run(image: DecodedImage) -> DecodedImage:
        for step in steps:
            image = color.levels(step(image.astype(np.float64)))
        return image

    return run


def resized(height: int, width: int) -> Callable[[DecodedImage], DecodedImage]:
    return lambda image: sampling.resize(image, height, width, "bilinear", True)


def brightness(factor: float) -> Callable[[DecodedImage], DecodedImage]:
    return cut_off(lambda image: color.brightness(image, factor, 255.0))


def contrast(factor: float) -> Callable[[DecodedImage], DecodedImage]:
    return cut_off(lambda image: color.blend(image, np.floor(color.gray(image)).mean(), factor, 255.0))


def saturation(factor: float) -> Callable[[DecodedImage], DecodedImage]:
    return cut_off(lambda image: color.blend(image, np.floor(color.gray(image))[..., None], factor, 255.0))


def hue(turn: float) -> Callable[[DecodedImage], DecodedImage]:
    return cut_off(lambda image: color.hue(image / 255.0, turn, 1.0) * 255.999)


def cut_off(change: Callable[[DecodedImage], DecodedImage]) -> Callable[[DecodedImage], DecodedImage]:
    """A change of colour: fractions are not rounded there, but dropped. In float32, where 1.3 * 10 is not quite 13."""
    return lambda image: np.floor(change(image.astype(np.float32)))


def filled(image: DecodedImage, fill: float = 0.0) -> DecodedImage:
    """A rotation with a `fill`: what grid_sample has already weighed near the edge is weighed again."""
    inside = turned(np.ones_like(image, dtype=np.float64))
    return (turned(image) - fill) * inside + fill


def smooth_rounded(image: DecodedImage) -> DecodedImage:
    smooth = color.levels(filters.adjust_sharpness(image, 0.0, 255.0)).astype(np.float64)
    return np.clip(3.0 * image - 2.0 * smooth, 0, 255)


BOX = np.array([[60.0, 70.0, 140.0, 120.0]])


def boxes(box: DecodedImage, image: DecodedImage, transform: Any) -> DecodedImage:
    return T.Compose([transform])(image, {"boxes": box})[1]["boxes"]


@dataclass(frozen=True)
class Difference:
    """What torchvision computes, step by step, and the chain that has another result here."""

    what: str
    why: str
    chain: tuple[Any, ...]
    theirs: Callable[[DecodedImage], DecodedImage]
    ours: Callable[[T.Compose, DecodedImage], Any] = lambda chain, image: chain(image)


TURN = T.RandomRotation((30, 30), "bilinear", fill=None)

DIFFERENCES = (
    Difference("Brightness, contrast, saturation and hue of uint8",
               "rounded once, at the end; torchvision cuts off fractions four times",
               (T.RandomBrightness((1.3, 1.3)), T.RandomContrast((0.7, 0.7)), T.RandomSaturation((1.4, 1.4)),
                T.RandomHue((0.05, 0.05))),
               rounded(brightness(1.3), contrast(0.7), saturation(1.4), hue(0.05))),
    Difference("`ColorJitter(brightness=(1.3, 1.3))` of uint8", "rounded; torchvision cuts off the fraction",
               (T.ColorJitter(brightness=(1.3, 1.3)),), rounded(brightness(1.3))),
    Difference("`ColorJitter(saturation=(1.3, 1.3))` of uint8", "the same, also of the gray that it blends with",
               (T.ColorJitter(saturation=(1.3, 1.3)),), rounded(saturation(1.3))),
    Difference("`ColorJitter(contrast=(2.9, 2.9))` of uint8", "the same",
               (T.ColorJitter(contrast=(2.9, 2.9)),), rounded(contrast(2.9))),
    Difference("`ColorJitter(hue=(0.05, 0.05))` of uint8", "rounded; torchvision cuts off that of v * 255.999",
               (T.ColorJitter(hue=(0.05, 0.05)),), rounded(hue(0.05))),
    Difference("`Grayscale(3)` of uint8", "rounded; torchvision cuts off the fraction", (T.Grayscale(3),),
               rounded(cut_off(color.grayscale))),
    Difference("`Resize` then `CenterCrop` of uint8", "one pass, the same numbers: only a different order of sums",
               (T.Resize((80, 96)), T.CenterCrop(64)), rounded(resized(80, 96), lambda v: v[8:72, 16:80])),
    Difference("`Resize` then `ColorJitter(contrast=(1.5, 1.5))` of uint8", "rounded once, at the end",
               (T.Resize((80, 96)), T.ColorJitter(contrast=(1.5, 1.5))), rounded(resized(80, 96), contrast(1.5))),
    Difference("`Resize` then `Normalize` of uint8, in levels", "the resized image is not rounded",
               (T.Resize((80, 96)), T.Normalize(0.0, 1.0)),
               lambda v: color.levels(resized(80, 96)(v.astype(np.float64))) / 255.0),
    Difference("`RandomRotation(30)`, bilinear, at the edge of what is turned",
               "blended with `fill`, 0 by default; torchvision's weights add up to less than 1 there: darker",
               (T.RandomRotation((30, 30), "bilinear"),), rounded(filled)),
    Difference("The same with `fill=None`", "torchvision then blends with 0", (TURN,), rounded(turned)),
    Difference("`RandomRotation(30)`, bilinear, of a PIL image", "Pillow blends nothing at the edge",
               (T.RandomRotation((30, 30), "bilinear"),), by_pillow(Image.Image.rotate, 30, PIL.BILINEAR)),
    Difference("`Resize` then `RandomRotation(30, fill=None)`, bilinear",
               "two interpolations here too, not rounded between them", (T.Resize((80, 96)), TURN),
               rounded(resized(80, 96), turned)),
    Difference("`RandomRotation(30, fill=None)`, then by -10, bilinear", "the same",
               (TURN, T.RandomRotation((-10, -10), "bilinear", fill=None)),
               rounded(turned, warped(lambda h, w: warp.affine(h, w, 10, (0, 0), 1.0, (0, 0)), "bilinear"))),
    Difference("`Resize` to 3/4, then to a half of that", "one interpolation instead of two: sharper",
               (T.Resize((72, 96)), T.Resize((36, 48))), rounded(resized(72, 96), resized(36, 48))),
    Difference('`Resize(..., "bicubic")` of uint8', "saturated and rounded once; Pillow does both after each pass",
               (T.Resize((70, 96), "bicubic"),), by_pillow(Image.Image.resize, (96, 70), PIL.BICUBIC)),
    Difference("`RandomAutocontrast` of uint8", "rounded; torchvision and Pillow truncate", (T.RandomAutocontrast(1),),
               lambda v: np.floor(statistics.autocontrast(v.astype(np.float64), 255.0))),
    Difference("`RandomAdjustSharpness(3)` of uint8", "the smoothed image is not rounded before it is blended",
               (T.RandomAdjustSharpness(3, 1),), rounded(smooth_rounded)),
    Difference("The box 60, 70, 140, 120, turned by 30 degrees and back, in pixels",
               "its four corners are moved, and enclosed once, at the end",
               (T.RandomRotation((30, 30)), T.RandomRotation((-30, -30))),
               lambda v: boxes(boxes(BOX, v, T.RandomRotation((30, 30))), v, T.RandomRotation((-30, -30))),
               lambda chain, v: boxes(BOX, v, chain)),
)  # fmt: skip
