"""Automatic augmentation on (H, W, 3) float64 arrays: torchvision's `_apply_image_or_video_transform`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.references import color, filters, statistics, warp


def step(
    image: np.ndarray, name: str, magnitude: float, filter: str = "nearest", fill: Any = 0.0, limit: float = 255.0
) -> np.ndarray:
    """Applies operation `name` with `magnitude`; `limit` is the value of white."""
    h, w, _ = image.shape
    factor, shear = 1.0 + magnitude, math.degrees(math.atan(magnitude))

    def affine(angle: float = 0.0, translate=(0, 0), shear=(0.0, 0.0), center=None) -> np.ndarray:
        matrix = warp.affine(h, w, angle, translate, 1.0, shear, center)
        moved = warp.warp(image, matrix, h, w, filter, fill=fill)
        return np.clip(moved, 0.0, limit) if filter == "bicubic" and limit == 255.0 else moved

    moves = {
        "ShearX": {"shear": (shear, 0.0), "center": (0, 0)},
        "ShearY": {"shear": (0.0, shear), "center": (0, 0)},
        "TranslateX": {"translate": (int(magnitude), 0)},
        "TranslateY": {"translate": (0, int(magnitude))},
        "Rotate": {"angle": -magnitude},
    }
    if name in moves:
        return affine(**moves[name])
    blends = {
        "Brightness": color.brightness,
        "Color": color.saturation,
        "Contrast": color.contrast,
        "Sharpness": filters.adjust_sharpness,
    }
    if name in blends:
        return blends[name](image, factor, limit)
    if name == "Posterize":
        return color.posterize(image, int(magnitude), limit)
    if name == "Solarize":
        return color.solarize(image, round(limit * magnitude, 9), limit)
    if name == "Invert":
        return color.invert(image, limit)
    if name in ("AutoContrast", "Equalize"):
        return getattr(statistics, name.lower())(image, limit)
    assert name == "Identity", name
    return image


def steps(image: np.ndarray, operation: Sequence[str], magnitude: Sequence[float], **options: Any) -> np.ndarray:
    """Applies operations one after the other, without rounding in between."""
    for name, amount in zip(operation, magnitude, strict=True):
        image = step(image, name, amount, **options)
    return image
