"""`Plan`: the builder of one small program per sample.

Transforms and `cuaug.functional` call its methods; one call acts on a whole batch. A plan holds no pixels. Nothing runs
until a device executes the plan that `compile` returns:

    plan = Plan([375, 480], [500, 640])         # two uint8 images
    plan.crop(0, 0, 300, 300)
    plan.resize(224, 224)                       # folds: still one pass
    plan.flip(where=np.array([True, False]))    # folds
    plan.append(operations.brightness(2, plan.limit, [0.8, 1.2]))  # runs as the pixels are stored
    plan.append(operations.contrast(2, plan.limit, 1.5))           # needs the image's mean: a second pass
    compiled = plan.compile(Type.FLOAT32)       # compiled.launches == 2

A pass reads each source pixel and writes each output pixel once; on a GPU it is one launch for the batch. Crops, pads,
flips and quarter turns fold into it around one resampling, or several resizes of one kind; then come point operations.

A new pass begins where folding would be wrong:
    - before an operation that reads a statistic of the whole image, such as contrast's mean;
    - before a filter, unless the pass so far is a plain crop;
    - before a resampling that follows point operations, or another resampling that it cannot join;
    - before any geometry that follows an operation at fixed positions, such as erasing.

`CompiledPlan` is the finished plan that devices execute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.native import address, library
from cuaug.errors import TransformError
from cuaug.plan import filter_passes, operations, regions
from cuaug.plan.boxes_keypoints import mirror, scaling, shift, swap
from cuaug.plan.channels import count_groups, group_operations, group_size, is_rgb_or_gray
from cuaug.plan.layout import (
    ANTIALIASED_FILTERS,
    OP,
    WARP_FILTERS,
    Antialias,
    Border,
    Filter,
    Layout,
    Neighborhood,
    Type,
)
from cuaug.plan.packing import PackingFormat
from cuaug.plan.padding_displacement import (
    AFTER_POSITIONAL,
    AFTER_RESAMPLING,
    DisplacementField,
    add_field,
    add_padding,
    crop_error,
    size_error,
    uncut_window,
)
from cuaug.plan.pass_table import Indices, add_pillow_weights
from cuaug.plan.pixel_function import PixelFunction
from cuaug.plan.state import PlanState
from cuaug.plan.trace import Where


@dataclass(frozen=True)
class CompiledPlan:
    """A finished plan in the form that the kernels read; executors fill in addresses.

    Attributes:
        rows: (P, N) `SAMPLE` rows, P passes of N samples; `active` is 0 where a sample skips the pass.
        ops: (M,) `OP` rows; the program of each sample and pass is contiguous.
        luts: (T, 3, 256) float32 look-up tables, filter weights and displacement fields.
        statistics: number of 64-bit words that the passes measure; rows index them by `measure_at` and `measured_at`.
        target_type: type of the finished images.
        functions: the pixel functions that operations call.
        packing: how the finished images share one tensor, if they do.
        others: the same plan for each further group of channels; see `cuaug.plan.channels`.
    """

    rows: NDArray[Any]
    ops: NDArray[Any]
    luts: NDArray[np.float32]
    statistics: int
    target_type: Type
    functions: tuple[PixelFunction, ...] = ()
    packing: PackingFormat | None = None
    others: tuple[CompiledPlan, ...] = ()

    @property
    def launches(self) -> int:
        """Number of kernel launches on a CUDA device, one per pass, for most batches.

        Samples of very different scale, or a large working set, take more (cuaug/devices/cuda.py and workspace.py).
        """
        return len(self.rows)

    def sizes(self) -> NDArray[np.int64]:
        """(2, N) heights and widths of the finished images."""
        return regions.output_sizes(self.rows)

    def planes(self) -> NDArray[np.int64]:
        """(N,) pixels from one channel of a finished image to the next, where the layout is CHW."""
        heights, widths = self.sizes() if self.packing is None else self.sizes().max(axis=1, keepdims=True)
        return np.broadcast_to(heights * widths, self.rows.shape[1])

    def regions(self) -> NDArray[np.int64]:
        """(N, 4) y0, x0, y1, x1 of the source pixels to decode, ends excluded."""
        return regions.regions(self.rows[0])

    def for_masks(self) -> CompiledPlan:
        """The same geometry for masks, (H, W, 3) uint8, by nearest neighbor.

        No value changes. Beyond a constant border masks are 0. Where the image is interpolated, its mask takes the
        pixel under the center of the new one, and after a resize with `pillow` the pixel of Pillow's nearest.
        """
        rows = self.rows.copy()
        interpolated = (rows["filter"] != Filter.NEAREST) & (rows["antialias"] < Antialias.X_FIRST)
        for axis in (rows["y"], rows["x"]):
            # `nearest_span` in kernels/core/sampling.h samples at the new pixel's corner, as OpenCV does.
            axis["offset"] += np.where(interpolated, 0.5 * axis["scale"], 0.0)
            axis["taps"] = 1
        # For interpolation, `set_kernel_matrices` in kernels/planner/geometry.h has moved points by half a pixel.
        half = np.where(interpolated[..., None], rows["fixed_matrix"][..., 6:], 0) / 2
        for first in (0, 3):
            rows["fixed_matrix"][..., first : first + 3] += np.rint(half).astype(np.int64)
            rows["float_matrix"][..., first : first + 3] += (half * 2.0**-32).astype(np.float32)
        rows["filter"], rows["neighborhood"] = Filter.NEAREST, Neighborhood.NONE
        rows["antialias"][interpolated] = 0
        rows["before"]["fill"] = rows["after"]["fill"] = 0.0
        rows["clamp"] = -1.0
        for field in ("op_begin", "op_end", "measure", "measured"):
            rows[field] = 0
        rows["source_type"][0] = Type.UINT8
        rows["target"]["type"][rows["active"].sum(axis=0) - 1, np.arange(rows.shape[1])] = Type.UINT8
        rows["target"]["layout"], rows["target"]["channels"] = Layout.HWC, 3
        rows["target"]["has_patches"] = rows["target"]["pitch"] = 0
        return CompiledPlan(rows, np.zeros(1, dtype=OP), add_pillow_weights(rows, self.luts), 0, Type.UINT8)


def add_groups(compiled: CompiledPlan, channels: int, compile_group: Callable[[int], CompiledPlan]) -> CompiledPlan:
    """The plan of the first group with those of the others, which `compile_group` makes by their numbers."""
    return replace(compiled, others=tuple(map(compile_group, range(1, count_groups(channels)))))


class Plan(PlanState):
    """Collects the operations of N images, one program per sample. `PlanState` has its arguments and attributes.

    Methods act on the samples where `where`, (N,) bool, is true; None stands for all. Values are in the image's units
    at that point of the chain: 0 to 255 while images are uint8, [0, 1] once they are float.
    """

    def _choose(self, where: Where, *, moves: bool = False) -> Indices:
        """Numbers of the samples to act on, after their pending conversion to float; moves: the step moves pixels."""
        if moves and self._separate_frames and self.trace.one_target_per_clip:
            raise TransformError(
                "targets: the boxes, masks and keypoints of a call belong to the whole clip, but PerFrame moves each "
                "frame apart: move them alike, outside of PerFrame, or load clips with sources.Videos, whose labels "
                "hold boxes per frame"
            )
        chosen = self._all if where is None else where.nonzero()[0]
        if self._unscaled is not None and self.is_float and self._unscaled[chosen].any():
            unscaled = self._unscaled.copy()
            self._unscaled[chosen] = False
            self.append(operations.scale(1, 1.0 / 255.0), unscaled & ~self._unscaled)
        return chosen

    # --- geometry ---------------------------------------------------------------------------------------------------
    def crop(self, top: ArrayLike, left: ArrayLike, height: ArrayLike, width: ArrayLike, where: Where = None) -> None:
        """Crops height x width pixels from (top, left) on, all in the image."""
        chosen, table = self._choose(where, moves=True), self._table
        window = table.per_sample(chosen, top, left, height, width)
        if not table.change(AFTER_POSITIONAL, library.cuaug_crop, chosen, address(window)):
            raise crop_error(table, chosen, window)
        self._move_points(chosen, lambda: shift(-window[1], -window[0]))

    def window(
        self,
        top: ArrayLike,
        left: ArrayLike,
        height: ArrayLike,
        width: ArrayLike,
        *,
        fill: ArrayLike = 0.0,
        where: Where = None,
    ) -> None:
        """Crops as `crop`, from a window that may leave the image; beyond it lies `fill`."""
        top, left, height, width = (np.asarray(number, dtype=np.int64) for number in (top, left, height, width))
        heights, widths = self.sizes
        above, before = np.maximum(-top, 0), np.maximum(-left, 0)
        below, after = np.maximum(top + height - heights, 0), np.maximum(left + width - widths, 0)
        if any(side.any() for side in (above, before, below, after)):
            self.pad(before, above, after, below, fill=fill, where=where)
        self.crop(top + above, left + before, height, width, where)

    def flip(self, *, vertical: bool = False, where: Where = None) -> None:
        """Mirrors left and right, or with `vertical` top and bottom."""
        chosen, table = self._choose(where, moves=True), self._table
        table.change(AFTER_POSITIONAL, library.cuaug_flip, chosen, vertical)
        self._move_points(chosen, lambda: mirror(table.sizes(chosen)[0 if vertical else 1], vertical=vertical))

    def transpose(self, where: Where = None) -> None:
        """Exchanges rows and columns."""
        chosen = self._choose(where, moves=True)
        self._table.change(AFTER_POSITIONAL, library.cuaug_transpose, chosen)
        self._move_points(chosen, lambda: swap(len(chosen)))

    def rot90(self, turns: ArrayLike, where: Where = None) -> None:
        """Turns by `turns` quarters of the circle, counter-clockwise: one number, or one per sample."""
        turns = np.broadcast_to(np.asarray(turns, dtype=np.int64), len(self)) % 4
        acts = np.ones(len(self), dtype=bool) if where is None else where
        self.transpose(acts & (turns % 2 == 1))
        self.flip(vertical=True, where=acts & ((turns == 1) | (turns == 2)))
        self.flip(where=acts & (turns >= 2))

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
        """Adds pixels on each side; a negative number cuts pixels off first. `fill` may be per channel."""
        fill = self.of_channels("fill", fill)
        chosen = self._choose(where, moves=True)
        sides = self._table.per_sample(chosen, top, left, bottom, right)
        if sides.min(initial=0) < 0:
            above, before, height, width = uncut_window(self.sizes, chosen, np.maximum(-sides, 0))
            self.crop(above, before, height, width, where)
            sides = np.maximum(sides, 0)
        grows = (sides > 0).any(axis=0)
        chosen, sides = chosen[grows], np.ascontiguousarray(sides[:, grows])
        add_padding(self._table, chosen, sides, border, fill)
        self._move_points(chosen, lambda: shift(sides[1], sides[0]))

    def resize(
        self,
        height: ArrayLike,
        width: ArrayLike,
        *,
        filter: Filter = Filter.BILINEAR,
        antialias: bool = True,
        as_opencv: bool = False,
        where: Where = None,
    ) -> None:
        """Resamples to height x width pixels; images of that size stay as they are.

        With `pillow`, uint8 images get Pillow's bits; values between two levels, which other operations left, are
        rounded first. `as_opencv` is for transforms that are defined without antialiasing: it ignores `pillow`.
        """
        pillow = None if as_opencv else self.pillow
        if not antialias and filter in ANTIALIASED_FILTERS:
            raise TransformError(f"antialias must be True for {filter.name}, which is defined with antialiasing alone")
        if pillow is not None:
            self._check_pillow(filter, antialias=antialias)
        chosen, table = self._choose(where, moves=True), self._table
        size = table.per_sample(chosen, height, width)
        old = size if self.points is None else table.sizes(chosen)
        options = filter, antialias, pillow or 0, -1.0 if pillow else self._clamp(filter)
        table.has_pillow |= pillow is not None
        if not table.change(AFTER_RESAMPLING, library.cuaug_resize, chosen, address(size), *options):
            raise size_error("resize", size)
        if self.points is not None:
            changed = (old != size).any(axis=0)
            self._move_points(chosen[changed], lambda: scaling(*(size / old)[::-1, changed]))

    def _check_pillow(self, filter: Filter, *, antialias: bool) -> None:
        """Refuses a resize that Pillow does not know."""
        problem = None
        if self.is_float:
            problem = "resizes uint8 images, but these are floats (or uint16): resize before ToDtype and Normalize"
        elif not is_rgb_or_gray(self.channels):
            problem = f"resizes gray and RGB images, but these have {self.channels} channels"
        elif not antialias and filter not in (Filter.NEAREST, Filter.NEAREST_EXACT):
            problem = f"always antialiases: antialias must be True for {filter.name}"
        if problem:
            raise TransformError(f"pillow={self.pillow} {problem}; or leave pillow out")

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
        """Samples a new image at mapped points of the image so far.

        Args:
            matrix: (3, 3) or (N, 3, 3), from new points (x, y, 1) to old ones, in pixels. The center of pixel (0, 0) is
                (0.5, 0.5). The result is divided by its third coordinate, so a matrix's scale is free.
            height, width: size of the new image.
            filter: NEAREST, BILINEAR or BICUBIC, without antialiasing; use `resize` to shrink.
            border: how to extend the image so far beyond its edges.
            fill: color of `Border.CONSTANT`: a number or one per channel.
            field: (R, C, 2) or (N, R, C, 2), R and C at least 2: displacements (dy, dx) in pixels, added to new points
                before `matrix` applies. The nodes span the new image from corner to corner; linear in between.
            nodes: (rows, columns), numbers or (N,): how many of the first R and C a sample uses to span its image; None
                for all.
        """
        fill = self.of_channels("fill", fill)
        if filter not in WARP_FILTERS:
            raise TransformError(f"filter of a warp must be NEAREST, BILINEAR or BICUBIC, not {filter.name}")
        chosen, table = self._choose(where, moves=True), self._table
        size = table.per_sample(chosen, height, width)
        matrix = np.asarray(matrix, dtype=np.float64)
        matrices, color = np.empty((len(chosen), 3, 3)), np.empty(3, dtype=np.float32)
        matrices[:], color[:] = table.rows_of("matrix", matrix, chosen) if matrix.ndim == 3 else matrix, fill
        options = address(matrices), filter, border, address(color), self._clamp(filter)
        if not table.change(AFTER_RESAMPLING, library.cuaug_warp, chosen, address(size), *options):
            raise size_error("warp", size)
        displacement = None
        if field is not None and len(chosen):
            displacement = add_field(table, chosen, np.asarray(field, dtype=np.float32), nodes)
        self._move_points(chosen, lambda: matrices, field=displacement, inverse=True)

    def _clamp(self, filter: Filter) -> float:
        """uint8 images clamp a filter's overshoot; float images keep it, as in torchvision (-1)."""
        return self.limit if filter in (Filter.BICUBIC, Filter.LANCZOS) and not self.is_float else -1.0

    def _move_points(
        self,
        chosen: Indices,
        matrix: Callable[[], NDArray[np.float64]],
        *,
        field: DisplacementField | None = None,
        inverse: bool = False,
    ) -> None:
        """Moves the chosen samples' boxes and keypoints like their pixels; see `BoxesKeypoints.move`."""
        if self.points is not None:
            heights, widths = self._table.sizes(chosen)
            self.points.move(chosen, matrix(), heights, widths, field=field, inverse=inverse)

    # --- neighborhoods ---------------------------------------------------------------------------------------------
    def barrier(self, where: Where = None) -> None:
        """Begins a new pass: later operations read the finished image so far."""
        self._table.begin_pass(self._choose(where), "a barrier was requested")

    def convolve(
        self, down: ArrayLike, across: ArrayLike, *, border: Border = Border.REFLECT, where: Where = None
    ) -> None:
        """Weighted sums of neighbors along columns, then along rows.

        Args:
            down, across: (K,) or (N, K) weights, K odd: top to bottom, and left to right.
            border: how to extend the image beyond its edges; constant means 0.
        """
        filter_passes.convolve(self._table, self._choose(where), down, across, border)

    def stencil(
        self,
        taps: ArrayLike,
        *,
        frame: int = 0,
        saturate: bool = False,
        border: Border = Border.CONSTANT,
        where: Where = None,
    ) -> None:
        """A weighted sum of shifted images.

        Args:
            taps: (K, 3) or (N, K, 3) rows of (dy, dx, weight): the pixel dy rows below and dx columns to the right,
                times the weight. Taps of weight 0 cost nothing.
            frame: pixels nearer to the edge than this stay as they are.
            saturate: clamp the sums to [0, `limit`].
            border: how to extend the image beyond its edges; constant means 0.
        """
        chosen = self._choose(where)
        self._require_unit_range(saturate)
        filter_passes.stencil(self._table, chosen, taps, frame, self.limit if saturate else -1.0, border)

    def median(self, size: ArrayLike, *, where: Where = None) -> None:
        """Medians over size x size pixels; a number or (N,) of `MEDIAN_SIZES`."""
        filter_passes.median(self._table, self._choose(where), size)

    def jpeg(self, quality: ArrayLike, *, where: Where = None) -> None:
        """Encodes as baseline 4:2:0 JPEG and decodes; quality 1 to 100, or (N,)."""
        if self._normalized:
            raise TransformError("normalized images are not in [0, 1]: they cannot be encoded as JPEG")
        if not is_rgb_or_gray(self.channels):
            raise TransformError(f"image: it has {self.channels} channels, but a JPEG has 1 or 3")
        self._require_unit_range(True)
        filter_passes.jpeg(self._table, self._choose(where), quality, self.limit / 255.0)

    # --- point operations -------------------------------------------------------------------------------------------
    def append(self, ops: NDArray[Any], where: Where = None) -> None:
        """Adds a point operation: `OP` rows, (N,) or one for all samples.

        Raises:
            TransformError: it mixes colors, and the images are neither RGB nor gray.
        """
        if not is_rgb_or_gray(self.channels):
            ops = group_operations(ops, self.channels, self._group)
        chosen = self._choose(where)
        if len(ops) not in (1, len(self)):
            raise ValueError(f"ops has one row, or one for each of the {len(self)} samples, not {len(ops)}")
        self._table.append(chosen, ops, self.limit)
        if self._has_float_input and not self._normalized:  # uint8 images skip the question
            self._require_unit_range(operations.knows_white(ops))

    def lut(self, table: ArrayLike, where: Where = None) -> None:
        """Looks uint8 levels up in a table, (256,), (C, 256), or (N, 3, 256) of RGB images."""
        values = np.asarray(table, dtype=np.float32)
        per_sample = values.ndim == 3
        if values.shape[-1:] != (256,) or values.shape not in ((256,), (len(values), 256), (len(self), 3, 256)):
            raise TransformError(
                f"a look-up table must be (256,), (C, 256) or ({len(self)}, 3, 256), not {values.shape}"
            )
        if not per_sample and values.ndim == 2:
            values = values[self.of_channels("the look-up table", np.arange(len(values))).astype(np.int64)]
        number = np.zeros(len(self), dtype=np.int64)
        if per_sample:  # the tables of the chosen samples alone
            chosen = self._all if where is None else where.nonzero()[0]
            values, number[chosen] = values[chosen], np.arange(len(chosen))
        tables = np.broadcast_to(values, (len(values) if per_sample else 1, 3, 256))
        tables = np.multiply(tables, np.float32(self.limit / 255.0), order="C")
        number += self._table.add_luts(tables)
        self.append(operations.look_up(len(self), self.limit, number), where)

    def run_function(
        self,
        function: PixelFunction,
        numbers: NDArray[np.float64],
        keys: NDArray[np.uint32] | None = None,
        where: Where = None,
    ) -> None:
        """Runs a pixel function on values scaled to [0, 1]; its results saturate, unless images are normalized.

        One that reads neighbors begins a new pass. Beyond its edges the image is mirrored (`Border.REFLECT`).

        Args:
            numbers: (N, K) its parameters.
            keys: (N, 2) of its noise.
        """
        chosen = self._choose(where)
        if function.reads_neighbors:
            self._table.begin_pass(chosen, "a function reads neighboring pixels")
            self._table.current["before"]["border"][self._table.index(chosen)] = Border.REFLECT
        limit = -1.0 if self._normalized else self.limit
        table = self._table.add_function(function)
        self.append(operations.pixel_function(limit, function, table, numbers, keys), where)

    # --- dtype and value range --------------------------------------------------------------------------------------
    def to_float(self, *, scale: bool = True) -> None:
        """Converts uint8 images to float; with `scale` to [0, 1]."""
        if self.is_float:
            return
        if scale and self._is_exclusive:  # other members still act on their samples as uint8 levels
            self._unscaled = np.ones(len(self), dtype=bool) if self._unscaled is None else self._unscaled
        elif scale:
            self.append(operations.scale(1, 1.0 / 255.0))
        self._normalized |= not scale
        self.is_float = True

    def to_uint8(self, *, scale: bool = True) -> None:
        """Converts float images to uint8, saturated; with `scale` from [0, 1]."""
        if not self.is_float:
            return
        if self._normalized and scale:
            raise TransformError("normalized images are not in [0, 1]: they cannot become uint8")
        self._has_float_input &= scale  # else levels up to 255 are right
        self.append(operations.scale(1, 255.0 if scale else 1.0, limit=255.0))
        self.is_float, self._normalized, self._unscaled, self._has_float_input = False, False, None, False

    def normalize(self, mean: ArrayLike, std: ArrayLike, where: Where = None) -> None:
        """Computes (v - mean) / std of images scaled to [0, 1]."""
        mean, std = self.of_channels("mean", mean), self.of_channels("std", std)
        if where is not None:
            self.to_float()  # all samples, also those that are not normalized
        self._require_unit_range(bool(mean.any() and max(mean.max(), std.max()) <= 1.0))
        levels, self.is_float, self._normalized = not self.is_float, True, True
        if self.pillow is not None:
            self.append(operations.normalize(1, mean, std, levels=levels), where)
        else:
            factor = 1.0 / (255.0 * std) if levels else 1.0 / std
            self.append(operations.scale(1, factor, -mean / std), where)

    def result_type(self) -> Type:
        """The images' type at this point of the chain."""
        if self.target_type is not None:
            return self.target_type
        return Type.FLOAT32 if self.is_float else Type.UINT8

    # --- compilation ------------------------------------------------------------------------------------------------
    def compile(self, target_type: Type | None = None, layout: Layout = Layout.CHW) -> CompiledPlan:
        """Finishes the plan: images of `target_type` (None: `result_type()`) in `layout`.

        Float images and uint8 images convert into each other by a factor of 255, as `ToDtype(scale=True)` does.
        """
        target_type = self.result_type() if target_type is None else target_type
        if target_type == Type.UINT8:
            self.to_uint8()
        else:
            self.to_float()
        self._choose(None)  # scales the samples that still hold uint8 levels

        packing = self.packing
        layout = packing.order if packing is not None and packing.patch else layout
        rows, ops, luts, words = self._table.finish(target_type, layout, group_size(self.channels, self._group))
        if packing is not None:
            sizes = regions.output_sizes(rows)
            if self.packed_sizes is not None and (sizes != self.packed_sizes).any():
                raise TransformError("Tiles must come after all transforms that change the size of images")
            packing.write_targets(rows, sizes, self.trace.frames)
        return CompiledPlan(rows, ops, luts, words, target_type, tuple(self._table.functions), packing)
