"""Plans: sizes, arguments with one row per sample, refused calls, limits of int32."""

from __future__ import annotations

import numpy as np
import pytest

from cuaug import TransformError
from cuaug.plan import Plan, Type, operations
from tests.support import run_plans
from tests.transforms.test_every import stack


def test_plan_sizes_are_current_copies():
    plan = Plan([30, 40], [50, 60])
    first = np.array([True, False])
    for change, want in (
        (lambda: None, [(30, 50), (40, 60)]),
        (lambda: plan.crop(1, 2, 20, 25, first), [(20, 25), (40, 60)]),
        (lambda: plan.transpose(first), [(25, 20), (40, 60)]),
        (lambda: plan.pad(1, 2, 3, 4), [(31, 24), (46, 64)]),
        (lambda: plan.resize(8, 9, where=~first), [(31, 24), (8, 9)]),
        (lambda: plan.warp(np.eye(3), 5, 6, where=first), [(5, 6), (8, 9)]),
    ):
        change()
        for sizes in plan.sizes:
            sizes += 100  # a user's transform may write to them
        assert list(zip(*(sizes.tolist() for sizes in plan.sizes), strict=True)) == want


def test_an_operation_has_one_row_or_one_per_sample():
    def ops(n: int, where: np.ndarray | None = None) -> np.ndarray:
        plan = Plan([3] * 4, [5] * 4)
        plan.append(operations.contrast(n, 255.0, 0.5), where)
        return plan.compile().ops

    for where in (None, np.array([False, True, False, True])):
        np.testing.assert_array_equal(ops(1, where), ops(4, where))
    with pytest.raises(ValueError, match="one row, or one for each of the 4 samples, not 3"):
        ops(3)


@pytest.mark.parametrize("where", [None, np.array([False, True, False, True])])
def test_per_sample_arguments_need_one_row_per_sample(where):
    """A bug: of too many rows the first ones were used."""
    plan = Plan([30] * 4, [50] * 4)
    with pytest.raises(ValueError, match="matrix has one row for each of the 4 samples, not 5"):
        plan.warp(np.stack([np.eye(3)] * 5), 30, 50, where=where)
    with pytest.raises(ValueError, match="field has one row for each of the 4 samples, not 3"):
        plan.warp(np.eye(3), 30, 50, field=np.zeros((3, 2, 2, 2)), where=where)
    with pytest.raises(ValueError, match="taps has one row for each of the 4 samples, not 5"):
        plan.stencil(np.ones((5, 2, 3)), where=where)


def test_a_refused_call_leaves_the_plan_unchanged():
    plan = Plan([30, 40], [50, 60])
    with pytest.raises(TransformError, match="crop of 31 x 5 at row 0, column 0 does not fit an image of 30 x 50"):
        plan.crop(0, 0, 31, 5)
    with pytest.raises(TransformError, match="resize to 0 x 7: both sides are from 1 to 2147483647 pixels"):
        plan.resize([0, 7], 7)
    untouched = Plan([30, 40], [50, 60])
    np.testing.assert_array_equal(plan.compile().rows, untouched.compile().rows)


@pytest.mark.parametrize(
    "write",
    [
        lambda plan: plan.crop(2**63 - 1, 1, 5, 5),
        lambda plan: plan.crop(0, 1, 5, 2**63 - 1),
        lambda plan: plan.resize(2**31, 5),
        lambda plan: plan.warp(np.eye(3), 5, 2**32 + 5),
        lambda plan: plan.pad(2**32, 0, 0, 0),
        lambda plan: plan.pad(2**30, 0, 2**30, 0),
        lambda plan: (plan.pad(2**30, 0, 0, 0), plan.crop(0, 0, 5, 2**30 + 3), plan.pad(2**30, 0, 0, 0)),
        lambda plan: (plan.transpose(), plan.pad(0, 2**31 - 8, 0, 0)),
    ],
)
def test_sizes_beyond_int32_are_refused(write):
    with pytest.raises(TransformError, match=r"does not fit|from 1 to 2147483647|beyond 2147483647 pixels"):
        write(Plan([9, 9], [9, 9]))


def test_padding_of_a_billion_pixels():
    plan = Plan([9], [9])
    plan.pad(10**9, 10**9, 10**9, 10**9)
    plan.crop(10**9, 10**9, 9, 9)
    image = stack(1, 9, 9)
    np.testing.assert_array_equal(run_plans.run(plan, list(image), Type.UINT8)[0], image[0])


def test_fields_beyond_int32_offsets_are_refused():
    plan = Plan([8, 8], [8, 8])
    plan._table.luts.append(np.broadcast_to(np.float32(0), (2**31 // 768, 3, 256)))  # as if earlier fields took 8.6 GB
    with pytest.raises(TransformError, match=r"fields and filters .* 2147483647 floats.* smaller batches"):
        plan.warp(np.eye(3), 8, 8, field=np.zeros((2, 30, 30, 2), np.float32))
