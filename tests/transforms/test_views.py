"""`MultiView`: each view equals its own chain, with its own draws; views of one size come in one stack."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.errors import TransformError

STEPS = {
    "crop": lambda: T.RandomCrop(14),
    "flip": T.RandomHorizontalFlip,
    "colors": lambda: T.ColorJitter(0.4, 0.4, 0.4, 0.2),
    "gray": lambda: T.RandomGrayscale(0.5),
    "blur": lambda: T.RandomApply([T.GaussianBlur(5)]),
    "policy": lambda: T.RandAugment(2, 9),
    "one of": lambda: T.RandomChoice([T.RandomInvert(0.5), T.RandomSolarize(128, 1), T.RandomRotation(20)]),
    "noise": T.GaussianNoise,
    "erase": lambda: T.RandomErasing(0.5, value="random"),
}


@st.composite
def chains(draw) -> T.Compose:
    steps = [STEPS[name]() for name in draw(st.lists(st.sampled_from(sorted(STEPS)), max_size=4))]
    return T.Compose([*steps, T.Resize((12, 13))])


def stack(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 20, 24, 3), dtype=np.uint8)


def seeded(chain: list[T.Transform], seed: int = 3) -> T.Compose:
    return T.Compose(chain, generator=torch.Generator().manual_seed(seed))


def steps_of_view(steps: list[dict[str, Any]], view: int) -> list[dict[str, Any]]:
    """The recorded steps of one view, as its chain alone would record them."""
    return [{key: step[key] for key in ("step", "transform", "params")} for step in steps if step["view"] == view]


@given(st.lists(chains(), min_size=2, max_size=3, unique_by=id), st.integers(2, 5))
def test_a_view_is_independent_of_the_others(distinct, n):
    images = stack(n)
    whole = seeded([T.MultiView(distinct)])(images)
    np.testing.assert_array_equal(seeded([T.MultiView(distinct)])(images[: n - 1]), whole[: n - 1])
    np.testing.assert_array_equal(seeded([T.MultiView([distinct[0]] * 3)])(images)[:, 0], whole[:, 0])
    others = [distinct[0], T.Compose([T.RandomRotation(90), T.CenterCrop((12, 13))]), *distinct[2:]]
    np.testing.assert_array_equal(np.delete(seeded([T.MultiView(others)])(images), 1, 1), np.delete(whole, 1, 1))


@given(st.lists(chains(), min_size=1, max_size=2), st.integers(1, 3))
def test_views_replay_exactly(distinct, n):
    chain = [T.Pad(2), T.MultiView([*distinct, *distinct]), T.RandomVerticalFlip(), T.Normalize([0.5], [0.3])]
    images = stack(n)
    result, told = seeded(chain).trace(images)
    told = json.loads(json.dumps(told))
    np.testing.assert_array_equal(T.Compose(chain).replay(told, images), result)
    np.testing.assert_array_equal(T.Compose(chain).replay(told[0], images[0]), result[0])


def test_views_draw_independently_and_other_transforms_draw_once():
    images = np.full((400, 16, 16, 3), 100, dtype=np.uint8)
    inner = T.Compose([T.RandomInvert(0.5)])
    result = seeded([T.ColorJitter(0.5), T.MultiView([inner] * 3), T.RandomSolarize(0, 0.5)])(images)[:, :, 0, 0, 0]
    inverted = np.minimum(result, 255 - result) == result  # whether the view is inverted relative to the jittered image
    both = (result[:, :1] == result) | (result[:, :1] == 255 - result)
    assert both.all(), "jitter and solarizing are the same for all views"
    assert len(np.unique(np.minimum(result[:, 0], 255 - result[:, 0]))) > 20
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert 140 < (inverted[:, one] != inverted[:, other]).sum() < 260, "each view has its own draw"


IN_LEVELS = [
    T.Pad(2, fill=128),
    T.RandomAffine(0, scale=(0.5, 0.5), fill=(100, 0, 200)),
    T.RandomErasing(1, value=200),
    T.RandomSolarize(128, 1),
    T.JPEG(30),
]


@pytest.mark.parametrize("step", IN_LEVELS, ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("first", [True, False])
def test_a_normalized_view_leaves_the_others_in_levels(step, first):
    """A bug: in chains after the first with a Normalize (BYOL, DINO), a fill of 128 was 128 times white."""
    images = stack(3)
    normalize, resize = T.Normalize(0.4, 0.3), T.Resize((12, 13))
    plain, with_step = T.Compose([resize, normalize]), T.Compose([step, resize, normalize])
    views = [plain, with_step, plain] if first else [with_step, plain, plain]
    result, told = seeded([T.MultiView(views)]).trace(images)
    np.testing.assert_array_equal(T.Compose([T.MultiView(views)]).replay(told, images), result)
    for i in range(len(images)):
        steps = [{**step, "step": k} for k, step in enumerate(steps_of_view(told[i], int(first)))]
        alone = T.Compose([with_step]).replay(steps, images[i])
        np.testing.assert_allclose(result[i, int(first)], alone, rtol=0, atol=1e-5)
        np.testing.assert_allclose(result[i, 2], plain(images[i]), rtol=0, atol=1e-5)


def test_views_with_and_without_normalize():
    """A batch has one dtype, so the other views are floats in [0, 1], also for later transforms."""
    images = stack(2)
    views = T.MultiView([T.Normalize(0.5, 0.5), T.RandomInvert(1), T.Pad(0)])
    floats = images / np.float32(255)
    for result in (T.Compose([views])(images), T.Compose([views, T.RandomHorizontalFlip(1)])(images)[:, :, :, ::-1]):
        for view, expected in enumerate((floats * 2 - 1, 1 - floats, floats)):
            np.testing.assert_allclose(result[:, view], expected, rtol=0, atol=1e-5)


class Floats(T.Transform):
    def write(self, plan, where):
        plan.to_float()


@pytest.mark.parametrize("wrapper", [T.MultiView, T.RandomChoice])
@pytest.mark.parametrize("first", [True, False])
def test_a_custom_float_transform_beside_normalize(wrapper, first):
    """A bug: where both converted to float, in either order, values were divided by 255 twice."""
    images = np.full((20, 4, 4, 3), 51, np.uint8)
    members = [Floats(), T.Normalize(0.0, 1.0)] if first else [T.Normalize(0.0, 1.0), Floats()]
    np.testing.assert_allclose(T.Compose([wrapper(members)])(images), 0.2, rtol=0, atol=1e-6)


def test_mixes_after_views():
    """MixUp and CutMix act on all views of an image alike; Mosaic and AugMix refuse views."""
    images = torch.from_numpy(stack(5)).permute(0, 3, 1, 2)
    views = T.MultiView([T.RandomCrop(16)] * 2)
    mixed, told = seeded([views, T.CutMix()]).trace(images)
    plain = T.Compose([views]).replay([steps[:2] for steps in told], images)
    for i, steps in enumerate(told):
        x0, y0, x1, y1 = steps[-1]["params"]["box"]
        want = plain[i].clone()
        want[..., y0:y1, x0:x1] = plain[(i + 1) % 5][..., y0:y1, x0:x1]
        assert torch.equal(mixed[i], want)
    for later in ([T.Mosaic()], [T.AugMix()], [T.Lambda(lambda x: x), T.Pad(1)]):
        with pytest.raises(TransformError, match=r"\(N, C, H, W\).*not \(\d, 2, 3, 16, 16\)"):
            seeded([views, *later])(images)


@dataclass(frozen=True)
class Mirrored(T.Transform):
    """Instances with equal arguments compare equal."""

    vertical: bool = False

    def plan(self, plan, rng, where=None):
        plan.flip(vertical=self.vertical, where=where)


@dataclass
class MirroredToo(T.Transform):
    """Instances are not hashable."""

    vertical: bool = False
    plan = Mirrored.plan


@pytest.mark.parametrize("kind", [Mirrored, MirroredToo])
def test_equal_transforms_act_on_one_view_each(kind):
    """A bug: with equal data classes, the second view was unchanged."""
    images = stack(2)
    result = T.MultiView([kind(), kind(), kind(True)])(images)
    for view, want in enumerate((images[:, :, ::-1], images[:, :, ::-1], images[:, ::-1])):
        np.testing.assert_array_equal(result[:, view], want)


def test_errors_of_views(tmp_path):
    images = stack(2)
    with pytest.raises(TransformError, match="transforms of MultiView must be for 2 to 2047 views, not"):
        T.MultiView([])
    with pytest.raises(TransformError, match="for 2 to 2047 views, not 2048"):
        T.MultiView([T.CenterCrop(8)] * 2048)
    with pytest.raises(TransformError, match="transforms must hold transforms, not a list"):
        T.MultiView([[T.CenterCrop(8)]] * 2)
    with pytest.raises(TransformError, match=r"MixUp\(\) acts on whole batches, but MultiView decides per sample"):
        T.MultiView([T.Compose([T.MixUp()])] * 2)
    for several in (T.FiveCrop(4), T.MultiView([T.CenterCrop(4)] * 2)):
        with pytest.raises(TransformError, match="must each make one image per image, not several"):
            T.MultiView([several, several])
        with pytest.raises(TransformError, match="at most one transform that makes several images of one"):
            T.Compose([several, T.MultiView([T.CenterCrop(4)] * 2)])
    with pytest.raises(TransformError, match="MultiView makes 2 images of each, so it cannot be inside RandomApply"):
        T.RandomApply([T.MultiView([T.CenterCrop(4)] * 2)])(images)
    for several in (T.FiveCrop(4), T.MultiView([T.CenterCrop(4)] * 5)):
        with pytest.raises(TransformError, match="at most one transform that makes several images of one"):
            T.Compose([T.FiveCrop(8), T.RandomApply([T.Compose([several])])])
    sizes = T.MultiView([T.CenterCrop(8), T.Resize(9)])
    for i, width in enumerate((20, 24)):
        Image.fromarray(images[0, :20, :width]).save(tmp_path / f"{i}.png")
    refused = pytest.raises(TransformError, match=r"view 1 of .*0.png' .* is 9 x 9, view 1 of .*1.png' .* is 9 x 10")
    with cuaug.Loader([str(tmp_path / "0.png"), str(tmp_path / "1.png")], [sizes], batch_size=2) as loader, refused:
        next(iter(loader))
    mixed = T.Compose([T.MultiView([T.CenterCrop(8), T.CenterCrop((9, 8))]), T.MixUp()])
    with pytest.raises(TransformError, match=r"MixUp\(.* needs images of one size, .* views of 8 x 8, 9 x 8 pixels"):
        mixed(images)
    with pytest.raises(TransformError, match=r"targets cannot move with several views .* MultiView"):
        T.MultiView([T.CenterCrop(8)] * 2)(images[0], {"boxes": np.array([[1, 1, 4, 4.0]])})


def test_parameters_of_other_views_are_refused():
    images = stack(1)[0]
    two, three = (T.Compose([T.MultiView([T.RandomCrop(8)] * count)]) for count in (2, 3))
    _, told = two.trace(images)
    with pytest.raises(TransformError, match="recorded for view 2, but here are 2 views"):
        two.replay(three.trace(images)[1], images)
    with pytest.raises(TransformError, match="recorded for view 0, but here are 1 views that draw together"):
        T.Compose([T.RandomCrop(8)]).replay(told, images)
    for step in told:
        del step["view"]
    with pytest.raises(TransformError, match="recorded for all views, but here are 2 views that draw separately"):
        two.replay(told, images)


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
