"""Runs plans on the shipped kernels and compares the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.devices import CpuExecutor
from cuaug.plan import CompiledPlan, Layout, Plan, Type
from tests.support.tolerances import EXACT, NOISE, RARE_NOISE, Tolerance

#: Device of `run`; a fixture sets it for each test of tests/properties.
current_device = "cpu"
#: NumPy has no bfloat16; uint16 holds its bits.
DTYPES = {Type.UINT8: np.uint8, Type.FLOAT16: np.float16, Type.BFLOAT16: np.uint16, Type.FLOAT32: np.float32}
_GUARD = 64

Image = NDArray[Any]


def plan_for(*images: Image, channels: int = 3) -> Plan:
    """An empty plan for (H, W, 3) images, all uint8 or all float32."""
    kind = Type.UINT8 if images[0].dtype == np.uint8 else Type.FLOAT32
    return Plan(
        [image.shape[0] for image in images], [image.shape[1] for image in images], source_type=kind, channels=channels
    )


def run(
    plan: Plan,
    images: Sequence[Image],
    dtype: Type = Type.FLOAT32,
    layout: Layout = Layout.HWC,
    *,
    isa: str | None = None,
    tile: tuple[int, int] | None = None,
    only_regions: bool = False,
) -> list[Image]:
    """Runs a plan; fails if a kernel writes outside its target.

    Args:
        only_regions: the kernels get a copy of just the region that the plan reads.

    Returns:
        the finished images, (H, W, C) or (C, H, W) each.
    """
    compiled = plan.compile(dtype, layout)
    if current_device == "cuda":
        return _run_cuda(compiled, images, dtype, layout, plan.channels, tile)
    executor = CpuExecutor(compiled, isa=isa, tile=tile)
    regions = compiled.regions()
    results = []
    for i, (image, h, w) in enumerate(zip(images, *compiled.sizes(), strict=True)):
        assert image.shape[2:] == (3,) and image[0].flags.c_contiguous
        shape = (h, w, plan.channels) if layout == Layout.HWC else (plan.channels, h, w)
        size = int(np.prod(shape)) * np.dtype(DTYPES[dtype]).itemsize
        memory = np.full(size + 2 * _GUARD, 0xA5, dtype=np.uint8)
        target = memory[_GUARD : _GUARD + size]
        if only_regions:
            y0, x0, y1, x1 = (int(v) for v in regions[i])
            assert 0 <= y0 < y1 <= image.shape[0] and 0 <= x0 < x1 <= image.shape[1], "the region is not in the image"
            executor.run(i, image[y0:y1, x0:x1].copy(), target.ctypes.data, y=y0, x=x0)
        else:
            executor.run(i, image, target.ctypes.data)
        assert (memory[:_GUARD] == 0xA5).all() and (memory[_GUARD + size :] == 0xA5).all(), "written out of bounds"
        results.append(target.view(DTYPES[dtype]).reshape(shape))
    return results


def _run_cuda(
    compiled: CompiledPlan,
    images: Sequence[Image],
    dtype: Type,
    layout: Layout,
    channels: int,
    tile: tuple[int, int] | None,
) -> list[Image]:
    """`run` on the GPU, for whole images; a tile whose scratch memory does not fit is ignored."""
    import torch

    from cuaug.devices.cuda import DEFAULT_SHARED_BYTES, CudaExecutor, scratch_bytes

    if tile and max(scratch_bytes(rows, *tile).max() for rows in compiled.rows) > DEFAULT_SHARED_BYTES:
        tile = None
    sources = [torch.from_numpy(np.array(image, order="C")).cuda() for image in images]
    shapes = [
        (h, w, channels) if layout == Layout.HWC else (channels, h, w) for h, w in zip(*compiled.sizes(), strict=True)
    ]
    sizes = [int(np.prod(shape)) * np.dtype(DTYPES[dtype]).itemsize for shape in shapes]
    room = -(-max(sizes) // 256) * 256 + 256
    target = torch.full((len(images), room), 0xA5, dtype=torch.uint8, device="cuda")
    CudaExecutor(compiled, tile=tile).run(np.array([s.data_ptr() for s in sources], dtype=np.uint64), target)
    results = []
    for row, shape, size in zip(target.cpu().numpy(), shapes, sizes, strict=True):
        assert (row[size:] == 0xA5).all(), "written out of bounds"
        results.append(row[:size].view(DTYPES[dtype]).reshape(shape))
    return results


def run_one(plan: Plan, image: Image, dtype: Type = Type.FLOAT32, layout: Layout = Layout.HWC, **options: Any) -> Image:
    return run(plan, [image], dtype, layout, **options)[0]


def assert_close(got: Any, want: Any, tolerance: Tolerance) -> None:
    """Asserts equal shapes, NaNs in the same places, and differences of at most `tolerance`."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"shape {got.shape}, wanted {want.shape}"
    a, b = got.astype(np.float64), want.astype(np.float64)
    assert (np.isnan(a) == np.isnan(b)).all(), "NaNs in different places"
    with np.errstate(invalid="ignore"):
        error = np.where((a == b) | np.isnan(a), 0.0, np.abs(a - b))
    if error.size and error.max() > tolerance.most:
        at = np.unravel_index(np.argmax(error), error.shape)
        raise AssertionError(
            f"{(error > tolerance.most).sum()} of {error.size} values differ by more than {tolerance.most} "
            f"({tolerance.reason}); the most at {tuple(map(int, at))}: {got[at]}, wanted {want[at]}"
        )


def assert_same_noise(got: Any, want: Any) -> None:
    """Asserts equal noise, in units of its deviation; one value in 10,000 may differ by RARE_NOISE."""
    assert_close(got, want, RARE_NOISE)
    assert (np.abs(got - want) > NOISE.most).sum() <= 1 + np.size(got) / 10_000


def assert_same(got: Any, want: Any) -> None:
    """Asserts equal dtypes, shapes and values."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, f"{got.dtype}, wanted {want.dtype}"
    assert_close(got, want, EXACT)
