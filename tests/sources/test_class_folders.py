"""A directory with a folder per class: links, unreadable folders, and file extensions of images."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from cuaug import Loader, LoaderError
from cuaug.sources import Files
from tests.support.loader.further_pictures import color_of, png


@pytest.fixture
def tree(tmp_path) -> Path:
    for name in ("ant/1.png", "ant/deep/2.png", "bee/3.png"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(int(path.stem)))
    return tmp_path / "tree"


def names(tree: Path) -> list[str]:
    source = Files.from_directory(tree)
    return [os.path.relpath(path, tree) for path in source.paths]


def test_paths_are_sorted_and_hidden_folders_count(tmp_path):
    """The docstring names the difference to torchvision."""
    for name in ("c/b.jpg", "c/a/x.jpg", "c/a.jpg", "c/.hidden/y.jpg", "c/z.GIF", "c/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert names(tmp_path) == ["c/.hidden/y.jpg", "c/a.jpg", "c/a/x.jpg", "c/b.jpg", "c/z.GIF"]


def test_links_to_other_folders_are_followed(tree):
    (tree / "ant" / "more").symlink_to(tree / "bee")
    (tree / "cat").symlink_to(tree / "ant" / "deep")
    (tree / "bee" / "4.png").symlink_to("3.png")
    assert names(tree) == [
        *("ant/1.png", "ant/deep/2.png", "ant/more/3.png", "ant/more/4.png", "bee/3.png", "bee/4.png", "cat/2.png")
    ]


@pytest.mark.parametrize("link, to", [("ant/up", ".."), ("ant/deep/here", "."), ("ant/deep/up", ".."), ("cat", ".")])
def test_a_link_to_an_ancestor_is_refused(tree, link, to):
    (tree / link).symlink_to(to)
    with pytest.raises(LoaderError, match=f"'{tree / link}' is a link to a folder that contains it"):
        Files.from_directory(tree)


@pytest.mark.parametrize("to", ["self.png", "1.png/below", "n" * 300], ids=["itself", "in a file", "too long"])
def test_a_broken_link_is_an_unreadable_file(tree, to):
    """Without an image extension it is ignored."""
    for link in ("self", "ant/self", "ant/self.png"):
        (tree / link).symlink_to(to if link.endswith("png") else to.replace("self.png", "self"))
    assert names(tree) == ["ant/1.png", "ant/deep/2.png", "ant/self.png", "bee/3.png"]
    with Loader(tree, batch_size=4, on_error="skip") as loader:
        assert [labels.tolist() for _, labels in loader] == [[0, 0, 1]]


def test_a_link_without_permission_is_refused(tree, monkeypatch):
    """It may lead to a folder whose images would be missing."""

    class Entry:
        path, name = f"{tree}/ant/more", "more"

        def is_dir(self) -> bool:
            raise PermissionError(13, "Permission denied", self.path)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: contextlib.nullcontext([*scandir(path), Entry()]))
    with pytest.raises(LoaderError, match=f"cannot list '{tree}': .*Permission denied: '{tree}/ant/more'"):
        Files.from_directory(tree)


def test_folders_deeper_than_the_recursion_limit(tree):
    here = os.open(tree / "bee", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        subfolder = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = subfolder
    os.close(os.open("4.png", os.O_CREAT, dir_fd=here))
    os.close(here)
    try:
        found = names(tree)
    finally:  # too deep for shutil, which cleans up after tests
        subprocess.run(["rm", "-r", tree / "bee" / "d"], check=True)
    assert found == ["ant/1.png", "ant/deep/2.png", "bee/3.png", f"bee/{'d/' * 1500}4.png"]


@pytest.mark.parametrize("folder", ["", "ant", "ant/deep"])
def test_an_unreadable_folder_is_refused(tree, monkeypatch, folder):
    """Its images would be missing."""
    original = os.scandir

    def scandir(path):
        if Path(path) == tree / folder:
            raise PermissionError(13, "Permission denied", str(path))
        return original(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(LoaderError, match=f"cannot list '{tree / folder}': .*Permission denied"):
        Files.from_directory(tree)


@pytest.mark.parametrize("ending", ["jfif", "gif", "PPM", "pgm", "pnm", "avif"])
def test_formats_that_pillow_reads_count(tmp_path, ending):
    image_format = {"jfif": "JPEG", "gif": "GIF", "avif": "AVIF"}.get(ending, "PPM")
    (tmp_path / "ant").mkdir()
    try:
        Image.new("RGB", (5, 4), color_of(100)).save(tmp_path / "ant" / f"1.{ending}", image_format)
    except KeyError:
        pytest.skip("this Pillow has no AVIF")
    with Loader(tmp_path) as loader:
        ((images, _),) = loader
    assert abs(int(images[0, 0, 2, 2]) - 100) < 5


@pytest.mark.parametrize(
    ("names", "warning"),
    [
        (("train", "val"), "for one of them give .*train'"),
        (("images", "masks"), r"cuaug.sources.Pairs\(images, masks\)"),
        (("train", "boat"), ""),
        (("images", "boat"), ""),
        (("train",), ""),
    ],
)
def test_folders_that_are_no_classes_are_warned_of(tmp_path, caplog, names, warning):
    for name in names:
        (tmp_path / name / "x").mkdir(parents=True)
        (tmp_path / name / "x" / "0.jpg").write_bytes(b"")
    assert Files.from_directory(tmp_path).classes == sorted(names)
    text = caplog.text
    assert re.search(warning, text) if warning else not text


# --- classes of several folders ---------------------------------------------------------------------------------------


@pytest.fixture
def splits(tmp_path) -> Path:
    """train/ with ant, bee, cat; val/ without bee."""
    for name in ("train/ant/0.png", "train/bee/1.png", "train/cat/2.png", "val/ant/0.png", "val/cat/2.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(int(path.stem)))
    return tmp_path


def test_a_class_missing_in_val_is_warned_of(splits, caplog):
    assert Loader(splits / "val").source.classes == ["ant", "cat"]
    (record,) = caplog.records
    message = record.getMessage()
    assert f"{str(splits / 'val')!r} have different class folders ('bee')" in message
    assert "Files.from_directory" in message and "classes=[...]" in message


def test_equal_classes_and_train_itself_are_not_warned_of(splits, caplog):
    Loader(splits / "train")
    (splits / "val" / "bee").mkdir()
    (splits / "val" / "bee" / "1.png").write_bytes(png(1))
    Loader(splits / "val")
    (splits / "photos").mkdir()
    for other in ("train/bee", "photos/one"):
        (splits / other).mkdir(exist_ok=True)
        (splits / other / "5.png").write_bytes(png(5))
    Loader(splits / "photos")
    assert not caplog.records


def test_given_classes_number_the_labels(splits, caplog):
    train = Files.from_directory(splits / "train")
    (splits / "val" / "bee").mkdir()  # empty
    for _ in range(2):
        val = Files.from_directory(splits / "val", classes=train.classes)
        assert list(val.labels) == [0, 2] and val.classes == train.classes == ["ant", "bee", "cat"]
        if (splits / "val" / "bee").is_dir():
            (splits / "val" / "bee").rmdir()
    with Loader(val, device="cpu", batch_size=2) as loader:
        assert next(iter(loader)).labels.tolist() == [0, 2]
    assert Files.from_directory(splits / "train", classes=["cat", "bee", "ant"]).labels[0] == 0
    assert not caplog.records


def test_classes_must_name_all_folders(splits):
    with pytest.raises(LoaderError, match=r"classes must name all class folders of .*train'; it lacks \['bee'\]"):
        Files.from_directory(splits / "train", classes=["ant", "cat"])
