"""The images of a batch while it is being made: stacks of them, or a tensor for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.pipeline.planning import different_sizes
from cuaug.plan import Layout

__all__ = ["Images"]


class Images(NamedTuple):
    """What became of some samples.

    Attributes:
        tensors: a stack (N, ...); of views of several sizes one for each size; or N images that are apart.
        views: which of each image's views are in each stack; None where the images are apart, of any size each.
    """

    tensors: list[torch.Tensor]
    views: list[list[int]] | None

    @property
    def given(self) -> Any:
        """What a `Batch` has: a tensor, a tuple of several, or a list of those that are apart."""
        if self.views is None:
            return self.tensors
        return self.tensors[0] if len(self.tensors) == 1 else tuple(self.tensors)

    def first(self, count: int) -> Images:
        """The first `count` samples'."""
        if self.views is None:
            return self._replace(tensors=self.tensors[:count])
        return self._replace(tensors=[stack[:count] for stack in self.tensors])

    def some(self, which: NDArray[np.int64]) -> Images:
        """Those of these samples, by their numbers; of stacks copies."""
        if self.views is None:
            return self._replace(tensors=[self.tensors[i] for i in which.tolist()])
        return self._replace(tensors=[stack[torch.from_numpy(which).to(stack.device)] for stack in self.tensors])

    def joined(
        self,
        places: NDArray[np.int64],
        others: Images,
        filled: NDArray[np.int64],
        layout: Layout,
        name: Callable[[int], str],
    ) -> Images:
        """These and others, in the order of their places in the batch; `name` tells whose they are.

        Raises:
            TransformError: stacks that differ in size.
        """
        if self.views is None:
            together = self.tensors + others.tensors
        else:
            sizes, other_sizes = self._sizes(layout), others._sizes(layout)
            for view, size in sizes.items():
                if size != other_sizes[view]:
                    of = "" if len(sizes) == 1 else f"view {view} of "
                    several = (places, size), (filled, other_sizes[view])
                    raise different_sizes(*((f"{of}{name(int(where[0]))}", *size) for where, size in several))
            together = [torch.cat(pair) for pair in zip(self.tensors, others.tensors, strict=True)]
        order = np.argsort(np.concatenate([places, filled]), kind="stable")
        return self._replace(tensors=together).some(order)

    def _sizes(self, layout: Layout) -> dict[int, tuple[int, int]]:
        """The height and width of each view's images, in stacks."""
        side = slice(-2, None) if layout == Layout.CHW else slice(-3, -1)
        sizes: dict[int, tuple[int, int]] = {}
        for views, stack in zip(self.views or [], self.tensors, strict=True):
            height, width = stack.shape[side]
            sizes |= dict.fromkeys(views, (height, width))
        return sizes
