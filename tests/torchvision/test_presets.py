"""Presets in the manner of torchvision's references, written once and made of either library's transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import PIL
import pytest
import torch
import torchvision.transforms as first
import torchvision.transforms.v2 as theirs
from torchvision import tv_tensors

from cuaug import transforms as ours
from tests.support.torchvision.photos import picture
from tests.torchvision.test_draws import distance

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
COLOR = {tv_tensors.Image: (123.0, 117.0, 104.0), tv_tensors.Mask: 0}
N = 250
#: Of 250 samples each, the statistic exceeds this with a probability of 1e-4.
LARGEST = 2.23 * np.sqrt(2 / N)


def classification_train(T: Any, policy: str) -> Any:
    policies = {
        "ra": lambda: [T.RandAugment()],
        "ta_wide": lambda: [T.TrivialAugmentWide()],
        "imagenet": lambda: [T.AutoAugment()],
        "none": list,
    }
    finish = [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD), T.RandomErasing(0.3)]
    return T.Compose([T.ToImage(), T.RandomResizedCrop(40), T.RandomHorizontalFlip(), *policies[policy](), *finish])


def classification_eval(T: Any, interpolation: str) -> Any:
    mode = T.InterpolationMode(interpolation)
    return T.Compose(
        [T.PILToTensor(), T.Resize(56, mode), T.CenterCrop(48), T.ToDtype(torch.float32, scale=True),
         T.Normalize(MEAN, STD)]
    )  # fmt: skip


def detection_train(T: Any, preset: str) -> Any:
    geometry = {
        "hflip": lambda: [T.RandomHorizontalFlip()],
        "lsj": lambda: [T.ScaleJitter((90, 90)), T.RandomCrop((90, 90), pad_if_needed=True, fill=COLOR)],
        "multiscale": lambda: [T.RandomShortestSize([40, 60, 80], 100), T.RandomHorizontalFlip()],
        "ssd": lambda: [T.RandomPhotometricDistort(), T.RandomZoomOut(fill=COLOR), T.RandomIoUCrop()],
        "ssdlite": lambda: [T.RandomIoUCrop(), T.RandomHorizontalFlip()],
    }
    return T.Compose(
        [T.ToImage(), *geometry[preset](), T.ToDtype(torch.float32, scale=True),
         T.ConvertBoundingBoxFormat(tv_tensors.BoundingBoxFormat.XYXY), T.SanitizeBoundingBoxes(), T.ToPureTensor()]
    )  # fmt: skip


def segmentation_train(T: Any) -> Any:
    fill = {tv_tensors.Mask: 255, "others": 0}
    dtypes = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    return T.Compose(
        [T.ToImage(), T.RandomResize(30, 90), T.RandomHorizontalFlip(), T.RandomCrop(60, pad_if_needed=True, fill=fill),
         T.ToDtype(dtypes, scale=True), T.Normalize(MEAN, STD)]
    )  # fmt: skip


def detection_target() -> dict[str, Any]:
    boxes = torch.tensor([[5.0, 6, 40, 30], [30, 3, 10, 20], [50, 20, 20, 30]])  # xywh
    masks = torch.zeros(3, 61, 94, dtype=torch.uint8)
    for mask, (x, y, w, h) in zip(masks, boxes.int().tolist(), strict=True):
        mask[y : y + h, x : x + w] = 1
    return {
        "boxes": tv_tensors.BoundingBoxes(boxes, format="XYWH", canvas_size=(61, 94)),
        "masks": tv_tensors.Mask(masks),
        "labels": torch.tensor([1, 2, 3]),
        "image_id": 9,
    }


def assert_alike(got: list[Any], want: list[Any]) -> None:
    """Each column of N rows of numbers has the same distribution in both."""
    ours, theirs = (np.array(rows, dtype=np.float64).round(2) for rows in (got, want))
    for k in range(theirs.shape[1]):
        assert distance(ours[:, k], theirs[:, k]) < LARGEST, f"column {k}"


def seeded(N: int = N) -> range:
    torch.manual_seed(0)
    return range(N)


@pytest.mark.parametrize("policy", ["none", "ta_wide", "ra", "imagenet"])
def test_classification_train(policy):
    image = picture((61, 94), "pil")
    chains = [classification_train(T, policy) for T in (ours, theirs)]
    samples = [[chain(image) for _ in seeded()] for chain in chains]
    for results in samples:
        assert {(tuple(x.shape), x.dtype) for x in results} == {((3, 40, 40), torch.float32)}
    rows = [[[*x.mean((1, 2)), x.std(), x.min()] for x in results] for results in samples]
    assert_alike(*rows)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"])
@pytest.mark.parametrize("size", [(61, 94), (80, 57), (190, 30), (130, 190)])
def test_the_bits_of_evaluation_chains_of_pil_images(interpolation, size):
    """v1's ToTensor divides by 255; v2's ToDtype multiplies by 1 / 255."""
    image, version = picture(size, "pil"), 13 if int(PIL.__version__.partition(".")[0]) >= 13 else 12
    geometry = [(T.Resize(56, T.InterpolationMode(interpolation)), T.CenterCrop(48)) for T in (first, theirs, ours)]
    old = first.Compose([*geometry[0], first.ToTensor(), first.Normalize(MEAN, STD)])
    assert torch.equal(ours.Compose([*geometry[2], ours.Normalize(MEAN, STD)], pillow=version)(image), old(image))
    to_float = {"dtype": torch.float32, "scale": True}
    new = theirs.Compose([*geometry[1], theirs.PILToTensor(), theirs.ToDtype(**to_float), theirs.Normalize(MEAN, STD)])
    chain = ours.Compose([*geometry[2], ours.ToDtype(**to_float), ours.Normalize(MEAN, STD)], pillow=version)
    assert torch.equal(chain(image), new(image))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(61, 94), (80, 57), (130, 190)])
def test_classification_eval(interpolation, size):
    """Ours is not rounded after resizing. torchvision's uint8 kernel rounds, and saturates bicubic results twice."""
    image = picture(size, "pil")
    got, want = (classification_eval(T, interpolation)(image) for T in (ours, theirs))
    assert got.dtype == want.dtype == torch.float32 and got.shape == want.shape
    levels = (got - want).abs().amax((1, 2)) * torch.tensor(STD) * 255
    assert levels.max() <= (1.05 if interpolation == "bilinear" else 3)


@pytest.mark.parametrize("preset", ["hflip", "lsj", "multiscale", "ssd", "ssdlite"])
def test_detection_train(preset):
    image = picture((61, 94), "pil")
    samples = [[chain(image, detection_target()) for _ in seeded()] for chain in
               (detection_train(T, preset) for T in (ours, theirs))]  # fmt: skip
    for results in samples:
        for x, target in results:
            assert type(x) is torch.Tensor and x.dtype == torch.float32 and 0 <= float(x.min()) <= float(x.max()) <= 1
            assert type(target["boxes"]) is torch.Tensor and target["masks"].shape[1:] == x.shape[1:]
            assert len(target["boxes"]) == len(target["labels"]) == len(target["masks"]) and target["image_id"] == 9
    rows = [
        [[*x.shape[1:], len(t["boxes"]), t["boxes"].sum(), t["labels"].sum()] for x, t in results]
        for results in samples
    ]
    assert_alike(*rows)
    # Resampled masks are up to a pixel apart, so their areas are alike, and not the same numbers.
    areas = [np.mean([float(target["masks"].sum()) for _, target in results]) for results in samples]
    assert areas[0] == pytest.approx(areas[1], rel=0.15)


def test_segmentation_train():
    image = picture((61, 94), "pil")
    mask = torch.arange(61 * 94).reshape(61, 94) // 600
    rows = []
    for T in (ours, theirs):
        chain = segmentation_train(T)
        rows.append([])
        for _ in seeded():
            x, m = chain(image, tv_tensors.Mask(mask.to(torch.uint8)))
            assert (
                x.shape == (3, 60, 60) and m.shape == (60, 60) and m.dtype == torch.int64 and x.dtype == torch.float32
            )
            rows[-1].append([x.mean(), x.std(), (m == 255).sum(), m[m != 255].double().mean().round()])
    assert_alike(*rows)
