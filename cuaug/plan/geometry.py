"""The arithmetic by which crops, pads, flips and resizes fold into one sampling step.

`axes` is a (2, N) array of `AXIS` rows, those along the source's rows and those along its columns, changed in place at
the index `i`: (slice(None), which samples) for both. Lengths and positions are numbers, or arrays of the shape that `i`
chooses. kernels/plan.h says what the fields mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.plan.layout import AXIS, SAMPLE, Border, Filter

__all__ = [
    "axes_of",
    "compose_resize",
    "crop",
    "flip",
    "pad",
    "reaches_border",
    "region",
    "resize",
    "span",
    "surround",
    "taps",
    "visible",
    "warp",
    "warped_region",
]

Axes = NDArray[Any]
Chosen = Any
Along = NDArray[np.int64]
_RADIUS = np.array([0.5, 1.0, 2.0])  # of Filter.NEAREST, BILINEAR, BICUBIC
_BEGIN = SAMPLE.fields["y"][1]  # type: ignore[index]
_APART = SAMPLE.fields["x"][1] - _BEGIN  # type: ignore[index]


def axes_of(rows: NDArray[Any]) -> Axes:
    """(2, ...): the same memory as y and x of contiguous `SAMPLE` rows."""
    if rows.size == 0:
        return np.zeros((2, *rows.shape), dtype=AXIS)
    return np.ndarray((2, *rows.shape), AXIS, rows.view(np.uint8), _BEGIN, (_APART, *rows.strides))


def span(axes: Axes, i: Chosen, size: Any) -> None:
    """Of a fresh row makes the identity on a source of `size` pixels."""
    for end in ("high", "inner_high", "out", "seen_high"):
        axes[end][i] = size


def _range(axes: Axes, i: Chosen = ...) -> tuple[Along, Along]:
    """The resized indices [low, high) that the output reads, whichever way it runs."""
    start, step, out = axes["start"][i].astype(np.int64), axes["step"][i], axes["out"][i]
    low = np.where(step > 0, start, start - (out - 1))
    return low, low + out


def crop(axes: Axes, i: Chosen, begin: Any, length: Any) -> None:
    axes["start"][i] += axes["step"][i] * begin
    axes["out"][i] = length


def flip(axes: Axes, i: Chosen) -> None:
    axes["start"][i] += axes["step"][i] * (axes["out"][i] - 1)
    axes["step"][i] *= -1


def reaches_border(axes: Axes, i: Chosen = ...) -> NDArray[np.bool_]:
    """Whether the output shows pixels that padding made."""
    low, high = _range(axes, i)
    return (low < axes["seen_low"][i]) | (high > axes["seen_high"][i])


def visible(axes: Axes, i: Chosen) -> NDArray[np.int64]:
    """How many pixels of the output padding did not make; 0 or less: none."""
    low, high = _range(axes, i)
    return np.minimum(high, axes["seen_high"][i]) - np.maximum(low, axes["seen_low"][i])


def pad(axes: Axes, i: Chosen, before: Any, after: Any) -> None:
    """Padding continues what is visible now: pixels that a crop has cut off do not come back."""
    low, high = _range(axes, i)
    axes["seen_low"][i] = np.maximum(axes["seen_low"][i], low)
    axes["seen_high"][i] = np.minimum(axes["seen_high"][i], high)
    axes["start"][i] -= axes["step"][i] * before
    axes["out"][i] += before + after


def resize(axes: Axes, i: Chosen, size: Any) -> None:
    """The first resize of a pass: what the output shows now becomes the window, its border the border before."""
    low, high = _range(axes, i)
    origin = axes["origin"][i]
    axes["inner_low"][i], axes["inner_high"][i] = origin + axes["seen_low"][i], origin + axes["seen_high"][i]
    axes["low"][i], axes["high"][i] = origin + low, origin + high
    axes["origin"][i] = origin + low
    axes["offset"][i] = 0.0
    # 1 / (new / old) and not old / new: nearest must fall on OpenCV's pixel to the last bit.
    axes["scale"][i] = 1.0 / (size / axes["out"][i])
    _whole(axes, i, size)


def compose_resize(axes: Axes, i: Chosen, size: Any) -> None:
    """A later resize of the same kind: one interpolation by the product of the scales, in the same window."""
    low, _ = _range(axes, i)
    axes["offset"][i] += low * axes["scale"][i]
    axes["scale"][i] *= axes["out"][i] / size
    _whole(axes, i, size)


def _whole(axes: Axes, i: Chosen, size: Any) -> None:
    """The output is the whole resized axis, running the way it ran before."""
    axes["start"][i] = np.where(axes["step"][i] > 0, 0, size - 1)
    axes["out"][i] = axes["seen_high"][i] = size
    axes["seen_low"][i] = 0


def warp(axes: Axes, i: Chosen, matrix: NDArray[np.float64], size: NDArray[np.int64]) -> NDArray[np.float64]:
    """Makes of what the output shows now the window of a warp.

    Args:
        axes: that no resize has scaled, whose output shows no padding.
        matrix: (n, 3, 3): from the new output's points (x, y, 1) to those of the output so far, in pixels.
        size: (2, n), the new output's.

    Returns:
        (n, 3, 3): from the new output's points to those of the source.
    """
    low, high = _range(axes, i)
    step, origin = axes["step"][i], axes["origin"][i]
    onto = np.zeros((len(matrix), 3, 3))
    onto[:, 2, 2] = 1.0
    onto[:, [1, 0], [1, 0]] = step.T
    onto[:, [1, 0], 2] = (origin + np.where(step > 0, low, high)).T
    for name, end in (("low", low), ("inner_low", low), ("high", high), ("inner_high", high)):
        axes[name][i] = origin + end
    axes["origin"][i] = axes["start"][i] = axes["seen_low"][i] = 0
    axes["step"][i] = 1
    axes["out"][i] = axes["seen_high"][i] = size
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


def surround(axes: Axes, i: Chosen, reach: Any) -> None:
    """Makes of what the output shows, unmirrored and unscaled, the window of a filter that sees `reach` beyond it."""
    low, high = _range(axes, i)
    origin = axes["origin"][i]
    axes["inner_low"][i], axes["inner_high"][i] = origin + low, origin + high
    axes["low"][i], axes["high"][i] = origin + low - reach, origin + high + reach
    axes["origin"][i] = origin + low
    axes["start"][i] = axes["seen_low"][i] = 0
    axes["seen_high"][i] = high - low
    axes["taps"][i] = 2 * reach + 1


def taps(axes: Axes, filter: NDArray[np.int32], antialias: NDArray[np.int32]) -> NDArray[np.int32]:
    """The most source pixels that one output pixel needs: the filter's width with antialiasing, else 1, 2 or 4."""
    plain = 2 * _RADIUS[filter]
    wide = np.ceil(plain * np.maximum(axes["scale"], 1.0))
    return np.where((antialias != 0) & (filter != Filter.NEAREST), wide, plain).astype(np.int32)


def region(
    axes: Axes, filter: NDArray[np.int32], border_before: NDArray[np.int32], border_after: NDArray[np.int32]
) -> tuple[Along, Along]:
    """The inner source indices [low, high) that the output can read: what a decoder has to decode, at least one."""
    low, high = _range(axes)
    seen_low, seen_high = axes["seen_low"], axes["seen_high"]
    shown = _within(low, high, seen_low, seen_high)
    if (border_after >= Border.REFLECT).any():
        turns_back = ((low < seen_low) | (high > seen_high)) & (border_after >= Border.REFLECT)
        shown = np.where(turns_back, seen_low, shown[0]), np.where(turns_back, seen_high, shown[1])
    low, high = shown
    # The taps and a pixel of rounding to either side of the outermost centres.
    origin, offset, scale, reach = axes["origin"], axes["offset"], axes["scale"], axes["taps"] + 1
    first = origin + np.floor(offset + low * scale).astype(np.int64) - reach
    end = origin + np.ceil(offset + high * scale).astype(np.int64) + reach
    exact = (filter == Filter.NEAREST) & (scale == 1.0)
    first, end = np.where(exact, origin + low, first), np.where(exact, origin + high, end)
    first, end = np.maximum(first, axes["low"]), np.minimum(end, axes["high"])
    inner_low, inner_high = axes["inner_low"], axes["inner_high"]
    read = _within(first, end, inner_low, inner_high)
    if (border_before >= Border.REFLECT).any():
        folds = ((first < inner_low) | (end > inner_high)) & (border_before >= Border.REFLECT)
        read = np.where(folds, inner_low, read[0]), np.where(folds, inner_high, read[1])
    return read


def _within(low: Along, high: Along, least: NDArray[np.int32], most: NDArray[np.int32]) -> tuple[Along, Along]:
    """[low, high) as far as it lies in [least, most), but one index at least."""
    return np.minimum(np.maximum(low, least), most - 1), np.minimum(np.maximum(high, least + 1), most)
