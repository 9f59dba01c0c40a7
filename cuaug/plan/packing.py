"""`PackingFormat`: how images of several sizes share one tensor, as patches or padded to the largest image."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug.plan.layout import Layout


class PackingFormat(NamedTuple):
    """How the images of a batch lie in one tensor.

    Attributes:
        patch: pixels per side of a patch; 0: whole images, padded to the largest height and width.
        merge: patches per side of a block, whose patches follow each other.
        temporal: images in a patch. An image fills its patches alone; the last frame of a clip fills what is left.
        order: CHW for patches of (channels, temporal, patch, patch), HWC for (temporal, patch, patch, channels).
        padded: each image has as many patches as the largest one; False: the patches of all images follow each other.
    """

    patch: int = 0
    merge: int = 1
    temporal: int = 1
    order: Layout = Layout.CHW
    padded: bool = True

    def grids(self, sizes: NDArray[np.int64], frames: int) -> NDArray[np.int64]:
        """(N, 3) patches in time, down and across of samples of (2, N) pixels; whole images: 1 and their pixels."""
        times = np.full(sizes.shape[1], -(-frames // self.temporal))
        return np.stack([times, *(sizes // max(self.patch, 1))], axis=1)

    def values(self, channels: int) -> int:
        """Values of a patch."""
        return channels * self.temporal * self.patch**2

    def write_targets(self, rows: NDArray[Any], sizes: NDArray[np.int64], frames: int) -> None:
        """Sets the targets of a compiled plan's last passes, (P, N) `SAMPLE`."""
        last = rows["active"].sum(axis=0) - 1, np.arange(rows.shape[1])
        targets = rows["target"]
        if not self.patch:
            if (sizes != sizes[:, :1]).any():
                targets["rows"][last], targets["pitch"][last] = sizes.max(axis=1)
            return
        numbers = last[1] % frames  # of the frame in its clip
        left = self.temporal - numbers % self.temporal
        targets["patch"][last], targets["merge"][last], targets["temporal"][last] = self[:3]
        targets["copies"][last] = np.where(numbers == frames - 1, left, 1)
