"""Chains of transforms: planned as one where they can be, in stages where a function needs a whole batch."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from cuaug.errors import TransformError
from cuaug.plan import Plan, Record, Script
from cuaug.random import Draws
from cuaug.transforms.base import BatchTransform, Transform, Where, members

__all__ = ["Compose"]


class Compose(Transform):
    """Several transforms, one after the other, in as few passes over the pixels as they allow.

    Args:
        transforms: the chain.
        generator: a `torch.Generator` that calls draw their seed from; None: torch's default one, so that
            `torch.manual_seed` and a DataLoader's worker seeds decide.

    Calling it takes and returns what you have: a torch tensor, (C, H, W) or (N, C, H, W), CPU or CUDA; a NumPy or CuPy
    array, (H, W), (H, W, C) or (N, H, W, C); or a PIL image. C is 1 or 3; uint8, or floats in [0, 1]. Every image of a
    batch is drawn for on its own. Pixels are not rounded between transforms. A PIL image comes back as one while it is
    uint8, and as a float (C, H, W) tensor after `ToDtype` or `Normalize`.

    Raises:
        TransformError: a type, shape or size that does not fit, named.
    """

    def __init__(self, transforms: Sequence[Transform], *, generator: Any = None) -> None:
        self.transforms = members(transforms)
        self.generator = generator
        self.views = int(np.prod([transform.views for transform in self.transforms]))
        if sum(transform.views > 1 for transform in self.transforms) > 1:
            raise TransformError("only one transform of a chain can make several images of one")

    @cached_property
    def stages(self) -> list[Compose | BatchTransform]:
        """The chain as it runs: what is planned together, then in turn functions of whole batches, and plans."""
        stages: list[Compose | BatchTransform] = []
        together: list[Transform] = []
        for transform in _flat(self.transforms):
            if isinstance(transform, BatchTransform):
                stages += [Compose(together), transform] if together or not stages else [transform]
                together = []
            else:
                together.append(transform)
        return stages + [Compose(together)] if together or not stages else stages

    @property
    def partners(self) -> int:
        """How many samples beyond a batch its functions look at."""
        return sum(stage.partners for stage in self.stages if isinstance(stage, BatchTransform))

    def plan(self, plan: Plan, draws: Draws, where: Where = None) -> None:
        for transform in self.transforms:
            transform.plan(plan, draws, where)

    def __call__(self, image: Any) -> Any:
        return self._run(image, Record())

    def trace(self, image: Any) -> tuple[Any, list[Any]]:
        """The transformed image or batch, and what was applied to it.

        Returns:
            the result of calling it, and for an image a list of {"step", "transform", "params"}, one for each transform
            that acted, in order, of Python's numbers and lists; for a batch a list of those lists. `replay` does it
            again.
        """
        record = Record()
        result = self._run(image, record)
        told = record.params(len(image) if np.ndim(image) == 4 else 1)
        return result, told if np.ndim(image) == 4 else told[0]

    def replay(self, params: Sequence[Any], image: Any) -> Any:
        """Does again what was applied: to this image, or batch of as many images, with nothing drawn.

        Args:
            params: as `trace` gave it, or a loader's `Batch.params`; each entry may have been changed by you.
            image: as for calls; of the size that the parameters were drawn for, where they depend on it.

        Raises:
            TransformError: parameters of another chain, or for another number of images.
        """
        told: Sequence[Any] = params if np.ndim(image) == 4 else [params]
        if np.ndim(image) == 4 and (len(told) != len(image) or any(isinstance(steps, Mapping) for steps in told)):
            raise TransformError(f"params are those of {len(told)} images, but there are {len(image)} images")
        record = Record(Script(told))
        result = self._run(image, record)
        record.check_end()
        return result

    def _run(self, image: Any, record: Record) -> Any:
        # Only a call needs pixels and so a device; planning, which the loader does, needs neither.
        from cuaug.apply import apply_chain, draw_seed

        return apply_chain(self, image, *draw_seed(self.generator), record)

    def __getstate__(self) -> dict[str, Any]:
        # A generator does not pickle into a spawned worker; its state does, as bytes: torch shares tensors by handles.
        state = self.__dict__.copy()
        if self.generator is not None:
            state["generator"] = self.generator.get_state().numpy().tobytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["generator"] is not None:
            import torch

            generator = torch.Generator()
            generator.set_state(torch.frombuffer(bytearray(state["generator"]), dtype=torch.uint8))
            state = {**state, "generator": generator}
        self.__dict__.update(state)

    def __repr__(self) -> str:
        inner = ",\n".join(textwrap.indent(repr(transform), "    ") for transform in self.transforms)
        return f"Compose([\n{inner},\n])" if self.transforms else "Compose([])"


def _flat(transforms: Sequence[Transform]) -> list[Transform]:
    """Chains within the chain that have functions of batches are taken apart."""
    flat: list[Transform] = []
    for transform in transforms:
        within = isinstance(transform, Compose) and len(transform.stages) > 1
        flat += _flat(transform.transforms) if within else [transform]  # type: ignore[attr-defined]
    return flat
