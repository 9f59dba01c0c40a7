"""Boxes, keypoints and masks of one sample: what they may look like, and how they are written once they have moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.targets.values import Value

__all__ = ["Boxes", "Field", "Keypoints", "Masks", "corners_of", "written"]

Array = NDArray[Any]
Size = tuple[int, int]  # (height, width)


class Field:
    """One of a sample's targets.

    Attributes:
        name: for errors.
        array: what was given.
        count: how many instances its first axis counts; None: it is not of instances.
    """

    count: int | None = None

    def __init__(self, given: Any, name: str, allowed: str) -> None:
        self.name, self._allowed = name, allowed
        try:
            self._value = Value(given)
        except (TypeError, ValueError) as error:
            raise TransformError(f"{name} is {allowed}, but was given {error}") from None
        self.array = self._value.array

    def _shape_empty(self, shape: tuple[int, ...]) -> None:
        """Gives what is of no instances, as an empty list is, the shape that it would have."""
        if self.array.shape == (0,):
            self.array = self.array.reshape(shape)

    def _refuse(self, what: str) -> TransformError:
        return TransformError(f"{self.name} is {self._allowed}, not {what}")

    def _check_shape(self, good: bool) -> None:
        if not good:
            raise self._refuse(f"of shape {self.array.shape}")

    @property
    def _float(self) -> np.dtype[Any]:
        """What coordinates are given back in: integers cannot hold them."""
        dtype = self.array.dtype
        return dtype if dtype.kind == "f" else np.dtype(np.float32)


class Boxes(Field):
    """K boxes."""

    count: int

    def __init__(self, given: Any, name: str, format: str) -> None:
        super().__init__(given, name, f"(K, 4) finite numbers, {format}")
        self.format = format
        self._shape_empty((0, 4))
        self._check_shape(self.array.ndim == 2 and self.array.shape[1] == 4)
        self.count = len(self.array)

    @property
    def corners(self) -> Array:
        """(K, 4) float64: x0, y0, x1, y1."""
        return corners_of([self])

    def refuse_bad(self) -> None:
        """Raises a TransformError for the first box that is not finite, or ends before it begins."""
        corners = _converted(self.array.astype(np.float64), self.format, _READ)
        for bad, what in (
            (~np.isfinite(corners).all(axis=1), "with a number that is not finite"),
            ((corners[:, 2:] < corners[:, :2]).any(axis=1), "with its end before its beginning"),
        ):
            if bad.any():
                k = int(np.argmax(bad))
                raise self._refuse(f"{self.array[k].tolist()} (number {k}), {what}")

    def back(self, corners: Array, keep: Array | None, size: Size, format: str) -> Any:
        """The boxes, now at `corners`, where `keep`, (K,), is true; None: all. They are written in that format."""
        return self.written(_converted(corners, format, _WRITTEN), keep, size)

    def written(self, numbers: Array, keep: Array | None, size: Size) -> Any:
        """As `back`, of (K, 4) numbers that are in their format already."""
        return self._value.like((numbers if keep is None else numbers[keep]).astype(self._float), size)


# To corners and from there, by format.
_READ: dict[str, Callable[[Array, Array, Array, Array], tuple[Array, Array, Array, Array]]] = {
    "xywh": lambda x, y, w, h: (x, y, x + w, y + h),
    "cxcywh": lambda x, y, w, h: (x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0),
}
_WRITTEN: dict[str, Callable[[Array, Array, Array, Array], tuple[Array, Array, Array, Array]]] = {
    "xywh": lambda a, b, c, d: (a, b, c - a, d - b),
    "cxcywh": lambda a, b, c, d: ((a + c) / 2.0, (b + d) / 2.0, c - a, d - b),
}


def _converted(numbers: Array, format: str, how: Mapping[str, Callable[..., Any]]) -> Array:
    return np.stack(how[format](*numbers.T), axis=1) if format in how else numbers


def _by_format(fields: Sequence[Boxes], numbers: Array, how: Mapping[str, Callable[..., Any]]) -> Array:
    """(B, 4) numbers of all boxes of some fields, one after the other, each converted as its field's format asks."""
    formats = {field.format for field in fields}
    if len(formats) == 1:
        return _converted(numbers, fields[0].format, how)
    each = np.repeat([field.format for field in fields], [field.count for field in fields])
    for format in formats:
        numbers[each == format] = _converted(numbers[each == format], format, how)
    return numbers


def corners_of(fields: Sequence[Boxes]) -> Array:
    """(B, 4) float64: x0, y0, x1, y1 of all boxes of some fields, one after the other.

    Raises:
        TransformError: some are no boxes.
    """
    if not fields:
        return np.zeros((0, 4))
    corners = _by_format(fields, np.concatenate([field.array for field in fields], dtype=np.float64), _READ)
    if not np.isfinite(corners).all() or (corners[:, 2:] < corners[:, :2]).any():
        for field in fields:
            field.refuse_bad()
    return corners


def written(fields: Sequence[Boxes], corners: Array) -> Array:
    """(B, 4): what `corners_of` the fields has become, in their formats; for `Boxes.written`."""
    return _by_format(fields, corners, _WRITTEN)


class Keypoints(Field):
    """Points with or without COCO's v: 0 not labelled, 1 labelled but hidden, 2 seen.

    Attributes:
        places: (P, 2) float64: x, y of all of them.
    """

    def __init__(self, given: Any, name: str) -> None:
        super().__init__(given, name, "(P, 2), (P, 3), (K, P, 2) or (K, P, 3) finite numbers: x, y and maybe COCO's v")
        self._shape_empty((0, 0, 2))
        array = self.array
        self._check_shape(array.ndim in (2, 3) and array.shape[-1] in (2, 3))
        self.count = len(array) if array.ndim == 3 else None
        points = array.reshape(-1, array.shape[-1]).astype(np.float64)
        self._labelled = points[:, 2] != 0 if points.shape[1] == 3 else np.ones(len(points), dtype=bool)
        self.places = np.where(self._labelled[:, None], points[:, :2], 0.0)
        bad = ~np.isfinite(points[:, 2:]).all(axis=1) | ~np.isfinite(self.places).all(axis=1)
        if bad.any():
            raise self._refuse(f"{points[int(np.argmax(bad))].tolist()}")

    def back(self, places: Array, visible: Array, keep: Array | None, size: Size) -> Any:
        """The points at `places`, (P, 2); with a v those that are not `visible` lie at (0, 0), and theirs is 0."""
        points = self.array.reshape(-1, self.array.shape[-1]).astype(self._float)
        if points.shape[1] == 3:
            there = visible & self._labelled
            points[:, :2] = np.where(there[:, None], places, 0.0)
            points[:, 2] *= there
        else:
            points[:, :2] = np.nan_to_num(places)
        whole: Array = points.reshape(self.array.shape)
        return self._value.like(whole if self.count is None or keep is None else whole[keep], size)


class Masks(Field):
    """(K, H, W) masks of instances, or one (H, W) of classes, of any type: its bytes are moved.

    Args:
        dims: how many axes it may have.
        fill: what one of classes shows where there is no image; None: it is of instances, which are not there.

    Attributes:
        planes: (M, H, W) uint8: of each mask the bytes that it makes use of.
    """

    def __init__(self, given: Any, name: str, size: Size, *, dims: tuple[int, ...], fill: int | None) -> None:
        shapes = " or ".join({2: "(H, W)", 3: "(K, H, W)"}[dim] for dim in dims)
        super().__init__(given, name, f"{shapes} numbers, H x W as its image's {size[0]} x {size[1]}")
        if 3 in dims:
            self._shape_empty((0, *size))
        array = self.array
        self._check_shape(array.ndim in dims and array.shape[-2:] == size)
        self.count = len(array) if fill is None else None
        fill = 0 if fill is None else fill
        dtype = array.dtype.newbyteorder("<")
        self._fill = np.asarray(fill).astype(dtype)
        if self._fill != fill:
            raise TransformError(f"{name} is of {array.dtype}, which has no {fill} (mask_fill)")
        self._used = dtype.itemsize
        if dtype.kind in "iu" and array.size and array.min() >= 0 and fill >= 0:
            self._used = max(1, (int(max(array.max(), fill)).bit_length() + 7) // 8)
        # The kernels fill with 0: what is moved is the difference from the fill.
        planes = np.ascontiguousarray(array, dtype=dtype).reshape(-1, *size, 1).view(np.uint8)[..., : self._used]
        self.planes = np.moveaxis(planes ^ self._fill_bytes, -1, 1).reshape(-1, *size)

    @property
    def _fill_bytes(self) -> Array:
        return self._fill.reshape(1).view(np.uint8)[: self._used]

    def back(self, planes: Array, keep: Array | None, size: Size) -> Any:
        """The masks of whose bytes `planes`, (M, h, w), are what has become."""
        dtype, used = self._fill.dtype, self._used
        whole = np.zeros((len(planes) // used, *planes.shape[1:], dtype.itemsize), dtype=np.uint8)
        whole[..., :used] = np.moveaxis(planes.reshape(-1, used, *planes.shape[1:]), 1, -1) ^ self._fill_bytes
        masks: Array = whole.view(dtype)[..., 0].astype(self.array.dtype, copy=False)
        if self.count is None:
            return self._value.like(masks.reshape(*self.array.shape[:-2], *masks.shape[1:]), size)
        return self._value.like(masks if keep is None else masks[keep], size)
