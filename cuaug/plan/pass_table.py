"""The rows of a batch while its plan is being written: the library changes them in place (planner/plan_builder.h)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address, library
from cuaug.plan import operations
from cuaug.plan.layout import AXIS, RAW_SAMPLE, SAMPLE, Layout, OpCode, Type, view_as

__all__ = ["NO_OPS", "POINTWISE", "POSITIONAL", "UNFIT", "Chosen", "PassTable", "Writing"]

Chosen = NDArray[np.int64]

#: How the pixel operations of a pass get along with geometry that follows them.
NO_OPS, POINTWISE, POSITIONAL = 0, 1, 2

# By code: how an operation gets along with geometry, and what it needs to know of the whole image.
_KINDS = np.array([POSITIONAL if code in operations.POSITIONAL else POINTWISE for code in OpCode], dtype=np.int8)
_MEASURES = np.array([operations.MEASURES.get(code, 0) for code in OpCode], dtype=np.int8)
# Until a later pass follows, or the plan is closed: the target is a float image in the kernels' own layout.
_FRESH = np.zeros(1, dtype=SAMPLE)
_FRESH["clamp"] = -1.0
_FRESH["active"] = 1
_FRESH["target_type"], _FRESH["target_layout"], _FRESH["target_channels"] = Type.FLOAT32, Layout.HWC, 3

_BEGIN = SAMPLE.fields["y"][1]  # type: ignore[index]
_APART = SAMPLE.fields["x"][1] - _BEGIN  # type: ignore[index]
_NEEDS_ROOM, UNFIT = -1, -2
_FIRST_ROOM = 4


class Writing(ctypes.Structure):
    """Mirrors kernels/planner/plan_builder.h: where the arrays of `PassTable` lie."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("rows", "number", "bound", "ops", "kept", "begun")),
        *((name, ctypes.c_int64) for name in ("samples", "room")),
        *((name, ctypes.c_void_p) for name in ("fresh", "kind", "measure")),
    ]


class PassTable:
    """Each sample's row of its current pass, and those of its passes before.

    Args:
        sizes: (2, N) heights and widths of the sources, in pixels.
        source_type: theirs.

    Attributes:
        now: (N,) `SAMPLE` rows of the current passes.
        axes: (2, N) `AXIS` rows: y and x of these, in the same memory.
        number: (N,) of the current pass.
        bound: (N,) whether something in it, such as a resize, keeps other resamplings out.
        ops: (N,) the greatest of NO_OPS, POINTWISE and POSITIONAL among its operations.
        begun: (2, ...) how many samples the last change that began passes took from each, by its two reasons.
    """

    def __init__(self, sizes: NDArray[np.int64], source_type: Type) -> None:
        n = sizes.shape[1]
        raw = np.empty(n, dtype=RAW_SAMPLE)
        self.now = view_as(SAMPLE, raw)
        self.axes = np.ndarray((2, n), AXIS, raw, _BEGIN, (_APART, SAMPLE.itemsize)) if n else np.zeros((2, 0), AXIS)
        self.number = np.zeros(n, dtype=np.int64)
        self.bound = np.empty(n, dtype=bool)
        self.ops = np.empty(n, dtype=np.int8)
        self._kept = np.empty((0, n), dtype=RAW_SAMPLE)
        self.begun = np.empty((2, 0), dtype=np.int64)
        self._sizes: NDArray[np.int64] | None = sizes  # of everyone, until something changes
        places = map(address, (raw, self.number, self.bound, self.ops, self._kept, self.begun))
        self._writing = Writing(*places, n, 0, *_CONSTANTS)
        self._at = ctypes.addressof(self._writing)
        library.cuaug_begin(self._at, address(sizes), source_type)

    def __len__(self) -> int:
        return len(self.now)

    @property
    def passes(self) -> int:
        """How many there are so far."""
        return int(self.number.max(initial=0)) + 1 if len(self._kept) else 1

    def change(self, function: Any, chosen: Chosen, *arguments: Any) -> int:
        """Calls one of the library's functions that begin passes where they must.

        Returns:
            for how many samples; UNFIT, and nothing is changed, where what is asked for cannot be.
        """
        self._sizes = None
        some = self._at, *self._some(chosen)
        begun = function(*some, *arguments)
        if begun == _NEEDS_ROOM:
            self._make_room()
            begun = function(*some, *arguments)
        return int(begun)

    def _some(self, chosen: Chosen) -> tuple[int | None, int]:
        """What the library takes for the chosen samples."""
        return None if len(chosen) == len(self) else address(chosen), len(chosen)

    def _make_room(self) -> None:
        room = max(_FIRST_ROOM, 2 * len(self._kept))
        kept = np.empty((room, len(self)), dtype=RAW_SAMPLE)
        kept[: len(self._kept)] = self._kept
        self._kept, self.begun = kept, np.empty((2, room), dtype=np.int64)
        self._writing.kept, self._writing.begun, self._writing.room = address(kept), address(self.begun), room

    def sizes(self, chosen: Chosen) -> NDArray[np.int64]:
        """(2, n): heights and widths of what the chosen samples' images are now; not to be written to."""
        if self._sizes is None:
            self._sizes = np.empty((2, len(self)), dtype=np.int64)
            library.cuaug_sizes_now(self._at, None, len(self), address(self._sizes))
        return self._sizes if len(chosen) == len(self) else np.ascontiguousarray(self._sizes[:, chosen])

    def misfit(self, chosen: Chosen, window: NDArray[np.int64]) -> int:
        """Which of the n chosen is the first whose image its window does not fit into; -1 for none.

        window: (4, n) top, left, height and width.
        """
        return int(library.cuaug_misfit(self._at, *self._some(chosen), address(window)))

    def borders(self, chosen: Chosen) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(n,) whether the output shows pixels that padding made, and (n,) whether it shows others."""
        padded, some_left = np.empty((2, len(chosen)), dtype=bool)
        library.cuaug_borders(self._at, *self._some(chosen), address(padded), address(some_left))
        return padded, some_left

    def finished(self, target_type: Type, layout: Layout, channels: int) -> tuple[NDArray[Any], int]:
        """(P, N) rows of all passes of a plan that makes such images, and how many words they measure."""
        passes = self.passes
        rows = np.empty((passes, len(self)), dtype=RAW_SAMPLE)
        words = library.cuaug_finish(self._at, passes, target_type, layout, channels, address(rows))
        return view_as(SAMPLE, rows), int(words)


_CONSTANTS = address(_FRESH), address(_KINDS), address(_MEASURES)
