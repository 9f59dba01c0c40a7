"""Which values lose rows where boxes are dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cuaug import TransformError
from cuaug import transforms as T

H, W = 20, 30
#: The second box is empty.
BOXES = np.array([[1.0, 2.0, 11.0, 8.0], [5.0, 5.0, 5.0, 9.0], [2.0, 2.0, 9.0, 9.0]])


def sanitized(target: dict[str, Any], labels_getter: Any = "default", **settings: Any) -> Any:
    chain = T.Compose([T.SanitizeBoundingBoxes(labels_getter=labels_getter)], **settings)
    return chain(np.zeros((H, W, 3), np.uint8), {"boxes": BOXES, **target})[1]


@pytest.mark.parametrize(
    "name", ["labels", "area", "iscrowd", "scores", "ids", "category_id", "difficult", "track_ids"]
)
@pytest.mark.parametrize("make", [np.array, torch.tensor, list, tuple])
def test_known_instance_fields_lose_rows(name, make):
    """The targets of torchvision, DETR and Pascal VOC."""
    assert list(sanitized({name: make([4, 5, 6])})[name]) == [4, 6]


@pytest.mark.parametrize("value", [[7, 8, 9], np.zeros(3), torch.zeros(3, 3), ["a", "b", "c"]])
def test_a_field_with_as_many_rows_by_chance_is_neither_filtered_nor_left(value):
    """A camera's position has three numbers, and so have some images three boxes."""
    with pytest.raises(
        TransformError, match=r"camera has 3 rows .* instance_fields=\('camera',\).*pass_through=\('camera',\)"
    ):
        sanitized({"camera": value})
    assert sanitized({"camera": value}, pass_through=("camera",))["camera"] is value
    assert len(sanitized({"camera": value}, instance_fields=("camera",))["camera"]) == 2
    assert sanitized({"pose": {"camera": value}})["pose"]["camera"] is value, "a dict of its own holds no instances"
    all_kept = T.SanitizeBoundingBoxes(0, 0)(np.zeros((H, W, 3), np.uint8), {"boxes": BOXES, "camera": value})[1]
    assert all_kept["camera"] is value, "no box is dropped"


def test_declared_instance_fields_have_one_row_per_box():
    with pytest.raises(TransformError, match="boxes has 3 instances and colors has 2"):
        sanitized({"colors": [1, 2]}, instance_fields=("colors",))


def test_masks_under_other_names():
    masks = np.zeros((3, H, W), np.uint8)
    assert len(sanitized({"gt_masks": masks}, masks=("gt_masks",))["gt_masks"]) == 2
    assert len(sanitized({"mine": masks}, masks=("mine",), instance_fields=("mine",))["mine"]) == 2
    with pytest.raises(TransformError, match="normals has 3 rows"):
        sanitized({"normals": masks}, masks=("normals",))
    assert len(sanitized({"maps": {"normals": masks}}, masks=("normals",))["maps"]["normals"]) == 3


# --- labels_getter, as in torchvision 0.29 ----------------------------------------------------------------------------


def test_labels_getter_by_name():
    got = sanitized({"colors": [1, 2, 3], "labels": [4, 5, 6]}, "colors")
    assert got["colors"] == [1, 3] and got["labels"] == [4, 6]


def test_labels_getter_as_a_function():
    """It returns a value or a tuple of values, which are found by identity."""
    one, two, other = torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6]), torch.tensor([1, 2, 3])
    got = sanitized({"a": one, "b": two}, lambda sample: (sample[1]["a"], sample[1]["b"]))
    assert got["a"].tolist() == [1, 3] and got["b"].tolist() == [4, 6]
    assert sanitized({"a": one}, lambda sample: sample[1]["a"])["a"].tolist() == [1, 3]
    with pytest.raises(TransformError, match="c has 3 rows"):
        sanitized({"a": one, "c": other}, lambda sample: sample[1]["a"])
    assert sanitized({}, lambda sample: None)["boxes"].shape == (2, 4)


def test_labels_getter_none_keeps_all_other_values():
    target = {"labels": [4, 5, 6], "area": np.ones(3), "camera": [1, 2, 3], "masks": np.zeros((3, H, W))}
    got = sanitized(target, None)
    assert got["boxes"].shape == (2, 4) and got["masks"].shape == (2, H, W)
    assert all(got[name] is target[name] for name in ("labels", "area", "camera"))


def test_invalid_labels_getters():
    with pytest.raises(TransformError, match=r'labels_getter must be "default", a name, a callable or None, not 0\.2'):
        T.SanitizeBoundingBoxes(1, 1, 0.2)
    with pytest.raises(TransformError, match=r"labels_getter raised KeyError: 'cls'; it is called with \(None, target"):
        sanitized({}, lambda sample: sample[1]["cls"])
    with pytest.raises(TransformError, match="a must have one row for each of 3 boxes, not 2 rows"):
        sanitized({"a": [1, 2]}, lambda sample: sample[1]["a"])
    with pytest.raises(TransformError, match="labels_getter must be the same for all SanitizeBoundingBoxes"):
        T.Compose([T.SanitizeBoundingBoxes(labels_getter="a"), T.SanitizeBoundingBoxes()])
