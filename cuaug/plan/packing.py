"""`PackingFormat`: how images of several sizes share one tensor, as patches or padded to the largest image."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug.plan.layout import Layout


class PackingFormat(NamedTuple):
    """How the images of a batch lie in one tensor.

    Attributes:
        patch: pixels per side of a patch or tile; 0: whole images, padded to the largest height and width.
        merge: patches per side of a block, whose patches follow each other.
        temporal: images in a patch. An image fills its patches alone; the last frame of a clip fills what is left.
        order: CHW for patches of (channels, temporal, patch, patch), HWC for (temporal, patch, patch, channels).
        padded: each image has as many patches as the largest one; False: the patches of all images follow each other.
        is_tiles: the tensor has images (channels, patch, patch) where it else has rows of values.
        thumbnail: "first" or "last": samples have two rows in a plan, their tiles and a thumbnail of one tile more,
            in this order. None: they have one.
        thumbnail_from: tiles from which on a sample gets its thumbnail; of others, it is not stored.
    """

    patch: int = 0
    merge: int = 1
    temporal: int = 1
    order: Layout = Layout.CHW
    padded: bool = True
    is_tiles: bool = False
    thumbnail: Literal["first", "last"] | None = None
    thumbnail_from: int = 1

    @property
    def views(self) -> int:
        """Rows of a plan for each sample, or for each frame of a clip."""
        return 1 if self.thumbnail is None else 2

    def grids(self, sizes: NDArray[np.int64], frames: int) -> NDArray[np.int64]:
        """(N, 3) patches in time, down and across of N samples, thumbnails left out; of whole images, 1 and pixels.

        Args:
            sizes: (2, N * frames * views) pixels of the samples' rows in a plan.
        """
        sizes = sizes[:, int(self.thumbnail == "first") :: frames * self.views]
        times = np.full(sizes.shape[1], -(-frames // self.temporal))
        return np.stack([times, *(sizes // max(self.patch, 1))], axis=1)

    def counts(self, grids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(N,) patches of samples with these grids, thumbnails included."""
        counts: NDArray[np.int64] = grids.prod(axis=1)
        return counts if self.thumbnail is None else counts + (counts >= self.thumbnail_from)

    def shape(self, channels: int) -> tuple[int, ...]:
        """The shape of a patch in the tensor."""
        side = self.patch
        return (channels, side, side) if self.is_tiles else (channels * self.temporal * side * side,)

    def offsets(self, grids: NDArray[np.int64], frames: int, channels: int) -> NDArray[np.int64]:
        """(N, frames * views) values from a sample's first one to those of each row."""
        inner = grids[:, 1:].prod(axis=1)
        values = math.prod(self.shape(channels))
        if self.thumbnail is not None:
            before = self.counts(grids) - inner if self.thumbnail == "first" else inner
            return values * np.stack([np.zeros_like(before), before], axis=1)
        times, places = np.divmod(np.arange(frames), self.temporal)
        step = self.patch**2 * (1 if self.order == Layout.CHW else channels)
        return values * times * inner[:, None] + step * places

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
        targets["has_patches"][last] = True
        targets["pitch"][last], targets["merge"][last], targets["temporal"][last] = self[:3]
        targets["copies"][last] = np.where(numbers == frames - 1, left, 1)
        if self.thumbnail is not None:
            tiles = self.grids(sizes, frames).prod(axis=1)
            thumbnails = last[1][int(self.thumbnail == "last") :: 2]
            targets["copies"][last[0][thumbnails], thumbnails] = tiles >= self.thumbnail_from
