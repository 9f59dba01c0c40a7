"""What will be done to the images of a batch: one small program per sample, written by transforms, run by a device.

A `Plan` holds no pixel. Its methods are the vocabulary that transforms and `cuaug.functional` share; each acts on all
samples, or on those where `where` is true, in one call for the whole batch. Units are those of the image as it stands
at that point: levels 0 ... 255 for uint8, [0, 1] for float.

What folds into one pass: any crops, pads and flips around one resize (or several of the same kind), then any number
of pixel operations. A new pass begins only where it must: at an operation that needs the whole image first (contrast's
mean, or a neighbourhood: filters.py), and where geometry follows operations it does not commute with (moves.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.native import address, library
from cuaug.errors import TransformError
from cuaug.plan import operations
from cuaug.plan.filters import Filters
from cuaug.plan.layout import OP, RAW_OP, Layout, Type, view_as
from cuaug.plan.moves import Moves
from cuaug.plan.tables import CompiledPlan
from cuaug.plan.trace import Trace, Where

__all__ = ["Plan", "check_params"]

_MEASURED = ("an operation needs to know the whole image before it",)


class Plan(Moves, Filters):
    """The plan of N images, open for writing.

    Args:
        heights, widths: (N,) source sizes in pixels.
        source_type: `Type.UINT8`, or `Type.FLOAT32` for images in [0, 1].
        channels: 3, or 1 for gray images (which the kernels see as three equal channels).
        views: the rows are N / views images, each as often as this in a row.
        record: of what transforms write.
        normalized: the images come as floats that are not in [0, 1], which cannot become bytes.
    """

    def __init__(
        self,
        heights: ArrayLike,
        widths: ArrayLike,
        *,
        source_type: Type = Type.UINT8,
        channels: int = 3,
        views: int = 1,
        trace: Trace | None = None,
        normalized: bool = False,
    ) -> None:
        super().__init__(heights, widths, source_type, channels)
        self._normalized = normalized
        #: The type that the chain asks for; None: uint8 or float32, whichever the images are in the end.
        self.target_type: Type | None = None
        self.views = views
        self._views_apart = False
        #: (N,) the samples that are still levels although `is_float`, until something next acts on them; None: none.
        self._late: NDArray[np.bool_] | None = None
        self._alone = False  # whether a member of `each_exclusively` is being planned
        self.trace = Trace() if trace is None else trace
        #: Operations as they were written, and the place of each: its pass, times N, plus its sample.
        self._written: list[tuple[NDArray[np.int64], NDArray[Any]]] = []

    def perform(self, transform: Any, where: Where, params: dict[str, Any]) -> None:
        """Has a transform write with these parameters, arrays of N rows, and notes that it did."""
        check_params(transform, params, len(self))
        self._step = self.trace.next
        step = self.trace.take(transform, where, params, len(self), self.views, self._views_apart)
        transform.write(self, step.where, **step.params)

    @contextlib.contextmanager
    def views_apart(self) -> Iterator[None]:
        """What performs meanwhile has parameters of its own for each view of an image."""
        self._views_apart = True
        try:
            yield
        finally:
            self._views_apart = False

    def each_exclusively(self, members: Iterable[Any]) -> Iterator[Any]:
        """Gives back `members`, no two of which act on the same sample, each to be planned before the next is taken.

        Each finds levels or floats as they are now, whatever those before it made of theirs.
        """
        began, ended, alone = (self.is_float, self._normalized), [], self._alone
        for member in members:
            (self.is_float, self._normalized), self._alone = began, True
            yield member
            ended.append((self.is_float, self._normalized))
        (self.is_float, self._normalized), self._alone = map(any, zip(*ended, strict=True)), alone

    def _choose(self, where: Where) -> NDArray[np.int64]:
        chosen = super()._choose(where)
        if self._late is not None and self.is_float and self._late[chosen].any():
            late = self._late.copy()
            self._late[chosen] = False
            self.append(operations.scale(1, 1.0 / 255.0), late & ~self._late)
        return chosen

    # --- pixel operations -------------------------------------------------------------------------------------------

    def append(self, ops: NDArray[Any], where: Where = None) -> None:
        """Adds one pixel operation to each sample's program: `ops` is (N,) rows made by `cuaug.plan.operations`.

        Or (1,): then it is the same for all.
        """
        chosen = self._choose(where)
        if len(ops) not in (1, len(self)):
            raise ValueError(f"an operation has one row, or one for each of the {len(self)} samples, not {len(ops)}")
        given = np.ascontiguousarray(ops.view(RAW_OP))
        made, place = np.empty(len(chosen), dtype=RAW_OP), np.empty(len(chosen), dtype=np.int64)
        to = address(given), len(given), self.limit, address(made), address(place)
        self._change(_MEASURED, library.cuaug_append, chosen, *to)
        self._written.append((place, made))

    def lut(self, table: ArrayLike, where: Where = None) -> None:
        """table[c][round(v)] in uint8 levels, in and out; `table` is (256,), (3, 256), or (N, 3, 256) per sample."""
        values = np.asarray(table, dtype=np.float32)
        per_sample = values.ndim == 3
        if values.shape not in ((256,), (3, 256), (len(self), 3, 256)):
            raise TransformError(f"a look-up table is (256,), (3, 256) or ({len(self)}, 3, 256), not {values.shape}")
        if not per_sample:
            self.check_channels("the look-up table", values)
        number = sum(map(len, self._luts)) + (self._everyone if per_sample else 0)
        tables = np.broadcast_to(values, (len(self) if per_sample else 1, 3, 256))
        self._luts.append(tables * np.float32(self.limit / 255.0))
        self.append(operations.look_up(len(self), self.limit, number), where)

    # --- value range ------------------------------------------------------------------------------------------------

    def to_float(self, *, scale: bool = True) -> None:
        """uint8 levels become float: [0, 1] with `scale`, else 0 ... 255 as they are."""
        if self.is_float:
            return
        if scale and self._alone:  # not all now: other members may still act on the others as levels
            self._late = np.ones(len(self), dtype=bool) if self._late is None else self._late
        elif scale:
            self.append(operations.scale(1, 1.0 / 255.0))
        self._normalized |= not scale
        self.is_float = True

    def to_uint8(self, *, scale: bool = True) -> None:
        """Floats in [0, 1] become levels 0 ... 255 with `scale`, else stay as they are; either way they saturate."""
        if not self.is_float:
            return
        if self._normalized and scale:
            raise TransformError("normalized images are not in [0, 1]: they cannot become uint8")
        self.append(operations.scale(1, 255.0 if scale else 1.0, limit=255.0))
        self.is_float, self._normalized, self._late = False, False, None

    def normalize(self, mean: ArrayLike, std: ArrayLike, where: Where = None) -> None:
        """(v - mean) / std for each channel of images in [0, 1]; uint8 images become that first."""
        mean, std = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
        self.check_channels("mean", mean)
        self.check_channels("std", std)
        if where is not None:
            self.to_float()  # of everyone, not only of those that are normalized
        factor = 1.0 / std if self.is_float else 1.0 / (255.0 * std)
        self.is_float, self._normalized = True, True
        self.append(operations.scale(1, factor, -mean / std), where)

    def result_type(self) -> Type:
        """What images are at the end of what has been written, unless `tables` is asked for another."""
        if self.target_type is not None:
            return self.target_type
        return Type.FLOAT32 if self.is_float else Type.UINT8

    def compile(self, target_type: Type | None = None, layout: Layout = Layout.CHW) -> CompiledPlan:
        """Closes the plan: images of `target_type` (None: `self.result_type()`) in `layout`.

        uint8 and float are scaled into each other by 255, as `ToDtype(scale=True)` does.
        """
        target_type = self.result_type() if target_type is None else target_type
        if target_type == Type.UINT8:
            self.to_uint8()
        else:
            self.to_float()
        self._choose(None)  # converts those that are still levels

        rows, words = self._rows.finished(target_type, layout, self.channels)
        luts = np.concatenate(self._luts) if self._luts else np.zeros((1, 3, 256), np.float32)
        return CompiledPlan(rows, self._ordered_ops(rows), luts, words, target_type)

    def _ordered_ops(self, rows: NDArray[Any]) -> NDArray[Any]:
        """All operations, each (pass, sample)'s together and in the order they were written; sets the rows' ranges."""
        if not self._written:
            return np.zeros(1, dtype=OP)
        places, ops = (np.concatenate(parts) for parts in zip(*self._written, strict=True))
        ordered = np.empty(len(ops), dtype=RAW_OP)
        given = address(ops), address(places), len(ops)
        library.cuaug_put_in_order(address(rows), rows.size, *given, address(ordered))
        return view_as(OP, ordered)


def check_params(transform: Any, params: Any, count: int) -> None:
    """Raises a TransformError unless what `make_params` gave for `count` samples has a row for each of them.

    Writing may do with less, but telling and doing again what was drawn for one sample does not.
    """
    if not isinstance(params, dict):
        raise TransformError(f"{type(transform).__name__}.make_params gives a dict of arrays, not {params!r:.100}")
    for name, values in params.items():
        if isinstance(values, (list, tuple)):
            params[name] = values = np.asarray(values)
        shape = tuple(getattr(values, "shape", ()))
        if shape[:1] != (count,):
            raise TransformError(
                f"{type(transform).__name__}.make_params gives arrays of {count} rows, one for each sample, not "
                f"{name}{f' of shape {shape}' if shape else f'={values!r:.100}'}: what all have in common belongs in "
                "__init__"
            )
