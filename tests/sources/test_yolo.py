"""YOLO folders: boxes in pixels, ultralytics' layouts, and malformed files."""

from __future__ import annotations

import os
import sys
import tracemalloc
import unicodedata
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cuaug import DecodeError, LoaderError, sources
from cuaug import transforms as T
from cuaug.commands.cli import main
from cuaug.sources import Yolo
from cuaug.sources.yolo import _MAX_LABEL_BYTES
from tests.support.sources.loading import load

W, H = 40, 20
NAMES = "names: [cat, dog, bird]\n"


def write(folder: Path, labels: dict[str, str | None], images: str = "images/train", **config: Any) -> Path:
    """Images with the text of their label files; None: no file. Returns data.yaml."""
    for name, text in labels.items():
        image = folder / images / f"{name}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (W, H), "gray").save(image)
        if text is not None:
            file = Path(str(image).replace("images", "labels")).with_suffix(".txt")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    lines = {"train": images, "val": "images/val"} | config
    file = folder / "data.yaml"
    file.write_text("".join(f"{key}: {value}\n" for key, value in lines.items() if value is not None) + NAMES)
    return file


def test_labels(tmp_path):
    source = Yolo(write(tmp_path, {"a": "2 0.5 0.5 0.5 0.2\n\n0 0.25 0.5 0.5 1\r\n", "b": None, "c": " \n"}))
    assert source.classes == ["cat", "dog", "bird"] and len(source) == 3
    path, label = source.read(0)
    assert path == source.path(0) == str(tmp_path / "images" / "train" / "a.png")
    assert label["boxes"].dtype == np.float32 and label["labels"].dtype == np.int64
    np.testing.assert_allclose(label["boxes"], [[10, 8, 30, 12], [0, 0, 20, 20]])
    assert label["labels"].tolist() == [2, 0] and source.picture_size(0) == (H, W)
    for i in (1, 2):
        assert source.label(i)["boxes"].shape == (0, 4) and source.label(i)["labels"].shape == (0,)
        assert source.picture_size(i) == (0, 0)


@given(st.lists(st.lists(st.integers(0, 1000), min_size=4, max_size=4), max_size=5))
def test_boxes_in_pixels(tmp_path_factory, ends):
    folder = tmp_path_factory.mktemp("yolo")
    lines, expected = [], []
    for a, b, c, d in ends:
        x0, x1, y0, y1 = *sorted((a / 1000, b / 1000)), *sorted((c / 1000, d / 1000))
        lines.append(f"1 {(x0 + x1) / 2:.9f} {(y0 + y1) / 2:.9f} {x1 - x0:.9f} {y1 - y0:.9f}")
        expected.append([x0 * W, y0 * H, x1 * W, y1 * H])
    label = Yolo(write(folder, {"a": "\n".join(lines)})).label(0)
    np.testing.assert_allclose(label["boxes"], np.reshape(expected, (-1, 4)), atol=1e-5)
    assert label["labels"].tolist() == [1] * len(ends)


def test_boxes_are_relative_to_the_upright_image(tmp_path):
    file = write(tmp_path, {"a": "0 0.5 0.25 1 0.5"})
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (W, H)).save(tmp_path / "images" / "train" / "a.png", exif=exif)
    source = Yolo(file)
    np.testing.assert_allclose(source.label(0)["boxes"], [[0, 0, H, W / 2]])
    images, labels = load(source, transforms=[T.RandomVerticalFlip(1)])
    assert images.shape == (1, 3, W, H)
    np.testing.assert_allclose(labels[0]["boxes"], [[0, W / 2, H, W]])


def test_rounded_boxes_are_clipped(tmp_path):
    source = Yolo(write(tmp_path, {"a": "0 0.25 0.5 0.500002 1.000001"}))
    assert source.label(0)["boxes"].min() == 0 and source.label(0)["boxes"][0, 3] == H


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 0.5 0.5 0.5", "five numbers, 'class cx cy w h'"),
        ("0 0.5 0.5 0.5 x", "five numbers"),
        ("0 0.5 0.5 0.5 0.5 0.9", "five numbers.*polygons and rotated boxes are not read"),
        ("0 0.1 0.1 0.9 0.1 0.9 0.9", "five numbers.*polygons"),
        ("3 0.5 0.5 0.5 0.5", "a class from 0 to 2"),
        ("-1 0.5 0.5 0.5 0.5", "a class from 0 to 2"),
        ("0.5 0.5 0.5 0.5 0.5", "a class from 0 to 2"),
        ("nan 0.5 0.5 0.5 0.5", "a class from 0 to 2"),
        ("0 20 10 5 5", "a box in numbers from 0 to 1"),
        ("0 0.5 0.5 -0.005 0.5", "a box in numbers from 0 to 1"),
        ("0 0.5 nan 0.5 0.5", "a box in numbers from 0 to 1"),
        ("0 0.5 0.5 0.5 1e999", "five numbers"),
        ("é 0.5 0.5 0.5 0.5", "five numbers"),
    ],
)
def test_a_malformed_line_costs_its_image_and_is_named(tmp_path, line, expected):
    file = write(tmp_path, {"a": f"0 0.5 0.5 0.5 0.5\n{line}\n", "b": "1 0.5 0.5 0.5 0.5"})
    source = Yolo(file)
    with pytest.raises(DecodeError, match=rf"a\.txt' line 2: expected {expected}"):
        source.read(0)
    assert load(source, on_error="skip").paths == [source.path(1)]


def test_cuaug_check_lists_malformed_lines(tmp_path, capfd):
    file = write(tmp_path, {"a": "0 0.5 0.5 0.5 0.5", "b": "0 0.5 0.5 0.5", "c": None})
    (tmp_path / "labels" / "train" / "d.txt").touch()
    for path in (file, tmp_path):
        assert main(["check", "--threads", "2", str(path)]) == 1
        out, err = capfd.readouterr()
        assert "b.txt' line 1: expected five numbers" in out
        assert "3 classes, numbered from 0: 'cat', 'dog', 'bird'\n3 of 3 samples checked, 1 damaged" in out
        assert err.count("1 of 3 images have no label file") == err.count("1 label file(s) match no image") == 1


def test_whole_numbers_may_be_written_as_floats(tmp_path):
    assert Yolo(write(tmp_path, {"a": "\ufeff2.0 0 0 1 1"})).label(0)["labels"].tolist() == [2]


def test_a_broken_link_is_no_image_without_objects(tmp_path):
    source = Yolo(write(tmp_path, {"a": "0 0.5 0.5 0.5 0.5"}))
    file = tmp_path / "labels" / "train" / "a.txt"
    file.unlink()
    file.symlink_to("missing.txt")
    with pytest.raises(FileNotFoundError):
        source.read(0)
    assert source.fingerprint()  # states can be saved


def test_the_last_folder_called_images_counts(tmp_path):
    folder = tmp_path / "images" / "set"
    (folder / "images" / "x").mkdir(parents=True)
    (folder / "labels" / "x").mkdir(parents=True)
    Image.new("RGB", (W, H)).save(folder / "images" / "x" / "a.jpg")
    (folder / "labels" / "x" / "a.txt").write_text("1 0.5 0.5 0.5 0.5")
    assert Yolo(folder, "x").label(0)["labels"].tolist() == [1]


@pytest.mark.parametrize("images", ["images", "train/images", "train"])
@pytest.mark.parametrize("split", ["train", None])
def test_folders_without_yaml(tmp_path, monkeypatch, images, split):
    images = "images/train" if images == "images" else images
    write(tmp_path, {"a": "7 0.5 0.5 0.5 0.5"}, images=images)
    if images == "train":
        (tmp_path / "train" / "a.txt").write_text("7 0.5 0.5 0.5 0.5")
    (tmp_path / "data.yaml").unlink()
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, "."):
        source = Yolo(folder, split)
        assert source.classes is None and source.label(0)["labels"].tolist() == [7]
    message = r"has no data.yaml and none of the folders './images/val', './val/images', './val'"
    with pytest.raises(LoaderError, match=message):
        Yolo(".", "val")


@pytest.mark.parametrize(
    "config",
    [
        {"path": "."},
        {"train": "[images/train]"},
        {"train": "[images/train/a.txt, list.txt]"},
        {"train": "list.txt"},
        {"train": "../images/train"},  # as Roboflow writes it
        {"train": "train", "path": "images"},
        {"names": "{0: cat, 1: dog, 2: bird}"},
        {"nc": 3},
        {"download": "https://example.com/a.zip"},
    ],
    ids=str,
)
def test_data_yaml(tmp_path, config):
    (tmp_path / "set").mkdir()
    file = write(tmp_path / "set", {"a": "2 0.5 0.5 0.5 0.5", "b": None}, **config)
    if "names" in config:
        file.write_text(file.read_text().replace(NAMES, ""))
    (file.parent / "list.txt").write_text("./images/train/a.png\n\nimages/train/b.png\n")
    (file.parent / "images" / "train" / "a.txt").write_text("a.png\n")
    source = Yolo(file)
    assert source.classes == ["cat", "dog", "bird"] and source.label(0)["labels"].tolist() == [2]
    assert {Path(source.path(i)).name for i in range(len(source))} == {"a.png", "b.png"}


def test_an_absolute_path_may_name_the_files_own_folder(tmp_path):
    file = write(tmp_path, {"a": "2 0.5 0.5 0.5 0.5"}, path=str(tmp_path))
    assert len(Yolo(file)) == 1


def test_root_replaces_path(tmp_path):
    file = write(tmp_path / "set", {"a": "2 0.5 0.5 0.5 0.5"}, path="/elsewhere")
    moved = tmp_path / "data.yaml"
    file.rename(moved)
    with pytest.raises(LoaderError, match=r"the path '/elsewhere' leads out of .*: give root="):
        Yolo(moved)
    with pytest.raises(LoaderError, match=r"its path '/elsewhere' is no folder: give root="):
        Yolo(moved, allow_outside=True)
    assert len(Yolo(moved, root=tmp_path / "set")) == 1


@pytest.mark.parametrize("line", ["/etc/a.png", "../../a.png"])
def test_paths_that_lead_out_are_refused(tmp_path, line):
    file = write(tmp_path / "set", {"a": "2 0.5 0.5 0.5 0.5"}, train="list.txt")
    (file.parent / "list.txt").write_text(f"images/train/a.png\n{line}\n")
    with pytest.raises(LoaderError, match="leads out of"):
        Yolo(file)
    assert len(Yolo(file, allow_outside=True)) == 2
    file = write(tmp_path / "set", {}, train="[images/train, /etc]")
    with pytest.raises(LoaderError, match="leads out of"):
        Yolo(file)


# 10^9 lists in some hundred bytes: to represent them would have no end.
BOMB = "\n".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10) if i else 'a'}]" for i in range(10))
BOMBED = [f"BOMB\n{key}: *x9\n{NAMES}" for key in ("train", "path", "nc", "names", "val")] + ["BOMB", "BOMB\n- a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: images/train\n", r"names must be a list.*not None"),
        (f"train: images/train\nnc: 2\n{NAMES}", r"nc is '2', but names has 3 entries"),
        (f"train: images/train\nnc: [3]\n{NAMES}", r"nc is \['3'\], but names has 3 entries"),
        (f"train: images/train\npath: [a]\n{NAMES}", r"path must be a folder, not \['a'\]"),
        ("train: images/train\nnames: {1: cat}\n", "names must be a list of class names, or a dict from 0, 1"),
        ("train: images/train\nnames: {00: cat}\n", "names must be a list of class names, or a dict from 0, 1"),
        ("train: images/train\nnames: [cat, ~]\n", r"names must be a list of class names.*\['cat', None\]"),
        ("train: images/train\nnames: [cat, '']\n", "names must be a list of class names"),
        ("train: images/train\nnames: [[cat]]\n", "names must be a list of class names"),
        (f"val: images/val\n{NAMES}", r"split must be one of its \['val'\].*not 'train'"),
        (f"train: [[a]]\n{NAMES}", "split must be one of its"),
        (f"train: null\n{NAMES}", "split must be one of its"),
        (f"train: missing\n{NAMES}", "is neither a folder of images nor a .txt list"),
        ("- a\n", "must hold train:, val: and names:"),
        ("a: [\n", "is not YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "is not YAML"),
        ("[" * 100_000, "is not YAML.*nested deeper than 20 levels"),
        ("? " * 100_000, "is not YAML.*nested deeper than 20 levels"),
        ("a: 1\nb: {c: 2, c: 3}\n", "is not YAML.*the key 'c' occurs twice"),
        ("? [a]\n: b\n", "is not YAML.*unhashable"),
        ("--- a\n--- b\n", "is not YAML.*several documents"),
        ("", "must hold train:, val: and names:, not None"),
        ("a: " + "b" * (1 << 20), "the file has 1,048,579 bytes, above the limit"),
        ('a: "\\UFFFFFFFF"\n', "is not YAML"),
        ("a: !!int ''\n", "is not YAML.*line 1 has an alias .* or a tag"),
        ("a: !!bool x\n", "is not YAML.*line 1 has an alias .* or a tag"),
        ("a: !!timestamp x\n", "is not YAML.*line 1 has an alias .* or a tag"),
        (f"%TAG ! {'x' * 400_000}\n--- [{'!a x,' * 100_000}]\n", "is not YAML.*line 2 has an alias .* or a tag"),
        *((form.replace("BOMB", BOMB), "is not YAML.*line 2 has an alias") for form in BOMBED),
        (f"train: images/empty\n{NAMES}", "has no images"),
        (f"train: images/unlabeled\n{NAMES}", r"none of the 1 images has a label file, such as '.*labels/unl.*Files"),
    ],
)
def test_data_yaml_that_says_too_little(tmp_path, text, message):
    file = write(tmp_path, {"a": "0 0.5 0.5 0.5 0.5"})
    (tmp_path / "images" / "empty").mkdir()
    (tmp_path / "images" / "unlabeled").mkdir()
    Image.new("RGB", (W, H)).save(tmp_path / "images" / "unlabeled" / "a.png")
    file.write_text(text)
    with pytest.raises(LoaderError, match=message):
        Yolo(file)


def test_a_loader_opens_data_yaml_and_its_folder(tmp_path):
    file = write(tmp_path, {"a": "0 0.5 0.5 0.5 0.5"})
    for files in (file, str(tmp_path)):
        source = sources.open_source(files)
        assert isinstance(source, Yolo) and source.path(0) == os.path.join(tmp_path, "images/train/a.png")


def test_without_pyyaml_the_error_names_the_extra(tmp_path, monkeypatch):
    file = write(tmp_path, {"a": "0 0.5 0.5 0.5 0.5"})
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(LoaderError, match=r"data.yaml needs yaml .*: pip install .*\[yolo\]"):
        Yolo(file)


def test_names_are_the_text_that_the_file_has(tmp_path):
    file = write(tmp_path, {"a": "0 0.5 0.5 0.5 0.5"})
    digits = "9" * 5000
    file.write_text(f"train: images/train\nother: 1:2:3\nnames: [no, 1.10, 007, 2024-01-01, 1:30, {digits}, 'null']\n")
    assert Yolo(file).classes == ["no", "1.10", "007", "2024-01-01", "1:30", digits, "null"]


def test_unmatched_names_are_counted(tmp_path, caplog):
    label = "0 0.5 0.5 0.5 0.5"
    file = write(tmp_path, {"é0": label, "é1": None, "é2": None, "é3": None, "é4": None})
    labels = tmp_path / "labels" / "train"
    for name in ("%C3%A91.txt", unicodedata.normalize("NFD", "é2.txt"), "é3.TXT", "classes.txt", "notes.md"):
        (labels / name).write_text(label)
    source = Yolo(file)
    assert [len(source.label(i)["boxes"]) for i in range(5)] == [1, 0, 0, 0, 0]
    unlabeled, unused = (record.getMessage() for record in caplog.records)
    assert "4 of 5 images have no label file, so they have no objects, the first" in unlabeled and "é1.png" in unlabeled
    assert "3 label file(s) match no image, the first" in unused and "%C3%A91.txt" in unused


def test_labels_that_a_list_leaves_out_are_no_fault(tmp_path, caplog):
    file = write(tmp_path, {"a": "0 0.5 0.5 0.5 0.5", "b": "0 0.5 0.5 0.5 0.5"}, train="list.txt")
    (tmp_path / "list.txt").write_text("images/train/b.png\n")
    assert len(Yolo(file)) == 1 and not caplog.records
    beside = tmp_path / "beside"
    write(beside, {"a": "0 0.5 0.5 0.5 0.5"}, images="train")
    (beside / "train" / "classes.txt").write_text("cat\n")
    (beside / "data.yaml").unlink()
    assert len(Yolo(beside)) == 1 and not caplog.records


@pytest.mark.parametrize("size", [900_000_000, _MAX_LABEL_BYTES + 1])
def test_a_label_file_above_the_limit_is_not_read(tmp_path, size):
    source = Yolo(write(tmp_path, {"a": "", "b": ""}))
    with open(tmp_path / "labels" / "train" / "a.txt", "wb") as file:
        file.truncate(size)
    with pytest.raises(DecodeError, match=f"the file has {size:,} bytes, above the limit"):
        source.label(0)
    assert len(source.fingerprint()) > 10


@pytest.mark.parametrize("text", ["\n" * 2**17, "1 " * 2**16, "\0" * 2**17, "0 1 1 1 1 " * 2**13])
def test_a_label_file_takes_little_more_memory_than_its_bytes(tmp_path, text):
    source = Yolo(write(tmp_path, {"a": text}))
    is_malformed = bool(text.strip())
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="line 1: expected five numbers") if is_malformed else nullcontext():
            source.label(0)
        assert tracemalloc.get_traced_memory()[1] < 7 * 2**17
    finally:
        tracemalloc.stop()


def test_the_fingerprint_depends_on_the_class_names(tmp_path):
    file = write(tmp_path, {"a": "0 0.5 0.5 0.5 0.5"})
    prints = []
    for names in (NAMES, "names: {0: cat, 1: dog, 2: bird}\n", "names: [cat, bird, dog]\n"):
        file.write_text(f"train: images/train\n{names}")
        prints.append(Yolo(file).fingerprint())
    assert prints[0] == prints[1] != prints[2]
