"""Where finished images go: into one stack, of views of several sizes into one for each size, or each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.plan import Layout

__all__ = ["OutputStacks", "first_size_mismatch"]


def first_size_mismatch(sizes: NDArray[np.int64], views: int) -> int | None:
    """The first row whose image is of another size than the first image's same view; None: they make stacks.

    sizes: (2, N * views) heights and widths, each image's views in turn.
    """
    if (sizes == sizes[:, :1]).all():  # by far the most
        return None
    each = sizes.reshape(2, -1, views)
    unlike = (each != each[:, :1]).any(axis=0).ravel()
    return int(unlike.argmax()) if unlike.any() else None


@dataclass(frozen=True)
class OutputStacks:
    """The stacks that a plan's images make.

    Attributes:
        shapes: of each: (N, ...), or of V views of each image (N, V, ...); where they are apart, of each image.
        views: which of each image's views, in turn, are in each; None: the images are apart, and make no stacks.
    """

    shapes: list[tuple[int, ...]]
    views: list[list[int]] | None

    @property
    def count(self) -> int:
        """How many views each image has."""
        return 1 if self.views is None else sum(map(len, self.views))

    @classmethod
    def from_sizes(cls, sizes: NDArray[np.int64], views: int | None, channels: int, layout: Layout) -> OutputStacks:
        """Stacks of images of these sizes, without a size mismatch; sizes in the order of their first views.

        views: None: one each, which are to be apart.
        """

        def image(height: int, width: int) -> tuple[int, ...]:
            return (channels, height, width) if layout == Layout.CHW else (height, width, channels)

        if views is None:
            return cls([image(*size) for size in sizes.T.tolist()], None)
        n = sizes.shape[1] // views
        found: dict[tuple[int, int], list[int]] = {}
        for view, (height, width) in enumerate(sizes[:, :views].T.tolist()):
            found.setdefault((height, width), []).append(view)
        shapes: list[tuple[int, ...]] = []
        for (height, width), several in found.items():
            shapes.append((n, *image(height, width)) if views == 1 else (n, len(several), *image(height, width)))
        return cls(shapes, list(found.values()))

    def addresses(self, stacks: Sequence[torch.Tensor]) -> NDArray[np.uint64]:
        """(N * views,): where each row's image goes, in tensors of these shapes, contiguous."""
        if self.views is None:
            return np.array([one.data_ptr() for one in stacks], dtype=np.uint64)
        made = np.empty((self.shapes[0][0], self.count), dtype=np.uint64)
        for views, stack in zip(self.views, stacks, strict=True):
            size = stack.stride(0) * stack.element_size() // len(views)
            places = np.arange(len(made) * len(views), dtype=np.uint64) * np.uint64(size) + np.uint64(stack.data_ptr())
            made[:, views] = places.reshape(-1, len(views))
        return made.reshape(-1)
