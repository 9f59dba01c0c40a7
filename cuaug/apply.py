"""Runs a plan on images that the user has in hand: behind `Compose(...)(x)` and `cuaug.functional`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cuaug import devices
from cuaug.errors import TransformError
from cuaug.interop import dtype_of, open_images
from cuaug.plan import Layout, Plan, Type

__all__ = ["apply", "draw_seed"]


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


def apply(images: Any, write: Callable[[Plan], None]) -> Any:
    """What `write` puts into the images' plan, done.

    Raises:
        TransformError: images that are not supported, or that come out of one batch with different sizes.
    """
    opened = open_images(images)
    n, height, width, _ = opened.images.shape
    source_type = Type.UINT8 if opened.images.dtype == torch.uint8 else Type.FLOAT32
    plan = Plan([height] * n, [width] * n, source_type=source_type, channels=opened.channels)
    plan.target_type = opened.target_type
    write(plan)
    as_double = opened.is_double and plan.target_type is None
    tables = plan.tables(layout=opened.layout)

    h, w = (sizes[0] for sizes in tables.sizes())
    if any((sizes != sizes[0]).any() for sizes in tables.sizes()):
        sizes = sorted(set(zip(*(size.tolist() for size in tables.sizes()), strict=True)))
        raise TransformError(f"the images of one batch come out with different sizes (height, width): {sizes[:4]}")
    shape = (n, plan.channels, h, w) if opened.layout == Layout.CHW else (n, h, w, plan.channels)
    target = torch.empty(tuple(int(v) for v in shape), dtype=dtype_of(tables.target_type), device=opened.images.device)
    devices.run(tables, opened.images, target)
    return opened.finish(target.double() if as_double else target)
