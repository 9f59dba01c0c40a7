"""The arithmetic by which crops, pads, flips and resizes fold into one sampling step, one axis at a time.

`axis` is an array of `AXIS` rows, one per sample, changed in place where `i` (an index array, or a slice) says; lengths
and positions are numbers or arrays with one entry per chosen row. kernels/plan.h says what the fields mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.plan.layout import Border, Filter

__all__ = [
    "compose_resize",
    "crop",
    "flip",
    "pad",
    "reaches_border",
    "region",
    "reset",
    "resize",
    "surround",
    "taps",
    "visible",
    "warp",
    "warped_region",
]

Axis = NDArray[Any]
Chosen = NDArray[np.int64] | slice
_RADIUS = np.array([0.5, 1.0, 2.0])  # of Filter.NEAREST, BILINEAR, BICUBIC


def reset(axis: Axis, i: Chosen, size: Any) -> None:
    """The identity on a source of `size` pixels."""
    axis["offset"][i], axis["scale"][i], axis["step"][i] = 0.0, 1.0, 1
    for begin in ("origin", "low", "inner_low", "held_low", "start", "seen_low"):
        axis[begin][i] = 0
    for end in ("high", "inner_high", "out", "seen_high"):
        axis[end][i] = size


def _range(axis: Axis, i: Chosen = slice(None)) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The resized indices [low, high) that the output reads, whichever way it runs."""
    start, step, out = axis["start"][i].astype(np.int64), axis["step"][i], axis["out"][i]
    low = np.where(step > 0, start, start - (out - 1))
    return low, low + out


def crop(axis: Axis, i: Chosen, begin: Any, length: Any) -> None:
    axis["start"][i] += axis["step"][i] * begin
    axis["out"][i] = length


def flip(axis: Axis, i: Chosen) -> None:
    axis["start"][i] += axis["step"][i] * (axis["out"][i] - 1)
    axis["step"][i] *= -1


def reaches_border(axis: Axis, i: Chosen = slice(None)) -> NDArray[np.bool_]:
    """Whether the output shows pixels that padding made."""
    low, high = _range(axis, i)
    return (low < axis["seen_low"][i]) | (high > axis["seen_high"][i])


def visible(axis: Axis, i: Chosen) -> NDArray[np.int64]:
    """How many pixels of the output padding did not make; 0 or less: none."""
    low, high = _range(axis, i)
    return np.minimum(high, axis["seen_high"][i]) - np.maximum(low, axis["seen_low"][i])


def pad(axis: Axis, i: Chosen, before: Any, after: Any) -> None:
    """Padding continues what is visible now: pixels that a crop has cut off do not come back."""
    low, high = _range(axis, i)
    axis["seen_low"][i] = np.maximum(axis["seen_low"][i], low)
    axis["seen_high"][i] = np.minimum(axis["seen_high"][i], high)
    axis["start"][i] -= axis["step"][i] * before
    axis["out"][i] += before + after


def resize(axis: Axis, i: Chosen, size: Any) -> None:
    """The first resize of a pass: what the output shows now becomes the window, its border the border before."""
    low, high = _range(axis, i)
    origin = axis["origin"][i]
    axis["inner_low"][i], axis["inner_high"][i] = origin + axis["seen_low"][i], origin + axis["seen_high"][i]
    axis["low"][i], axis["high"][i] = origin + low, origin + high
    axis["origin"][i] = origin + low
    axis["offset"][i] = 0.0
    # 1 / (new / old) and not old / new: nearest must fall on OpenCV's pixel to the last bit.
    axis["scale"][i] = 1.0 / (size / axis["out"][i])
    _whole(axis, i, size)


def compose_resize(axis: Axis, i: Chosen, size: Any) -> None:
    """A later resize of the same kind: one interpolation by the product of the scales, in the same window."""
    low, _ = _range(axis, i)
    axis["offset"][i] += low * axis["scale"][i]
    axis["scale"][i] *= axis["out"][i] / size
    _whole(axis, i, size)


def _whole(axis: Axis, i: Chosen, size: Any) -> None:
    """The output is the whole resized axis, running the way it ran before."""
    axis["start"][i] = np.where(axis["step"][i] > 0, 0, size - 1)
    axis["out"][i] = axis["seen_high"][i] = size
    axis["seen_low"][i] = 0


def warp(y: Axis, x: Axis, i: Chosen, matrix: NDArray[np.float64], height: Any, width: Any) -> NDArray[np.float64]:
    """Makes of what the output shows now the window of a warp to height x width.

    Args:
        y, x: axes that no resize has scaled, whose output shows no padding.
        matrix: (n, 3, 3): from the new output's points (x, y, 1) to those of the output so far, in pixels.

    Returns:
        (n, 3, 3): from the new output's points to those of the source.
    """
    onto = np.zeros((len(matrix), 3, 3))
    onto[:, 2, 2] = 1.0
    for row, axis, size in ((0, x, width), (1, y, height)):
        low, high = _range(axis, i)
        step, origin = axis["step"][i], axis["origin"][i]
        onto[:, row, row] = step
        onto[:, row, 2] = origin + np.where(step > 0, low, high)
        for name, end in (("low", low), ("inner_low", low), ("high", high), ("inner_high", high)):
            axis[name][i] = origin + end
        axis["origin"][i] = axis["start"][i] = axis["seen_low"][i] = 0
        axis["step"][i] = 1
        axis["out"][i] = axis["seen_high"][i] = size
    return onto @ matrix


def warped_region(rows: NDArray[Any]) -> NDArray[np.int64]:
    """(N, 4): the inner source indices y0, x0, y1, x1 that warped samples can read, the ends excluded."""
    matrix = rows["matrix"].reshape(-1, 3, 3)
    x, y = rows["x"], rows["y"]
    corners = np.stack(
        [
            np.stack(
                [a["seen_low" if low else "seen_high"] for a, low in zip((x, y), ends, strict=True)]
                + [np.ones(len(x))],
                axis=-1,
            )
            for ends in ((1, 1), (1, 0), (0, 1), (0, 0))
        ],
        axis=1,
    ).astype(np.float64)  # (N, 4, 3)
    places = np.einsum("nij,nkj->nki", matrix, corners)
    depth = places[..., 2]
    # Beyond the horizon of a perspective, with a field, or with a border that leads back inside: everything.
    whole = (depth <= 0).any(axis=1) | (rows["field_rows"] > 0) | (rows["border_before"] > Border.EDGE)
    with np.errstate(divide="ignore", invalid="ignore"):
        places = places[..., :2] / depth[..., None]
    places = np.nan_to_num(np.clip(places, -1e9, 1e9))
    reach = _RADIUS[rows["filter"]] + 1
    found = []
    for number, axis in ((1, y), (0, x)):
        low = np.floor(places[..., number].min(axis=1) - reach).astype(np.int64)
        high = np.ceil(places[..., number].max(axis=1) + reach).astype(np.int64)
        inner_low, inner_high = axis["inner_low"].astype(np.int64), axis["inner_high"].astype(np.int64)
        found.append(np.where(whole, inner_low, np.clip(low, inner_low, inner_high - 1)))
        found.append(np.where(whole, inner_high, np.clip(high, inner_low + 1, inner_high)))
    y0, y1, x0, x1 = found
    return np.stack([y0, x0, y1, x1], axis=1)


def surround(axis: Axis, i: Chosen, reach: Any) -> None:
    """Makes of what the output shows, unmirrored and unscaled, the window of a filter that sees `reach` beyond it."""
    low, high = _range(axis, i)
    origin = axis["origin"][i]
    axis["inner_low"][i], axis["inner_high"][i] = origin + low, origin + high
    axis["low"][i], axis["high"][i] = origin + low - reach, origin + high + reach
    axis["origin"][i] = origin + low
    axis["start"][i] = axis["seen_low"][i] = 0
    axis["seen_high"][i] = high - low
    axis["taps"][i] = 2 * reach + 1


def taps(axis: Axis, filter: NDArray[np.int32], antialias: NDArray[np.int32]) -> NDArray[np.int32]:
    """The most source pixels that one output pixel needs: the filter's width with antialiasing, else 1, 2 or 4."""
    plain = 2 * _RADIUS[filter]
    wide = np.ceil(plain * np.maximum(axis["scale"], 1.0))
    return np.where((antialias != 0) & (filter != Filter.NEAREST), wide, plain).astype(np.int32)


def region(
    axis: Axis, filter: NDArray[np.int32], border_before: NDArray[np.int32], border_after: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The inner source indices [low, high) that the output can read: what a decoder has to decode, at least one."""
    low, high = _range(axis)
    turns_back = reaches_border(axis) & (border_after >= Border.REFLECT)
    low = np.where(turns_back, axis["seen_low"], np.clip(low, axis["seen_low"], axis["seen_high"] - 1))
    high = np.where(turns_back, axis["seen_high"], np.clip(high, axis["seen_low"] + 1, axis["seen_high"]))
    # The taps and a pixel of rounding to either side of the outermost centres.
    reach = axis["taps"] + 1
    first = axis["origin"] + np.floor(axis["offset"] + low * axis["scale"]).astype(np.int64) - reach
    end = axis["origin"] + np.ceil(axis["offset"] + high * axis["scale"]).astype(np.int64) + reach
    exact = (filter == Filter.NEAREST) & (axis["scale"] == 1.0)
    first = np.where(exact, axis["origin"] + low, first)
    end = np.where(exact, axis["origin"] + high, end)
    first, end = np.maximum(first, axis["low"]), np.minimum(end, axis["high"])
    inner_low, inner_high = axis["inner_low"].astype(np.int64), axis["inner_high"].astype(np.int64)
    folds = ((first < inner_low) | (end > inner_high)) & (border_before >= Border.REFLECT)
    first = np.where(folds, inner_low, np.clip(first, inner_low, inner_high - 1))
    end = np.where(folds, inner_high, np.clip(end, inner_low + 1, inner_high))
    return first, end
