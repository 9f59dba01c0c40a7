"""A directory with a folder per class: links, unreadable folders, and file extensions of images."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cuaug import Loader, LoaderError
from cuaug.sources import Files
from tests.support.sources.loading import load
from tests.support.sources.writers import write_pngs


@pytest.fixture
def tree(tmp_path) -> Path:
    write_pngs(tmp_path / "tree", "ant/1.png", "ant/deep/2.png", "bee/3.png")
    return tmp_path / "tree"


def names(tree: Path) -> list[str]:
    source = Files.from_directory(tree)
    return [os.path.relpath(path, tree) for path in source.paths]


def test_paths_are_sorted_and_hidden_folders_count(tmp_path):
    """The docstring names the difference to torchvision."""
    write_pngs(tmp_path, "c/b.jpg", "c/a/x.jpg", "c/a.jpg", "c/.hidden/y.jpg", "c/z.GIF", "c/notes.txt")
    assert names(tmp_path) == ["c/.hidden/y.jpg", "c/a.jpg", "c/a/x.jpg", "c/b.jpg", "c/z.GIF"]


def test_links_to_other_folders_are_followed(tree):
    (tree / "ant" / "more").symlink_to(tree / "bee")
    (tree / "cat").symlink_to(tree / "ant" / "deep")
    (tree / "bee" / "4.png").symlink_to("3.png")
    found = ["ant/1.png", "ant/deep/2.png", "ant/more/3.png", "ant/more/4.png", "bee/3.png", "bee/4.png", "cat/2.png"]
    assert names(tree) == found


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
    assert load(tree, on_error="skip").labels.tolist() == [0, 0, 1]


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


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        (("train", "val"), "give one of them, such as .*train'"),
        (("train", "validation"), r"if they are classes, .*classes=\['train', 'validation'\]"),
        (("images", "masks"), r"cuaug.sources.Pairs\(images, masks\)"),
        (("train", "boat"), ""),
        (("images", "boat"), ""),
        (("train",), ""),
    ],
)
def test_folders_that_are_no_classes_are_refused(tmp_path, caplog, names, remedy):
    write_pngs(tmp_path, *(f"{name}/x/0.jpg" for name in names))
    if remedy:
        with pytest.raises(LoaderError, match=remedy):
            Files.from_directory(tmp_path)
    assert Files.from_directory(tmp_path, classes=names if remedy else None).classes == sorted(names)
    assert not caplog.text


# --- classes of several folders ---------------------------------------------------------------------------------------


@pytest.fixture
def splits(tmp_path) -> Path:
    """train/ with ant, bee, cat; val/ without bee."""
    write_pngs(tmp_path, "train/ant/0.png", "train/bee/1.png", "train/cat/2.png", "val/ant/0.png", "val/cat/2.png")
    return tmp_path


@pytest.mark.parametrize(("full", "part"), [("fold_1", "fold_2"), ("train", "mine"), ("val", "train")])
def test_a_missing_class_is_warned_of_whatever_the_folders_are_called(splits, caplog, full, part):
    root = splits / "data"
    root.mkdir()
    (splits / "train").rename(root / full)
    (splits / "val").rename(root / part)
    Loader(root / full)
    assert not caplog.records or full == "val"  # where train/ and val/ differ, both are told
    caplog.clear()
    Loader(root / part)
    assert f"{str(root / full)!r} and {str(root / part)!r} have different class folders ('bee')" in caplog.text
    assert "Files.from_directory" in caplog.text and "classes=train.classes" in caplog.text
    caplog.clear()
    Files.from_directory(root / part, classes=["ant", "bee", "cat"])
    assert not caplog.records


def test_equal_classes_and_train_itself_are_not_warned_of(splits, caplog):
    Loader(splits / "train")
    write_pngs(splits, "val/bee/1.png")
    Loader(splits / "val")
    write_pngs(splits, "train/bee/5.png", "photos/one/5.png")
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
    assert load(val).labels.tolist() == [0, 2]
    assert Files.from_directory(splits / "train", classes=["cat", "bee", "ant"]).labels[0] == 0
    assert not caplog.records


def test_classes_must_name_all_folders(splits):
    with pytest.raises(LoaderError, match=r"classes must name all class folders of .*train'; it lacks \['bee'\]"):
        Files.from_directory(splits / "train", classes=["ant", "cat"])
