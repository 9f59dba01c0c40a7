"""Runs plans on images that are in hand: behind `Compose(...)(x)` and `cuaug.functional`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from cuaug import devices
from cuaug.errors import TransformError
from cuaug.interop import InputImages, disable_compile, dtype_of, empty, open_images
from cuaug.plan import Layout, Plan, Trace, Type
from cuaug.targets import Targets

__all__ = ["apply", "draw_seed", "run_plan"]

#: What a function takes and returns: a tensor, an array, a PIL image.
ImageT = TypeVar("ImageT")


def draw_seed(generator: torch.Generator | None) -> tuple[int, int]:
    """(seed, epoch) for `SampleRNG`, from the generator, or from torch's default one.

    DataLoader workers, and each epoch's, begin with the same copy of an explicit generator: the worker's seed, which
    DataLoader draws anew each epoch, tells their draws apart.
    """
    if generator is None:
        return int(torch.randint(0, 2**63 - 1, (), dtype=torch.int64, device="cpu")), 0
    seed = torch.randint(0, 2**63 - 1, (), dtype=torch.int64, generator=generator, device=generator.device)
    worker = torch.utils.data.get_worker_info()
    return int(seed), 0 if worker is None else worker.seed


@disable_compile
def apply(images: Any, write: Callable[[Plan], None], *, views: int = 1) -> Any:
    """Does what `write` puts into the images' plan; its rows are each image `views` times, as is the result.

    Raises:
        TransformError: images that are not supported, or that come out of one batch with different sizes.
    """
    opened = open_images(images)
    (made,), _ = run_plan(opened, write, views=views)
    return opened.finish(made)


def run_plan(
    opened: InputImages,
    write: Callable[[Plan], None],
    targets: list[Any] | None = None,
    *,
    target_format: Mapping[str, Any] | None = None,
    views: int = 1,
    trace: Trace | None = None,
    target_type: Type | None = None,
    normalized: bool = False,
) -> tuple[list[torch.Tensor], list[Any] | None]:
    """(N, C, H, W), or (N, views, C, H, W) where there are several, in memory as `opened` asks; and the targets.

    Views of several sizes are as many stacks.

    The images are of `target_type`; None: as the plan says, or else as they were. `normalized` says that they come so.
    """
    n, height, width, _ = opened.images.shape
    source_type = Type.UINT8 if opened.images.dtype == torch.uint8 else Type.FLOAT32
    rows = n * views
    plan = Plan(
        [height] * rows,
        [width] * rows,
        source_type=source_type,
        channels=opened.channels,
        views=views,
        trace=trace,
        normalized=normalized,
    )
    plan.target_type = opened.target_type
    moving = None
    if targets is not None:
        moving = Targets(targets, [height] * n, [width] * n, **(target_format or {}))
        moving.attach(plan)
    write(plan)
    as_double = opened.is_double and plan.target_type is None and target_type is None
    target_type = plan.result_type() if target_type is None else target_type
    layout = opened.layout if target_type == Type.UINT8 else opened.float_layout
    tables = devices.fuse_luts(plan.compile(target_type, layout))

    sizes = tables.sizes()
    if devices.first_size_mismatch(sizes, views) is not None:
        some = sorted(set(map(tuple, sizes.T.tolist())))[:4]
        raise TransformError(f"the images of one batch come out with different sizes (height, width): {some}")
    stacks = devices.OutputStacks.from_sizes(sizes, views, plan.channels, layout)
    made = [empty(shape, dtype_of(tables.target_type), opened.images.device) for shape in stacks.shapes]
    devices.run(tables, opened.images, made, stacks)
    made = [stack.double() for stack in made] if as_double else made
    made = [stack.movedim(-1, -3) for stack in made] if layout == Layout.HWC else made
    return made, moving.moved(tables) if moving else targets
