"""Rules that every transform follows, and its result against the reference with the drawn parameters."""

from __future__ import annotations

import inspect
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from cuaug import transforms as T
from cuaug.plan import Plan, Type
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms.execute import apply
from tests.references.warp import nudged
from tests.support import run_plans
from tests.support.run_plans import assert_same
from tests.support.transforms.cases import CASES, WITHOUT_CASES

N = 12
ALL = [pytest.param(*case, id=f"{name}-{k}") for name, cases in CASES.items() for k, case in enumerate(cases)]
#: Transforms that give each image its own size.
RESIZING = [
    T.RandomResize(9, 14),
    T.RandomShortestSize([9, 14]),
    T.ScaleJitter(20),
    T.RandomRelativeCrop((0.3, 0.9)),
    T.RandomZoomOut(p=0.9),
    T.D4(),
]
#: Transforms that draw nothing.
FIXED = {
    *("CenterCrop", "ConvertColor", "FixedSizeCrop", "Grayscale", "LUT", "Normalize", "Pad", "Resize", "ResizeToCover"),
    *("ResizeToMultiple", "Rot90", "ToDtype"),
}
#: Transforms that draw, and keep the size of an image.
RANDOM = [
    T.RandomRot90((2, 2), p=0.5),
    T.RandomAffine(30, (0.1, 0.1)),
    T.RandomErasing(value="random"),
    T.MotionBlur((3, 7), 90, 0.5),
    T.CLAHE((1.5, 40)),
    T.JPEG((5, 95)),
    T.RandomApply([T.Grayscale(3)]),
    T.RandomChoice([T.Grayscale(3), T.RandomVerticalFlip(1)]),
    T.RandomOrder([T.RandomAffine(0, (0.5, 0)), T.RandomHorizontalFlip(1)]),
    T.SomeOf([T.Grayscale(3), T.RandomVerticalFlip(1), T.GaussianBlur(5)], (0, 2)),
    T.Compose([T.RandomHorizontalFlip()]),
]
CROPS = [T.RandomCrop(9), T.RandomResizedCrop(12), T.FixedSizeCrop(9)]
_listed = FIXED | {type(t).__name__ for t in RANDOM + RESIZING + CROPS} - {"RandomErasing"}
RANDOM += [cases[0][0] for name, cases in CASES.items() if name not in _listed]


def stack(n: int = N, height: int = 23, width: int = 28, seed: int = 0) -> np.ndarray:
    """(n, height, width, 3) uint8: alternately noise and a gradient."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (n, height, width, 3))
    slope = np.add.outer(np.arange(height), np.arange(width))[None, :, :, None] * 5
    return np.where(np.arange(n)[:, None, None, None] % 2, noise, slope).astype(np.uint8)


def row(value: Any, i: int) -> Any:
    """The parameters of sample i."""
    if isinstance(value, (list, tuple)):
        return [row(v, i) for v in value]
    return value[i] if np.ndim(value) else value


def by_reference(transform: T.Transform, reference: Any, images: np.ndarray, seed: int) -> list[np.ndarray]:
    n, height, width, _ = images.shape
    rng = SampleRNG(seed, 0, np.arange(n))
    rng.next_transform(transform)
    acts = rng.bernoulli(transform.p) if isinstance(transform, T.RandomTransform) else np.ones(n, bool)
    params = transform.make_params(rng, np.full(n, height), np.full(n, width))
    drawn = [{name: row(value, i) for name, value in params.items()} for i in range(n)]
    floats = images.astype(np.float64)
    return [reference(floats[i], **drawn[i]) if acts[i] else floats[i] for i in range(n)]


def run(transform: T.Transform, images: np.ndarray, seed: int) -> Any:
    """`transform(images)` with draws from `seed`; a list if the resulting sizes differ."""

    def write(plan: Plan) -> None:
        transform.plan(plan, SampleRNG(seed, 0, np.arange(len(plan))))

    plan = run_plans.plan_for(*images)
    write(plan)
    if len(set(zip(*(size.tolist() for size in plan.sizes), strict=True))) == 1:
        return apply(images, write)
    return run_plans.run(plan, list(images), Type.UINT8)


def test_every_transform_has_a_case():
    assert set(T.__all__) == set(CASES) | WITHOUT_CASES, "a new transform needs a reference in cases.py"
    assert {type(t).__name__ for cases in CASES.values() for t, _ in cases} == set(CASES)


@pytest.mark.parametrize(("transform", "reference"), ALL)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_result_equals_the_reference(transform, reference, seed):
    images = stack(seed=seed)
    got = [image.astype(np.float64) for image in run(transform, images, seed)]
    want = by_reference(transform, reference, images, seed)
    # uint8 results are rounded once, at the end. A value at a rounding boundary may round either way.
    slack = 0.51 if max(image.max() for image in got) > 10 else 2e-5
    assert [image.shape for image in got] == [image.shape for image in want]

    def differs(want: list[np.ndarray]) -> list[np.ndarray]:
        limited = [np.clip(image, 0, 255) if slack > 0.5 else image for image in want]
        return [np.abs(one - other) > slack for one, other in zip(got, limited, strict=True)]

    wrong = differs(want)
    # A shear by 0.2 puts all points of a row on the edge between two pixels: either may be the nearest.
    for down, across in itertools.product((-1e-6, 1e-6), repeat=2) if any(image.any() for image in wrong) else ():
        with nudged(down, across):
            nudged_want = by_reference(transform, reference, images, seed)
        wrong = [one & other for one, other in zip(wrong, differs(nudged_want), strict=True)]
    assert not any(image.any() for image in wrong), [i for i, image in enumerate(wrong) if image.any()]


@pytest.mark.parametrize(("transform", "reference"), ALL)
def test_repr_is_valid_code(transform, reference):
    if isinstance(transform, T.LUT):
        assert repr(transform) == f"LUT(table=<{' x '.join(map(str, transform.table.shape))}>)"
        return
    again = eval(repr(transform), {**vars(T), "torch": torch})
    assert type(again) is type(transform) and vars(again) == vars(transform) and repr(again) == repr(transform)


@pytest.mark.parametrize(("transform", "reference"), ALL)
def test_stores_each_argument_under_its_name(transform, reference):
    assert all(hasattr(transform, name) for name in inspect.signature(type(transform)).parameters)
    assert type(transform).__doc__ and type(transform).__module__.startswith("cuaug.transforms.")


@pytest.mark.parametrize(("transform", "reference"), ALL)
def test_pickles(transform, reference):
    images = stack(3)
    again = pickle.loads(pickle.dumps(transform))
    for one, other in zip(run(again, images, 4), run(transform, images, 4), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("transform", "reference"), ALL)
def test_a_batch_equals_its_images_one_by_one_and_is_not_modified(transform, reference):
    """Sample i draws by its index, independently of the batch."""
    images = stack(4)
    before = images.copy()
    together = run(transform, images, 3)
    for i in range(4):
        alone = apply(images[i], lambda plan, i=i: transform.plan(plan, SampleRNG(3, 0, [i])))
        np.testing.assert_array_equal(alone, together[i])
    np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("transform", CROPS + RANDOM, ids=lambda t: type(t).__name__)
def test_each_image_of_a_batch_has_its_own_draws(transform):
    one = stack(2)[1:]
    results = {image.tobytes() for image in run(transform, np.repeat(one, 40, axis=0), 0)}
    assert len(results) >= 2


@pytest.mark.parametrize("transform", RESIZING, ids=lambda t: type(t).__name__)
def test_each_size_has_its_own_draws(transform):
    images = np.repeat(stack(2)[1:], 40, axis=0)
    first, again, other = (run(transform, images, seed) for seed in (0, 0, 1))
    assert len({image.shape for image in first}) >= 2
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("transform", CROPS + RANDOM, ids=lambda t: type(t).__name__)
def test_follows_torchs_seed(transform):
    images = stack(40)
    torch.manual_seed(5)
    first, second = transform(images), transform(images)
    torch.manual_seed(5)
    np.testing.assert_array_equal(transform(images), first)
    np.testing.assert_array_equal(transform(images), second)
    assert (first != second).any()
    torch.manual_seed(6)
    assert (transform(images) != first).any()


@pytest.mark.parametrize("transform", RANDOM[::10], ids=lambda t: type(t).__name__)  # all follow torch's seed, above
def test_follows_an_explicit_generator(transform):
    images = stack(40)

    def twice(seed: int) -> list[np.ndarray]:
        compose = T.Compose([transform], generator=torch.Generator().manual_seed(seed))
        return [compose(images), compose(images)]

    state = torch.get_rng_state()
    first, second = twice(1)
    assert torch.get_rng_state().equal(state), "torch's default generator is unchanged"
    again = twice(1)
    np.testing.assert_array_equal(again[0], first)
    np.testing.assert_array_equal(again[1], second)
    assert (first != second).any() and (twice(2)[0] != first).any()


@pytest.mark.parametrize("transform", RANDOM, ids=lambda t: type(t).__name__)
def test_where_selects_samples(transform):
    """`where` selects samples; their results equal those without `where`, and the others are unchanged."""
    images = stack(16)
    where = np.arange(16) % 3 == 0
    everywhere = run(transform, images, 8)
    limited = apply(images, lambda plan: transform.plan(plan, SampleRNG(8, 0, np.arange(16)), where))
    np.testing.assert_array_equal(limited[where], everywhere[where])
    np.testing.assert_array_equal(limited[~where], images[~where])


#: (N, T, C, H, W), of different frames.
CLIPS = torch.randint(0, 256, (2, 3, 3, 24, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
CLIPS = (CLIPS.float() * torch.linspace(0.3, 1.0, 3)[:, None, None, None]).to(torch.uint8)  # other histograms
NOISE = {"GaussianNoise", "SaltAndPepper", "ShotNoise", "RandomErasing", "CoarseDropout"}


def sizes_agree(transform: T.Transform) -> bool:
    """Whether all images come out with one size: a stack has one."""
    torch.manual_seed(0)
    try:
        transform(CLIPS[:, 0])
    except T.base.TransformError as error:
        assert "different sizes" in str(error)
        return False
    return True


@pytest.mark.parametrize(("transform", "reference"), ALL)
def test_clips(transform, reference):
    """Each frame is the image that the clip's parameters make of it, statistics included."""
    count = 2 if sizes_agree(transform) else 1
    clips, chain = CLIPS[:count], T.Compose([transform])
    torch.manual_seed(0)
    made, params = chain.trace(clips)
    assert made.shape[:2] == (count, 3)
    array = chain.replay(params, clips.movedim(2, -1).numpy())
    assert_same(torch.from_numpy(array).movedim(-1, 2), made)
    frames = range(1 if type(transform).__name__ in NOISE else 3)  # noise of the first frame is an image's
    for t in frames:
        assert_same(made[:, t], chain.replay(params, clips[:, t]))
