"""What will be done to the images of a batch: one small program per sample, written by transforms, run by a device.

A `Plan` holds no pixel. Its methods are the vocabulary that transforms and `cuaug.functional` share; each acts on all
samples, or on those where `where` is true, with one NumPy expression for the whole batch. Units are those of the
image as it stands at that point: levels 0 ... 255 for uint8, [0, 1] for float.

What folds into one pass: any crops, pads and flips around one resize (or several of the same kind), then any number
of pixel operations. A new pass begins only where it must: at an operation that needs the whole image first (contrast's
mean, or a neighbourhood: filters.py), and where geometry follows operations it does not commute with (moves.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.plan import geometry, operations
from cuaug.plan.filters import Filters
from cuaug.plan.layout import OP, SAMPLE, Layout, Measure, OpCode, Type
from cuaug.plan.moves import Moves
from cuaug.plan.passes import POINTWISE, POSITIONAL, RAW_OP, RAW_SAMPLE, Where
from cuaug.plan.record import Record
from cuaug.plan.tables import Tables

__all__ = ["Plan"]

_KINDS = np.array([POSITIONAL if code in operations.POSITIONAL else POINTWISE for code in OpCode], dtype=np.int8)
# What an operation needs to know of the whole image before it can begin, and how many words that takes.
_MEASURES = np.zeros(len(OpCode), dtype=np.int32)
for _code, _measure in operations.MEASURES.items():
    _MEASURES[_code] = _measure
_MEASURE_WORDS = np.array([0, 1, 3, 3 * 256 // 2, 3 * 256 // 2])  # by Measure; of each cell
# Gray levels are added up as integers of 1 / 65536 of a uint8 level: the sum does not depend on the order.
_MEASURE_STEPS = 65536.0


class Plan(Moves, Filters):
    """The plan of N images, open for writing.

    Args:
        heights, widths: (N,) source sizes in pixels.
        source_type: `Type.UINT8`, or `Type.FLOAT32` for images in [0, 1].
        channels: 3, or 1 for gray images (which the kernels see as three equal channels).
        views: the rows are N / views images, each as often as this in a row.
        record: of what transforms write.
    """

    def __init__(
        self,
        heights: ArrayLike,
        widths: ArrayLike,
        *,
        source_type: Type = Type.UINT8,
        channels: int = 3,
        views: int = 1,
        record: Record | None = None,
    ) -> None:
        super().__init__(heights, widths, source_type, channels)
        #: The type that the chain asks for; None: uint8 or float32, whichever the images are in the end.
        self.target_type: Type | None = None
        self.views = views
        self.record = Record() if record is None else record
        self._written: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]] = []

    def perform(self, transform: Any, where: Where, params: dict[str, Any]) -> None:
        """Has a transform write with these parameters, arrays of N rows, and notes that it did."""
        self._step = self.record.next
        step = self.record.take(transform, where, params, len(self), self.views)
        transform.write(self, step.where, **step.params)

    def params(self) -> list[list[dict[str, Any]]]:
        """What was applied to each image, in order: {"step", "transform", "params"}, of Python's numbers and lists."""
        return self.record.params(len(self) // self.views)

    # --- pixel operations -------------------------------------------------------------------------------------------

    def append(self, ops: NDArray[Any], where: Where = None) -> None:
        """Adds one pixel operation to each sample's program: `ops` is (N,) rows made by `cuaug.plan.operations`."""
        chosen = self._choose(where)
        i = self._at(chosen)
        ops = ops.view(RAW_OP)[i].copy().view(OP)
        measures = _MEASURES[ops["code"]]
        if measures.any():
            step, level = self.limit / 255.0 / _MEASURE_STEPS, 255.0 / self.limit
            means = np.flatnonzero(measures == Measure.GRAY_SUM)
            heights, widths = self._sizes(chosen[means])
            ops["a"][means, 1] = step / (heights * widths)
            if (cells := measures == Measure.CELL_HISTOGRAMS).any():
                self._lay_grid(chosen[cells], ops, cells)
            measured = np.flatnonzero(measures)
            waiting, what = chosen[measured], measures[measured]
            # By Measure.
            scales = np.array([0.0, 1.0 / step, 0.0 if self.is_float else 1.0, level, level])
            self._now["measure"][waiting], self._now["measure_scale"][waiting] = what, scales[what]
            self._split(waiting, "an operation needs to know the whole image before it")
        self._written.append((self._pass[chosen], chosen, ops.view(RAW_OP)))
        self._ops_so_far[i] = np.maximum(self._ops_so_far[i], _KINDS[ops["code"]])

    def _lay_grid(self, chosen: NDArray[np.int64], ops: NDArray[Any], which: NDArray[np.bool_]) -> None:
        """Sets the cells that this pass counts in, and what the operations that wait, `ops[which]`, know of them."""
        clip_limit, grid = ops["a"][which, 6:8].view(np.float64)[:, 0], ops["a"][which, 4:6].astype(np.int64)
        sizes = self._sizes(chosen).T
        # Where the grid does not divide the image, both sides grow, also one that it does divide: OpenCV's rule.
        divided = (sizes % grid == 0).all(axis=1, keepdims=True)
        cell = sizes // grid + ~divided
        fields = self._now["grid"]
        fields["rows"][chosen], fields["columns"][chosen] = grid.T
        fields["height"][chosen], fields["width"][chosen] = cell.T
        area = cell.prod(axis=1)
        most = np.maximum((clip_limit * area / 256.0).astype(np.int64), 1)
        ops["a"][which, 2] = np.where(clip_limit > 0, np.minimum(most, area), area)
        ops["a"][which, 3] = np.float32(255.0) / area.astype(np.float32)

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
        if scale:
            self.append(operations.scale(len(self), 1.0 / 255.0))
        self._normalized |= not scale
        self.is_float = True

    def to_uint8(self, *, scale: bool = True) -> None:
        """Floats in [0, 1] become levels 0 ... 255 with `scale`, else stay as they are; either way they saturate."""
        if not self.is_float:
            return
        if self._normalized and scale:
            raise TransformError("normalized images are not in [0, 1]: they cannot become uint8")
        self.append(operations.scale(len(self), 255.0 if scale else 1.0, limit=255.0))
        self.is_float, self._normalized = False, False

    def normalize(self, mean: ArrayLike, std: ArrayLike, where: Where = None) -> None:
        """(v - mean) / std for each channel of images in [0, 1]; uint8 images become that first."""
        mean, std = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
        self.check_channels("mean", mean)
        self.check_channels("std", std)
        if where is not None:
            self.to_float()  # of everyone, not only of those that are normalized
        factor = 1.0 / std if self.is_float else 1.0 / (255.0 * std)
        self.is_float, self._normalized = True, True
        self.append(operations.scale(len(self), factor, -mean / std), where)

    def tables(self, target_type: Type | None = None, layout: Layout = Layout.CHW) -> Tables:
        """Closes the plan: images of `target_type` (None: `self.target_type`) in `layout`.

        uint8 and float are scaled into each other by 255, as `ToDtype(scale=True)` does.
        """
        target_type = self.target_type if target_type is None else target_type
        if target_type is None:
            target_type = Type.FLOAT32 if self.is_float else Type.UINT8
        if target_type == Type.UINT8:
            self.to_uint8()
        else:
            self.to_float()

        self._now["target_type"], self._now["target_layout"] = target_type, layout
        self._now["target_channels"] = self.channels
        rows = self._finished_rows()
        luts = np.concatenate(self._luts or [np.zeros((1, 3, 256), np.float32)])
        return Tables(rows, self._ordered_ops(rows), luts, self._place_statistics(rows), target_type)

    def _finished_rows(self) -> NDArray[Any]:
        if not self.barriers:
            rows = self._now.view(RAW_SAMPLE)[None].copy().view(SAMPLE)
        else:
            self._keep(self._everyone)
            rows = self._before.copy().view(SAMPLE)
        geometry.set_taps(rows)
        return rows

    @staticmethod
    def _place_statistics(rows: NDArray[Any]) -> int:
        """Gives each measuring pass of each sample its words; returns how many there are."""
        if not rows["measure"].any():
            return 0
        grid = rows["grid"]
        cells = np.where(rows["measure"] == Measure.CELL_HISTOGRAMS, grid["rows"] * grid["columns"], 1)
        words = _MEASURE_WORDS[rows["measure"]] * cells
        ends = np.cumsum(words)
        rows["measure_at"] = (ends - words.reshape(-1)).reshape(rows.shape)
        rows["measured"][1:], rows["measured_at"][1:] = rows["measure"][:-1], rows["measure_at"][:-1]
        rows["measured_grid"][1:] = rows["grid"][:-1]
        return int(ends[-1])

    def _ordered_ops(self, rows: NDArray[Any]) -> NDArray[Any]:
        """All operations, each (pass, sample)'s together and in the order they were written; sets the rows' ranges."""
        if not self._written:
            return np.zeros(1, dtype=OP)
        place = np.concatenate([number * len(self) + sample for number, sample, _ in self._written])
        ops = np.concatenate([ops for _, _, ops in self._written])
        count = np.bincount(place, minlength=rows.size)
        end = np.cumsum(count)
        rows["op_begin"], rows["op_end"] = (end - count).reshape(rows.shape), end.reshape(rows.shape)
        return ops[np.argsort(place, kind="stable")].view(OP)
