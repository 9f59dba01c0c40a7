"""From the sizes of a batch's samples to its plan, with errors that name the sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.devices import Stacks, first_unlike, folded
from cuaug.errors import TransformError
from cuaug.plan import Layout, Plan, Record, Tables, Type
from cuaug.random import Draws
from cuaug.targets import Targets
from cuaug.transforms import Compose

__all__ = ["Planned", "different_sizes", "plan_samples"]


@dataclass(frozen=True)
class Planned:
    """The plan of N samples, each of which may become several images.

    Attributes:
        sources: (2, N) heights and widths of the samples' images.
        stacks: where the finished images go; the tables have as many rows for each sample, in turn, as it has views.
        record: what was drawn.
        targets: the samples' labels, in which something may have to be moved.
    """

    tables: Tables
    sources: NDArray[np.int64]
    stacks: Stacks
    record: Record
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
    draws: Draws,
    target_type: Type | None,
    layout: Layout,
    name: Callable[[int], str],
    *,
    stack: bool = True,
) -> Planned:
    """The plan of a chain's first stage.

    Args:
        items: N of them, with `height` and `width`.
        labels: theirs.
        draws: of those N.
        name: what to call the i-th of them.
        stack: whether all images, or the same view of all, must have one size.

    Raises:
        TransformError: what a transform raised, with the name of the first sample that it raises it for; or the images
            would have different sizes.
    """
    keys = draws.indices
    views = chain.stages[0].views
    sources = np.empty((2, len(items)), dtype=np.int64)
    sources[0], sources[1] = [item.height for item in items], [item.width for item in items]

    def each_view(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return values if views == 1 else np.repeat(values, views)

    def plan_some(some: slice) -> tuple[Plan, Tables, Targets]:
        heights, widths = sources[:, some]
        targets = Targets(labels[some], heights, widths, **chain.how_targets_are)
        plan = Plan(each_view(heights), each_view(widths), views=views)
        targets.attach(plan)
        chain.stages[0].plan(plan, draws.of(each_view(keys[some])))
        return plan, plan.tables(target_type, layout), targets

    try:
        plan, tables, targets = plan_some(slice(None))
    except TransformError:
        for i in range(len(items)):  # on its own, each draws what it draws in the batch
            try:
                plan_some(slice(i, i + 1))
            except TransformError as error:
                raise TransformError(f"{name(i)}: {error}") from error
        raise
    sizes = tables.sizes()
    if stack and (k := first_unlike(sizes, views)) is not None:
        of = "" if views == 1 else f"view {k % views} of "
        raise different_sizes(*((f"{of}{name(j // views)}", *sizes[:, j]) for j in (k % views, k)))
    stacks = Stacks.of(sizes, views if stack else None, plan.channels, layout)
    return Planned(folded(tables), sources, stacks, plan.record, targets)


def different_sizes(*some: tuple[str, Any, Any]) -> TransformError:
    """`some` are samples' names, with the heights and widths that they come out with."""
    which = ", ".join(f"{name} is {height} x {width}" for name, height, width in some)
    return TransformError(
        f"the transforms leave images of different sizes, which cannot be one batch: {which} (height x width); "
        "end the chain with a transform that gives one size, such as RandomResizedCrop, CenterCrop or "
        "Resize((height, width)), or give stack=False for a list of images"
    )
