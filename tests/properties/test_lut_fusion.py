"""Look-up tables that replace runs of operations give the same bits."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug.devices import fuse_luts, lut_fusion
from cuaug.plan import Filter, Layout, Plan, Type, operations
from cuaug.plan.layout import OpCode
from tests.support import run_plans
from tests.support.run_plans import assert_same

_unit = st.floats(0, 1)
RAMP = np.arange(256)[::-1] ** 2 / 255


def ops(make):
    return lambda plan, a, b, where=None: plan.append(make(len(plan), plan.limit, a, b), where)


def table(plan, a, b, where=None):
    plan.lut(np.random.default_rng(int(1000 * a)).random((3, 256)) * 255, where)


def sized(resize):
    return lambda plan, a, b, where=None: plan.resize(3 + int(20 * a), 3 + int(20 * b), **resize, where=where)


def pad(plan, a, b, where=None):
    plan.pad(1, 2, 0, 1, fill=np.floor(a * plan.limit) if b < 0.5 else a * plan.limit, where=where)


OPERATIONS = {
    "scale": ops(lambda n, limit, a, b: operations.scale(n, 2 * a, b * limit, limit=limit)),
    "posterize": ops(lambda n, limit, a, b: operations.posterize(n, limit, int(8 * a))),
    "solarize": ops(lambda n, limit, a, b: operations.solarize(n, limit, a * limit)),
    "gamma": ops(lambda n, limit, a, b: operations.gamma(n, limit, 0.2 + 3 * a, b)),
    "grayscale": ops(lambda n, limit, a, b: operations.grayscale(n)),
    "contrast": ops(lambda n, limit, a, b: operations.contrast(n, limit, 2 * a)),
    "lut": table,
    "float": lambda plan, a, b, where: plan.to_float(),
    "resize": sized({}),
    "nearest": sized({"filter": Filter.NEAREST}),
    "flip": lambda plan, a, b, where: plan.flip(vertical=a < 0.5, where=where),
    "pad": pad,
}


@given(
    st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), _unit, _unit, st.integers(1, 7)), max_size=8),
    st.sampled_from(list(Type)),
    st.sampled_from([np.uint8, np.float32]),
)
def test_the_results_are_the_same(steps, target, source):
    """Also with an operation for some samples only, and in images too small to gain from a table."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (7 + i, 9, 3)).astype(source) / (1 if source is np.uint8 else 255) for i in range(3)]
    images = [image.astype(source) for image in images]

    def run(fold):
        plan = run_plans.plan_for(*images)
        for name, a, b, who in steps:
            where = np.array([who >> i & 1 for i in range(3)], dtype=bool)
            OPERATIONS[name](plan, a, b, None if name == "float" else where)
        with mock.patch.object(lut_fusion, "_TABLE_COST", 0.0):
            return run_plans.run(plan, images, target, Layout.CHW, fold=fold)

    for got, wanted in zip(run(True), run(False), strict=True):
        assert_same(got, wanted)


def codes(tables, sample=0):
    row = tables.rows[-1, sample]
    return [OpCode(code) for code in tables.ops["code"][row["op_begin"] : row["op_end"]]]


def test_which_runs_are_fused():
    def after(*writes, source=Type.UINT8, target=Type.FLOAT32, layout=Layout.CHW, n=1, side=100):
        plan = Plan([side] * n, [side] * n, source_type=source)
        for write in writes:
            write(plan)
        return fuse_luts(plan.compile(target, layout))

    def gamma(plan):
        plan.append(operations.gamma(len(plan), plan.limit, 2.0))

    def posterize(plan):
        plan.append(operations.posterize(len(plan), plan.limit, 3))

    def table(plan):
        plan.lut(RAMP)

    def gray(plan):
        plan.append(operations.grayscale(len(plan)))

    def shrink(plan):
        plan.resize(90, 90)

    def normalize(plan):
        plan.normalize(0.5, 0.5)

    assert codes(after(gamma, posterize, normalize)) == [OpCode.LUT]
    assert codes(after(Plan.flip, gamma)) == [OpCode.LUT], "the conversion to floats goes along"
    assert codes(after(shrink, gamma, normalize)) == [OpCode.GAMMA, OpCode.SCALE]
    assert codes(after(shrink, table, gamma, table, normalize)) == [OpCode.LUT]
    assert codes(after(shrink, gamma, table, table)) == [OpCode.GAMMA, OpCode.LUT]
    assert codes(after(posterize, normalize)) == [OpCode.POSTERIZE, OpCode.SCALE], "a table would take longer"
    assert codes(after(gamma, source=Type.FLOAT32)) == [OpCode.GAMMA]
    assert codes(after(gamma, side=30)) == [OpCode.GAMMA, OpCode.SCALE], "the table would take longer to make"
    assert codes(after(shrink, lambda plan: plan.lut(np.zeros((3, 3, 256))), gamma, n=3), 2) == [OpCode.LUT]
    packed = {"target": Type.UINT8, "layout": Layout.HWC}
    assert codes(after(gamma, posterize, **packed)) == [OpCode.GAMMA, OpCode.POSTERIZE], "the kernels see to it"
    assert codes(after(gamma, gray, **packed))[0] == OpCode.LUT, "here they cannot"
    shared = after(table, gamma, n=5)
    assert len(shared.luts) == 2 and all(codes(shared, i) == [OpCode.LUT] for i in range(5))


@pytest.mark.parametrize("limit", [1.0, 255.0])
def test_a_table_equals_the_operations(limit):
    image = np.tile(np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3), (6, 6, 1))
    plan = run_plans.plan_for(image)
    if limit == 1.0:
        plan.to_float()
        plan.lut(np.arange(256))
    plan.append(operations.gamma(1, limit, 2.2))
    plan.lut(RAMP)
    levels = np.floor((image / 255.0) ** 2.2 * 255 + 0.5).astype(int)
    wanted = RAMP[levels] / 255
    got = run_plans.run(plan, [image], fold=True)[0]
    assert np.quantile(np.abs(got - wanted), 0.98) < 1e-5
