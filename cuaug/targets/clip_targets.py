"""Targets of clips: boxes, masks and keypoints for each frame, with a leading axis of T frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from cuaug.errors import TransformError
from cuaug.plan import CompiledPlan, Plan
from cuaug.targets.names import TargetFormat, is_instance_name, row_count
from cuaug.targets.targets import Mover, Targets

_MOVING = frozenset({"boxes", "masks", "mask", "keypoints"})


class ClipTargets:
    """The targets in the labels of N clips of T frames, like `Targets` for images.

    "boxes" (T, K, 4), "masks" (T, K, H, W), "mask" (T, H, W) and "keypoints" (T, P, 2) or (T, K, P, 2) hold one value
    per frame; so does a list of T values, where frames have different numbers of boxes. Other values are the clip's;
    instance fields beside boxes, such as "labels", may also have a leading axis of T.

    Args:
        targets: N labels of any kind.
        heights, widths: (N,) frame sizes in pixels.
        frames: T.
        format: the fields of `TargetFormat`.

    Raises:
        TransformError: as for `Targets`, or a value has another length than T.
    """

    def __init__(
        self, targets: Sequence[Any], heights: ArrayLike, widths: ArrayLike, frames: int, **format: Any
    ) -> None:
        self._frames = frames
        self._format = TargetFormat(**format)
        self._labels = targets
        per_frame = [frame for label in targets for frame in self._split(label, "")]
        sides = (np.repeat(np.asarray(side), frames) for side in (heights, widths))
        self._targets = Targets(per_frame, *sides, **format)
        for i, label in enumerate(targets):
            if not isinstance(label, Mapping) and self._targets.has_fields(i * frames):
                raise TransformError(
                    "labels of clips hold boxes, masks and keypoints in a dict, one entry per frame, not in a "
                    f"{type(label).__name__}"
                )

    def __bool__(self) -> bool:
        return bool(self._targets)

    def attach(self, plan: Plan) -> Mover:
        """Let the plan move the boxes and keypoints. Returns the mover, for the compiled plan."""
        moved_frames, frames = self._targets.attach(plan), self._frames
        if not self:
            return lambda tables: self._labels.__getitem__

        def moved(tables: CompiledPlan) -> Callable[[int], Any]:
            frame = moved_frames(tables)
            return lambda i: self._merge(self._labels[i], [frame(i * frames + t) for t in range(frames)], "")

        return moved

    def per_frame(self) -> list[Any]:
        """The labels of all frames, clip by clip."""
        return [frame for label in self._labels for frame in self._split(label, "")]

    def merge(self, per_frame: list[Any]) -> list[Any]:
        """The inverse of `per_frame`, once transforms have changed the frames' labels."""
        groups = [per_frame[i : i + self._frames] for i in range(0, len(per_frame), self._frames)]
        return [self._merge(label, group, "") for label, group in zip(self._labels, groups, strict=False)]

    def _varies(self, key: Any, value: Any, path: str, beside_boxes: bool) -> bool:
        """Whether a value of a dict has one entry per frame."""
        moves = key in _MOVING or self._format.is_mask(key, path)
        if moves and not self._format.passes(key, path):
            if row_count(value) != self._frames:
                raise TransformError(
                    f"{path} of a clip needs one entry for each of its {self._frames} frames, not "
                    f"{tuple(value.shape) if hasattr(value, 'shape') else f'{row_count(value)} entries'}"
                )
            return True
        return (
            beside_boxes
            and is_instance_name(key, path, self._format)
            and row_count(value) == self._frames
            and row_count(value[0]) is not None
        )

    def _split(self, label: Any, path: str) -> list[Any]:
        """The label of each frame."""
        if isinstance(label, Mapping):
            parts: dict[Any, list[Any]] = {}
            for key, value in label.items():
                inner = f"{path}.{key}" if path else str(key)
                if isinstance(value, Mapping):
                    parts[key] = self._split(value, inner)
                elif self._varies(key, value, inner, "boxes" in label):
                    parts[key] = list(value)
                else:
                    parts[key] = [value] * self._frames
            return [{key: values[t] for key, values in parts.items()} for t in range(self._frames)]
        return [label] * self._frames

    def _merge(self, label: Any, frames: list[Any], path: str) -> Any:
        """The inverse of `_split`, for the moved labels of the frames."""
        if not isinstance(label, Mapping):
            return frames[0]
        merged: dict[Any, Any] = {}
        for key, value in label.items():
            inner = f"{path}.{key}" if path else str(key)
            values = [frame[key] for frame in frames]
            if isinstance(value, Mapping):
                merged[key] = self._merge(value, values, inner)
            elif self._varies(key, value, inner, "boxes" in label):
                merged[key] = _stack(value, values)
            else:
                if row_count(value) is not None and any(row_count(v) != row_count(values[0]) for v in values):
                    raise TransformError(
                        f"{inner} has one row per box of the clip, but its frames keep different boxes: give it a "
                        "leading axis of frames"
                    )
                merged[key] = values[0]
        return merged


def _stack(original: Any, values: list[Any]) -> Any:
    """The values of all frames, stacked where they were; a list where their shapes differ."""
    same_shape = len({tuple(getattr(value, "shape", (-1,))) for value in values}) == 1
    if isinstance(original, torch.Tensor) and same_shape:
        return torch.stack(values)
    if isinstance(original, np.ndarray) and same_shape:
        return np.stack(values)
    return type(original)(values) if isinstance(original, (list, tuple)) else values
