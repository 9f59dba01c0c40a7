"""NumPy mirrors of the structs in kernels/plan.h, field by field, and of its enumerations."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "AXIS",
    "GRID",
    "OP",
    "RAW_OP",
    "RAW_SAMPLE",
    "SAMPLE",
    "Border",
    "Filter",
    "Layout",
    "Measure",
    "Neighbourhood",
    "OpCode",
    "Type",
    "seen_as",
]


class Filter(IntEnum):
    NEAREST = 0
    BILINEAR = 1
    BICUBIC = 2


class Border(IntEnum):
    CONSTANT = 0
    EDGE = 1
    REFLECT = 2
    SYMMETRIC = 3
    WRAP = 4


class Neighbourhood(IntEnum):
    NONE = 0
    SEPARABLE = 1
    STENCIL = 2
    MEDIAN = 3
    JPEG = 4


class Measure(IntEnum):
    NOTHING = 0
    GRAY_SUM = 1
    RANGE = 2
    HISTOGRAM = 3
    CELL_HISTOGRAMS = 4


class Type(IntEnum):
    UINT8 = 0
    FLOAT16 = 1
    BFLOAT16 = 2
    FLOAT32 = 3


class Layout(IntEnum):
    HWC = 0
    CHW = 1


class OpCode(IntEnum):
    SCALE = 0
    MATRIX = 1
    LUT = 2
    CONTRAST = 3
    HUE = 4
    ERASE = 5
    ERASE_NOISE = 6
    MASK = 7
    GRID = 8
    NOISE = 9
    SHOT_NOISE = 10
    POSTERIZE = 11
    SOLARIZE = 12
    GAMMA = 13
    AUTOCONTRAST = 14
    EQUALIZE = 15
    CLAHE = 16


AXIS = np.dtype(
    [
        ("offset", "f8"),
        ("scale", "f8"),
        ("origin", "i4"),
        ("low", "i4"),
        ("high", "i4"),
        ("inner_low", "i4"),
        ("inner_high", "i4"),
        ("held_low", "i4"),
        ("start", "i4"),
        ("step", "i4"),
        ("out", "i4"),
        ("seen_low", "i4"),
        ("seen_high", "i4"),
        ("taps", "i4"),
    ],
    align=True,
)

GRID = np.dtype([("rows", "i4"), ("columns", "i4"), ("height", "i4"), ("width", "i4")], align=True)

SAMPLE = np.dtype(
    [
        ("y", AXIS),
        ("x", AXIS),
        ("matrix", "f8", 9),
        ("source", "u8"),
        ("target", "u8"),
        ("pitch", "i8"),
        ("source_type", "i4"),
        ("filter", "i4"),
        ("antialias", "i4"),
        ("border_before", "i4"),
        ("border_after", "i4"),
        ("fill_before", "f4", 3),
        ("fill_after", "f4", 3),
        ("clamp", "f4"),
        ("op_begin", "i4"),
        ("op_end", "i4"),
        ("measure", "i4"),
        ("measured", "i4"),
        ("measure_at", "i4"),
        ("measured_at", "i4"),
        ("measure_scale", "f4"),
        ("grid", GRID),
        ("measured_grid", GRID),
        ("target_type", "i4"),
        ("target_layout", "i4"),
        ("target_channels", "i4"),
        ("past_caches", "i4"),
        ("active", "i4"),
        ("warped", "i4"),
        ("transposed", "i4"),
        ("field", "i4"),
        ("field_rows", "i4"),
        ("field_columns", "i4"),
        ("field_height", "i4"),
        ("field_width", "i4"),
        ("neighbourhood", "i4"),
        ("weights", "i4"),
        ("extent", "i4"),
        ("frame", "i4"),
        ("level", "f4"),
    ],
    align=True,
)

OP = np.dtype(
    [
        ("code", "i4"),
        ("table", "i4"),
        ("key", "u4", 2),
        ("a", "f4", 12),
        ("limit", "f4"),
        ("unused", "f4", 3),
    ],
    align=True,
)

# NumPy copies rows of a structured type field by field, but opaque ones as bytes: ten times as fast. It also makes
# arrays of them faster.
RAW_SAMPLE, RAW_OP = np.dtype(f"V{SAMPLE.itemsize}"), np.dtype(f"V{OP.itemsize}")


def seen_as(dtype: Any, raw: NDArray[Any]) -> NDArray[Any]:
    """The same memory as `raw.view(dtype)`, which takes twice as long or more: it looks at every field."""
    return np.ndarray(raw.shape, dtype, raw)
