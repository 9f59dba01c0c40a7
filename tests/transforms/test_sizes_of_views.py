"""`MultiView` with views of several sizes: one stack per size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cuaug import transforms as T
from cuaug.devices import OutputStacks, first_size_mismatch
from cuaug.errors import TransformError
from cuaug.plan import Layout
from tests.transforms.test_views import chains, seeded, stack, steps_of_view

SIZES = [(12, 13), (7, 9), (16, 5)]


def grouped(sizes):
    """The views of each size, sizes in the order of their first views."""
    groups = {}
    for view, size in enumerate(sizes):
        groups.setdefault(size, []).append(view)
    return groups


@given(st.lists(st.tuples(chains(), st.sampled_from(SIZES)), min_size=2, max_size=4), st.integers(1, 3), st.data())
def test_each_view_equals_its_chain_in_the_stack_of_its_size(drawn, n, data):
    distinct, sizes = [T.Compose([chain, T.Resize(size)]) for chain, size in drawn], [size for _, size in drawn]
    which = [*range(len(distinct)), *data.draw(st.lists(st.integers(0, len(distinct) - 1), max_size=2))]
    images = stack(n)
    result, told = seeded([T.MultiView([distinct[k] for k in which])]).trace(images)
    groups = grouped([sizes[k] for k in which])
    stacks = result if len(groups) > 1 else (result,)
    assert [one.shape for one in stacks] == [(n, len(views), *size, 3) for size, views in groups.items()]
    for one, views in zip(stacks, groups.values(), strict=True):
        for k, view in enumerate(views):
            for i in range(n):
                alone = T.Compose(distinct).replay(steps_of_view(told[i], view), images[i])
                np.testing.assert_array_equal(alone, one[i, k])


@given(
    st.lists(st.sampled_from(SIZES), min_size=1, max_size=6),
    st.integers(1, 4),
    st.sampled_from([Layout.CHW, Layout.HWC]),
    st.sampled_from([torch.uint8, torch.float16, torch.float32]),
)
def test_each_plan_row_has_the_address_of_its_image(sizes, n, layout, dtype):
    stacks = OutputStacks.from_sizes(np.array(sizes * n).T, len(sizes), 3, layout)
    tensors = [torch.empty(shape, dtype=dtype) for shape in stacks.shapes]
    addresses = stacks.addresses(tensors).reshape(n, len(sizes))
    groups = grouped(sizes)
    assert stacks.count == len(sizes) and stacks.views == list(groups.values())
    for one, (size, views) in zip(tensors, groups.items(), strict=True):
        image = (3, *size) if layout == Layout.CHW else (*size, 3)
        assert one.shape == ((n, *image) if len(sizes) == 1 else (n, len(views), *image))
        for i in range(n):
            for k, view in enumerate(views):
                assert addresses[i, view] == (one[i] if len(sizes) == 1 else one[i, k]).data_ptr()


@given(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3), st.integers(1, 4), st.data())
def test_first_size_mismatch_finds_the_first_other_size(sizes, n, data):
    rows = sizes * n
    assert first_size_mismatch(np.array(rows).T, len(sizes)) is None
    k = data.draw(st.integers(0, len(rows) - 1))
    rows[k] = (99, 1)
    # If the first image's view changed, the second image has the first mismatch.
    want = None if n == 1 else k if k >= len(sizes) else k + len(sizes)
    assert first_size_mismatch(np.array(rows).T, len(sizes)) == want


VIEWS = T.MultiView([T.RandomCrop(8), T.RandomCrop(5), T.RandomCrop(8)])


def test_image_types():
    image = stack(1)[0]
    large, small = VIEWS(image)
    assert large.shape == (2, 8, 8, 3) and small.shape == (1, 5, 5, 3)
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    assert [tuple(one.shape) for one in VIEWS(tensor)] == [(2, 3, 8, 8), (1, 3, 5, 5)]
    assert [tuple(one.shape) for one in VIEWS(tensor[None])] == [(1, 2, 3, 8, 8), (1, 1, 3, 5, 5)]
    assert [one.dtype for one in T.Compose([VIEWS, T.Normalize(0.5, 0.5)])(tensor)] == [torch.float32] * 2
    assert [one.dtype for one in VIEWS(tensor.double() / 255)] == [torch.float64] * 2
    several = VIEWS(Image.fromarray(image))
    assert [[view.size for view in views] for views in several] == [[(8, 8), (8, 8)], [(5, 5)]]
    assert "1 launch" in T.Compose([VIEWS]).explain()


def test_other_transforms_act_on_all_views_alike():
    images = stack(8)
    chain = [T.RandomVerticalFlip(0.5), VIEWS, T.RandomInvert(0.5), T.Normalize(0.5, 0.5)]
    result, told = seeded(chain).trace(images)
    for one, again in zip(result, T.Compose(chain).replay(told, images), strict=True):
        np.testing.assert_array_equal(one, again)
    inverted = [any(step["transform"] == "RandomInvert" for step in steps) for steps in told]
    assert len(set(inverted)) == 2, "with this seed"
    plain = T.Compose(chain).replay([[s for s in steps if s["transform"] != "RandomInvert"] for steps in told], images)
    for one, other in zip(result, plain, strict=True):
        for i, turned in enumerate(inverted):
            # float32 error: a value and its negative are computed from levels in two ways
            np.testing.assert_allclose(one[i], -other[i] if turned else other[i], atol=1e-6)


@pytest.mark.parametrize("batch_transform", [T.MixUp(), T.CutMix(), T.Lambda(lambda images: images)], ids=repr)
def test_batch_transforms_after_views_of_several_sizes_are_refused(batch_transform):
    with pytest.raises(TransformError, match=r"needs images of one size, .* views of 8 x 8, 5 x 5 pixels"):
        T.Compose([VIEWS, batch_transform])(torch.from_numpy(stack(2)).permute(0, 3, 1, 2))


def test_views_of_mixed_images():
    images = torch.from_numpy(stack(4)).permute(0, 3, 1, 2)
    chain = [T.CutMix(), VIEWS]
    result, told = seeded(chain).trace(images)
    assert [tuple(one.shape) for one in result] == [(4, 2, 3, 8, 8), (4, 1, 3, 5, 5)]
    assert all(map(torch.equal, result, T.Compose(chain).replay(told, images)))
