"""The CUDA kernels give the CPU's bits: every operation, filter, warp, border, type, layout and tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug.plan import Layout, Type
from tests.support import run_plans
from tests.support.run_plans import assert_same, plan_for
from tests.support.strategies import Step, chains, images, sizes, write

pytestmark = pytest.mark.cuda

types = st.sampled_from(list(Type))
layouts = st.sampled_from(list(Layout))
tiles = st.none() | st.tuples(st.integers(1, 40), st.integers(1, 140))


def run(device: str, batch: list[np.ndarray], programs: list[list[Step]], *rest: Any, **options: Any) -> list[Any]:
    plan = plan_for(*batch)
    for i, program in enumerate(programs):
        write(plan, program, np.arange(len(batch)) == i)
    run_plans.current_device = device
    try:
        return run_plans.run(plan, batch, *rest, **options)
    finally:
        run_plans.current_device = "cpu"


def compare(batch: list[np.ndarray], programs: list[list[Step]], dtype: Type, layout: Layout, tile: Any = None) -> None:
    results = run("cuda", batch, programs, dtype, layout, tile=tile), run("cpu", batch, programs, dtype, layout)
    for got, want in zip(*results, strict=True):
        assert_same(got, want)


@given(st.data(), st.sampled_from([np.uint8, np.float32]), types, layouts, tiles)
def test_random_programs(data, source, dtype, layout, tile):
    """A different size and program for each image of a batch."""
    batch = data.draw(st.lists(images(sizes(20_000), source), min_size=1, max_size=6))
    programs = [data.draw(chains(image.shape[:2], turns=True)).steps for image in batch]
    compare(batch, programs, dtype, layout, tile)


def test_a_shrink_with_more_shared_memory_than_the_default():
    image = np.random.default_rng(2).integers(0, 256, (3, 10_000, 3), dtype=np.uint8)
    # 61 kB; a block may ask for 64 to 227 kB.
    compare([image], [[Step("resize", {"height": 1, "width": 40})]], Type.UINT8, Layout.HWC)


def test_samples_of_very_different_scale():
    """In three launches: with the default shared memory, with up to 100 KiB, and with narrow tiles."""
    batch = [
        np.random.default_rng(3).integers(0, 256, (9, width, 3), dtype=np.uint8)
        for width in (200, 1500, 30, 16_000, 4000)
    ]
    programs = [[Step("resize", {"height": 9, "width": 128})]] * len(batch)
    compare(batch, programs, Type.FLOAT16, Layout.CHW)


def test_a_batch_in_chunks(monkeypatch):
    """Several passes, each chunk in the memory of the one before."""
    monkeypatch.setenv("CUAUG_WORKSPACE_BYTES", "4000000")
    rng = np.random.default_rng(4)
    batch = [rng.integers(0, 256, (200 + 7 * i, 300 - 5 * i, 3), dtype=np.uint8) for i in range(24)]
    contrast, resize = Step("contrast", {"factor": 1.5}), Step("resize", {"height": 64, "width": 70})
    programs = [[contrast] * (i % 3) + [resize, contrast] for i in range(24)]
    compare(batch, programs, Type.FLOAT32, Layout.CHW)


def test_an_output_taller_than_two_sides_of_the_grid_have_tiles():
    image = np.arange(530_000 * 3, dtype=np.uint32).astype(np.uint8).reshape(530_000, 1, 3)
    compare([image], [[Step("flip", {"vertical": True})]], Type.UINT8, Layout.HWC)


def test_batches_larger_than_the_grid():
    import torch

    from cuaug.functional import horizontal_flip

    stack = torch.arange(70_000 * 3 * 2, dtype=torch.int64).remainder(251).to(torch.uint8).reshape(70_000, 3, 1, 2)
    assert torch.equal(horizontal_flip(stack.cuda()).cpu(), stack.flip(3))
