"""Pascal VOC's annotations: boxes, classes, splits and malformed files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cuaug import ArgumentError, DecodeError, LoaderError
from cuaug import transforms as T
from cuaug.sources import PascalVoc
from tests.support.sources.loading import load

W, H = 40, 20
PERSON = """<object><name>person</name><pose>Left</pose><truncated>1</truncated><difficult>1</difficult>
<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>
<bndbox><xmax>30</xmax><xmin>11</xmin><ymax>20</ymax><ymin>1</ymin></bndbox></object>"""


def thing(name: str, x0: Any, y0: Any, x1: Any, y1: Any) -> str:
    box = f"<xmin>{x0}</xmin><ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax>"
    return f"<object><name>{name}</name><bndbox>{box}</bndbox></object>"


CAT = thing("cat", 1, 2, 40, 20)


def write(folder: Path, annotations: dict[str, str], **splits: str) -> Path:
    """An image and the inner XML of its annotation for each name."""
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, inner in annotations.items():
        Image.new("RGB", (W, H), "gray").save(folder / "JPEGImages" / f"{name}.jpg")
        (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{inner}</annotation>")
    for split, names in splits.items():
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text(names)
    return folder


def test_labels(tmp_path):
    size = f"<size><width>{W}</width><height>{H}</height><depth>3</depth></size>"
    folder = write(tmp_path, {"a": size + PERSON + CAT, "b": "", "c": CAT}, train="b\na\n", val="c \n")
    source = PascalVoc(folder)
    assert len(source) == 2 and source.classes == ["cat", "person"] and source.path(0).endswith("JPEGImages/b.jpg")
    label = source.label(1)
    dtypes = {"boxes": np.float32, "labels": np.int64, "difficult": np.int64}
    assert {name: values.dtype for name, values in label.items()} == dtypes
    np.testing.assert_array_equal(label["boxes"], [[10, 0, 30, 20], [0, 1, 40, 20]])
    assert label["labels"].tolist() == [1, 0] and label["difficult"].tolist() == [1, 0]
    assert source.picture_size(1) == (H, W) and source.picture_size(0) == (0, 0)
    assert source.label(0)["boxes"].shape == (0, 4)
    assert PascalVoc(folder, "val").classes == ["cat", "person"]  # every split has the same numbers
    assert len(PascalVoc(folder, None)) == 3
    assert PascalVoc(folder, keep_difficult=False).label(1)["labels"].tolist() == [0]
    assert PascalVoc(folder, classes=["person", "dog", "cat"]).label(1)["labels"].tolist() == [0, 2]


@given(st.lists(st.tuples(*[st.integers(1, W), st.integers(1, H)] * 2), max_size=4), st.booleans())
def test_a_box_covers_its_first_and_last_pixel(tmp_path_factory, ends, one_based):
    """Pixels xmin ... xmax, counted from 1, against a painted mask."""
    corners = [(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)) for x0, y0, x1, y1 in ends]
    folder = write(tmp_path_factory.mktemp("voc"), {"a": "".join(thing("x", *corner) for corner in corners)})
    boxes = PascalVoc(folder, None, one_based=one_based).label(0)["boxes"]
    if not one_based:
        np.testing.assert_array_equal(boxes, np.reshape(corners, (-1, 4)))
        return
    for (x0, y0, x1, y1), (left, top, right, bottom) in zip(corners, boxes.astype(int).tolist(), strict=True):
        painted = np.zeros((H + 1, W + 1), bool)
        painted[y0 : y1 + 1, x0 : x1 + 1] = True  # with a row and a column for the number 0
        rows, columns = painted[1:, 1:].any(1).nonzero()[0], painted[1:, 1:].any(0).nonzero()[0]
        assert (left, top, right, bottom) == (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)


def test_boxes_move_in_a_loader_and_difficult_follows(tmp_path):
    source = PascalVoc(write(tmp_path, {"a": PERSON + CAT}), None)
    chain = [T.RandomHorizontalFlip(1), T.CenterCrop((20, 4)), T.SanitizeBoundingBoxes(min_size=5)]
    (labels,) = load(source, transforms=chain).labels
    assert not len(labels["boxes"]) and not len(labels["difficult"]) and not len(labels["labels"])
    (labels,) = load(source, transforms=[T.RandomHorizontalFlip(1)]).labels
    np.testing.assert_array_equal(labels["boxes"], [[10, 0, 30, 20], [0, 1, 40, 20]])


def test_an_image_of_another_size_is_damaged(tmp_path):
    folder = write(tmp_path, {"a": f"<size><width>{H}</width><height>{W}</height></size>{CAT}"})
    with pytest.raises(DecodeError, match="annotations are of"):
        load(PascalVoc(folder, None))


def test_two_folders_of_any_name(tmp_path):
    folder = write(tmp_path, {"a": CAT})
    (folder / "JPEGImages").rename(folder / "pictures")
    (folder / "pictures" / "a.jpg").rename(folder / "pictures" / "a.JPG")
    (folder / "Annotations" / "a.xml").rename(folder / "pictures" / "a.xml")
    assert len(PascalVoc(folder, None, images="pictures", annotations="pictures")) == 1
    assert len(PascalVoc("/", None, images=folder / "pictures", annotations=folder / "pictures")) == 1


LAUGHS = """<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<annotation><object><name>&b;</name></object></annotation>"""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LAUGHS, "declares a document type"),
        (LAUGHS.encode("utf-16"), "declares a document type"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>', "declares a document type"),
        ("<annotation>", "no element found|is no XML.*line 1"),
        ("", "no element found"),
        ('<?xml version="1.0" encoding="nonsense"?><annotation/>', "is no XML that is read here"),
        ("<html/>", "its element is 'html', not 'annotation'"),
        ("<annotation><object/></annotation>", "an object has no name"),
        ("<annotation><object><name>cat</name></object></annotation>", "'cat': bndbox/xmin must be a number .*not ''"),
        (f"<annotation>{thing('cat', 'nan', 1, 2, 2)}</annotation>", "'cat': bndbox/xmin must be a number .*not 'nan'"),
        (
            f"<annotation>{thing('cat', 1, 1, 1e300, 2)}</annotation>",
            "bndbox/xmax must be a number below 2.31, not '1e",
        ),
        (f"<annotation>{thing('cat', 1, 'x', 2, 2)}</annotation>", "bndbox/ymin must be a number below 2.31, not 'x'"),
        (f"<annotation>{thing('cat', 0, 1, 2, 2)}</annotation>", "counts pixels from 1: use one_based=False"),
        (f"<annotation>{thing('cat', 3, 1, 2, 2)}</annotation>", "ends before it begins"),
        (f"<annotation>{PERSON.replace('>1<', '>yes<', 2)}</annotation>", "'person': difficult must be .*not 'yes'"),
        (f"<annotation>{PERSON.replace('>1<', '>2<', 2)}</annotation>", "'person': difficult must be 0 or 1, not 2"),
        ("<annotation><size><width>-5</width><height>5</height></size></annotation>", "its size is 5 x -5 pixels"),
        ("<annotation><size><width>5</width><height>.5</height></size></annotation>", "size/width must be whole"),
        ("<annotation><size><width>5</width><height>x</height></size></annotation>", "size/height must be a .*not 'x'"),
        ("<annotation>" + "<a/>" * 1_000_001, "has more than 1,000,000 XML tags and attributes"),
        ("<annotation " + "a=''" * 1_000_001, "has more than 1,000,000 XML tags and attributes"),
        (f"<annotation>{thing('zebra', 1, 1, 2, 2)}</annotation>", "the class 'zebra' is not in classes"),
    ],
)
def test_a_malformed_file_costs_its_image_and_is_named(tmp_path, content, message):
    folder = write(tmp_path, {"a": CAT, "b": CAT})
    (folder / "Annotations" / "a.xml").write_bytes(content if isinstance(content, bytes) else content.encode())
    source = PascalVoc(folder, None, classes=["cat", "person"])
    with pytest.raises(DecodeError, match=rf"a\.xml'.*({message})"):
        source.read(0)
    assert load(source, on_error="skip").paths == [source.path(1)]
    if "zebra" not in message:
        assert PascalVoc(folder, None).classes == ["cat"]


def test_deeply_nested_xml(tmp_path):
    folder = write(tmp_path, {"a": "<x>" * 200_000 + "</x>" * 200_000})
    assert PascalVoc(folder, None, classes=["cat"]).label(0)["labels"].shape == (0,)


def test_what_is_missing_is_named(tmp_path):
    folder = write(tmp_path, {"a": CAT}, train="a\nmissing\n", empty="\n")
    with pytest.raises(LoaderError, match=r"JPEGImages' has no image of 1 names, the first 'missing': remove these li"):
        PascalVoc(folder)
    with pytest.raises(LoaderError, match=r"split: there is no '.*Main/val.txt': give another split, or split=None"):
        PascalVoc(folder, "val")
    with pytest.raises(LoaderError, match="split 'empty' names no images"):
        PascalVoc(folder, "empty")
    with pytest.raises(LoaderError, match="cannot list"):
        PascalVoc(folder, None, images="pictures")
    (folder / "Annotations" / "a.xml").rename(folder / "Annotations" / "b.xml")
    with pytest.raises(LoaderError, match=r"has no image of 1 names, the first 'b': remove these XML files"):
        PascalVoc(folder, None)
    with pytest.raises(LoaderError, match=r"Annotations' has no XML file of the 1 images, such as a.xml"):
        PascalVoc(write(folder, {}, train="a"))
    Image.new("RGB", (W, H)).save(folder / "JPEGImages" / "a.png")
    with pytest.raises(LoaderError, match="have the same name"):
        PascalVoc(folder, None)
    for classes in ("cat", [], [1], ["cat", "cat"], 3):
        with pytest.raises(ArgumentError, match="classes must be different class names"):
            PascalVoc(write(tmp_path / "other", {"a": CAT}), None, classes=classes)


def test_images_without_an_xml_file_have_no_objects_and_are_counted(tmp_path, caplog):
    folder = write(tmp_path, {"a": CAT, "b": "", "c": CAT}, train="a\nb\nc\n")
    (folder / "Annotations" / "b.xml").unlink()
    for split in ("train", None):
        source = PascalVoc(folder, split)
        assert [len(source.read(i)[1]["boxes"]) for i in range(3)] == [1, 0, 1]
        assert source.picture_size(1) == (0, 0) and len(source.fingerprint()) > 10
        (record,) = caplog.records
        assert "1 of 3 images have no XML file, so they have no objects, the first" in record.getMessage()
        assert "b.jpg" in record.getMessage()
        caplog.clear()


def test_the_split_of_one_class_is_refused_with_a_remedy(tmp_path):
    folder = write(tmp_path, {"a": CAT, "b 1": CAT}, cat_train="a -1\nb 1  1\n", train="a\nb 1\n")
    message = "the first 'a -1': 'cat_train' says which images show one class; give a split"
    with pytest.raises(LoaderError, match=message):
        PascalVoc(folder, "cat_train")
    assert len(PascalVoc(folder)) == 2


@pytest.mark.parametrize("size", [(f"{W}.0", f"{H}.0"), (f" {W} ", f"{H}\n"), ("", ""), (" ", "0")])
def test_numbers_may_have_a_point_and_spaces(tmp_path, size):
    inner = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>"
    source = PascalVoc(write(tmp_path, {"a": inner + thing("cat", "11.0", " 3", "3e1", "12 ")}), None)
    assert source.label(0)["boxes"].tolist() == [[10, 2, 30, 12]]
    assert source.picture_size(0) == ((H, W) if size[0].strip() else (0, 0))


def test_an_unreadable_file_costs_its_image(tmp_path):
    folder = write(tmp_path, {"a": CAT, "b": CAT})
    (folder / "Annotations" / "a.xml").unlink()
    (folder / "Annotations" / "a.xml").symlink_to("nowhere.xml")
    source = PascalVoc(folder, None)
    assert source.classes == ["cat"] and len(source.label(1)["boxes"]) == 1
    with pytest.raises(OSError, match="No such file"):
        source.read(0)


def test_many_names_are_looked_up_once_each(tmp_path):
    class Name(str):
        looks = 0

        def __hash__(self) -> int:
            return super().__hash__()

        def __eq__(self, other: object) -> bool:
            Name.looks += 1
            return str(self) == other

    names = [f"n{i}" for i in range(300)]
    folder = write(tmp_path, {"a": "".join(thing(name, 1, 1, 2, 2) for name in names)})
    source = PascalVoc(folder, None, classes=list(map(Name, names)))
    Name.looks = 0
    assert source.label(0)["labels"].tolist() == list(range(300)) and Name.looks < 1000


def test_a_file_above_the_limit_is_not_read(tmp_path):
    folder = write(tmp_path, {"a": CAT})
    with open(folder / "Annotations" / "a.xml", "wb") as file:
        file.truncate(900_000_000)
    with pytest.raises(DecodeError, match="the file has 900,000,000 bytes, above the limit"):
        PascalVoc(folder, None, classes=["cat"]).label(0)


def test_the_fingerprint_tells_settings_apart(tmp_path):
    folder = write(tmp_path, {"a": CAT, "b": thing("cat", 1, 2, 40, 20)}, one="a")
    settings: list[dict[str, Any]] = [{}, {"split": "one"}, {"classes": ["cat", "dog"]}, {"one_based": False}]
    settings.append({"keep_difficult": False})
    prints = [PascalVoc(folder, **{"split": None, **setting}).fingerprint() for setting in settings]
    (folder / "Annotations" / "b.xml").write_text(f"<annotation>{thing('cat', 1, 3, 40, 20)}</annotation>")
    prints.append(PascalVoc(folder, None).fingerprint())
    assert len(set(prints)) == len(prints)
