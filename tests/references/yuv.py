"""Video frames to RGB in NumPy, pixel by pixel: chroma upsampling, then the matrix of BT.601, BT.709 or BT.2020."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["WEIGHTS", "to_rgb", "upsample"]

#: (Kr, Kb) of each matrix.
WEIGHTS = {
    "bt601": (0.299, 0.114),
    "bt709": (0.2126, 0.0722),
    "bt2020": (0.2627, 0.0593),
    "smpte240m": (0.212, 0.087),
    "fcc": (0.30, 0.11),
}


def upsample(chroma: NDArray, axis: int, size: int, cosited: bool) -> NDArray:
    """Twice the samples along an axis, cut to `size`. Edges repeat.

    Args:
        cosited: chroma lies on even luma samples; False: between two of them.
    """
    chroma = np.moveaxis(chroma, axis, 0).astype(np.float32)
    before, after = np.concatenate([chroma[:1], chroma[:-1]]), np.concatenate([chroma[1:], chroma[-1:]])
    result = np.empty((2 * len(chroma), *chroma.shape[1:]), np.float32)
    if cosited:
        result[0::2], result[1::2] = chroma, (chroma + after) / 2
    else:
        result[0::2], result[1::2] = (3 * chroma + before) / 4, (3 * chroma + after) / 4
    return np.moveaxis(result[:size], 0, axis)


def to_rgb(
    luma: NDArray, u: NDArray | None, v: NDArray | None, bits: int, matrix: str, full_range: bool, cosited: bool
) -> NDArray[np.uint8]:
    """(H, W, 3) uint8 of planes (H, W), (h, w) and (h, w); u and v are None for gray.

    It rounds after each operation as float32 does, in the order of the formula.
    """
    size = luma.shape
    if u is None or v is None:
        u = v = np.full(size, 2 ** (bits - 1), np.uint16)
    for axis in (0, 1):
        if u.shape[axis] < size[axis]:
            u, v = (upsample(plane, axis, size[axis], cosited and axis == 1) for plane in (u, v))
    level, number = 2.0 ** (bits - 8), np.float32
    if full_range:
        low, luma_unit, chroma_unit = 0.0, 255 / (2**bits - 1), 255 / (2**bits - 1)
    else:
        low, luma_unit, chroma_unit = 16 * level, 255 / (219 * level), 255 / (224 * level)
    kr, kb = WEIGHTS[matrix]
    kg = 1 - kr - kb
    y = (luma.astype(number) - number(low)) * number(luma_unit)
    u, v = (plane.astype(number) - number(128 * level) for plane in (u, v))
    red = y + number(chroma_unit * 2 * (1 - kr)) * v
    green = y + number(-chroma_unit * 2 * (1 - kb) * kb / kg) * u
    green = green + number(-chroma_unit * 2 * (1 - kr) * kr / kg) * v
    blue = y + number(chroma_unit * 2 * (1 - kb)) * u
    return np.floor(np.stack([red, green, blue], axis=-1).clip(0, 255) + number(0.5)).astype(np.uint8)
