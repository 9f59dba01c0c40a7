"""Geometric operations, as `Plan` has them: how they fold into one sampling step, and where they cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.plan import geometry
from cuaug.plan.bends import Bends
from cuaug.plan.layout import Border, Filter, Neighbourhood
from cuaug.plan.passes import NO_OPS, POINTWISE, POSITIONAL, Passes, Where
from cuaug.plan.points import mirror, scaling, shift, swap

__all__ = ["Moves"]

_FIXED_PLACES = "an operation that knows where its pixels stand comes before geometry"
_AFTER_OPERATIONS = "pixel operations come before a resampling"
_AFTER_RESAMPLING = "a second resampling of another kind"


class Moves(Passes):
    """The part of `Plan` that says where pixels come from."""

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
        self._split(chosen[self._ops_so_far[chosen] == POSITIONAL], _FIXED_PLACES)
        for part, y, x in self._axes(chosen):
            geometry.crop(y, chosen[part], top[part], height[part])
            geometry.crop(x, chosen[part], left[part], width[part])
        self._follow(chosen, shift(-left, -top))

    def flip(self, *, vertical: bool = False, where: Where = None) -> None:
        """Mirrors left and right, or with `vertical` top and bottom."""
        chosen = self._choose(where)
        self._split(chosen[self._ops_so_far[chosen] == POSITIONAL], _FIXED_PLACES)
        for part, y, x in self._axes(chosen):
            geometry.flip(y if vertical else x, chosen[part])
        height, width = (size[chosen] for size in self.sizes)
        self._follow(chosen, mirror(height, vertical=True) if vertical else mirror(width))

    def transpose(self, where: Where = None) -> None:
        """Exchanges rows and columns."""
        chosen = self._choose(where)
        self._split(chosen[self._ops_so_far[chosen] == POSITIONAL], _FIXED_PLACES)
        self._now["transposed"][chosen] ^= 1
        self._follow(chosen, swap(len(chosen)))

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
        self._split(chosen[ops == POSITIONAL], _FIXED_PLACES)
        self._split(
            chosen[(ops == POINTWISE) & (border == Border.CONSTANT)],
            "pixel operations come before a border of constant colour",
        )
        # A tile of a JPEG pass has room for neighbouring blocks, not for those of the other end.
        self._split(
            chosen[(self._now["neighbourhood"][chosen] == Neighbourhood.JPEG) & (border == Border.WRAP)],
            "a border that wraps comes after a JPEG",
        )
        padded = geometry.reaches_border(self._y, chosen) | geometry.reaches_border(self._x, chosen)
        same = (self._now["border_after"][chosen] == border) & (border <= Border.EDGE)
        same &= (border == Border.EDGE) | (self._now["fill_after"][chosen] == color).all(axis=1)
        some_left = np.minimum(geometry.visible(self._y, chosen), geometry.visible(self._x, chosen)) > 0
        self._split(chosen[padded & ~(same & some_left)], "a border of another kind comes after the first")

        self._now["border_after"][chosen], self._now["fill_after"][chosen] = border, color
        for part, y, x in self._axes(chosen):
            geometry.pad(y, chosen[part], add_top[part], add_bottom[part])
            geometry.pad(x, chosen[part], add_left[part], add_right[part])
        self._follow(chosen, shift(add_left, add_top))

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
        busy = self._ops_so_far[chosen] != NO_OPS
        self._split(chosen[busy], _AFTER_OPERATIONS)
        self._split(chosen[~busy & ((again & (padded | ~same_kind)) | (~again & flipped))], _AFTER_RESAMPLING)

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
        self._follow(chosen, scaling(new_w / w[changes], new_h / h[changes]))

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
        busy = self._ops_so_far[chosen] != NO_OPS
        self._split(chosen[busy], _AFTER_OPERATIONS)
        self._split(chosen[~busy & (self._resized[chosen] | padded)], _AFTER_RESAMPLING)

        now = self._now
        wanted = np.broadcast_to(np.asarray(matrix, dtype=np.float64), (len(self), 3, 3))[chosen]
        undone = wanted
        turned = now["transposed"][chosen] != 0
        wanted = np.where(turned[:, None, None], wanted[:, [1, 0, 2]], wanted)
        found = geometry.warp(self._y, self._x, chosen, wanted, new_h, new_w)
        now["matrix"][chosen] = found.reshape(-1, 9)
        now["warped"][chosen], now["transposed"][chosen] = 1, 0
        now["border_before"][chosen], now["fill_before"][chosen] = border, np.asarray(fill, dtype=np.float32)
        now["filter"][chosen], now["antialias"][chosen] = filter, 0
        now["clamp"][chosen] = self.limit if filter == Filter.BICUBIC and not self.is_float else -1.0
        bends = None
        if field is not None and len(chosen):
            bends = self._add_field(chosen, np.asarray(field, dtype=np.float32), nodes)
        self._resized[chosen] = True
        self._follow(chosen, undone, bends=bends, back=True)

    def _add_field(
        self, chosen: NDArray[np.int64], field: NDArray[np.float32], nodes: tuple[ArrayLike, ArrayLike] | None
    ) -> Bends:
        if field.ndim not in (3, 4) or field.shape[-1] != 2 or min(field.shape[-3:-1]) < 2:
            raise TransformError(f"a field is (R, C, 2) or (N, R, C, 2), R and C at least 2, not {field.shape}")
        fields = field[chosen] if field.ndim == 4 else field[None]
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
        self._now["field"][chosen] = self._add_values(fields.reshape(len(fields), -1))
        self._now["field_rows"][chosen], self._now["field_columns"][chosen] = rows, columns
        return Bends(np.broadcast_to(whole, (len(chosen), *whole.shape[1:])), rows, columns)

    def _follow(
        self, chosen: NDArray[np.int64], matrix: NDArray[np.float64], *, bends: Bends | None = None, back: bool = False
    ) -> None:
        """Moves the chosen samples' points as their pixels have just been moved; see `Points.move`."""
        if self.points is not None:
            self.points.move(chosen, matrix, *(size[chosen] for size in self.sizes), bends=bends, back=back)
