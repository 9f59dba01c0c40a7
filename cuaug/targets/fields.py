"""Boxes, keypoints and masks of one sample.

They are checked, and rebuilt in the user's types after they moved. Users pass NumPy arrays, torch tensors, lists, and
torchvision's tv_tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.codec import mask_array
from cuaug.errors import TransformError
from cuaug.images.image_types import tv_target_kind

Array = NDArray[Any]
Size = tuple[int, int]  # (height, width)

#: Rounded relative boxes may lie this far outside the image.
_RELATIVE_SLACK = 0.01
#: Images this low or narrow may have boxes in pixels that all lie within [0, 1].
_MAX_TINY_SIDE = 4


class UserArray:
    """A user's array, tensor, list of numbers or PIL mask, as a NumPy array.

    Raises:
        TypeError, ValueError: the value is none of these, or does not hold numbers.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        self.is_list = isinstance(value, (list, tuple))
        if isinstance(value, torch.Tensor):
            plain = value.detach().as_subclass(torch.Tensor).cpu().resolve_neg()
            self.array = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
        elif isinstance(value, (np.ndarray, list, tuple)):
            self.array = np.asarray(value)
        elif hasattr(value, "getpixel"):
            self.array = mask_array(value)
        else:
            raise TypeError(f"of type {type(value).__module__}.{type(value).__qualname__}")
        if self.array.dtype.kind not in "biuf":
            raise ValueError(f"of dtype {self.array.dtype}")

    @property
    def original(self) -> Any:
        """The user's value."""
        return self._value

    def like(self, array: Array, size: Size) -> Any:
        """The array in the type of the user's value; `size` becomes the canvas size of a tv_tensor."""
        value = self._value
        if isinstance(value, torch.Tensor):
            tensor = torch.from_numpy(np.ascontiguousarray(array)).to(value.device)
            tensor = tensor.to(value.dtype) if value.dtype == torch.bfloat16 else tensor
            kind = tv_target_kind(type(value))
            if kind is None:
                return tensor
            options = {} if kind == "Mask" else {"canvas_size": size}
            return sys.modules["torchvision.tv_tensors"].wrap(tensor, like=value, **options)
        if isinstance(value, np.ndarray):
            return array
        if hasattr(value, "getpixel"):
            return _pil_mask(array, value)
        is_list_of_arrays = bool(len(value)) and isinstance(value[0], np.ndarray)
        return type(value)(array if is_list_of_arrays else array.tolist())


def with_dtype(mask: Any, dtype: torch.dtype) -> Any:
    """A mask of any type as a torch dtype; PIL images and lists have none and stay as they are."""
    if not isinstance(mask, (torch.Tensor, np.ndarray)):
        return mask
    own = UserArray(mask)
    return own.like(torch.from_numpy(own.array).to(dtype).numpy(), own.array.shape[-2:])


def _pil_mask(array: Array, original: Any) -> Any:
    """A PIL image of the mode, palette and information of the original."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(array))
    if original.mode == "P":
        image.putpalette(original.getpalette())
    image.info = dict(original.info)
    return image


class Field:
    """One target of a sample: base class of `Boxes`, `Keypoints` and `Masks`.

    Attributes:
        name: the target's path in the label, for errors.
        array: the user's value as a NumPy array.
        count: number of instances, the length of the first axis; None: the target has no instances.
        is_typed: whether the value is a tv_tensor, whose type names its kind.
    """

    count: int | None = None

    def __init__(self, value: Any, name: str, expected: str) -> None:
        self.name, self._expected = name, expected
        self.is_typed = tv_target_kind(type(value)) is not None
        try:
            self._user_array = UserArray(value)
        except (TypeError, ValueError) as error:
            raise self._error(str(error)) from None
        self.array = self._user_array.array

    def _error(self, actual: str) -> TransformError:
        return TransformError(f"{self.name} must be {self._expected}, not {actual}")

    def _reshape_empty(self, shape: tuple[int, ...]) -> None:
        """Give an empty list its proper shape."""
        if self.array.shape == (0,):
            self.array = self.array.reshape(shape)

    def _require_shape(self, is_valid: bool) -> None:
        if not is_valid:
            raise self._error(f"of shape {self.array.shape}")

    def _to_own_dtype(self, coordinates: Array) -> Array:
        """Moved coordinates in the dtype of the user's value; integers are rounded to nearest, lists stay floats."""
        dtype = self.array.dtype
        if dtype.kind == "f":
            return coordinates.astype(dtype)
        if self._user_array.is_list:
            return coordinates.astype(np.float32)
        rounded = np.rint(coordinates)
        if rounded.size and dtype.kind in "iu":
            range_of = np.iinfo(dtype)
            if rounded.min() < range_of.min or rounded.max() > range_of.max:
                outside = rounded.min() if rounded.min() < range_of.min else rounded.max()
                raise self._error(f"of dtype {dtype}, which cannot hold the moved coordinate {outside:.0f}")
        return rounded.astype(dtype)


class Boxes(Field):
    """K boxes."""

    count: int

    def __init__(self, value: Any, name: str, format: str) -> None:
        super().__init__(value, name, f"(K, 4) finite numbers, {format}")
        self.format = format
        self._reshape_empty((0, 4))
        if self.array.ndim == 2 and self.array.shape[1] > 4:
            raise self._error(f"of shape {self.array.shape}: give further columns names of their own, such as 'labels'")
        self._require_shape(self.array.ndim == 2 and self.array.shape[1] == 4)
        self.count = len(self.array)

    @property
    def corners(self) -> Array:
        """(K, 4) float64 xyxy."""
        return to_corners([self])

    def scale(self, size: Size) -> None:
        """Turn boxes relative to an image of (height, width) `size` into pixels; a tv_tensor has pixels already."""
        if self.is_typed or not self.count:
            return
        is_outside = ~((self.array >= -_RELATIVE_SLACK) & (self.array <= 1 + _RELATIVE_SLACK)).all(axis=1)
        if is_outside.any():
            raise TransformError(
                f"{self.name} must lie within [0, 1], since relative_boxes=True, but number {int(is_outside.argmax())} "
                f"is {self.array[is_outside.argmax()].tolist()}: pixels need relative_boxes=False"
            )
        if self.array.dtype.kind != "f" and not self._user_array.is_list:
            raise TransformError(f"{self.name} must be floats, since relative_boxes=True, not {self.array.dtype}")
        dtype = self.array.dtype if self.array.dtype.kind == "f" else np.float64
        self.array = (self.array.astype(np.float64) * [size[1], size[0], size[1], size[0]]).astype(dtype)

    def refuse_relative(self, size: Size) -> None:
        """Raise a TransformError if all boxes lie within the first pixel of an image of (height, width) `size`.

        A crop in an earlier call may leave boxes there: these begin at (0, 0), or are empty.
        """
        if self.array.dtype.kind != "f" or min(size) <= _MAX_TINY_SIDE:
            return
        x0, y0, x1, y1 = _convert(self.array.astype(np.float64), self.format, _TO_CORNERS).T
        is_uncut = (x0 != x1) & (y0 != y1) & ((x0 > 0) | (y0 > 0))
        if is_uncut.any() and self.array.min() >= 0 and self.array.max() <= 1:
            remedy = "use Compose(..., relative_boxes=True), with box_format='cxcywh' for YOLO's files"
            if self.is_typed:
                remedy = "multiply them by the width and height of canvas_size"
            raise TransformError(
                f"{self.name} must be in pixels, but all lie within [0, 1], as if relative to the image, such as "
                f"{self.array[is_uncut.argmax()].tolist()}: {remedy}"
            )

    def check(self) -> None:
        """Raise a TransformError for the first box that is not finite, or ends before it begins."""
        corners = _convert(self.array.astype(np.float64), self.format, _TO_CORNERS)
        for invalid, reason in (
            (~np.isfinite(corners).all(axis=1), "which is not finite"),
            ((corners[:, 2:] < corners[:, :2]).any(axis=1), "with its end before its beginning"),
        ):
            if invalid.any():
                k = int(np.argmax(invalid))
                hint = "; if it has a width and a height, set box_format='xywh' of Compose" if "end" in reason else ""
                raise self._error(f"{self.array[k].tolist()} (number {k}), {reason}{hint}")

    def rebuild(self, boxes: Array, keep: Array | None, size: Size) -> Any:
        """The boxes, now (K, 4) `boxes` in their own format, in the user's type.

        Args:
            keep: (K,) bool, the boxes to keep; None: all.
            size: (height, width) of the new image.
        """
        return self._user_array.like(self._to_own_dtype(boxes if keep is None else boxes[keep]), size)

    def in_format(self, format: str) -> Any:
        """The boxes in another format, in the user's type."""
        value = self._user_array.original
        corners = to_corners([self])
        boxes = self._to_own_dtype(_convert(corners, format, _FROM_CORNERS))
        if not self.is_typed:
            return self._user_array.like(boxes, (0, 0))
        result = self._user_array.like(boxes, value.canvas_size)
        result.format = type(value.format)[format.upper()]
        return result

    def rebuild_from_corners(self, corners: Array, keep: Array | None, size: Size, format: str) -> Any:
        """As `rebuild`, from (K, 4) xyxy, written in `format`."""
        return self.rebuild(_convert(corners, format, _FROM_CORNERS), keep, size)


Conversion = Callable[[Array, Array, Array, Array], tuple[Array, Array, Array, Array]]
_TO_CORNERS: dict[str, Conversion] = {
    "xywh": lambda x, y, w, h: (x, y, x + w, y + h),
    "cxcywh": lambda x, y, w, h: (x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0),
}
_FROM_CORNERS: dict[str, Conversion] = {
    "xywh": lambda x0, y0, x1, y1: (x0, y0, x1 - x0, y1 - y0),
    "cxcywh": lambda x0, y0, x1, y1: ((x0 + x1) / 2.0, (y0 + y1) / 2.0, x1 - x0, y1 - y0),
}


def _convert(boxes: Array, format: str, conversions: Mapping[str, Conversion]) -> Array:
    return np.stack(conversions[format](*boxes.T), axis=1) if format in conversions else boxes


def _convert_all(fields: Sequence[Boxes], boxes: Array, conversions: Mapping[str, Conversion]) -> Array:
    """(B, 4) concatenated boxes of several fields, each converted by its field's format."""
    formats = {field.format for field in fields}
    if len(formats) == 1:
        return _convert(boxes, fields[0].format, conversions)
    format_of_box = np.repeat([field.format for field in fields], [field.count for field in fields])
    for format in formats:
        boxes[format_of_box == format] = _convert(boxes[format_of_box == format], format, conversions)
    return boxes


def to_corners(fields: Sequence[Boxes]) -> Array:
    """(B, 4) float64 xyxy: the concatenated boxes of several fields.

    Raises:
        TransformError: a box is not finite, or ends before it begins.
    """
    if not fields:
        return np.zeros((0, 4))
    boxes = np.concatenate([field.array for field in fields], dtype=np.float64)
    corners = _convert_all(fields, boxes, _TO_CORNERS)
    if not np.isfinite(corners).all() or (corners[:, 2:] < corners[:, :2]).any():
        for field in fields:
            field.check()
    return corners


def from_corners(fields: Sequence[Boxes], corners: Array) -> Array:
    """(B, 4): the concatenated boxes of several fields, in their formats; for `Boxes.rebuild`."""
    return _convert_all(fields, corners, _FROM_CORNERS)


class Keypoints(Field):
    """Points, with or without COCO's v.

    v is 0 for a point that is not labeled, 1 for a hidden and 2 for a visible point.

    Attributes:
        places: (P, 2) float64 x, y of all points; 0 where a point is not labeled.
    """

    def __init__(self, value: Any, name: str) -> None:
        super().__init__(
            value, name, "(P, 2), (P, 3), (K, P, 2) or (K, P, 3) finite numbers: x, y and optionally COCO's v"
        )
        self._reshape_empty((0, 0, 2))
        array = self.array
        self._require_shape(array.ndim in (2, 3) and array.shape[-1] in (2, 3))
        self.count = len(array) if array.ndim == 3 else None
        points = array.reshape(-1, array.shape[-1]).astype(np.float64)
        self._is_labeled = points[:, 2] != 0 if points.shape[1] == 3 else np.ones(len(points), dtype=bool)
        self.places = np.where(self._is_labeled[:, None], points[:, :2], 0.0)
        invalid = ~np.isfinite(points[:, 2:]).all(axis=1) | ~np.isfinite(self.places).all(axis=1)
        if invalid.any():
            raise self._error(f"{points[int(np.argmax(invalid))].tolist()}")

    def kept(self, selected: Array) -> Array:
        """Rows to keep, (P,) points or (K,) instances: those whose labeled points are all selected, (P,) bool."""
        is_kept = selected | ~self._is_labeled
        return is_kept if self.count is None else is_kept.reshape(self.count, -1).all(axis=1)

    def rebuild(self, places: Array, visible: Array, keep: Array | None, size: Size) -> Any:
        """The points, now at `places`, in the user's type. Points with a v that are not visible become 0, 0, 0.

        Args:
            places: (P, 2) x, y.
            visible: (P,) bool, whether a point is inside the image.
            keep: the rows to keep, (K,) or (P,) bool; None: all.
            size: (height, width) of the new image.
        """
        points = self.array.reshape(-1, self.array.shape[-1]).astype(np.float64)
        if points.shape[1] == 3:
            is_shown = visible & self._is_labeled
            points[:, :2] = np.where(is_shown[:, None], places, 0.0)
            points[:, 2] *= is_shown
        else:
            points[:, :2] = np.nan_to_num(places)
        result: Array = self._to_own_dtype(points.reshape(self.array.shape))
        return self._user_array.like(result if keep is None else result[keep], size)


class Masks(Field):
    """Instance masks (K, H, W), or a class mask (H, W).

    They have any dtype. The kernels move their bytes.

    Args:
        dims: allowed numbers of axes.
        fill: value of a class mask beyond the image; None: instance masks, which are 0 there.

    Attributes:
        planes: (M, H, W) uint8: the bytes of each mask that are in use.
    """

    def __init__(self, value: Any, name: str, size: Size, *, dims: tuple[int, ...], fill: float | None) -> None:
        shapes = " or ".join({2: "(H, W)", 3: "(K, H, W)"}[dim] for dim in dims)
        super().__init__(value, name, f"{shapes} numbers, of its image's H x W, {size[0]} x {size[1]}")
        if 3 in dims:
            self._reshape_empty((0, *size))
        array = self.array
        self._require_shape(array.ndim in dims and array.shape[-2:] == size)
        self.count = len(array) if fill is None else None
        fill = 0 if fill is None else fill
        dtype = array.dtype.newbyteorder("<")
        self._fill = np.asarray(fill).astype(dtype)
        if dtype.kind != "f" and self._fill != fill:
            raise TransformError(f"{name} has dtype {array.dtype}, which cannot hold mask_fill={fill}")
        self._used_bytes = dtype.itemsize
        if dtype.kind in "iu" and array.size and array.min() >= 0 and fill >= 0:
            self._used_bytes = max(1, (int(max(array.max(), self._fill)).bit_length() + 7) // 8)
        # The kernels fill with 0, so they move the difference from the fill.
        planes = np.ascontiguousarray(array, dtype=dtype).reshape(-1, *size, 1).view(np.uint8)[..., : self._used_bytes]
        self.planes = np.moveaxis(planes ^ self._fill_bytes, -1, 1).reshape(-1, *size)

    @property
    def _fill_bytes(self) -> Array:
        return self._fill.reshape(1).view(np.uint8)[: self._used_bytes]

    def rebuild(self, planes: Array, keep: Array | None, size: Size) -> Any:
        """The masks with the moved byte planes, (M, h, w), in the user's type; keep and size as for `Boxes`."""
        dtype, used = self._fill.dtype, self._used_bytes
        values = np.zeros((len(planes) // used, *planes.shape[1:], dtype.itemsize), dtype=np.uint8)
        values[..., :used] = np.moveaxis(planes.reshape(-1, used, *planes.shape[1:]), 1, -1) ^ self._fill_bytes
        masks: Array = values.view(dtype)[..., 0].astype(self.array.dtype, copy=False)
        if self.count is None:
            return self._user_array.like(masks.reshape(*self.array.shape[:-2], *masks.shape[1:]), size)
        return self._user_array.like(masks if keep is None else masks[keep], size)
