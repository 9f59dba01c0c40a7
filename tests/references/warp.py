"""General geometry on (H, W, 3) arrays: where each output pixel comes from, one pixel at a time in float64."""

from __future__ import annotations

import math

import numpy as np

from tests.references.sampling import cubic, triangle

#: Names of borders as np.pad understands them.
_PAD_MODES = {"edge": "edge", "reflect": "reflect", "symmetric": "symmetric", "wrap": "wrap"}


def continued(i: int, n: int, border: str) -> int:
    """Index i of a row of n pixels, continued beyond its ends; -1 for the constant."""
    if 0 <= i < n:
        return i
    if border == "constant":
        return -1
    # np.pad on the row of its own indices, as far as needed.
    far = abs(i) + n
    row = np.pad(np.arange(n), far, mode=_PAD_MODES[border])
    return int(row[i + far])


def displacement(field: np.ndarray, y: float, x: float, height: int, width: int) -> tuple[float, float]:
    """(dy, dx) at a point of the output, linear between the nodes."""
    rows, columns = field.shape[:2]
    down, across = y / height * (rows - 1), x / width * (columns - 1)
    i, j = min(int(down), rows - 2), min(int(across), columns - 2)
    t, s = down - i, across - j
    a, b, c, d = field[i, j], field[i, j + 1], field[i + 1, j], field[i + 1, j + 1]
    dy, dx = (a * (1 - s) + b * s) * (1 - t) + (c * (1 - s) + d * s) * t
    return float(dy), float(dx)


def warp(
    image: np.ndarray,
    matrix: np.ndarray,
    height: int,
    width: int,
    filter: str,
    border: str = "constant",
    fill=0.0,
    field: np.ndarray | None = None,
) -> np.ndarray:
    """As `Plan.warp` says. Saturates nothing."""
    h, w, _ = image.shape
    filling = np.broadcast_to(np.asarray(fill, dtype=np.float64), 3)
    out = np.empty((height, width, 3))

    def pixel(y: int, x: int) -> np.ndarray:
        y, x = continued(y, h, border), continued(x, w, border)
        return filling if y < 0 or x < 0 else image[y, x].astype(np.float64)

    for row in range(height):
        for column in range(width):
            y, x = row + 0.5, column + 0.5
            if field is not None:
                dy, dx = displacement(field, y, x, height, width)
                y, x = y + dy, x + dx
            across, down, depth = matrix @ (x, y, 1.0)
            down, across = down / depth, across / depth
            if filter == "nearest":
                out[row, column] = pixel(math.floor(down), math.floor(across))
                continue
            reach = 1 if filter == "bilinear" else 2
            top, left = math.floor(down - 0.5), math.floor(across - 0.5)
            total = np.zeros(3)
            for i in range(top - reach + 1, top + reach + 1):
                for j in range(left - reach + 1, left + reach + 1):
                    if filter == "bilinear":
                        weight = triangle(i + 0.5 - down) * triangle(j + 0.5 - across)
                    else:
                        weight = cubic(i + 0.5 - down, -0.75) * cubic(j + 0.5 - across, -0.75)
                    total += weight * pixel(i, j)
            out[row, column] = total
    return out
