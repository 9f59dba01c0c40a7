"""Matrices and displacement fields against torch's grid_sample and tests/references/warp.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug import TransformError
from cuaug.plan import Border, Filter, Type, operations
from cuaug.plan.layout import WARP_FILTERS
from tests.references import warp as reference
from tests.support.run_plans import assert_close, assert_same, plan_for, run, run_one
from tests.support.strategies import BORDERS, FILTERS, SMOOTH, boxes, images, sizes
from tests.support.tolerances import EXACT, GRID_SAMPLE, MIRRORED_WARP_LEVELS, TURNED_RESIZE, WARP

small = st.tuples(st.integers(1, 24), st.integers(1, 24))
numbers = st.floats(-1.5, 1.5, width=16)


@st.composite
def matrices(draw, h: int, w: int, perspective: bool = True) -> np.ndarray:
    """A matrix whose horizon, if any, lies outside the image."""
    a, b, c, d = (draw(numbers) for _ in range(4))
    matrix = np.array(
        [[a, b, draw(st.floats(-w, 2 * w, width=16))], [c, d, draw(st.floats(-h, 2 * h, width=16))], [0, 0, 1]]
    )
    if perspective and draw(st.booleans()):
        matrix[2, :2] = draw(st.floats(-0.4, 0.4)) / w, draw(st.floats(-0.4, 0.4)) / h
    return matrix * draw(st.sampled_from([1.0, 2.0, -0.5]))  # any multiple is the same mapping


def places(matrix: np.ndarray, h: int, w: int) -> np.ndarray:
    """(h, w, 2): source x and y of the center of each output pixel."""
    y, x = np.mgrid[:h, :w] + 0.5
    across, down, depth = np.einsum("ij,jyx->iyx", matrix, np.stack([x, y, np.ones_like(x)]))
    return np.stack([across / depth, down / depth], axis=-1)


def away_from_edges(at: np.ndarray) -> np.ndarray:
    """Points that are not too close to a pixel edge for nearest."""
    return (np.abs(at - np.round(at)) > 1e-6).all(axis=-1)


@given(st.data(), images(size=sizes(4000), dtype=np.float32), small, FILTERS)
@pytest.mark.parametrize(
    ("border", "padding"), [(Border.CONSTANT, "zeros"), (Border.EDGE, "border"), (Border.SYMMETRIC, "reflection")]
)
def test_a_matrix_equals_torchs_grid_sample(border, padding, data, image, size, filter):
    h, w, _ = image.shape
    matrix = data.draw(matrices(*size))
    plan = plan_for(image)
    plan.warp(matrix, *size, filter=filter, border=border)
    got = run_one(plan, image, only_regions=True)
    at = places(matrix, *size)
    grid = torch.from_numpy(at / (w, h) * 2 - 1)[None]
    mode = filter.name.lower()
    pixels = torch.from_numpy(image.astype(np.float64)).permute(2, 0, 1)[None]
    want = torch.nn.functional.grid_sample(pixels, grid, mode, padding, align_corners=False)[0].permute(1, 2, 0).numpy()
    sure = away_from_edges(at) if filter == Filter.NEAREST else np.ones(size, dtype=bool)
    assert_close(got[sure], want[sure], GRID_SAMPLE)


@given(st.data(), images(size=st.tuples(st.integers(1, 12), st.integers(1, 12)), dtype=np.float32), FILTERS, BORDERS)
def test_matrix_field_border_and_fill_equal_the_reference(data, image, filter, border):
    size = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    matrix = data.draw(matrices(*size))
    field = None
    if data.draw(st.booleans()):
        shape = data.draw(st.tuples(st.integers(2, 4), st.integers(2, 4)))
        rng = np.random.default_rng(data.draw(st.integers(0, 99)))
        field = rng.normal(0, 2, (*shape, 2)).astype(np.float32)
        if matrix[2, :2].any():  # displacements must not come near the horizon, where rounding has no bound
            field *= 0.1 * min(size) / np.abs(field).max()
    fill = data.draw(st.sampled_from([0.0, 0.5, (0.25, 0.5, 1.0)]))
    plan = plan_for(image)
    plan.warp(matrix, *size, filter=filter, border=border, fill=fill, field=field)
    got = run_one(plan, image, only_regions=True)
    want = reference.warp(image, matrix, *size, filter.name.lower(), border.name.lower(), fill, field)
    if filter == Filter.NEAREST:  # points of a field lie near an edge only by chance
        assert (np.abs(got - want).max(axis=-1) > 1e-6).mean() <= 0.02 + 1 / got[..., 0].size
    else:
        assert_close(got, want, WARP)


@given(st.data(), images(size=sizes(3000)), FILTERS, BORDERS)
def test_shifts_by_whole_pixels_are_exact(data, image, filter, border):
    """A shift, flip or transposition by matrix equals indexing."""
    h, w, _ = image.shape
    dy, dx = data.draw(st.integers(-5, 5)), data.draw(st.integers(-5, 5))
    plan = plan_for(image)
    plan.warp([[1, 0, dx], [0, 1, dy], [0, 0, 1]], h, w, filter=filter, border=border)
    rows = [reference.border_index(y + dy, h, border.name.lower()) for y in range(h)]
    columns = [reference.border_index(x + dx, w, border.name.lower()) for x in range(w)]
    want = image[rows][:, columns].copy()
    want[np.array(rows) < 0] = 0
    want[:, np.array(columns) < 0] = 0
    assert_same(run_one(plan, image, Type.UINT8, only_regions=True), want)
    plan = plan_for(image)
    plan.warp([[0, -1, w], [1, 0, 0], [0, 0, 1]], w, h, filter=filter)
    assert_same(run_one(plan, image, Type.UINT8), np.rot90(image))


@given(st.data(), images(size=sizes(3000)), SMOOTH)
def test_crops_and_flips_share_the_pass_of_a_warp(data, image, filter):
    """Before and after it: one pass, equal to single steps."""
    h, w, _ = image.shape
    box, matrix = data.draw(boxes(h, w)), data.draw(matrices(14, 17))
    plan = plan_for(image)
    plan.crop(*box)
    plan.flip()
    plan.warp(matrix, 14, 17, filter=filter, fill=30)
    plan.flip(vertical=True)
    plan.crop(2, 3, 10, 12)
    plan.pad(1, 2, 3, 4, fill=99)
    tables = plan.compile()
    assert tables.launches == 1
    got = run_one(plan, image, Type.UINT8, only_regions=True)
    top, left, height, width = box
    step = np.ascontiguousarray(image[top : top + height, left : left + width][:, ::-1])
    alone = plan_for(step)
    alone.warp(matrix, 14, 17, filter=filter, fill=30)
    want = run_one(alone, step, Type.UINT8)[::-1][2:12, 3:15]
    want = np.pad(want, ((2, 4), (1, 3), (0, 0)), constant_values=99)
    assert_close(got, want, MIRRORED_WARP_LEVELS)


@given(st.data(), images(size=sizes(2000), dtype=np.float32), *[st.integers(0, 5)] * 4, st.booleans())
def test_a_field_spans_its_own_image_after_crops_and_pads(data, image, left, top, right, bottom, turned):
    h, w = image.shape[:2]
    field = np.random.default_rng(0).normal(0, 2, (3, 4, 2)).astype(np.float32)
    box = y, x, high, wide = data.draw(boxes(h, w))
    plan = plan_for(image)
    plan.warp(np.eye(3), h, w, field=field)
    want = run_one(plan, image)[y : y + high, x : x + wide]
    plan.crop(*box)
    plan.pad(left, top, right, bottom, border=Border.EDGE)
    want = np.pad(want, ((top, bottom), (left, right), (0, 0)), "edge")
    if turned:
        plan.transpose()
        want = want.swapaxes(0, 1)
    assert_same(run_one(plan, image), want)


@given(st.data(), images(size=sizes(3000), dtype=np.float32), SMOOTH)
def test_a_warp_after_anything_else_begins_a_pass(data, image, filter):
    """After padding, a resize, an operation or another warp, it equals a warp of their result."""
    first, second = data.draw(matrices(12, 15, perspective=False)), data.draw(matrices(9, 8))
    before = data.draw(st.sampled_from(["pad", "resize", "warp"]))
    plan = plan_for(image)
    if before == "pad":
        plan.pad(2, 1, 3, 0, border=Border.EDGE)
    elif before == "resize":
        plan.resize(12, 15, filter=filter)
    else:
        plan.warp(first, 12, 15, filter=filter)
    half = run_one(plan, image)
    plan.warp(second, 9, 8, filter=filter)
    alone = plan_for(half)
    alone.warp(second, 9, 8, filter=filter)
    assert plan.compile().launches == 2
    assert_close(run_one(plan, image), run_one(alone, half), EXACT)


@given(st.data(), images(size=sizes(3000)))
def test_quarter_rotations_equal_numpy(data, image):
    """With crops, flips, pads and resizes around them, in one pass."""
    plan, want, pads = plan_for(image), image, 0
    for _ in range(data.draw(st.integers(1, 5))):
        h, w, _ = want.shape
        step = data.draw(st.sampled_from(["turn", "transpose", "crop", "flip", "pad"]))
        if step == "turn":
            turns = data.draw(st.integers(-3, 5))
            plan.rot90(turns)
            want = np.rot90(want, turns)
        elif step == "transpose":
            plan.transpose()
            want = want.swapaxes(0, 1)
        elif step == "crop":
            top, left, height, width = data.draw(boxes(h, w))
            plan.crop(top, left, height, width)
            want = want[top : top + height, left : left + width]
        elif step == "flip":
            vertical = data.draw(st.booleans())
            plan.flip(vertical=vertical)
            want = want[::-1] if vertical else want[:, ::-1]
        else:
            plan.pad(1, 0, 2, 3, fill=7)
            pads += 1
            want = np.pad(want, ((0, 3), (1, 2), (0, 0)), constant_values=7)
    assert plan.compile().launches == 1 or pads > 1  # padding a crop that shows only padding begins a pass
    assert [size[0] for size in plan.sizes] == list(want.shape[:2])
    assert_same(run_one(plan, image, Type.UINT8, only_regions=True), want)


@given(images(size=sizes(3000)), st.integers(0, 3), SMOOTH, st.booleans(), st.integers(1, 30), st.integers(1, 30))
def test_rotating_commutes_with_resizing(image, turns, filter, antialias, h, w):
    plan = plan_for(image)
    plan.rot90(turns)
    plan.resize(h, w, filter=filter, antialias=antialias)
    turned = np.ascontiguousarray(np.rot90(image, turns))
    alone = plan_for(turned)
    alone.resize(h, w, filter=filter, antialias=antialias)
    assert_close(run_one(plan, image), run_one(alone, turned), TURNED_RESIZE)


def test_positional_operations_in_a_rotated_image():
    image = np.random.default_rng(0).integers(0, 256, (9, 13, 3), dtype=np.uint8)
    keys = np.array([[3, 4]], dtype=np.uint32)
    turned = np.ascontiguousarray(np.rot90(image))
    results = []
    for pixels, turns in ((image, 1), (turned, 0)):
        plan = plan_for(pixels)
        plan.rot90(turns)
        plan.append(operations.erase(1, (1, 2, 5, 4), 200))
        plan.append(operations.erase_with_noise(1, (4, 3, 11, 8), keys, 128, 40))
        plan.append(operations.mask(1, 0.3, keys, 9))
        results.append(run_one(plan, pixels, Type.UINT8))
    assert_same(*results)


@pytest.mark.parametrize("shared", [False, True])
def test_each_sample_has_its_own_field(shared):
    """Each sample uses its first nodes: the same bits as a field of only those nodes."""
    rng = np.random.default_rng(0)
    batch = [rng.integers(0, 256, (9, 11, 3), dtype=np.uint8) for _ in range(5)]
    field = rng.normal(0, 2, (6, 7, 2) if shared else (5, 6, 7, 2))
    rows, columns, where = np.array([6, 2, 3, 6, 4]), np.array([2, 7, 3, 7, 5]), np.arange(5) != 2
    plan = plan_for(*batch)
    plan.warp(np.eye(3), 9, 11, field=field, nodes=(rows, columns), where=where)
    plan.warp(np.eye(3), 9, 11, field=field, nodes=(2, 2), where=np.zeros(5, dtype=bool))
    for i, (got, image) in enumerate(zip(run(plan, batch), batch, strict=True)):
        alone = plan_for(image)
        own = field if shared else field[i]
        alone.warp(np.eye(3), 9, 11, field=own[: rows[i], : columns[i]], where=where[i : i + 1])
        assert_same(got, run_one(alone, image))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"height": 0}, "warp to 0 x 3"),
        ({"field": np.zeros((1, 3, 2))}, r"field must be \(R, C, 2\).*not \(1, 3, 2\)"),
        ({"field": np.zeros((4, 3, 2)), "nodes": (5, 3)}, r"nodes must be from 2 to .*\(4, 3\), not \(5, 3\)"),
        ({"field": np.zeros((4, 3, 2)), "nodes": (2, 1)}, r"nodes must be from 2 to .*\(4, 3\), not \(2, 1\)"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    plan = plan_for(np.zeros((3, 3, 3), np.uint8))
    with pytest.raises(TransformError, match=message):
        plan.warp(np.eye(3), **{"height": 3, "width": 3, **arguments})


@pytest.mark.parametrize("filter", WARP_FILTERS)
@pytest.mark.parametrize("border", list(Border))
def test_points_on_the_horizon_are_far_outside(border, filter):
    """A perspective that divides by 0 shows the fill of a constant border, and a number under any other."""
    image = np.full((9, 9, 3), 7, np.float32)
    plan = plan_for(image)
    plan.warp([[1, 0, 0], [0, 1, 0], [0.5, 0, -2.25]], 9, 9, filter=filter, border=border, fill=5)
    made = run_one(plan, image, Type.FLOAT32, only_regions=True)
    np.testing.assert_allclose(made[:, 4], 5 if border is Border.CONSTANT else 7, rtol=1e-6)
    assert np.isfinite(made).all()


def test_a_matrix_of_nans_reads_nothing_outside():
    image = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    plan = plan_for(image)
    plan.warp(np.full((3, 3), np.nan), 9, 9)
    run_one(plan, image, Type.UINT8)
