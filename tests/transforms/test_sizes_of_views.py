"""`MultiView` with views of several sizes: one stack per size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cuaug import transforms as T
from cuaug.errors import TransformError
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
