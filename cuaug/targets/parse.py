"""Finds targets in a sample's label, by name or by torchvision's types."""

from __future__ import annotations

import copy
import functools
import itertools
import numbers
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.images.image_types import tensor_fault, tv_target_kind
from cuaug.plan import BOX_FORMATS
from cuaug.targets.fields import Boxes, Field, Keypoints, Masks
from cuaug.targets.names import (
    RAW_ANNOTATIONS,
    TargetFormat,
    TargetNameError,
    ambiguous_rows,
    is_instance_field,
    is_instance_name,
    row_count,
    unknown_geometry,
)

Keep = NDArray[np.bool_] | None

_NAMES = frozenset({"boxes", "masks", "mask", "keypoints"})
_UNNAMED = "the target"
_NOT_MAPPINGS = frozenset({np.ndarray, torch.Tensor, int, float, str, list, tuple})


class Group:
    """A dict or tuple that holds targets, directly or nested.

    Args:
        container: the dict or tuple.
        size: (height, width) of the image.
        format: how to read the targets.
        labels: the values that the format's `labels_getter` returned.
        path: the keys that lead to the container.

    Attributes:
        fields: the targets, by key or position.
        groups: inner groups, by key or position.
        boxes: the only `Boxes` among the fields, or None.
        unnamed: arrays like keypoints or boxes in tuples, inner ones too, which stay where they are.

    Raises:
        TransformError: a target is not valid, or lies in a list.
        TargetNameError: a value may describe geometry, but its name does not say so.
    """

    def __init__(
        self,
        container: Any,
        size: tuple[int, int],
        format: TargetFormat,
        labels: Sequence[Any] = (),
        path: tuple[str, ...] = (),
    ) -> None:
        self._container, self._format, self._labels, self._path = container, format, labels, path
        self.fields: dict[Any, Field] = {}
        self.groups: dict[Any, Group] = {}
        self.unnamed: list[Any] = []
        box_format = container_format(container, format.box_format)
        for key, value in items_of(container):
            name = self._name(key)
            if format.passes(key, name):
                continue
            if isinstance(value, torch.Tensor) and (fault := tensor_fault(value)):
                raise TransformError(f"{name} must be a dense tensor, not {fault}")
            field = _parse_field(container, key, value, name, size, format, box_format)
            if field is not None:
                self.fields[key] = field
            elif _is_raw_annotation(container, key):
                continue
            elif (error := unknown_geometry(key, value, size)) is not None:
                raise TargetNameError(f"{name} {error}")
            elif isinstance(value, list):
                if moves_with_image(value, size, format):
                    raise TargetNameError(
                        f"{name} is a list with boxes, masks, keypoints or images, but only dicts and tuples may hold "
                        f"them; a list holds the targets of a batch. {_list_remedy(name)}"
                    )
            elif not isinstance(key, str) and _may_be_points(value):
                self.unnamed.append(value)
            elif isinstance(value, tuple) or is_mapping(value):
                group = Group(value, size, format, labels, (*path, str(key)) if path or key != 0 else ())
                self.unnamed += group.unnamed
                if group.fields or group.groups:
                    self.groups[key] = group
        boxes = [field for field in self.fields.values() if isinstance(field, Boxes)]
        if len(boxes) > 1:
            names = [field.name for field in boxes]
            raise TransformError(f"boxes must be one set in each dict or tuple, not {names}")
        self.boxes = boxes[0] if boxes else None
        if self.fields:
            self._check_counts()

    def _name(self, key: Any) -> str:
        """The path of a value, for settings and errors."""
        return ".".join([*self._path, str(key)] if is_mapping(self._container) else self._path) or _UNNAMED

    def _check_counts(self) -> None:
        """Check that boxes, masks, keypoints, labels and declared fields have the same number of instances.

        A mask under another name may have any number.
        """
        counts: dict[str, int] = {}
        has_instances = False
        for key, field in self.fields.items():
            if field.count is not None and (key in _NAMES or isinstance(field, Boxes)):
                counts[field.name] = field.count
                has_instances |= isinstance(field, Boxes) or key == "masks"
        if has_instances and is_mapping(self._container):
            for key, value in self._container.items():
                if key == "labels" or self._format.is_declared_instance(key, self._name(key)):
                    rows = row_count(value)
                    if rows is not None and not self._format.passes(key, self._name(key)):
                        counts[self._name(key)] = rows
        if len(set(counts.values())) > 1:
            first, count = next(iter(counts.items()))
            other = next(name for name in counts if counts[name] != count)
            hint = "; rename labels of the whole image" if other.endswith("labels") else ""
            raise TransformError(
                f"{first} has {count} instances and {other} has {counts[other]}: a target needs equal counts{hint}"
            )

    def only_keypoints(self) -> Keypoints | None:
        """The only keypoints among the fields."""
        fields = [field for field in self.fields.values() if isinstance(field, Keypoints)]
        return fields[0] if len(fields) == 1 else None

    def refuse_dropped_points(self, kept: Callable[[Keypoints], Keep]) -> None:
        """Raise a TransformError if `kept` drops keypoints of the instances that the boxes show."""
        for field in self.fields.values():
            if isinstance(field, Keypoints) and field.count is not None and kept(field) is not None:
                raise TransformError(
                    f"{field.name} belong to boxes, which would keep their rows: use SanitizeBoundingBoxes in place of "
                    "SanitizeKeyPoints"
                )

    def has_rows(self, key: Any, value: Any, count: int) -> bool:
        """Whether a value has one row for each of `count` instances; see `names.is_instance_field`."""
        return is_instance_field(key, value, self._name(key), count, self._format, self._labels)

    def _has_instances(self, key: Any, field: Field, keep: NDArray[np.bool_]) -> bool:
        """Whether a target has one row for each instance, (K,)."""
        if field.count != len(keep):
            return False
        name = self._name(key)
        if keep.all() or key in _NAMES or field.is_typed or is_instance_name(key, name, self._format):
            return True
        raise ambiguous_rows(key, name, len(keep))

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
        new = dict(items_of(self._container))
        keep = kept_instances(self)
        if keep is not None and not keep.all():
            for key, value in new.items():
                if key not in self.fields and self.has_rows(key, value, len(keep)):
                    new[key] = _select_rows(value, keep)
        for key, field in self.fields.items():
            has_instances = keep is not None and self._has_instances(key, field, keep)
            new[key] = rebuild_field(field, keep if has_instances else None)
        for key, group in self.groups.items():
            new[key] = group.rebuild(rebuild_field, kept_instances)
        return rebuild_container(self._container, new)


def _parse_field(
    container: Any, key: Any, value: Any, name: str, size: tuple[int, int], format: TargetFormat, box_format: str
) -> Field | None:
    """The target of a value in a dict or tuple, by its type or else its name; None: the value is no target."""
    kind = tv_target_kind(type(value))
    if kind in ("BoundingBoxes", "KeyPoints"):
        _check_canvas(value, name, size)
    if kind == "BoundingBoxes":
        return Boxes(value, name, _parse_format(value.format, name))
    if kind == "KeyPoints":
        return Keypoints(value, name)
    if kind == "Mask":
        is_class_mask = _is_class_mask(container, key, value)
        return Masks(value, name, size, dims=(2, 3), fill=format.fill_of(key, name) if is_class_mask else None)
    is_named_mask = format.is_mask(key, name)
    if (is_named_mask or key in ("mask", "masks")) and isinstance(value, (str, bytes, os.PathLike)):
        only_mask = '"mask" and names in masks=...'
        raise TransformError(
            f"{name} is a file, {value!r:.100}, and only a Loader reads files, under {only_mask}: pass an array, a "
            "tensor or a PIL image"
        )
    if not _has_target_name(container, key, value) and not (is_named_mask and _may_be_target(value)):
        return None
    if is_named_mask:
        is_class_mask = (np.ndim(value) if isinstance(value, (list, tuple)) else getattr(value, "ndim", 2)) == 2
        return Masks(value, name, size, dims=(2, 3), fill=format.fill_of(key, name) if is_class_mask else None)
    if key == "boxes":
        return Boxes(value, name, box_format)
    if key == "keypoints":
        return Keypoints(value, name)
    if key == "masks":
        return Masks(value, name, size, dims=(3,), fill=None)
    return Masks(value, name, size, dims=(2,), fill=format.fill_of(key, name))


def _list_remedy(name: str) -> str:
    if name == _UNNAMED:
        return (
            'Let the Dataset return a dict, {"boxes": (K, 4), "labels": (K,)}; torchvision\'s CocoDetection does in '
            "wrap_dataset_for_transforms_v2, and cuaug.sources.Coco reads COCO's files"
        )
    return "If they stay in place, list the name of the list in Compose(..., pass_through=(name,))"


def _is_raw_annotation(container: Any, key: Any) -> bool:
    """Whether a value is COCO's own, beside the tv_tensors that torchvision made of it; it stays, as in torchvision."""
    kind = RAW_ANNOTATIONS.get(key) if isinstance(key, str) and is_mapping(container) else None
    return kind is not None and any(tv_target_kind(type(value)) == kind for value in container.values())


def _check_canvas(value: Any, name: str, size: tuple[int, int]) -> None:
    canvas = tuple(value.canvas_size)
    if canvas != size:
        raise TransformError(
            f"{name} must have the canvas_size of its image, {size[0]} x {size[1]}, not {canvas[0]} x {canvas[1]}: "
            "they were made for another image, or for this one at another size"
        )


@functools.lru_cache(maxsize=256)
def type_may_hold_targets(type_: type) -> bool:
    """Whether labels of this type may hold targets. Class numbers, the most common labels, may not."""
    return issubclass(type_, (Mapping, tuple, list)) or tv_target_kind(type_) is not None


def type_may_be_image(type_: type) -> bool:
    """Whether labels of this type may be images, which need a name."""
    pillow = sys.modules.get("PIL.Image")  # a PIL image exists only if this was imported
    return issubclass(type_, (np.ndarray, torch.Tensor)) or (pillow is not None and issubclass(type_, pillow.Image))


def holds_targets(label: Any) -> bool:
    """Whether a label is a dict of instances: boxes, masks or keypoints, in a number that varies between images."""
    if not isinstance(label, Mapping):
        return False
    return any(
        tv_target_kind(type(value)) in ("BoundingBoxes", "KeyPoints")
        or (key != "mask" and _has_target_name(label, key, value))
        for key, value in label.items()
    )


def moves_with_image(value: Any, size: tuple[int, int] | None = None, format: TargetFormat | None = None) -> bool:
    """Whether a value is or holds a target, or an image, at any depth; arrays are images if they have its size."""
    format = format or TargetFormat()
    if isinstance(value, (list, tuple)):
        # Long lists of numbers are common: look at the set of types, not at each item, and at all inner lists at once.
        while True:
            kinds = {kind for kind in set(map(type, value)) if type_may_hold_targets(kind) or type_may_be_image(kind)}
            if not kinds <= {list, tuple}:
                return any(type(item) in kinds and moves_with_image(item, size, format) for item in value)
            if not kinds:
                return False
            value = [*itertools.chain.from_iterable(item for item in value if type(item) in kinds)]
    if is_mapping(value):
        return any(
            not format.passes(key, "")
            and (
                _has_target_name(value, key, item)
                or unknown_geometry(key, item, size) is not None
                or moves_with_image(item, size, format)
            )
            for key, item in value.items()
        )
    return tv_target_kind(type(value)) is not None or unknown_geometry(0, value, size) is not None


def is_mapping(value: Any) -> bool:
    # The type first: isinstance of an abstract class takes a microsecond.
    type_ = type(value)
    return type_ is dict or (type_ not in _NOT_MAPPINGS and isinstance(value, Mapping))


def rebuild_container(container: Any, new: dict[Any, Any]) -> Any:
    """A dict or tuple of the container's type, with these values by key or position."""
    if is_mapping(container):
        if type(container) is dict:
            return new
        result = copy.copy(container) if isinstance(container, MutableMapping) else {}
        result.update(new)
        return result
    values = new.values()
    return type(container)(*values) if hasattr(container, "_fields") else tuple(values)


def items_of(container: Any) -> Any:
    """(key, value) of a dict, (position, value) of a tuple."""
    return container.items() if is_mapping(container) else enumerate(container)


def _has_target_name(container: Any, key: Any, value: Any) -> bool:
    """Whether a value has a target's name, and is not for example a file name or a number."""
    if not isinstance(key, str) or key not in _NAMES or not is_mapping(container):
        return False
    return _may_be_target(value)


def _may_be_target(value: Any) -> bool:
    """Whether a value under a target's name may be one, and is not for example a file name or a number."""
    if isinstance(value, (np.ndarray, torch.Tensor)):  # first: isinstance of numbers.Number is slow
        return True
    return not isinstance(value, (str, bytes, numbers.Number, np.generic, Mapping, type(None)))


def _may_be_points(value: Any) -> bool:
    """Whether a value is an array or tensor of (K, 2) or (K, 4) numbers."""
    if not isinstance(value, (np.ndarray, torch.Tensor)) or value.ndim != 2 or value.shape[1] not in (2, 4):
        return False
    return isinstance(value, torch.Tensor) or value.dtype.kind in "iuf"


def _is_class_mask(container: Any, key: Any, mask: torch.Tensor) -> bool:
    """Whether a tv_tensors.Mask is a class mask: (H, W), or torchvision's (1, H, W) of an image of classes."""
    if mask.shape[:-2] != (1,):
        return mask.ndim == 2
    has_boxes = any(tv_target_kind(type(value)) == "BoundingBoxes" or k == "boxes" for k, value in items_of(container))
    return key != "masks" and not has_boxes


def container_format(container: Any, default: str) -> str:
    """The format of a dict's "boxes", which a "format" beside them may say."""
    if is_mapping(container) and "boxes" in container and container.get("format") is not None:
        return _parse_format(container["format"], "format")
    return default


def _parse_format(format: Any, name: str) -> str:
    text = str(getattr(format, "value", format)).lower()
    if text not in BOX_FORMATS:
        raise TransformError(
            f"{name}: the format of boxes must be one of {', '.join(map(repr, BOX_FORMATS))}, not {format!r}"
        )
    return text


def _select_rows(value: Any, keep: NDArray[np.bool_]) -> Any:
    if isinstance(value, np.ndarray):
        return value[keep]
    if isinstance(value, torch.Tensor):
        return value[torch.from_numpy(keep).to(value.device)]
    rows = itertools.compress(value, keep.tolist())
    return tuple(rows) if isinstance(value, tuple) else [*rows]
