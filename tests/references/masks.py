"""Operations that depend on pixel positions, on (H, W, 3) arrays."""

from __future__ import annotations

import numpy as np

from tests.references.philox import pixel_words


def inside(h: int, w: int, rectangle) -> np.ndarray:
    """(H, W) bool: rows y0 ... y1 - 1 and columns x0 ... x1 - 1."""
    y0, x0, y1, x1 = rectangle
    y, x = np.mgrid[:h, :w]
    return (y >= y0) & (y < y1) & (x >= x0) & (x < x1)


def erase(image: np.ndarray, rectangle, value) -> np.ndarray:
    result = image.copy()
    result[inside(*image.shape[:2], rectangle)] = value
    return result


def uniform(words: np.ndarray) -> np.ndarray:
    """The upper 24 bits as a fraction of 1."""
    return (words >> np.uint32(8)) / 2.0**24


def normal(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The Box-Muller transform of two words."""
    radius = np.sqrt(-2 * np.log(uniform(first) + 0.5 / 2**24))
    return radius * np.cos(2 * np.pi * uniform(second))


def normals(h: int, w: int, key) -> np.ndarray:
    """(H, W, 3) standard normal numbers, one per pixel and channel."""
    a, b = pixel_words(h, w, key, 0), pixel_words(h, w, key, 1)
    pairs = [(a[..., 0], a[..., 1]), (a[..., 2], a[..., 3]), (b[..., 0], b[..., 1])]
    return np.stack([normal(*pair) for pair in pairs], axis=-1)


def erase_noise(image: np.ndarray, rectangle, key, mean: float, std: float) -> np.ndarray:
    h, w, _ = image.shape
    return np.where(inside(h, w, rectangle)[..., None], mean + std * normals(h, w, key), image)


def mask(image: np.ndarray, ratio: float, key, fill) -> np.ndarray:
    result = image.copy()
    result[uniform(pixel_words(*image.shape[:2], key)[..., 0]) < ratio] = fill
    return result


def grid(image: np.ndarray, tile: float, ratio: float, angle: float, shift, fill) -> np.ndarray:
    """Fills pixels whose center, rotated by `angle` radians, has both tile fractions below `ratio`."""
    h, w, _ = image.shape
    y, x = np.mgrid[:h, :w] + 0.5
    down, across = np.cos(angle) * y + np.sin(angle) * x, np.cos(angle) * x - np.sin(angle) * y
    result = image.copy()
    result[((down / tile + shift[0]) % 1.0 < ratio) & ((across / tile + shift[1]) % 1.0 < ratio)] = fill
    return result
