"""Drawn parameters have torchvision's distributions: two-sample Kolmogorov-Smirnov tests.

Seeds are fixed, so a test that passes once fails only after a change of draws. Each test compares every parameter,
and the sums of each two of them, which would tell another dependence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torchvision.transforms.v2 as theirs
from torchvision import tv_tensors

from cuaug import transforms as ours
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.targets import Targets

H, W, N = 61, 94, 3000
#: Of 3,000 draws each, the statistic exceeds this with a probability of 1e-4.
LARGEST = 2.23 * np.sqrt(2 / N)
BOXES = [[8.0, 8.0, 40.0, 50.0], [50.0, 3.0, 80.0, 20.0], [60.0, 30.0, 64.0, 33.0]]


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The Kolmogorov-Smirnov statistic: the largest difference of two empirical distribution functions."""
    values = np.union1d(ours, theirs)
    shares = [np.searchsorted(np.sort(sample), values, side="right") / len(sample) for sample in (ours, theirs)]
    return float(np.abs(shares[0] - shares[1]).max())


def our_draws(transform: Any, boxes: bool = False) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The parameters of N images, (N, ...) each, and the images that the transform acts on."""
    plan = Plan([H] * N, [W] * N)
    if boxes:
        Targets([{"boxes": np.array(BOXES)}] * N, [H] * N, [W] * N).attach(plan)
    transform.plan(plan, SampleRNG(0, 0, np.arange(N)))
    step = plan.trace.steps[0]
    acts = np.ones(N, dtype=bool) if step.where is None else step.where
    return {name: np.asarray(values) for name, values in step.params.items()}, acts


def their_draws(transform: Any, boxes: bool = False) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    inputs = [torch.zeros(3, H, W, dtype=torch.uint8)]
    if boxes:
        inputs.append(tv_tensors.BoundingBoxes(torch.tensor(BOXES), format="XYXY", canvas_size=(H, W)))
    return [transform.make_params(inputs) for _ in range(N)]


class Case(NamedTuple):
    """A transform, and its parameters as numbers: of one image here, and of a dict of torchvision's if that differs."""

    make: Callable[[Any], Any]
    ours: Callable[[Mapping[str, Any]], Any]
    theirs: Callable[[Mapping[str, Any]], Any] | None = None
    boxes: bool = False


def window(p: Mapping[str, Any]) -> Any:
    return [p["top"], p["left"], p["height"], p["width"]]


def jitter(p: Mapping[str, Any]) -> Any:
    """The order is compared as the places of brightness, contrast and saturation."""
    order = [int(k) for k in (p["fn_idx"] if "fn_idx" in p else p["order"])]
    names = ("brightness", "contrast", "saturation", "hue")
    return [*(p.get(f"{name}_factor", p.get(name)) for name in names), *(order.index(k) for k in range(3))]


def corners(p: Mapping[str, Any]) -> Any:
    """The eight coefficients of torchvision, whatever it draws them from."""
    if "coefficients" in p:
        return p["coefficients"]
    from torchvision.transforms.functional import _get_perspective_coeffs

    return _get_perspective_coeffs(np.asarray(p["startpoints"]).tolist(), np.asarray(p["endpoints"]).tolist())


def photometric(p: Mapping[str, Any]) -> Any:
    """Each factor, or -1 where it does not act."""
    names = ("brightness", "contrast", "saturation", "hue")
    if "acts" in p:
        values = [p[name] if acts else -1 for name, acts in zip(names, p["acts"], strict=False)]
        return [*values, p["acts"][4], p["contrast_before"]]
    values = [-1 if p[f"{name}_factor"] is None else p[f"{name}_factor"] for name in names]
    return [*values, p["channel_permutation"] is not None, p["contrast_before"]]


CASES = {
    "RandomResizedCrop": Case(lambda T: T.RandomResizedCrop(24), window),
    "RandomResizedCrop, narrow": Case(lambda T: T.RandomResizedCrop(24, (0.7, 1), (1, 3)), window),
    "RandomCrop": Case(
        lambda T: T.RandomCrop((70, 30), padding=3, pad_if_needed=True), lambda p: [p["top"], p["left"]]
    ),
    "RandomZoomOut": Case(lambda T: T.RandomZoomOut(p=1), lambda p: p["sides"], lambda p: p["padding"]),
    "RandomResize": Case(lambda T: T.RandomResize(20, 60), lambda p: p["height"], lambda p: p["size"]),
    "RandomShortestSize": Case(
        lambda T: T.RandomShortestSize([20, 50, 90], 100), lambda p: [p["height"], p["width"]], lambda p: p["size"]
    ),
    "ScaleJitter": Case(lambda T: T.ScaleJitter((50, 80)), lambda p: [p["height"], p["width"]], lambda p: p["size"]),
    "RandomRotation": Case(lambda T: T.RandomRotation((-20, 70)), lambda p: p["angle"]),
    "RandomAffine": Case(
        lambda T: T.RandomAffine(30, (0.1, 0.3), (0.5, 2), (-10, 20, -5, 7)),
        lambda p: [p["angle"], *p["translate"], p["scale"], *p["shear"]],
    ),
    "RandomPerspective": Case(lambda T: T.RandomPerspective(0.6, 1), corners),
    "ColorJitter": Case(lambda T: T.ColorJitter(0.4, 1.5, (0.2, 3), 0.3), jitter),
    "RandomPhotometricDistort": Case(lambda T: T.RandomPhotometricDistort(p=0.6), photometric),
    "RandomChannelPermutation": Case(lambda T: T.RandomChannelPermutation(), lambda p: p["permutation"][:2]),
    "GaussianBlur": Case(lambda T: T.GaussianBlur(5), lambda p: p["sigma"], lambda p: p["sigma"][0]),
    "JPEG": Case(lambda T: T.JPEG((10, 90)), lambda p: p["quality"]),
    "RandomErasing": Case(
        lambda T: T.RandomErasing(1),
        lambda p: [*p["rectangle"][:2], *(p["rectangle"][2:] - p["rectangle"][:2])],
        lambda p: [p["i"], p["j"], p["h"], p["w"]],
    ),
    "RandomIoUCrop": Case(lambda T: T.RandomIoUCrop(), window, boxes=True),
}


@pytest.mark.parametrize("name", CASES)
def test_parameters(name):
    case = CASES[name]
    drawn, acts = our_draws(case.make(ours), case.boxes)
    got = [case.ours({name: values[k] for name, values in drawn.items()}) for k in np.flatnonzero(acts)]
    params = [p for p in their_draws(case.make(theirs), case.boxes) if p]
    want = [(case.theirs or case.ours)(p) for p in params]
    assert abs(len(got) - len(want)) <= 4 * np.sqrt(N)  # images left as they are
    compare(np.array(got, dtype=np.float64), np.array(want, dtype=np.float64))


def compare(got: np.ndarray, want: np.ndarray) -> None:
    got, want = got.reshape(len(got), -1), want.reshape(len(want), -1)
    assert got.shape[1] == want.shape[1]
    scale = want.std(axis=0) + 1e-9
    for k in range(got.shape[1]):
        assert distance(got[:, k], want[:, k]) < LARGEST, f"parameter {k}"
    for i, j in combinations(range(got.shape[1]), 2):
        sums = [sample[:, i] / scale[i] + sample[:, j] / scale[j] for sample in (got, want)]
        # Rounding, so that equal sums are equal in both.
        assert distance(*(np.round(values, 6) for values in sums)) < LARGEST, f"parameters {i} and {j}"


def test_the_comparison_rejects_other_draws():
    got = our_draws(ours.RandomResizedCrop(24, (0.15, 1)))[0]
    want = [window(p) for p in their_draws(theirs.RandomResizedCrop(24))]
    with pytest.raises(AssertionError, match="parameter"):
        compare(np.array([got[name] for name in ("top", "left", "height", "width")]).T, np.array(want))


def their_policy(transform: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[str, float]]]:
    """The operations and magnitudes of N calls, which leave the image as it is."""
    found: list[list[tuple[str, float]]] = []

    def record(self: Any, image: Any, transform_id: str, magnitude: float, **settings: Any) -> Any:
        found[-1].append((transform_id, magnitude))
        return image

    monkeypatch.setattr(type(transform), "_apply_image_or_video_transform", record)
    torch.manual_seed(0)
    image = torch.zeros(3, H, W, dtype=torch.uint8)
    for _ in range(N):
        found.append([])
        transform(image)
    return found


def our_policy(transform: Any) -> list[list[tuple[str, float]]]:
    drawn, _ = our_draws(transform)
    return [list(zip(*rows, strict=True)) for rows in zip(drawn["operation"], drawn["magnitude"], strict=True)]


def assert_equal_frequencies(got: list[Any], want: list[Any]) -> None:
    """Each frequent outcome's counts differ by at most four and a half standard deviations."""
    ours, theirs = Counter(got), Counter(want)
    for outcome in ours.keys() | theirs.keys():
        most = 4.5 * np.sqrt(ours[outcome] + theirs[outcome])
        assert abs(ours[outcome] / len(got) - theirs[outcome] / len(want)) * len(got) <= most, outcome


@pytest.mark.parametrize(
    "make",
    [
        lambda T: T.RandAugment(),
        lambda T: T.RandAugment(3, 5, 20),
        lambda T: T.TrivialAugmentWide(),
        *(lambda T, name=name: T.AutoAugment(getattr(T.AutoAugmentPolicy, name)) for name in ("IMAGENET", "CIFAR10")),
        lambda T: T.AutoAugment(T.AutoAugmentPolicy.SVHN),
    ],
)
def test_policies(make, monkeypatch):
    def named(samples: list[list[tuple[str, float]]]) -> list[list[tuple[str, float]]]:
        """The operations that change the image. torchvision cuts pixels and bits to integers when it applies them."""
        return [
            [
                (str(name), int(size) if str(name).startswith(("Translate", "Posterize")) else round(float(size), 2))
                for name, size in steps
                if name != "Identity"
            ]
            for steps in samples
        ]

    got, want = named(our_policy(make(ours))), named(their_policy(make(theirs), monkeypatch))
    assert_equal_frequencies([tuple(name for name, _ in steps) for steps in got],
                             [tuple(name for name, _ in steps) for steps in want])  # fmt: skip
    for name in {name for steps in want for name, _ in steps}:
        sizes = [[size for steps in side for other, size in steps if other == name] for side in (got, want)]
        assert abs(len(sizes[0]) - len(sizes[1])) <= 4.5 * np.sqrt(len(sizes[0]) + len(sizes[1]))
        if min(map(len, sizes)) > 50:
            limit = 2.23 * np.sqrt(1 / len(sizes[0]) + 1 / len(sizes[1]))
            assert distance(*map(np.array, sizes)) < limit, name


@pytest.mark.parametrize(
    "make",
    [
        lambda T: T.RandomHorizontalFlip(0.3),
        lambda T: T.RandomVerticalFlip(0.7),
        lambda T: T.RandomApply([T.RandomVerticalFlip(1)], 0.2),
        lambda T: T.RandomChoice([T.RandomHorizontalFlip(1), T.RandomVerticalFlip(1), T.RandomInvert(1)], [1, 2, 5]),
        lambda T: T.RandomOrder([T.RandomRotation((90, 90)), T.RandomHorizontalFlip(1)]),
        lambda T: T.RandomChannelPermutation(),
        lambda T: T.RandomGrayscale(0.4),
        lambda T: T.Compose([T.RandomSolarize(100, 0.5), T.RandomPosterize(1, 0.5), T.RandomHorizontalFlip()]),
    ],
)
def test_outcomes(make):
    """How often each of the possible images comes out."""

    def outcome(result: torch.Tensor) -> Any:
        """The pixels, or for gray images, which are rounded otherwise, that they are gray."""
        return "gray" if result.eq(result[:1]).all() else tuple(result.flatten().tolist())

    image = torch.tensor([[[0, 50], [100, 250]], [[7, 90], [140, 30]], [[200, 5], [60, 120]]], dtype=torch.uint8)
    chain, transform = ours.Compose([make(ours)]), make(theirs)
    torch.manual_seed(0)
    got = [outcome(result) for result in chain(image.expand(N, 3, 2, 2))]
    want = [outcome(transform(image)) for _ in range(N)]
    assert len(set(want)) > 1
    assert_equal_frequencies(got, want)


def test_mixes():
    """Shares of MixUp, and boxes of CutMix, of one pair of images here and of one batch in torchvision."""
    images, labels = torch.zeros(N, 3, 12, 20), torch.arange(N) % 2
    torch.manual_seed(0)
    for name in ("MixUp", "CutMix"):
        chain = ours.Compose([getattr(ours, name)(alpha=0.4, num_classes=2)])
        drawn = [steps[0]["params"] for steps in chain.trace(images, labels)[1]]
        transform = getattr(theirs, name)(alpha=0.4, num_classes=2)
        params = [transform.make_params([images[0]]) for _ in range(N)]
        key = "lam" if name == "MixUp" else "box"
        compare(np.array([p[key] for p in drawn], float), np.array([p[key] for p in params], float))


def test_elastic_displacements():
    """The spread of the displacements, in pixels, along both axes and at one and five pixels' distance."""
    n, transform, chain = 200, theirs.ElasticTransform((80, 30), 4), ours.ElasticTransform((80, 30), 4)
    torch.manual_seed(0)
    image = torch.zeros(3, H, W)
    fields = torch.cat([transform.make_params([image])["displacement"] for _ in range(n)]).numpy()
    want = fields[:, H // 2, W // 4 : -W // 4] * (W / 2, H / 2)  # x, y
    plan = Plan([H] * n, [W] * n)
    chain.plan(plan, SampleRNG(0, 0, np.arange(n)))
    step = plan.trace.steps[0].params
    rows, columns = int(step["rows"][0]), int(step["columns"][0])
    row = step["field"][:, (rows - 1) // 2, :columns, ::-1]
    places = (np.arange(W) + 0.5) / W * (columns - 1)
    got = np.stack([[np.interp(places, np.arange(columns), line) for line in row[..., axis]] for axis in (0, 1)], -1)
    got = got[:, W // 4 : -W // 4]
    for axis in (0, 1):
        assert got[..., axis].std() == pytest.approx(want[..., axis].std(), rel=0.12)
        for step in (1, 5):
            share = [np.corrcoef(x[:, :-step, axis].ravel(), x[:, step:, axis].ravel())[0, 1] for x in (got, want)]
            assert share[0] == pytest.approx(share[1], abs=0.08)
