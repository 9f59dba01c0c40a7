"""The rows of a batch's passes while a plan is being written: each sample's current one, and those before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.plan import geometry
from cuaug.plan.layout import OP, SAMPLE, Layout, Type
from cuaug.plan.points import Points

__all__ = ["NO_OPS", "POINTWISE", "POSITIONAL", "RAW_OP", "RAW_SAMPLE", "TABLE_FLOATS", "Barrier", "Passes", "Where"]

#: How the pixel operations of a pass get along with geometry that follows them.
NO_OPS, POINTWISE, POSITIONAL = 0, 1, 2
#: The look-up tables' size: whatever else the kernels read as floats lies among them.
TABLE_FLOATS = 3 * 256
# NumPy copies rows of a structured type field by field, but opaque ones as bytes: ten times as fast. It also makes
# arrays of them faster.
RAW_SAMPLE, RAW_OP = np.dtype(f"V{SAMPLE.itemsize}"), np.dtype(f"V{OP.itemsize}")

# Until a later pass follows, or the plan is closed: the target is a float image in the kernels' own layout.
_FRESH = np.zeros(1, dtype=SAMPLE)
_FRESH["clamp"] = -1.0
_FRESH["active"] = 1
_FRESH["target_type"], _FRESH["target_layout"], _FRESH["target_channels"] = Type.FLOAT32, Layout.HWC, 3

Where = NDArray[np.bool_] | None


@dataclass(frozen=True)
class Barrier:
    """Where passes ended: of how many samples the first, the second, ...; why; which step of the chain asked for it."""

    step: int
    samples: NDArray[np.int64]
    why: str


class Passes:
    """What the parts of `Plan` share.

    Args:
        heights, widths: (N,) source sizes in pixels.
        source_type: `Type.UINT8`, or `Type.FLOAT32` for images in [0, 1].
        channels: 3, or 1 for gray images (which the kernels see as three equal channels).
    """

    def __init__(self, heights: ArrayLike, widths: ArrayLike, source_type: Type, channels: int) -> None:
        heights, widths = np.atleast_1d(heights).astype(np.int64), np.atleast_1d(widths).astype(np.int64)
        n = len(heights)
        self.channels = channels
        self.is_float = source_type != Type.UINT8
        #: What is to be moved along with the pixels.
        self.points: Points | None = None
        #: Where passes ended so far.
        self.barriers: list[Barrier] = []
        self._step = 0
        self._normalized = False
        #: Each sample's row of its current pass, and (P, N) those of the passes before.
        self._now = np.empty(n, dtype=RAW_SAMPLE).view(SAMPLE)
        self._axes = geometry.axes_of(self._now)
        #: Whether any sample may have been transposed.
        self._any_turned = False
        self._before = np.zeros((0, n), dtype=RAW_SAMPLE)
        self._pass = np.zeros(n, dtype=np.int64)
        self._everyone = np.arange(n)
        self._resized = np.zeros(n, dtype=bool)
        self._ops_so_far = np.zeros(n, dtype=np.int8)
        self._luts: list[NDArray[np.float32]] = []
        geometry.begin(self._now, self._everyone, _FRESH, np.stack([heights, widths]), source_type)

    def __len__(self) -> int:
        return len(self._everyone)

    @property
    def limit(self) -> float:
        """The value of white: 255 while the images are uint8, 1 once they are float."""
        return 1.0 if self.is_float else 255.0

    @property
    def sizes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(N,) heights and (N,) widths as they are at this point of the chain."""
        height, width = self._sizes(slice(None))
        return height, width

    @property
    def passes(self) -> int:
        """How many there are so far."""
        return int(self._pass.max(initial=0)) + 1

    def check_channels(self, name: str, values: ArrayLike) -> None:
        """Refuses values for three channels, in the first axis of `values`, where the images have one."""
        if self.channels == 1 and np.shape(values)[:1] == (3,):
            raise TransformError(f"{name} has 3 entries, one per channel, but the images have 1 channel here")

    def _choose(self, where: Where) -> NDArray[np.int64]:
        return self._everyone if where is None else np.flatnonzero(where)

    def _at(self, chosen: NDArray[np.int64]) -> NDArray[np.int64] | slice:
        """The quickest index to them: everyone is a slice, whose values are not copied."""
        return slice(None) if len(chosen) == len(self) else chosen

    def _both(self, chosen: NDArray[np.int64]) -> tuple[slice, NDArray[np.int64] | slice]:
        """The index to both axes of the chosen samples."""
        return slice(None), self._at(chosen)

    def _per_sample(self, chosen: NDArray[np.int64], *values: ArrayLike) -> NDArray[np.int64]:
        """(K, n): K values, numbers or one for each of the N samples, for those that are chosen."""
        each = np.empty((len(values), len(self)), dtype=np.int64)
        for row, value in zip(each, values, strict=True):
            row[:] = value
        return each[:, self._at(chosen)]

    def _sizes(self, i: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """(2, n): heights and widths as they are at this point of the chain."""
        return self._along(i, self._axes["out"][:, i].astype(np.int64))

    def _along(self, i: NDArray[np.int64] | slice, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """(2, n) along images' rows and columns, as they lie along those of their sources, or back."""
        if not self._any_turned:
            return values
        return np.where(self._now["transposed"][i] != 0, values[::-1], values)

    def _keep(self, chosen: NDArray[np.int64]) -> None:
        """Copies the chosen samples' rows to those of the passes before."""
        missing = int(self._pass[self._at(chosen)].max(initial=-1)) + 1 - len(self._before)
        if missing > 0:
            more = np.zeros((missing, len(self)), dtype=RAW_SAMPLE)
            self._before = np.concatenate([self._before, more])
        geometry.keep(self._now, chosen, self._before, self._pass)

    def _split(self, chosen: NDArray[np.int64], why: str) -> None:
        """Begins a new pass for the chosen samples: what they are now becomes its source."""
        if len(chosen) == 0:
            return
        i = self._at(chosen)
        self.barriers.append(Barrier(self._step, np.bincount(self._pass[i]), why))
        self._keep(chosen)
        self._pass[i] += 1
        geometry.begin(self._now, chosen, _FRESH, self._sizes(i), Type.FLOAT32)
        self._resized[i] = False
        self._ops_so_far[i] = NO_OPS

    def _add_values(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Puts the rows of `values`, (n, k), among the look-up tables; returns where each begins, in floats."""
        first = sum(map(len, self._luts)) * TABLE_FLOATS
        flat = np.zeros(-(-values.size // TABLE_FLOATS) * TABLE_FLOATS, dtype=np.float32)
        flat[: values.size] = values.reshape(-1)
        self._luts.append(flat.reshape(-1, 3, 256))
        return first + np.arange(len(values)) * values.shape[1]
