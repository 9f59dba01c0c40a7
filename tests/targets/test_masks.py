"""Masks move with their images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug import TransformError
from cuaug import transforms as T
from cuaug.plan import Border, Filter, Plan, Type
from cuaug.targets import Targets
from tests.support.run_plans import assert_same, plan_for, run_one
from tests.support.strategies import Step, chains, write
from tests.support.targets.ramps import curvature, moves, ramp

sides = st.integers(1, 50)
DTYPES = st.sampled_from([np.uint8, np.bool_, np.int8, np.int16, np.uint16, np.int32, np.int64, np.float32, ">i4"])


def moved(target, h: int, w: int, chain: list[Step], **settings):
    plan = Plan([h], [w])
    mover = Targets([target], [h], [w], **settings).attach(plan)
    write(plan, chain)
    return mover(plan.compile())(0)


def nearest(chain: list[Step]) -> list[Step]:
    """The chain with nearest interpolation and black fills."""
    how = {"filter": Filter.NEAREST, "fill": 0.0}
    return [Step(s.name, s.arguments | {k: v for k, v in how.items() if k in s.arguments}) for s in chain]


@given(st.data())
def test_a_mask_is_its_own_image_where_whole_pixels_are_shown(data):
    """Bit for bit, with any borders, fields, rotations and passes."""
    h, w = data.draw(sides), data.draw(sides)
    chain = nearest(data.draw(moves((h, w), smooth=False)))
    if data.draw(st.booleans()):  # several passes
        chain = [item for step in chain for item in (step, Step("median", {"size": 3}))]
    mask = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 256, (h, w), dtype=np.uint8)
    image = np.repeat(mask[..., None], 3, axis=2)
    geometry = [step for step in chain if step.name != "median"]
    plan = plan_for(image)
    for step in geometry:
        step.write(plan)
        if len(geometry) < len(chain):
            plan.barrier()
    assert_same(moved({"mask": mask}, h, w, chain)["mask"], run_one(plan, image, Type.UINT8)[..., 0])


@given(st.data())
def test_a_mask_shows_the_pixel_under_the_center(data):
    """Also under interpolated images: a mask of pixel numbers shows the origins that the image shows."""
    h, w = data.draw(sides), data.draw(sides)
    chain = data.draw(moves((h, w), longest=4))
    image = ramp(h, w)
    y, x = np.mgrid[:h, :w]
    target = moved({"masks": np.stack([x + 1, y + 1]).astype(np.int16)}, h, w, chain)
    columns, rows = target["masks"].astype(float) - 0.5  # centers of the shown pixels; -0.5: no pixel
    # Half a source pixel for each interpolation.
    slack, seen = 0.0, image
    for k, step in enumerate(chain):
        if step.name in ("resize", "warp"):
            inner = np.where(seen[..., 2:] > 0.9999, seen[..., :2], np.nan)
            slopes = [np.abs(np.diff(inner, axis=axis)) for axis in (0, 1)]
            slack += 0.5 * max([1.0, *(np.nanmax(s) for s in slopes if np.isfinite(s).any())]) * 1.5
        plan = plan_for(image)
        seen = run_one(write(plan, chain[: k + 1]), image)
    inside = seen[..., 2] > 0.9999
    far = np.maximum(np.abs(columns - seen[..., 0]), np.abs(rows - seen[..., 1]))[inside]
    assert (far <= slack + 0.05 + 2 * curvature(seen[..., :2])).all()
    outside = seen[..., 2] < 1e-4
    assert (columns[outside] == -0.5).all() and (rows[outside] == -0.5).all()


@given(st.data(), DTYPES, st.integers(0, 5))
def test_every_dtype_is_lossless(data, dtype, count):
    """No chain makes new values, and all masks move alike."""
    h, w = data.draw(sides), data.draw(sides)
    chain = data.draw(chains((h, w), 4, turns=True)).steps
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    kind = np.dtype(dtype)
    info = np.iinfo(kind) if kind.kind in "iu" else None
    low, high = (0, 2) if info is None else (max(info.min, -(2**31)), min(info.max, 2**31 - 1))
    masks = rng.integers(low, high, (count, h, w)).astype(kind)
    if data.draw(st.booleans()):
        masks = (masks.astype(np.int64) % 3).astype(kind)
    together = moved({"masks": masks}, h, w, chain)["masks"]
    assert together.dtype == kind and len(together) == count
    for one, mask in zip(together, masks, strict=True):
        assert np.isin(one, np.append(mask.reshape(-1), np.zeros(1, kind))).all()
        assert_same(moved({"mask": mask}, h, w, chain)["mask"], one)


DTYPES_AND_FILLS = [(dtype, fill) for dtype in (np.uint8, np.int16, np.int64, np.float32) for fill in (0, 7, 255)]


@pytest.mark.parametrize(("dtype", "fill"), [*DTYPES_AND_FILLS, (np.int32, 300)])
def test_mask_fill(dtype, fill):
    """Only the bytes of wide integers that hold values or the fill are moved."""
    mask = np.array([[1, 2], [3, 4]], dtype=dtype)
    pad = Step("pad", {"left": 1, "top": 0, "right": 0, "bottom": 1, "border": Border.CONSTANT, "fill": 0.5})
    got = moved({"mask": mask}, 2, 2, [pad], mask_fill=fill)["mask"]
    assert_same(got, np.array([[fill, 1, 2], [fill, 3, 4], [fill, fill, fill]], dtype=dtype))
    edge = Step("pad", pad.arguments | {"border": Border.EDGE})
    assert_same(moved({"mask": mask}, 2, 2, [edge], mask_fill=fill)["mask"], np.pad(mask, ((0, 1), (1, 0)), "edge"))


def test_a_fill_that_the_dtype_cannot_hold_is_refused():
    with pytest.raises(TransformError, match=r"mask has dtype uint8, which cannot hold mask_fill=256"):
        moved({"mask": np.zeros((2, 2), np.uint8)}, 2, 2, [], mask_fill=256)
    with pytest.raises(TransformError, match=r"mask has dtype bool, which cannot hold mask_fill=255"):
        moved({"mask": np.zeros((2, 2), bool)}, 2, 2, [], mask_fill=255)


@given(
    st.integers(8, 60), st.integers(8, 60), st.integers(3, 70), st.integers(3, 70),
    st.sampled_from(["bilinear", "lanczos", "nearest"]), st.integers(0, 3), st.integers(-3, 5),
    st.sampled_from(["constant", "reflect"]), st.integers(0, 99),
)  # fmt: skip
def test_masks_with_pillow_are_its_nearest(height, width, new_h, new_w, filter, turns, room, border, seed):
    """The mask of any resize is the image of a nearest one, between crops, turns and padding."""
    labels = np.random.default_rng(seed).integers(0, 256, (1, height, width), dtype=np.uint8)

    def chain(interpolation):
        return T.Compose(
            [
                T.CenterCrop((height - 3, width - 2)),
                T.Rot90(turns),
                T.Resize((new_h, new_w), interpolation),
                T.Rot90(turns // 2),
                T.Pad(min(room, new_h - 1, new_w - 1) if new_h > 6 < new_w else 0, padding_mode=border),
            ],
            pillow=13,
        )

    image = torch.from_numpy(labels)
    _, moved = chain(filter)(image, {"mask": image[0]})
    assert torch.equal(moved["mask"], chain("nearest")(image)[0])
