"""Runs chains and functions on images in memory, and describes the launches of a chain.

`run_chain` is the engine of `Compose(...)(x)`, `apply` that of `cuaug.functional`, `explain` that of
`Compose.explain`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from cuaug import devices
from cuaug._runtime.huge_pages import empty
from cuaug.errors import ChainWarning, TransformError, warn_caller
from cuaug.images.image_types import is_clip
from cuaug.images.interop import InputImages, disable_compile, dtype_of, open_images, to_uint16
from cuaug.plan import BoxesKeypoints, Layout, Plan, Trace, Type, add_groups, output_layout
from cuaug.sampling.rng import SampleRNG
from cuaug.targets import Targets
from cuaug.targets.targets import Mover
from cuaug.transforms.base import BatchTransform, Transform, Where
from cuaug.transforms.pictures import Pictures, refuse_pictures

#: A tensor, an array or a PIL image: a function returns the kind that it takes.
ImageT = TypeVar("ImageT")


def draw_seed(generator: torch.Generator | None) -> tuple[int, int]:
    """Draws (seed, epoch) for a `SampleRNG` from a generator; None for torch's default one.

    Every DataLoader worker starts each epoch with the same copy of an explicit generator. The worker's own seed, new in
    each epoch, then serves as the epoch, so that their draws differ.
    """
    if generator is None:
        return int(torch.randint(0, 2**63 - 1, (), dtype=torch.int64, device="cpu")), 0
    seed = torch.randint(0, 2**63 - 1, (), dtype=torch.int64, generator=generator, device=generator.device)
    worker = torch.utils.data.get_worker_info()
    return int(seed), 0 if worker is None else worker.seed


def warn_beyond_white(images: Any, made_by: Transform | None = None) -> None:
    """Warn the caller of float images, an array or tensor (N, H, W, C), that are not in [0, 1].

    Those that a user's function made are warned of at its definition: a Loader's threads have no caller.

    It reads every 8th row and column, up to twice white: a bicubic resize may overshoot. Images on a GPU are not read:
    that would wait for it.
    """
    if getattr(images, "is_cuda", False) or not float(images[:, ::8, ::8].max()) > 2:
        return
    owner = "it has" if made_by is None else f"{made_by!r:.200} returns"
    message = (
        f"image: {owner} float values beyond 1, such as levels up to 255, but color operations and Normalize take "
        "floats in [0, 1]: divide it by 255, or pass uint8"
    )
    code = getattr(getattr(made_by, "function", None), "__code__", None)
    if code is None:
        warn_caller(message, ChainWarning)
    else:
        warnings.warn_explicit(message, ChainWarning, code.co_filename, code.co_firstlineno)


@disable_compile
def apply(images: Any, write: Callable[[Plan], None], *, views: int = 1) -> Any:
    """Applies the operations that `write` puts into a plan.

    Args:
        images: any input of `cuaug.images.interop`.
        write: fills a plan with `views` consecutive rows per image; it is called once per group of channels.

    Raises:
        TransformError: unsupported images, or images of one batch that end up with different sizes.
    """
    inputs = open_images(images)
    (result,), _ = run_plan(inputs, write, views=views)
    return inputs.finish(result)


def run_plan(
    inputs: InputImages,
    write: Callable[[Plan], None],
    targets: list[Any] | None = None,
    *,
    target_format: Mapping[str, Any] | None = None,
    views: int = 1,
    trace: Trace | None = None,
    target_type: Type | None = None,
    normalized: bool = False,
    made_by: Transform | None = None,
) -> tuple[list[torch.Tensor], list[Any] | None]:
    """Plans and runs the operations of `write`, and moves the targets.

    Args:
        target_type: type of the result; None for the type of the plan, else of the input.
        normalized: float input is not in [0, 1].
        made_by: the batch transform that made the images.

    Returns:
        (N, C, H, W), or (N, views, C, H, W) for several views, in the memory layout of `inputs`; one stack per size of
        view. And the moved targets.
    """
    n, height, width, _ = inputs.images.shape
    source_type = Type.UINT8 if inputs.images.dtype == torch.uint8 else Type.FLOAT32
    moving = None if targets is None else Targets(targets, [height] * n, [width] * n, **(target_format or {}))

    movers: list[Mover] = []

    def make_plan(group: int) -> Plan:
        plan = Plan(
            [height] * n * views,
            [width] * n * views,
            source_type=source_type,
            channels=inputs.channels,
            group=group,
            views=views,
            trace=trace.again() if group and trace is not None else trace,
            normalized=normalized,
        )
        plan.target_type, plan.is_uint16 = inputs.target_type, inputs.is_uint16
        if moving is not None:
            movers.append(moving.attach(plan))
        write(plan)
        return plan

    plan = make_plan(0)
    if plan.needs_unit_range and not inputs.is_uint16:
        warn_beyond_white(inputs.images, made_by)
    keeps_dtype = plan.target_type is None and target_type is None and not (inputs.is_uint16 and plan.normalized)
    target_type = plan.result_type() if target_type is None else target_type
    layout = inputs.layout if target_type == Type.UINT8 else inputs.float_layout
    layout = output_layout(plan.channels, layout)
    compiled = add_groups(
        plan.compile(target_type, layout), plan.channels, lambda group: make_plan(group).compile(target_type, layout)
    )
    if moving is not None:
        moving.refuse_unnamed(plan, compiled)

    sizes = compiled.sizes()
    if devices.first_size_mismatch(sizes, views) is not None:
        examples = sorted(set(map(tuple, sizes.T.tolist())))[:4]
        raise TransformError(f"the images of one batch come out with different sizes (height, width): {examples}")
    is_cut = compiled.packing is not None and compiled.packing.patch > 0
    stacks = devices.OutputStacks.from_sizes(sizes, views, plan.channels, layout)
    if is_cut and compiled.packing is not None:
        stacks = devices.PackedOutput.of(compiled.packing, sizes, 1, plan.channels, layout)
    outputs = [empty(shape, dtype_of(compiled.target_type), inputs.images.device) for shape in stacks.shapes]
    devices.run(compiled, inputs.groups, outputs, stacks)
    if keeps_dtype and inputs.is_uint16:
        outputs = [to_uint16(stack) for stack in outputs]
    elif keeps_dtype and inputs.is_double:
        outputs = [stack.double() for stack in outputs]
    if is_cut:
        outputs = [patches.view(n, -1, *patches.shape[-1 if patches.ndim < 4 else -3 :]) for patches in outputs]
    elif layout == Layout.HWC:
        outputs = [stack.movedim(-1, -3) for stack in outputs]
    return outputs, [*map(movers[0](compiled), range(n))] if moving else targets


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
    rng.epoch = None
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
    target_format = {**target_format, "relative_boxes": None}
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
                segment,
                opened,
                targets,
                target_format,
                batch_rng,
                trace,
                segment_type,
                normalized,
                segments[number - 1],
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
    made_by: Transform | None = None,
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
        made_by=made_by,
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


class _RecordingPlan(Plan):
    """A plan that records which transform contributes to which launch."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.launches: list[dict[str, str]] = [{}]  # effect by transform name, for each launch

    def perform(self, transform: Any, where: Where, params: dict[str, Any]) -> None:
        table, name = self._table, type(transform).__name__
        written_before, passes_before = len(table.appended), self.passes
        super().perform(transform, where, params)
        self.launches += [{} for _ in range(passes_before, self.passes)]
        touched = [place // len(self) for place, _ in table.appended[written_before:]] or [table.pass_number]
        for number in np.unique(np.concatenate(touched)):
            effects = self.launches[number]
            if len(table.appended) > written_before:
                effects[name] = "pixel operations"
            elif any(effect.startswith("geometry") for effect in effects.values()):
                effects.setdefault(name, "geometry, folded into the same sampling step")
            else:
                effects.setdefault(name, "geometry" if number < passes_before else "reads the previous launch's output")

    def ends(self, number: int) -> list[str]:
        """Why launch `number` is not the last one, and for how many images."""
        names = [step.transform for step in self.trace.steps]
        reasons: Counter[tuple[str, str]] = Counter()
        for barrier in self._table.barriers:
            if number < len(barrier.samples) and barrier.samples[number]:
                reasons[names[barrier.step], barrier.reason] += int(barrier.samples[number])
        return [
            f"  ends at {name} for {count} images of {len(self)}: {reason}" for (name, reason), count in reasons.items()
        ]


def explain(
    segments: Sequence[Transform], height: int, width: int, *, batch_size: int, channels: int, is_float: bool
) -> str:
    """The text of `Compose.explain` for these segments."""
    total, lines = 0, []
    for number, segment in enumerate(segments):
        if isinstance(segment, BatchTransform):
            lines += [f"batch transform: {segment!r}", "    images are stored before it and read after it"]
            continue
        rows = batch_size * segment.views
        source = Type.FLOAT32 if is_float else Type.UINT8
        plan = _RecordingPlan(
            [height] * rows, [width] * rows, source_type=source, channels=channels, views=segment.views
        )
        plan.points = BoxesKeypoints(rows, (), (), (), ())  # some transforms need boxes
        segment.plan(plan, SampleRNG(0, number, np.repeat(np.arange(batch_size), segment.views)))
        is_float = plan.is_float
        height, width = (int(sizes[0]) for sizes in plan.sizes)
        for launch, effects in enumerate(plan.launches):
            total += 1
            lines.append(f"launch {total}")
            lines += [f"    {name:<24}{effect}" for name, effect in effects.items()] or ["    the images unchanged"]
            lines += plan.ends(launch)
    head = f"{batch_size} images: {total} launch{'es' if total > 1 else ''}"
    return "\n".join([head, *lines])
