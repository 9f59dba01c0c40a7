"""Runs chains on images that are in hand, stage by stage: plans, and functions of whole batches between them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.apply import run_plan
from cuaug.errors import TransformError
from cuaug.interop import InputImages, dtype_of, open_images
from cuaug.plan import Trace, Type
from cuaug.sampling.rng import SampleRNG
from cuaug.targets.parse import may_move
from cuaug.transforms.base import BatchTransform, Transform
from cuaug.transforms.compose import Compose
from cuaug.transforms.dtype import Normalize, ToDtype

__all__ = ["restacked", "rows_of", "run_chain", "run_stages", "typed_stage"]

Stages = Sequence[Transform]
How = Mapping[str, Any]
# Each stage of a chain draws from positions of its own, this far apart.
_STAGE_POSITIONS = 1 << 20


def run_chain(
    stages: Stages, images: Any, targets: list[Any] | None, target_format: How, seed: int, epoch: int, trace: Trace
) -> tuple[Any, list[Any] | None]:
    """The chain on images in hand, and their targets, which draw as samples 0, 1, ... of that epoch."""
    opened = open_images(images)
    if targets is not None and len(targets) != len(opened.images):
        raise TransformError(f"there are {len(opened.images)} images, but {len(targets)} targets")
    rng = SampleRNG(seed, epoch, np.arange(len(opened.images)))
    made, targets = _run_planned(stages[0], opened, targets, target_format, rng, trace)
    if len(stages) > 1:
        is_float = opened.images.is_floating_point()
        made, targets = run_stages(stages, made, targets, target_format, rng, trace, is_float=is_float)
    finished = [opened.finish(stack) for stack in made]
    return finished[0] if len(made) == 1 else tuple(finished), targets


def rows_of(labels: Any) -> list[Any] | None:
    """The labels of a batch that are one tensor or array, (N,) or (N, C); None: they are not.

    What has more axes may be masks or boxes, which would stay where they are.
    """
    if not isinstance(labels, (torch.Tensor, np.ndarray)) or labels.ndim not in (1, 2) or may_move(labels):
        return None
    return list(labels.cpu() if isinstance(labels, torch.Tensor) else labels)


def restacked(given: Any, rows: list[Any], labels: list[Any]) -> Any:
    """What has become of the rows of a tensor or array, as one again."""
    if all(map(operator.is_, rows, labels)):
        return given
    try:
        if isinstance(given, torch.Tensor):
            return torch.stack([torch.as_tensor(label, device="cpu") for label in labels]).to(given.device)
        return np.stack(labels)
    except (TypeError, ValueError, RuntimeError):
        kinds = ", ".join(sorted({f"{type(label).__name__}{tuple(getattr(label, 'shape', ()))}" for label in labels}))
        raise TransformError(
            f"labels come out of the chain as {kinds}, of which no tensor or array is made: pass them as a list"
        ) from None


def typed_stage(stages: Stages) -> int:
    """The stage that makes the type that is asked for: behind it are only functions that take any."""
    number = len(stages) - 1
    while number and isinstance(stage := stages[number], BatchTransform) and not stage.has_fill:
        number -= 1
    return number


def run_stages(
    stages: Stages,
    stacks: list[torch.Tensor],
    targets: list[Any] | None,
    target_format: How,
    rng: SampleRNG,
    trace: Trace,
    *,
    extra: int = 0,
    target_type: Type | None = None,
    is_float: bool = False,
) -> tuple[list[torch.Tensor], list[Any] | None]:
    """All stages of a chain but the first.

    Args:
        stacks: (N + extra, C, H, W), what the first stage made; several only of views that it made in several sizes.
        targets: N + extra of them, or None; `target_format` says how they are read.
        draws: of those N + extra samples.
        extra: samples that are only partners of the others, for what looks at several. Where there are too few, the
            first ones are taken once more.
        target_type: what the images of `typed_stage` become, as with `ToDtype(scale=True)`; None: what the stages make.
        is_float: whether the first stage was given floats.

    Returns:
        what became of the N images and their targets.
    """
    count, typed = len(stacks[0]) - extra, typed_stage(stages)
    normalized = _normalized(stages[0], is_float, False)
    for number, stage in enumerate(stages[1:], 1):
        drawn = rng.at(number * _STAGE_POSITIONS)
        if len(stacks) > 1:
            sizes = ", ".join(f"{height} x {width}" for *_, height, width in (stack.shape for stack in stacks))
            raise TransformError(f"{stage!r:.200} takes images of one size, and comes after views of {sizes} pixels")
        (images,) = stacks
        if isinstance(stage, BatchTransform):
            if extra < stage.partners:
                rows = np.arange(count + stage.partners) % count
                images, targets = images[torch.from_numpy(rows).to(images.device)], _pick(targets, rows)
                extra = stage.partners
            extra -= stage.partners
            of = drawn.of(drawn.indices[: count + extra])
            images, targets, _ = stage.perform(images, targets, of, trace, target_format)
            normalized &= stage.keeps_range
            if number == typed and target_type is not None:
                images = _of_type(images, target_type, normalized)
            stacks = [images]
        else:
            opened = open_images(images)
            of = drawn.of(drawn.indices[: len(images)])
            type_now = target_type if number == typed else None
            made, targets = _run_planned(stage, opened, targets, target_format, of, trace, type_now, normalized)
            normalized = _normalized(stage, images.is_floating_point(), normalized)
            stacks = [opened.finish(stack) for stack in made]
    return [stack[:count] for stack in stacks], None if targets is None else targets[:count]


def _run_planned(
    stage: Transform,
    opened: InputImages,
    targets: list[Any] | None,
    target_format: How,
    rng: SampleRNG,
    trace: Trace,
    target_type: Type | None = None,
    normalized: bool = False,
) -> tuple[list[torch.Tensor], list[Any] | None]:
    each = rng.of(np.repeat(rng.indices, stage.views))
    return run_plan(
        opened,
        lambda plan: stage.plan(plan, each),
        targets,
        target_format=target_format,
        views=stage.views,
        trace=trace,
        target_type=target_type,
        normalized=normalized,
    )


def _of_type(images: torch.Tensor, target_type: Type, normalized: bool) -> torch.Tensor:
    dtype = dtype_of(target_type)
    if images.dtype == dtype or (images.is_floating_point() and dtype.is_floating_point) or 0 in images.shape:
        return images.to(dtype)
    opened = open_images(images)
    (made,), _ = run_plan(opened, lambda plan: None, target_type=target_type, normalized=normalized)
    return opened.finish(made)


def _normalized(stage: Transform, is_float: bool, normalized: bool) -> bool:
    """Whether images are beyond [0, 1] after a planned stage, before which they are as the arguments say."""
    for part in stage.parts if isinstance(stage, Compose) else ():
        if isinstance(part, Normalize):
            is_float = normalized = True
        elif isinstance(part, ToDtype):  # floats stay as they are, whatever its scale
            now_float = part.dtype != torch.uint8
            normalized = now_float and (normalized if is_float else not part.scale)
            is_float = now_float
    return normalized


def _pick(targets: list[Any] | None, rows: NDArray[np.int64]) -> list[Any] | None:
    return None if targets is None else [targets[i] for i in rows.tolist()]
