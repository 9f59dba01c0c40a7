"""`cuaug index`: the JPEG index is complete before the first epoch."""

from __future__ import annotations

import pytest

from cuaug import Loader
from cuaug import transforms as T
from cuaug.commands.cli import main
from tests.support.codec.jpeg_crops import jpeg
from tests.support.loader.further_pictures import png
from tests.support.sources.writers import write_tar

pytestmark = pytest.mark.cpu_only

NAME = ".jpegs.cuaug-index"
FILES = [jpeg(240 + i, 320, quality=98, orientation=i % 8 + 1) for i in range(9)]


@pytest.fixture
def folder(tmp_path):
    for i, data in enumerate(FILES):
        path = tmp_path / "photos" / "ab"[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (path.parent / "x.png").write_bytes(png(0))
    return tmp_path / "photos"


def test_a_folder(folder, capsys):
    for added in (9, 0):
        assert main(["index", str(folder), "--threads", "2"]) == 0
        said, size = capsys.readouterr(), (folder / NAME).stat().st_size
        assert said.err == ""
        outcome = f"{added} of 10 samples added, 0 unreadable; 9 files in {size / 1e6:.1f} MB"
        assert said.out == f"{folder / NAME}: {outcome}\n"
    with Loader(folder, T.CenterCrop(200), batch_size=4) as loader:
        list(loader)
        assert loader.stats().parts == 9 and loader._pipeline.index.stats().made == 0


def test_tars(tmp_path, capsys):
    for shard in range(2):
        pairs = [(i, name) for i in range(4) for name in ("jpg", "cls")]
        members = [(f"{i}.{name}", FILES[4 * shard + i] if name == "jpg" else b"0") for i, name in pairs]
        write_tar(tmp_path / f"{shard}.tar", members)
    assert main(["index", str(tmp_path / "*.tar")]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / NAME}: 8 of 8 samples added, 0 unreadable; 8 files")


def test_damaged_and_unreadable_files(folder, capsys):
    (folder / "a" / "0.jpg").write_bytes(b"nothing")
    (folder / "b" / "1.jpg").write_bytes(FILES[1][:3000])  # the loader reports it
    assert main(["index", str(folder)]) == 1
    said = capsys.readouterr()
    assert "7 of 10 samples added, 1 unreadable; 7 files" in said.out
    assert said.err.startswith("cuaug index: sample 0 cannot be read: ")


def test_an_index_that_is_full(folder, capsys):
    assert main(["index", str(folder), "--index-bytes", "4000"]) == 1
    assert f"{folder / NAME} takes no more files: --index-bytes raises its limit" in capsys.readouterr().err
    assert main(["index", str(folder)]) == 0


def test_a_missing_folder(tmp_path, capsys):
    assert main(["index", str(tmp_path / "missing")]) == 1
    assert capsys.readouterr().err.startswith("cuaug index: ")
