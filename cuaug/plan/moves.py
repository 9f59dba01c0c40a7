"""Geometric operations, as `Plan` has them: how they fold into one sampling step, and where they cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.native import address, library
from cuaug.errors import TransformError
from cuaug.plan.boxes_keypoints import mirror, scaling, shift, swap
from cuaug.plan.displacement_field import DisplacementField
from cuaug.plan.layout import Border, Filter, Neighbourhood
from cuaug.plan.pass_table import POINTWISE, POSITIONAL, UNFIT
from cuaug.plan.passes import Passes
from cuaug.plan.trace import Where

__all__ = ["LONGEST", "Moves"]

#: The longest side that an image may have, in pixels: kernels/planner/geometry.h.
LONGEST = 2**31 - 1
# Why a crop, flip or transposition begins a pass, and why a resampling does.
_FIXED_PLACES = ("an operation that knows where its pixels stand comes before geometry",)
_RESAMPLED = ("pixel operations come before a resampling", "a second resampling of another kind")


class Moves(Passes):
    """The part of `Plan` that says where pixels come from."""

    def crop(self, top: ArrayLike, left: ArrayLike, height: ArrayLike, width: ArrayLike, where: Where = None) -> None:
        """Keeps rows top ... top + height - 1 and columns left ... left + width - 1; they must lie in the image."""
        chosen = self._choose(where)
        window = self._per_sample(chosen, top, left, height, width)
        if not self._change(_FIXED_PLACES, library.cuaug_crop, chosen, address(window)):
            worst = self._rows.misfit(chosen, window)
            (y, x, h, w), (whole_h, whole_w) = window[:, worst], self._rows.sizes(chosen)[:, worst]
            which = f"; image {chosen[worst]} of the batch" if len(self) > 1 else ""
            raise TransformError(
                f"crop of {h} x {w} at row {y}, column {x} does not fit "
                f"an image of {whole_h} x {whole_w} (height x width{which})"
            )
        self._follow(chosen, lambda: shift(-window[1], -window[0]))

    def flip(self, *, vertical: bool = False, where: Where = None) -> None:
        """Mirrors left and right, or with `vertical` top and bottom."""
        chosen = self._choose(where)
        self._change(_FIXED_PLACES, library.cuaug_flip, chosen, vertical)
        self._follow(chosen, lambda: mirror(self._rows.sizes(chosen)[0 if vertical else 1], vertical=vertical))

    def transpose(self, where: Where = None) -> None:
        """Exchanges rows and columns."""
        chosen = self._choose(where)
        self._change(_FIXED_PLACES, library.cuaug_transpose, chosen)
        self._follow(chosen, lambda: swap(len(chosen)))

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
        sides = self._per_sample(chosen, top, left, bottom, right)
        if sides.min(initial=0) < 0:
            raise TransformError("padding must be 0 or more on every side; to cut pixels off, use a crop")
        some = (sides > 0).any(axis=0)
        chosen, sides = chosen[some], np.ascontiguousarray(sides[:, some])
        color = np.broadcast_to(np.asarray(fill, dtype=np.float32), (3,))

        rows, now, ops = self._rows, self._rows.now, self._rows.ops[chosen]
        self._split(chosen[ops == POSITIONAL], *_FIXED_PLACES)
        self._split(
            chosen[(ops == POINTWISE) & (border == Border.CONSTANT)],
            "pixel operations come before a border of constant colour",
        )
        # A tile of a JPEG pass has room for neighbouring blocks, not for those of the other end.
        self._split(
            chosen[(now["neighbourhood"][chosen] == Neighbourhood.JPEG) & (border == Border.WRAP)],
            "a border that wraps comes after a JPEG",
        )
        padded, some_left = rows.borders(chosen)
        same = (now["border_after"][chosen] == border) & (border <= Border.EDGE)
        same &= (border == Border.EDGE) | (now["fill_after"][chosen] == color).all(axis=1)
        self._split(chosen[padded & ~(same & some_left)], "a border of another kind comes after the first")

        i = self._at(chosen)
        now["border_after"][i], now["fill_after"][i] = border, color
        if rows.change(library.cuaug_pad, chosen, address(sides)) == UNFIT:
            raise TransformError(f"padding by up to {sides.max()}: an image cannot reach beyond {LONGEST} pixels")
        self._follow(chosen, lambda: shift(sides[1], sides[0]))

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
        size = self._per_sample(chosen, height, width)
        old = size if self.points is None else self._rows.sizes(chosen)
        how = filter, antialias, self._clamp(filter)
        if not self._change(_RESAMPLED, library.cuaug_resize, chosen, address(size), *how):
            raise _refused_size("resize", size)
        if self.points is not None:
            changed = (old != size).any(axis=0)
            self._follow(chosen[changed], lambda: scaling(*(size / old)[::-1, changed]))

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
                the centre of pixel (0, 0) is the point (0.5, 0.5). What comes out is divided by its third coordinate,
                so that any multiple of a matrix does the same.
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
        size = self._per_sample(chosen, height, width)
        matrix = np.asarray(matrix, dtype=np.float64)
        wanted, color = np.empty((len(chosen), 3, 3)), np.empty(3, dtype=np.float32)
        wanted[:], color[:] = self._of_each("matrix", matrix, chosen) if matrix.ndim == 3 else matrix, fill
        how = address(wanted), filter, border, address(color), self._clamp(filter)
        if not self._change(_RESAMPLED, library.cuaug_warp, chosen, address(size), *how):
            raise _refused_size("warp", size)
        bends = None
        if field is not None and len(chosen):
            bends = self._add_field(chosen, np.asarray(field, dtype=np.float32), nodes)
        self._follow(chosen, lambda: wanted, bends=bends, back=True)

    def _clamp(self, filter: Filter) -> float:
        """A cubic overshoots; uint8 images saturate there, float images keep it, as in torchvision."""
        return self.limit if filter == Filter.BICUBIC and not self.is_float else -1.0

    def _add_field(
        self, chosen: NDArray[np.int64], field: NDArray[np.float32], nodes: tuple[ArrayLike, ArrayLike] | None
    ) -> DisplacementField:
        if field.ndim not in (3, 4) or field.shape[-1] != 2 or min(field.shape[-3:-1]) < 2:
            raise TransformError(f"a field is (R, C, 2) or (N, R, C, 2), R and C at least 2, not {field.shape}")
        fields = self._of_each("field", field, chosen) if field.ndim == 4 else field[None]
        rows, columns = self._per_sample(chosen, *(field.shape[-3:-1] if nodes is None else nodes))
        if (min(rows.min(), columns.min()) < 2) | (rows > field.shape[-3]).any() | (columns > field.shape[-2]).any():
            raise TransformError(f"nodes are from 2 to those of the field, {field.shape[-3:-1]}, not {nodes}")
        whole = fields
        if (columns != field.shape[-2]).any():
            # Each sample's nodes row after row, with no gaps.
            place = np.arange(fields[0].size // 2)
            row, column = np.divmod(place, columns[:, None])
            place = np.minimum(row * field.shape[-2] + column, place[-1])
            fields = np.broadcast_to(fields, (len(chosen), *fields.shape[1:])).reshape(len(chosen), -1, 2)
            fields = np.take_along_axis(fields, place[:, :, None], axis=1)
        now = self._rows.now
        now["field"][chosen] = self._add_values(fields.reshape(len(fields), -1))
        now["field_rows"][chosen], now["field_columns"][chosen] = rows, columns
        now["field_height"][chosen], now["field_width"][chosen] = self._rows.sizes(chosen)
        return DisplacementField(np.broadcast_to(whole, (len(chosen), *whole.shape[1:])), rows, columns)

    def _follow(
        self,
        chosen: NDArray[np.int64],
        matrix: Callable[[], NDArray[np.float64]],
        *,
        bends: DisplacementField | None = None,
        back: bool = False,
    ) -> None:
        """Moves the chosen samples' points as their pixels have just been moved; see `BoxesKeypoints.move`."""
        if self.points is not None:
            heights, widths = self._rows.sizes(chosen)
            self.points.move(chosen, matrix(), heights, widths, bends=bends, back=back)


def _refused_size(what: str, size: NDArray[np.int64]) -> TransformError:
    """Of (2, K) heights and widths the first that no image has."""
    height, width = size[:, ((size < 1) | (size > LONGEST)).any(axis=0).argmax()]
    return TransformError(f"{what} to {height} x {width}: both sides are from 1 to {LONGEST} pixels")
