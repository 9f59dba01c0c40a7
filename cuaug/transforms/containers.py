"""Containers that choose among transforms for each sample.

A choice costs no extra launch: each member is planned for exactly the samples that take it. Members draw whether or not
they act. So a sample's result is independent of the rest of the batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cuaug._runtime.migration_hints import is_own_name
from cuaug.errors import TransformError
from cuaug.plan import Plan, Trace
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import BatchTransform, Lambda, Transform, Where, check_transforms


def refuse_batch_transforms(container: Transform, transforms: Iterable[Any]) -> None:
    """Raise a TransformError if a batch transform is among the transforms, at any depth."""
    for transform in transforms:
        if isinstance(transform, BatchTransform):
            name = type(transform.function).__name__ if isinstance(transform, Lambda) else ""
            remedy = f"use cuaug.transforms.{name}" if is_own_name(name) else "put it into the chain"
            raise TransformError(
                f"{transform!r} acts on whole batches, but {type(container).__name__} decides per sample: {remedy}"
            )
        inner = getattr(transform, "transforms", None)
        if isinstance(inner, (list, tuple)) and type(transform).__module__.startswith("cuaug."):
            refuse_batch_transforms(container, inner)


class RandomApply(Transform):
    """Apply a list of transforms with probability `p`.

    Args:
        transforms: transforms to apply, all or none.
        p: probability, per sample.
    """

    def __init__(self, transforms: Sequence[Transform], p: float = 0.5) -> None:
        self.transforms = check_transforms(transforms)
        refuse_batch_transforms(self, self.transforms)
        self.p = parameters.probability("p", p)

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        rng.next_transform(self)
        acts = rng.bernoulli(self.p)
        for transform in self.transforms:
            transform.plan(plan, rng, acts if where is None else acts & where)


class _Container(Transform):
    """Base class of containers whose members act on some samples each."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = check_transforms(transforms)
        if not self.transforms:
            raise TransformError(f"transforms of {type(self).__name__} must hold at least one transform")
        self._check_members()

    def _check_members(self) -> None:
        refuse_batch_transforms(self, self.transforms)

    def _assign(self, rng: SampleRNG) -> list[tuple[int, NDArray[np.bool_]]]:
        """Members' numbers in planning order, each with the (N,) samples it acts on."""
        raise NotImplementedError(f"{type(self).__name__}._assign")

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        rng.next_transform(self)
        # A member that is planned again counts once: how often it is planned changes no later transform's draws.
        starts: dict[int, SampleRNG] = {}
        times: Counter[int] = Counter()
        for number, acts in self._assign(rng):
            start = starts.setdefault(number, rng.of(rng.indices))
            member_rng = start.repetition(times[number]) if times[number] else rng
            times[number] += 1
            self.transforms[number].plan(plan, member_rng, acts if where is None else acts & where)


class RandomChoice(_Container):
    """Apply one random transform of a list to each sample.

    Args:
        transforms: transforms to choose from, containers included. Either all are batch transforms, as `MixUp` and
            `CutMix`, or none is. Batch transforms run on the whole batch; each sample keeps the result of its own.
        p: weight of each transform, 0 or more; weights need not add up to 1. None: equal weights.
    """

    def __init__(self, transforms: Sequence[Transform], p: Sequence[float] | None = None) -> None:
        super().__init__(transforms)
        self.p = None if p is None else parameters.numbers(p, float)
        weights = [1.0] * len(self.transforms) if self.p is None else self.p
        is_valid = all(0.0 <= weight < float("inf") for weight in weights) and sum(weights) > 0.0
        if len(weights) != len(self.transforms) or not is_valid:
            raise TransformError(
                f"p must be a weight of 0 or more for each of the {len(self.transforms)} transforms, not all 0, "
                f"not {p!r}"
            )
        self._weights = tuple(weights)

    def _check_members(self) -> None:
        on_batches = [transform.as_batch_transform() is not None for transform in self.transforms]
        if any(on_batches) and not all(on_batches):
            raise TransformError("transforms of RandomChoice must all act on whole batches, or none of them")
        self._on_batches = all(on_batches)
        if not self._on_batches:
            refuse_batch_transforms(self, self.transforms)

    def as_batch_transform(self) -> BatchTransform | None:
        return _BatchChoice(self) if self._on_batches else None

    def _assign(self, rng: SampleRNG) -> list[tuple[int, NDArray[np.bool_]]]:
        ends = np.cumsum(self._weights)
        # side="right": a member of weight 0 ends where the member before it does, so no draw selects it.
        chosen = np.searchsorted(ends, rng.uniform() * ends[-1], side="right")
        return [(number, chosen == number) for number in range(len(self.transforms))]

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        rng.next_transform(self)
        for number, acts in plan.mutually_exclusive(self._assign(rng)):
            self.transforms[number].plan(plan, rng, acts if where is None else acts & where)


class _BatchChoice(BatchTransform):
    """A `RandomChoice` among batch transforms."""

    def __init__(self, choice: RandomChoice) -> None:
        self.choice = choice
        members = [cast(BatchTransform, transform.as_batch_transform()) for transform in choice.transforms]
        self.partners = max(member.partners for member in members)
        self.keeps_range = all(member.keeps_range for member in members)
        self.takes_clips = all(member.takes_clips for member in members)

    def perform(
        self,
        images: Tensor,
        targets: list[Any] | None,
        rng: SampleRNG,
        trace: Trace,
        target_format: Mapping[str, Any],
        where: Where = None,
    ) -> tuple[Tensor, list[Any] | None, Where]:
        rng.next_transform(self.choice)
        result: Tensor | None = None
        result_targets, chosen = None, np.zeros(len(rng), dtype=bool)
        for number, acts in self.choice._assign(rng):
            member = cast(BatchTransform, self.choice.transforms[number].as_batch_transform())
            acts = acts if where is None else acts & where
            new, new_targets, acted = member.perform(images, targets, rng, trace, target_format, acts)
            acted = np.ones(len(rng), dtype=bool) if acted is None else acted
            chosen |= acted
            if result is None:
                result, result_targets = new, new_targets
                continue
            if new.shape != result.shape:
                shapes = f"{tuple(result.shape)} and {tuple(new.shape)}"
                raise TransformError(f"{self!r} must make images of one shape, not {shapes}")
            mask = torch.from_numpy(acted).to(result.device).reshape(-1, *[1] * (result.ndim - 1))
            result = torch.where(mask, new, result)
            if result_targets is not None and new_targets is not None:
                pairs = zip(new_targets, result_targets, acted.tolist(), strict=True)
                result_targets = [ours if acts_here else old for ours, old, acts_here in pairs]
        assert result is not None
        return result, result_targets, chosen

    def __repr__(self) -> str:
        return repr(self.choice)


class RandomOrder(_Container):
    """Apply a list of transforms in a random order.

    The order is drawn for each sample. K transforms are planned K times each, once per position in the order.

    Args:
        transforms: transforms to apply.
    """

    def _assign(self, rng: SampleRNG) -> list[tuple[int, NDArray[np.bool_]]]:
        order = rng.permutation(len(self.transforms))
        return [(number, place == number) for place in order.T for number in range(len(self.transforms))]


class SomeOf(_Container):
    """Apply `n` random transforms of a list to each sample (Albumentations).

    The transforms act in the order of the list.

    Args:
        transforms: transforms to choose from, containers included.
        n: number of transforms, or (fewest, most), both inclusive, to draw it from.
        replace: whether to draw with replacement. A transform drawn several times acts several times, with new
            parameters each time.
    """

    def __init__(self, transforms: Sequence[Transform], n: int | Sequence[int] = 1, replace: bool = False) -> None:
        super().__init__(transforms)
        counts = parameters.numbers(n, parameters.to_int)
        self.replace = replace
        limit = float("inf") if replace else len(self.transforms)
        if len(counts) not in (1, 2) or not 0 <= counts[0] <= counts[-1] <= limit:
            allowed = "" if replace else f" up to {limit}, the number of transforms,"
            raise TransformError(f"n must be an integer of 0 or more{allowed} or (fewest, most) of two, not {n!r}")
        self.n = counts[0] if len(counts) == 1 else counts
        self._fewest, self._most = counts[0], counts[-1]

    def _assign(self, rng: SampleRNG) -> list[tuple[int, NDArray[np.bool_]]]:
        size = len(self.transforms)
        count = rng.integers(self._fewest, self._most)
        if self.replace:
            picks = np.floor(rng.uniform(self._most) * size).astype(np.int64)
        else:
            picks = rng.permutation(size)[:, : self._most]
        picks[np.arange(picks.shape[1]) >= count[:, None]] = size  # beyond this sample's count
        repeats = self._most if self.replace else min(self._most, 1)
        assignments = []
        for number in range(size):
            times = (picks == number).sum(axis=1)
            assignments += [(number, times > repeat) for repeat in range(repeats)]
        return assignments
