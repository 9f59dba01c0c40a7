"""Resizes with `pillow` give Pillow's bits, and Normalize torch's."""

from __future__ import annotations

import numpy as np
import PIL
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from PIL import Image

from cuaug._runtime.native import ISAS
from cuaug.errors import TransformError
from cuaug.plan import Filter, Layout, Type, operations
from tests.references import pillow as reference
from tests.references.sampling import pad
from tests.support.run_plans import assert_same, plan_for, run_one
from tests.support.strategies import BORDERS, boxes, images, sides, sizes, small_sides

#: The version that is installed, as far as pixels differ.
INSTALLED = 13 if int(PIL.__version__.partition(".")[0]) >= 13 else 12
FILTERS = {filter: Image.Resampling["NEAREST" if "NEAREST" in filter.name else filter.name] for filter in Filter}
VERSIONS = st.sampled_from([12, 13])
filters = st.sampled_from(list(Filter))
tiles = st.none() | st.tuples(st.integers(1, 70), st.integers(1, 40))
#: Sums of the largest positive and negative weights.
EXTREME = (
    np.where(np.add.outer(np.arange(60) // 3, np.arange(61) // 3) % 2, 255, 0).astype(np.uint8)[..., None].repeat(3, 2)
)
WIDE = np.random.default_rng(1).integers(0, 256, (3, 9000, 3), dtype=np.uint8)


def as_pil(image: np.ndarray, height: int, width: int, filter: Filter) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((width, height), FILTERS[filter]))


def new_plan(image: np.ndarray, version: int = INSTALLED):
    plan = plan_for(image)
    plan.pillow = version
    return plan


@given(images(), sides, small_sides, filters)
def test_the_reference_is_pillow(image, height, width, filter):
    assert_same(
        reference.resize(image, height, width, filter.name.lower(), INSTALLED), as_pil(image, height, width, filter)
    )


@given(st.data(), images(), filters, st.sampled_from(list(ISAS)), tiles)
def test_crops_turns_and_flips_around_a_resize(data, image, filter, isa, tile):
    """The region is cropped first: nothing outside of it counts. Only the pixels that the plan reads are in memory."""
    plan, expected = new_plan(image), image
    top, left, height, width = data.draw(boxes(*image.shape[:2]))
    plan.crop(top, left, height, width)
    expected = expected[top : top + height, left : left + width]
    turns, mirrored = data.draw(st.integers(0, 3)), data.draw(st.booleans())
    plan.rot90(turns)
    expected = np.rot90(expected, turns)
    size = data.draw(st.tuples(sides, small_sides) | st.just(expected.shape[:2]))
    plan.resize(*size, filter=filter)
    expected = as_pil(np.ascontiguousarray(expected), *size, filter)
    plan.flip(where=np.array([mirrored]))
    expected = expected[:, ::-1] if mirrored else expected
    top, left, height, width = data.draw(boxes(*size))
    plan.crop(top, left, height, width)
    expected = expected[top : top + height, left : left + width]
    turns = data.draw(st.integers(0, 3))
    plan.rot90(turns)
    got = run_one(plan, image, Type.UINT8, isa=isa, tile=tile, only_regions=True)
    assert_same(got, np.ascontiguousarray(np.rot90(expected, turns)))


@given(images(), sides, small_sides, filters, VERSIONS, st.sampled_from(list(ISAS)))
@example(EXTREME, 19, 20, Filter.LANCZOS, 13, "baseline")
@example(EXTREME, 90, 110, Filter.BICUBIC, 12, "avx2")
@example(WIDE, 2, 4, Filter.LANCZOS, 12, "baseline")  # more taps than are summed together
def test_each_version_has_its_order(image, height, width, filter, version, isa):
    plan = new_plan(image, version)
    plan.resize(height, width, filter=filter)
    got = run_one(plan, image, Type.UINT8, isa=isa)
    assert_same(got, reference.resize(image, height, width, filter.name.lower(), version))


@given(st.data(), images(sizes(3000)), small_sides, small_sides, filters, BORDERS, BORDERS, tiles)
def test_padding_around_a_resize(data, image, height, width, filter, before, after, tile):
    """A constant border is rounded to a level before the resize, and stays as it is after it."""
    widths = st.tuples(*[st.integers(0, 9)] * 4)
    plan, (left, top, right, bottom) = new_plan(image), data.draw(widths)
    plan.pad(left, top, right, bottom, border=before, fill=(7.4, 200.0, 99.6))
    padded = pad(image.astype(np.float64), left, top, right, bottom, before.name.lower(), (7.0, 200.0, 100.0))
    assume(padded.shape[:2] != (height, width))  # a resize that changes nothing rounds nothing
    plan.resize(height, width, filter=filter)
    expected = as_pil(padded.astype(np.uint8), height, width, filter).astype(np.float64)
    left, top, right, bottom = data.draw(widths)
    plan.pad(left, top, right, bottom, border=after, fill=12.25)
    expected = pad(expected, left, top, right, bottom, after.name.lower(), (12.25,) * 3)
    plan.is_float = True  # the levels as floats, not rounded once more
    assert_same(run_one(plan, image, Type.FLOAT32, tile=tile), expected.astype(np.float32))


@given(st.data(), images(sizes(3000)), filters, filters, VERSIONS)
def test_a_resize_of_what_other_operations_made(data, image, first, second, version):
    """Each resize makes levels; what a color operation leaves between two levels is rounded first."""
    size, last = (data.draw(st.tuples(small_sides, small_sides)) for _ in range(2))
    plan = new_plan(image, version)
    plan.resize(*size, filter=first)
    plan.append(operations.scale(1, [0.9, 1.3, 0.5], [7.25, -20.0, 3.0], limit=255.0))
    plan.resize(*last, filter=second)
    expected = reference.resize(image, *size, first.name.lower(), version).astype(np.float32)
    assume(size != last)
    changed = expected * np.array([0.9, 1.3, 0.5], np.float32) + np.array([7.25, -20.0, 3.0], np.float32)
    levels = np.floor(np.clip(changed, 0, 255) + np.float32(0.5)).astype(np.uint8)
    expected = reference.resize(levels, *last, second.name.lower(), version)
    assert_same(run_one(plan, image, Type.UINT8), expected)


@given(images(), small_sides, small_sides, filters)
def test_gray_images(image, height, width, filter):
    gray = np.ascontiguousarray(image[..., 0])
    plan = new_plan(gray[..., None].repeat(3, 2))
    plan.channels = 1
    plan.resize(height, width, filter=filter)
    got = run_one(plan, gray[..., None].repeat(3, 2), Type.UINT8)
    assert_same(got.reshape(height, width), np.asarray(Image.fromarray(gray).resize((width, height), FILTERS[filter])))


@given(images(), small_sides, small_sides)
def test_masks_of_a_nearest_resize(image, height, width):
    plan = new_plan(image)
    plan.resize(height, width, filter=Filter.NEAREST)
    masks = plan.compile(Type.UINT8, Layout.HWC).for_masks()
    assert (masks.rows["antialias"] > 1).all() or image.shape[:2] == (height, width)
    assert_same(run_one(plan, image, Type.UINT8), as_pil(image, height, width, Filter.NEAREST))


_UNIT = st.floats(0, 1, width=32)
_POSITIVE = st.floats(2**-10, 1)


@given(
    st.tuples(_UNIT, _UNIT, _UNIT),
    st.tuples(_POSITIVE, _POSITIVE, _POSITIVE),
    st.sampled_from(list(ISAS)),
    st.booleans(),
)
@example((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "avx2", True)
@example((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "baseline", False)
def test_normalize_has_the_bits_of_torch(mean, std, isa, divides):
    """All levels: ToTensor divides by 255; torchvision's ToDtype multiplies by 1 / 255, which is another float."""
    image = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, 2)
    plan = new_plan(image)
    levels = torch.from_numpy(image).permute(2, 0, 1).float()
    if divides:
        levels.div_(255)
    else:
        plan.to_float()
        levels.mul_(1.0 / 255)
    plan.normalize(mean, std)
    columns = (torch.tensor(values, dtype=torch.float32)[:, None, None] for values in (mean, std))
    expected = levels.sub_(next(columns)).div_(next(columns))
    assert_same(run_one(plan, image, Type.FLOAT32, Layout.CHW, isa=isa), expected.numpy())
    assert_same(run_one(plan, image, Type.FLOAT16, Layout.CHW, isa=isa), expected.half().numpy())


@pytest.mark.parametrize(
    ("message", "channels", "is_float", "options"),
    [
        ("these are floats", 3, True, {}),
        ("these have 4 channels", 4, False, {}),
        ("antialias must be True for BICUBIC", 3, False, {"filter": Filter.BICUBIC, "antialias": False}),
    ],
)
def test_what_pillow_cannot_do_is_refused(message, channels, is_float, options):
    plan = new_plan(WIDE)
    plan.channels, plan.is_float = channels, is_float
    with pytest.raises(TransformError, match=f"pillow={INSTALLED} .*{message}"):
        plan.resize(5, 6, **options)
    plan.resize(5, 6, antialias=False, as_opencv=True)
