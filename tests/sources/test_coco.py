"""COCO annotation files."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cuaug import DecodeError, DecodeOptions, Loader, LoaderError
from cuaug.sources import Coco, Source
from tests.support.sources.loading import load

mask_tools = pytest.importorskip("pycocotools.mask")

H, W = 12, 16
SQUARE = [2.0, 3.0, 8.0, 3.0, 8.0, 7.0, 2.0, 7.0]  # a polygon: columns 2 to 7, rows 3 to 6


def filled() -> np.ndarray:
    mask = np.zeros((H, W), np.uint8)
    mask[3:7, 2:8] = 1
    return mask


def annotation_file(**changes: Any) -> dict[str, Any]:
    runs = mask_tools.encode(np.asfortranarray(filled()))
    by_columns = filled().T.reshape(-1)
    ends = np.flatnonzero(np.diff(by_columns)) + 1
    counts = np.diff([0, *ends, by_columns.size]).tolist()
    points = [2, 3, 2, 0, 0, 0, 7, 6, 1]
    annotations = [
        {"id": 10, "image_id": 7, "category_id": 90, "bbox": [2, 3, 6, 4], "area": 24, "segmentation": [SQUARE]},
        {"id": 11, "image_id": 5, "category_id": 3, "bbox": [0, 0, 1.5, 2.25], "area": 3, "iscrowd": 1,
         "segmentation": {"size": [H, W], "counts": counts}},
        {"id": 12, "image_id": 7, "category_id": 3, "bbox": [1, 1, 0, 0], "keypoints": points,
         "segmentation": {"size": [H, W], "counts": runs["counts"].decode()}},
    ]  # fmt: skip
    images = [{"id": i, "file_name": f"{i}.jpg", "height": H, "width": W} for i in (5, 6, 7)]
    categories = [{"id": 90, "name": "brush"}, {"id": 3, "name": "car"}]
    return {"images": images, "annotations": annotations, "categories": categories} | changes


def open_coco(folder: Path, content: Any = None, **options: Any) -> Coco:
    path = folder / "instances.json"
    path.write_text(json.dumps(annotation_file() if content is None else content))
    return Coco(folder / "images", path, **options)


def write_images(folder: Path) -> None:
    (folder / "images").mkdir()
    for number in (5, 6, 7):
        Image.new("RGB", (W, H)).save(folder / "images" / f"{number}.jpg")


def test_labels(tmp_path):
    source = open_coco(tmp_path)
    assert isinstance(source, Source) and len(source) == 3 and source.classes == ["car", "brush"]
    assert source.categories == {3: "car", 90: "brush"} and source.category_ids == [3, 90]
    assert repr(source) == f"Coco(3 samples in 2 classes, the first {source.path(0)!r})"
    path, label = source.read(2)
    assert path == str(tmp_path / "images" / "7.jpg") == source.path(2)
    assert label["boxes"].dtype == np.float32 and label["boxes"].tolist() == [[2, 3, 8, 7], [1, 1, 1, 1]]
    assert label["labels"].tolist() == [1, 0] and label["labels"].dtype == np.int64
    assert label["image_id"] == 7 and label["annotation_id"].tolist() == [10, 12]
    assert label["area"].tolist() == [24, 0] and label["iscrowd"].tolist() == [0, 0] and "masks" not in label
    assert label["keypoints"].tolist() == [[[0, 0, 0]] * 3, [[2.5, 3.5, 2], [0, 0, 0], [7.5, 6.5, 1]]]
    assert source.label(0)["boxes"].tolist() == [[0, 0, 1.5, 2.25]] and source.label(0)["iscrowd"].tolist() == [1]
    empty = source.label(1)
    assert {name: values.shape for name, values in empty.items() if name != "image_id"} == {
        "boxes": (0, 4), "labels": (0,), "area": (0,), "iscrowd": (0,), "annotation_id": (0,), "keypoints": (0, 3, 3),
    }  # fmt: skip


def test_null_equals_a_missing_field(tmp_path):
    content = annotation_file()
    content["annotations"][0] |= {"area": None, "iscrowd": None, "keypoints": None}
    label = open_coco(tmp_path, content).label(2)
    assert label["area"].tolist() == [0, 0] and label["iscrowd"].tolist() == [0, 0]
    assert not label["keypoints"][0].any() and label["keypoints"][1].any()


def test_labels_are_copies(tmp_path):
    source = open_coco(tmp_path, masks=True)
    for value in source.label(2).values():
        if isinstance(value, np.ndarray):
            value[...] = 99
    assert source.label(2)["boxes"].tolist() == [[2, 3, 8, 7], [1, 1, 1, 1]]


def test_masks_of_polygons_and_both_kinds_of_runs(tmp_path):
    source = open_coco(tmp_path, masks=True)
    for index, k in ((2, 0), (2, 1), (0, 0)):
        masks = source.label(index)["masks"]
        assert masks.dtype == np.uint8
        np.testing.assert_array_equal(masks[k], filled())
    assert source.label(1)["masks"].shape == (0, H, W)


def test_masks_of_several_polygons_and_of_none(tmp_path):
    content = annotation_file()
    content["annotations"][0]["segmentation"] = [SQUARE, [10.0, 8.0, 14.0, 8.0, 14.0, 10.0, 10.0, 10.0]]
    del content["annotations"][2]["segmentation"]
    one, other = open_coco(tmp_path, content, masks=True).label(2)["masks"]
    expected = filled()
    expected[8:10, 10:14] = 1
    np.testing.assert_array_equal(one, expected)
    assert not other.any()


def test_options(tmp_path):
    source = open_coco(tmp_path, contiguous=False)
    assert source.classes is None and source.label(2)["labels"].tolist() == [90, 3]
    source = open_coco(tmp_path, keep_crowds=False, keep_empty=False)
    assert len(source) == 1 and source.label(0)["image_id"] == 7
    assert source.label(0)["annotation_id"].tolist() == [10, 12]
    source = open_coco(tmp_path, keep_empty=False, masks=True)
    assert [source.label(i)["image_id"] for i in range(len(source))] == [5, 7]
    np.testing.assert_array_equal(source.label(1)["masks"][1], filled())


@pytest.mark.parametrize("cache", [None, "decoded"])
def test_annotations_that_ignore_exif_orientation(tmp_path, cache):
    write_images(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (W, H)).save(tmp_path / "images" / "6.jpg", exif=exif)
    source = open_coco(tmp_path)
    with Loader(source, batch_size=3, decode=DecodeOptions(apply_exif=False), cache=cache) as loader:
        for _ in range(2):
            assert len(next(iter(loader)).labels) == 3
    with Loader(source, batch_size=3, on_error="skip", cache=cache) as loader:
        for _ in range(2):
            assert [label["image_id"] for label in next(iter(loader)).labels] == [5, 7]
    with Loader(source, cache=cache) as loader, pytest.raises(DecodeError) as caught:
        list(loader)
    for part in ("6.jpg' (sample 1): the image is 16 x 12 pixels", "annotations are of 12 x 16", "apply_exif=False"):
        assert part in str(caught.value)


def test_pickles_and_fingerprint(tmp_path):
    source = open_coco(tmp_path, masks=True)
    again = pickle.loads(pickle.dumps(source))
    assert again.fingerprint() == source.fingerprint() and again.read(2)[0] == source.read(2)[0]
    for name, value in source.label(2).items():
        np.testing.assert_array_equal(again.label(2)[name], value)
    for part in ("bbox", "category_id"):
        content = annotation_file()
        content["annotations"][0][part] = [2, 3, 6, 5] if part == "bbox" else 3
        assert open_coco(tmp_path, content, masks=True).fingerprint() != source.fingerprint()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bbox": [1, 2, -3, 4]}, r"annotation 8 has the bbox \[1, 2, -3, 4\]: .* box sizes 0 or more"),
        ({"bbox": [1, 2, 3, math.nan]}, r"annotation 8 has the bbox .*nan\]: numbers must be finite"),
        ({"keypoints": [1, math.inf, 2] * 3}, r"annotation 8 has the keypoints \[1, inf, 2, 1"),
        ({"area": 1e300}, r"annotation 8 has the area 1e\+300: "),
    ],
)
def test_invalid_numbers_cost_their_image(tmp_path, caplog, changes, reason):
    """One reversed box of a large file must not cost the run; the log names it when the file is read."""
    write_images(tmp_path)
    content = annotation_file()
    content["annotations"].append({"id": 8, "image_id": 5, "category_id": 3, "bbox": [0, 0, 1, 1]} | changes)
    source = open_coco(tmp_path, content)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "1 of 3 images have invalid annotations" in line and "'5.jpg': annotation 8 has the" in line
    with pytest.raises(DecodeError, match=reason):
        source.read(0)
    assert len(source.read(2)[1]["boxes"]) == 2
    assert load(source, on_error="skip").indices.tolist() == [1, 2]
    with Loader(source, device="cpu") as loader, pytest.raises(DecodeError, match=rf"5\.jpg' \(sample 0\): {reason}"):
        next(iter(loader))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(LoaderError, match=r"cannot read .*none\.json"):
        Coco(tmp_path, tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(LoaderError, match=r"bad\.json' is not JSON"):
        Coco(tmp_path, tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text("[" * 100_000)
    with pytest.raises(LoaderError, match=r"bad\.json' is not JSON"):
        Coco(tmp_path, tmp_path / "bad.json")
    for content in (5, True, "images", []):
        with pytest.raises(LoaderError, match=r"instances\.json' is no COCO instances file: "):
            open_coco(tmp_path, content)
    with pytest.raises(LoaderError, match="it has no 'annotations'"):
        open_coco(tmp_path, {"images": []})
    with pytest.raises(LoaderError, match="has no images"):
        open_coco(tmp_path, annotation_file(images=[], annotations=[]))
    content = annotation_file()
    content["annotations"][2]["segmentation"]["size"] = [H, W + 1]
    with pytest.raises(DecodeError, match=r"the annotations claim 12 x 16 pixels, but a mask has \[12, 17\]"):
        open_coco(tmp_path, content, masks=True).label(2)


@pytest.mark.parametrize(
    "segmentation",
    [
        [[0.0, 0.0, 1e9, 0.0, 1e9, 1e9]],
        [SQUARE, [-1e30, 0.0, 5.0, 0.0, 5.0, 5.0]],
        [[1e12, 1e12] * 3],
        [[0.0, 0.0, 2e6, 1.0] * 10],
        [[math.nan] * 6],
        [["a"] * 6],
        [[4.0, 3.0], [9.0, 3.0], [9.0, 6.0]],  # a list of points once gave an empty mask
        SQUARE,
        [None],
        5,
        "abc",
        {"size": [H, W]},
        {"size": [H, W], "counts": None},
        {"size": [H, W], "counts": [0, 10**6]},
        {"size": [H, W], "counts": [0, -5]},
        {"size": [H, W], "counts": [2**40]},
        {"size": [H, W], "counts": "oo"},
        {"size": [H, W], "counts": "PPYo20PPYo20"},
        {"size": [H, W], "counts": "o\u0000111111111111111111111111"},
        {"size": [H, W], "counts": [0, 0, 4294967295, 4294967295] * 10},
        {"size": [H, W], "counts": [10]},
        {"size": [H, W], "counts": [10, 20]},
        {"size": [H, W], "counts": []},
        {"size": [H, W], "counts": ""},
        {"size": [H, W], "counts": "oooooooooooo0"},
        {"size": [H, W], "counts": [96.0, 96.0]},
        {"size": [H, W], "counts": [0] * 10_000 + [192]},
        {"size": [H, W], "counts": {"a": 1}},
    ],
    ids=lambda segmentation: f"{segmentation!r:.40}",
)
def test_an_invalid_segmentation_damages_one_sample(tmp_path, segmentation):
    """Coordinates of 1e9 once ended the process."""
    write_images(tmp_path)
    content = annotation_file()
    content["annotations"][1]["segmentation"] = segmentation
    source = open_coco(tmp_path, content, masks=True)
    with pytest.raises(DecodeError, match=r"the segmentation of annotation 11 makes no mask: "):
        source.read(0)
    assert load(source, on_error="skip").indices.tolist() == [1, 2]


def test_unknown_image_sizes(tmp_path):
    content = annotation_file()
    content["images"][1] |= {"height": None, "width": 0}
    write_images(tmp_path)
    assert len(load(open_coco(tmp_path, content)).labels) == 3
    with pytest.raises(LoaderError, match=r"masks need the size of '6\.jpg', but its height or width is 0 or null"):
        open_coco(tmp_path, content, masks=True)


@pytest.mark.parametrize(
    ("annotations", "image"),
    [
        ("coco.json", "1.png"),
        ("coco.json", "deep/1.png"),
        ("coco.json", "images/1.png"),
        ("annotations/instances_val2017.json", "val2017/1.png"),
    ],
)
def test_a_json_file_alone_finds_its_images(tmp_path, annotations, image):
    for path in (tmp_path / annotations, tmp_path / image):
        path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (W, H)).save(tmp_path / image)
    name = image.removeprefix("images/").removeprefix("val2017/")
    data = {
        "images": [{"id": 1, "file_name": name, "height": H, "width": W}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (tmp_path / annotations).write_text(json.dumps(data))
    ((images, labels),) = Loader(tmp_path / annotations)
    assert images.shape == (1, 3, H, W) and labels[0]["boxes"].tolist() == [[1, 2, 4, 6]]
    (tmp_path / image).unlink()
    remedy = r"names the image '.*1\.png', which is in none of .*: name the folder, .*Coco\("
    with pytest.raises(LoaderError, match=remedy):
        Loader(tmp_path / annotations)
    (tmp_path / annotations).write_text("{}")
    with pytest.raises(LoaderError, match=r"is no COCO instances file: it has no 'images'"):
        Loader(tmp_path / annotations)
