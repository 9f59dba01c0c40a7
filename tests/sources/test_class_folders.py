"""A directory with a folder per class: links, folders that cannot be listed, and what counts as a picture."""

from __future__ import annotations

import os
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


@pytest.mark.parametrize("link", ["self", "ant/self"])
def test_a_link_to_itself_is_refused(tree, link):
    (tree / link).symlink_to("self")
    with pytest.raises(LoaderError, match=f"cannot list '{(tree / link).parent}': .*'{tree / link}'"):
        Files.from_directory(tree)


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
