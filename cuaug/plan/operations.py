"""Point operations as `OP` rows: one function per operation, one row per sample.

Parameters are numbers, or arrays with one entry per sample. A color is a number, (3,) per channel, or (N, 1) or (N, 3)
per sample. `n` is the number of samples, and `limit` the value of white (`Plan.limit`): most operations saturate to
[0, limit], as in torchvision. kernels/ops.def lists the operations, kernels/core/point_operations.h computes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.plan.layout import OP, POINT_OPERATIONS, RAW_OP, Measure, OpCode, view_as
from cuaug.plan.pixel_function import PixelFunction

Ops = NDArray[Any]

#: ITU-R BT.601 luma, with the digits of torchvision's rgb_to_grayscale.
LUMA = np.array([0.2989, 0.587, 0.114])
#: Operations that depend on the position of a pixel: no later geometry may share their pass.
POSITIONAL = tuple(OpCode[operation.name] for operation in POINT_OPERATIONS if operation.positional)
#: Operations whose result for a channel depends on the others, directly or through a statistic.
MIXING = {
    int(OpCode[operation.name])
    for operation in POINT_OPERATIONS
    if not operation.per_channel or operation.measures == Measure.GRAY_SUM
}
#: Operations that need a statistic of the whole image first.
MEASURES = {OpCode[operation.name]: operation.measures for operation in POINT_OPERATIONS if operation.measures}

# 1 / 255 as a float of 16 bits and what it lacks.
_PER_255 = np.ldexp(np.floor(np.ldexp(1 / 255, 23)), -23), 1 / 255 - np.ldexp(np.floor(np.ldexp(1 / 255, 23)), -23)

#: Bits of pixel functions in a signature (kernels/core/signature.h).
FUNCTION_BITS = sum(1 << code for code in OpCode if code.name.startswith("FUNCTION_OF_"))


def _rows(n: int, code: int, limit: float) -> Ops:
    """Rows whose `limit` is the value of white; -1 if the operation takes any values, as those after `Normalize`."""
    ops = np.zeros(n, dtype=OP)
    ops["code"] = int(code)  # NumPy takes twice as long for an enumeration
    ops["limit"] = limit
    return ops


def knows_white(ops: Ops) -> bool:
    """Whether an operation saturates at white, or depends on where white is."""
    is_inversion = ops["code"][0] == OpCode.SCALE and ops["a"][0, 0] < 0
    return bool(ops["limit"][0] >= 0 or is_inversion)


def scale(n: int, factor: ArrayLike, bias: ArrayLike = 0.0, *, limit: float = -1.0) -> Ops:
    """v * factor + bias for each channel."""
    ops = _rows(n, OpCode.SCALE, limit)
    ops["a"][:, 0:3] = factor
    ops["a"][:, 4:7] = bias
    return ops


def normalize(n: int, mean: ArrayLike, std: ArrayLike, *, levels: bool) -> Ops:
    """(v - mean) / std for each channel, with torch's bits; `levels` are divided by 255 first."""
    ops = _rows(n, OpCode.NORMALIZE, -1.0)
    ops["a"][:, 0:3], ops["a"][:, 4:7], ops["a"][:, 8] = mean, std, 1.0
    if levels:
        ops["a"][:, 8:10] = _PER_255
    return ops


def brightness(n: int, limit: float, factor: ArrayLike) -> Ops:
    """v * factor."""
    return scale(n, np.reshape(factor, (-1, 1)), limit=limit)


def invert(n: int, limit: float) -> Ops:
    """white - v."""
    return scale(n, -1.0, limit)


def posterize(n: int, limit: float, bits: ArrayLike) -> Ops:
    """Keeps the upper `bits` bits, 0 ... 8, of uint8 levels; floats fall to the start of one of 2**bits equal steps."""
    levels = 2.0 ** np.asarray(bits, dtype=np.float64)
    ops = _rows(n, OpCode.POSTERIZE, limit)
    is_uint8 = limit == 255.0  # levels are rounded first
    step = (256.0 if is_uint8 else 1.0) / levels
    ops["a"][:, 0], ops["a"][:, 1], ops["a"][:, 2], ops["a"][:, 3] = 0.5 * is_uint8, 1.0 / step, levels - 1.0, step
    return ops


def solarize(n: int, limit: float, threshold: ArrayLike) -> Ops:
    """white - v where v >= threshold; uint8 levels are compared after rounding."""
    threshold = np.asarray(threshold, dtype=np.float64)
    ops = _rows(n, OpCode.SOLARIZE, limit)
    ops["a"][:, 0] = np.ceil(threshold) - 0.5 if limit == 255.0 else threshold
    ops["a"][:, 1] = limit
    return ops


def gamma(n: int, limit: float, gamma: ArrayLike, gain: ArrayLike = 1.0) -> Ops:
    """gain * v ** gamma with white at 1; both parameters are at least 0."""
    ops = _rows(n, OpCode.GAMMA, limit)
    ops["a"][:, 0], ops["a"][:, 1], ops["a"][:, 2] = limit * np.asarray(gain), gamma, limit
    return ops


def matrix(n: int, limit: float, values: ArrayLike) -> Ops:
    """M[:, :3] @ (r, g, b) + M[:, 3]; `values` is M: (3, 4) or (N, 3, 4)."""
    ops = _rows(n, OpCode.MATRIX, limit)
    ops["a"] = np.reshape(values, (-1, 12))
    return ops


def saturation(n: int, limit: float, factor: ArrayLike) -> Ops:
    """factor * v + (1 - factor) * gray."""
    ops, keep = _rows(n, OpCode.MATRIX, limit), np.reshape(factor, (-1, 1)).astype(np.float64)
    gray = (1.0 - keep) * LUMA
    diagonal = keep + gray
    for i in range(3):
        ops["a"][:, 4 * i : 4 * i + 3] = gray
        ops["a"][:, 5 * i] = diagonal[:, i]
    return ops


def grayscale(n: int) -> Ops:
    """Gray in all three channels."""
    return matrix(n, -1.0, np.tile(np.append(LUMA, 0.0), (3, 1)))


def permutation(n: int, order: ArrayLike) -> Ops:
    """Channel c becomes the old channel order[c]; `order` is (3,) or (N, 3)."""
    values = np.zeros((*np.shape(order), 4))
    np.put_along_axis(values, np.asarray(order, dtype=np.int64)[..., None], 1.0, axis=-1)
    return matrix(n, -1.0, values)


def first_channel(n: int) -> Ops:
    """Channel 0 in all three: an image of one channel stays gray after operations that act per channel."""
    return permutation(n, (0, 0, 0))


def contrast(n: int, limit: float, factor: ArrayLike) -> Ops:
    """factor * v + (1 - factor) * mean gray level of the image, which `Plan.append` makes the pass before measure."""
    ops = _rows(n, OpCode.CONTRAST, limit)
    ops["a"][:, 0] = factor
    return ops


def autocontrast(n: int, limit: float) -> Ops:
    """Stretches each channel's range to [0, white]; a channel of one value stays unchanged."""
    ops = _rows(n, OpCode.AUTOCONTRAST, limit)
    ops["a"][:, 0] = limit
    return ops


def equalize(n: int, limit: float) -> Ops:
    """Equalizes the histogram of each channel's uint8 levels, as Pillow does."""
    ops = _rows(n, OpCode.EQUALIZE, limit)
    ops["a"][:, 0], ops["a"][:, 1] = 255.0 / limit, limit / 255.0
    return ops


def clahe(n: int, limit: float, clip_limit: ArrayLike, grid: tuple[int, int] = (8, 8)) -> Ops:
    """Equalizes each channel's uint8 levels around each pixel, as OpenCV's CLAHE does.

    Args:
        clip_limit: maximum count of a level in a grid cell, as a multiple of the mean; 0 disables clipping.
        grid: cells (down, across).
    """
    ops = _rows(n, OpCode.CLAHE, limit)
    ops["a"][:, 0], ops["a"][:, 1], ops["a"][:, 4:6] = 255.0 / limit, limit / 255.0, grid
    # A double in two halves: the planner multiplies it and rounds down.
    ops["a"][:, 6:8] = np.broadcast_to(np.asarray(clip_limit, dtype=np.float64), n)[:, None].copy().view(np.float32)
    return ops


def hue(n: int, limit: float, turn: ArrayLike) -> Ops:
    """Shifts the HSV hue by `turn`, a fraction of the circle."""
    ops = _rows(n, OpCode.HUE, limit)
    ops["a"][:, 0] = turn
    return ops


def look_up(n: int, limit: float, table: ArrayLike) -> Ops:
    """Values of the plan's look-up table number `table`."""
    ops = _rows(n, OpCode.LUT, limit)
    ops["a"][:, 0] = 255.0 / limit
    ops["table"] = table
    return ops


def erase(n: int, rectangle: ArrayLike, value: ArrayLike) -> Ops:
    """`value` in rows y0 ... y1 - 1 and columns x0 ... x1 - 1; `rectangle` is (4,) or (N, 4): y0, x0, y1, x1."""
    ops = _rows(n, OpCode.ERASE, -1.0)
    ops["a"][:, 0:4] = rectangle
    ops["a"][:, 4:7] = value
    return ops


def erase_with_noise(n: int, rectangle: ArrayLike, keys: NDArray[np.uint32], mean: float, std: float) -> Ops:
    """Normal noise in the rectangle, per pixel and channel, from keys (N, 2)."""
    ops = _rows(n, OpCode.ERASE_NOISE, -1.0)
    ops["a"][:, 0:4] = rectangle
    ops["a"][:, 4], ops["a"][:, 5] = mean, std
    ops["key"] = keys
    return ops


def mask(n: int, ratio: ArrayLike, keys: NDArray[np.uint32], fill: ArrayLike = 0.0) -> Ops:
    """`fill` in each pixel independently with probability `ratio`, from keys (N, 2)."""
    ops = _rows(n, OpCode.MASK, -1.0)
    ops["a"][:, 0] = ratio
    ops["a"][:, 4:7] = fill
    ops["key"] = keys
    return ops


def grid(n: int, tile: ArrayLike, ratio: ArrayLike, angle: ArrayLike, shift: ArrayLike, fill: ArrayLike) -> Ops:
    """`fill` in a square of each tile of a grid.

    Args:
        tile: side of a tile, in pixels.
        ratio: side of the square, as a fraction of the tile's.
        angle: rotation of the grid about the image's corner, in radians, counter-clockwise.
        shift: (2,) or (N, 2): (down, across), in tiles.
        fill: a color.
    """
    ops = _rows(n, OpCode.GRID, -1.0)
    down, across = np.cos(angle) / tile, np.sin(angle) / tile
    ops["a"][:, 0], ops["a"][:, 1], ops["a"][:, 2], ops["a"][:, 3] = down, across, -across, down
    ops["a"][:, 4:7], ops["a"][:, 7], ops["a"][:, 8:10] = fill, ratio, shift
    return ops


def noise(n: int, limit: float, keys: NDArray[np.uint32], mean: ArrayLike, std: ArrayLike) -> Ops:
    """Adds normal noise per pixel and channel, from keys (N, 2); `limit` -1 disables saturation."""
    ops = _rows(n, OpCode.NOISE, limit)
    ops["a"][:, 4], ops["a"][:, 5], ops["key"] = mean, std, keys
    return ops


def shot_noise(n: int, limit: float, keys: NDArray[np.uint32], scale: ArrayLike) -> Ops:
    """Photon noise: a Poisson draw of the linear light v ** 2.2 in photons of `scale` times white."""
    ops = _rows(n, OpCode.SHOT_NOISE, limit)
    ops["a"][:, 0], ops["a"][:, 1], ops["key"] = scale, limit, keys
    return ops


def pixel_function(
    limit: float,
    function: PixelFunction,
    table: int,
    numbers: NDArray[np.float64],
    keys: NDArray[np.uint32] | None = None,
) -> Ops:
    """A pixel function of (N, K) numbers, with noise from keys (N, 2); `table` is the place of its instructions."""
    ops = _rows(len(numbers), function.code, limit)
    ops["table"], ops["function"], ops["a"][:, : numbers.shape[1]] = table, function.number, numbers
    ops["per_white"] = 1.0 if limit < 0.0 else 1.0 / limit
    if keys is not None:
        ops["key"] = keys
    return ops


def shuffled(steps: list[Ops], order: NDArray[np.int64]) -> list[Ops]:
    """The steps, each (N,) rows, in a different order per sample; `order` is (N, len(steps))."""
    raw = np.concatenate([ops.view(RAW_OP) for ops in steps])
    samples = np.arange(len(order))
    return [view_as(OP, raw[step * len(order) + samples]) for step in order.T]


def scattered(n: int, parts: list[tuple[NDArray[np.int64], Ops]]) -> tuple[Ops, NDArray[np.bool_]]:
    """Merges `parts`, pairs (sample indices, rows), into (n,) rows and a mask of the samples that have one."""
    ops, is_set = np.zeros(n, dtype=RAW_OP), np.zeros(n, dtype=bool)
    if parts:
        samples = np.concatenate([indices for indices, _ in parts])
        ops[samples], is_set[samples] = np.concatenate([rows.view(RAW_OP) for _, rows in parts]), True
    return view_as(OP, ops), is_set
