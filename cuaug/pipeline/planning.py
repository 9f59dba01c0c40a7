"""From the sizes of a batch's samples to its plan, with errors that name the sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.devices import OutputStacks, first_size_mismatch, fuse_luts
from cuaug.errors import TransformError
from cuaug.limits import DEFAULT_MAX_PIXELS
from cuaug.plan import CompiledPlan, Layout, Plan, Trace, Type
from cuaug.sampling.rng import SampleRNG
from cuaug.targets import Targets
from cuaug.transforms import Compose

__all__ = ["Planned", "UnfitSamplesError", "different_sizes", "plan_samples"]


class UnfitSamplesError(TransformError):
    """The chain cannot be planned for some samples, whatever the others are.

    Attributes:
        causes: by the samples' places in the batch. Where they find no room in memory together, it is the largest.
    """

    def __init__(self, causes: dict[int, Exception], name: Callable[[int], str]) -> None:
        self.causes = causes
        first, cause = next(iter(causes.items()))
        super().__init__(f"{name(first)}: {cause}")


@dataclass(frozen=True)
class Planned:
    """The plan of N samples, each of which may become several images.

    Attributes:
        sources: (2, N) heights and widths of the samples' images.
        stacks: where the finished images go; the tables have as many rows for each sample, in turn, as it has views.
        record: what was drawn.
        targets: the samples' labels, in which something may have to be moved.
    """

    tables: CompiledPlan
    sources: NDArray[np.int64]
    stacks: OutputStacks
    trace: Trace
    targets: Targets

    def regions(self) -> NDArray[np.int64]:
        """(N, 4): y0, x0, y1, x1 of the pixels that any view of each sample reads."""
        regions, views = self.tables.regions(), self.stacks.count
        if views == 1:
            return regions
        each = regions.reshape(-1, views, 4)
        return np.concatenate([each[..., :2].min(axis=1), each[..., 2:].max(axis=1)], axis=1)


def plan_samples(
    chain: Compose,
    items: Sequence[Any],
    labels: Sequence[Any],
    rng: SampleRNG,
    target_type: Type | None,
    layout: Layout,
    name: Callable[[int], str],
    *,
    stack: bool = True,
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> Planned:
    """The plan of a chain's first stage.

    Args:
        items: N of them, with `height` and `width`.
        labels: theirs.
        draws: of those N.
        name: what to call the i-th of them.
        stack: whether all images, or the same view of all, must have one size.
        max_pixels: limit for each image that a pass makes.

    Raises:
        UnfitSamplesError: a transform raises a TransformError for some samples, or makes too large an image of them.
        TransformError: the images would have different sizes.
    """
    keys = rng.indices
    views = chain.segments[0].views
    sources = np.empty((2, len(items)), dtype=np.int64)
    sources[0], sources[1] = [item.height for item in items], [item.width for item in items]

    def each_view(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return values if views == 1 else np.repeat(values, views)

    def plan_some(some: slice) -> tuple[Plan, CompiledPlan, Targets]:
        heights, widths = sources[:, some]
        targets = Targets(labels[some], heights, widths, **chain.target_format)
        plan = Plan(each_view(heights), each_view(widths), views=views)
        targets.attach(plan)
        chain.segments[0].plan(plan, rng.of(each_view(keys[some])))
        tables = plan.compile(target_type, layout)
        _check_pixels(tables, max_pixels)
        return plan, tables, targets

    try:
        plan, tables, targets = plan_some(slice(None))
    except (TransformError, MemoryError) as whole:
        causes: dict[int, Exception] = {}
        for i in range(len(items)):  # on its own, each draws what it draws in the batch
            try:
                plan_some(slice(i, i + 1))
            except (TransformError, MemoryError) as error:
                causes[i] = error
        if not causes and isinstance(whole, MemoryError):
            causes[int(sources.max(axis=0).argmax())] = whole
        if not causes:
            raise
        raise UnfitSamplesError(causes, name) from next(iter(causes.values()))
    sizes = tables.sizes()
    if stack and (k := first_size_mismatch(sizes, views)) is not None:
        of = "" if views == 1 else f"view {k % views} of "
        raise different_sizes(*((f"{of}{name(j // views)}", *sizes[:, j]) for j in (k % views, k)))
    stacks = OutputStacks.of(sizes, views if stack else None, plan.channels, layout)
    return Planned(fuse_luts(tables), sources, stacks, plan.trace, targets)


def _check_pixels(tables: CompiledPlan, max_pixels: int) -> None:
    """Refuses images, finished or between two passes, that are larger than any picture may be."""
    rows = tables.rows
    heights, widths = rows["y"]["out"], rows["x"]["out"]
    pixels = heights.astype(np.int64) * widths * (rows["active"] != 0)
    if pixels.size and pixels.max() > max_pixels:
        k = np.unravel_index(pixels.argmax(), pixels.shape)
        raise TransformError(
            f"the transforms make an image of {heights[k]} x {widths[k]} pixels (height x width) of it, "
            f"above the limit max_pixels={max_pixels}"
        )


def different_sizes(*some: tuple[str, Any, Any]) -> TransformError:
    """`some` are samples' names, with the heights and widths that they come out with."""
    which = ", ".join(f"{name} is {height} x {width}" for name, height, width in some)
    return TransformError(
        f"the transforms leave images of different sizes, which cannot be one batch: {which} (height x width); "
        "end the chain with a transform that gives one size, such as RandomResizedCrop, CenterCrop or "
        "Resize((height, width)), or give stack=False for a list of images"
    )
