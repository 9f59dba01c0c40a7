"""`OutputStacks`: the tensors that finished images are written to. `PackedOutput`: one tensor of images of any size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.plan import Layout, PackingFormat


def first_size_mismatch(sizes: NDArray[np.int64], views: int) -> int | None:
    """The first row whose size keeps images from stacking; None if they stack.

    A view stacks with the same view of the other images. `sizes` is (2, N * views), the views of an image in turn.
    """
    if (sizes == sizes[:, :1]).all():  # the common case
        return None
    by_view = sizes.reshape(2, -1, views)
    differs = (by_view != by_view[:, :1]).any(axis=0).ravel()
    return int(differs.argmax()) if differs.any() else None


@dataclass(frozen=True)
class OutputStacks:
    """The output tensors: a stack per size of view, or one tensor per image.

    Attributes:
        shapes: of each tensor: (N, ...) for one view, (N, V, ...) for V views of equal size, or an image's alone.
        views: numbers of the views in each stack; None if each image has its own tensor.
    """

    shapes: list[tuple[int, ...]]
    views: list[list[int]] | None

    @property
    def count(self) -> int:
        """Number of views of an image."""
        return 1 if self.views is None else sum(map(len, self.views))

    @classmethod
    def from_sizes(cls, sizes: NDArray[np.int64], views: int | None, channels: int, layout: Layout) -> OutputStacks:
        """Stacks for images whose sizes match.

        sizes: (2, N * views) heights and widths; stacks are in the order of their first views.
        views: None for a tensor of its own for each image.
        """

        def image(height: int, width: int) -> tuple[int, ...]:
            return (channels, height, width) if layout == Layout.CHW else (height, width, channels)

        if views is None:
            return cls([image(*size) for size in sizes.T.tolist()], None)
        n = sizes.shape[1] // views
        by_size: dict[tuple[int, int], list[int]] = {}
        for view, (height, width) in enumerate(sizes[:, :views].T.tolist()):
            by_size.setdefault((height, width), []).append(view)
        shapes: list[tuple[int, ...]] = []
        for (height, width), numbers in by_size.items():
            shapes.append((n, *image(height, width)) if views == 1 else (n, len(numbers), *image(height, width)))
        return cls(shapes, list(by_size.values()))

    def addresses(self, stacks: Sequence[torch.Tensor], channel: int = 0) -> NDArray[np.uint64]:
        """(N * views,) address of each row's image in contiguous tensors of these shapes, from a channel on.

        channel: 0, or another one where the layout is CHW.
        """
        if channel:
            stacks = [stack.flatten(-2)[..., channel:, :] for stack in stacks]
        if self.views is None:
            return np.array([image.data_ptr() for image in stacks], dtype=np.uint64)
        result = np.empty((self.shapes[0][0], self.count), dtype=np.uint64)
        for views, stack in zip(self.views, stacks, strict=True):
            size, begin = stack.stride(0) * stack.element_size() // len(views), stack.data_ptr()
            rows = np.arange(begin, begin + len(result) * len(views) * size, size, dtype=np.uint64)
            result[:, views] = rows.reshape(-1, len(views))
        return result.reshape(-1)


@dataclass(frozen=True)
class PackedOutput(OutputStacks):
    """One output tensor for N images or clips of any size.

    Its shape is (total patches, *shape of a patch), (N, most patches, *shape), or (N, ...) of whole images.

    Attributes:
        packing: how they lie in it.
        grids: (N, 3), as `PackingFormat.grids`.
        offsets: (N * frames * views,) values before each row's image.
        layout: of whole images.
    """

    packing: PackingFormat
    grids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    layout: Layout

    @property
    def count(self) -> int:
        return self.packing.views

    @classmethod
    def of(
        cls, packing: PackingFormat, sizes: NDArray[np.int64], frames: int, channels: int, layout: Layout
    ) -> PackedOutput:
        """The output for images of (2, N * frames * views) pixels; frames of a clip have one size."""
        grids = packing.grids(sizes, frames)
        counts = packing.counts(grids)
        images, (height, width) = len(grids), grids[:, 1:].max(axis=0)
        shape: tuple[int, ...]
        if not packing.patch:
            shape = (images, channels, height, width) if layout == Layout.CHW else (images, height, width, channels)
            offsets = np.arange(images) * channels * height * width
            return cls([tuple(map(int, shape))], None, packing, grids, offsets, layout)
        if packing.padded:
            shape, firsts = (images, int(counts.max())), np.arange(images) * counts.max()
        else:
            shape, firsts = (int(counts.sum()),), np.cumsum(counts) - counts
        own = packing.shape(channels)
        offsets = math.prod(own) * firsts[:, None] + packing.offsets(grids, frames, channels)
        return cls([(*shape, *own)], None, packing, grids, offsets.ravel(), layout)

    def addresses(self, stacks: Sequence[torch.Tensor], channel: int = 0) -> NDArray[np.uint64]:
        plane = 0 if self.packing.patch else int(self.grids[:, 1:].max(axis=0).prod())
        values = (self.offsets + channel * plane).astype(np.uint64)
        return np.uint64(stacks[0].data_ptr()) + values * np.uint64(stacks[0].element_size())

    def split(self, packed: torch.Tensor) -> list[torch.Tensor]:
        """The images in such a tensor, without padding."""
        if not self.packing.patch:
            places = (slice(None),) if self.layout == Layout.CHW else ()
            return [image[(*places, slice(h), slice(w))] for image, (_, h, w) in zip(packed, self.grids, strict=True)]
        counts = self.packing.counts(self.grids).tolist()
        if not self.packing.padded:
            return list(packed.split(counts))
        return [image[:count] for image, count in zip(packed, counts, strict=True)]

    def clear_padding(self, packed: torch.Tensor) -> None:
        """Sets the padding to 0, before the images are written."""
        if not self.packing.padded or (self.grids == self.grids[0]).all():
            return
        if packed.is_cuda:  # one launch
            packed.zero_()
        elif self.packing.patch:
            for image, count in zip(packed, self.packing.counts(self.grids).tolist(), strict=True):
                image[count:] = 0
        else:
            for image, (_, height, width) in zip(packed, self.grids.tolist(), strict=True):
                planes = image if self.layout == Layout.CHW else image.movedim(-1, 0)
                planes[:, height:] = 0
                planes[:, :height, width:] = 0
