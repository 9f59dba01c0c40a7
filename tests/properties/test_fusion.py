"""Folding steps into one pass, tiles, and instruction sets do not change the result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug._runtime.native import ISAS
from cuaug.plan import Layout, Type
from tests.support import tolerances
from tests.support.run_plans import assert_close, assert_same, plan_for, run, run_one
from tests.support.strategies import Chain, chains, images, sizes, write

some_sizes = sizes(3000)
types = st.sampled_from(list(Type))
layouts = st.sampled_from(list(Layout))
tiles = st.tuples(st.integers(1, 40), st.integers(1, 70))


@st.composite
def image_and_chain(draw, dtype=np.float32, longest=7, turns=True):
    image = draw(images(some_sizes, dtype=dtype))
    return image, draw(chains(image.shape[:2], longest, turns))


def one_by_one(image: np.ndarray, chain: Chain) -> np.ndarray:
    """Runs each step as its own plan on float32 images."""
    for step in chain.steps:
        plan = plan_for(image)
        step.write(plan)
        image = run_one(plan, image)
    return image


@given(image_and_chain(turns=False))
def test_folded_steps_equal_single_steps(case):
    """Bit for bit, unless a smooth resize follows a flip (`strategies.chains`)."""
    image, chain = case
    got, want = run_one(write(plan_for(image), chain.steps), image), one_by_one(image, chain)
    if chain.exact:
        assert_same(got, want)
    else:
        assert_close(got, want, tolerances.MIRRORED_CHAIN)


@given(st.data(), st.sampled_from([np.uint8, np.float32]), types, layouts)
def test_a_batch_of_n_is_n_batches_of_one(data, dtype, target, layout):
    """Different sizes and programs; each step is written for its samples with `where`."""
    cases = data.draw(st.lists(image_and_chain(dtype, 4), min_size=1, max_size=4))
    batch = [image for image, _ in cases]
    plan = plan_for(*batch)
    turns = [i for i, (_, chain) in enumerate(cases) for _ in chain.steps]
    waiting = [list(chain.steps) for _, chain in cases]
    for i in data.draw(st.permutations(turns)):
        waiting[i].pop(0).write(plan, np.arange(len(cases)) == i)
    for (image, chain), got in zip(cases, run(plan, batch, target, layout), strict=True):
        assert_same(got, run_one(write(plan_for(image), chain.steps), image, target, layout))


@given(st.sampled_from([np.uint8, np.float32]).flatmap(image_and_chain), tiles, types, layouts)
def test_tiles_do_not_change_the_result(case, tile, target, layout):
    image, chain = case
    whole, cut = (run_one(write(plan_for(image), chain.steps), image, target, layout, tile=t) for t in (None, tile))
    assert_same(cut, whole)


@given(st.sampled_from([np.uint8, np.float32]).flatmap(image_and_chain), types)
def test_instruction_sets_do_not_change_the_result(case, target):
    image, chain = case
    results = [run_one(write(plan_for(image), chain.steps), image, target, isa=isa) for isa in ISAS]
    for result in results[1:]:
        assert_same(result, results[0])


@given(st.sampled_from([np.uint8, np.float32]).flatmap(image_and_chain), st.booleans())
def test_only_the_region_is_read(case, tiled):
    image, chain = case
    tile = (7, 13) if tiled else None
    whole = run_one(write(plan_for(image), chain.steps), image, tile=tile)
    region = run_one(write(plan_for(image), chain.steps), image, tile=tile, only_regions=True)
    assert_same(region, whole)


def poisoned(image: np.ndarray, region: np.ndarray) -> np.ndarray:
    """`image` with NaN outside the region."""
    y0, x0, y1, x1 = region
    result = np.full_like(image, np.nan)
    result[y0:y1, x0:x1] = image[y0:y1, x0:x1]
    return result


def test_the_region_of_a_crop_is_the_crop():
    image = np.zeros((50, 60, 3), np.uint8)
    plan = plan_for(image)
    plan.crop(10, 20, 30, 25)
    plan.resize(7, 9)
    np.testing.assert_array_equal(plan.compile(Type.UINT8, Layout.HWC).regions(), [[10, 20, 40, 45]])


@pytest.mark.parametrize("left", [0, 15])
def test_a_stretched_filter_at_the_windows_edge_stays_in_the_region(left):
    """One column of a strong shrink: the edge cuts its taps off on one side; on the other they end in the region."""
    image = np.random.default_rng(1).random((64, 64, 3), dtype=np.float32)

    def plan():
        from cuaug.plan import Filter

        plan = plan_for(image)
        plan.resize(16, 16, filter=Filter.BICUBIC)
        plan.crop(left, left, 1, 1)
        return plan

    want = run_one(plan(), image)
    (region,) = plan().compile(Type.FLOAT32, Layout.HWC).regions()
    assert_same(run_one(plan(), poisoned(image, region)), want)
