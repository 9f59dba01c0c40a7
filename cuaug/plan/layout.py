"""The structs of kernels/plan.h as NumPy dtypes, its enumerations, and the point operations of kernels/ops.def.

The dtypes and `OpCode` are parsed from these files at import, in about 1 ms. The other enumerations are types of the
public API, so they are written here; tests/kernels/test_layout.py compares everything with the compiler's layout.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.c_headers import KERNEL_DIRECTORY, read_struct


class Filter(IntEnum):
    """How pixels are resampled.

    A warp takes NEAREST (the pixel that holds the point), BILINEAR or BICUBIC. A resize takes all: NEAREST the pixel
    under the new pixel's first corner, as OpenCV; NEAREST_EXACT the pixel under its center, as Pillow. BOX, HAMMING and
    LANCZOS need antialiasing.
    """

    NEAREST = 0
    BILINEAR = 1
    BICUBIC = 2
    BOX = 3
    HAMMING = 4
    LANCZOS = 5
    NEAREST_EXACT = 6


#: Filters that a warp takes, and filters of a resize that need antialiasing.
WARP_FILTERS = (Filter.NEAREST, Filter.BILINEAR, Filter.BICUBIC)
ANTIALIASED_FILTERS = (Filter.BOX, Filter.HAMMING, Filter.LANCZOS)


class Antialias(IntEnum):
    """Whether a resize's filter widens, and which passes of Pillow's come first, if it has its pixels."""

    NO_ANTIALIAS = 0
    ANTIALIAS = 1
    X_FIRST = 2
    Y_FIRST = 3


class Border(IntEnum):
    CONSTANT = 0
    EDGE = 1
    REFLECT = 2
    SYMMETRIC = 3
    WRAP = 4


class Neighborhood(IntEnum):
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


class PointOperation(NamedTuple):
    """A line of kernels/ops.def, which explains the columns."""

    name: str
    per_channel: bool
    positional: bool
    measures: Measure


def _parse_operations(text: str) -> tuple[PointOperation, ...]:
    lines = re.findall(r"^OPERATION\((\w+), .*\), +(\w+), +(\w+), +(\w+)\)", text, re.MULTILINE)
    return tuple(
        PointOperation(name, channels == "ALONE", place == "PLACED", Measure[measures])
        for name, channels, place, measures in lines
    )


def _make_enum(name: str, members: list[str]) -> Any:
    return IntEnum(name, members, start=0, module=__name__)


#: In the order of their codes.
POINT_OPERATIONS = _parse_operations((KERNEL_DIRECTORY / "ops.def").read_text())
OpCode = _make_enum("OpCode", [operation.name for operation in POINT_OPERATIONS])

_AXIS, _GRID = read_struct("plan.h", "Axis"), read_struct("plan.h", "Grid")
AXIS, GRID = np.dtype(_AXIS), np.dtype(_GRID)
_PARTS = (*(read_struct("plan.h", name) for name in ("Source", "Target", "Padding", "Field")), _AXIS)
SAMPLE = np.dtype(read_struct("plan.h", "Sample", *_PARTS, read_struct("plan.h", "Statistic", _GRID)))
OP, YUV_IMAGE = np.dtype(read_struct("plan.h", "Op")), np.dtype(read_struct("plan.h", "YuvImage"))

# NumPy copies rows of a structured type field by field, but opaque rows as bytes: ten times as fast. It also creates
# arrays of them faster.
RAW_SAMPLE, RAW_OP = np.dtype(f"V{SAMPLE.itemsize}"), np.dtype(f"V{OP.itemsize}")


def view_as(dtype: Any, raw: NDArray[Any]) -> NDArray[Any]:
    """Same memory as `raw.view(dtype)`, which checks every field and takes twice as long or more."""
    return np.ndarray(raw.shape, dtype, raw)
