"""Runs the segments of a chain on images in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from cuaug.apply import run_plan
from cuaug.errors import TransformError
from cuaug.image_types import is_clip
from cuaug.interop import InputImages, dtype_of, open_images
from cuaug.plan import Plan, Trace, Type
from cuaug.sampling.rng import SampleRNG
from cuaug.targets import Targets
from cuaug.transforms.base import BatchTransform, Transform
from cuaug.transforms.pictures import Pictures, refuse_pictures

__all__ = ["run_chain", "run_segments", "typed_segment"]

Segments = Sequence[Transform]
TargetFormat = Mapping[str, Any]


def run_chain(
    segments: Segments,
    images: Any,
    targets: list[Any] | None,
    target_format: TargetFormat,
    seed: int,
    epoch: int,
    trace: Trace,
) -> tuple[Any, list[Any] | None]:
    """Run a chain on N images or clips and their targets, which draw as samples 0 ... N - 1 of the epoch.

    Each further picture in the targets is planned anew, for its own channels and dtype. The same random numbers and the
    same boxes give the same parameters.
    """
    for segment in segments:
        images = segment.prepare(images)
    opened = open_images(images)
    frames = trace.frames = opened.frames
    pictures = Pictures(targets or (), target_format)
    if pictures.paths:
        refuse_pictures(segments)
        if is_clip(images):
            raise TransformError("images: further pictures belong to images, not to clips")
    if targets is not None and frames > 1:
        size = opened.images.shape[1:3]
        # Here errors number clips.
        moving = Targets(pictures.targets, *([side] * len(targets) for side in size), **target_format)
        trace.one_target_per_clip = bool(moving)
    # All frames of a clip draw as one sample, and each takes a copy of its target.
    given = None if targets is None else [target for target in pictures.targets for _ in range(frames)]
    rng = SampleRNG(seed, epoch, np.arange(len(opened.images)) // frames, is_clip=is_clip(images))
    stacks, moved = _run_planned(segments[0], opened, given, target_format, rng, trace)
    if len(segments) > 1:
        is_float = opened.images.is_floating_point()
        stacks, moved = run_segments(segments, stacks, moved, target_format, rng, trace, is_float=is_float)
    for path in pictures.paths:
        other = pictures.open(path, *opened.images.shape[1:3])
        rng = SampleRNG(seed, epoch, np.arange(len(opened.images)))
        (stack,), _ = _run_planned(segments[0], other, given, target_format, rng, trace.again())
        moved = pictures.put(moved or (), path, other.finish(stack))
    finished = [opened.finish(stack) for stack in stacks]
    moved = None if moved is None else moved[::frames]
    return finished[0] if len(stacks) == 1 else tuple(finished), moved


def typed_segment(segments: Segments) -> int:
    """The number of the segment that makes the requested dtype; only batch transforms of any dtype follow it."""
    number = len(segments) - 1
    while number and isinstance(segment := segments[number], BatchTransform) and not segment.has_fill:
        number -= 1
    return number


def run_segments(
    segments: Segments,
    stacks: list[torch.Tensor],
    targets: list[Any] | None,
    target_format: TargetFormat,
    rng: SampleRNG,
    trace: Trace,
    *,
    extra: int = 0,
    target_type: Type | None = None,
    is_float: bool = False,
) -> tuple[list[torch.Tensor], list[Any] | None]:
    """Run all segments of a chain but the first.

    Args:
        stacks: the first segment's images, (N + extra, C, H, W); several stacks for views of several sizes. For clips
            N and `extra` count frames; `trace.frames` frames make a clip.
        targets: N + extra targets, or None.
        target_format: the keyword arguments of `Targets`.
        rng: the random numbers of the N + extra samples, after the first segment; it advances.
        extra: samples at the end that only serve as partners. Where they are too few, the first samples follow again.
        target_type: dtype that `typed_segment` converts to, as `ToDtype(scale=True)`; None: the segments decide.
        is_float: whether the first segment's input was float.

    Returns:
        The N images and their targets.
    """
    count, typed = len(stacks[0]) - extra, typed_segment(segments)
    _, normalized = segments[0].range_after(is_float, False)
    for number, segment in enumerate(segments[1:], 1):
        if len(stacks) > 1:
            sizes = ", ".join(f"{height} x {width}" for *_, height, width in (stack.shape for stack in stacks))
            raise TransformError(f"{segment!r:.200} needs images of one size, but follows views of {sizes} pixels")
        (images,) = stacks
        if isinstance(segment, BatchTransform):
            partners = segment.partners * trace.frames
            if extra < partners:
                rows = np.arange(count + partners) % count
                images = images[torch.from_numpy(rows).to(images.device)]
                targets = None if targets is None else [targets[i] for i in rows.tolist()]
                extra = partners
            extra -= partners
            batch_rng = rng.of(rng.indices[: count + extra])
            images, targets, _ = segment.perform(images, targets, batch_rng, trace, target_format)
            normalized &= segment.keeps_range
            if number == typed and target_type is not None:
                images = _to_type(images, target_type, normalized)
            stacks = [images]
        else:
            if images.ndim != 4:  # five axes are views here, not clips
                raise TransformError(
                    f"images of {segment!r:.200} must be (N, C, H, W), not {tuple(images.shape)}: put it before "
                    "transforms that make several views"
                )
            opened = open_images(images)
            batch_rng = rng.of(rng.indices[: len(images)])
            segment_type = target_type if number == typed else None
            planned, targets = _run_planned(
                segment, opened, targets, target_format, batch_rng, trace, segment_type, normalized
            )
            _, normalized = segment.range_after(images.is_floating_point(), normalized)
            stacks = [opened.finish(stack) for stack in planned]
        rng.skip(batch_rng.counts)
    return [stack[:count] for stack in stacks], None if targets is None else targets[:count]


def _run_planned(
    segment: Transform,
    opened: InputImages,
    targets: list[Any] | None,
    target_format: TargetFormat,
    rng: SampleRNG,
    trace: Trace,
    target_type: Type | None = None,
    normalized: bool = False,
) -> tuple[list[torch.Tensor], list[Any] | None]:
    counts: Mapping[str, int] = {}

    def write(plan: Plan) -> None:
        nonlocal counts
        view_rng = rng.of(np.repeat(rng.indices, segment.views))  # each group of channels takes the same draws
        segment.plan(plan, view_rng)
        counts = view_rng.counts

    result = run_plan(
        opened,
        write,
        targets,
        target_format=target_format,
        views=segment.views,
        trace=trace,
        target_type=target_type,
        normalized=normalized,
    )
    rng.skip(counts)
    return result


def _to_type(images: torch.Tensor, target_type: Type, normalized: bool) -> torch.Tensor:
    dtype = dtype_of(target_type)
    if images.dtype == dtype or (images.is_floating_point() and dtype.is_floating_point) or 0 in images.shape:
        return images.to(dtype)
    opened = open_images(images)
    (converted,), _ = run_plan(opened, lambda plan: None, target_type=target_type, normalized=normalized)
    return opened.finish(converted)
