"""Pixel operations as `OP` rows: one function per operation, one row per sample.

Parameters are numbers or arrays with one entry per sample; colours are a number, (3,) per channel, or (N, 1) or
(N, 3) per sample. `n` is the number of samples and `limit` the value of white (`Plan.limit`): most operations
saturate to [0, limit] as torchvision's do. kernels/pixelops.h computes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.plan.layout import OP, OpCode

__all__ = [
    "LUMA",
    "POSITIONAL",
    "brightness",
    "contrast",
    "erase",
    "erase_with_noise",
    "grayscale",
    "hue",
    "look_up",
    "mask",
    "matrix",
    "saturation",
    "scale",
    "shuffled",
]

Ops = NDArray[Any]

#: ITU-R BT.601 luma, with the digits that torchvision's rgb_to_grayscale has.
LUMA = np.array([0.2989, 0.587, 0.114])
#: Operations that know where a pixel stands, so that no geometry may slip under them.
POSITIONAL = (OpCode.ERASE, OpCode.ERASE_NOISE, OpCode.MASK)


def _rows(n: int, code: OpCode, limit: float = -1.0) -> Ops:
    ops = np.zeros(n, dtype=OP)
    ops["code"] = code
    ops["limit"] = limit
    return ops


def scale(n: int, factor: ArrayLike, bias: ArrayLike = 0.0, *, limit: float = -1.0) -> Ops:
    """v * factor + bias for each channel."""
    ops = _rows(n, OpCode.SCALE, limit)
    ops["a"][:, 0:3] = factor
    ops["a"][:, 4:7] = bias
    return ops


def brightness(n: int, limit: float, factor: ArrayLike) -> Ops:
    """v * factor."""
    return scale(n, np.reshape(factor, (-1, 1)), limit=limit)


def matrix(n: int, limit: float, values: ArrayLike) -> Ops:
    """M[:, :3] @ (r, g, b) + M[:, 3]; `values` is M, (3, 4), or (N, 3, 4)."""
    ops = _rows(n, OpCode.MATRIX, limit)
    ops["a"] = np.reshape(values, (-1, 12))
    return ops


def saturation(n: int, limit: float, factor: ArrayLike) -> Ops:
    """factor * v + (1 - factor) * gray."""
    keep = np.reshape(factor, (-1, 1, 1)).astype(np.float64)
    blend = keep * np.eye(3, 4) + (1.0 - keep) * np.append(LUMA, 0.0)
    return matrix(n, limit, blend)


def grayscale(n: int) -> Ops:
    """Gray in all three channels."""
    return matrix(n, -1.0, np.tile(np.append(LUMA, 0.0), (3, 1)))


def contrast(n: int, limit: float, factor: ArrayLike) -> Ops:
    """factor * v + (1 - factor) * the image's mean gray level. `Plan.append` sees to the mean."""
    ops = _rows(n, OpCode.CONTRAST, limit)
    ops["a"][:, 0] = factor
    return ops


def hue(n: int, limit: float, turn: ArrayLike) -> Ops:
    """Turns the hue by `turn` of the full circle, in HSV."""
    ops = _rows(n, OpCode.HUE, limit)
    ops["a"][:, 0] = turn
    return ops


def look_up(n: int, limit: float, table: ArrayLike) -> Ops:
    """The value in the plan's look-up table number `table`."""
    ops = _rows(n, OpCode.LUT)
    ops["a"][:, 0] = 255.0 / limit
    ops["table"] = table
    return ops


def erase(n: int, rectangle: ArrayLike, value: ArrayLike) -> Ops:
    """`value` in rows y0 ... y1 - 1 and columns x0 ... x1 - 1; rectangle is (4,) or (N, 4): y0, x0, y1, x1."""
    ops = _rows(n, OpCode.ERASE)
    ops["a"][:, 0:4] = rectangle
    ops["a"][:, 4:7] = value
    return ops


def erase_with_noise(n: int, rectangle: ArrayLike, keys: NDArray[np.uint32], mean: float, std: float) -> Ops:
    """Normal noise in the rectangle, for each pixel and channel from the sample's key, (N, 2)."""
    ops = _rows(n, OpCode.ERASE_NOISE)
    ops["a"][:, 0:4] = rectangle
    ops["a"][:, 4], ops["a"][:, 5] = mean, std
    ops["key"] = keys
    return ops


def mask(n: int, ratio: ArrayLike, keys: NDArray[np.uint32], fill: ArrayLike = 0.0) -> Ops:
    """`fill` in each pixel with probability `ratio`, independently, from the sample's key, (N, 2)."""
    ops = _rows(n, OpCode.MASK)
    ops["a"][:, 0] = ratio
    ops["a"][:, 4:7] = fill
    ops["key"] = keys
    return ops


def shuffled(steps: list[Ops], order: NDArray[np.int64]) -> list[Ops]:
    """The steps, each (N,) rows, in an order of its own for each sample; `order` is (N, len(steps))."""
    raw = np.stack([ops.view(f"V{OP.itemsize}") for ops in steps])
    samples = np.arange(raw.shape[1])
    return [raw[which, samples].view(OP) for which in order.T]
