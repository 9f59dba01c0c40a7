"""Matrices of rotations, affine maps and perspectives, for a whole batch at once.

Points are (x, y) in pixels; pixel i covers [i, i + 1), y points down. Every matrix leads from the new image's points
to those of the old one, as `Plan.warp` takes it. Angles are in degrees.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.plan.linear import adjugate, product

__all__ = ["about", "affine", "expanded", "perspective", "regular", "rotation"]

Array = NDArray[np.float64]


def _cos_sin(degrees: ArrayLike) -> tuple[Array, Array]:
    """Exact at quarter turns, where radians are not: what turns by 90 degrees must move whole pixels."""
    degrees = np.asarray(degrees, dtype=np.float64)
    quarters = degrees % 90.0 == 0.0
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.where(quarters, np.rint(cos), cos), np.where(quarters, np.rint(sin), sin)


def _two_by_two(a: ArrayLike, b: ArrayLike, c: ArrayLike, d: ArrayLike) -> Array:
    """(..., 2, 2) from four numbers or arrays."""
    matrix = np.empty((*np.broadcast(a, b, c, d).shape, 2, 2))
    matrix[..., 0, 0], matrix[..., 0, 1], matrix[..., 1, 0], matrix[..., 1, 1] = a, b, c, d
    return matrix


def rotation(degrees: ArrayLike) -> Array:
    """(N, 2, 2): turns the picture counter-clockwise; `degrees` is (N,)."""
    cos, sin = _cos_sin(degrees)
    return _two_by_two(cos, -sin, sin, cos)


def affine(degrees: ArrayLike, scale: ArrayLike, shear: ArrayLike) -> Array:
    """(N, 2, 2): torchvision's rotation (clockwise), scale and shear; `shear` is (N, 2) degrees along x and y.

    torchvision turns what it has sheared, along x and then along y; this undoes that, last first.
    """
    radians = np.deg2rad(np.asarray(shear, dtype=np.float64))
    # NumPy's tangent has other last bits on other processors, its sine and cosine have not.
    across, down = np.moveaxis(np.sin(radians) / np.cos(radians), -1, 0)
    upright = _two_by_two(1.0 + across * down, across, down, 1.0)
    turned = product(upright, rotation(-np.asarray(degrees)))
    return turned / np.asarray(scale, dtype=np.float64)[..., None, None]


def about(linear: Array, old: ArrayLike, new: ArrayLike) -> Array:
    """(N, 3, 3): the linear map that leads from the point `new` of the new image to `old`; (N, 2) or (2,) each."""
    matrix = np.zeros((len(linear), 3, 3))
    matrix[:, :2, :2] = linear
    matrix[:, :2, 2] = np.asarray(old) - product(linear, np.asarray(new)[..., None])[..., 0]
    matrix[:, 2, 2] = 1.0
    return matrix


def expanded(linear: Array, heights: ArrayLike, widths: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(N,) heights and widths that show all of the turned image: torchvision's (and Pillow's) rule.

    They round outwards from where the old image lies, so that the middle stays in the middle; what is within 1e-4 of a
    whole pixel counts as that pixel. Quarter turns give the sides themselves.
    """
    old = np.stack([np.broadcast_to(widths, len(linear)), np.broadcast_to(heights, len(linear))], axis=1) / 2.0
    reach = product(np.abs(linear), old[..., None])[..., 0]
    high, low = (np.trunc((old + side) * 1e4) / 1e4 for side in (reach, -reach))
    quarters = (np.abs(linear) % 1.0 == 0.0).all(axis=(1, 2))
    size = np.where(quarters[:, None], 2.0 * reach, np.ceil(high) - np.floor(low)).astype(np.int64)
    return size[:, 1], size[:, 0]


def regular(corners: ArrayLike) -> NDArray[np.bool_]:
    """(N,): whether no three of the four corners, (N, 4, 2), lie on a line, so that they make a perspective."""
    corners = np.asarray(corners, dtype=np.float64)
    one, other = np.roll(corners, -1, axis=1) - corners, np.roll(corners, -2, axis=1) - corners
    return (one[..., 0] * other[..., 1] != one[..., 1] * other[..., 0]).all(axis=1)


def _basis(corners: Array) -> Array:
    """(N, 3, 3): leads from (1, 0, 0), (0, 1, 0), (0, 0, 1) and (1, 1, 1) to the corners; at any scale."""
    points = np.append(corners, np.ones((len(corners), 4, 1)), axis=2).swapaxes(1, 2)
    return points[:, :, :3] * product(adjugate(points[:, :, :3]), points[:, :, 3:]).swapaxes(1, 2)


def perspective(old: ArrayLike, new: ArrayLike) -> Array:
    """(N, 3, 3): leads from the corners `new` of the new image to `old`, (N, 4, 2) each.

    The one that torchvision finds as eight coefficients; by two bases of the projective plane, which also finds those
    in which the point (0, 0) is infinitely far away. Corners that are not `regular` give the identity.
    """
    fits = (regular(old) & regular(new))[:, None, None]
    square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    old, new = (np.where(fits, corners, square) for corners in (old, new))
    matrix = product(_basis(old), adjugate(_basis(new)))
    last = matrix[:, 2:, 2:]
    return matrix / np.where(last == 0.0, 1.0, last)
