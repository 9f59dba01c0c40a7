"""Finds targets in a sample's label, by name or by torchvision's types."""

from __future__ import annotations

import copy
import functools
import itertools
import numbers
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import BOX_FORMATS
from cuaug.targets.fields import Boxes, Field, Keypoints, Masks, tv_tensor_kind
from cuaug.targets.foreign_names import foreign_name_error

__all__ = ["Group", "has_rows", "holds_targets", "moves_with_image", "type_may_be_image", "type_may_hold_targets"]

Keep = NDArray[np.bool_] | None

_NAMES = frozenset({"boxes", "masks", "mask", "keypoints"})
_NOT_MAPPINGS = frozenset({np.ndarray, torch.Tensor, int, float, str, list, tuple})
#: Keys of values that describe the image, whatever their length.
_IMAGE_KEYS = frozenset(
    {"image_id", "size", "orig_size", "canvas_size", "format", "path"}
    | {"img_shape", "ori_shape", "orig_shape", "pad_shape", "scale_factor", "image_size", "original_size", "img_size"}
)


class Group:
    """A dict or tuple that holds targets, directly or nested.

    Args:
        container: the dict or tuple.
        size: (height, width) of the image.
        box_format: for boxes without a format.
        mask_fill: value of class masks beyond the image.
        path: the keys that lead to the container.
        is_named: whether the container lies in a dict.

    Attributes:
        fields: the targets, by key or position.
        groups: inner groups, by key or position.
        boxes: the only `Boxes` among the fields, or None.

    Raises:
        TransformError: a target is not valid, lies in a list or has the name of another library; or an image has no
            name.
    """

    def __init__(
        self,
        container: Any,
        size: tuple[int, int],
        box_format: str,
        mask_fill: int,
        path: tuple[str, ...] = (),
        is_named: bool = False,
    ) -> None:
        self._container = container
        self.fields: dict[Any, Field] = {}
        self.groups: dict[Any, Group] = {}
        format = _container_format(container, box_format)
        is_mapping = _is_mapping(container)
        is_named |= is_mapping
        for key, value in _items(container):
            name = ".".join([*path, str(key)]) if is_mapping else ".".join(path) or "the target"
            field = _parse_field(container, key, value, name, size, format, mask_fill)
            if field is not None:
                self.fields[key] = field
            elif is_mapping and (error := foreign_name_error(container, key, value)) is not None:
                raise TransformError(f"{name} {error}")
            elif isinstance(value, list):
                if moves_with_image(value):
                    raise TransformError(
                        f"{name} is a list with boxes, masks or keypoints, but only dicts and tuples may hold them; a "
                        "list holds the targets of a batch. Rename targets that stay in place"
                    )
            elif isinstance(value, tuple) or _is_mapping(value):
                inner_path = (*path, str(key)) if path or key != 0 else ()
                group = Group(value, size, box_format, mask_fill, inner_path, is_named)
                if group.fields or group.groups:
                    self.groups[key] = group
            elif not is_named:
                _refuse_image(value, size, name)
        boxes = [field for field in self.fields.values() if isinstance(field, Boxes)]
        if len(boxes) > 1:
            names = [field.name for field in boxes]
            raise TransformError(f"boxes must be one set in each dict or tuple, not {names}")
        self.boxes = boxes[0] if boxes else None
        if self.fields:
            self._check_counts(path)

    def _check_counts(self, path: tuple[str, ...]) -> None:
        """Check that boxes, masks, keypoints and labels have the same number of instances.

        A tv_tensors.Mask under another name may have any number.
        """
        counts: dict[str, int] = {}
        has_instances = False
        for key, field in self.fields.items():
            if field.count is not None and (key in _NAMES or isinstance(field, Boxes)):
                counts[field.name] = field.count
                has_instances |= isinstance(field, Boxes) or key == "masks"
        if has_instances and _is_mapping(self._container):
            labels = _row_count(self._container.get("labels"))
            if labels is not None:
                counts[".".join([*path, "labels"])] = labels
        if len(set(counts.values())) > 1:
            first, count = next(iter(counts.items()))
            other = next(name for name in counts if counts[name] != count)
            hint = "; rename labels of the whole image" if other.endswith("labels") else ""
            raise TransformError(
                f"{first} has {count} instances and {other} has {counts[other]}: a target needs equal counts{hint}"
            )

    def all_fields(self) -> list[tuple[Field, Group]]:
        """All fields, also of inner groups, each with its group."""
        pairs = [(field, self) for field in self.fields.values()]
        for group in self.groups.values():
            pairs += group.all_fields()
        return pairs

    def rebuild(self, rebuild_field: Callable[[Field, Keep], Any], kept_instances: Callable[[Group], Keep]) -> Any:
        """A new dict or tuple with rebuilt fields, and without dropped instances.

        Args:
            rebuild_field: takes a field and the instances to keep, (K,); None: all.
            kept_instances: takes a group and returns the instances to keep, (K,); None: all.
        """
        new = dict(_items(self._container))
        keep = kept_instances(self)
        if keep is not None and not keep.all():
            for key, value in new.items():
                if key not in self.fields and has_rows(key, value, len(keep)):
                    new[key] = _select_rows(value, keep)
        for key, field in self.fields.items():
            has_instances = keep is not None and field.count == len(keep)
            new[key] = rebuild_field(field, keep if has_instances else None)
        for key, group in self.groups.items():
            new[key] = group.rebuild(rebuild_field, kept_instances)
        if _is_mapping(self._container):
            if type(self._container) is dict:
                return new
            result = copy.copy(self._container) if isinstance(self._container, MutableMapping) else {}
            result.update(new)
            return result
        values = new.values()
        return type(self._container)(*values) if hasattr(self._container, "_fields") else tuple(values)


def _parse_field(
    container: Any, key: Any, value: Any, name: str, size: tuple[int, int], format: str, mask_fill: int
) -> Field | None:
    """The target of a value in a dict or tuple, by its type or else its name; None: the value is no target."""
    kind = tv_tensor_kind(type(value))
    if kind == "BoundingBoxes":
        return Boxes(value, name, _parse_format(value.format, name))
    if kind == "KeyPoints":
        return Keypoints(value, name)
    if kind == "Mask":
        is_class_mask = _is_class_mask(container, key, value)
        return Masks(value, name, size, dims=(2, 3), fill=mask_fill if is_class_mask else None)
    if not _has_target_name(container, key, value):
        return None
    if key == "boxes":
        return Boxes(value, name, format)
    if key == "keypoints":
        return Keypoints(value, name)
    if key == "masks":
        return Masks(value, name, size, dims=(3,), fill=None)
    return Masks(value, name, size, dims=(2,), fill=mask_fill)


@functools.lru_cache(maxsize=256)
def type_may_hold_targets(type_: type) -> bool:
    """Whether labels of this type may hold targets. Class numbers, the most common labels, may not."""
    return issubclass(type_, (Mapping, tuple, list)) or tv_tensor_kind(type_) is not None


def type_may_be_image(type_: type) -> bool:
    """Whether labels of this type may be images, which need a name."""
    pillow = sys.modules.get("PIL.Image")  # a PIL image exists only if this was imported
    return issubclass(type_, (np.ndarray, torch.Tensor)) or (pillow is not None and issubclass(type_, pillow.Image))


def _refuse_image(value: Any, size: tuple[int, int], name: str) -> None:
    """Raise for an image without a name: it is most likely a mask, and would stay while its image moves."""
    if not type_may_be_image(type(value)):
        return
    height, width = size
    if isinstance(value, (np.ndarray, torch.Tensor)):
        if value.ndim not in (2, 3) or (height, width) not in (tuple(value.shape[:2]), tuple(value.shape[-2:])):
            return
        kind = "an array" if isinstance(value, np.ndarray) else "a tensor"
        shown, mask = f"{kind} of its image's size, {height} x {width}, with shape {tuple(value.shape)}", "value"
    else:
        shown, mask = "a PIL image", "np.asarray(value)"
    raise TransformError(
        f"{name} is {shown}, without a name that says whether it moves with its image: pass a class mask as "
        f'{{"mask": {mask}}}, and an image that stays in place in a dict under another name'
    )


def holds_targets(label: Any) -> bool:
    """Whether a label is a dict of instances: boxes, masks or keypoints, in a number that varies between images."""
    if not isinstance(label, Mapping):
        return False
    return any(
        tv_tensor_kind(type(value)) in ("BoundingBoxes", "KeyPoints")
        or (key != "mask" and _has_target_name(label, key, value))
        for key, value in label.items()
    )


def moves_with_image(value: Any) -> bool:
    """Whether a value is or holds a target, at any depth."""
    if isinstance(value, (list, tuple)):
        # Long lists of numbers are common: look at the set of types, not at each item, and at all inner lists at once.
        while True:
            kinds = {kind for kind in set(map(type, value)) if type_may_hold_targets(kind)}
            if not kinds <= {list, tuple}:
                return any(type(item) in kinds and moves_with_image(item) for item in value)
            if not kinds:
                return False
            value = [*itertools.chain.from_iterable(item for item in value if type(item) in kinds)]
    if _is_mapping(value):
        return any(
            _has_target_name(value, key, item)
            or foreign_name_error(value, key, item) is not None
            or moves_with_image(item)
            for key, item in value.items()
        )
    return tv_tensor_kind(type(value)) is not None


def _is_mapping(value: Any) -> bool:
    # The type first: isinstance of an abstract class takes a microsecond.
    type_ = type(value)
    return type_ is dict or (type_ not in _NOT_MAPPINGS and isinstance(value, Mapping))


def _items(container: Any) -> Any:
    return container.items() if _is_mapping(container) else enumerate(container)


def _has_target_name(container: Any, key: Any, value: Any) -> bool:
    """Whether a value has a target's name, and is not for example a file name or a number."""
    if not isinstance(key, str) or key not in _NAMES or not _is_mapping(container):
        return False
    if isinstance(value, (np.ndarray, torch.Tensor)):  # first: isinstance of numbers.Number is slow
        return True
    return not isinstance(value, (str, bytes, numbers.Number, np.generic, Mapping, type(None)))


def _is_class_mask(container: Any, key: Any, mask: torch.Tensor) -> bool:
    """Whether a tv_tensors.Mask is a class mask: (H, W), or torchvision's (1, H, W) of an image of classes."""
    if mask.shape[:-2] != (1,):
        return mask.ndim == 2
    has_boxes = any(tv_tensor_kind(type(value)) == "BoundingBoxes" or k == "boxes" for k, value in _items(container))
    return key != "masks" and not has_boxes


def _container_format(container: Any, default: str) -> str:
    if _is_mapping(container) and "boxes" in container and container.get("format") is not None:
        return _parse_format(container["format"], "format")
    return default


def _parse_format(format: Any, name: str) -> str:
    text = str(getattr(format, "value", format)).lower()
    if text not in BOX_FORMATS:
        raise TransformError(
            f"{name}: the format of boxes must be one of {', '.join(map(repr, BOX_FORMATS))}, not {format!r}"
        )
    return text


def _row_count(value: Any) -> int | None:
    """The rows of an array, tensor, list or plain tuple; None for other types."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return len(value) if value.ndim else None
    return len(value) if isinstance(value, list) or type(value) is tuple else None


def has_rows(key: Any, value: Any, count: int) -> bool:
    """Whether a value has one row for each of `count` instances. Tuples of numbers do not: they are mostly sizes."""
    if key in _IMAGE_KEYS or _row_count(value) != count:
        return False
    return key == "labels" or type(value) is not tuple or not _is_size(value)


def _is_size(value: tuple[Any, ...]) -> bool:
    return bool(value) and all(
        isinstance(item, numbers.Number) or (type(item) is tuple and _is_size(item)) for item in value
    )


def _select_rows(value: Any, keep: NDArray[np.bool_]) -> Any:
    if isinstance(value, np.ndarray):
        return value[keep]
    if isinstance(value, torch.Tensor):
        return value[torch.from_numpy(keep).to(value.device)]
    rows = itertools.compress(value, keep.tolist())
    return tuple(rows) if isinstance(value, tuple) else [*rows]
