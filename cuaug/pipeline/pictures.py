"""Runs the plan of a batch on further pictures of its samples."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.devices import CpuExecutor
from cuaug.errors import TransformError
from cuaug.interop import dtype_of
from cuaug.pipeline.planning import Planned
from cuaug.plan import Layout
from cuaug.targets.label_files import KeyPath

__all__ = ["PictureArrays", "PictureExecutor"]

#: Further pictures of a sample, (H, W, 3) uint8 each.
PictureArrays = dict[KeyPath, NDArray[np.uint8]]


class PictureExecutor:
    """Runs a compiled plan on further pictures, on the CPU for every device, as masks are. Thread-safe.

    Args:
        planned: a plan of one view per sample.
        layout: of the images, which the pictures share.

    Raises:
        TransformError: the images are not 8-bit RGB, as the pictures are.
    """

    def __init__(self, planned: Planned, layout: Layout) -> None:
        if not planned.is_rgb8:
            raise TransformError("images: further pictures need a loader of 8-bit RGB images, mode='RGB'")
        self._executor = CpuExecutor(planned.tables)
        self._dtype = dtype_of(planned.tables.target_type)
        self._layout = layout
        stacks = planned.stacks
        self._shapes = stacks.shapes if stacks.views is None else [stacks.shapes[0][1:]] * stacks.shapes[0][0]

    def run(self, sample: int, picture: NDArray[np.uint8]) -> torch.Tensor:
        """The finished picture, (C, h, w), of the images' dtype.

        Args:
            sample: its row in the plan.
            picture: (H, W, 3), of its image's size.
        """
        output = torch.empty(self._shapes[sample], dtype=self._dtype)
        self._executor.run(sample, picture, output.data_ptr())
        return output.movedim(-1, -3) if self._layout == Layout.HWC else output
