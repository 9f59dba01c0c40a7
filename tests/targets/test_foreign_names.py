"""Boxes and masks under the names of other libraries are refused: otherwise they would not move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import TransformError
from cuaug import transforms as T

H, W = 20, 30
BOXES = [[1.0, 2.0, 11.0, 8.0]]
FLIPPED = [[19.0, 2.0, 29.0, 8.0]]


def moved(target: Any) -> Any:
    return T.RandomHorizontalFlip(1)(np.zeros((H, W, 3), np.uint8), target)[1]


@pytest.mark.parametrize("name", ["bbox", "bboxes", "gt_boxes", "gt_bboxes"])
@pytest.mark.parametrize(
    "boxes",
    [
        [1, 2, 11, 8],
        (1.0, 2.0, 11.0, 8.0),
        [[1, 2, 11, 8]],
        [(1, 2, 11, 8, "cat"), (0, 0, 3, 3, "dog")],
        [np.array([1, 2, 11, 8])],
        [torch.tensor(1.0), torch.tensor(2.0), torch.tensor(11.0), torch.tensor(8.0)],
        np.array([1.0, 2.0, 11.0, 8.0]),
        np.zeros((3, 5)),
        torch.zeros(2, 4),
    ],
)
def test_boxes_under_other_libraries_names_are_refused(name, boxes):
    """The names of Albumentations, Hugging Face, COCO and MMDetection."""
    for target in ({name: boxes}, {"objects": {name: boxes, "category": [1]}}, ({name: boxes}, 3)):
        with pytest.raises(
            TransformError, match=rf'{name} looks like boxes, but only "boxes".*box_format.*xywh.*another name'
        ):
            moved(target)
    with pytest.raises(TransformError, match="is a list with boxes, masks or keypoints, but"):
        moved({"annotations": [{"id": 1}, {name: boxes}]})
    kept = moved({name: boxes, "boxes": BOXES})
    assert kept[name] is boxes and kept["boxes"] == FLIPPED, 'beside "boxes" a foreign name passes'


def test_pascal_vocs_boxes_are_refused():
    box = {"xmin": "1", "ymin": "2", "xmax": "11", "ymax": "8"}
    with pytest.raises(TransformError, match=r'annotation\.object\.bndbox .*"boxes"'):
        moved({"annotation": {"object": {"name": "cat", "bndbox": box}}})
    with pytest.raises(TransformError, match=r"annotation\.object is a list with boxes"):
        moved({"annotation": {"object": [{"name": "cat", "bndbox": box}]}})


@pytest.mark.parametrize(
    "segmentation",
    [
        [[1.0, 2.0, 11.0, 2.0, 11.0, 8.0]],
        [[[1.0, 2.0, 11.0, 2.0, 11.0, 8.0]]],
        {"size": [H, W], "counts": "0"},
        [{"size": [H, W], "counts": [600]}],
        np.zeros((H, W), np.uint8),
        torch.zeros(2, H, W),
        Image.new("L", (W, H)),
    ],
)
def test_segmentations_are_refused(segmentation):
    """Polygons, run-length encodings and masks, as in COCO and Hugging Face."""
    with pytest.raises(TransformError, match=r'segmentation .*"masks".*"mask".*another name'):
        moved({"boxes": BOXES, "segmentation": segmentation})
    with pytest.raises(TransformError, match="the target is a list with"):
        moved([{"segmentation": segmentation}])
    for beside in ({"mask": np.zeros((H, W))}, {"masks": np.zeros((1, H, W))}):
        assert moved({"segmentation": segmentation, **beside})["segmentation"] is segmentation


@pytest.mark.parametrize(
    "value",
    [None, 3, True, "boxes/1.txt", b"1", [], (), np.zeros((0, 4)), [[]], np.array(3), np.zeros(7), [1, 2, 3], {"a": 1}]
    + [["a.txt", "b.txt", "c.txt", "d.txt"], np.array(["a", "b", "c", "d"]), np.zeros((2, 2)), {1, 2, 3, 4}],
)
def test_other_values_under_box_names_pass_unchanged(value):
    target = {"bbox": value, "bboxes": value, "bndbox": value}
    assert moved(target)["bbox"] is value and moved([target])[0]["bbox"] is value


@pytest.mark.parametrize("value", [None, 3, "1.png", [], [1, 2], ["1.png"], np.zeros(3), {"a": 1}])
def test_other_values_under_segmentation_pass_unchanged(value):
    assert moved({"segmentation": value})["segmentation"] is value
