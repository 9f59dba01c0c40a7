"""`MultiView`: each view is what its own chain makes of the image, with draws of its own."""

from __future__ import annotations

import json
import pickle
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
    "colours": lambda: T.ColorJitter(0.4, 0.4, 0.4, 0.2),
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


def of_view(steps: list[dict[str, Any]], view: int) -> list[dict[str, Any]]:
    """What is told of one view, as its chain alone would tell it."""
    its = [step for step in steps if step["view"] == view]
    return [{"step": step["step"], "transform": step["transform"], "params": step["params"]} for step in its]


@given(st.lists(chains(), min_size=1, max_size=3), st.integers(1, 4), st.data())
def test_each_view_is_what_its_chain_makes_with_what_is_told(distinct, n, data):
    """In the chains one after the other, those steps alone are done that are told of the view."""
    which = [*range(len(distinct)), *data.draw(st.lists(st.integers(0, len(distinct) - 1), min_size=1, max_size=3))]
    images = stack(n)
    result, told = seeded([T.MultiView([distinct[k] for k in which])]).trace(images)
    assert result.shape == (n, len(which), 12, 13, 3)
    for i in range(n):
        for view in range(len(which)):
            alone = T.Compose(distinct).replay(of_view(told[i], view), images[i])
            np.testing.assert_array_equal(alone, result[i, view])


@given(st.lists(chains(), min_size=2, max_size=3, unique_by=id), st.integers(2, 5))
def test_a_view_depends_on_nothing_beside_it(distinct, n):
    images = stack(n)
    whole = seeded([T.MultiView(distinct)])(images)
    np.testing.assert_array_equal(seeded([T.MultiView(distinct)])(images[: n - 1]), whole[: n - 1])
    np.testing.assert_array_equal(seeded([T.MultiView([distinct[0]] * 3)])(images)[:, 0], whole[:, 0])
    others = [distinct[0], T.Compose([T.RandomRotation(90), T.CenterCrop((12, 13))]), *distinct[2:]]
    np.testing.assert_array_equal(np.delete(seeded([T.MultiView(others)])(images), 1, 1), np.delete(whole, 1, 1))


@given(st.lists(chains(), min_size=1, max_size=2), st.integers(1, 3))
def test_what_was_done_is_done_again_exactly(distinct, n):
    chain = [T.Pad(2), T.MultiView([*distinct, *distinct]), T.RandomVerticalFlip(), T.Normalize([0.5], [0.3])]
    images = stack(n)
    result, told = seeded(chain).trace(images)
    told = json.loads(json.dumps(told))
    np.testing.assert_array_equal(T.Compose(chain).replay(told, images), result)
    np.testing.assert_array_equal(T.Compose(chain).replay(told[0], images[0]), result[0])


def test_views_of_one_chain_draw_apart_and_what_is_beside_them_draws_once():
    images = np.full((400, 16, 16, 3), 100, dtype=np.uint8)
    inner = T.Compose([T.RandomInvert(0.5)])
    result = seeded([T.ColorJitter(0.5), T.MultiView([inner] * 3), T.RandomSolarize(0, 0.5)])(images)[:, :, 0, 0, 0]
    inverted = np.minimum(result, 255 - result) == result  # of what jitter and solarizing make of it, or not
    both = (result[:, :1] == result) | (result[:, :1] == 255 - result)
    assert both.all(), "jitter and solarizing are the same for all views"
    assert len(np.unique(np.minimum(result[:, 0], 255 - result[:, 0]))) > 20
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert 140 < (inverted[:, one] != inverted[:, other]).sum() < 260, "a fair coin for each view"


IN_LEVELS = [
    T.Pad(2, fill=128),
    T.RandomAffine(0, scale=(0.5, 0.5), fill=(100, 0, 200)),
    T.RandomErasing(1, value=200),
    T.RandomSolarize(128, 1),
    T.JPEG(30),
]


@pytest.mark.parametrize("step", IN_LEVELS, ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("first", [True, False])
def test_a_view_that_is_normalized_leaves_the_others_in_levels(step, first):
    """BYOL's and DINO's chains each end in Normalize; in those after the first, a fill of 128 was 128 times white."""
    images = stack(3)
    normalize, resize = T.Normalize(0.4, 0.3), T.Resize((12, 13))
    normalized, also = T.Compose([resize, normalize]), T.Compose([step, resize, normalize])
    views = [normalized, also, normalized] if first else [also, normalized, normalized]
    result, told = seeded([T.MultiView(views)]).trace(images)
    np.testing.assert_array_equal(T.Compose([T.MultiView(views)]).replay(told, images), result)
    for i in range(len(images)):
        steps = [{**each, "step": k} for k, each in enumerate(of_view(told[i], int(first)))]
        alone = T.Compose([also]).replay(steps, images[i])
        np.testing.assert_allclose(result[i, int(first)], alone, rtol=0, atol=1e-5)
        np.testing.assert_allclose(result[i, 2], normalized(images[i]), rtol=0, atol=1e-5)


def test_views_of_which_some_are_normalized():
    """The rest are floats in [0, 1], as all of a batch are of one type; what follows finds them so."""
    images = stack(2)
    views = T.MultiView([T.Normalize(0.5, 0.5), T.RandomInvert(1), T.Pad(0)])
    floats = images / np.float32(255)
    for result in (T.Compose([views])(images), T.Compose([views, T.RandomHorizontalFlip(1)])(images)[:, :, :, ::-1]):
        for view, wanted in enumerate((floats * 2 - 1, 1 - floats, floats)):
            np.testing.assert_allclose(result[:, view], wanted, rtol=0, atol=1e-5)


class Floats(T.Transform):
    def write(self, plan, where):
        plan.to_float()


@pytest.mark.parametrize("wrapper", [T.MultiView, T.RandomChoice])
@pytest.mark.parametrize("first", [True, False])
def test_a_transform_of_ones_own_that_asks_for_floats_beside_what_is_normalized(wrapper, first):
    """All become float, and each once: where both asked, in either order, values were divided by 255 twice."""
    images = np.full((20, 4, 4, 3), 51, np.uint8)
    members = [Floats(), T.Normalize(0.0, 1.0)] if first else [T.Normalize(0.0, 1.0), Floats()]
    np.testing.assert_allclose(T.Compose([wrapper(members)])(images), 0.2, rtol=0, atol=1e-6)


def test_what_mixes_images_behind_views():
    """MixUp and CutMix do the same to all views of an image; what needs images of three axes says so."""
    images = torch.from_numpy(stack(5)).permute(0, 3, 1, 2)
    views = T.MultiView([T.RandomCrop(16)] * 2)
    mixed, told = seeded([views, T.CutMix()]).trace(images)
    plain = T.Compose([views]).replay([steps[:2] for steps in told], images)
    for i, steps in enumerate(told):
        x0, y0, x1, y1 = steps[-1]["params"]["box"]
        want = plain[i].clone()
        want[..., y0:y1, x0:x1] = plain[(i + 1) % 5][..., y0:y1, x0:x1]
        assert torch.equal(mixed[i], want)
    for transform in (T.Mosaic(), T.AugMix()):
        with pytest.raises(TransformError, match=r"\(N, C, H, W\).*not \(\d, 2, 3, 16, 16\)"):
            seeded([views, transform])(images)


def test_kinds_of_images():
    chain = T.MultiView([T.RandomCrop(8)] * 2)
    image = stack(1)[0]
    assert chain(image).shape == (2, 8, 8, 3)
    assert chain(torch.from_numpy(image).permute(2, 0, 1)).shape == (2, 3, 8, 8)
    pil = chain(Image.fromarray(image))
    assert len(pil) == 2 and all(view.size == (8, 8) for view in pil)
    again = pickle.loads(pickle.dumps(seeded([chain])))
    np.testing.assert_array_equal(again(image), seeded([chain])(image))
    assert eval(repr(chain), {"MultiView": T.MultiView, "RandomCrop": T.RandomCrop}).views == 2
    assert "1 launch" in T.Compose([chain]).explain()


@dataclass(frozen=True)
class Mirrored(T.Transform):
    """One that equals others with the same arguments."""

    vertical: bool = False

    def plan(self, plan, rng, where=None):
        plan.flip(vertical=self.vertical, where=where)


@dataclass
class MirroredToo(T.Transform):
    """It does not hash."""

    vertical: bool = False
    plan = Mirrored.plan


@pytest.mark.parametrize("kind", [Mirrored, MirroredToo])
def test_transforms_that_are_equal_act_on_a_view_each(kind):
    """As data classes are: the second view stayed as it was."""
    images = stack(2)
    result = T.MultiView([kind(), kind(), kind(True)])(images)
    for view, want in enumerate((images[:, :, ::-1], images[:, :, ::-1], images[:, ::-1])):
        np.testing.assert_array_equal(result[:, view], want)


def test_an_edited_view_counts():
    several = T.MultiView([T.CenterCrop(8)] * 2)
    chain = T.Compose([several])
    assert chain(stack(2)).shape == (2, 2, 8, 8, 3)
    several.transforms.append(T.CenterCrop(8))
    assert chain(stack(2)).shape == (2, 3, 8, 8, 3)
    del several.transforms[1:]
    with pytest.raises(TransformError, match="at least two"):
        chain(stack(2))


def test_views_say_what_is_wrong(tmp_path):
    images = stack(2)
    with pytest.raises(TransformError, match="at least two"):
        T.MultiView([])
    with pytest.raises(TransformError, match="at most 2047, not 2048"):
        T.MultiView([T.CenterCrop(8)] * 2048)
    with pytest.raises(TransformError, match="is not a cuaug transform"):
        T.MultiView([[T.CenterCrop(8)]] * 2)
    with pytest.raises(TransformError, match="acts on whole batches: it cannot be a part of MultiView"):
        T.MultiView([T.Compose([T.MixUp()])] * 2)
    for several in (T.FiveCrop(4), T.MultiView([T.CenterCrop(4)] * 2)):
        with pytest.raises(TransformError, match="nothing in MultiView can make several"):
            T.MultiView([several, several])
        with pytest.raises(TransformError, match="only one transform of a chain"):
            T.Compose([several, T.MultiView([T.CenterCrop(4)] * 2)])
    with pytest.raises(TransformError, match="not inside RandomApply"):
        T.RandomApply([T.MultiView([T.CenterCrop(4)] * 2)])(images)
    for several in (T.FiveCrop(4), T.MultiView([T.CenterCrop(4)] * 5)):
        with pytest.raises(TransformError, match="only one transform of a chain"):
            T.Compose([T.FiveCrop(8), T.RandomApply([T.Compose([several])])])
    sizes = T.MultiView([T.CenterCrop(8), T.Resize(9)])
    for i, width in enumerate((20, 24)):
        Image.fromarray(images[0, :20, :width]).save(tmp_path / f"{i}.png")
    told = pytest.raises(TransformError, match=r"view 1 of .*0.png' .* is 9 x 9, view 1 of .*1.png' .* is 9 x 10")
    with cuaug.Loader([str(tmp_path / "0.png"), str(tmp_path / "1.png")], [sizes], batch_size=2) as loader, told:
        next(iter(loader))
    mixed = T.Compose([T.MultiView([T.CenterCrop(8), T.CenterCrop((9, 8))]), T.MixUp()])
    with pytest.raises(TransformError, match=r"MixUp\(.* takes images of one size, .* views of 8 x 8, 9 x 8 pixels"):
        mixed(images)
    with pytest.raises(TransformError, match=r"MultiView.* has no targets"):
        T.MultiView([T.CenterCrop(8)] * 2)(images[0], {"boxes": np.array([[1, 1, 4, 4.0]])})


def test_what_is_told_of_other_views_is_refused():
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
