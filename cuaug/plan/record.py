"""What was drawn for each sample: noted as transforms write it into a plan, told as plain data, and done again.

A chain makes the same steps in the same order whatever it draws; a step that leaves a sample alone is not among that
sample's. So a step's number finds it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError

__all__ = ["Script", "Step", "params_of"]

Where = NDArray[np.bool_] | None


@dataclass(frozen=True)
class Step:
    """One transform's turn: on which of N samples it acted (None: all), and its parameters, (N, ...) each."""

    transform: str
    where: Where
    params: Mapping[str, NDArray[Any]]


def params_of(steps: Sequence[Step], count: int) -> list[list[dict[str, Any]]]:
    """For each of `count` samples a list of {"step", "transform", "params"}, of Python's numbers and lists."""
    told: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    for number, step in enumerate(steps):
        columns = {name: values.tolist() for name, values in step.params.items()}
        for i in range(count) if step.where is None else np.flatnonzero(step.where).tolist():
            params = {name: values[i] for name, values in columns.items()}
            told[i].append({"step": number, "transform": step.transform, "params": params})
    return told


class Script:
    """Steps to do again, instead of what is drawn.

    Args:
        told: as `params_of` gives it, for each sample of the plan.
    """

    def __init__(self, told: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        self._steps: dict[int, dict[int, Mapping[str, Any]]] = {}
        for i, steps in enumerate(told):
            for step in steps:
                self._steps.setdefault(step["step"], {})[i] = step
        self._last = max(self._steps, default=-1)

    def replace(self, number: int, drawn: Step, count: int) -> Step:
        """The step of this number as it was told; `drawn` says what kinds of parameters it has.

        Raises:
            TransformError: another transform stood there.
        """
        told = self._steps.get(number, {})
        where = np.zeros(count, dtype=bool)
        params = dict(drawn.params)
        for i, step in told.items():
            if step["transform"] != drawn.transform or set(step["params"]) != set(params):
                raise TransformError(
                    f"step {number} of image {i} was a {step['transform']} with {sorted(step['params'])}, but is a "
                    f"{drawn.transform} with {sorted(params)} here: replay with the chain that drew the parameters"
                )
            where[i] = True
        for name, values in drawn.params.items():
            params[name] = _put(values, {i: step["params"][name] for i, step in told.items()})
        return Step(drawn.transform, where, params)

    def check_end(self, count: int) -> None:
        """Raises if there are steps that a chain of `count` steps does not have."""
        if self._last >= count:
            raise TransformError(
                f"the parameters have a step {self._last}, but the chain only {count} steps: replay with the chain "
                "that drew them"
            )


def _put(values: NDArray[Any], rows: Mapping[int, Any]) -> NDArray[Any]:
    """A copy of `values` with other rows; a row that is smaller than another, along any axis, fills its first part."""
    arrays = {i: np.asarray(row, dtype=values.dtype) for i, row in rows.items()}
    shapes = [values.shape[1:], *(array.shape for array in arrays.values())]
    whole = np.zeros((len(values), *np.max(shapes, axis=0).astype(int)), dtype=values.dtype)
    whole[tuple(map(slice, values.shape))] = values
    for i, array in arrays.items():
        whole[i][tuple(map(slice, array.shape))] = array
    return whole
