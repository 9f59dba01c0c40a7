"""Chains of transforms: planned as one where they can be, in stages where a function needs a whole batch."""

from __future__ import annotations

import math
import operator
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from cuaug.errors import TransformError
from cuaug.interop import disable_compile
from cuaug.plan import BOX_FORMATS, Plan, Replay, Trace
from cuaug.plan.trace import is_recorded_step
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import BatchTransform, Transform, Where, members

__all__ = ["Compose"]

_DEFAULTS = {"box_format": "xyxy", "mask_fill": 0}


class Compose(Transform):
    """Several transforms, one after the other, in as few passes over the pixels as they allow.

    Args:
        transforms: the chain; the attribute of this name may be edited later.
        generator: a `torch.Generator` that calls draw their seed from; None: torch's default one, so that
            `torch.manual_seed` and a DataLoader's worker seeds decide.
        box_format: "xyxy", "xywh" or "cxcywh": of boxes in targets that do not tell it.
        mask_fill: what masks of classes in targets show where there is no image; those of instances show 0.

    Both count for all of the chain, also where a chain within it says them.

    Calling it takes and returns what you have: a torch tensor, (C, H, W) or (N, C, H, W), CPU or CUDA; a NumPy or CuPy
    array, (H, W), (H, W, C) or (N, H, W, C); or a PIL image. C is 1 or 3; uint8, or floats in [0, 1]. Each image of a
    batch has draws of its own; on the CPU they share the threads of `torch.set_num_threads`. What mixes images
    (`MixUp`, ...) takes batches alone. Pixels are not rounded between transforms. A PIL image comes back as one while
    it is uint8, and as a float (C, H, W) tensor after `ToDtype` or `Normalize`.

    A second argument is the image's target, or a list of those of a batch; the result is then (image, target). Boxes,
    masks and keypoints in it are moved as the image is; `cuaug.targets.Targets` says what is found where. A batch's
    labels may also be one tensor or array, (N,) or (N, C): they come back as one, from `MixUp` and `CutMix` float32
    (N, num_classes), and are handed through where nothing mixes them.

    Raises:
        TransformError: a type, shape or size that does not fit, named.
    """

    #: What it was when it was looked at last.
    _seen: _Seen | None = None

    def __init__(
        self,
        transforms: Sequence[Transform],
        *,
        generator: Any = None,
        box_format: str = "xyxy",
        mask_fill: int = 0,
    ) -> None:
        self.transforms = members(transforms)
        self.generator = generator
        if generator is not None and not isinstance(generator, torch.Generator):
            raise TransformError(f"generator is a torch.Generator or None, not {generator!r}")
        self.box_format = arguments.one_of("box_format", box_format, BOX_FORMATS)
        self.mask_fill = arguments.whole("mask_fill", mask_fill)
        self._look()

    def _look(self) -> _Seen:
        """The chain as it is: `transforms`, here and within, may have been edited since it was looked at last."""
        parts, seen = _parts(self.transforms), self._seen
        if seen is None or len(parts) != len(seen.parts) or not all(map(operator.is_, parts, seen.parts)):
            views = [transform.views for transform in members(self.transforms)]
            others = (part for part in parts if isinstance(part, Transform) and not isinstance(part, Compose))
            if sum(part.views > 1 for part in others) > 1:
                raise TransformError("only one transform of a chain can make several images of one")
            chains = [self, *(part for part in parts if isinstance(part, Compose))]
            seen = self._seen = _Seen(parts, math.prod(views), {name: _agreed(name, chains) for name in _DEFAULTS}, [])
        return seen

    @property
    def views(self) -> int:  # type: ignore[override]
        """How many images it makes of each."""
        return self._look().views

    @property
    def stages(self) -> list[Compose | BatchTransform]:
        """The chain as it runs: what is planned together, then in turn functions of whole batches, and plans."""
        stages = self._look().stages
        if not stages:
            stages[:] = self._in_stages()  # not added: another thread may do the same
        return stages

    def _in_stages(self) -> list[Compose | BatchTransform]:
        stages: list[Compose | BatchTransform] = []
        together: list[Transform] = []
        for transform in _flat(self.transforms):
            if (stage := transform.stage()) is not None:
                stages += [Compose(together), stage] if together or not stages else [stage]
                together = []
            else:
                together.append(transform)
        return stages + [Compose(together)] if together or not stages else stages

    @property
    def partners(self) -> int:
        """How many samples beyond a batch its functions look at."""
        return sum(stage.partners for stage in self.stages if isinstance(stage, BatchTransform))

    @property
    def parts(self) -> list[Any]:
        """Its transforms, each followed by those that it holds, at any depth."""
        return self._look().parts

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        for transform in self.transforms:
            transform.plan(plan, rng, where)

    @property
    def target_format(self) -> dict[str, Any]:
        """What `Targets` needs to know to read them."""
        return self._look().target_format

    def __call__(self, image: Any, *target: Any) -> Any:
        return self._run(image, target, Trace())

    def trace(self, image: Any, *target: Any) -> tuple[Any, list[Any]]:
        """The transformed image or batch, and what was applied to it.

        Returns:
            the result of calling it, and for an image a list of {"step", "transform", "params"}, one for each transform
            that acted, in order, of Python's numbers and lists; for a batch a list of those lists. What acted within
            `MultiView` is told for each "view". `replay` does it again.
        """
        trace = Trace()
        result = self._run(image, target, trace)
        told = trace.params(len(image) if np.ndim(image) == 4 else 1)
        return result, told if np.ndim(image) == 4 else told[0]

    def replay(self, params: Sequence[Any], image: Any, *target: Any) -> Any:
        """Does again what was applied: to this image, or batch of as many images, with nothing drawn.

        Args:
            params: as `trace` gave it, or a loader's `Batch.params`; each entry may have been changed by you.
            image: as for calls; of the size that the parameters were drawn for, where they depend on it.

        Raises:
            TransformError: parameters of another chain, of another kind, or for another number of images.
        """
        told: Sequence[Any] = params if np.ndim(image) == 4 else [params]
        if not all(isinstance(steps, Sequence) and all(map(is_recorded_step, steps)) for steps in told):
            raise TransformError(
                "params is the second thing that trace returns: a list of steps, for a batch a list of such lists"
            )
        if np.ndim(image) == 4 and len(told) != len(image):
            raise TransformError(f"params are those of {len(told)} images, but there are {len(image)} images")
        trace = Trace(Replay(told))
        result = self._run(image, target, trace)
        trace.check_end()
        return result

    def explain(
        self, height: int = 375, width: int = 500, *, batch_size: int = 256, channels: int = 3, is_float: bool = False
    ) -> str:
        """How the chain will run, in words: the kernel launches a batch takes, what each does, and why it ends.

        Args:
            height, width: of the images, in pixels.
            batch_size: more images make no more launches, but meet more of what chance may bring.
            channels, is_float: what the images are.
        """
        from cuaug.transforms.explain import explain

        text = explain(self.stages, height, width, batch_size=batch_size, channels=channels, is_float=is_float)
        return f"{len(self.transforms)} transforms, {text}"

    @disable_compile
    def _run(self, image: Any, target: tuple[Any, ...], trace: Trace) -> Any:
        # Only a call needs pixels and so a device; planning, which the loader does, needs neither.
        from cuaug.apply import draw_seed
        from cuaug.transforms.execute import restacked, rows_of, run_chain

        if len(target) > 1:
            raise TransformError(f"a chain takes an image and at most one target, not {len(target)}")
        is_batch = getattr(image, "ndim", 3) == 4
        for stage in () if is_batch else self.stages:
            if isinstance(stage, BatchTransform) and stage.partners:
                raise TransformError(
                    f"{stage!r} mixes the images of a batch: use it in a Loader or call it on (N, C, H, W)"
                )
        rows = rows_of(target[0]) if is_batch and target else None
        if is_batch and target and rows is None and not isinstance(target[0], list):
            raise TransformError(
                f"the targets of a batch are a list of one for each image, not {type(target[0])}; "
                "labels may also be a tensor or array, (N,) or (N, C)"
            )
        targets = (rows or target[0] if is_batch else [target[0]]) if target else None
        seed, epoch = draw_seed(self.generator)
        made, targets = run_chain(self.stages, image, targets, self.target_format, seed, epoch, trace)
        if targets is None:
            return made
        return made, restacked(target[0], rows, targets) if rows else targets if is_batch else targets[0]

    def __getstate__(self) -> dict[str, Any]:
        # A generator does not pickle into a spawned worker; its state does, as bytes: torch shares tensors by handles.
        state = {name: value for name, value in self.__dict__.items() if name != "_seen"}
        if self.generator is not None:
            state["generator"] = str(self.generator.device), self.generator.get_state().numpy().tobytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["generator"] is not None:
            device, numbers = state["generator"]
            generator = torch.Generator(device)
            generator.set_state(torch.frombuffer(bytearray(numbers), dtype=torch.uint8))
            state = {**state, "generator": generator}
        self.__dict__.update(state)

    def __repr__(self) -> str:
        inner = ",\n".join(textwrap.indent(repr(transform), "    ") for transform in self.transforms)
        how = "".join(f", {name}={value!r}" for name, value in self.target_format.items() if value != _DEFAULTS[name])
        return f"Compose([\n{inner},\n]{how})" if self.transforms else f"Compose([]{how})"


class _Seen(NamedTuple):
    """What a chain of these parts is; its stages, once they are asked for."""

    parts: list[Any]
    views: int
    target_format: dict[str, Any]
    stages: list[Compose | BatchTransform]


def _parts(transforms: Iterable[Any]) -> list[Any]:
    """The transforms, each followed by those that it holds, at any depth."""
    parts: list[Any] = []
    for transform in transforms:
        parts.append(transform)
        if isinstance(within := getattr(transform, "transforms", None), (list, tuple)):
            parts += _parts(within)
    return parts


def _agreed(name: str, chains: Iterable[Compose]) -> Any:
    """What a chain and those within it say that is not the default."""
    said = {getattr(chain, name) for chain in chains} - {_DEFAULTS[name]}
    if len(said) > 1:
        one, other = sorted(said)[:2]
        raise TransformError(f"{name} is one for a chain and those within it, not both {one!r} and {other!r}")
    return said.pop() if said else _DEFAULTS[name]


def _flat(transforms: Sequence[Transform]) -> list[Transform]:
    """The transforms, with chains among them that have functions of whole batches replaced by what they hold."""
    flat: list[Transform] = []
    for transform in transforms:
        within = isinstance(transform, Compose) and len(transform.stages) > 1
        flat += _flat(transform.transforms) if within else [transform]  # type: ignore[attr-defined]
    return flat
