"""Where in a sample's label its targets are: under known names, or of torchvision's types, in dicts and tuples."""

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
from cuaug.targets.fields import Boxes, Field, Keypoints, Masks
from cuaug.targets.foreign_names import unread
from cuaug.targets.values import tv_kind, tv_kind_of

__all__ = ["Group", "has_rows", "holds_targets", "may_be_picture", "may_hold_targets", "may_move"]

_NAMES = frozenset({"boxes", "masks", "mask", "keypoints"})
_NO_MAPPINGS = frozenset({np.ndarray, torch.Tensor, int, float, str, list, tuple})
#: What is never one for each instance, whatever its length.
_OF_THE_IMAGE = frozenset(
    {"image_id", "size", "orig_size", "canvas_size", "format", "path"}
    | {"img_shape", "ori_shape", "orig_shape", "pad_shape", "scale_factor", "image_size", "original_size", "img_size"}
)


class Group:
    """A dict or tuple that holds targets, itself or deeper.

    Args:
        container: the dict or tuple.
        size: (height, width) of the image.
        box_format: of boxes that do not tell.
        mask_fill: what masks of classes show where there is no image; those of instances show 0.
        named: whether it lies in a dict, under a name.

    Attributes:
        fields: what is to be moved, by key or place.
        groups: other groups in it.

    Raises:
        TransformError: a target that is not as it should be, or in a list, named; a picture without a name, or boxes or
            masks under a name that is not read.
    """

    def __init__(
        self,
        container: Any,
        size: tuple[int, int],
        box_format: str,
        mask_fill: int,
        path: tuple[str, ...] = (),
        named: bool = False,
    ) -> None:
        self._container = container
        self.fields: dict[Any, Field] = {}
        self.groups: dict[Any, Group] = {}
        format = _format(container, box_format)
        is_mapping = _is_mapping(container)
        named |= is_mapping
        for key, value in _items(container):
            name = ".".join([*path, str(key)]) if is_mapping else ".".join(path) or "the target"
            field = _field(container, key, value, name, size, format, mask_fill)
            if field is not None:
                self.fields[key] = field
            elif is_mapping and (why := unread(container, key, value)) is not None:
                raise TransformError(f"{name} {why}")
            elif isinstance(value, list):
                if may_move(value):
                    raise TransformError(
                        f"{name} is a list with boxes, masks or keypoints in it: they lie in dicts and tuples, and a "
                        "list goes with a batch of images; what is not to be moved needs other names"
                    )
            elif isinstance(value, tuple) or _is_mapping(value):
                inside = (*path, str(key)) if path or key != 0 else ()
                group = Group(value, size, box_format, mask_fill, inside, named)
                if group.fields or group.groups:
                    self.groups[key] = group
            elif not named:
                _refuse_picture(value, size, name)
        self.boxes = self._only_boxes()
        if self.fields:
            self._check_counts(path)

    def _only_boxes(self) -> Boxes | None:
        boxes = [field for field in self.fields.values() if isinstance(field, Boxes)]
        if len(boxes) > 1:
            raise TransformError(f"one dict or tuple has one set of boxes, not {[field.name for field in boxes]}")
        return boxes[0] if boxes else None

    def _check_counts(self, path: tuple[str, ...]) -> None:
        """One dict's boxes, masks and keypoints are of the same instances; a tv_tensors.Mask may be of anything.

        So are "labels" beside boxes or masks: of another number, none of them can go with an instance.
        """
        counts: dict[str, int] = {}
        of_instances = False
        for key, field in self.fields.items():
            if field.count is not None and (key in _NAMES or isinstance(field, Boxes)):
                counts[field.name] = field.count
                of_instances |= isinstance(field, Boxes) or key == "masks"
        if of_instances and _is_mapping(self._container):
            labels = _rows_of(self._container.get("labels"))
            if labels is not None:
                counts[".".join([*path, "labels"])] = labels
        if len(set(counts.values())) > 1:
            first, count = next(iter(counts.items()))
            other = next(name for name in counts if counts[name] != count)
            hint = "; labels of the whole image need another name" if other.endswith("labels") else ""
            raise TransformError(
                f"{first} is of {count} instances and {other} of {counts[other]}: of one target they are the same{hint}"
            )

    def all_fields(self) -> list[tuple[Field, Group]]:
        """Every field, and the group that it is in."""
        found = [(field, self) for field in self.fields.values()]
        for group in self.groups.values():
            found += group.all_fields()
        return found

    def rebuilt(
        self, moved: Callable[[Field, NDArray[np.bool_] | None], Any], kept: Callable[[Group], NDArray[np.bool_] | None]
    ) -> Any:
        """The dict or tuple, with what `moved` gives for each field and the instances that `kept` keeps (None: all)."""
        new = dict(_items(self._container))
        keep = kept(self)
        if keep is not None and not keep.all():
            for key, value in new.items():
                if key not in self.fields and has_rows(key, value, len(keep)):
                    new[key] = _selected(value, keep)
        for key, field in self.fields.items():
            of_instances = keep is not None and field.count == len(keep)
            new[key] = moved(field, keep if of_instances else None)
        for key, group in self.groups.items():
            new[key] = group.rebuilt(moved, kept)
        if _is_mapping(self._container):
            if type(self._container) is dict:
                return new
            again = copy.copy(self._container) if isinstance(self._container, MutableMapping) else {}
            again.update(new)
            return again
        parts = new.values()
        return type(self._container)(*parts) if hasattr(self._container, "_fields") else tuple(parts)


def _field(
    container: Any, key: Any, value: Any, name: str, size: tuple[int, int], format: str, mask_fill: int
) -> Field | None:
    """The target that a value of a dict or tuple is, by its type or else by its name; None: it is none."""
    kind = tv_kind(value)
    if kind == "BoundingBoxes":
        return Boxes(value, name, _named_format(value.format, name))
    if kind == "KeyPoints":
        return Keypoints(value, name)
    if kind == "Mask":
        classes = _is_of_classes(container, key, value)
        return Masks(value, name, size, dims=(2, 3), fill=mask_fill if classes else None)
    if not _is_named(container, key, value):
        return None
    if key == "boxes":
        return Boxes(value, name, format)
    if key == "keypoints":
        return Keypoints(value, name)
    if key == "masks":
        return Masks(value, name, size, dims=(3,), fill=None)
    return Masks(value, name, size, dims=(2,), fill=mask_fill)


@functools.lru_cache(maxsize=256)
def may_hold_targets(kind: type) -> bool:
    """Whether there is anything to look for in labels of this type: not so in class numbers, which most labels are."""
    return issubclass(kind, (Mapping, tuple, list)) or tv_kind_of(kind) is not None


def may_be_picture(kind: type) -> bool:
    """Whether labels of this type may be pictures, which need a name."""
    pillow = sys.modules.get("PIL.Image")  # whoever has a PIL image has imported it
    return issubclass(kind, (np.ndarray, torch.Tensor)) or (pillow is not None and issubclass(kind, pillow.Image))


def _refuse_picture(value: Any, size: tuple[int, int], name: str) -> None:
    """Raises for a picture: mostly a mask, which would stay where it is, beside an image that moves."""
    if not may_be_picture(type(value)):
        return
    height, width = size
    if isinstance(value, (np.ndarray, torch.Tensor)):
        if value.ndim not in (2, 3) or (height, width) not in (tuple(value.shape[:2]), tuple(value.shape[-2:])):
            return
        what = "an array" if isinstance(value, np.ndarray) else "a tensor"
        what += f" of its image's own size, {height} x {width}, of shape {tuple(value.shape)}"
        mask = "it"
    else:
        what, mask = "a PIL image", "np.asarray(it)"
    raise TransformError(
        f"{name} is {what}, and nothing says whether it moves with its image: a mask of classes is "
        f'{{"mask": {mask}}}; what stays as it is lies in a dict under another name'
    )


def holds_targets(label: Any) -> bool:
    """Whether a label is a dict of instances: of boxes, masks or keypoints, of which each image has its own number."""
    if not isinstance(label, Mapping):
        return False
    return any(
        tv_kind(value) in ("BoundingBoxes", "KeyPoints") or (key != "mask" and _is_named(label, key, value))
        for key, value in label.items()
    )


def may_move(value: Any) -> bool:
    """Whether there is anything in it that moves with its image, at any depth."""
    if isinstance(value, (list, tuple)):
        # Mostly they are long and of numbers: their types are asked for, not each of them; lists in them all at once.
        while True:
            kinds = {kind for kind in set(map(type, value)) if may_hold_targets(kind)}
            if not kinds <= {list, tuple}:
                return any(type(part) in kinds and may_move(part) for part in value)
            if not kinds:
                return False
            value = [*itertools.chain.from_iterable(part for part in value if type(part) in kinds)]
    if _is_mapping(value):
        return any(
            _is_named(value, key, part) or unread(value, key, part) is not None or may_move(part)
            for key, part in value.items()
        )
    return tv_kind(value) is not None


def _is_mapping(value: Any) -> bool:
    kind = type(value)
    # Asking for the other takes a microsecond, and is not needed for most.
    return kind is dict or (kind not in _NO_MAPPINGS and isinstance(value, Mapping))


def _items(container: Any) -> Any:
    return container.items() if _is_mapping(container) else enumerate(container)


def _is_named(container: Any, key: Any, value: Any) -> bool:
    """Whether it has one of our names and may be what that says: not a file's name or a number."""
    named = isinstance(key, str) and key in _NAMES and _is_mapping(container)
    arrays = np.ndarray, torch.Tensor  # what it mostly is; the question for all kinds of numbers takes long
    none = str, bytes, numbers.Number, np.generic, Mapping, type(None)
    return named and (isinstance(value, arrays) or not isinstance(value, none))


def _is_of_classes(container: Any, key: Any, mask: torch.Tensor) -> bool:
    """Whether a tv_tensors.Mask is of classes: (H, W), or what torchvision makes of a picture of them, (1, H, W)."""
    if mask.shape[:-2] != (1,):
        return mask.ndim == 2
    beside = any(tv_kind(value) == "BoundingBoxes" or name == "boxes" for name, value in _items(container))
    return key != "masks" and not beside


def _format(container: Any, default: str) -> str:
    if _is_mapping(container) and "boxes" in container and container.get("format") is not None:
        return _named_format(container["format"], "format")
    return default


def _named_format(format: Any, name: str) -> str:
    text = str(getattr(format, "value", format)).lower()
    if text not in BOX_FORMATS:
        raise TransformError(
            f"the format of boxes is one of {', '.join(map(repr, BOX_FORMATS))}, not {format!r} ({name})"
        )
    return text


def _rows_of(value: Any) -> int | None:
    """How many rows an array, a tensor, a list or a plain tuple has; None: it is none of them."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return len(value) if value.ndim else None
    return len(value) if isinstance(value, list) or type(value) is tuple else None


def has_rows(key: Any, value: Any, count: int) -> bool:
    """Whether it has one row for each of so many instances. A tuple of numbers is mostly a size: (height, width)."""
    if key in _OF_THE_IMAGE or _rows_of(value) != count:
        return False
    return key == "labels" or type(value) is not tuple or not _is_size(value)


def _is_size(value: tuple[Any, ...]) -> bool:
    return bool(value) and all(
        isinstance(part, numbers.Number) or (type(part) is tuple and _is_size(part)) for part in value
    )


def _selected(value: Any, keep: NDArray[np.bool_]) -> Any:
    """Some rows of what has one for each instance."""
    if isinstance(value, np.ndarray):
        return value[keep]
    if isinstance(value, torch.Tensor):
        return value[torch.from_numpy(keep).to(value.device)]
    rows = itertools.compress(value, keep.tolist())
    return tuple(rows) if isinstance(value, tuple) else [*rows]
