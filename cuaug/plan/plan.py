"""What will be done to the images of a batch: one small program per sample, written by transforms, run by a device.

A `Plan` holds no pixel. Its methods are the vocabulary that transforms and `cuaug.functional` share; each acts on all
samples, or on those where `where` is true, with one NumPy expression for the whole batch. Units are those of the
image as it stands at that point: levels 0 ... 255 for uint8, [0, 1] for float.

What folds into one pass: any crops, pads and flips around one resize (or several of the same kind), then any number
of pixel operations. A new pass begins only where it must: at an operation that needs the whole image first (contrast's
mean, or a neighbourhood: filters.py), and where geometry follows operations it does not commute with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.plan import geometry, operations
from cuaug.plan.filters import TABLE_FLOATS, Filters
from cuaug.plan.layout import OP, SAMPLE, Border, Filter, Layout, Measure, Neighbourhood, OpCode, Type

__all__ = ["Plan", "Tables"]

# How a pixel operation gets along with geometry that follows it.
_NO_OPS, _POINTWISE, _POSITIONAL = 0, 1, 2
_KINDS = np.array([_POSITIONAL if code in operations.POSITIONAL else _POINTWISE for code in OpCode], dtype=np.int8)
# NumPy copies rows of a structured type field by field, but opaque ones as bytes: ten times as fast.
_RAW_SAMPLE, _RAW_OP = np.dtype(f"V{SAMPLE.itemsize}"), np.dtype(f"V{OP.itemsize}")

_FRESH = np.zeros(1, dtype=SAMPLE)
_FRESH["clamp"] = -1.0
_FRESH["active"] = 1
_FRESH["target_type"], _FRESH["target_layout"], _FRESH["target_channels"] = Type.FLOAT32, Layout.HWC, 3

# What an operation needs to know of the whole image before it can begin, and how many words that takes.
_MEASURES = np.zeros(len(OpCode), dtype=np.int32)
for _code, _measure in operations.MEASURES.items():
    _MEASURES[_code] = _measure
_MEASURE_WORDS = np.array([0, 1, 3, 3 * 256 // 2])  # by Measure
# Gray levels are added up as integers of 1 / 65536 of a uint8 level: the sum does not depend on the order.
_MEASURE_STEPS = 65536.0

Where = NDArray[np.bool_] | None


@dataclass(frozen=True)
class Tables:
    """A finished plan, as the kernels read it; the devices fill in addresses.

    Attributes:
        rows: (P, N) `SAMPLE` rows, P passes of N samples; `active` is 0 where a sample needs no such pass.
        ops: (M,) `OP` rows, each sample's program of each pass contiguous.
        luts: (T, 3, 256) float32 look-up tables.
        statistics: how many 64-bit words the passes measure together, for rows' `measure_at` and `measured_at`.
        target_type: the finished images' type.
    """

    rows: NDArray[Any]
    ops: NDArray[Any]
    luts: NDArray[np.float32]
    statistics: int
    target_type: Type

    @property
    def launches(self) -> int:
        """How many kernel launches run this plan on a CUDA device, whatever the number of samples."""
        return len(self.rows)

    def sizes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(N,) heights and (N,) widths of the finished images."""
        last = self.rows["active"].sum(axis=0) - 1
        return _sizes(self.rows[last, np.arange(self.rows.shape[1])])

    def regions(self) -> NDArray[np.int64]:
        """(N, 4): rows [0], [2] and columns [1], [3] bound the source pixels (y0, x0, y1, x1) that will be read."""
        first = self.rows[0]
        filter = np.where(first["neighbourhood"] == Neighbourhood.NONE, first["filter"], -1)
        borders = filter, first["border_before"], first["border_after"]
        y0, y1 = geometry.region(first["y"], *borders)
        x0, x1 = geometry.region(first["x"], *borders)
        regions = np.stack([y0, x0, y1, x1], axis=1)
        warped = first["warped"] != 0
        return np.where(warped[:, None], geometry.warped_region(first), regions) if warped.any() else regions


def _sizes(rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(N,) heights and (N,) widths of what the rows make."""
    y, x, turned = rows["y"]["out"].astype(np.int64), rows["x"]["out"].astype(np.int64), rows["transposed"] != 0
    return (np.where(turned, x, y), np.where(turned, y, x)) if turned.any() else (y, x)


class Plan(Filters):
    """The plan of N images, open for writing.

    Args:
        heights, widths: (N,) source sizes in pixels.
        source_type: `Type.UINT8`, or `Type.FLOAT32` for images in [0, 1].
        channels: 3, or 1 for gray images (which the kernels see as three equal channels).
    """

    def __init__(
        self, heights: ArrayLike, widths: ArrayLike, *, source_type: Type = Type.UINT8, channels: int = 3
    ) -> None:
        heights, widths = np.atleast_1d(heights).astype(np.int64), np.atleast_1d(widths).astype(np.int64)
        n = len(heights)
        self.channels = channels
        self.is_float = source_type != Type.UINT8
        #: The type that the chain asks for; None: uint8 or float32, whichever the images are in the end.
        self.target_type: Type | None = None
        self._normalized = False
        #: Each sample's row of its current pass, and the rows of the passes before.
        self._now = np.zeros(n, dtype=SAMPLE)
        self._y, self._x = self._now["y"], self._now["x"]
        self._before: list[NDArray[Any]] = []
        self._pass = np.zeros(n, dtype=np.int64)
        self._everyone = np.arange(n)
        self._resized = np.zeros(n, dtype=bool)
        self._ops_so_far = np.zeros(n, dtype=np.int8)
        self._written: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]] = []
        self._luts: list[NDArray[np.float32]] = []
        self._begin_pass(self._everyone, heights, widths, source_type)

    def __len__(self) -> int:
        return len(self._everyone)

    @property
    def limit(self) -> float:
        """The value of white: 255 while the images are uint8, 1 once they are float."""
        return 1.0 if self.is_float else 255.0

    @property
    def sizes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(N,) heights and (N,) widths as they are at this point of the chain."""
        return _sizes(self._now)

    def check_channels(self, name: str, values: ArrayLike) -> None:
        """Refuses values for three channels, in the first axis of `values`, where the images have one."""
        if self.channels == 1 and np.shape(values)[:1] == (3,):
            raise TransformError(f"{name} has 3 entries, one per channel, but the images have 1 channel here")

    # --- geometry ---------------------------------------------------------------------------------------------------

    def crop(self, top: ArrayLike, left: ArrayLike, height: ArrayLike, width: ArrayLike, where: Where = None) -> None:
        """Keeps rows top ... top + height - 1 and columns left ... left + width - 1; they must lie in the image."""
        chosen = self._choose(where)
        top, left, height, width = self._per_sample(chosen, top, left, height, width)
        h, w = (size[chosen] for size in self.sizes)
        bad = (top < 0) | (left < 0) | (height < 1) | (width < 1) | (top + height > h) | (left + width > w)
        if bad.any():
            i = int(np.argmax(bad))
            which = f"; image {chosen[i]} of the batch" if len(self) > 1 else ""
            raise TransformError(
                f"crop of {height[i]} x {width[i]} at row {top[i]}, column {left[i]} does not fit "
                f"an image of {h[i]} x {w[i]} (height x width{which})"
            )
        self._split(chosen[self._ops_so_far[chosen] == _POSITIONAL])
        for part, y, x in self._axes(chosen):
            geometry.crop(y, chosen[part], top[part], height[part])
            geometry.crop(x, chosen[part], left[part], width[part])

    def flip(self, *, vertical: bool = False, where: Where = None) -> None:
        """Mirrors left and right, or with `vertical` top and bottom."""
        chosen = self._choose(where)
        self._split(chosen[self._ops_so_far[chosen] == _POSITIONAL])
        for part, y, x in self._axes(chosen):
            geometry.flip(y if vertical else x, chosen[part])

    def transpose(self, where: Where = None) -> None:
        """Exchanges rows and columns."""
        chosen = self._choose(where)
        self._split(chosen[self._ops_so_far[chosen] == _POSITIONAL])
        self._now["transposed"][chosen] ^= 1

    def rot90(self, turns: ArrayLike, where: Where = None) -> None:
        """Turns by `turns` quarters of the circle, counter-clockwise: one number, or one per sample."""
        turns = np.broadcast_to(np.asarray(turns, dtype=np.int64), len(self)) % 4
        some = np.ones(len(self), dtype=bool) if where is None else where
        self.transpose(some & (turns % 2 == 1))
        self.flip(vertical=True, where=some & ((turns == 1) | (turns == 2)))
        self.flip(where=some & (turns >= 2))

    def pad(
        self,
        left: ArrayLike,
        top: ArrayLike,
        right: ArrayLike,
        bottom: ArrayLike,
        *,
        border: Border = Border.CONSTANT,
        fill: ArrayLike = 0.0,
        where: Where = None,
    ) -> None:
        """Adds pixels on the four sides (0 or more each); `fill` is a number or one per channel, in image units."""
        self.check_channels("fill", fill)
        chosen = self._choose(where)
        sides = self._per_sample(chosen, left, top, right, bottom)
        if min(side.min(initial=0) for side in sides) < 0:
            raise TransformError("padding must be 0 or more on every side; to cut pixels off, use a crop")
        some = sum(sides) > 0
        chosen, (add_left, add_top, add_right, add_bottom) = chosen[some], (side[some] for side in sides)
        color = np.broadcast_to(np.asarray(fill, dtype=np.float32), (3,))

        ops = self._ops_so_far[chosen]
        self._split(chosen[(ops == _POSITIONAL) | ((ops == _POINTWISE) & (border == Border.CONSTANT))])
        # A tile of a JPEG pass has room for neighbouring blocks, not for those of the other end.
        self._split(chosen[(self._now["neighbourhood"][chosen] == Neighbourhood.JPEG) & (border == Border.WRAP)])
        padded = geometry.reaches_border(self._y, chosen) | geometry.reaches_border(self._x, chosen)
        same = (self._now["border_after"][chosen] == border) & (border <= Border.EDGE)
        same &= (border == Border.EDGE) | (self._now["fill_after"][chosen] == color).all(axis=1)
        some_left = np.minimum(geometry.visible(self._y, chosen), geometry.visible(self._x, chosen)) > 0
        self._split(chosen[padded & ~(same & some_left)])

        self._now["border_after"][chosen], self._now["fill_after"][chosen] = border, color
        for part, y, x in self._axes(chosen):
            geometry.pad(y, chosen[part], add_top[part], add_bottom[part])
            geometry.pad(x, chosen[part], add_left[part], add_right[part])

    def resize(
        self,
        height: ArrayLike,
        width: ArrayLike,
        *,
        filter: Filter = Filter.BILINEAR,
        antialias: bool = True,
        where: Where = None,
    ) -> None:
        """Resamples to height x width. Images of that size already stay as they are."""
        chosen = self._choose(where)
        new_h, new_w = self._per_sample(chosen, height, width)
        if min(new_h.min(initial=1), new_w.min(initial=1)) < 1:
            raise TransformError(f"resize to {new_h.min()} x {new_w.min()}: both sides must be at least 1 pixel")
        h, w = (size[chosen] for size in self.sizes)
        changes = (h != new_h) | (w != new_w)
        chosen, new_h, new_w = chosen[changes], new_h[changes], new_w[changes]

        now, again = self._now, self._resized[chosen]
        padded = geometry.reaches_border(self._y, chosen) | geometry.reaches_border(self._x, chosen)
        same_kind = (now["filter"][chosen] == filter) & (now["antialias"][chosen] == antialias)
        same_kind &= (filter != Filter.NEAREST) & (now["warped"][chosen] == 0)
        # Nearest rounds down, so it does not commute with a flip.
        flipped = ((self._y["step"][chosen] < 0) | (self._x["step"][chosen] < 0)) & (filter == Filter.NEAREST)
        self._split(
            chosen[(self._ops_so_far[chosen] != _NO_OPS) | (again & (padded | ~same_kind)) | (~again & flipped)]
        )

        again = self._resized[chosen]
        for part, y, x in self._axes(chosen):
            for rows, change in ((again, geometry.compose_resize), (~again, geometry.resize)):
                rows = np.flatnonzero(rows)[part] if isinstance(part, slice) else np.flatnonzero(rows & part)
                if len(rows):
                    change(y, chosen[rows], new_h[rows])
                    change(x, chosen[rows], new_w[rows])
        first = chosen[~again]
        now["border_before"][first], now["fill_before"][first] = now["border_after"][first], now["fill_after"][first]
        now["filter"][first], now["antialias"][first] = filter, antialias
        # A cubic overshoots; uint8 images saturate there, float images keep it, as in torchvision.
        now["clamp"][first] = self.limit if filter == Filter.BICUBIC and not self.is_float else -1.0
        self._resized[first] = True

    def warp(
        self,
        matrix: ArrayLike,
        height: ArrayLike,
        width: ArrayLike,
        *,
        filter: Filter = Filter.BILINEAR,
        border: Border = Border.CONSTANT,
        fill: ArrayLike = 0.0,
        field: NDArray[np.floating[Any]] | None = None,
        nodes: tuple[ArrayLike, ArrayLike] | None = None,
        where: Where = None,
    ) -> None:
        """Shows at each point of an image of height x width what the image so far has elsewhere.

        Args:
            matrix: (3, 3) or (N, 3, 3): from the new image's points (x, y, 1) to those of the image so far, in pixels;
                the centre of pixel (0, 0) is the point (0.5, 0.5). Divided by the third coordinate where it is a
                perspective.
            height, width: of the new image.
            filter: without antialiasing; shrink by `resize`.
            border: what lies outside the image so far.
            fill: for `Border.CONSTANT`, in image units: a number or one per channel.
            field: (R, C, 2) or (N, R, C, 2), R and C at least 2: displacements (dy, dx) in pixels that are added to the
                new image's points first, at nodes that span it from corner to corner; linear between them.
            nodes: (rows, columns), a number or (N,) each: how many of R and C, from the first on, are this sample's
                and span its image; the rest goes unused. None: all.
        """
        self.check_channels("fill", fill)
        chosen = self._choose(where)
        new_h, new_w = self._per_sample(chosen, height, width)
        if min(new_h.min(initial=1), new_w.min(initial=1)) < 1:
            raise TransformError(f"warp to {new_h.min()} x {new_w.min()}: both sides must be at least 1 pixel")
        padded = geometry.reaches_border(self._y, chosen) | geometry.reaches_border(self._x, chosen)
        self._split(chosen[(self._ops_so_far[chosen] != _NO_OPS) | self._resized[chosen] | padded])

        now = self._now
        wanted = np.broadcast_to(np.asarray(matrix, dtype=np.float64), (len(self), 3, 3))[chosen]
        turned = now["transposed"][chosen] != 0
        wanted = np.where(turned[:, None, None], wanted[:, [1, 0, 2]], wanted)
        found = geometry.warp(self._y, self._x, chosen, wanted, new_h, new_w)
        now["matrix"][chosen] = found.reshape(-1, 9)
        now["warped"][chosen], now["transposed"][chosen] = 1, 0
        now["border_before"][chosen], now["fill_before"][chosen] = border, np.asarray(fill, dtype=np.float32)
        now["filter"][chosen], now["antialias"][chosen] = filter, 0
        now["clamp"][chosen] = self.limit if filter == Filter.BICUBIC and not self.is_float else -1.0
        if field is not None and len(chosen):
            self._add_field(chosen, np.asarray(field, dtype=np.float32), nodes)
        self._resized[chosen] = True

    def _add_field(
        self, chosen: NDArray[np.int64], field: NDArray[np.float32], nodes: tuple[ArrayLike, ArrayLike] | None
    ) -> None:
        if field.ndim not in (3, 4) or field.shape[-1] != 2 or min(field.shape[-3:-1]) < 2:
            raise TransformError(f"a field is (R, C, 2) or (N, R, C, 2), R and C at least 2, not {field.shape}")
        fields = field[chosen] if field.ndim == 4 else field[None]
        rows, columns = self._per_sample(chosen, *(field.shape[-3:-1] if nodes is None else nodes))
        if (min(rows.min(), columns.min()) < 2) | (rows > field.shape[-3]).any() | (columns > field.shape[-2]).any():
            raise TransformError(f"nodes are from 2 to those of the field, {field.shape[-3:-1]}, not {nodes}")
        if (columns != field.shape[-2]).any():
            # Each sample's nodes row after row, with no gaps.
            place = np.arange(fields[0].size // 2)
            row, column = np.divmod(place, columns[:, None])
            place = np.minimum(row * field.shape[-2] + column, place[-1])
            fields = np.broadcast_to(fields, (len(chosen), *fields.shape[1:])).reshape(len(chosen), -1, 2)
            fields = np.take_along_axis(fields, place[:, :, None], axis=1)
        # They lie among the look-up tables, in as many of those as each takes.
        size = fields[0].size
        tables = -(-size // TABLE_FLOATS)
        flat = np.zeros((len(fields), tables * TABLE_FLOATS), dtype=np.float32)
        flat[:, :size] = fields.reshape(len(fields), -1)
        first = sum(map(len, self._luts)) + np.arange(len(fields)) * tables
        self._luts.append(flat.reshape(-1, 3, 256))
        self._now["field"][chosen] = first * TABLE_FLOATS
        self._now["field_rows"][chosen], self._now["field_columns"][chosen] = rows, columns

    # --- pixel operations -------------------------------------------------------------------------------------------

    def append(self, ops: NDArray[Any], where: Where = None) -> None:
        """Adds one pixel operation to each sample's program: `ops` is (N,) rows made by `cuaug.plan.operations`."""
        chosen = self._choose(where)
        ops = ops.view(_RAW_OP)[chosen].view(OP)
        measures = _MEASURES[ops["code"]]
        if measures.any():
            step = self.limit / 255.0 / _MEASURE_STEPS
            means = measures == Measure.GRAY_SUM
            heights, widths = (size[chosen[means]] for size in self.sizes)
            ops["a"][means, 1] = step / (heights * widths)
            waiting, what = chosen[measures > 0], measures[measures > 0]
            self._now["measure"][waiting] = what
            scales = {
                Measure.GRAY_SUM: 1.0 / step,
                Measure.RANGE: 0.0 if self.is_float else 1.0,
                Measure.HISTOGRAM: 255.0 / self.limit,
            }
            self._now["measure_scale"][waiting] = np.select([what == kind for kind in scales], list(scales.values()))
            self._split(waiting)
        self._written.append((self._pass[chosen], chosen, ops.view(_RAW_OP)))
        self._ops_so_far[chosen] = np.maximum(self._ops_so_far[chosen], _KINDS[ops["code"]])

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
        self._keep(self._everyone)
        rows = np.stack([kept.view(_RAW_SAMPLE) for kept in self._before]).view(SAMPLE)
        for axis in ("y", "x"):
            taps = geometry.taps(rows[axis], rows["filter"], rows["antialias"])
            resamples = rows["neighbourhood"] == Neighbourhood.NONE
            rows[axis]["taps"] = np.where(resamples, taps, rows[axis]["taps"])
        return rows

    @staticmethod
    def _place_statistics(rows: NDArray[Any]) -> int:
        """Gives each measuring pass of each sample its words; returns how many there are."""
        words = _MEASURE_WORDS[rows["measure"]]
        ends = np.cumsum(words)
        rows["measure_at"] = (ends - words.reshape(-1)).reshape(rows.shape)
        rows["measured"][1:], rows["measured_at"][1:] = rows["measure"][:-1], rows["measure_at"][:-1]
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

    # --- the rows of the current pass -------------------------------------------------------------------------------

    def _choose(self, where: Where) -> NDArray[np.int64]:
        return self._everyone if where is None else np.flatnonzero(where)

    def _axes(self, chosen: NDArray[np.int64]) -> list[tuple[Any, NDArray[Any], NDArray[Any]]]:
        """(which of the chosen, the axis of their rows, that of their columns): two kinds where some are transposed."""
        turned = self._now["transposed"][chosen] != 0
        if not turned.any():
            return [(slice(None), self._y, self._x)]
        return [(~turned, self._y, self._x), (turned, self._x, self._y)]

    def _per_sample(self, chosen: NDArray[np.int64], *values: ArrayLike) -> list[NDArray[np.int64]]:
        return [np.broadcast_to(np.asarray(value, dtype=np.int64), len(self))[chosen] for value in values]

    def _keep(self, chosen: NDArray[np.int64]) -> None:
        """Copies the chosen samples' rows to those of the passes before."""
        while len(self._before) <= self._pass[chosen].max(initial=-1):
            self._before.append(np.zeros(len(self), dtype=SAMPLE))
        for number, rows in enumerate(self._before):
            here = chosen[self._pass[chosen] == number]
            rows.view(_RAW_SAMPLE)[here] = self._now.view(_RAW_SAMPLE)[here]

    def _split(self, chosen: NDArray[np.int64]) -> None:
        """Begins a new pass for the chosen samples: what they are now becomes its source."""
        if len(chosen) == 0:
            return
        self._keep(chosen)
        self._pass[chosen] += 1
        heights, widths = self.sizes
        self._begin_pass(chosen, heights[chosen], widths[chosen], Type.FLOAT32)
        self._resized[chosen] = False
        self._ops_so_far[chosen] = _NO_OPS

    def _begin_pass(self, chosen: NDArray[np.int64], heights: Any, widths: Any, source_type: Type) -> None:
        # Until a later pass follows, or the plan is closed: the target is a float image in the kernels' own layout.
        self._now.view(_RAW_SAMPLE)[chosen] = _FRESH.view(_RAW_SAMPLE)
        geometry.reset(self._y, chosen, heights)
        geometry.reset(self._x, chosen, widths)
        self._now["source_type"][chosen] = source_type
        self._now["pitch"][chosen] = widths * (3 if source_type == Type.UINT8 else 12)
