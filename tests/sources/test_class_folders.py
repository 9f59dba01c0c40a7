"""A directory with a folder per class: links, folders that cannot be listed, and what counts as a picture."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from cuaug import Loader, LoaderError
from cuaug.sources import Files
from tests.loader.pictures import color_of, png


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


def test_the_order_is_that_of_whole_paths_and_hidden_folders_count(tmp_path):
    """Not torchvision's, which the docstring says."""
    for name in ("c/b.jpg", "c/a/x.jpg", "c/a.jpg", "c/.hidden/y.jpg", "c/z.GIF", "c/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert names(tmp_path) == ["c/.hidden/y.jpg", "c/a.jpg", "c/a/x.jpg", "c/b.jpg", "c/z.GIF"]


def test_links_to_folders_elsewhere(tree):
    (tree / "ant" / "more").symlink_to(tree / "bee")
    (tree / "cat").symlink_to(tree / "ant" / "deep")
    (tree / "bee" / "4.png").symlink_to("3.png")
    assert names(tree) == [
        *("ant/1.png", "ant/deep/2.png", "ant/more/3.png", "ant/more/4.png", "bee/3.png", "bee/4.png", "cat/2.png")
    ]


@pytest.mark.parametrize("link, to", [("ant/up", ".."), ("ant/deep/here", "."), ("ant/deep/up", ".."), ("cat", ".")])
def test_a_link_to_a_folder_around_it_is_refused(tree, link, to):
    (tree / link).symlink_to(to)
    with pytest.raises(LoaderError, match=f"'{tree / link}' is a link to a folder that it lies in"):
        Files.from_directory(tree)


@pytest.mark.parametrize("to", ["self.png", "1.png/below", "n" * 300], ids=["itself", "in a file", "too long"])
def test_a_link_to_nothing_is_a_file_that_cannot_be_read(tree, to):
    """Or nothing at all, where its name is no picture's."""
    for link in ("self", "ant/self", "ant/self.png"):
        (tree / link).symlink_to(to if link.endswith("png") else to.replace("self.png", "self"))
    assert names(tree) == ["ant/1.png", "ant/deep/2.png", "ant/self.png", "bee/3.png"]
    with Loader(tree, batch_size=4, on_error="skip") as loader:
        assert [labels.tolist() for _, labels in loader] == [[0, 0, 1]]


def test_a_link_that_cannot_be_followed(tree, monkeypatch):
    """To a folder, perhaps, whose pictures would be left out."""

    class Entry:
        path, name = f"{tree}/ant/more", "more"

        def is_dir(self) -> bool:
            raise PermissionError(13, "Permission denied", self.path)

    listed = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: contextlib.nullcontext([*listed(path), Entry()]))
    with pytest.raises(LoaderError, match=f"cannot list '{tree}': .*Permission denied: '{tree}/ant/more'"):
        Files.from_directory(tree)


def test_folders_deeper_than_calls_may_be(tree):
    here = os.open(tree / "bee", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("4.png", os.O_CREAT, dir_fd=here))
    os.close(here)
    try:
        found = names(tree)
    finally:  # it is too deep for shutil, which clears up behind tests
        subprocess.run(["rm", "-r", tree / "bee" / "d"], check=True)
    assert found == ["ant/1.png", "ant/deep/2.png", "bee/3.png", f"bee/{'d/' * 1500}4.png"]


@pytest.mark.parametrize("folder", ["", "ant", "ant/deep"])
def test_a_folder_that_cannot_be_listed(tree, monkeypatch, folder):
    """It holds pictures that would be left out."""
    listed = os.scandir

    def scandir(path):
        if Path(path) == tree / folder:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(LoaderError, match=f"cannot list '{tree / folder}': .*Permission denied"):
        Files.from_directory(tree)


@pytest.mark.parametrize("ending", ["jfif", "gif", "PPM", "pgm", "pnm", "avif"])
def test_what_pillow_reads_counts(tmp_path, ending):
    form = {"jfif": "JPEG", "gif": "GIF", "avif": "AVIF"}.get(ending, "PPM")
    (tmp_path / "ant").mkdir()
    try:
        Image.new("RGB", (5, 4), color_of(100)).save(tmp_path / "ant" / f"1.{ending}", form)
    except KeyError:
        pytest.skip("this Pillow is older than its AVIF")
    with Loader(tmp_path) as loader:
        ((images, _),) = loader
    assert abs(int(images[0, 0, 2, 2]) - 100) < 5
