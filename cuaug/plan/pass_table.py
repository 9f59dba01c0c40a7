"""The rows of a plan under construction, one per sample and pass.

Python owns the memory; the library's functions edit it in place (kernels/planner/plan_builder.h). They also begin a new
pass for each sample whose current pass cannot take the change. The image so far is then the source of the new pass.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.c_headers import read_struct
from cuaug._runtime.native import address, library
from cuaug.errors import TransformError
from cuaug.plan import operations
from cuaug.plan.layout import AXIS, OP, RAW_OP, RAW_SAMPLE, SAMPLE, Layout, OpCode, Type, view_as
from cuaug.plan.pixel_function import PixelFunction

Indices = NDArray[np.int64]

#: How the point operations of a pass relate to geometry that follows: pointwise ones commute with crops and flips.
NO_OPS, POINTWISE, POSITIONAL = 0, 1, 2

# By operation code: its relation to geometry, and the statistic of the whole image that it reads.
_KINDS = np.array([POSITIONAL if code in operations.POSITIONAL else POINTWISE for code in OpCode], dtype=np.int8)
_MEASURES = np.array([operations.MEASURES.get(code, 0) for code in OpCode], dtype=np.int8)
# A pass stores a float32 HWC intermediate image until compiling makes it the sample's last.
_NEW_ROW = np.zeros(1, dtype=SAMPLE)
_NEW_ROW["clamp"] = -1.0
_NEW_ROW["active"] = 1
_NEW_ROW["target"] = 0, Type.FLOAT32, Layout.HWC, 3, *[0] * 7
_CONSTANTS = address(_NEW_ROW), address(_KINDS), address(_MEASURES)

_Y_OFFSET = SAMPLE.fields["y"][1]  # type: ignore[index]
_X_FROM_Y = SAMPLE.fields["x"][1] - _Y_OFFSET  # type: ignore[index]
# Addresses of a table's arrays.
PassTablePointers = read_struct("planner/plan_builder.h", "PassTable")
# Return codes of plan_builder.h.
_NEEDS_ROOM, _INVALID = -1, -2
_MIN_PASSES = 4
_STATISTIC = ("an operation needs a statistic of the whole image",)
# A look-up table; filter weights and displacement fields lie among the tables, in units of this size.
_TABLE_FLOATS = 3 * 256
_MAX_FLOATS = 2**31 - 1  # kernels/plan.h indexes them by int


def _check_floats(count: int) -> None:
    if count > _MAX_FLOATS:
        raise TransformError(
            f"fields and filters of a batch take {_MAX_FLOATS} floats at most, not {count}: make smaller batches"
        )


def add_pillow_weights(rows: NDArray[Any], luts: NDArray[np.float32]) -> NDArray[np.float32]:
    """The tables with the weights of Pillow's resizes after them, to which `rows` then refer."""
    count = int(library.cuaug_weigh(address(rows), rows.size, luts.size, None))
    if not count:
        return luts
    _check_floats(luts.size + count)
    weights = np.empty((-(-count // _TABLE_FLOATS), 3, 256), dtype=np.float32)
    library.cuaug_weigh(address(rows), rows.size, luts.size, address(weights))
    return np.concatenate([luts, weights])


class Barrier(NamedTuple):
    """Why passes ended.

    Attributes:
        step: number of the chain's step that began the new passes.
        samples: (P,) how many samples ended pass 0, 1, ...
        reason: one phrase for `Compose.explain`.
    """

    step: int
    samples: Indices
    reason: str


class PassTable:
    """Each sample's current pass, its earlier passes, and the tables that passes read.

    Args:
        sizes: (2, N) heights and widths of the sources, in pixels.
        source_type: `Type.UINT8` or `Type.FLOAT32`.

    Attributes:
        current: (N,) `SAMPLE` rows of the current passes.
        axes: (2, N) `AXIS` rows, y and x of `current`; the same memory.
        pass_number: (N,) number of the current pass.
        resampled: (N,) bool, the current pass resamples or filters, so another resampling may not fold into it.
        op_kind: (N,) NO_OPS, POINTWISE or POSITIONAL: the greatest among the operations of the current pass.
        luts: (T, 3, 256) float32 arrays: look-up tables, filter weights and displacement fields.
        appended: operations in the order of `append`, each as (n,) places, pass * N + sample, and (n,) rows.
        barriers: where passes ended so far.
        step: number of the chain's step that is being planned.
        functions: pixel functions, with the places of their instructions among the tables.
        has_pillow: some passes are Pillow's resizes, whose weights `finish` adds to the tables.
    """

    def __init__(self, sizes: Indices, source_type: Type) -> None:
        n = sizes.shape[1]
        raw = np.empty(n, dtype=RAW_SAMPLE)
        self.current = view_as(SAMPLE, raw)
        strides = (_X_FROM_Y, SAMPLE.itemsize)
        self.axes = np.ndarray((2, n), AXIS, raw, _Y_OFFSET, strides) if n else np.zeros((2, 0), AXIS)
        self.pass_number = np.zeros(n, dtype=np.int64)
        self.resampled = np.empty(n, dtype=bool)
        self.op_kind = np.empty(n, dtype=np.int8)
        self.luts: list[NDArray[np.float32]] = []
        self.appended: list[tuple[Indices, NDArray[Any]]] = []
        self.barriers: list[Barrier] = []
        self.step = 0
        self.functions: dict[PixelFunction, int] = {}
        self.has_pillow = False
        self._earlier = np.empty((0, n), dtype=RAW_SAMPLE)
        self._ended = np.empty((2, 0), dtype=np.int64)  # by the last change: samples per pass, for its two reasons
        self._sizes: Indices | None = sizes  # (2, N) of the images so far; None after a change
        arrays = (raw, self.pass_number, self.resampled, self.op_kind, self._earlier, self._ended)
        self._pointers = PassTablePointers(*map(address, arrays), n, 0, *_CONSTANTS)
        self._address = ctypes.addressof(self._pointers)
        library.cuaug_begin(self._address, address(sizes), source_type)

    def __len__(self) -> int:
        return len(self.current)

    @property
    def passes(self) -> int:
        """Number of passes so far."""
        return int(self.pass_number.max(initial=0)) + 1 if len(self._earlier) else 1

    # --- chosen samples ---------------------------------------------------------------------------------------------

    def index(self, chosen: Indices) -> Indices | slice:
        """An index to the chosen samples; a slice if these are all, which copies nothing."""
        return slice(None) if len(chosen) == len(self) else chosen

    def per_sample(self, chosen: Indices, *values: ArrayLike) -> Indices:
        """(K, n) of K values, each a number or (N,), for the chosen samples."""
        rows = np.empty((len(values), len(self)), dtype=np.int64)
        for row, value in zip(rows, values, strict=True):
            row[:] = value
        return rows if len(chosen) == len(self) else np.ascontiguousarray(rows[:, chosen])

    def rows_of(self, name: str, values: NDArray[Any], chosen: Indices) -> NDArray[Any]:
        """The chosen samples' rows of `values`, (N, ...)."""
        if len(values) != len(self):
            raise ValueError(f"{name} has one row for each of the {len(self)} samples, not {len(values)}")
        return values[self.index(chosen)]

    def sizes(self, chosen: Indices) -> Indices:
        """(2, n) heights and widths of the chosen samples' images so far; read-only."""
        if self._sizes is None:
            self._sizes = np.empty((2, len(self)), dtype=np.int64)
            library.cuaug_current_sizes(self._address, None, len(self), address(self._sizes))
        return self._sizes if len(chosen) == len(self) else np.ascontiguousarray(self._sizes[:, chosen])

    def first_misfit(self, chosen: Indices, window: Indices) -> int:
        """The first of the n chosen samples whose window, (4, n), leaves its image; -1 for none."""
        return int(library.cuaug_misfit(self._address, *self._selection(chosen), address(window)))

    def padding_visible(self, chosen: Indices) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(n,) whether the image so far shows padding, and (n,) whether it shows source pixels."""
        padded, has_source = np.empty((2, len(chosen)), dtype=bool)
        library.cuaug_borders(self._address, *self._selection(chosen), address(padded), address(has_source))
        return padded, has_source

    def _selection(self, chosen: Indices) -> tuple[int | None, int]:
        """The chosen samples as the library's functions take them: null and N for all."""
        return None if len(chosen) == len(self) else address(chosen), len(chosen)

    # --- changes ----------------------------------------------------------------------------------------------------

    def change(self, reasons: tuple[str, ...], function: Any, chosen: Indices, *arguments: Any) -> bool:
        """Calls one of the library's functions that change the chosen samples' rows.

        Args:
            reasons: why the function begins new passes, at most two, in its order.

        Returns:
            False if the change is invalid; the rows then stay as they are.
        """
        self._sizes = None
        selection = self._address, *self._selection(chosen)
        begun = function(*selection, *arguments)
        if begun == _NEEDS_ROOM:
            self._make_room()
            begun = function(*selection, *arguments)
        if begun > 0:
            for reason, samples in zip(reasons, self._ended, strict=False):
                if len(reasons) == 1 or samples.any():
                    self.barriers.append(Barrier(self.step, samples.copy(), reason))
        return begun != _INVALID

    def begin_pass(self, chosen: Indices, reason: str) -> None:
        """Begins a new pass for the chosen samples; its source is the image so far."""
        if len(chosen):
            self.change((reason,), library.cuaug_split, chosen)

    def add_values(self, values: NDArray[Any]) -> Indices:
        """Stores (n, K) values among the look-up tables; returns (n,) float offsets."""
        first = sum(map(len, self.luts)) * _TABLE_FLOATS
        _check_floats(first + values.size)
        flat = np.zeros(-(-values.size // _TABLE_FLOATS) * _TABLE_FLOATS, dtype=np.float32)
        flat[: values.size] = values.reshape(-1)
        self.luts.append(flat.reshape(-1, 3, 256))
        return first + np.arange(len(values)) * values.shape[1]

    def add_function(self, function: PixelFunction) -> int:
        """Stores a function's instructions once; returns their float offset."""
        if function not in self.functions:
            words = np.frombuffer(function.words, dtype=np.float32)
            self.functions[function] = int(self.add_values(words[None])[0])
        return self.functions[function]

    def append(self, chosen: Indices, ops: NDArray[Any], limit: float) -> None:
        """Adds an operation to each chosen sample's program: `ops` are (N,) `OP` rows, or one for all."""
        ops = np.ascontiguousarray(ops.view(RAW_OP))
        placed, places = np.empty(len(chosen), dtype=RAW_OP), np.empty(len(chosen), dtype=np.int64)
        arguments = address(ops), len(ops), limit, address(placed), address(places)
        self.change(_STATISTIC, library.cuaug_append, chosen, *arguments)
        self.appended.append((places, placed))

    def add_luts(self, tables: NDArray[np.float32]) -> int:
        """Stores look-up tables, (T, 3, 256); returns the number of the first."""
        number = sum(map(len, self.luts))
        self.luts.append(tables)
        return number

    def finish(
        self, target_type: Type, layout: Layout, channels: int
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32], int]:
        """(P, N) rows, (M,) operations, (T, 3, 256) tables and the number of statistics words."""
        raw = np.empty((self.passes, len(self)), dtype=RAW_SAMPLE)
        words = library.cuaug_finish(self._address, len(raw), target_type, layout, channels, address(raw))
        luts = np.concatenate(self.luts) if self.luts else np.zeros((1, 3, 256), np.float32)
        if self.has_pillow:
            luts = add_pillow_weights(raw, luts)
        return view_as(SAMPLE, raw), self._sort_operations(raw), luts, int(words)

    def _sort_operations(self, rows: NDArray[Any]) -> NDArray[Any]:
        """All operations, grouped by (pass, sample) in the order of `append`; sets their ranges in `rows`."""
        if not self.appended:
            return np.zeros(1, dtype=OP)
        places, ops = (np.concatenate(columns) for columns in zip(*self.appended, strict=True))
        grouped = np.empty(len(ops), dtype=RAW_OP)
        library.cuaug_sort_operations(
            address(rows), rows.size, address(ops), address(places), len(ops), address(grouped)
        )
        return view_as(OP, grouped)

    def _make_room(self) -> None:
        room = max(_MIN_PASSES, 2 * len(self._earlier))
        earlier = np.empty((room, len(self)), dtype=RAW_SAMPLE)
        earlier[: len(self._earlier)] = self._earlier
        self._earlier, self._ended = earlier, np.empty((2, room), dtype=np.int64)
        pointers = self._pointers
        pointers.kept, pointers.started, pointers.capacity = address(earlier), address(self._ended), room
