"""Runs plans on images in memory: the engine of `Compose(...)(x)` and `cuaug.functional`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from cuaug import devices
from cuaug._runtime.huge_pages import empty
from cuaug.errors import TransformError
from cuaug.interop import InputImages, disable_compile, dtype_of, open_images, to_uint16
from cuaug.plan import Layout, Plan, Trace, Type, is_rgb_or_gray
from cuaug.targets import Targets

__all__ = ["apply", "draw_seed", "run_plan"]

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


@disable_compile
def apply(images: Any, write: Callable[[Plan], None], *, views: int = 1) -> Any:
    """Applies the operations that `write` puts into a plan.

    Args:
        images: any input of `cuaug.interop`.
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
) -> tuple[list[torch.Tensor], list[Any] | None]:
    """Plans and runs the operations of `write`, and moves the targets.

    Args:
        target_type: type of the result; None for the type of the plan, else of the input.
        normalized: float input is not in [0, 1].

    Returns:
        (N, C, H, W), or (N, views, C, H, W) for several views, in the memory layout of `inputs`; one stack per size of
        view. And the moved targets.
    """
    n, height, width, _ = inputs.images.shape
    source_type = Type.UINT8 if inputs.images.dtype == torch.uint8 else Type.FLOAT32
    moving = None if targets is None else Targets(targets, [height] * n, [width] * n, **(target_format or {}))

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
        plan.target_type = inputs.target_type
        if moving is not None:
            moving.attach(plan)
        write(plan)
        return plan

    plan, *others = map(make_plan, range(len(inputs.groups)))
    keeps_dtype = plan.target_type is None and target_type is None and not (inputs.is_uint16 and plan.normalized)
    target_type = plan.result_type() if target_type is None else target_type
    layout = inputs.layout if target_type == Type.UINT8 else inputs.float_layout
    if not is_rgb_or_gray(plan.channels):
        layout = Layout.CHW  # each group writes planes of its own
    compiled = devices.fuse_luts(plan.compile(target_type, layout))

    sizes = compiled.sizes()
    if devices.first_size_mismatch(sizes, views) is not None:
        examples = sorted(set(map(tuple, sizes.T.tolist())))[:4]
        raise TransformError(f"the images of one batch come out with different sizes (height, width): {examples}")
    stacks = devices.OutputStacks.from_sizes(sizes, views, plan.channels, layout)
    outputs = [empty(shape, dtype_of(compiled.target_type), inputs.images.device) for shape in stacks.shapes]
    devices.run(compiled, inputs.images, outputs, stacks)
    for number, (other, images) in enumerate(zip(others, inputs.groups[1:], strict=True), 1):
        devices.run(devices.fuse_luts(other.compile(target_type, layout)), images, outputs, stacks, 3 * number)
    if keeps_dtype and inputs.is_uint16:
        outputs = [to_uint16(stack) for stack in outputs]
    elif keeps_dtype and inputs.is_double:
        outputs = [stack.double() for stack in outputs]
    outputs = [stack.movedim(-1, -3) for stack in outputs] if layout == Layout.HWC else outputs
    return outputs, moving.moved(compiled) if moving else targets
