"""uint8 passes (kernels/cpu/uint8_path.h) give the bits of the common path, which computes in floats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug._runtime.native import ISAS
from cuaug.devices import CpuExecutor
from cuaug.plan import Border, Layout, Type, operations
from tests.references import sampling
from tests.support.run_plans import assert_same, plan_for, run_one
from tests.support.strategies import images, steps

MOVES = ("crop", "flip", "pad", "transpose", "rot90")
PROGRAMS = (
    "brightness", "contrast", "lut", "posterize", "solarize", "gamma", "autocontrast", "equalize", "erase",
)  # fmt: skip
#: Programs that mix channels, or depend on the place.
COLORS = ("grayscale", "saturation", "hue", "matrix", "add_noise", "grid", "mask")
OTHERS = ("median", "permutation", "clahe", "barrier")
widths = st.sampled_from([1, 2, 5, 6, 31, 32, 33, 43, 127, 128, 129, 300])
any_size = st.tuples(st.integers(1, 40), widths)
tiles = st.none() | st.tuples(st.integers(1, 40), st.integers(1, 200))


@st.composite
def chains(draw, h, w):
    """Steps that mostly stay uint8, as functions that write them into a plan."""
    chain = []
    for _ in range(draw(st.integers(0, 7))):
        name = draw(st.sampled_from(draw(st.sampled_from([MOVES, PROGRAMS, COLORS, OTHERS]))))
        if name == "barrier":
            chain.append(lambda plan: plan.barrier())
            continue
        if name == "permutation":
            order = [draw(st.integers(0, 2)) for _ in range(3)]
            chain.append(lambda plan, order=order: plan.append(operations.permutation(1, order)))
            continue
        step, h, w = draw(steps(name, h, w))
        if name == "pad" and draw(st.booleans()):
            step.arguments["fill"] = draw(st.sampled_from([0, 255, (1, 2, 3)]))
        if name == "lut" and draw(st.booleans()):
            shift = draw(st.integers(-300, 300))
            chain.append(lambda plan, shift=shift: plan.append(operations.scale(1, 1.0, shift, limit=plan.limit)))
            continue
        chain.append(step.write)
    return chain


def by_floats(plan, image):
    tables = plan.compile(Type.UINT8, Layout.CHW)
    tables.rows["before"]["fill"] = 0.25  # no pass reads it: that would need a resize
    (h,), (w,) = tables.sizes()
    out = np.empty((3, h, w), np.uint8)
    CpuExecutor(tables).run(0, image, out.ctypes.data)
    return out.transpose(1, 2, 0)


@given(st.data(), images(size=any_size), tiles)
def test_uint8_path_equals_float_path(data, image, tile):
    plan = plan_for(image)
    for write in data.draw(chains(*image.shape[:2])):
        write(plan)
    want = by_floats(plan, image)
    for isa in ISAS:
        for only_regions in (False, True):
            got = run_one(plan, image, Type.UINT8, tile=tile, isa=isa, only_regions=only_regions)
            assert_same(got, want)


@given(images(size=any_size), st.sampled_from(["any", "same", "bits"]), st.integers(0, 2**32 - 1), st.booleans())
def test_per_channel_programs_use_tables(image, kind, seed, flipped):
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 256, (3, 256), dtype=np.uint8)
    if kind == "same":
        table[1:] = table[0]
    elif kind == "bits":
        keep, flip = rng.integers(0, 256, (2, 3, 1), dtype=np.uint8)
        table = (np.arange(256, dtype=np.uint8) & keep) ^ flip
    plan = plan_for(image)
    if flipped:
        plan.flip()
    plan.lut(table)
    want = np.stack([table[c][image[:, :: -1 if flipped else 1, c]] for c in range(3)], axis=-1)
    for isa in ISAS:
        assert_same(run_one(plan, image, Type.UINT8, isa=isa), want)


@given(images(size=st.tuples(st.integers(1, 6), st.integers(1, 6))), st.sampled_from(["wrap", "reflect", "edge"]))
def test_more_runs_than_the_limit(image, border):
    plan = plan_for(image)
    plan.pad(130, 3, 70, 2, border=Border[border.upper()])
    want = sampling.pad(image, 130, 3, 70, 2, border)
    assert_same(run_one(plan, image, Type.UINT8), want)


def test_a_source_left_in_place_is_not_overwritten():
    """Later passes must not write to memory that they still read."""
    image = np.random.default_rng(0).integers(60, 200, (40, 50, 3), dtype=np.uint8)
    plan = plan_for(image)
    plan.flip()
    for left in range(3):
        plan.barrier()
        plan.crop(1, left, 30 - 2 * left, 30 - 2 * left)
        plan.append(operations.autocontrast(1, plan.limit))
        plan.barrier()
        plan.rot90(1)
    assert_same(run_one(plan, image, Type.UINT8), by_floats(plan, image))


@pytest.mark.parametrize("value", [7, (7, 8, 9)])
def test_a_rectangle_beside_a_tile(value):
    image = np.random.default_rng(0).integers(0, 256, (20, 60, 3), dtype=np.uint8)
    plan = plan_for(image)
    plan.append(operations.erase(1, (5, 25, 15, 35), value))
    want = image.copy()
    want[5:15, 25:35] = value
    for isa in ISAS:
        assert_same(run_one(plan, image, Type.UINT8, isa=isa, tile=(20, 20)), want)


@pytest.mark.parametrize("median", [False, True])
def test_a_fill_color_between_levels_is_not_rounded_by_a_pass(median):
    image = np.full((9, 9, 3), 50, dtype=np.uint8)
    plan = plan_for(image)
    if median:
        plan.median(3)
    plan.pad(1, 1, 1, 1, fill=10.4)
    plan.barrier()
    plan.append(operations.brightness(1, plan.limit, 2.0))
    got = run_one(plan, image, Type.UINT8)
    assert got[0, 0].tolist() == [21] * 3 and got[5, 5].tolist() == [100] * 3


coefficients = st.floats(-2, 2, width=32) | st.sampled_from(
    [0.0, -0.0, 1.0, 1e-30, 1e30, 3e38, np.inf, -np.inf, np.nan]
)
fills = st.sampled_from([0, 7, (1, 2, 3), 0.25, -3.0, 300.0, np.inf, np.nan])


@given(
    images(size=any_size),
    st.sampled_from(["any", "unshifted", "gray"]),
    st.lists(coefficients, min_size=12, max_size=12),
    st.sampled_from([-1.0, 255.0, 100.0, 300.0]),
    fills,
    st.sampled_from([None, "flip", "vertical flip", "transpose", "median"]),
    tiles,
)
def test_a_single_matrix_on_uint8(image, kind, values, limit, fill, move, tile):
    """From packed uint8 to packed uint8 without planes: the same bits for any matrix."""
    values = np.reshape(values, (3, 4))
    if kind != "any":
        values[:, 3] = 0.0
    if kind == "gray":
        values[1:] = values[0]
    plan = plan_for(image)
    if move == "median":
        plan.median(3)
    elif move == "transpose":
        plan.transpose()
    elif move:
        plan.flip(vertical=move == "vertical flip")
    plan.pad(2, 1, 3, 2, fill=fill)
    plan.append(operations.matrix(1, limit, values))
    want = by_floats(plan, image)
    for isa in ISAS:
        assert_same(run_one(plan, image, Type.UINT8, tile=tile, isa=isa), want)
