"""Resize, crop, flip and pad on (H, W, 3) arrays. A resize is two matrix products in float64."""

from __future__ import annotations

import math

import numpy as np


def triangle(x: float) -> float:
    return max(0.0, 1.0 - abs(x))


def cubic(x: float, a: float) -> float:
    """Keys (1981), equation 15 with its free parameter."""
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    if x < 2:
        return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return 0.0


def sinc(x: float) -> float:
    return math.sin(math.pi * x) / (math.pi * x) if x else 1.0


#: The weights of the antialiased filters.
ANTIALIASED = {
    "bilinear": triangle,
    "bicubic": lambda x: cubic(x, -0.5),
    "box": lambda x: float(-0.5 + 1e-9 < x <= 0.5 + 1e-9),
    "hamming": lambda x: sinc(x) * (0.54 + 0.46 * math.cos(math.pi * x)) if abs(x) < 1 else 0.0,
    "lanczos": lambda x: sinc(x) * sinc(x / 3) if abs(x) < 3 else 0.0,
}


def nearest_matrix(old: int, new: int) -> np.ndarray:
    """Output i is input floor(i * old / new), with OpenCV's rounding of the quotient."""
    matrix = np.zeros((new, old))
    for i in range(new):
        matrix[i, min(math.floor(i * (1.0 / (new / old))), old - 1)] = 1
    return matrix


def nearest_exact_matrix(old: int, new: int) -> np.ndarray:
    """Output i is the input under its center; between two inputs, the second."""
    matrix = np.zeros((new, old))
    matrix[np.arange(new), (2 * np.arange(new) + 1) * old // (2 * new)] = 1
    return matrix


def interpolation_matrix(old: int, new: int, filter: str) -> np.ndarray:
    """2 or 4 neighbors of the center; the end pixel repeats beyond the ends."""
    matrix = np.zeros((new, old))
    for i in range(new):
        center = (i + 0.5) * old / new - 0.5
        around = range(math.floor(center), math.floor(center) + 2)
        if filter == "bicubic":
            around = range(math.floor(center) - 1, math.floor(center) + 3)
        for k in around:
            weight = triangle(k - center) if filter == "bilinear" else cubic(k - center, -0.75)
            matrix[i, min(max(k, 0), old - 1)] += weight
    return matrix


def antialias_matrix(old: int, new: int, filter: str) -> np.ndarray:
    """The filter, stretched by the reduction, centered on each output, cut at the ends and normalized."""
    stretch = max(1.0, old / new)
    matrix = np.zeros((new, old))
    for i in range(new):
        center = (i + 0.5) * old / new
        for k in range(old):
            matrix[i, k] = ANTIALIASED[filter]((k + 0.5 - center) / stretch)
        matrix[i] /= matrix[i].sum()
    return matrix


def resize(image: np.ndarray, height: int, width: int, filter: str, antialias: bool) -> np.ndarray:
    """filter: the name of a `Filter`, in lower case."""

    def matrix(old: int, new: int) -> np.ndarray:
        if filter == "nearest":
            return nearest_matrix(old, new)
        if filter == "nearest_exact":
            return nearest_exact_matrix(old, new)
        return antialias_matrix(old, new, filter) if antialias else interpolation_matrix(old, new, filter)

    down, across = matrix(image.shape[0], height), matrix(image.shape[1], width)
    return np.einsum("Yy,yxc,Xx->YXc", down, image.astype(np.float64), across, optimize=True)


def crop(image: np.ndarray, top: int, left: int, height: int, width: int) -> np.ndarray:
    return image[top : top + height, left : left + width]


def flip(image: np.ndarray, vertical: bool) -> np.ndarray:
    return image[::-1] if vertical else image[:, ::-1]


def border_indices(n: int, before: int, after: int, border: str) -> np.ndarray:
    """Indices 0 to n - 1 padded by a border, as np.pad does from NumPy 2 on.

    NumPy 1 repeats a row wrongly if it is much shorter than the padding.
    """
    i = np.arange(-before, n + after)
    if border == "edge":
        return i.clip(0, n - 1)
    if border == "wrap":
        return i % n
    last = {"symmetric": 2 * n - 1, "reflect": 2 * n - 2}[border]
    i %= max(1, last + (border == "symmetric"))
    return np.minimum(i, last - i)


def pad(image: np.ndarray, left: int, top: int, right: int, bottom: int, border: str, fill=0.0) -> np.ndarray:
    """border: "constant", "edge", "reflect", "symmetric" or "wrap", as in np.pad."""
    h, w, _ = image.shape
    if border != "constant":
        return image[border_indices(h, top, bottom, border)][:, border_indices(w, left, right, border)]
    padded = np.empty((top + h + bottom, left + w + right, 3), dtype=image.dtype)
    padded[:] = fill
    padded[top : top + h, left : left + w] = image
    return padded
