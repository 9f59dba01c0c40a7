"""Crop, flip, pad and resize against OpenCV, Pillow and tests/references/sampling.py."""

from __future__ import annotations

from fractions import Fraction

import cv2
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from PIL import Image

from cuaug.errors import TransformError
from cuaug.plan import Border, Filter, Layout, Type, operations
from tests.references import sampling as reference
from tests.support import tolerances
from tests.support.run_plans import assert_close, assert_same, plan_for, run_one
from tests.support.strategies import BORDERS, RESIZES, SMOOTH, boxes, images, sides, sizes, small_sides

OPENCV = {Filter.NEAREST: cv2.INTER_NEAREST, Filter.BILINEAR: cv2.INTER_LINEAR, Filter.BICUBIC: cv2.INTER_CUBIC}
OPENCV_BORDER = {
    Border.WRAP: cv2.BORDER_WRAP,
    Border.CONSTANT: cv2.BORDER_CONSTANT,
    Border.EDGE: cv2.BORDER_REPLICATE,
    Border.REFLECT: cv2.BORDER_REFLECT_101,
    Border.SYMMETRIC: cv2.BORDER_REFLECT,
}
SEED = np.random.default_rng(5)
WIDE = SEED.integers(0, 256, (4, 941, 3), dtype=np.uint8)


def resized(image, height, width, *, dtype=None, **how):
    plan = plan_for(image)
    plan.resize(height, width, **how)
    return run_one(
        plan, image, dtype if dtype is not None else (Type.UINT8 if image.dtype == np.uint8 else Type.FLOAT32)
    )


def named(how):
    """The filter and antialias as the reference takes them."""
    return how["filter"].name.lower(), how["antialias"]


def levels(values):
    return np.floor(np.clip(values, 0, 255) + 0.5).astype(np.uint8)


@given(images(), sides, small_sides)
@example(WIDE, 4, 10)
def test_nearest_equals_opencv(image, height, width):
    want = cv2.resize(image, (width, height), interpolation=cv2.INTER_NEAREST)
    assert_same(resized(image, height, width, filter=Filter.NEAREST), want)


@given(images(dtype=np.float32), small_sides, sides, SMOOTH)
def test_interpolation_of_floats_equals_opencv(image, height, width, filter):
    got = resized(image, height, width, filter=filter, antialias=False)
    assert_close(got, cv2.resize(image, (width, height), interpolation=OPENCV[filter]), tolerances.OPENCV_RESIZE)


@given(images(), small_sides, sides)
@example(WIDE, 4, 10)
def test_antialiased_bilinear_equals_pillow(image, height, width):
    want = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    assert_close(resized(image, height, width), want, tolerances.PILLOW_BILINEAR_LEVELS)


def has_box_ties(old: int, new: int) -> bool:
    """Whether an old pixel's center lies on the border of two boxes, or a new one's between two old pixels."""
    borders = {Fraction(2 * k * old, new) for k in range(new + 1)}
    return any(2 * k + 1 in borders for k in range(old)) or bool(ties(old, new).any())


def ties(old: int, new: int) -> np.ndarray:
    """(new,) whether a new pixel's center lies between two old pixels, of which libraries take either."""
    return (2 * np.arange(new) + 1) * old % (2 * new) == 0


def without_ties(image: np.ndarray, height: int, width: int) -> tuple[np.ndarray, ...]:
    """The index of the pixels of a resized image whose centers lie in one old pixel."""
    return np.ix_(~ties(image.shape[0], height), ~ties(image.shape[1], width))


@given(images(), small_sides, sides)
@example(WIDE, 4, 10)
def test_nearest_exact_equals_pillow(image, height, width):
    want = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.NEAREST))
    untied = without_ties(image, height, width)
    assert_same(resized(image, height, width, filter=Filter.NEAREST_EXACT)[untied], want[untied])


@given(images(), sides, small_sides, st.sampled_from([Filter.BICUBIC, Filter.BOX, Filter.HAMMING, Filter.LANCZOS]))
@example(WIDE, 4, 10, Filter.LANCZOS)
@example(WIDE, 4, 10, Filter.BICUBIC)
@example(WIDE, 4, 137, Filter.HAMMING)
def test_antialiased_filters_equal_pillow(image, height, width, filter):
    """In mode F, channel by channel: Pillow saturates uint8 images after its first pass, the kernels at the end."""
    if filter == Filter.BOX:
        assume(not has_box_ties(image.shape[0], height) and not has_box_ties(image.shape[1], width))
    planes = [Image.fromarray(image[..., c].astype(np.float32)) for c in range(3)]
    want = np.stack([np.asarray(p.resize((width, height), Image.Resampling[filter.name])) for p in planes], axis=2)
    got = resized(image, height, width, filter=filter)
    assert_close(got, levels(want), tolerances.PILLOW_BICUBIC_LEVELS)


def test_a_box_takes_the_pixel_on_its_upper_end():
    """Pillow's rule: of 5 pixels, the third lies between both boxes and counts for the first."""
    image = np.tile(np.array([0, 0, 240, 80, 160], dtype=np.uint8)[:, None], (1, 1, 3))
    want = np.asarray(Image.fromarray(image).resize((2, 1), Image.Resampling.BOX))
    assert want[0, :, 0].tolist() == [80, 120]
    assert_same(resized(image, 1, 2, filter=Filter.BOX), want)


def test_flips_before_filters_with_a_direction_take_a_pass():
    image = np.tile(np.arange(10, dtype=np.uint8)[:, None], (1, 1, 3))
    for filter in (Filter.NEAREST, Filter.NEAREST_EXACT, Filter.BOX):
        plan = plan_for(image)
        plan.flip()
        plan.resize(1, 4, filter=filter)
        mirrored = np.ascontiguousarray(image[:, ::-1])
        assert_same(run_one(plan, image, Type.UINT8), resized(mirrored, 1, 4, filter=filter))


@given(images(dtype=np.float32), small_sides, small_sides, RESIZES)
def test_resize_equals_the_reference(image, height, width, how):
    got = resized(image, height, width, **how)
    assert_close(got, reference.resize(image, height, width, *named(how)), tolerances.RESIZE)


@given(images(), small_sides, small_sides, SMOOTH, st.booleans())
def test_resized_uint8_is_rounded_and_saturated(image, height, width, filter, antialias):
    got = resized(image, height, width, filter=filter, antialias=antialias)
    want = reference.resize(image, height, width, filter.name.lower(), antialias)
    assert_close(got, np.clip(want, 0, 255), tolerances.ROUNDING_LEVELS)


@given(images(), small_sides, small_sides, st.booleans())
def test_bicubic_overshoot_saturates_at_once_in_uint8_only(image, height, width, antialias):
    """Steps after the resize see levels in 0 ... 255. Float images keep the overshoot, as in torchvision."""
    halves = []
    for source in (image, image.astype(np.float32) / np.float32(255)):
        plan = plan_for(source)
        plan.resize(height, width, filter=Filter.BICUBIC, antialias=antialias)
        plan.append(operations.scale(1, 0.5, 0.25 * plan.limit))
        halves.append(run_one(plan, source))
    want = reference.resize(image / 255.0, height, width, "bicubic", antialias)
    if image.shape[:2] != (height, width):
        assert_close(halves[0], 0.5 * np.clip(want, 0, 1) + 0.25, tolerances.RESIZE)
    assert_close(halves[1], 0.5 * want + 0.25, tolerances.RESIZE)


@given(st.data(), st.booleans())
def test_resize_crop_resize_is_one_interpolation(data, flip):
    """The image holds the centers of its columns, so each output value is its source coordinate."""
    image = np.tile(np.arange(12, dtype=np.float32)[:, None] + 0.5, (2, 1, 3))
    plan, begin, scale = plan_for(image), 0.0, 1.0  # the value of column c is begin + scale * (c + 0.5)
    width = 12
    for _ in range(data.draw(st.integers(2, 4))):
        resized = data.draw(st.integers(1, 40))
        plan.resize(2, resized, antialias=False)
        scale *= width / resized
        assume(abs(abs(scale) - 1) > 1e-9)  # without scaling, a resize stops at the edge of a crop before it
        _, left, _, width = data.draw(boxes(2, resized))
        plan.crop(0, left, 2, width)
        begin += scale * left
        if flip:
            plan.flip()
            begin, scale = begin + scale * width, -scale
    assert plan.compile(Type.FLOAT32, Layout.HWC).launches == 1
    want = np.clip(begin + scale * (np.arange(width) + 0.5), 0.5, 11.5)
    np.testing.assert_allclose(run_one(plan, image, only_regions=True)[0, :, 0], want, atol=1e-4)


@given(images(), st.booleans(), RESIZES)
def test_identities(image, vertical, how):
    h, w = image.shape[:2]
    plan = plan_for(image)
    plan.flip(vertical=vertical)
    plan.flip(vertical=vertical)
    plan.crop(0, 0, h, w)
    plan.pad(0, 0, 0, 0)
    plan.resize(h, w, **how)
    assert plan.compile(Type.UINT8, Layout.HWC).launches == 1
    assert_same(run_one(plan_for(image), image, Type.UINT8), image)
    assert_same(run_one(plan, image, Type.UINT8), image)


@given(images(dtype=np.float32), small_sides, small_sides, SMOOTH, st.booleans(), st.booleans())
def test_flip_of_resize_is_resize_of_flip(image, height, width, filter, antialias, vertical):
    first, last = plan_for(image), plan_for(image)
    first.flip(vertical=vertical)
    first.resize(height, width, filter=filter, antialias=antialias)
    last.resize(height, width, filter=filter, antialias=antialias)
    last.flip(vertical=vertical)
    mirrored = np.ascontiguousarray(reference.flip(image, vertical))
    apart = resized(mirrored, height, width, filter=filter, antialias=antialias)
    assert_same(run_one(first, image), run_one(last, image))
    assert_close(run_one(last, image), apart, tolerances.FLIPPED_RESIZE)


@given(images(), small_sides, small_sides, RESIZES)
def test_a_constant_image_stays_constant(image, height, width, how):
    flat = np.ascontiguousarray(np.broadcast_to(image[0, 0], image.shape))
    got = resized(flat, height, width, **how)
    assert_same(got, np.broadcast_to(image[0, 0], (height, width, 3)))


@given(st.data(), st.sampled_from([np.uint8, np.float32]), st.integers(1, 70), RESIZES)
def test_rows_may_have_any_pitch(data, dtype, gap, how):
    image = data.draw(images(dtype=dtype))
    h, w, _ = image.shape
    memory = np.full((h, w + gap, 3), 200 if dtype == np.uint8 else np.nan, dtype=dtype)
    memory[:, :w] = image
    how = {"height": 17, "width": 23, **how, "dtype": Type.FLOAT32}
    assert_same(resized(memory[:, :w], **how), resized(image, **how))


def test_invalid_arguments_are_refused():
    plan = plan_for(WIDE)
    message = r"padding cuts 2, 0, 2, 0 pixels \(top, left, bottom, right\) off an image of 4 x 941: at least"
    with pytest.raises(TransformError, match=message):
        plan.pad(3, -2, 0, -2)
    for filter in (Filter.BOX, Filter.HAMMING, Filter.LANCZOS):
        with pytest.raises(TransformError, match=f"antialias must be True for {filter.name}"):
            plan.resize(3, 3, filter=filter, antialias=False)
    with pytest.raises(TransformError, match="filter of a warp must be NEAREST, BILINEAR or BICUBIC, not LANCZOS"):
        plan.warp(np.eye(3), 3, 3, filter=Filter.LANCZOS)


margins = st.one_of(st.integers(0, 5), st.integers(0, 90))


@given(images(sizes(2000)), margins, margins, margins, margins, BORDERS)
@example(SEED.integers(0, 256, (1, 1, 3), dtype=np.uint8), 3, 4, 5, 6, Border.REFLECT)
@example(SEED.integers(0, 256, (2, 3, 3), dtype=np.uint8), 30, 41, 52, 63, Border.SYMMETRIC)
def test_pad_equals_opencv(image, left, top, right, bottom, border):
    plan = plan_for(image)
    plan.pad(left, top, right, bottom, border=border, fill=(10, 20, 30))
    got = run_one(plan, image, Type.UINT8)
    want = cv2.copyMakeBorder(image, top, bottom, left, right, OPENCV_BORDER[border], value=(10, 20, 30))
    assert_same(got, want)
    assert_same(got, reference.pad(image, left, top, right, bottom, border.name.lower(), (10, 20, 30)))


@given(images(sizes(2000)), st.data())
def test_a_window_beyond_the_image_shows_the_fill(image, data):
    h, w, _ = image.shape
    top, left = (data.draw(st.integers(-90, side + 90)) for side in (h, w))
    height, width = data.draw(small_sides), data.draw(small_sides)
    plan = plan_for(image)
    plan.window(top, left, height, width, fill=(10, 20, 30))
    canvas = reference.pad(image, 130, 130, 130, 130, "constant", (10, 20, 30))
    want = reference.crop(canvas, top + 130, left + 130, height, width)
    assert_same(run_one(plan, image, Type.UINT8, only_regions=True), want)


@given(images(sizes(2000)), st.tuples(*[st.integers(-20, 20)] * 4), BORDERS)
def test_negative_padding_cuts_off(image, sides, border):
    left, top, right, bottom = sides
    h, w, _ = image.shape
    cut = image[max(-top, 0) : h - max(-bottom, 0), max(-left, 0) : w - max(-right, 0)]
    assume(h > max(-top, 0) + max(-bottom, 0) and w > max(-left, 0) + max(-right, 0))
    plan = plan_for(image)
    plan.pad(*sides, border=border, fill=7)
    want = reference.pad(cut, *(max(side, 0) for side in sides), border.name.lower(), 7)
    assert_same(run_one(plan, image, Type.UINT8, only_regions=True), want)


few = st.integers(1, 9)


@given(images(st.tuples(few, few)), st.lists(st.tuples(few, few, few, few), min_size=1, max_size=3), BORDERS, st.data())
def test_padding_is_padded_and_cropped(image, sides, border, data):
    """A reflecting border reflects at the edge of that moment; the region covers the pixels that it shows."""
    plan, want = plan_for(image), image
    for each in sides:
        plan.pad(*each, border=border, fill=(10, 20, 30))
        want = reference.pad(want, *each, border.name.lower(), (10, 20, 30))
    box = data.draw(boxes(*want.shape[:2]))
    plan.crop(*box)
    assert_same(run_one(plan, image, Type.UINT8, only_regions=True), reference.crop(want, *box))


@given(
    images(sizes(2000) | st.tuples(few, few), dtype=np.float32),
    margins, margins, st.data(), BORDERS, RESIZES,
)  # fmt: skip
def test_resize_after_pad_sees_the_padding(image, before, after, data, border, how):
    plan = plan_for(image)
    plan.pad(before, after, after, before, border=border, fill=0.25)
    padded = reference.pad(image, before, after, after, before, border.name.lower(), 0.25)
    box = data.draw(boxes(*padded.shape[:2]))
    plan.crop(*box)
    plan.resize(9, 14, **how)
    want = reference.resize(reference.crop(padded, *box), 9, 14, *named(how))
    assert_close(run_one(plan, image, only_regions=True), want, tolerances.RESIZE)


@given(images(sizes(2000)), margins, margins, BORDERS, RESIZES, st.sampled_from(Layout))
def test_resizes_that_undo_each_other_leave_the_padding(image, before, after, border, how, layout):
    height, width = image.shape[0] + before + after, image.shape[1] + before + after
    plan = plan_for(image)
    plan.pad(before, after, after, before, border=border, fill=(10, 20, 30))
    plan.resize(2 * height, 2 * width, **how)
    plan.resize(height, width, **how)
    want = reference.pad(image, before, after, after, before, border.name.lower(), (10, 20, 30))
    got = run_one(plan, image, Type.UINT8, layout)  # packed uint8 takes the uint8 path, planes the common one
    assert_same(got if layout == Layout.HWC else got.transpose(1, 2, 0), want)
