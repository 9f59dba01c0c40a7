"""`OutputStacks`: the tensors that finished images are written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.plan import Layout

__all__ = ["OutputStacks", "first_size_mismatch"]


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
            size = stack.stride(0) * stack.element_size() // len(views)
            offsets = np.arange(len(result) * len(views), dtype=np.uint64) * np.uint64(size)
            result[:, views] = (offsets + np.uint64(stack.data_ptr())).reshape(-1, len(views))
        return result.reshape(-1)
