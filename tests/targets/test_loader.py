"""Boxes, masks and keypoints of real files in a Loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import DecodedCache, Loader, LoaderError, collate
from cuaug import transforms as T
from cuaug.sources import Coco
from tests.targets.test_mask_files import load
from tests.targets.test_names import H, Labeled, W

COUNT, SIDE = 14, 64


def write(folder: Path, damaged: tuple[int, ...] = ()) -> Path:
    """Write JPEGs of one or two white rectangles on black (5 has none), and their COCO file."""
    rng = np.random.default_rng(0)
    images, annotations = [], []
    for i in range(COUNT):
        h, w = (int(side) for side in rng.integers(70, 130, 2))
        image = np.zeros((h, w, 3), np.uint8)
        for left, top in [(8, 8), (40, 44)][: 0 if i == 5 else 1 + i % 2]:
            width, height = (int(side) for side in rng.integers(16, 24, 2))
            image[top : top + height, left : left + width] = 255
            x1, y1 = left + width, top + height
            annotations.append(
                {
                    "id": len(annotations), "image_id": 100 + i, "category_id": i, "bbox": [left, top, width, height],
                    "area": width * height, "iscrowd": 0,
                    "segmentation": [[left, top, x1, top, x1, y1, left, y1]],
                    "keypoints": [left + width // 2, top + height // 2, 2],
                }
            )  # fmt: skip
        name = f"{i}.jpg"
        Image.fromarray(image).save(folder / name, quality=95)
        if i in damaged:
            (folder / name).write_bytes(b"\xff\xd8 no picture")
        images.append({"id": 100 + i, "file_name": name, "height": h, "width": w})
    categories = [{"id": i, "name": str(i)} for i in range(COUNT)]
    path = folder / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return path


def source(folder: Path, **options: Any) -> Coco:
    return Coco(folder, write(folder, options.pop("damaged", ())), **options)


TRAINING = [
    T.RandomIoUCrop(min_scale=0.6),
    T.RandomZoomOut(side_range=(1.0, 1.5)),
    T.RandomHorizontalFlip(),
    T.RandomPhotometricDistort(),
    T.Resize((SIDE, SIDE)),
    T.RandomVerticalFlip(),
    T.SanitizeBoundingBoxes(min_size=4, min_visibility=0.3),
]


def check(image: torch.Tensor, target: dict[str, Any]) -> int:
    """Check that each box encloses its mask, and that its mask is bright; returns the number of boxes."""
    bright = image.float().mean(dim=0).numpy()
    bright = bright / max(bright.max(), 1)
    boxes, masks, points = (target[name].numpy() for name in ("boxes", "masks", "keypoints"))
    assert len(boxes) == len(masks) == len(points) == len(target["labels"]) == len(target["annotation_id"])
    for box, mask, ((x, y, v),) in zip(boxes, masks, points, strict=True):
        rows, columns = np.nonzero(mask)
        np.testing.assert_allclose(box, [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], atol=1.01)
        inner = mask[1:-1, 1:-1] & mask[2:, 1:-1] & mask[:-2, 1:-1] & mask[1:-1, 2:] & mask[1:-1, :-2]
        assert (bright[1:-1, 1:-1][inner > 0] > 0.5).all()
        if v:
            assert mask[int(min(y, SIDE - 1)), int(min(x, SIDE - 1))]
            assert box[0] - 0.01 <= x <= box[2] + 0.01 and box[1] - 0.01 <= y <= box[3] + 0.01
    return len(boxes)


@pytest.mark.parametrize("threads", [1, 3])
def test_detection_end_to_end(tmp_path, threads):
    data = source(tmp_path, masks=True)
    with Loader(data, TRAINING, batch_size=4, shuffle=True, seed=0, device="cpu", threads=threads) as loader:
        boxes = 0
        for _ in range(4):
            seen = []
            for images, targets in loader:
                assert isinstance(targets, list) and len(targets) == len(images) and images.shape[2:] == (SIDE, SIDE)
                for image, target in zip(images, targets, strict=True):
                    boxes += check(image, target)
                    seen.append(target["image_id"])
            assert sorted(seen) == list(range(100, 100 + COUNT))
        assert boxes > 40


def test_targets_are_independent_of_the_batch(tmp_path):
    data = source(tmp_path, masks=True)

    def targets(**options: Any) -> dict[int, dict[str, Any]]:
        with Loader(data, TRAINING, shuffle=True, device="cpu", seed=3, **options) as loader:
            return {target["image_id"]: target for _, batch in loader for target in batch}

    one, other = targets(batch_size=1, threads=1), targets(batch_size=5, threads=3)
    for number, target in one.items():
        for name, value in target.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, other[number][name]), (number, name)


def test_a_replacement_brings_its_own_targets(tmp_path):
    data = source(tmp_path, masks=True, damaged=(1, 6, 7))
    with Loader(data, TRAINING, batch_size=5, seed=0, device="cpu", on_error="replace") as loader:
        replaced = 0
        for batch in loader:
            for image, target, index, valid in zip(*batch, batch.indices.tolist(), batch.valid.tolist(), strict=True):
                assert target["image_id"] == 100 + index and index not in (1, 6, 7)
                assert all(label == index for label in target["labels"].tolist())
                check(image, target)
                replaced += not valid
        assert replaced == 3
    with Loader(data, TRAINING, batch_size=5, device="cpu", on_error="skip") as loader:
        for batch in loader:
            assert [target["image_id"] - 100 for target in batch.labels] == batch.indices.tolist()


def test_an_empty_batch_has_no_targets(tmp_path):
    data = source(tmp_path, damaged=(0, 1))
    assert load(data, TRAINING, batch_size=2, on_error="skip") == []


def test_a_cache_that_scales_images_is_refused(tmp_path):
    with pytest.raises(LoaderError, match="short_side=32 scales images down, but not their boxes"):
        load(source(tmp_path), TRAINING, batch_size=2, cache=DecodedCache(short_side=32))
    with Loader(source(tmp_path, masks=True), TRAINING, batch_size=4, seed=0, device="cpu", cache="decoded") as loader:
        for _ in range(2):
            for images, targets in loader:
                assert all(check(image, target) >= 0 for image, target in zip(images, targets, strict=True))


def test_collate_of_target_dicts():
    labels = [{"boxes": np.zeros((k, 4)), "labels": np.arange(k), "name": "a", "image_id": k} for k in (0, 2)]
    got = collate(labels)
    assert [t["boxes"].shape for t in got] == [(0, 4), (2, 4)] and got[1]["labels"].tolist() == [0, 1]
    assert isinstance(got[0]["boxes"], torch.Tensor) and got[1]["name"] == "a" and got[1]["image_id"] == 2
    mixed, numbers = collate([(label, k) for k, label in enumerate(labels)])
    assert isinstance(mixed, list) and numbers.tolist() == [0, 1]
    assert len(collate([labels[0], {"name": "nothing here"}])) == 2
    stacked = collate([{"mask": np.zeros((3, 4), np.uint8), "label": 1}] * 2)
    assert stacked["mask"].shape == (2, 3, 4) and stacked["label"].tolist() == [1, 1]
    with pytest.raises(LoaderError, match="labels of one batch do not make a tensor"):
        collate([labels[0], 3])


@pytest.mark.parametrize("cache", [None, "decoded"])
@pytest.mark.parametrize("kind", [np.array, torch.tensor, list], ids=["array", "tensor", "list"])
def test_writing_to_a_batch_changes_no_source_or_cache(cache, kind):
    target = {"boxes": np.array([[0.0, 0.0, 2.0, 2.0]]), "labels": kind([3])}
    with Loader(Labeled(target), sampler=[0, 0], batch_size=2, device="cpu", cache=cache) as loader:
        for _ in range(3):
            ((_, targets),) = loader
            assert [list(target["labels"]) for target in targets] == [[3], [3]]
            for target_of_one in targets:
                target_of_one["labels"][0] += 1
                target_of_one["boxes"][:] = 0
    assert list(target["labels"]) == [3] and target["boxes"].max() == 2


def test_collate_keeps_text_and_accepts_any_byte_order():
    assert collate(list(np.array(["cat", "dog"]))) == ["cat", "dog"]
    ends = np.arange(3, dtype=">f4")
    assert torch.equal(collate([ends, ends]), torch.arange(3.0).expand(2, 3))
    (made,) = collate([{"boxes": np.zeros((1, 4)), "scores": ends}])
    assert torch.equal(made["scores"], torch.arange(3.0))


def test_collate_makes_contiguous_tensors():
    """From any memory order: pycocotools' (K, H, W) masks are transposed views."""
    masks = np.moveaxis(np.zeros((6, 8, 2), np.uint8, order="F"), -1, 0)
    (made,) = collate([{"boxes": np.zeros((2, 4)), "masks": masks}])
    assert made["masks"].is_contiguous() and made["masks"].shape == (2, 6, 8)


@pytest.mark.parametrize("chain", [[], [T.RandomHorizontalFlip(1)]], ids=["no chain", "flip"])
def test_a_collate_fn_receives_tensors(chain):
    """As `collate` makes them: arrays of a source, of moved targets and of mask files."""
    label = {
        "boxes": np.array([[1, 1, 3, 3]], np.float32),
        "masks": np.ones((1, H, W), np.uint8),
        "mask": Image.new("P", (W, H)),
        "meta": ({"ids": np.arange(2, dtype=">i2")}, "text", 5),
        "names": ["a"],
    }
    for made in load(Labeled(label), chain, batch_size=2, collate_fn=list):
        inner = made["meta"][0]["ids"]
        assert all(isinstance(value, torch.Tensor) for value in (made["boxes"], made["masks"], made["mask"], inner))
        assert made["boxes"].dtype == torch.float32 and inner.tolist() == [0, 1]
        assert made["meta"][1:] == ("text", 5) and made["names"] == ["a"]
        made["boxes"].zero_()
    assert label["boxes"].any(), "the source's own array is left alone"
