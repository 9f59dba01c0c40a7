"""Blurs, sharpness and medians of (H, W, 3) float64 arrays, one output pixel at a time."""

from __future__ import annotations

import math

import numpy as np

from tests.references.warp import border_index


def correlate(image: np.ndarray, kernel: np.ndarray, border: str) -> np.ndarray:
    """Correlation with a kernel, (K, L) both odd, without flipping it."""
    h, w, _ = image.shape
    down, across = kernel.shape[0] // 2, kernel.shape[1] // 2
    rows = [border_index(y, h, border) for y in range(-down, h + down)]
    columns = [border_index(x, w, border) for x in range(-across, w + across)]
    padded = image.astype(np.float64)[rows][:, columns]
    padded[np.array(rows) < 0] = 0.0
    padded[:, np.array(columns) < 0] = 0.0
    out = np.zeros((h, w, 3))
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            out += kernel[i, j] * padded[i : i + h, j : j + w]
    return out


def gaussian_blur(image: np.ndarray, kernel_size: tuple[int, int], sigma: float) -> np.ndarray:
    """torchvision's gaussian_blur: kernel_size is (x, y)."""

    def kernel(size: int) -> np.ndarray:
        half = (size - 1) / 2
        weights = np.array([math.exp(-(((k - half) / sigma) ** 2) / 2) for k in range(size)])
        return weights / weights.sum()

    return correlate(image, np.outer(kernel(kernel_size[1]), kernel(kernel_size[0])), "reflect")


def adjust_sharpness(image: np.ndarray, factor: float, limit: float) -> np.ndarray:
    """torchvision's adjust_sharpness before rounding: the outermost pixels are not smoothed."""
    h, w, _ = image.shape
    smooth = image.astype(np.float64)
    if min(h, w) > 2:
        kernel = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13.0
        smooth[1:-1, 1:-1] = correlate(image, kernel, "edge")[1:-1, 1:-1]
    return np.clip(factor * image + (1 - factor) * smooth, 0.0, limit)


def motion_kernel(size: int, angle_degrees: float, direction: float, filter: str = "nearest") -> np.ndarray:
    """Kornia's get_motion_kernel2d: a row of weights from (d + 1) / 2 to (1 - d) / 2, rotated counter-clockwise."""
    half, start = size // 2, (direction + 1) / 2
    line = [start + (1 - 2 * start) * k / (size - 1) for k in range(size)]
    cos, sin = math.cos(math.radians(angle_degrees)), math.sin(math.radians(angle_degrees))
    kernel = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            x = round(cos * (j - half) - sin * (i - half), 9)
            y = round(sin * (j - half) + cos * (i - half), 9)
            for k in range(size):
                if filter == "nearest":
                    kernel[i, j] += line[k] * (round(x) == k - half and round(y) == 0)
                else:
                    kernel[i, j] += line[k] * max(0.0, 1 - abs(x - (k - half))) * max(0.0, 1 - abs(y))
    return kernel / kernel.sum()


def median(image: np.ndarray, size: int) -> np.ndarray:
    h, w, _ = image.shape
    padded = np.pad(image, ((size // 2,) * 2, (size // 2,) * 2, (0, 0)), mode="edge")
    windows = [padded[i : i + h, j : j + w] for i in range(size) for j in range(size)]
    return np.median(np.stack(windows), axis=0)
