"""`PlanState`: the batch at one point of a chain, and the steps, views and frames that transforms are planned in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.plan.boxes_keypoints import BoxesKeypoints
from cuaug.plan.channels import group_values
from cuaug.plan.layout import Type
from cuaug.plan.packing import PackingFormat
from cuaug.plan.pass_table import Indices, PassTable
from cuaug.plan.trace import Trace, Where, check_params


class PlanState:
    """Sizes, dtype and trace of N images while a plan is built: the base of `Plan`.

    Args:
        heights, widths: (N,) source sizes in pixels.
        source_type: `Type.UINT8`, or `Type.FLOAT32` for images in [0, 1].
        channels: 1 to `MAX_CHANNELS`. Kernels read gray as three equal channels, and more than three in groups.
        group: the group of channels that this plan is for; see `cuaug.plan.channels`.
        views: consecutive rows that belong to one image; the batch has N / views images.
        trace: records the parameters of each step.
        normalized: float images are not in [0, 1], so they cannot become uint8.

    Attributes:
        is_float: the images are float at this point.
        is_uint16: the input is uint16, scaled to [0, 1].
        needs_unit_range: float input must be in [0, 1], for an operation that knows where white is.
        target_type: the type a transform asked for; None for uint8 or float32, as the images end up.
        points: boxes and keypoints that move with the pixels, if any.
        pillow: the version of Pillow whose pixels resizes give, 12 or 13; None: they are computed in floats.
        packing: how the finished images share one tensor; None: each has memory of its own, of its size.
        packed_sizes: the sizes that the images must keep from here on; None: they may change.
    """

    def __init__(
        self,
        heights: ArrayLike,
        widths: ArrayLike,
        *,
        source_type: Type = Type.UINT8,
        channels: int = 3,
        group: int = 0,
        views: int = 1,
        trace: Trace | None = None,
        normalized: bool = False,
    ) -> None:
        sizes = np.empty((2, np.size(heights)), dtype=np.int64)
        sizes[0], sizes[1] = heights, widths
        self.channels, self.views = channels, views
        self._group = group
        self.is_float = self._has_float_input = source_type != Type.UINT8
        self.is_uint16 = self.needs_unit_range = False
        self.target_type: Type | None = None
        self.points: BoxesKeypoints | None = None
        self.pillow: int | None = None
        self.packing: PackingFormat | None = None
        self.packed_sizes: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        self.trace = Trace() if trace is None else trace
        self._normalized = normalized
        self._table = PassTable(sizes, source_type)
        self._all = np.arange(sizes.shape[1])
        self._separate_views = self._separate_frames = False
        self._is_exclusive = False  # while a member of `mutually_exclusive` is planned
        #: (N,) samples that hold uint8 levels although `is_float`: their scaling waits for their next operation.
        self._unscaled: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self._all)

    def _require_unit_range(self, condition: bool) -> None:
        """Notes an operation that knows where white is."""
        self.needs_unit_range |= condition and self._has_float_input and not self._normalized

    @property
    def limit(self) -> float:
        """The value of white: 255 while images are uint8, 1 once they are float."""
        return 1.0 if self.is_float else 255.0

    @property
    def sizes(self) -> tuple[Indices, Indices]:
        """(N,) heights and (N,) widths at this point of the chain."""
        height, width = self._table.sizes(self._all).copy()  # custom transforms may write to them
        return height, width

    @property
    def normalized(self) -> bool:
        """The images are float, but not in [0, 1]."""
        return self._normalized

    @property
    def passes(self) -> int:
        """Number of passes so far."""
        return self._table.passes

    def of_channels(self, name: str, values: ArrayLike) -> NDArray[np.float64]:
        """`values`, one for all channels or one per channel, as the kernels take them: one, or three.

        Raises:
            TransformError: another number of entries than the images have channels.
        """
        return group_values(name, values, self.channels, self._group)

    def perform(self, transform: Any, where: Where, params: dict[str, Any]) -> None:
        """Records a step and lets the transform write it; params have N rows."""
        check_params(transform, params, len(self))
        self._table.step = self.trace.next
        separate = self._separate_views, self._separate_frames
        step = self.trace.record(transform, where, params, len(self), self.views, *separate)
        transform.write(self, step.where, **step.params)

    @property
    def frame_numbers(self) -> Indices:
        """(N,) the number of each row's frame within its clip; 0 for images."""
        return self._all // self.views % self.trace.frames

    def keys_per_frame(self, keys: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Keys (N, 2) of random numbers, equal for the frames of a clip, made different for each frame."""
        if self.trace.frames == 1:
            return keys
        steps = self.frame_numbers.astype(np.uint32) * np.uint32(0x9E3779B9)
        return np.stack([keys[:, 0] ^ steps, keys[:, 1]], axis=1)

    @contextlib.contextmanager
    def separate_frames(self) -> Iterator[None]:
        """A context whose steps have parameters of their own per frame of a clip."""
        self._separate_frames = True
        try:
            yield
        finally:
            self._separate_frames = False

    @contextlib.contextmanager
    def separate_views(self) -> Iterator[None]:
        """A context whose steps have parameters of their own per view."""
        self._separate_views = True
        try:
            yield
        finally:
            self._separate_views = False

    def mutually_exclusive(self, members: Iterable[Any]) -> Iterator[Any]:
        """Yields mutually exclusive members; each is planned from the same dtype."""
        before, after, was_exclusive = (self.is_float, self._normalized), [], self._is_exclusive
        for member in members:
            (self.is_float, self._normalized), self._is_exclusive = before, True
            yield member
            after.append((self.is_float, self._normalized))
        (self.is_float, self._normalized), self._is_exclusive = map(any, zip(*after, strict=True)), was_exclusive
