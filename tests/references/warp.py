"""General geometry on (H, W, 3) arrays, one output pixel at a time in float64."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator

import numpy as np

from tests.references import sampling
from tests.references.sampling import cubic, triangle

#: Pixels that `nudged` adds to points that take the nearest pixel, down and across.
_nudge = 0.0, 0.0


@contextlib.contextmanager
def nudged(down: float, across: float) -> Iterator[None]:
    """Moves the points that take the nearest pixel: one on the edge between two pixels may take either."""
    global _nudge
    _nudge = down, across
    try:
        yield
    finally:
        _nudge = 0.0, 0.0


@functools.cache
def border_index(i: int, n: int, border: str) -> int:
    """The pixel that index i of a row of n reads beyond its ends; -1 for a constant border."""
    if 0 <= i < n:
        return i
    if border == "constant":
        return -1
    far = abs(i) + n
    return int(sampling.border_indices(n, far, far, border)[i + far])


def displacement(field: np.ndarray, y: float, x: float, height: int, width: int) -> tuple[float, float]:
    """(dy, dx) at a point of the output, by linear interpolation between nodes."""
    rows, columns = field.shape[:2]
    down, across = y / height * (rows - 1), x / width * (columns - 1)
    i, j = min(int(down), rows - 2), min(int(across), columns - 2)
    t, s = down - i, across - j
    a, b, c, d = field[i, j], field[i, j + 1], field[i + 1, j], field[i + 1, j + 1]
    dy, dx = (a * (1 - s) + b * s) * (1 - t) + (c * (1 - s) + d * s) * t
    return float(dy), float(dx)


def remap(image: np.ndarray, places: np.ndarray, filter: str, border: str = "constant", fill=0.0) -> np.ndarray:
    """Samples each pixel at `places`, (H, W, 2) y and x in pixels, the first center at 0.5; without saturation."""
    h, w, _ = image.shape
    color = np.broadcast_to(np.asarray(fill, dtype=np.float64), 3)
    out = np.empty((*places.shape[:2], 3))

    def pixel(y: int, x: int) -> np.ndarray:
        y, x = border_index(y, h, border), border_index(x, w, border)
        return color if y < 0 or x < 0 else image[y, x].astype(np.float64)

    for row, column in np.ndindex(out.shape[:2]):
        down, across = places[row, column]
        if filter == "nearest":
            out[row, column] = pixel(math.floor(down + _nudge[0]), math.floor(across + _nudge[1]))
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
    """The reference of `Plan.warp`, without saturation."""
    places = np.empty((height, width, 2))
    for row, column in np.ndindex(height, width):
        y, x = row + 0.5, column + 0.5
        if field is not None:
            dy, dx = displacement(field, y, x, height, width)
            y, x = y + dy, x + dx
        across, down, depth = matrix @ (x, y, 1.0)
        places[row, column] = down / depth, across / depth
    return remap(image, places, filter, border, fill)


# --- torchvision's formulas, as of 0.20 -------------------------------------------------------------------------------


def inverse_affine(center, angle: float, translate, scale: float, shear) -> np.ndarray:
    """_get_inverse_affine_matrix, (3, 3), for points and a center relative to the middle of the image."""
    rot, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    (cx, cy), (tx, ty) = center, translate
    a = math.cos(rot - sy) / math.cos(sy)
    b = -math.cos(rot - sy) * math.tan(sx) / math.cos(sy) - math.sin(rot)
    c = math.sin(rot - sy) / math.cos(sy)
    d = -math.sin(rot - sy) * math.tan(sx) / math.cos(sy) + math.cos(rot)
    matrix = np.array([[d / scale, -b / scale, 0.0], [-c / scale, a / scale, 0.0], [0.0, 0.0, 1.0]])
    matrix[0, 2] = cx + matrix[0, 0] * (-cx - tx) + matrix[0, 1] * (-cy - ty)
    matrix[1, 2] = cy + matrix[1, 0] * (-cx - tx) + matrix[1, 1] * (-cy - ty)
    return matrix


def affine(h: int, w: int, angle: float, translate, scale: float, shear, center=None, size=None) -> np.ndarray:
    """functional.affine as (3, 3): maps points of the new image, of `size` (None: h x w), to points of the old, h x w.

    functional.rotate is the same with -angle.
    """
    center = (0.0, 0.0) if center is None else (center[0] - w * 0.5, center[1] - h * 0.5)
    new_h, new_w = (h, w) if size is None else size
    to_middle = np.array([[1.0, 0.0, -new_w / 2], [0.0, 1.0, -new_h / 2], [0.0, 0.0, 1.0]])
    from_middle = np.array([[1.0, 0.0, w / 2], [0.0, 1.0, h / 2], [0.0, 0.0, 1.0]])
    return from_middle @ inverse_affine(center, angle, translate, scale, shear) @ to_middle


def expanded_size(h: int, w: int, angle: float) -> tuple[int, int]:
    """(height, width) by _compute_affine_output_size, and by rotate's own rule for quarter turns."""
    if angle % 90 == 0:
        return (h, w) if angle % 180 == 0 else (w, h)
    matrix = inverse_affine((0, 0), -angle, (0, 0), 1.0, (0, 0))
    corners = np.array([[-0.5 * w, -0.5 * h], [-0.5 * w, 0.5 * h], [0.5 * w, 0.5 * h], [0.5 * w, -0.5 * h]])
    points = corners @ matrix[:2, :2].T + (0.5 * w, 0.5 * h)
    high, low = points.max(axis=0), points.min(axis=0)
    width, height = np.ceil(np.trunc(high * 1e4) * 1e-4) - np.floor(np.trunc(low * 1e4) * 1e-4)
    return int(height), int(width)


def perspective(startpoints: np.ndarray, endpoints: np.ndarray) -> np.ndarray:
    """_get_perspective_coeffs, (3, 3): least squares for eight coefficients, the ninth 1."""
    system, right = np.zeros((8, 8)), np.asarray(startpoints, dtype=np.float64).reshape(8)
    for i, ((x, y), (u, v)) in enumerate(zip(endpoints, startpoints, strict=True)):
        system[2 * i] = x, y, 1, 0, 0, 0, -u * x, -u * y
        system[2 * i + 1] = 0, 0, 0, x, y, 1, -v * x, -v * y
    return np.append(np.linalg.lstsq(system, right, rcond=None)[0], 1.0).reshape(3, 3)


def elastic_noise(h: int, w: int, sigma_x: float, sigma_y: float, rng: np.random.Generator, count: int) -> np.ndarray:
    """(count, h, w) ElasticTransform's noise before scaling: uniform in [-1, 1], blurred, mirrored at borders."""
    noise = rng.uniform(-1.0, 1.0, (count, h, w))
    for axis, sigma in ((1, sigma_y), (2, sigma_x)):
        size = int(8 * sigma + 1) // 2 * 2 + 1
        x = np.linspace(-(size - 1) / 2, (size - 1) / 2, size)
        kernel = np.exp(-0.5 * (x / sigma) ** 2)
        kernel /= kernel.sum()
        padded = np.take(noise, sampling.border_indices(noise.shape[axis], size // 2, size // 2, "reflect"), axis)
        noise = sum(weight * np.take(padded, range(k, k + noise.shape[axis]), axis) for k, weight in enumerate(kernel))
    return noise
