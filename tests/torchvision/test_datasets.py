"""torchvision's detection Datasets in a Loader, as `wrap_dataset_for_transforms_v2` returns their samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.datasets import CocoDetection, wrap_dataset_for_transforms_v2

import cuaug
from cuaug import TransformError
from cuaug import transforms as T

COUNT, H, W = 4, 40, 60
RAW = ("bbox", "segmentation", "area", "iscrowd", "category_id")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> CocoDetection:
    """Image i has i objects; the last is a crowd, with a run-length encoding."""
    pytest.importorskip("pycocotools")
    folder: Path = tmp_path_factory.mktemp("coco")
    images, annotations = [], []
    for i in range(COUNT):
        Image.fromarray(np.full((H, W, 3), 40 * i, np.uint8)).save(folder / f"{i}.png")
        images.append({"id": i, "file_name": f"{i}.png", "height": H, "width": W})
        for k in range(i):
            x, y, w, h = 15 * k, 5, 10, 20
            annotations.append({
                "id": len(annotations) + 1, "image_id": i, "category_id": k + 1, "bbox": [x, y, w, h], "area": w * h,
                "iscrowd": 0, "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]],
            })  # fmt: skip
    annotations[-1] |= {"iscrowd": 1, "segmentation": {"counts": [0, 200, H * W - 200], "size": [H, W]}}
    categories = [{"id": k, "name": str(k)} for k in range(1, COUNT)]
    file = folder / "instances.json"
    file.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return CocoDetection(str(folder), str(file))


def load(dataset: Any, chain: list[T.Transform]) -> list[tuple[torch.Tensor, Any]]:
    with cuaug.Loader(dataset, chain, batch_size=3, device="cpu", stack=False, seed=0) as loader:
        return [pair for images, targets in loader for pair in zip(images, targets, strict=True)]


@pytest.mark.parametrize("keys", ["all", None])
def test_coco_detection(dataset, keys):
    wrapped = wrap_dataset_for_transforms_v2(dataset, target_keys=keys)
    for i, (image, target) in enumerate(load(wrapped, [T.RandomHorizontalFlip(1)])):
        original = wrapped[i][1]
        assert target.keys() == original.keys() and image.shape == (3, H, W)
        if i == 0:
            continue  # torchvision's target of an image without objects has no boxes
        boxes = target["boxes"]
        assert isinstance(boxes, tv_tensors.BoundingBoxes)
        assert torch.equal(boxes.as_subclass(torch.Tensor)[:, 0], W - original["boxes"].as_subclass(torch.Tensor)[:, 2])
        assert torch.equal(target["labels"], original["labels"])
        if keys == "all":
            assert torch.equal(
                target["masks"].as_subclass(torch.Tensor), original["masks"].as_subclass(torch.Tensor).flip(-1)
            )
            # COCO's own values describe the file's image, as in torchvision.
            assert {key: target[key] for key in RAW} == {key: original[key] for key in RAW}


def test_raw_annotations_lose_the_rows_of_dropped_boxes(dataset):
    wrapped = wrap_dataset_for_transforms_v2(dataset, target_keys="all")
    _, target = load(wrapped, [T.CenterCrop((H, 20)), T.SanitizeBoundingBoxes()])[3]  # columns 20 to 39
    original = wrapped[3][1]
    assert target["labels"].tolist() == [2, 3]
    assert {key: target[key] for key in RAW} == {key: original[key][1:] for key in RAW}


def test_raw_annotations_alone_are_refused(dataset):
    wrapped = wrap_dataset_for_transforms_v2(dataset, target_keys=("bbox", "labels"))
    with pytest.raises(TransformError, match=r'bbox looks like boxes.*rename it to "boxes"'):
        load(wrapped, [T.RandomHorizontalFlip(1)])
    with pytest.raises(TransformError, match=r"segmentation looks like masks"):
        load(wrap_dataset_for_transforms_v2(dataset, target_keys=("boxes", "segmentation")), [])


def test_an_unwrapped_dataset_names_the_wrapper(dataset):
    with pytest.raises(TransformError, match=r"the target is a list with boxes.*wrap_dataset_for_transforms_v2"):
        load(dataset, [T.RandomHorizontalFlip(1)])
