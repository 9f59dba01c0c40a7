"""Crops, flips and pads move pixels exactly, alone and beside resizes."""

from __future__ import annotations

import cv2
import numpy as np
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cuaug.plan import Border, Layout, Type
from tests.properties.test_sampling import OPENCV_BORDER, SEED, named
from tests.references import sampling as reference
from tests.support import tolerances
from tests.support.run_plans import assert_close, assert_same, plan_for, run_one
from tests.support.strategies import BORDERS, RESIZES, boxes, images, sizes, small_sides

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
