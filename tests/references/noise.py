"""Noise on (H, W, 3) float64 arrays, from each pixel's own generator."""

from __future__ import annotations

import math

import numpy as np

from tests.references.masks import normal, normals, uniform
from tests.references.philox import pixel_words


def noise(image: np.ndarray, key, mean: float, std: float) -> np.ndarray:
    return image + mean + std * normals(*image.shape[:2], key)


def poisson(mean: float, first: np.uint32, second: np.uint32) -> int:
    """A Poisson number from two words: the least count whose cumulative probability exceeds the first's fraction."""
    if mean >= 12.0:
        z, deviation = float(normal(first, second)), math.sqrt(mean - 1 / 12)
        return max(math.floor(mean + deviation * z + (z * z - 1) / 6 + (z - z**3) / (72 * deviation) + 0.5), 0)
    fraction, count, total = float(uniform(first)), 0, math.exp(-mean)
    while fraction >= total and count < mean + 6 * math.sqrt(mean) + 12:
        count += 1
        total += math.exp(-mean) * mean**count / math.factorial(count)
    return count


def shot_noise(image: np.ndarray, key, scale: float, limit: float) -> np.ndarray:
    """Photon noise of linear light, v ** 2.2, in photons of `scale`."""
    h, w, _ = image.shape
    a, b = pixel_words(h, w, key, 0), pixel_words(h, w, key, 1)
    result = np.empty_like(image)
    for at in np.ndindex(image.shape):
        light = min(max(image[at] / limit, 0.0), 1.0) ** 2.2
        result[at] = limit * min(poisson(light / scale, a[at], b[at]) * scale, 1.0) ** (1 / 2.2)
    return result
