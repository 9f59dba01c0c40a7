"""COCO files of other tools: LVIS's fields, text ids, and fields that are missing or of another type."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cuaug import Loader, LoaderError
from cuaug.sources import Coco

MISSING = object()
LVIS_URL = "http://images.cocodataset.org/train2017/000000000009.jpg"


def content(**changes: Any) -> dict[str, Any]:
    """One image with one cup; `changes` replace fields, or remove them: image__id="a", image__width=MISSING."""
    parts: dict[str, dict[str, Any]] = {
        "image": {"id": 1, "file_name": "a.png", "height": 30, "width": 40},
        "annotation": {"id": 7, "image_id": 1, "category_id": 3, "bbox": [5, 5, 10, 10], "area": 100},
        "category": {"id": 3, "name": "cup"},
    }
    for change, value in changes.items():
        part, _, field = change.partition("__")
        if value is MISSING:
            del parts[part][field]
        else:
            parts[part][field] = value
    return {"images": [parts["image"]], "annotations": [parts["annotation"]], "categories": [parts["category"]]}


def open_coco(folder: Path, data: dict[str, Any], images: str = "", **options: Any) -> Coco:
    (folder / "coco.json").write_text(json.dumps(data))
    return Coco(folder / images, folder / "coco.json", **options)


def write_lvis(folder: Path) -> Path:
    (folder / "train2017").mkdir()
    Image.new("RGB", (40, 30), "red").save(folder / "train2017" / "000000000009.png")
    (folder / "annotations").mkdir()
    path = folder / "annotations" / "lvis_v1_train.json"
    url = LVIS_URL.replace(".jpg", ".png")
    path.write_text(json.dumps(content(image__file_name=MISSING, image__coco_url=url, category__synset="cup.n.01")))
    return path


@pytest.mark.parametrize("by_annotations_alone", [False, True])
def test_lvis(tmp_path, by_annotations_alone):
    """LVIS 1.0 names an image by coco_url alone; its last folder tells train2017 from val2017."""
    annotations = write_lvis(tmp_path)
    source = Coco.from_file(annotations) if by_annotations_alone else Coco(tmp_path, annotations)
    ((images, targets),) = Loader(source, device="cpu")
    assert images[0, 0].min() == 255 and targets[0]["boxes"].tolist() == [[5, 5, 15, 15]]


@pytest.mark.parametrize("field", ["coco_url", "file_name"])
def test_a_folder_that_the_names_name_again(tmp_path, field):
    data = json.loads(write_lvis(tmp_path).read_text())
    data["images"][0] = {"id": 1, field: "train2017/000000000009.png"}
    with pytest.raises(LoaderError, match=r"^images: .*train2017' has no 'train2017/0+9\.png', but .*: give '.*[^7]'$"):
        open_coco(tmp_path, data, "train2017")


def test_file_name_goes_before_coco_url(tmp_path):
    assert open_coco(tmp_path, content(image__coco_url=LVIS_URL)).path(0) == str(tmp_path / "a.png")


def test_a_coco_url_cannot_lead_out(tmp_path):
    data = content(image__file_name=MISSING, image__coco_url="http://host/../secret.png")
    with pytest.raises(LoaderError, match="leads out of"):
        open_coco(tmp_path, data)


def test_text_ids_of_images(tmp_path):
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    source = open_coco(tmp_path, content(image__id="a_01", annotation__image_id="a_01"))
    other = open_coco(tmp_path, content(image__id="a_02", annotation__image_id="a_02"))
    assert source.label(0)["image_id"] == "a_01" and source.fingerprint() != other.fingerprint()
    ((_, targets),) = Loader(source, device="cpu")
    assert targets[0]["image_id"] == "a_01" and targets[0]["boxes"].tolist() == [[5, 5, 15, 15]]


def test_text_ids_of_categories(tmp_path):
    data = content(category__id="cup", annotation__category_id="cup")
    assert open_coco(tmp_path, data).label(0)["labels"].tolist() == [0]
    with pytest.raises(LoaderError, match=r"category_id .*'cup'.*contiguous=True"):
        open_coco(tmp_path, data, contiguous=False)


def test_whole_floats_are_integers(tmp_path):
    """As tables write them whose column has a missing value."""
    data = content(image__id=1.0, annotation__id=7.0, annotation__category_id=3.0)
    label = open_coco(tmp_path, data).label(0)
    assert label["annotation_id"].tolist() == [7] and label["image_id"] == 1
    assert label["labels"].tolist() == [0] and label["labels"].dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image__id": MISSING}, r"an image has no 'id'.*'a\.png'"),
        ({"image__file_name": MISSING}, r"the image 1 has no 'file_name', nor 'coco_url'"),
        ({"image__id": 1.5}, r"the images' id must be integers, or all text, not 1\.5"),
        ({"image__id": True}, r"the images' id must be .*, not True"),
        ({"image__id": 10**30}, r"the images' id must be .*, not 10+"),
        ({"image__id": [1]}, r"the images' id must be .*, not \[1\]"),
        ({"image__height": 10**30}, ""),
        ({"image__height": math.inf}, ""),
        ({"image__height": -1}, ""),
        ({"image__file_name": None}, ""),
        ({"image__file_name": 5}, ""),
        ({"image__height": "tall"}, r"the images' height must be integers, not 'tall'"),
        ({"annotation__id": MISSING}, r"an annotation has no 'id'"),
        ({"annotation__id": "x7"}, r"the annotations' id must be integers, not 'x7': number the annotations"),
        ({"annotation__id": 10**30}, ""),
        ({"annotation__image_id": 99}, "annotation 7 refers to a missing image or category"),
        ({"annotation__image_id": MISSING}, r"an annotation has no 'image_id'"),
        ({"annotation__image_id": "1"}, r"annotation 7 refers to a missing image or category: image_id '1'"),
        ({"annotation__image_id": [1]}, r"annotation 7 refers to a missing image or category: image_id \[1\]"),
        ({"annotation__category_id": 4}, "annotation 7 refers to a missing image or category"),
        ({"annotation__category_id": MISSING}, r"an annotation has no 'category_id'"),
        ({"annotation__category_id": "cup"}, r"annotation 7 refers to a missing .*category_id 'cup'"),
        ({"annotation__bbox": [1, 2, 3, 4, 5]}, r"annotation 7 has no bbox of 4 numbers: .*4, 5\]"),
        ({"annotation__bbox": [1, 1, 10**400, 1]}, ""),
        ({"annotation__bbox": [1, 2, "a", 4]}, r"the annotations' bbox must be numbers"),
        ({"annotation__area": 10**400}, ""),
        ({"annotation__area": "big"}, r"the annotations' area must be numbers"),
        ({"annotation__iscrowd": 10**30}, ""),
        ({"annotation__iscrowd": "no"}, r"the annotations' iscrowd must be numbers"),
        ({"annotation__keypoints": [1, 2, 10**400] * 3}, ""),
        ({"annotation__keypoints": [1, 2]}, r"the annotations' keypoints must be .* 3 numbers each, not \[1, 2\]"),
        ({"category__id": MISSING}, r"a category has no 'id'"),
        ({"category__name": MISSING}, r"a category has no 'name'"),
        ({"category__id": 1.5}, r"the categories' id must be integers, or all text, not 1\.5"),
    ],
)
def test_errors_name_the_field(tmp_path, changes, message):
    with pytest.raises(LoaderError, match=rf"coco\.json' is no COCO instances file: {message}"):
        open_coco(tmp_path, content(**changes))


@pytest.mark.parametrize("part", ["images", "annotations", "categories"])
@pytest.mark.parametrize("value", [3, {"1": {"id": 1}}, ["a"], None])
def test_parts_are_lists_of_objects(tmp_path, part, value):
    with pytest.raises(LoaderError, match=f"'{part}' must be a list of objects, not "):
        open_coco(tmp_path, content() | {part: value})


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("images", {"id": "b"}, r"the images' id must be integers, or all text, not 'b'"),
        ("images", {}, "two images have the id 1"),
        ("categories", {"name": "mug"}, "two categories have the id 3"),
        ("annotations", {"id": 8, "bbox": []}, r"annotation 8 has no bbox of 4 numbers: \[\]"),
        ("annotations", {"id": 8, "keypoints": [1, 2, 2] * 2}, "the annotations' keypoints must be equally many"),
    ],
)
def test_errors_of_a_second_entry(tmp_path, part, changes, message):
    data = content(annotation__keypoints=[1, 2, 2])
    data[part].append(data[part][0] | changes)
    with pytest.raises(LoaderError, match=message):
        open_coco(tmp_path, data)
