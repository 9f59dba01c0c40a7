"""What a transform is, and how transforms are chained.

A transform is plain data. `make_params` draws, one row per sample; `write` puts what was drawn into the plan. Neither
touches a pixel. A transform that wraps others overrides `plan`.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.random import Draws
from cuaug.transforms import arguments

__all__ = ["Compose", "RandomApply", "RandomTransform", "Transform"]

Where = NDArray[np.bool_] | None


class Transform:
    """Base of all transforms. A subclass keeps each argument of `__init__` under its own name."""

    def make_params(self, draws: Draws, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> dict[str, Any]:
        """What `write` will need, drawn anew for each of the N samples: arrays of N rows.

        heights and widths are (N,), in pixels.
        """
        return {}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        """Adds this transform with these parameters to the samples where `where` is true (None: all)."""
        raise NotImplementedError(f"{type(self).__name__}.write")

    def plan(self, plan: Plan, draws: Draws, where: Where = None) -> None:
        """Draws and writes. Each transform draws from a position of its own, whether or not it acts on a sample."""
        draws.next_transform()
        plan.perform(self, where, self.make_params(draws, *plan.sizes))

    def __call__(self, image: Any) -> Any:
        """The transformed image or batch; see `Compose`."""
        return Compose([self])(image)

    def __repr__(self) -> str:
        parts = []
        for name, parameter in inspect.signature(type(self).__init__).parameters.items():
            value = getattr(self, name, parameter.default)
            if name != "self" and (parameter.default is parameter.empty or not _same(value, parameter.default)):
                parts.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


def _same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b)) if hasattr(a, "__array__") else a == b


class RandomTransform(Transform):
    """A transform that acts on each sample with probability p."""

    p: float

    def plan(self, plan: Plan, draws: Draws, where: Where = None) -> None:
        draws.next_transform()
        acts = draws.bernoulli(self.p)
        plan.perform(self, acts if where is None else acts & where, self.make_params(draws, *plan.sizes))


def _check(transforms: Iterable[Transform]) -> list[Transform]:
    if not isinstance(transforms, Iterable):
        raise TransformError(f"transforms is a sequence of transforms, not {transforms!r}")
    chain = list(transforms)
    for transform in chain:
        if not isinstance(transform, Transform):
            raise TransformError(
                f"{transform!r} is not a cuaug transform: a chain is planned before any pixel is touched, so it takes "
                "transforms from cuaug.transforms; run your own functions on the tensors that come out"
            )
    return chain


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
        self.transforms = _check(transforms)
        self.generator = generator

    def plan(self, plan: Plan, draws: Draws, where: Where = None) -> None:
        for transform in self.transforms:
            transform.plan(plan, draws, where)

    def __call__(self, image: Any) -> Any:
        # Only a call needs pixels and so a device; planning, which the loader does, needs neither.
        from cuaug.apply import apply, draw_seed

        seed, epoch = draw_seed(self.generator)
        return apply(image, lambda plan: self.plan(plan, Draws(seed, epoch, np.arange(len(plan)))))

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


class RandomApply(Transform):
    """Applies all of `transforms` to a sample, or none, with probability p; decided for each sample."""

    def __init__(self, transforms: Sequence[Transform], p: float = 0.5) -> None:
        self.transforms = _check(transforms)
        self.p = arguments.probability("p", p)

    def plan(self, plan: Plan, draws: Draws, where: Where = None) -> None:
        draws.next_transform()
        acts = draws.bernoulli(self.p)
        for transform in self.transforms:
            transform.plan(plan, draws, acts if where is None else acts & where)
