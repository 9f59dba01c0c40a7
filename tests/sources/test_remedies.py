"""Data that a first program gives in another form: the error names the remedy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import Loader, LoaderError, TransformError, sources
from cuaug.errors import CuaugError


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """The working folder: photos/, videos/ and tables/."""
    monkeypatch.chdir(tmp_path)
    for folder in ("photos", "videos/jump", "tables"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("a", "b"):
        Image.new("RGB", (8, 6)).save(f"photos/{name}.jpg")
        Path(f"videos/jump/{name}.mp4").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    "files",
    [
        "videos",
        "videos/jump",
        "videos/jump/a.mp4",
        "videos/jump/*.mp4",
        ["videos/jump/a.mp4"],
        [("videos/jump/a.mp4", 1)],
        {Path("videos/jump/a.mp4"): 1},
    ],
    ids=str,
)
def test_videos_name_their_source(here, files):
    with pytest.raises(LoaderError, match=r"cuaug\.sources\.Videos\("):
        Loader(files)


def test_other_files_without_images_are_no_videos(here):
    with pytest.raises(LoaderError) as caught:
        Loader("tables")
    assert "Videos" not in str(caught.value)


@pytest.mark.parametrize("name", ["list.txt", "table.csv"])
def test_paths_relative_to_the_working_folder_name_root(here, name):
    header = "path,label\n" if name == "table.csv" else ""
    Path("tables", name).write_text(header + "".join(f"photos/{n}.jpg{', '[not header]}1\n" for n in "ab"))
    message = re.escape(f"'tables/{name}': 'tables/' has no 'photos/a.jpg'") + r".*root='\.'"
    with pytest.raises(LoaderError, match=message):
        Loader(f"tables/{name}")
    source = sources.Csv if header else sources.ListFile
    assert len(Loader(source(f"tables/{name}", root="."))) == 2
    Path("tables/photos").symlink_to(here / "photos")  # the list's own folder has them, too
    assert len(Loader(f"tables/{name}")) == 2


@pytest.mark.parametrize("labels", [["cat", "cat", " "], ["", "", ""]], ids=["classes", "all"])
def test_a_blank_label_is_refused(here, labels):
    blank = next(i for i, label in enumerate(labels) if not label.strip())
    rows = "".join(f"photos/a.jpg,{label}\n" for label in labels)
    Path("tables/t.csv").write_text(f"path,label\n{rows}")
    where = re.escape(f"'tables/t.csv' line {blank + 2}, column 'label'")
    with pytest.raises(LoaderError, match=f"^{where}: the label is blank: fill it in"):
        sources.Csv("tables/t.csv", root=".")
    with pytest.raises(LoaderError, match=f"labels: entry {blank}: the label is blank"):
        sources.Files(["a.jpg"] * 3, labels)
    with pytest.raises(LoaderError, match=f"entry {blank}: the label is blank"):
        sources.DataFrame(pandas.DataFrame({"path": ["a.jpg"] * 3, "label": labels}))


@pytest.mark.parametrize(
    "path", ["~/none", "~/none/a.jpg", "~/none/*.jpg", "~/none.csv", "~/none.json", "~somebody/none"]
)
def test_a_tilde_names_expanduser(path):
    remedy = re.escape(f"only shells expand '~': give os.path.expanduser({path!r})")
    with pytest.raises((LoaderError, OSError), match=remedy):
        list(Loader(path))
    if path.endswith(".jpg") and "*" not in path:
        for load in (lambda: list(Loader([path], device="cpu")), lambda: cuaug.decode(path, device="cpu")):
            with pytest.raises(CuaugError, match=remedy):
                load()


@pytest.mark.parametrize(
    "labels", [[0, 1], ["cat", "dog"], np.arange(2), torch.arange(2)], ids=lambda x: type(x).__name__
)
def test_two_lists_of_paths_and_labels(here, labels):
    paths = ["photos/a.jpg", "photos/b.jpg"]
    with pytest.raises(TransformError, match=r"Loader\(list\(zip\(paths, labels\)\)\)"):
        Loader(paths, labels)
    with pytest.raises(LoaderError, match=r"list\(zip\(paths, labels\)\)"):
        Loader([[*paths, "photos/a.jpg"], labels])
    assert len(Loader(list(zip(paths, labels, strict=True)))) == 2
