"""Matrices of rotations, affine maps and perspectives, for a whole batch.

Points are (x, y) in pixels; pixel i covers [i, i + 1), and y points down. Every matrix maps points of the new image to
points of the old one, as `Plan.warp` takes it. Angles are in degrees.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.plan.linear import adjugate, product

__all__ = ["about", "affine", "expanded", "is_regular", "perspective", "rotation"]

Array = NDArray[np.float64]


def _cos_sin(degrees: ArrayLike) -> tuple[Array, Array]:
    """Cosine and sine, exact at multiples of 90 degrees: a rotation by 90 degrees must move whole pixels."""
    degrees = np.asarray(degrees, dtype=np.float64)
    is_exact = degrees % 90.0 == 0.0
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.where(is_exact, np.rint(cos), cos), np.where(is_exact, np.rint(sin), sin)


def _two_by_two(a: ArrayLike, b: ArrayLike, c: ArrayLike, d: ArrayLike) -> Array:
    """(..., 2, 2) from four numbers or arrays."""
    matrix = np.empty((*np.broadcast(a, b, c, d).shape, 2, 2))
    matrix[..., 0, 0], matrix[..., 0, 1], matrix[..., 1, 0], matrix[..., 1, 1] = a, b, c, d
    return matrix


def rotation(degrees: ArrayLike) -> Array:
    """(N, 2, 2): rotates the image counter-clockwise by `degrees`, (N,)."""
    cos, sin = _cos_sin(degrees)
    return _two_by_two(cos, -sin, sin, cos)


def affine(degrees: ArrayLike, scale: ArrayLike, shear: ArrayLike) -> Array:
    """(N, 2, 2): torchvision's rotation (clockwise), scale and shear.

    torchvision shears along x, then along y, then rotates. The matrix is the inverse: last step first.

    Args:
        degrees, scale: (N,).
        shear: (N, 2) degrees along x and y.
    """
    radians = np.deg2rad(np.asarray(shear, dtype=np.float64))
    # sin / cos: the last bits of NumPy's tangent depend on the processor, those of its sine and cosine do not.
    across, down = np.moveaxis(np.sin(radians) / np.cos(radians), -1, 0)
    unsheared = _two_by_two(1.0 + across * down, across, down, 1.0)
    unrotated = product(unsheared, rotation(-np.asarray(degrees)))
    return unrotated / np.asarray(scale, dtype=np.float64)[..., None, None]


def about(linear: Array, old: ArrayLike, new: ArrayLike) -> Array:
    """(N, 3, 3): the linear map, shifted so that it maps point `new` of the new image to `old`; (N, 2) or (2,) each."""
    matrix = np.zeros((len(linear), 3, 3))
    matrix[:, :2, :2] = linear
    matrix[:, :2, 2] = np.asarray(old) - product(linear, np.asarray(new)[..., None])[..., 0]
    matrix[:, 2, 2] = 1.0
    return matrix


def expanded(linear: Array, heights: ArrayLike, widths: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(N,) heights and widths that show the whole rotated image, by torchvision's (and Pillow's) rule.

    Sides round outwards from the old image's bounds, so the center stays the center. Values within 1e-4 of a whole
    pixel count as that pixel. Multiples of 90 degrees give the exact sides.
    """
    old = np.stack([np.broadcast_to(widths, len(linear)), np.broadcast_to(heights, len(linear))], axis=1) / 2.0
    reach = product(np.abs(linear), old[..., None])[..., 0]
    high, low = (np.trunc((old + side) * 1e4) / 1e4 for side in (reach, -reach))
    is_exact = (np.abs(linear) % 1.0 == 0.0).all(axis=(1, 2))
    size = np.where(is_exact[:, None], 2.0 * reach, np.ceil(high) - np.floor(low)).astype(np.int64)
    return size[:, 1], size[:, 0]


def is_regular(corners: ArrayLike) -> NDArray[np.bool_]:
    """(N,): whether no three of the four corners, (N, 4, 2), are collinear, so that they define a perspective."""
    corners = np.asarray(corners, dtype=np.float64)
    one, other = np.roll(corners, -1, axis=1) - corners, np.roll(corners, -2, axis=1) - corners
    return (one[..., 0] * other[..., 1] != one[..., 1] * other[..., 0]).all(axis=1)


def _basis(corners: Array) -> Array:
    """(N, 3, 3): maps (1, 0, 0), (0, 1, 0), (0, 0, 1) and (1, 1, 1) to the corners; at any scale."""
    points = np.append(corners, np.ones((len(corners), 4, 1)), axis=2).swapaxes(1, 2)
    return points[:, :, :3] * product(adjugate(points[:, :, :3]), points[:, :, 3:]).swapaxes(1, 2)


def perspective(old: ArrayLike, new: ArrayLike) -> Array:
    """(N, 3, 3): maps the corners `new` of the new image to `old`, (N, 4, 2) each.

    The map equals torchvision's eight coefficients. Two bases of the projective plane also find maps that send the
    point (0, 0) to infinity. Corners that are not regular give the identity.
    """
    valid = (is_regular(old) & is_regular(new))[:, None, None]
    square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    old, new = (np.where(valid, corners, square) for corners in (old, new))
    matrix = product(_basis(old), adjugate(_basis(new)))
    last = matrix[:, 2:, 2:]
    return matrix / np.where(last == 0.0, 1.0, last)
