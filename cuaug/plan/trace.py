"""The recorded parameters of a chain, as plain data, and their replay.

A chain makes the same steps in the same order whatever it draws, so a step's number identifies it. A sample's record
leaves out the steps that did not act on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError

#: (N,) bool, the samples to act on; None for all.
Where = NDArray[np.bool_] | None

_OTHER_CHAIN = "replay with the chain that drew the parameters"


class TransformRecord(NamedTuple):
    """One call of a transform's `write`.

    Attributes:
        where: (N,) rows of the plan it acted on; None for all.
        params: its parameters, (N, ...) each.
        views: consecutive rows that belong to one image.
        per_view: each view has its own parameters.
        per_frame: each frame of a clip has its own parameters.
    """

    transform: str
    where: Where
    params: Mapping[str, NDArray[Any]]
    views: int = 1
    per_view: bool = False
    per_frame: bool = False


class Trace:
    """The steps of a chain, in order.

    Args:
        replay: steps that take the place of the drawn ones.
        first: number of the first step.

    Attributes:
        frames: consecutive rows of images that are the frames of one clip, with the same parameters.
        one_target_per_clip: whether a clip has boxes, masks or keypoints that its frames share.
    """

    def __init__(self, replay: Replay | None = None, *, first: int = 0) -> None:
        self.steps: list[TransformRecord] = []
        self.first = first
        self.frames, self.one_target_per_clip = 1, False
        self._replay = replay

    def again(self) -> Trace:
        """A trace for planning the same chain once more, for other channels of the same images."""
        trace = Trace(self._replay, first=self.first)
        trace.frames = self.frames
        return trace

    @property
    def replays(self) -> bool:
        """Whether recorded steps take the place of drawn ones."""
        return self._replay is not None

    @property
    def next(self) -> int:
        """Number of the next step."""
        return self.first + len(self.steps)

    def record(
        self,
        transform: Any,
        where: Where,
        params: Mapping[str, NDArray[Any]],
        count: int,
        views: int = 1,
        per_view: bool = False,
        per_frame: bool = False,
    ) -> TransformRecord:
        """Adds the next step, of `count` rows: the drawn one, or the one to replay."""
        step = TransformRecord(type(transform).__name__, where, params, views, per_view, per_frame)
        if self._replay is not None:
            step = self._replay.replace(self.next, step, count, self.frames)
        self.steps.append(step)
        return step

    def params(self, count: int) -> list[list[dict[str, Any]]]:
        """The steps of each of the first `count` images or clips, as plain numbers and lists.

        A step is {"step", "transform", "params"}; steps of `MultiView` also have "view", those of `PerFrame` "frame".
        """
        images: list[list[dict[str, Any]]] = [[] for _ in range(count)]
        for number, step in enumerate(self.steps, self.first):
            frames, views = self.frames if step.per_frame else 1, step.views if step.per_view else 1
            first = np.arange(count)[:, None, None] * self.frames + np.arange(frames)[:, None]
            rows = (first * step.views + np.arange(views)).ravel()
            columns = {name: values[rows].tolist() for name, values in step.params.items()}
            for k in range(len(rows)) if step.where is None else np.flatnonzero(step.where[rows]).tolist():
                image, frame, view = k // (frames * views), k // views % frames, k % views
                which = ({"frame": frame} if step.per_frame else {}) | ({"view": view} if step.per_view else {})
                params = {name: values[k] for name, values in columns.items()}
                images[image].append({"step": number, **which, "transform": step.transform, "params": params})
        return images

    def check_end(self) -> None:
        """Raises a TransformError if the replay has more steps than the chain."""
        if self._replay is not None:
            self._replay.check_end(self.next)


class Replay:
    """Recorded steps that take the place of drawn ones.

    Args:
        recorded: each sample's steps, as `Trace.params` returns them.
    """

    def __init__(self, recorded: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        self._steps: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
        for image, steps in enumerate(recorded):
            for step in steps:
                self._steps.setdefault(step["step"], []).append((image, step))
        self._last = max(self._steps, default=-1)

    def replace(self, number: int, drawn: TransformRecord, count: int, frames: int = 1) -> TransformRecord:
        """The recorded step of this number, with the dtypes and shapes of the drawn one.

        Raises:
            TransformError: another transform had this number, or a parameter is of another kind.
        """
        recorded = self._steps.get(number, [])
        where = np.zeros(count, dtype=bool)
        params = dict(drawn.params)
        for image, step in recorded:
            if step["transform"] != drawn.transform or set(step["params"]) != set(params):
                raise TransformError(
                    f"params: step {number} of image {image} was a {step['transform']} with {sorted(step['params'])}, "
                    f"but is a {drawn.transform} with {sorted(params)} here: {_OTHER_CHAIN}"
                )
            if ("view" in step) != drawn.per_view or not 0 <= step.get("view", 0) < drawn.views:
                views = f"view {step['view']}" if "view" in step else "all views"
                raise TransformError(
                    f"params: step {number} of image {image} is recorded for {views}, but here are {drawn.views} views "
                    f"that draw {'separately' if drawn.per_view else 'together'}: {_OTHER_CHAIN}"
                )
            if ("frame" in step) != drawn.per_frame or not 0 <= step.get("frame", 0) < frames:
                frame = f"frame {step['frame']}" if "frame" in step else "all frames"
                raise TransformError(
                    f"params: step {number} of clip {image} is recorded for {frame}, but here are {frames} frames that "
                    f"draw {'separately' if drawn.per_frame else 'together'}: {_OTHER_CHAIN}"
                )
            where[_rows(image, step, drawn.views, frames)] = True
        for name, values in drawn.params.items():
            rows = {
                k: step["params"][name] for image, step in recorded for k in _rows(image, step, drawn.views, frames)
            }
            params[name] = _with_rows(values, rows, f"step {number}: {name} of {drawn.transform}")
        # A step with a `where` stays one even if it acts on all: Normalize chooses its operations by that.
        acts_on_all = drawn.where is None and bool(where.all())
        return drawn._replace(where=None if acts_on_all else where, params=params)

    def check_end(self, count: int) -> None:
        """Raises a TransformError if steps are left after a chain of `count` steps."""
        if self._last >= count:
            raise TransformError(f"params have a step {self._last}, but the chain only {count} steps: {_OTHER_CHAIN}")


def check_params(transform: Any, params: Any, count: int) -> None:
    """Raises a TransformError unless `make_params` gave a dict of arrays with `count` rows.

    Some `write` methods could do with less, but traces and replays need a row per sample.
    """
    if not isinstance(params, dict):
        raise TransformError(f"{type(transform).__name__}.make_params gives a dict of arrays, not {params!r:.100}")
    for name, values in params.items():
        if isinstance(values, (list, tuple)):
            params[name] = values = np.asarray(values)
        shape = tuple(getattr(values, "shape", ()))
        if shape[:1] != (count,):
            raise TransformError(
                f"{type(transform).__name__}.make_params gives arrays of {count} rows, one for each sample, not "
                f"{name}{f' of shape {shape}' if shape else f'={values!r:.100}'}: values that all samples share belong "
                "in __init__"
            )


def is_recorded_step(step: Any) -> bool:
    """Whether `step` has the form that `Trace.params` returns."""
    if not isinstance(step, Mapping) or not {"step", "transform", "params"} <= step.keys():
        return False
    numbers = step["step"], step.get("view", 0), step.get("frame", 0)
    return all(isinstance(number, int) for number in numbers) and isinstance(step["params"], Mapping)


def _rows(image: int, step: Mapping[str, Any], views: int, frames: int) -> list[int]:
    """The plan's rows that a recorded step of an image, or of a clip's frames, fills."""
    which_views = [step["view"]] if "view" in step else range(views)
    which_frames = [step["frame"]] if "frame" in step else range(frames)
    return [(image * frames + frame) * views + view for frame in which_frames for view in which_views]


def _with_rows(values: NDArray[Any], rows: Mapping[int, Any], name: str) -> NDArray[Any]:
    """A copy with some rows replaced; shorter rows fill the first part."""
    arrays = {i: _as_row(row, values, name) for i, row in rows.items()}
    shapes = [values.shape[1:], *(array.shape for array in arrays.values())]
    result = np.zeros((len(values), *np.max(shapes, axis=0).astype(int)), dtype=values.dtype)
    result[tuple(map(slice, values.shape))] = values
    for i, array in arrays.items():
        place: Any = (i, *map(slice, array.shape))
        result[place] = array
    return result


def _as_row(row: Any, values: NDArray[Any], name: str) -> NDArray[Any]:
    try:
        array = np.asarray(row, dtype=values.dtype)
    except (TypeError, ValueError, OverflowError):
        array = None
    if array is None or array.ndim != values.ndim - 1:
        raise TransformError(f"{name} is like {values[0].tolist()!r:.100}, not {row!r:.100}")
    return array
