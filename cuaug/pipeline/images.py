"""The images of a batch while it is being made: stacks of them, or a tensor for each."""

from __future__ import annotations

import itertools
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
        tensors: a stack (N, ...); of views of several sizes one for each size; or, where `apart`, N images.
        apart: whether they are in no stack, and may have any size each.
    """

    tensors: list[torch.Tensor]
    apart: bool

    @property
    def given(self) -> Any:
        """What a `Batch` has: a tensor, a tuple of several, or a list of those that are apart."""
        return self.tensors if self.apart else self.tensors[0] if len(self.tensors) == 1 else tuple(self.tensors)

    def first(self, count: int) -> Images:
        """The first `count` samples'."""
        return self._replace(tensors=self.tensors[:count] if self.apart else [stack[:count] for stack in self.tensors])

    def some(self, which: NDArray[np.int64]) -> Images:
        """Those of these samples, by their numbers; of stacks copies."""
        if self.apart:
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
        if self.apart:
            together = self.tensors + others.tensors
        else:
            if [stack.shape[1:] for stack in self.tensors] != [stack.shape[1:] for stack in others.tensors]:
                side = slice(-2, None) if layout == Layout.CHW else slice(-3, -1)
                sizes = ([tuple(stack.shape[side]) for stack in images.tensors] for images in (self, others))
                (h, w), (other_h, other_w) = next(pair for pair in itertools.product(*sizes) if pair[0] != pair[1])
                raise different_sizes((name(int(places[0])), h, w), (name(int(filled[0])), other_h, other_w))
            together = [torch.cat(pair) for pair in zip(self.tensors, others.tensors, strict=True)]
        order = np.argsort(np.concatenate([places, filled]), kind="stable")
        return self._replace(tensors=together).some(order)
