"""The arithmetic by which crops, pads, flips and resizes fold into one sampling step.

It is kernels/geometry.h's, a loop over rows in place of dozens of expressions, but for warps. `rows` is a batch's
`SAMPLE` rows, changed in place for the samples `chosen`, ascending numbers; values are (K, n) int64, one for each of
them. kernels/plan.h says what the fields mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._native import address, library
from cuaug.plan.layout import AXIS, SAMPLE, Border, Filter, Type

__all__ = [
    "axes_of",
    "begin",
    "borders",
    "crop",
    "first_window",
    "flip",
    "keep",
    "pad",
    "regions",
    "resize",
    "set_taps",
    "surround",
    "warp",
    "warped_region",
]

Rows = NDArray[Any]
Chosen = NDArray[np.int64]
Values = NDArray[np.int64]
Floats = NDArray[np.float64]
_RADIUS = np.array([0.5, 1.0, 2.0])  # of Filter.NEAREST, BILINEAR, BICUBIC
_BEGIN = SAMPLE.fields["y"][1]  # type: ignore[index]
_APART = SAMPLE.fields["x"][1] - _BEGIN  # type: ignore[index]


def axes_of(rows: Rows) -> NDArray[Any]:
    """(2, ...): the same memory as y and x of contiguous `SAMPLE` rows."""
    if rows.size == 0:
        return np.zeros((2, *rows.shape), dtype=AXIS)
    return np.ndarray((2, *rows.shape), AXIS, rows.view(np.uint8), _BEGIN, (_APART, *rows.strides))


def _of(rows: Rows, chosen: Chosen) -> tuple[int, int | None, int]:
    """What the library takes for the chosen rows."""
    return address(rows), None if len(chosen) == len(rows) else address(chosen), len(chosen)


def keep(rows: Rows, chosen: Chosen, kept: Rows, numbers: Values) -> None:
    """Copies rows to those of the passes that they are in: kept is (P, N), numbers (N,)."""
    library.cuaug_keep(*_of(rows, chosen), address(kept), len(rows), address(numbers))


def begin(rows: Rows, chosen: Chosen, fresh: Rows, sizes: Values, source_type: Type) -> None:
    """Makes of rows the identity on a source of these (2, n) heights and widths; fresh: (1,) what else they are."""
    sizes = np.ascontiguousarray(sizes)
    library.cuaug_begin(*_of(rows, chosen), address(fresh), address(sizes), source_type)


def crop(rows: Rows, chosen: Chosen, window: Values) -> int:
    """window: (4, n) top, left, height and width.

    Returns:
        -1, or which of the n is the first that its window does not fit; then nothing has changed.
    """
    window = np.ascontiguousarray(window)
    return int(library.cuaug_crop(*_of(rows, chosen), address(window)))


def flip(rows: Rows, chosen: Chosen, *, vertical: bool) -> None:
    library.cuaug_flip(*_of(rows, chosen), vertical)


def pad(rows: Rows, chosen: Chosen, sides: Values) -> None:
    """sides: (4, n) top, left, bottom and right. Pixels that a crop has cut off do not come back."""
    sides = np.ascontiguousarray(sides)
    library.cuaug_pad(*_of(rows, chosen), address(sides))


def resize(
    rows: Rows,
    chosen: Chosen,
    size: Values,
    resized: NDArray[np.bool_],
    *,
    filter: Filter,
    antialias: bool,
    clamp: float,
) -> None:
    """size: (2, n) height and width; resized: (N,) whether a resize of the same kind is in the pass, changed too."""
    size = np.ascontiguousarray(size)
    library.cuaug_resize(*_of(rows, chosen), address(size), address(resized), filter, antialias, clamp)


def surround(rows: Rows, chosen: Chosen, reach: Values) -> None:
    """Makes of what the output shows the window of a filter; reach: (2, n), how far it looks down and across."""
    reach = np.ascontiguousarray(reach)
    library.cuaug_surround(*_of(rows, chosen), address(reach))


def borders(rows: Rows, chosen: Chosen) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(n,) whether the output shows pixels that padding made, and (n,) whether it shows others."""
    padded, some_left = np.empty((2, len(chosen)), dtype=bool)
    library.cuaug_borders(*_of(rows, chosen), address(padded), address(some_left))
    return padded, some_left


def set_taps(rows: Rows) -> None:
    """Of finished rows: the most source pixels that one output pixel needs."""
    library.cuaug_set_taps(address(rows), rows.size)


def regions(rows: Rows) -> NDArray[np.int64]:
    """(N, 4): y0, x0, y1, x1 of what finished rows read: what a decoder has to decode, at least one pixel."""
    found = np.empty((len(rows), 4), dtype=np.int64)
    library.cuaug_regions(address(rows), len(rows), address(found))
    warped = rows["warped"] != 0
    return np.where(warped[:, None], warped_region(rows), found) if warped.any() else found


def first_window(
    share: Floats, log_ratio: Floats, place: Floats, heights: Values, widths: Values, *, margin: int = 0
) -> tuple[Floats, NDArray[np.bool_]]:
    """The first of T random windows that fits, for each of N images.

    Args:
        share: (N, T) of the image's area.
        log_ratio: (N, T) logarithms of each window's width / height.
        place: (N, 2) in [0, 1): where it lies, down and across.
        heights, widths: (N,) of the images, in pixels.
        margin: a window is so many pixels shorter than the image at least, on both sides.

    Returns:
        (4, N) top, left, height and width, whole pixels, and (N,) whether any fits; where none does, the sides are 0.
    """
    window, found = np.empty((4, len(share))), np.empty(len(share), dtype=bool)
    ratio = np.exp(log_ratio)  # NumPy's, of which the last bit may differ from the C library's
    given = [np.ascontiguousarray(values) for values in (share, ratio, place, heights, widths)]
    library.cuaug_first_window(*share.shape, *map(address, given), margin, address(window), address(found))
    return window, found


def warp(axes: NDArray[Any], i: Any, matrix: NDArray[np.float64], size: Values) -> NDArray[np.float64]:
    """Makes of what the output shows now the window of a warp.

    Args:
        axes: (2, N) `axes_of` rows, that no resize has scaled, whose output shows no padding.
        i: the index to both of the chosen ones.
        matrix: (n, 3, 3): from the new output's points (x, y, 1) to those of the output so far, in pixels.
        size: (2, n), the new output's.

    Returns:
        (n, 3, 3): from the new output's points to those of the source.
    """
    start, step, out, origin = (axes[name][i] for name in ("start", "step", "out", "origin"))
    low = np.where(step > 0, start, start - (out - 1))
    high = low + out
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
