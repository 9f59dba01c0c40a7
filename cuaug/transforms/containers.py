"""Chains that choose: all or none of their transforms, one, some, or all in a random order, for each sample.

A choice costs no launch: each member is planned once for every turn it may have, for the samples that take it then.
Members draw from positions of their own whether or not they act, so a sample's result depends on nothing beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cuaug.errors import TransformError
from cuaug.plan import Plan, Trace
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import BatchTransform, Transform, Where, members

__all__ = ["RandomApply", "RandomChoice", "RandomOrder", "SomeOf", "check_planned"]


def check_planned(choice: Transform, transforms: Iterable[Any]) -> None:
    """Raises a TransformError if a function of whole batches is among them, at any depth."""
    for transform in transforms:
        if isinstance(transform, BatchTransform):
            raise TransformError(
                f"{type(transform).__name__} acts on whole batches: it cannot be a part of {type(choice).__name__}, "
                "which decides for each sample"
            )
        within = getattr(transform, "transforms", None)
        if isinstance(within, (list, tuple)) and type(transform).__module__.startswith("cuaug."):
            check_planned(choice, within)


class RandomApply(Transform):
    """Applies all of `transforms` to a sample, or none, with probability p; decided for each sample."""

    def __init__(self, transforms: Sequence[Transform], p: float = 0.5) -> None:
        self.transforms = members(transforms)
        check_planned(self, self.transforms)
        self.p = arguments.probability("p", p)

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        rng.next_transform()
        acts = rng.bernoulli(self.p)
        for transform in self.transforms:
            transform.plan(plan, rng, acts if where is None else acts & where)


class _Choice(Transform):
    """Members that act on some samples each."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = members(transforms)
        if not self.transforms:
            raise TransformError(f"{type(self).__name__} needs at least one transform to choose from")
        self._check_members()

    def _check_members(self) -> None:
        check_planned(self, self.transforms)

    def _turns(self, rng: SampleRNG) -> list[tuple[Transform, NDArray[np.bool_]]]:
        """Members in the order in which they are planned, and on which of the N samples each acts then."""
        raise NotImplementedError(f"{type(self).__name__}._turns")

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        rng.next_transform()
        for transform, acts in self._turns(rng):
            transform.plan(plan, rng, acts if where is None else acts & where)


class RandomChoice(_Choice):
    """Applies one of `transforms` to each sample.

    Args:
        transforms: to choose from; any transform, `Compose` and other choices included. Or functions of whole batches,
            as `MixUp` and `CutMix`: each runs for the whole batch, and each sample gets what its own made.
        p: a weight, 0 or more, for each of them; they need not add up to 1. None: all alike.
    """

    def __init__(self, transforms: Sequence[Transform], p: Sequence[float] | None = None) -> None:
        super().__init__(transforms)
        self.p = None if p is None else arguments.values(p, float)
        weights = [1.0] * len(self.transforms) if self.p is None else self.p
        fits = all(0.0 <= weight < float("inf") for weight in weights) and sum(weights) > 0.0
        if len(weights) != len(self.transforms) or not fits:
            raise TransformError(
                f"p is a weight of 0 or more for each of the {len(self.transforms)} transforms, not all 0, not {p!r}"
            )
        self._weights = tuple(weights)

    def _check_members(self) -> None:
        of_batches = [transform.stage() is not None for transform in self.transforms]
        if any(of_batches) and not all(of_batches):
            raise TransformError("RandomChoice is among functions of whole batches or among other transforms, not both")
        self._of_batches = all(of_batches)
        if not self._of_batches:
            check_planned(self, self.transforms)

    def stage(self) -> BatchTransform | None:
        return _OneOf(self) if self._of_batches else None

    def _turns(self, rng: SampleRNG) -> list[tuple[Transform, NDArray[np.bool_]]]:
        ends = np.cumsum(self._weights)
        # "right": a member of weight 0 ends where the one before it does, and is never the first beyond a number.
        chosen = np.searchsorted(ends, rng.uniform() * ends[-1], side="right")
        return [(transform, chosen == number) for number, transform in enumerate(self.transforms)]

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        rng.next_transform()
        for transform, acts in plan.mutually_exclusive(self._turns(rng)):
            transform.plan(plan, rng, acts if where is None else acts & where)


class _OneOf(BatchTransform):
    """A `RandomChoice` among functions of whole batches."""

    def __init__(self, choice: RandomChoice) -> None:
        self.choice = choice
        stages = [cast(BatchTransform, transform.stage()) for transform in choice.transforms]
        self.partners = max(stage.partners for stage in stages)
        self.keeps_range = all(stage.keeps_range for stage in stages)

    def perform(
        self,
        images: Tensor,
        targets: list[Any] | None,
        rng: SampleRNG,
        trace: Trace,
        target_format: Mapping[str, Any],
        where: Where = None,
    ) -> tuple[Tensor, list[Any] | None, Where]:
        rng.next_transform()
        made: Tensor | None = None
        mixed, chosen = None, np.zeros(len(rng), dtype=bool)
        for transform, acts in self.choice._turns(rng):
            stage = transform.stage()
            assert stage is not None
            acts = acts if where is None else acts & where
            one, its, acted = stage.perform(images, targets, rng, trace, target_format, acts)
            acted = np.ones(len(rng), dtype=bool) if acted is None else acted
            chosen |= acted
            if made is None:
                made, mixed = one, its
                continue
            if one.shape != made.shape:
                raise TransformError(f"{self!r} made images of {tuple(made.shape)} and of {tuple(one.shape)}")
            its_own = torch.from_numpy(acted).to(made.device).reshape(-1, *[1] * (made.ndim - 1))
            made = torch.where(its_own, one, made)
            if mixed is not None and its is not None:
                mixed = [new if yes else old for new, old, yes in zip(its, mixed, acted.tolist(), strict=True)]
        assert made is not None
        return made, mixed, chosen

    def __repr__(self) -> str:
        return repr(self.choice)


class RandomOrder(_Choice):
    """Applies all of `transforms`, in an order drawn for each sample.

    K transforms are planned K times each, once for each place in the order.
    """

    def _turns(self, rng: SampleRNG) -> list[tuple[Transform, NDArray[np.bool_]]]:
        order = rng.permutation(len(self.transforms))
        return [(transform, place == number) for place in order.T for number, transform in enumerate(self.transforms)]


class SomeOf(_Choice):
    """Applies n of `transforms` to each sample, drawn alike and applied in the order of the list (Albumentations').

    Args:
        transforms: to choose from; any transform, `Compose` and other choices included.
        n: how many; (fewest, most), both included, draws that for each sample.
        replace: whether one may be drawn several times; it then acts as often, with other parameters each time.
    """

    def __init__(self, transforms: Sequence[Transform], n: int | Sequence[int] = 1, replace: bool = False) -> None:
        super().__init__(transforms)
        numbers = arguments.values(n, arguments.index)
        self.replace = replace
        most = float("inf") if replace else len(self.transforms)
        if len(numbers) not in (1, 2) or not 0 <= numbers[0] <= numbers[-1] <= most:
            allowed = "" if replace else f" up to {most}, the number of transforms,"
            raise TransformError(f"n is an integer of 0 or more{allowed} or (fewest, most) of two, not {n!r}")
        self.n = numbers[0] if len(numbers) == 1 else numbers
        self._fewest, self._most = numbers[0], numbers[-1]

    def _turns(self, rng: SampleRNG) -> list[tuple[Transform, NDArray[np.bool_]]]:
        kinds = len(self.transforms)
        count = rng.integers(self._fewest, self._most)
        if self.replace:
            picks = np.floor(rng.uniform(self._most) * kinds).astype(np.int64)
        else:
            picks = rng.permutation(kinds)[:, : self._most]
        picks[np.arange(picks.shape[1]) >= count[:, None]] = kinds  # beyond what this sample takes
        turns = []
        for number, transform in enumerate(self.transforms):
            times = (picks == number).sum(axis=1)
            turns += [(transform, times > turn) for turn in range(self._most if self.replace else min(self._most, 1))]
        return turns
