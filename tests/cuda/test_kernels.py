"""The CUDA kernels give the CPU's bits: every operation, filter, warp, border, type, layout and tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug.plan import Border, Filter, Layout, Type
from cuaug.plan.layout import ANTIALIASED_FILTERS
from tests.support import run_plans
from tests.support.run_plans import assert_same, plan_for
from tests.support.strategies import (
    GEOMETRY,
    NEIGHBORHOODS,
    POINTWISE,
    POSITIONAL,
    TURNS,
    Step,
    chains,
    images,
    sizes,
    steps,
    write,
)

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


@pytest.mark.parametrize("name", GEOMETRY + TURNS + POINTWISE + POSITIONAL + NEIGHBORHOODS)
@given(st.data(), st.sampled_from([np.uint8, np.float32]), types)
def test_each_operation(name, data, source, dtype):
    image = data.draw(images(sizes(3000), source))
    step, _, _ = data.draw(steps(name, *image.shape[:2]))
    compare([image], [[step]], dtype, Layout.CHW)


@pytest.mark.parametrize("border", list(Border))
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("filter", list(Filter))
def test_each_filter_and_border(filter, antialias, border):
    """Padding before and after enlarging and shrinking; sizes around a tile's."""
    if not antialias and filter in ANTIALIASED_FILTERS:
        pytest.skip("defined with antialiasing alone")
    rng = np.random.default_rng(0)
    batch, programs = [], []
    for height, width in ((1, 1), (7, 130), (300, 3), (511, 514)):
        batch.append(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        pad = {"left": 3, "top": 1, "right": 2, "bottom": 4, "border": border, "fill": (7.0, 8.0, 9.0)}
        out = {"height": 129, "width": 127, "filter": filter, "antialias": antialias}
        programs.append([Step("pad", pad), Step("resize", out), Step("pad", pad)])
    for dtype in Type:
        compare(batch, programs, dtype, Layout.HWC)


def test_a_training_batch():
    """Realistic sizes and several barriers: samples differ in their number of passes."""
    rng = np.random.default_rng(1)
    batch, programs = [], []
    for i in range(64):
        height, width = (int(v) for v in rng.integers(200, 700, 2))
        batch.append(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        box = {"top": i, "left": 2 * i, "height": height - 70, "width": width - 130}
        program = [Step("crop", box), Step("resize", {"height": 224, "width": 224}), Step("flip")]
        program += [Step("contrast", {"factor": 0.5 + i / 64})] * (i % 3) + [Step("hue", {"turn": i / 128})]
        programs.append(program)
    compare(batch, programs, Type.FLOAT16, Layout.CHW)


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
