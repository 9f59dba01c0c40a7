"""What a transform is.

A transform is plain data. `make_params` draws, one row per sample; `write` puts what was drawn into the plan. Neither
touches a pixel. A transform that wraps others overrides `plan`. One that needs the finished images of a whole batch is
a `BatchTransform`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cuaug.errors import TransformError
from cuaug.plan import Plan, Trace, Where
from cuaug.plan.trace import check_params
from cuaug.sampling.rng import SampleRNG

__all__ = ["BatchTransform", "RandomTransform", "Transform", "Where", "members"]


class Transform:
    """Base of all transforms. A subclass keeps each argument of `__init__` under its own name.

    Arguments are read when it is made: to change one, make another. Only a chain's `transforms` may be edited.
    """

    #: How many images it makes of each, whatever comes after it in a chain.
    views: int = 1

    def make_params(self, rng: SampleRNG, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> dict[str, Any]:
        """What `write` will need, drawn anew for each of the N samples: arrays of N rows.

        heights and widths are (N,), in pixels.
        """
        return {}

    def write(self, plan: Plan, where: Where, *args: Any, **params: Any) -> None:
        """Adds this transform with these parameters to the samples where `where` is true (None: all)."""
        raise NotImplementedError(f"{type(self).__name__}.write")

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        """Draws and writes. Each transform draws from a position of its own, whether or not it acts on a sample."""
        rng.next_transform()
        plan.perform(self, where, self.make_params(rng, *plan.sizes))

    def stage(self) -> BatchTransform | None:
        """This, as a function of whole batches; None: it is planned."""
        return None

    def __call__(self, image: Any, *target: Any) -> Any:
        """The transformed image or batch, with its target if there is one; see `Compose`."""
        from cuaug.transforms.compose import Compose

        return Compose([self])(image, *target)

    def __repr__(self) -> str:
        parts = []
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value = getattr(self, name, parameter.default)
            if parameter.default is parameter.empty or not _same(value, parameter.default):
                parts.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


def _same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b)) if hasattr(a, "__array__") else a == b


class RandomTransform(Transform):
    """A transform that acts on each sample with probability p."""

    p: float

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        rng.next_transform()
        acts = rng.bernoulli(self.p)
        plan.perform(self, acts if where is None else acts & where, self.make_params(rng, *plan.sizes))


class BatchTransform(Transform):
    """A transform of the finished images of a batch, as a tensor: it ends a plan, and what follows it begins another.

    It cannot be a part of what decides for each sample (`RandomApply`, ...), except of a `RandomChoice` among such.
    """

    #: How many samples beyond the batch it looks at: those that follow in the epoch's order, so that a sample's are the
    #: same whatever the batch size and the ranks; of a batch that comes without an order, its first ones.
    partners: int = 0
    #: Whether it depends on the images' unit, as a fill does: then a Loader converts them behind it, not before.
    has_fill: bool = False
    #: Whether normalized images are still normalized behind it, as they are where it only mixes them.
    keeps_range: bool = False
    #: Whether `run` is also given what the chain says of targets, `box_format` and `mask_fill`.
    reads_targets: bool = False

    def run(
        self, images: Tensor, targets: list[Any] | None, *args: Any, **params: Any
    ) -> tuple[Tensor, list[Any] | None]:
        """The new images and targets.

        Args:
            images: (N + partners, C, H, W), uint8 or floating point, on any device; not to be written to.
            targets: N + partners of them, of any kind; None: there are none.
            params: what `make_params` drew for the N.

        Returns:
            N images, and N targets or None.
        """
        raise NotImplementedError(f"{type(self).__name__}.run")

    def perform(
        self,
        images: Tensor,
        targets: list[Any] | None,
        rng: SampleRNG,
        trace: Trace,
        target_format: Mapping[str, Any],
        where: Where = None,
    ) -> tuple[Tensor, list[Any] | None, Where]:
        """Draws, notes and runs: for N samples, with `partners` or more behind them.

        Returns:
            what `run` gives for all of them, and for which it is meant: `where`, unless the record says otherwise.
        """
        rng.next_transform()
        n = len(rng)
        heights, widths = (np.full(n, side) for side in images.shape[-2:])
        params = self.make_params(rng, heights, widths)
        check_params(self, params, n)
        step = trace.record(self, where, params, n)
        given = None if targets is None else targets[: n + self.partners]
        more = target_format if self.reads_targets else {}
        made, mixed = self.run(images[: n + self.partners], given, **step.params, **more)
        if not isinstance(made, torch.Tensor) or len(made) != n:
            what = f"a tensor of shape {tuple(made.shape)}" if isinstance(made, torch.Tensor) else type(made).__name__
            raise TransformError(f"{self!r} of a batch of {n} images made {what}, not a tensor of {n}")
        return made, mixed, step.where

    def stage(self) -> BatchTransform | None:
        return self

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        raise TransformError(f"{type(self).__name__} acts on whole batches: it cannot be a part of another transform")


def members(transforms: Iterable[Transform]) -> list[Transform]:
    """The transforms of a chain, checked."""
    if not isinstance(transforms, Iterable):
        raise TransformError(f"transforms is a sequence of transforms, not {transforms!r}")
    chain = list(transforms)
    for transform in chain:
        if isinstance(transform, type) and issubclass(transform, Transform):
            name = transform.__name__
            raise TransformError(f"the class {name} is not a transform itself: give one of it, {name}(...)")
        if isinstance(transform, (list, tuple)):
            raise TransformError("a list is not a cuaug transform: give what it holds, as *[...] or Compose([...])")
        if not isinstance(transform, Transform):
            raise TransformError(
                f"{transform!r} is not a cuaug transform; to run a function of your own on a batch of images, wrap it "
                "in cuaug.transforms.Lambda"
            )
    return chain
