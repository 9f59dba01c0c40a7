"""What was drawn for each sample: noted as transforms write it into a plan, told as plain data, and done again.

A chain makes the same steps in the same order whatever it draws; a step that leaves a sample alone is not among that
sample's. So a step's number finds it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError

__all__ = ["Replay", "Step", "Trace", "Where", "is_recorded_step"]

#: Of N samples those that are meant, (N,); None: all.
Where = NDArray[np.bool_] | None


class Step(NamedTuple):
    """One transform's turn.

    Attributes:
        where: (N,) on which rows of the plan it acted; None: all.
        params: its parameters, (N, ...) each.
        views: so many rows in turn are one image.
        apart: whether its views have parameters of their own.
    """

    transform: str
    where: Where
    params: Mapping[str, NDArray[Any]]
    views: int = 1
    apart: bool = False


class Trace:
    """The steps of a chain, in order.

    Args:
        script: what is to be done instead of what is drawn.
        first: the first step's number.
    """

    def __init__(self, script: Replay | None = None, *, first: int = 0) -> None:
        self.steps: list[Step] = []
        self.first = first
        self._script = script

    @property
    def next(self) -> int:
        """The next step's number."""
        return self.first + len(self.steps)

    def record(
        self,
        transform: Any,
        where: Where,
        params: Mapping[str, NDArray[Any]],
        count: int,
        views: int = 1,
        apart: bool = False,
    ) -> Step:
        """Notes the next step, of `count` rows, which is what was drawn or what the script says."""
        step = Step(type(transform).__name__, where, params, views, apart)
        if self._script is not None:
            step = self._script.replace(self.next, step, count)
        self.steps.append(step)
        return step

    def params(self, count: int) -> list[list[dict[str, Any]]]:
        """For each of the first `count` images its steps: {"step", "transform", "params"}, of numbers and lists.

        Those of `MultiView` also say which "view" they are of.
        """
        told: list[list[dict[str, Any]]] = [[] for _ in range(count)]
        for number, step in enumerate(self.steps, self.first):
            views = step.views if step.apart else 1
            some = slice(0, count * step.views, 1 if step.apart else step.views)
            columns = {name: values[some].tolist() for name, values in step.params.items()}
            for k in range(count * views) if step.where is None else np.flatnonzero(step.where[some]).tolist():
                image, view = divmod(k, views)
                which = {"view": view} if step.apart else {}
                params = {name: values[k] for name, values in columns.items()}
                told[image].append({"step": number, **which, "transform": step.transform, "params": params})
        return told

    def check_end(self) -> None:
        """Raises a TransformError if the script has more steps than there were."""
        if self._script is not None:
            self._script.check_end(self.next)


def is_recorded_step(step: Any) -> bool:
    """Whether this is a step as `Trace.params` tells it."""
    if not isinstance(step, Mapping) or not {"step", "transform", "params"} <= step.keys():
        return False
    numbers = step["step"], step.get("view", 0)
    return all(isinstance(number, int) for number in numbers) and isinstance(step["params"], Mapping)


class Replay:
    """Steps to do again, instead of what is drawn.

    Args:
        told: as `Trace.params` gives it, for each sample.
    """

    def __init__(self, told: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        self._steps: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
        for i, steps in enumerate(told):
            for step in steps:
                self._steps.setdefault(step["step"], []).append((i, step))
        self._last = max(self._steps, default=-1)

    def replace(self, number: int, drawn: Step, count: int) -> Step:
        """The step of this number as it was told; `drawn` says what kinds of parameters it has.

        Raises:
            TransformError: another transform stood there, or a parameter is of another kind.
        """
        told = self._steps.get(number, [])
        where = np.zeros(count, dtype=bool)
        params = dict(drawn.params)
        for i, step in told:
            if step["transform"] != drawn.transform or set(step["params"]) != set(params):
                raise TransformError(
                    f"step {number} of image {i} was a {step['transform']} with {sorted(step['params'])}, but is a "
                    f"{drawn.transform} with {sorted(params)} here: replay with the chain that drew the parameters"
                )
            if ("view" in step) != drawn.apart or not 0 <= step.get("view", 0) < drawn.views:
                of = f"view {step['view']}" if "view" in step else "all views"
                raise TransformError(
                    f"step {number} of image {i} is told of {of}, but here are {drawn.views} views of an image that "
                    f"draw {'apart' if drawn.apart else 'together'}: replay with the chain that drew the parameters"
                )
            where[_rows(i, step, drawn.views)] = True
        for name, values in drawn.params.items():
            rows = {k: step["params"][name] for i, step in told for k in _rows(i, step, drawn.views)}
            params[name] = _put(values, rows, f"step {number}: {name} of {drawn.transform}")
        # What might have left some alone is not written as what acts on all: Normalize takes other operations for it.
        acts_on_all = drawn.where is None and bool(where.all())
        return Step(drawn.transform, None if acts_on_all else where, params, drawn.views, drawn.apart)

    def check_end(self, count: int) -> None:
        """Raises a TransformError if there are steps that a chain of `count` steps does not have."""
        if self._last >= count:
            raise TransformError(
                f"the parameters have a step {self._last}, but the chain only {count} steps: replay with the chain "
                "that drew them"
            )


def _rows(image: int, step: Mapping[str, Any], views: int) -> range:
    first, count = (step["view"], 1) if "view" in step else (0, views)
    return range(image * views + first, image * views + first + count)


def _put(values: NDArray[Any], rows: Mapping[int, Any], what: str) -> NDArray[Any]:
    """A copy of `values` with other rows; a row that is smaller than another, along any axis, fills its first part.

    Raises:
        TransformError: a row is not like those of `values`, which are `what`.
    """
    arrays = {i: _as_row(row, values, what) for i, row in rows.items()}
    shapes = [values.shape[1:], *(array.shape for array in arrays.values())]
    whole = np.zeros((len(values), *np.max(shapes, axis=0).astype(int)), dtype=values.dtype)
    whole[tuple(map(slice, values.shape))] = values
    for i, array in arrays.items():
        place: Any = (i, *map(slice, array.shape))
        whole[place] = array
    return whole


def _as_row(row: Any, values: NDArray[Any], what: str) -> NDArray[Any]:
    try:
        array = np.asarray(row, dtype=values.dtype)
    except (TypeError, ValueError, OverflowError):
        array = None
    if array is None or array.ndim != values.ndim - 1:
        raise TransformError(f"{what} is like {values[0].tolist()!r:.100}, not {row!r:.100}")
    return array
