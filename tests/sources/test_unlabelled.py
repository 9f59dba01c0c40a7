"""Images without class folders: a flat directory, a pattern; and files that are left out."""

from __future__ import annotations

import os

import pytest
from PIL import Image

from cuaug import Loader, LoaderError
from cuaug.codec.formats.pillow import FORMATS
from cuaug.sources import Files, Pairs, PascalVoc, Yolo, open_source
from cuaug.sources.files import EXTENSIONS
from tests.support.sources.loading import load_numbers
from tests.support.sources.writers import write_pngs


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
