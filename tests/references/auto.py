"""Automatic augmentation on (H, W, 3) float64 arrays: torchvision's `_apply_image_or_video_transform`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.references import color, filters, statistics, warp


def step(
    image: np.ndarray, name: str, magnitude: float, filter: str = "nearest", fill: Any = 0.0, limit: float = 255.0
) -> np.ndarray:
    """Applies operation `name` with `magnitude`; `limit` is the value of white."""
    h, w, _ = image.shape
    factor = 1.0 + magnitude

    def affine(angle: float = 0.0, translate=(0, 0), sheared=(0.0, 0.0)) -> np.ndarray:
        matrix = warp.affine(h, w, angle, translate, 1.0, (0.0, 0.0))
        matrix[[0, 1], [1, 0]] += sheared  # about the corner; the angle would be a rounded arctangent
        moved = warp.warp(image, matrix, h, w, filter, fill=fill)
        return np.clip(moved, 0.0, limit) if filter == "bicubic" and limit == 255.0 else moved

    moves = {
        "ShearX": {"sheared": (magnitude, 0.0)},
        "ShearY": {"sheared": (0.0, magnitude)},
        "TranslateX": {"translate": (magnitude, 0)},
        "TranslateY": {"translate": (0, magnitude)},
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
    if name == "SolarizeAdd":
        level = np.floor(image * 255.0 / limit + 0.5)
        return np.where(level < 128, np.minimum(level + magnitude, 255.0), level) * limit / 255.0
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
