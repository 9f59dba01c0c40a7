"""Chains: nesting, independent draws, numbers of launches, and common pipelines."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cuaug import TransformError
from cuaug import transforms as T
from cuaug.plan import CompiledPlan, Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms.execute import apply
from tests.references import color, masks, sampling
from tests.references.transforms import YUV
from tests.transforms.test_every import run, stack

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def tables(chain: list[T.Transform], n: int = 64, seed: int = 0) -> CompiledPlan:
    """The compiled plan of n images of random sizes from 64 to 200."""
    heights, widths = np.random.default_rng(seed).integers(64, 200, (2, n))
    plan = Plan(heights, widths)
    T.Compose(chain).plan(plan, SampleRNG(seed, 0, np.arange(n)))
    return plan.compile()


def launches(*chain: T.Transform, n: int = 64) -> int:
    return tables(list(chain), n).launches


# --- nesting ---------------------------------------------------------------------------------------------------------


def test_a_nested_compose_draws_like_a_flat_one():
    steps = [T.RandomCrop(20), T.RandomHorizontalFlip(), T.RandomErasing(), T.RandomMask(0.3)]
    images = stack()
    flat = run(T.Compose(steps), images, 5)
    np.testing.assert_array_equal(run(T.Compose([steps[0], T.Compose(steps[1:3]), steps[3]]), images, 5), flat)
    np.testing.assert_array_equal(run(T.Compose([T.Compose([T.Compose(steps)])]), images, 5), flat)


def test_draws_are_independent_of_earlier_transforms():
    """Each transform draws at its own position: an earlier one with p of 0 changes nothing."""
    images = stack()
    for before in (T.RandomGrayscale(0.0), T.RandomErasing(p=0), T.RandomVerticalFlip(0)):
        a = run(T.Compose([before, T.RandomCrop(15), T.RandomMask()]), images, 1)
        b = run(T.Compose([T.Normalize(0, 1), T.RandomCrop(15), T.RandomMask()]), images, 1)
        np.testing.assert_array_equal(a, np.rint(b * 255))


def test_equal_transforms_in_one_chain_draw_independently():
    n = 4000
    images = np.zeros((n, 1, 2, 3), np.uint8)
    images[:, 0, 0] = 255
    twice = T.Compose([T.RandomHorizontalFlip(), T.RandomHorizontalFlip()])(images)[:, 0, 0, 0] == 255
    assert abs(twice.mean() - 0.5) < 0.04, "two equal flips would always cancel"


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_random_apply_applies_all_or_none(p):
    n = 2000
    images = np.full((n, 1, 1, 3), 10, np.uint8)
    images[..., 0] = 200
    plus = T.LUT(np.arange(256).clip(0, 254) + 1)
    got = T.RandomApply([plus, plus, plus], p)(images)[:, 0, 0, 1].astype(int) - 10
    assert set(got) <= {0, 3} and abs((got == 3).mean() - p) <= 0.055


def test_random_apply_inside_random_apply():
    n = 8000
    image = np.zeros((n, 1, 1, 3), np.uint8)
    mark = [T.LUT(np.arange(256) | bit) for bit in (1, 2, 4)]
    chain = T.RandomApply([mark[0], T.RandomApply([mark[1], T.RandomApply([mark[2]], 0.5)], 0.5)], 0.5)
    got = chain(image)[:, 0, 0, 0]
    share = {value: (got == value).mean() for value in range(8)}
    assert set(np.unique(got)) == {0, 1, 3, 7}, "an inner RandomApply acts only where the outer ones do"
    for value, expected in {0: 0.5, 1: 0.25, 3: 0.125, 7: 0.125}.items():
        assert abs(share[value] - expected) < 0.03


def test_random_apply_of_a_size_change_needs_a_common_final_size():
    with pytest.raises(TransformError, match=r"different sizes \(height, width\): \[\(23, 28\), \(27, 32\)\]"):
        T.RandomApply([T.Pad(2)])(stack(20))
    chain = T.Compose([T.RandomApply([T.Pad(2), T.RandomCrop(22)]), T.RandomApply([T.Resize(40)]), T.CenterCrop(20)])
    assert chain(stack(20)).shape == (20, 20, 20, 3)


def test_the_generator_of_a_nested_chain_is_ignored():
    """The outermost Compose seeds the whole call."""
    images = stack()
    inner = T.Compose([T.RandomMask()], generator=torch.Generator().manual_seed(0))
    outer = [T.Compose([inner], generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    first, second, third = (compose(images) for compose in outer)
    np.testing.assert_array_equal(first, second)
    assert (third != first).any()


def test_a_chain_may_be_edited():
    """Assigning to `transforms` takes effect, also in a nested chain and in copies."""
    images = stack(2)
    chain = T.Compose([T.CenterCrop(9), T.Compose([T.Pad(1)])])
    assert chain(images).shape == (2, 11, 11, 3)
    chain.transforms[0] = T.CenterCrop(7)
    assert chain(images).shape == (2, 9, 9, 3)
    for again in (chain, copy.deepcopy(chain), pickle.loads(pickle.dumps(chain))):
        inner = again.transforms[1]
        inner.transforms.append(T.Lambda(lambda x: x[..., :5]))
        assert again(images).shape == (2, 9, 5, 3)
        inner.transforms.pop()
        assert again(images).shape == (2, 9, 9, 3)
    chain.transforms.append(3)
    with pytest.raises(TransformError, match=r"transforms must hold cuaug transforms, .*, not 3"):
        chain(images)
    chain.transforms[-1] = lambda x: x[..., :4]
    inner = chain.transforms[1]
    inner.transforms.append(lambda x: 255 - x)
    assert np.array_equal(chain(images), 255 - T.Compose(chain.transforms[:1] + inner.transforms[:1])(images)[:, :, :4])


def test_an_edit_updates_the_target_format_and_the_views():
    boxes = {"boxes": torch.tensor([[2.0, 2.0, 4.0, 4.0]])}
    image = torch.zeros((3, 16, 16))
    chain = T.Compose([T.RandomHorizontalFlip(1)])
    assert chain(image, boxes)[1]["boxes"].tolist() == [[12, 2, 14, 4]]
    chain.transforms.append(T.RandomApply([T.Compose([], box_format="xywh")]))
    assert chain(image, boxes)[1]["boxes"].tolist() == [[10, 2, 4, 4]]
    chain.transforms.append(T.Compose([], box_format="cxcywh"))
    with pytest.raises(TransformError, match="box_format must be the same for a chain"):
        chain(image, boxes)

    inner = T.Compose([T.RandomHorizontalFlip()])
    chain = T.Compose([inner, T.Resize(8)])
    assert chain.views == 1 and chain(image).shape == (3, 8, 8)
    inner.transforms.append(T.FiveCrop(8))
    assert chain.views == 5 and chain(image).shape == (5, 3, 8, 8)
    chain.transforms.append(T.TenCrop(4))
    with pytest.raises(TransformError, match="at most one transform that makes several images of one"):
        chain(image)


def test_segments_of_an_unedited_chain_are_computed_once():
    chain = T.Compose([T.CenterCrop(9), T.Lambda(lambda x: x)])
    assert chain.segments is chain.segments
    assert "_cached" in vars(chain) and "_cached" not in chain.__getstate__()


def test_two_threads_may_compute_the_segments_at_once(monkeypatch):
    barrier, split = threading.Barrier(2, timeout=60), T.Compose._split

    def split_together(self):
        barrier.wait()
        segments = split(self)
        barrier.wait()
        return segments

    monkeypatch.setattr(T.Compose, "_split", split_together)
    chain = T.Compose([T.CenterCrop(9), T.Lambda(lambda x: x), T.CenterCrop(7)])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: chain.segments, range(2)))
    assert len(chain.segments) == 3


def test_only_torch_generators_are_accepted():
    for generator in (42, np.random.default_rng(0)):
        with pytest.raises(TransformError, match=r"generator must be a torch.Generator or None, not (42|Generator)"):
            T.Compose([], generator=generator)


def test_torchs_default_device_is_ignored():
    torch.manual_seed(3)
    want = T.RandomHorizontalFlip()(stack())
    torch.manual_seed(3)
    with torch.device("meta"):
        np.testing.assert_array_equal(T.RandomHorizontalFlip()(stack()), want)


def test_repr_of_chains():
    chain = T.Compose([T.RandomApply([T.ColorJitter(0.4, hue=0.1), T.Grayscale(3)], p=0.8), T.Compose([T.Pad(1)])])
    text = repr(chain)
    assert text.startswith("Compose([\n    RandomApply(") and "ColorJitter(brightness=0.4, hue=0.1)" in text
    assert repr(eval(text, vars(T))) == text and repr(T.Compose([])) == "Compose([])"


def test_chains_take_tuples_and_generators():
    for steps in ((T.Pad(1),), iter([T.Pad(1)]), [T.Pad(1)]):
        assert repr(T.Compose(steps)) == "Compose([\n    Pad(padding=1),\n])"
    assert T.Compose([])(stack(2)).shape == stack(2).shape


# --- launches --------------------------------------------------------------------------------------------------------

FREE = [
    T.RandomHorizontalFlip(),
    T.ColorJitter(0.4, 0, 0.4, 0.1),
    T.RandomGrayscale(),
    T.RandomErasing(),
    T.RandomMask(0.2),
    T.LUT(np.arange(256)),
    T.ConvertColor(),
    T.Normalize(MEAN, STD),
]


@pytest.mark.parametrize("n", [1, 2, 256])
def test_a_chain_without_a_barrier_is_one_launch(n):
    assert launches(T.RandomResizedCrop(32), *FREE, n=n) == 1
    assert launches(T.Resize(50), T.RandomCrop(40, padding=4), *FREE, n=n) == 1
    assert launches(T.RandomCrop(60), T.RandomMask(), T.ConvertColor(), T.ToDtype(torch.float32, scale=True), n=n) == 1
    assert launches(T.CenterCrop(300), T.RandomApply([T.ColorJitter(0.2), T.RandomErasing()]), n=n) == 1


def test_color_jitter_with_contrast_takes_at_most_two_launches():
    """Contrast needs the mean once, whatever the order of each sample."""
    assert launches(T.RandomResizedCrop(32), *FREE[:1], T.ColorJitter(0.4, 0.4, 0.4, 0.1), *FREE[2:]) == 2
    assert launches(T.ColorJitter(contrast=0.5)) == 2
    assert launches(T.RandomApply([T.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.0)) == 1


@pytest.mark.parametrize(
    "geometry", [T.RandomHorizontalFlip(), T.RandomVerticalFlip(1), T.RandomCrop(24), T.CenterCrop(9)]
)
def test_geometry_after_color_adds_no_launch(geometry):
    for jitter in (T.ColorJitter(0.4, 0, 0.4, 0.1), T.ColorJitter(0.4, 0.4, 0.4, 0.1)):
        assert launches(T.RandomResizedCrop(32), jitter, geometry) == launches(T.RandomResizedCrop(32), jitter)


def test_a_batch_takes_the_launches_of_its_longest_program():
    chain = [T.RandomApply([T.ColorJitter(contrast=0.5)], p=0.5), T.RandomResizedCrop(32)]
    compiled = tables(chain, n=200)
    passes = compiled.rows["active"].sum(axis=0)
    assert compiled.launches == passes.max() and set(passes) >= {1, compiled.launches}


# --- pipelines -------------------------------------------------------------------------------------------------------


def test_crop_mask_convert_scale():
    """RandomCrop(256) -> RandomMask -> ConvertColor -> ToDtype(scale=True), step by step in NumPy."""
    images = stack(3, 300, 330)
    chain = T.Compose([T.RandomCrop(256), T.RandomMask(0.3), T.ConvertColor(), T.ToDtype(torch.float32, scale=True)])
    got = run(chain, images, 4)
    rng = SampleRNG(4, 0, np.arange(3))
    rng.next_transform(chain.transforms[0])
    place = chain.transforms[0].make_params(rng, np.full(3, 300), np.full(3, 330))
    rng.next_transform(chain.transforms[1])
    rng.bernoulli(1.0)
    keys = rng.keys()
    assert got.shape == (3, 256, 256, 3) and got.dtype == np.float32
    for i in range(3):
        want = sampling.crop(images[i].astype(np.float64), int(place["top"][i]), int(place["left"][i]), 256, 256)
        want = masks.mask(want, 0.3, keys[i], 0.0)
        want = color.saturate(want @ YUV.T + [0, 128, 128], 255) / 255
        np.testing.assert_allclose(got[i], want, atol=2e-5)


def test_simclr():
    """Two views of each image: all different, with the right size and range."""
    s = 0.5
    chain = T.Compose(
        [
            T.RandomResizedCrop(24),
            T.RandomHorizontalFlip(),
            T.RandomApply([T.ColorJitter(0.8 * s, 0.8 * s, 0.8 * s, 0.2 * s)], p=0.8),
            T.RandomGrayscale(p=0.2),
            T.ToDtype(torch.float32, scale=True),
        ]
    )
    images = torch.from_numpy(np.repeat(stack(2, 60, 70)[1:], 60, axis=0)).permute(0, 3, 1, 2)
    views = torch.cat([chain(images), chain(images)])
    # The weights sum to 1 except for rounding.
    assert views.shape == (120, 3, 24, 24) and views.min() >= 0 and views.max() <= 1 + 1e-6
    assert len({view.numpy().tobytes() for view in views}) == 120
    gray = (views.amax(1) - views.amin(1)).amax((1, 2)) < 2e-3
    assert 0.05 < gray.float().mean() < 0.4


@settings(max_examples=40)
@given(st.lists(st.sampled_from(range(7)), max_size=5), st.integers(0, 9))
def test_a_chain_equals_its_transforms_one_by_one(names, seed):
    """On floats, which are not rounded in between, and without two resizes, which would fold into one."""
    step = [
        T.RandomHorizontalFlip(),
        T.RandomCrop(14, padding=2),
        T.ColorJitter(0.3, 0.3, 0.3, 0.2),
        T.RandomErasing(),
        T.RandomApply([T.RandomMask(0.2), T.RandomVerticalFlip()]),
        T.Pad((1, 2), padding_mode="edge"),
        T.RandomGrayscale(0.5),
    ]
    chain = [step[k] for k in names]
    images = stack(5) / np.float32(255)
    together = run(T.Compose(chain), images, seed)
    rng = SampleRNG(seed, 0, np.arange(5))
    for transform in chain:
        images = _step(transform, images, rng)
    assert together.shape == images.shape
    np.testing.assert_allclose(together, images, atol=2e-4)


def _step(transform: T.Transform, images: np.ndarray, rng: SampleRNG) -> np.ndarray:
    return apply(images, lambda plan: transform.plan(plan, rng))


def test_a_notebook_shows_a_table():
    chain = T.Compose([T.Resize((4, 5)), T.RandomApply([T.Pad(1)]), abs], box_format="xywh")
    page = chain._repr_html_()
    assert page.startswith("<table><tr><th>1</th><td><pre>Resize(size=(4, 5))</pre>") and page.count("<tr>") == 4
    assert "RandomApply" in page and "<th>box_format</th><td><pre>xywh" in page
    assert "function=&lt;lambda&gt;)" in T.Compose([lambda x: x])._repr_html_().replace(
        "test_a_notebook_shows_a_table.&lt;locals&gt;.", ""
    )
