"""Plans a batch from its samples' sizes, and runs further pictures through the plan; errors name the sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.limits import DEFAULT_MAX_PIXELS
from cuaug.codec import MultiChannelImage
from cuaug.devices import CpuExecutor, OutputStacks, PackedOutput, first_size_mismatch
from cuaug.errors import TransformError
from cuaug.images.interop import dtype_of
from cuaug.pipeline.clip_reader import EncodedClip
from cuaug.pipeline.image_table import ImageTable
from cuaug.plan import CompiledPlan, Layout, Plan, Trace, Type, add_groups, output_layout
from cuaug.sampling.rng import SampleRNG
from cuaug.targets import TargetNameError, Targets
from cuaug.targets.clip_targets import ClipTargets
from cuaug.targets.label_files import KeyPath
from cuaug.targets.targets import Mover
from cuaug.transforms import Compose, Transform
from cuaug.transforms.execute import warn_beyond_white

__all__ = ["PictureArrays", "PictureExecutor", "Planned", "UnfitSamplesError", "plan_samples", "size_mismatch"]


class UnfitSamplesError(TransformError):
    """The chain cannot be planned for some samples, alone or in a batch.

    Attributes:
        causes: by row of the plan. If the samples only together need too much memory, it has the largest one.
        applies_to_all: whether the chain's settings are at fault, and not single samples.
    """

    def __init__(self, causes: dict[int, Exception], name: Callable[[int], str]) -> None:
        self.causes = causes
        self.applies_to_all = any(isinstance(cause, TargetNameError) for cause in causes.values())
        if self.applies_to_all:
            causes = {row: cause for row, cause in causes.items() if isinstance(cause, TargetNameError)}
        row, cause = next(iter(causes.items()))
        super().__init__(f"{name(row)}: {cause}")


@dataclass(frozen=True)
class Planned:
    """The plan of N samples, each with one or several views.

    Attributes:
        tables: the compiled plan; its rows are sample-major, views within a sample.
        sources: (2, N) heights and widths of the samples' images.
        stacks: the output images; those of a clip are an image per frame.
        frames: number of frames of a sample that is a clip; 1 for images.
        is_clip: whether the samples are clips.
        trace: the recorded parameters.
        counts: `SampleRNG.counts` after planning, from which later segments go on.
        mover: moves the boxes, masks and keypoints in the samples' labels; None: these have none.
        is_rgb8: whether the images that come in are 8-bit RGB.
        to_uint16: the finished floats become uint16, as the images were.
        layout: of the output images.
    """

    tables: CompiledPlan
    sources: NDArray[np.int64]
    stacks: OutputStacks
    trace: Trace
    counts: Mapping[str, int]
    mover: Mover | None
    is_rgb8: bool
    to_uint16: bool
    layout: Layout
    frames: int = 1
    is_clip: bool = False

    @property
    def rows_per_sample(self) -> int:
        """Number of consecutive plan rows of a sample: its frames, each with its views."""
        return self.frames * self.stacks.count

    def regions(self) -> NDArray[np.int64]:
        """(N, 4) y0, x0, y1, x1: the region of each sample that its rows read."""
        regions, count = self.tables.regions(), self.rows_per_sample
        if count == 1:
            return regions
        by_row = regions.reshape(-1, count, 4)
        return np.concatenate([by_row[..., :2].min(axis=1), by_row[..., 2:].max(axis=1)], axis=1)


def plan_samples(
    chain: Compose,
    images: ImageTable,
    labels: Sequence[Any],
    rng: SampleRNG,
    target_type: Type | None,
    layout: Layout,
    name: Callable[[int], str],
    *,
    stack: bool = True,
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> Planned:
    """Plans a chain's first segment for N samples.

    Args:
        images: of N samples; clips have the same number of frames.
        labels: N labels.
        rng: of the N samples.
        name: the name of the i-th sample, for errors.
        stack: whether all images, or the same view of all images, must have one size.
        max_pixels: limit for each image that a pass makes.

    Raises:
        UnfitSamplesError: a transform raises a TransformError for some samples, or an image exceeds `max_pixels`.
        TransformError: the output images have different sizes.
    """
    keys = rng.indices
    first = images.objects.get(0)
    is_clip = isinstance(first, EncodedClip)
    frames = first.frames if isinstance(first, EncodedClip) else 1
    rng.is_clip = is_clip
    channels, depth = _pixel_format(images, name)
    layout = output_layout(channels, layout)
    views = chain.segments[0].views
    sources = np.array([images.rows["height"], images.rows["width"]])

    def repeat_rows(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return values if views * frames == 1 else np.repeat(values, views * frames)

    def plan_rows(rows: slice, group: int = 0) -> tuple[Plan, CompiledPlan, Mapping[str, int], Mover | None]:
        heights, widths = sources[:, rows]
        targets: Targets | ClipTargets
        if not is_clip:
            targets = Targets(labels[rows], heights, widths, **chain.target_format)
        else:
            targets = ClipTargets(labels[rows], heights, widths, frames, **chain.target_format)
        trace = Trace()
        trace.frames = frames
        plan = Plan(
            repeat_rows(heights),
            repeat_rows(widths),
            source_type=Type.UINT8 if depth == np.uint8 else Type.FLOAT32,
            channels=channels,
            group=group,
            views=views,
            trace=trace,
        )
        plan.is_uint16 = depth == np.uint16
        mover = targets.attach(plan)
        row_rng = rng.of(repeat_rows(keys[rows]))
        chain.segments[0].plan(plan, row_rng)
        tables = plan.compile(target_type, layout)
        _check_pixels(tables, max_pixels)
        if isinstance(targets, Targets):
            targets.refuse_unnamed(plan, tables)
        return plan, tables, row_rng.counts, mover if targets else None

    try:
        plan, tables, counts, mover = plan_rows(slice(None))
    except (TransformError, MemoryError) as batch_error:
        causes: dict[int, Exception] = {}
        for i in range(len(images)):  # each sample draws alone as it draws in the batch
            try:
                plan_rows(slice(i, i + 1))
            except (TransformError, MemoryError) as error:
                causes[i] = error
        if not causes and isinstance(batch_error, MemoryError):
            causes[int(sources.max(axis=0).argmax())] = batch_error
        if not causes:
            raise
        raise UnfitSamplesError(causes, name) from next(iter(causes.values()))
    if plan.needs_unit_range and depth == np.float32:
        warn_beyond_white(first.array[None])  # type: ignore[union-attr]
    sizes = tables.sizes()
    stacks: OutputStacks
    if tables.packing is not None:
        if is_clip and (not tables.packing.patch or tables.packing.is_tiles):
            raise TransformError(f"transforms: {chain.packing!r} takes images, not clips")
        stacks = PackedOutput.of(tables.packing, sizes, frames, plan.channels, layout)
    elif stack and (k := first_size_mismatch(sizes, views)) is not None:
        prefix = "" if views == 1 else f"view {k % views} of "
        different = ((f"{prefix}{name(row // (views * frames))}", *sizes[:, row]) for row in (k % views, k))
        raise size_mismatch(*different, before=next(iter(chain.segments[1:2]), None))
    else:
        stacks = OutputStacks.from_sizes(sizes, views if stack else None, plan.channels, layout)
    tables = add_groups(tables, plan.channels, lambda group: plan_rows(slice(None), group)[1])
    # Batch transforms compute with floats, and normalized images are not in [0, 1].
    keeps_depth = target_type is None and plan.target_type is None and len(chain.segments) == 1 and not plan.normalized
    is_rgb8 = channels == 3 and depth == np.uint8
    to_uint16 = depth == np.uint16 and keeps_depth
    return Planned(
        tables,
        sources,
        stacks,
        plan.trace,
        counts,
        mover,
        is_rgb8,
        to_uint16,
        layout,
        frames=frames,
        is_clip=is_clip,
    )


def _pixel_format(images: ImageTable, name: Callable[[int], str]) -> tuple[int, Any]:
    """(channels, dtype) of the images; a batch has one. Only a loader's `mode` makes others than 8-bit RGB."""
    if not isinstance(images.objects.get(0), MultiChannelImage):
        return 3, np.uint8
    items: list[Any] = [images.item(i) for i in range(len(images))]
    first = items[0].channels, items[0].depth
    for i, item in enumerate(items):
        if (item.channels, item.depth) != first:
            raise TransformError(
                f"mode: the images of a batch must have the same channels and depth: {name(0)} has {first[0]} of "
                f"{first[1]}, {name(i)} has {item.channels} of {item.depth}; use mode='RGB', 'L' or 'RGBA'"
            )
    return first


def _check_pixels(tables: CompiledPlan, max_pixels: int) -> None:
    """Checks the size of each image that a pass makes."""
    rows = tables.rows
    heights, widths = rows["y"]["out"], rows["x"]["out"]
    pixels = heights.astype(np.int64) * widths * (rows["active"] != 0)
    if pixels.size and pixels.max() > max_pixels:
        k = np.unravel_index(pixels.argmax(), pixels.shape)
        raise TransformError(
            f"the transforms make an image of {heights[k]} x {widths[k]} pixels (height x width) of it, "
            f"above the limit max_pixels={max_pixels}"
        )


def size_mismatch(*images: tuple[str, Any, Any], before: Transform | None = None) -> TransformError:
    """The error for images of different sizes, given as (name, height, width); `before` is a batch transform."""
    sizes = ", ".join(f"{name} is {height} x {width}" for name, height, width in images)
    one_size = "a transform that makes one size, such as RandomResizedCrop, CenterCrop or Resize((height, width))"
    if before is None:
        problem = "the images of a batch come out with different sizes"
        remedy = f"end the chain with {one_size}, or pass stack=False to get a list of images"
    else:
        problem = f"{before!r:.200} takes the images of a batch as one tensor, but they reach it with different sizes"
        remedy = f"put it after {one_size}"
    return TransformError(f"transforms: {problem}: {sizes} (height x width); {remedy}")


#: Further pictures of a sample, (H, W, 3) uint8 each.
PictureArrays = dict[KeyPath, NDArray[np.uint8]]


class PictureExecutor:
    """Runs a compiled plan on further pictures, on the CPU for every device, as masks are. Thread-safe.

    Args:
        planned: a plan of one view per sample.
        layout: of the images, which the pictures share.

    Raises:
        TransformError: the images are not 8-bit RGB, as the pictures are; or they are packed.
    """

    def __init__(self, planned: Planned, layout: Layout) -> None:
        if not planned.is_rgb8:
            raise TransformError("images: further pictures need a loader of 8-bit RGB images, mode='RGB'")
        if isinstance(planned.stacks, PackedOutput):
            raise TransformError("images: Patches, Tiles and PadToLargest do not take further pictures")
        self._executor = CpuExecutor(planned.tables)
        self._dtype = dtype_of(planned.tables.target_type)
        self._layout = layout
        stacks = planned.stacks
        self._shapes = stacks.shapes if stacks.views is None else [stacks.shapes[0][1:]] * stacks.shapes[0][0]

    def run(self, sample: int, picture: NDArray[np.uint8]) -> torch.Tensor:
        """The finished picture, (C, h, w), of the images' dtype.

        Args:
            sample: its row in the plan.
            picture: (H, W, 3), of its image's size.
        """
        output = torch.empty(self._shapes[sample], dtype=self._dtype)
        self._executor.run(sample, picture, output.data_ptr())
        return output.movedim(-1, -3) if self._layout == Layout.HWC else output
