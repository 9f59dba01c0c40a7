"""Rules that every transform follows, and its result against the reference with the drawn parameters."""

from __future__ import annotations

import inspect
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import cuaug
from cuaug import transforms as T
from cuaug.apply import apply
from cuaug.plan import Plan, Type
from cuaug.sampling.rng import SampleRNG
from tests.references.warp import nudged
from tests.support import run_plans
from tests.transforms.cases import BASES, CASES, MULTI_IMAGE, TARGET_TRANSFORMS, WRAPPERS

N = 12
ALL = [pytest.param(*case, id=f"{name}-{k}") for name, cases in CASES.items() for k, case in enumerate(cases)]
RANDOM = [
    T.RandomCrop(9),
    T.RandomResizedCrop(12),
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(),
    T.RandomRot90((2, 2), p=0.5),
    T.RandomRotation(30),
    T.RandomAffine(30, (0.1, 0.1)),
    T.RandomPerspective(),
    T.ElasticTransform(),
    T.GridDistortion(),
    T.ColorJitter(0.3, 0.3, 0.3, 0.3),
    T.RandomBrightness(0.3),
    T.RandomContrast(0.3),
    T.RandomSaturation(0.3),
    T.RandomHue(0.3),
    T.RandomPhotometricDistort(),
    T.RandomChannelPermutation(),
    T.RGBShift(),
    T.PlanckianJitter(),
    T.RandomGamma((0.5, 2)),
    T.RandomPosterize(2),
    T.RandomSolarize(128),
    T.RandomInvert(),
    T.RandomAutocontrast(),
    T.RandomEqualize(),
    T.GaussianNoise(),
    T.SaltAndPepper(),
    T.ShotNoise(),
    T.CoarseDropout(),
    T.GridMask(8),
    T.RandomGrayscale(0.5),
    T.RandomErasing(),
    T.RandomErasing(value="random"),
    T.RandomMask(),
    T.GaussianBlur(5),
    T.RandomAdjustSharpness(2),
    T.MotionBlur((3, 7), 90, 0.5),
    T.MedianBlur(),
    T.Downscale(),
    T.JPEG((5, 95)),
    T.AutoAugment(),
    T.RandAugment(),
    T.TimmRandAugment(),
    T.TrivialAugmentWide(),
    T.RandomApply([T.Grayscale(3)]),
    T.RandomChoice([T.Grayscale(3), T.RandomVerticalFlip(1)]),
    T.RandomOrder([T.RandomAffine(0, (0.5, 0)), T.RandomHorizontalFlip(1)]),
    T.SomeOf([T.Grayscale(3), T.RandomVerticalFlip(1), T.GaussianBlur(5)], (0, 2)),
    T.Compose([T.RandomHorizontalFlip()]),
]
#: Transforms that give each image its own size.
RESIZING = [
    T.RandomResize(9, 14),
    T.RandomShortestSize([9, 14]),
    T.ScaleJitter(20),
    T.RandomRelativeCrop((0.3, 0.9)),
    T.RandomZoomOut(p=0.9),
    T.D4(),
]
_LISTED = {type(t).__name__ for t in RANDOM + RESIZING}
RANDOM += [cases[0][0] for name, cases in CASES.items() if name.startswith("Random") and name not in _LISTED]


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
    public = set(T.__all__)
    others = WRAPPERS | MULTI_IMAGE | TARGET_TRANSFORMS | BASES
    assert public == set(CASES) | others, "a new transform needs a reference in cases.py"
    assert {type(t).__name__ for cases in CASES.values() for t, _ in cases} == set(CASES)
    drawing = {name for name in public - BASES - TARGET_TRANSFORMS if name.startswith("Random")} | {
        "ColorJitter",
        "Compose",
    }
    drawing |= {type(t).__name__ for t in RESIZING} | {"ElasticTransform", "GridDistortion"}
    drawing |= {
        "RGBShift",
        "PlanckianJitter",
        "GaussianNoise",
        "SaltAndPepper",
        "ShotNoise",
        "CoarseDropout",
        "GridMask",
    }
    drawing |= {"GaussianBlur", "MotionBlur", "MedianBlur", "Downscale", "JPEG"}
    drawing |= {"AutoAugment", "RandAugment", "TimmRandAugment", "TrivialAugmentWide", "SomeOf"}
    assert {type(t).__name__ for t in RANDOM + RESIZING} == drawing


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


def test_the_comparison_rejects_other_draws():
    transform, reference = CASES["RandomCrop"][0]
    images = stack()
    got, want = run(transform, images, 0), by_reference(transform, reference, images, 1)
    assert max(np.abs(a.astype(float) - b).max() for a, b in zip(got, want, strict=True)) > 50


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


@pytest.mark.parametrize("transform", RANDOM, ids=lambda t: type(t).__name__)
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


@pytest.mark.parametrize("transform", RANDOM, ids=lambda t: type(t).__name__)
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


@pytest.mark.parametrize("transform", RANDOM, ids=lambda t: type(t).__name__)
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


@pytest.mark.parametrize("transform", RANDOM[2:], ids=lambda t: type(t).__name__)  # transforms that keep the size
def test_where_selects_samples(transform):
    """`where` selects samples; their results equal those without `where`, and the others are unchanged."""
    images = stack(16)
    where = np.arange(16) % 3 == 0
    everywhere = run(transform, images, 8)
    limited = apply(images, lambda plan: transform.plan(plan, SampleRNG(8, 0, np.arange(16)), where))
    np.testing.assert_array_equal(limited[where], everywhere[where])
    np.testing.assert_array_equal(limited[~where], images[~where])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *[(lambda v=v: T.Resize(v), f"size must be .* not {v!r}") for v in (0, -3, 1.5, "a")],
        (lambda: T.Resize((1, 2, 3)), r"not \(1, 2, 3\)"),
        (lambda: T.Resize((4, 4), max_size=9), r"max_size \(9\) needs a single size"),
        (lambda: T.Resize(9, max_size=9), "max_size"),
        (lambda: T.Resize(9, "linear"),
         "interpolation must be one of 'nearest', 'nearest-exact', .* 'lanczos', not 'linear'"),
        (lambda: T.Resize(9, 6), "interpolation must be one of .*, not 6"),
        *[(lambda v=v: T.Resize(9, v, antialias=False), f"antialias must be True with interpolation '{v}'")
          for v in ("box", "hamming", "lanczos")],
        *[(lambda v=v: T.RandomRotation(9, v), "interpolation must be one of 'nearest', .* 'bicubic', not")
          for v in ("box", 5, T.InterpolationMode.LANCZOS)],
        (lambda: T.Resize(9, None), "interpolation must be one of .*, not None"),
        (lambda: T.CenterCrop((3, 0)), r"not \(3, 0\)"),
        (lambda: T.Pad(-(2**31)), "padding .* not -2147483648"),
        (lambda: T.CenterCrop(3, fill="red"), "fill must be a number or a sequence of one per channel, not 'red'"),
        (lambda: T.Pad(1.5), "padding .* not 1.5"),
        (lambda: T.Pad((1, 2, 3)), r"padding .* not \(1, 2, 3\)"),
        (lambda: T.Pad(1, fill="red"), "fill must be a number or a sequence of one per channel, not 'red'"),
        (lambda: T.Pad(1, fill=()), r"fill .* not \(\)"),
        (lambda: T.Pad(1, padding_mode="mirror"), "padding_mode must be one of 'constant', .*, not 'mirror'"),
        (lambda: T.RandomCrop(4, padding="1"), "padding .* not '1'"),
        *[(lambda v=v: T.RandomRelativeCrop(v), f"scale_height must be .* not {v}") for v in (0, 1.5, -0.1, 24)],
        (lambda: T.RandomRelativeCrop(0.5, (0.9, 0.5)), r"scale_width must be .* not \(0.9, 0.5\)"),
        (lambda: T.FixedSizeCrop(0), "size must be .* not 0"),
        (lambda: T.RandomResizedCrop(4, scale=0.5), "scale must be .* not 0.5"),
        (lambda: T.RandomResizedCrop(4, scale=(0.9, 0.5)), r"scale .* not \(0.9, 0.5\)"),
        (lambda: T.RandomResizedCrop(4, ratio=(0, 1)), r"ratio .* not \(0, 1\)"),
        (lambda: T.RandomResizedCrop(4, scale=(float("nan"), 1)), "scale .* not .nan"),
        *[(lambda v=v: T.RandomHorizontalFlip(v), f"p must be a probability .* not {v}") for v in (1.1, -0.1, None)],
        (lambda: T.Rot90(0.5), "k must be an integer, not 0.5"),
        (lambda: T.RandomRot90((2, 1)), r"times must be \(fewest, most\) .* not \(2, 1\)"),
        (lambda: T.RandomZoomOut(side_range=(0.5, 2)), r"side_range .* not \(0.5, 2\)"),
        (lambda: T.RandomResize(9, 9), "max_size must be an integer from 10 to 2147483647, not 9"),
        (lambda: T.RandomShortestSize([]), r"min_size .* not \[\]"),
        (lambda: T.RandomShortestSize(9, 0), "max_size must be .* not 0"),
        (lambda: T.ScaleJitter(0), "target_size .* not 0"),
        *[(lambda v=v: T.RandomRotation(v), "degrees must be a number of 0 or more, or .* not")
          for v in (-1, (2, 1), "x")],
        (lambda: T.RandomRotation(1, center=3), r"center must be two numbers, \(x, y\), not 3"),
        (lambda: T.RandomRotation(1, padding_mode="mirror"), "padding_mode .* not 'mirror'"),
        (lambda: T.RandomAffine(1, (0.5, 1.5)), r"translate .* not \(0.5, 1.5\)"),
        (lambda: T.RandomAffine(1, scale=(0, 1)), r"scale .* not \(0, 1\)"),
        (lambda: T.RandomAffine(1, shear=(1, 2, 3)), r"shear .* not \(1, 2, 3\)"),
        (lambda: T.RandomPerspective(1.5), "distortion_scale .* not 1.5"),
        (lambda: T.ElasticTransform(-1), "alpha must be a number of at least 0, .* not -1"),
        (lambda: T.ElasticTransform(sigma=(5, 0.5)), r"sigma must be a number of at least 1, .* not \(5, 0.5\)"),
        (lambda: T.GridDistortion(0), "num_steps must be an integer of at least 1, not 0"),
        (lambda: T.GridDistortion(distort_limit=1), r"distort_limit must be within \(-1, 1\], not 1"),
        *[(lambda v=v: T.ColorJitter(brightness=v), f"brightness must be .* not {v!r}") for v in (-0.1, "x")],
        (lambda: T.ColorJitter(contrast=(-1, 1)), r"contrast .* not \(-1, 1\)"),
        (lambda: T.ColorJitter(hue=0.6), "hue .* not 0.6"),
        (lambda: T.ColorJitter(hue=(-0.6, 0)), r"hue .* from -0.5 to 0.5, .* not \(-0.6, 0\)"),
        (lambda: T.Grayscale(2), "num_output_channels must be 1 or 3, not 2"),
        (lambda: T.LUT(np.zeros(255)), r"table .* of shape \(256,\) or \(C, 256\), not \(255,\)"),
        (lambda: T.ConvertColor("RGB", "HSV"), "source and target must be .* not 'RGB' and 'HSV'"),
        (lambda: T.RandomErasing(scale=(0.1, 1.2)), r"scale .* not \(0.1, 1.2\)"),
        (lambda: T.RandomErasing(value="black"), "value .* not 'black'"),
        (lambda: T.RandomBrightness(-0.1), "brightness must be 0 or more, .*not -0.1"),
        (lambda: T.RandomHue(0.6), "hue must be from 0 to 0.5, .*not 0.6"),
        (lambda: T.RandomPhotometricDistort(contrast=(2, 1)), r"contrast .* not \(2, 1\)"),
        (lambda: T.RandomGamma((-1, 1)), r"gamma .* not \(-1, 1\)"),
        *[(lambda v=v: T.RandomPosterize(v), f"bits must be an integer from 0 to 8, not {v}")
          for v in (9, -1, 2.5, None)],
        (lambda: T.RandomSolarize("x"), "threshold must be a number, not 'x'"),
        (lambda: T.CLAHE(0.5), r"clip_limit .* of at least 1, .* not \(1.0, 0.5\)"),
        (lambda: T.CLAHE(tile_grid_size=8), "tile_grid_size must be .across, down., .* not 8"),
        (lambda: T.CLAHE(tile_grid_size=(8, 65)), r"tile_grid_size .* 1 to 64, not \(8, 65\)"),
        (lambda: T.RGBShift(r_shift_limit=(3, 2)), r"r_shift_limit .* not \(3, 2\)"),
        (lambda: T.PlanckianJitter("sun"), "mode must be one of 'blackbody', 'CIED', not 'sun'"),
        (lambda: T.PlanckianJitter(select_from=25), "illuminant numbers from 0 to 24, not 25"),
        (lambda: T.PlanckianJitter(select_from=[]), r"illuminant numbers from 0 to 24, not \[\]"),
        (lambda: T.GaussianNoise(mean=float("nan")), "mean must be a number, not nan"),
        (lambda: T.GaussianNoise(sigma=-1), "sigma .* not -1"),
        (lambda: T.SaltAndPepper((0, 2)), r"amount .* not \(0, 2\)"),
        (lambda: T.ShotNoise((0, 1)), r"scale_range .* not \(0, 1\)"),
        (lambda: T.CoarseDropout((0, 1)), r"num_holes_range .* not \(0, 1\)"),
        (lambda: T.CoarseDropout(hole_width_range=(0.5, 2)), r"hole_width_range .* not \(0.5, 2\)"),
        (lambda: T.GridMask(tile=0), "tile .* not 0"),
        (lambda: T.GridMask(ratio=1.5), "ratio .* not 1.5"),
        *[(lambda v=v: T.GaussianBlur(v), f"kernel_size must be an odd number .* not {v}") for v in (4, 0, 2.5)],
        (lambda: T.GaussianBlur((3, 3, 3)), r"kernel_size .* not \(3, 3, 3\)"),
        (lambda: T.GaussianBlur(3, 0), "sigma must be above 0, not 0"),
        (lambda: T.GaussianBlur(3, (2, 1)), r"sigma .* not \(2, 1\)"),
        (lambda: T.RandomAdjustSharpness(-1), "sharpness_factor must be a number of at least 0, not -1"),
        (lambda: T.MotionBlur(4, 0, 0), "kernel_size must be an odd number of at least 3, .* not 4"),
        (lambda: T.MotionBlur((5, 3), 0, 0), r"kernel_size .* not \(5, 3\)"),
        (lambda: T.MotionBlur(3, -4, 0), "angle .* not -4"),
        (lambda: T.MotionBlur(3, 4, 1.5), r"direction .*\[-1, 1\].* not 1.5"),
        (lambda: T.MotionBlur(3, 4, 1, interpolation="bicubic"), "interpolation must be 'nearest' or 'bilinear'"),
        (lambda: T.MedianBlur(9), "kernel_size must be an odd number from 3 to 7, .* not 9"),
        (lambda: T.Downscale((0, 1)), r"scale_range must be above 0.* not \(0, 1\)"),
        (lambda: T.Downscale(interpolation_pair={"up": 0}), "interpolation_pair .* not {'up': 0}"),
        *[(lambda v=v: T.JPEG(v), f"quality must be from 1 to 100.* not {v}") for v in (0, 101, 2.5)],
        (lambda: T.JPEG((9, 3)), r"quality .* not \(9, 3\)"),
        (lambda: T.AutoAugment("coco"), "policy must be one of 'imagenet', 'cifar10', 'svhn', not 'coco'"),
        (lambda: T.RandAugment(-1), "num_ops must be an integer of at least 0, not -1"),
        (lambda: T.RandAugment(2, 31), "magnitude must be an integer from 0 to 30, not 31"),
        (lambda: T.RandAugment(2, -1), "magnitude must be an integer from 0 to 30, not -1"),
        (lambda: T.RandAugment(fill=()), r"fill .* not \(\)"),
        (lambda: T.TimmRandAugment("augmix-m5"), "config must begin with 'rand', .* not 'augmix-m5'"),
        (lambda: T.TimmRandAugment("rand-tweights"), "config must have sections m, n, p, .* has 'tweights'"),
        (lambda: T.TimmRandAugment("rand-m9-x1"), "config must have sections .* has 'x1'"),
        (lambda: T.TimmRandAugment("rand-n1.5"), "config must have a whole number n, not 1.5"),
        (lambda: T.TimmRandAugment("rand-p2"), "config: p must be a probability in .* not 2.0"),
        (lambda: T.TrivialAugmentWide(1), "num_magnitude_bins must be an integer of at least 2, not 1"),
        (lambda: T.TrivialAugmentWide(interpolation="lanczos"), "interpolation must be one of .* not 'lanczos'"),
        *[(lambda v=v: T.RandomChoice([T.Pad(1)], v), "p must be a weight .* 1 transforms")
          for v in ([1, 1], [0], [-1])],
        (lambda: T.RandomOrder([]), "transforms of RandomOrder must hold at least one transform"),
        (lambda: T.SomeOf([T.Pad(1)], 2), "n must be an integer of 0 or more up to 1, .* not 2"),
        *[(lambda v=v: T.SomeOf([T.Pad(1)], v, True), "n must be an integer of 0 or more or")
          for v in ((3, 2), -1, 1.5)],
        (lambda: T.RandomMask(ratio=2), "ratio must be a probability .* not 2"),
        (lambda: T.Normalize([0.5], [0.0]), "std must be above 0"),
        (lambda: T.Normalize([0.5] * 17, [1.0]), r"mean must be a number or a sequence of one per channel, not \[0.5"),
        (lambda: T.ToDtype(torch.int32), "dtype must be one of .*not torch.int32"),
        (lambda: T.Compose(T.Resize(3)), "transforms must be a sequence of transforms, not Resize"),
        (lambda: T.RandomApply(T.Resize(3)), "transforms must be a sequence of transforms, not Resize"),
        (lambda: T.Compose([T.Resize(3), str]), r"not the class str: write str\(\.\.\.\)"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused(make, message):
    with pytest.raises(cuaug.TransformError, match=message) as caught:
        make()
    assert isinstance(caught.value, ValueError)


def test_numpy_numbers_are_accepted():
    three, half = np.int64(3), np.float32(0.5)
    assert repr(T.Resize(three)) == "Resize(size=3)" and repr(T.Resize(np.array([3, 4]))) == "Resize(size=(3, 4))"
    assert T.RandomRotation(half).degrees == (-0.5, 0.5)
    assert T.CenterCrop(three).size == (3, 3) and T.Pad(three)._sides == (3, 3, 3, 3)
    assert T.RandomHorizontalFlip(half).p == 0.5
    assert T.ColorJitter(half)._bounds == T.ColorJitter(0.5)._bounds
    assert T.RandomErasing(value=np.array([1, 2, 3]))._color == (1, 2, 3)
    assert "value=" in repr(T.RandomErasing(value=torch.tensor([1.0, 2.0, 3.0])))
