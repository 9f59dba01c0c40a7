"""Runs plans and chains on images that are in hand: behind `Compose(...)(x)`, `cuaug.functional`, and a loader's
functions of whole batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug import devices
from cuaug.errors import TransformError
from cuaug.interop import Opened, dtype_of, open_images
from cuaug.plan import Layout, Plan, Record, Type
from cuaug.random import Draws
from cuaug.targets import Targets
from cuaug.transforms.base import BatchTransform

if TYPE_CHECKING:
    from cuaug.transforms.compose import Compose

__all__ = ["apply", "apply_chain", "draw_seed", "run_stages"]

# Each stage of a chain draws from positions of its own, this far apart.
_STAGE_POSITIONS = 1 << 20


def draw_seed(generator: torch.Generator | None) -> tuple[int, int]:
    """(seed, epoch) for `Draws`, from the generator, or from torch's default one.

    DataLoader workers, and each epoch's, begin with the same copy of an explicit generator: the worker's seed, which
    DataLoader draws anew each epoch, tells their draws apart.
    """
    if generator is None:
        return int(torch.randint(0, 2**63 - 1, (), dtype=torch.int64)), 0
    seed = torch.randint(0, 2**63 - 1, (), dtype=torch.int64, generator=generator, device=generator.device)
    worker = torch.utils.data.get_worker_info()
    return int(seed), 0 if worker is None else worker.seed


def apply(images: Any, write: Callable[[Plan], None], *, views: int = 1) -> Any:
    """What `write` puts into the images' plan, done; its rows are each image `views` times, as is the result.

    Raises:
        TransformError: images that are not supported, or that come out of one batch with different sizes.
    """
    opened = open_images(images)
    return opened.finish(_run_plan(opened, write, views=views)[0])


def apply_chain(
    chain: Compose, images: Any, targets: list[Any] | None, seed: int, epoch: int, record: Record
) -> tuple[Any, list[Any] | None]:
    """The chain on images in hand, and their targets, which draw as samples 0, 1, ... of that epoch."""
    opened = open_images(images)
    if targets is not None and len(targets) != len(opened.images):
        raise TransformError(f"there are {len(opened.images)} images, but {len(targets)} targets")
    keys = np.arange(len(opened.images))
    first = chain.stages[0]
    assert not isinstance(first, BatchTransform)
    draws = Draws(seed, epoch, np.repeat(keys, first.views))
    made, targets = _run_plan(opened, _planner(first, draws), chain, targets, views=first.views, record=record)
    if len(chain.stages) > 1:
        made = made.movedim(-1, -3) if opened.layout == Layout.HWC else made
        made, targets = run_stages(chain, made, targets, Draws(seed, epoch, keys), record)
        made = made.movedim(-3, -1) if opened.layout == Layout.HWC and made.ndim > 3 else made
    return opened.finish(made), targets


def run_stages(
    chain: Compose, images: torch.Tensor, targets: list[Any] | None, draws: Draws, record: Record, *, extra: int = 0
) -> tuple[torch.Tensor, list[Any] | None]:
    """All stages of a chain but the first.

    Args:
        images: (N + extra, C, H, W): what the first stage made.
        targets: N + extra of them, or None.
        draws: of those N + extra samples.
        extra: samples that are but partners of the others, for what looks at several. Where there are too few, the
            first ones are taken once more.

    Returns:
        what became of the N images and their targets.
    """
    count = len(images) - extra
    for number, stage in enumerate(chain.stages[1:], 1):
        drawn = draws.at(number * _STAGE_POSITIONS)
        if isinstance(stage, BatchTransform):
            if extra < stage.partners:
                rows = np.arange(count + stage.partners) % count
                images, targets = images[torch.from_numpy(rows).to(images.device)], _pick(targets, rows)
                extra = stage.partners
            extra -= stage.partners
            of = drawn.of(drawn.indices[: count + extra])
            images, targets, _ = stage.perform(images, targets, of, record, chain.how_targets_are)
        else:
            opened = open_images(images)
            write = _planner(stage, drawn.of(np.repeat(drawn.indices[: len(images)], stage.views)))
            made, targets = _run_plan(opened, write, chain, targets, views=stage.views, record=record)
            images = opened.finish(made)
    return images[:count], None if targets is None else targets[:count]


def _planner(chain: Compose, draws: Draws) -> Callable[[Plan], None]:
    return lambda plan: chain.plan(plan, draws)


def _pick(targets: list[Any] | None, rows: NDArray[np.int64]) -> list[Any] | None:
    return None if targets is None else [targets[i] for i in rows.tolist()]


def _run_plan(
    opened: Opened,
    write: Callable[[Plan], None],
    chain: Compose | None = None,
    targets: list[Any] | None = None,
    *,
    views: int = 1,
    record: Record | None = None,
) -> tuple[torch.Tensor, list[Any] | None]:
    """(N, C, H, W) in the opened images' layout, or (N, views, C, H, W) where there are several; and the targets.

    What `write` writes is a part of `chain`, which says how targets are to be read.
    """
    n, height, width, _ = opened.images.shape
    source_type = Type.UINT8 if opened.images.dtype == torch.uint8 else Type.FLOAT32
    rows = n * views
    plan = Plan(
        [height] * rows, [width] * rows, source_type=source_type, channels=opened.channels, views=views, record=record
    )
    plan.target_type = opened.target_type
    moving = None
    if targets is not None and chain is not None:
        moving = Targets(targets, [height] * n, [width] * n, **chain.how_targets_are)
        moving.attach(plan)
    write(plan)
    as_double = opened.is_double and plan.target_type is None
    tables = devices.folded(plan.tables(layout=opened.layout))

    h, w = (sizes[0] for sizes in tables.sizes())
    if any((sizes != sizes[0]).any() for sizes in tables.sizes()):
        sizes = sorted(set(zip(*(size.tolist() for size in tables.sizes()), strict=True)))
        raise TransformError(f"the images of one batch come out with different sizes (height, width): {sizes[:4]}")
    shape = (rows, plan.channels, h, w) if opened.layout == Layout.CHW else (rows, h, w, plan.channels)
    target = torch.empty(tuple(int(v) for v in shape), dtype=dtype_of(tables.target_type), device=opened.images.device)
    devices.run(tables, opened.images, target, views=views)
    target = target.double() if as_double else target
    targets = moving.moved(tables) if moving else targets
    return target if views == 1 else target.unflatten(0, (n, views)), targets
