"""Directories of images, with a folder per class or without: links, unreadable folders, and files left out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from cuaug import Loader, LoaderError
from cuaug.codec.formats.pillow import FORMATS
from cuaug.sources import Files, Pairs, PascalVoc, Yolo, open_source
from cuaug.sources.files import EXTENSIONS
from tests.support.sources.loading import load, load_numbers
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


def test_a_directory_of_images_without_class_folders(tmp_path, caplog):
    write_pngs(tmp_path, "10.png", "2.png", "7.PNG", "1.png", ".DS_Store")
    source = open_source(tmp_path)
    assert type(source) is Files and source.classes is None
    assert [os.path.basename(path) for path in source.paths] == ["1.png", "10.png", "2.png", "7.PNG"]
    assert load_numbers(tmp_path) == load_numbers(sorted(source.paths)) == ([1, 10, 2, 7], [0, 1, 2, 3])
    assert not caplog.records


def test_files_that_are_left_out_are_logged(tmp_path, caplog):
    write_pngs(tmp_path, "flat/1.png", "flat/notes.txt", "tree/cat/1.png", "tree/2.png", "tree/a.csv", "tree/.hidden")
    write_pngs(tmp_path, "tree/cat/b/x.heic", "tree/cat/z.txt", "tree/dog/2.png", "tree/dog/.x", "tree/dog/Thumbs.db")
    assert len(open_source(tmp_path / "flat")) == 1
    assert len(open_source(tmp_path / "tree")) == 2
    flat, tree, below = (record.getMessage() for record in caplog.records)
    folder = str(tmp_path / "tree")
    assert flat == f"{str(tmp_path / 'flat')!r}: 1 file(s) beside the images are not loaded, the first 'notes.txt'"
    assert tree == f"{folder!r}: 2 file(s) beside the class folders are not loaded, the first '2.png'"
    lost = "3 file(s) beside the images of its class folders are not loaded, the first 'cat/b/x.heic'"
    assert below == f"{folder!r}: {lost}"


def test_files_beside_images_with_labels_are_logged(tmp_path, caplog):
    write_pngs(tmp_path, "images/1.png", "images/1.heic", "images/.hidden", "masks/1.png", "masks/1.npy")
    Pairs(tmp_path / "images", tmp_path / "masks")
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "1 file(s) beside the images are not loaded, the first '1.heic'",
        "1 file(s) beside the images are not loaded, the first '1.npy'",
    ]
    caplog.clear()
    write_pngs(tmp_path, "boxes/a/1.png", "boxes/a/1.txt", "boxes/a/1.xml", "boxes/a/1.heic")
    Yolo(tmp_path / "boxes", None)
    PascalVoc(tmp_path, None, images="boxes/a", annotations="boxes/a", classes=["cat"])
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "2 file(s) beside the images are not loaded, the first 'a/1.heic'",
        "2 file(s) beside the images are not loaded, the first '1.heic'",
        "2 file(s) beside the .xml files are not loaded, the first '1.heic'",
    ]


def test_folders_show_every_ending_that_decodes(tmp_path):
    """A list loads a file whatever its ending; a folder must not lose it."""
    Image.init()
    endings = {ending for ending, name in Image.registered_extensions().items() if name in FORMATS}
    assert endings <= set(EXTENSIONS)
    write_pngs(tmp_path, *(f"images/a{ending}" for ending in (".jpe", ".mpo", ".dib", ".j2c", ".pbm")))
    assert len(open_source(tmp_path / "images")) == 5


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("*.png", [1, 2]),
        ("?.png", [1, 2]),
        ("[2-9].png", [2]),
        ("**/*.png", [1, 2, 3, 4]),
        ("a/*/*.png", [4]),
        ("a/**", [3, 4]),
    ],
)
def test_patterns(tmp_path, monkeypatch, pattern, numbers):
    write_pngs(tmp_path, "1.png", "2.png", "a/3.png", "a/b/4.png")
    assert load_numbers(tmp_path / pattern) == (numbers, list(range(len(numbers))))
    monkeypatch.chdir(tmp_path)
    assert load_numbers(pattern)[0] == numbers


def test_a_file_whose_name_looks_like_a_pattern(tmp_path):
    write_pngs(tmp_path, "a[1]/cat/1.png")
    assert load_numbers(tmp_path / "a[1]") == ([1], [0])


def test_a_pattern_without_files(tmp_path):
    with pytest.raises(LoaderError, match=r"no file matches '.*\*\.png': a relative pattern starts at '/"):
        Loader(tmp_path / "*.png")


@pytest.mark.parametrize("name", ["a.tar.gz", "a.TGZ", "a.tar.zst", "a.zip", "a.7z"])
def test_packed_files_are_refused_with_a_remedy(tmp_path, name):
    (tmp_path / name).touch()
    for files in (tmp_path / name, [tmp_path / name], str(tmp_path / f"*{name[1:]}")):
        with pytest.raises(LoaderError, match=r"^files: .* is packed, .*: (gunzip it to a \.tar|decompress|unpack) ?"):
            Loader(files)
