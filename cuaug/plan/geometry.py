"""The arithmetic by which crops, pads, flips and resizes fold into one sampling step, one axis at a time.

Every function takes `axis`, a structured array of `AXIS` rows (one per sample), and changes it in place; lengths and
positions are numbers or arrays with one entry per row. kernels/plan.h says what the fields mean.
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
    "taps",
    "visible_after_pad",
]

Axis = NDArray[Any]
_RADIUS = {Filter.NEAREST: 0.5, Filter.BILINEAR: 1.0, Filter.BICUBIC: 2.0}


def reset(axis: Axis, size: NDArray[np.int64]) -> None:
    """The identity on a source of `size` pixels."""
    axis["offset"], axis["scale"] = 0.0, 1.0
    axis["origin"] = axis["low"] = axis["inner_low"] = axis["held_low"] = axis["start"] = axis["seen_low"] = 0
    axis["high"] = axis["inner_high"] = axis["out"] = axis["seen_high"] = size
    axis["step"] = 1


def _range(axis: Axis) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The resized indices [low, high) that the output reads, whichever way it runs."""
    low = np.where(axis["step"] > 0, axis["start"], axis["start"] - (axis["out"] - 1)).astype(np.int64)
    return low, low + axis["out"]


def crop(axis: Axis, begin: Any, length: Any) -> None:
    axis["start"] += axis["step"] * begin
    axis["out"] = length


def flip(axis: Axis) -> None:
    axis["start"] += axis["step"] * (axis["out"] - 1)
    axis["step"] *= -1


def reaches_border(axis: Axis) -> NDArray[np.bool_]:
    """Whether the output shows pixels that padding made."""
    low, high = _range(axis)
    return (low < axis["seen_low"]) | (high > axis["seen_high"])


def visible_after_pad(axis: Axis) -> NDArray[np.int64]:
    """How many real pixels a pad of what the output shows now would continue from."""
    low, high = _range(axis)
    return np.minimum(high, axis["seen_high"]) - np.maximum(low, axis["seen_low"])


def pad(axis: Axis, before: Any, after: Any) -> None:
    """Padding continues what is visible now: pixels that a crop has cut off do not come back."""
    low, high = _range(axis)
    axis["seen_low"] = np.maximum(axis["seen_low"], low)
    axis["seen_high"] = np.minimum(axis["seen_high"], high)
    axis["start"] -= axis["step"] * before
    axis["out"] += before + after


def resize(axis: Axis, size: Any) -> None:
    """The first resize of a pass: what the output shows now becomes the window, its border the border before."""
    low, high = _range(axis)
    origin = axis["origin"]
    axis["inner_low"], axis["inner_high"] = origin + axis["seen_low"], origin + axis["seen_high"]
    axis["low"], axis["high"] = origin + low, origin + high
    axis["origin"] = axis["low"]
    # 1 / (new / old) and not old / new: nearest must fall on OpenCV's pixel to the last bit.
    axis["scale"] = 1.0 / (np.asarray(size, dtype=np.float64) / axis["out"])
    axis["offset"] = 0.0
    _whole(axis, size)


def compose_resize(axis: Axis, size: Any) -> None:
    """A later resize of the same kind: one interpolation by the product of the scales, in the same window."""
    low, _ = _range(axis)
    axis["offset"] += low * axis["scale"]
    axis["scale"] *= axis["out"] / np.asarray(size, dtype=np.float64)
    _whole(axis, size)


def _whole(axis: Axis, size: Any) -> None:
    """The output is the whole resized axis, running the way it ran before."""
    axis["start"] = np.where(axis["step"] > 0, 0, np.asarray(size) - 1)
    axis["out"] = axis["seen_high"] = size
    axis["seen_low"] = 0


def taps(axis: Axis, filter: NDArray[np.int32], antialias: NDArray[np.int32]) -> NDArray[np.int32]:
    """The most source pixels that one output pixel needs: the filter's width with antialiasing, else 1, 2 or 4."""
    radius = np.choose(filter, [_RADIUS[kind] for kind in Filter])
    wide = np.ceil(2 * radius * np.maximum(axis["scale"], 1.0))
    plain = 2 * radius
    return np.where((antialias != 0) & (filter != Filter.NEAREST), wide, plain).astype(np.int32)


def region(
    axis: Axis, filter: NDArray[np.int32], border_before: NDArray[np.int32], border_after: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The inner source indices [low, high) that the output can read: what a decoder has to decode, at least one."""
    low, high = _range(axis)
    turns_back = reaches_border(axis) & (border_after >= Border.REFLECT)
    low = np.where(turns_back, axis["seen_low"], np.clip(low, axis["seen_low"], axis["seen_high"] - 1))
    high = np.where(turns_back, axis["seen_high"], np.clip(high, axis["seen_low"] + 1, axis["seen_high"]))
    # Half the taps and a pixel of rounding to either side of the outermost centres.
    reach = axis["taps"] // 2 + 1
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
