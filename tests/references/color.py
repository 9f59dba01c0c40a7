"""Point operations on (H, W, 3) float64 arrays, as torchvision defines them; `limit` is the value of white."""

from __future__ import annotations

import numpy as np


def saturate(image: np.ndarray, limit: float) -> np.ndarray:
    return np.clip(image, 0.0, limit)


def gray(image: np.ndarray) -> np.ndarray:
    """(H, W) luma: torchvision's rgb_to_grayscale before rounding."""
    return 0.2989 * image[..., 0] + 0.587 * image[..., 1] + 0.114 * image[..., 2]


def blend(image: np.ndarray, other: np.ndarray | float, factor: float, limit: float) -> np.ndarray:
    return saturate(factor * image + (1 - factor) * other, limit)


def scale(image: np.ndarray, factor, bias=0.0) -> np.ndarray:
    return image * np.asarray(factor) + np.asarray(bias)


def brightness(image: np.ndarray, factor: float, limit: float) -> np.ndarray:
    return blend(image, 0.0, factor, limit)


def contrast(image: np.ndarray, factor: float, limit: float) -> np.ndarray:
    return blend(image, gray(image).mean(), factor, limit)


def saturation(image: np.ndarray, factor: float, limit: float) -> np.ndarray:
    return blend(image, gray(image)[..., None], factor, limit)


def grayscale(image: np.ndarray) -> np.ndarray:
    return np.repeat(gray(image)[..., None], 3, axis=2)


def matrix(image: np.ndarray, values: np.ndarray, limit: float) -> np.ndarray:
    """values: (3, 4); the last column is added."""
    result = np.empty_like(image)
    for i in range(3):
        result[..., i] = sum(values[i][c] * image[..., c] for c in range(3)) + values[i][3]
    return saturate(result, limit)


def lut(image: np.ndarray, tables: np.ndarray, limit: float) -> np.ndarray:
    """tables: (3, 256) uint8 levels."""
    levels = np.floor(np.clip(image * (255.0 / limit), 0, 255) + 0.5).astype(int)
    return np.stack([tables[c][levels[..., c]] for c in range(3)], axis=2) * (limit / 255.0)


def hue(image: np.ndarray, turn: float, limit: float) -> np.ndarray:
    """torchvision's adjust_hue: RGB to HSV, add, HSV to RGB, one pixel at a time."""
    result = np.empty_like(image)
    for at in np.ndindex(image.shape[:2]):
        h, s, v = rgb_to_hsv(*(image[at] / limit))
        result[at] = hsv_to_rgb((h + turn) % 1.0, s, v)
    return saturate(result * limit, limit)


def rgb_to_hsv(r: float, g: float, b: float) -> tuple[float, float, float]:
    high, low = max(r, g, b), min(r, g, b)
    if high == low:
        return 0.0, 0.0, high
    chroma = high - low
    rc, gc, bc = (high - r) / chroma, (high - g) / chroma, (high - b) / chroma
    if high == r:
        h = bc - gc
    elif high == g:
        h = 2.0 + rc - bc
    else:
        h = 4.0 + gc - rc
    return (h / 6.0 + 1.0) % 1.0, chroma / high, high


def hsv_to_rgb(h: float, s: float, v: float) -> tuple[float, float, float]:
    sector = int(np.floor(h * 6.0))
    f = h * 6.0 - sector
    p, q, t = v * (1 - s), v * (1 - s * f), v * (1 - s * (1 - f))
    return [(v, t, p), (q, v, p), (p, v, t), (p, q, v), (t, p, v), (v, p, q)][sector % 6]


def levels(image: np.ndarray) -> np.ndarray:
    """Rounds to uint8, halves up."""
    return np.floor(np.clip(image, 0, 255) + 0.5).astype(np.uint8)


def invert(image: np.ndarray, limit: float) -> np.ndarray:
    return limit - image


def posterize(image: np.ndarray, bits: int, limit: float) -> np.ndarray:
    """torchvision's posterize: the upper bits of uint8 levels, or 2**bits steps of a float."""
    if limit == 255.0:
        return (levels(image) & (((1 << bits) - 1) << (8 - bits))).astype(np.float64)
    return np.clip(np.floor(image * 2**bits), 0, 2**bits - 1) / 2**bits


def solarize(image: np.ndarray, threshold: float, limit: float) -> np.ndarray:
    """torchvision's solarize; uint8 images are compared as rounded levels."""
    rounded = levels(image) if limit == 255.0 else image
    return np.where(rounded >= threshold, limit - image, image)


def gamma(image: np.ndarray, gamma: float, gain: float, limit: float) -> np.ndarray:
    return saturate(limit * gain * (np.maximum(image, 0.0) / limit) ** gamma, limit)


def permutation(image: np.ndarray, order) -> np.ndarray:
    return image[..., list(order)]
