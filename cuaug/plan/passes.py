"""What `Plan`'s moves and its filters share: the choice of samples, sizes, and passes that begin where they must."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.native import library
from cuaug.errors import TransformError
from cuaug.plan.boxes_keypoints import BoxesKeypoints
from cuaug.plan.layout import Type
from cuaug.plan.pass_table import UNFIT, PassTable
from cuaug.plan.trace import Where

__all__ = ["TABLE_FLOATS", "Barrier", "Passes"]

#: The look-up tables' size: whatever else the kernels read as floats lies among them.
TABLE_FLOATS = 3 * 256
_MOST_FLOATS = 2**31 - 1  # rows count them by int: kernels/plan.h


class Barrier(NamedTuple):
    """Where passes ended: of how many samples the first, the second, ...; why; which step of the chain asked for it."""

    step: int
    samples: NDArray[np.int64]
    reason: str


class Passes:
    """What the parts of `Plan` share.

    Args:
        heights, widths: (N,) source sizes in pixels.
        source_type: `Type.UINT8`, or `Type.FLOAT32` for images in [0, 1].
        channels: 3, or 1 for gray images (which the kernels see as three equal channels).
    """

    def __init__(self, heights: ArrayLike, widths: ArrayLike, source_type: Type, channels: int) -> None:
        n = np.size(heights)
        sizes = np.empty((2, n), dtype=np.int64)
        sizes[0], sizes[1] = heights, widths
        self.channels = channels
        self.is_float = source_type != Type.UINT8
        #: What is to be moved along with the pixels.
        self.points: BoxesKeypoints | None = None
        #: Where passes ended so far.
        self.barriers: list[Barrier] = []
        self._step = 0
        self._normalized = False
        self._rows = PassTable(sizes, source_type)
        self._everyone = np.arange(n)
        self._luts: list[NDArray[np.float32]] = []

    def __len__(self) -> int:
        return len(self._everyone)

    @property
    def limit(self) -> float:
        """The value of white: 255 while the images are uint8, 1 once they are float."""
        return 1.0 if self.is_float else 255.0

    @property
    def sizes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(N,) heights and (N,) widths as they are at this point of the chain."""
        height, width = self._rows.sizes(self._everyone).copy()  # for transforms, which may be anybody's
        return height, width

    @property
    def passes(self) -> int:
        """How many there are so far."""
        return self._rows.passes

    def check_channels(self, name: str, values: ArrayLike) -> None:
        """Refuses values for three channels, in the first axis of `values`, where the images have one."""
        if self.channels == 1 and np.shape(values)[:1] == (3,):
            raise TransformError(f"{name} has 3 entries, one per channel, but the images have 1 channel here")

    def _choose(self, where: Where) -> NDArray[np.int64]:
        return self._everyone if where is None else where.nonzero()[0]

    def _at(self, chosen: NDArray[np.int64]) -> NDArray[np.int64] | slice:
        """The quickest index to them: everyone is a slice, whose values are not copied."""
        return slice(None) if len(chosen) == len(self) else chosen

    def _per_sample(self, chosen: NDArray[np.int64], *values: ArrayLike) -> NDArray[np.int64]:
        """(K, n): K values, numbers or one for each of the N samples, for those that are chosen."""
        each = np.empty((len(values), len(self)), dtype=np.int64)
        for row, value in zip(each, values, strict=True):
            row[:] = value
        return each if len(chosen) == len(self) else np.ascontiguousarray(each[:, chosen])

    def _of_each(self, name: str, values: NDArray[Any], chosen: NDArray[np.int64]) -> NDArray[Any]:
        """The chosen samples' rows of what has one for each of the N."""
        if len(values) != len(self):
            raise ValueError(f"{name} has one row for each of the {len(self)} samples, not {len(values)}")
        return values[self._at(chosen)]

    def _change(self, why: tuple[str, ...], function: Any, chosen: NDArray[np.int64], *arguments: Any) -> bool:
        """Has the library change the chosen samples' rows; `why` are its reasons for beginning new passes for some.

        Returns:
            whether it could; otherwise nothing is changed.
        """
        begun = self._rows.change(function, chosen, *arguments)
        if begun > 0:
            for reason, samples in zip(why, self._rows.begun, strict=False):
                if len(why) == 1 or samples.any():
                    self.barriers.append(Barrier(self._step, samples.copy(), reason))
        return begun != UNFIT

    def _split(self, chosen: NDArray[np.int64], why: str) -> None:
        """Begins a new pass for the chosen samples: what they are now becomes its source."""
        if len(chosen):
            self._change((why,), library.cuaug_split, chosen)

    def _add_values(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Puts the rows of `values`, (n, k), among the look-up tables; returns where each begins, in floats."""
        first = sum(map(len, self._luts)) * TABLE_FLOATS
        if first + values.size > _MOST_FLOATS:
            raise TransformError(
                f"fields and filters of a batch take {_MOST_FLOATS} floats at most, not {first + values.size}: "
                "make smaller batches"
            )
        flat = np.zeros(-(-values.size // TABLE_FLOATS) * TABLE_FLOATS, dtype=np.float32)
        flat[: values.size] = values.reshape(-1)
        self._luts.append(flat.reshape(-1, 3, 256))
        return first + np.arange(len(values)) * values.shape[1]
