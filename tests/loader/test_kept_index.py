"""The JPEG index that is kept beside a data set: later runs and other ranks decode crops from the first epoch on."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from cuaug import DecodeOptions, Loader
from cuaug import transforms as T
from cuaug._runtime.disk import Directory
from tests.loader.test_cache import assert_equal, epochs
from tests.loader.test_index import jpegs
from tests.support.codec.jpeg_crops import jpeg
from tests.support.loader.further_pictures import Bytes, png
from tests.support.sources.writers import write_tar

pytestmark = pytest.mark.cpu_only

NAME = ".jpegs.cuaug-index"
CHAIN = [T.RandomResizedCrop(64, scale=(0.1, 0.5)), T.RandomHorizontalFlip()]
NO_INDEX = DecodeOptions(index_bytes=0)
FILES = jpegs()
COUNT = len(FILES)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two classes of images."""
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "cache"))
    for i, data in enumerate(FILES):
        path = tmp_path / "photos" / "ab"[i % 2] / f"{i:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "photos"


def load(source, *, count: int = 1, **options):
    """The epochs of a new loader, and what its index did."""
    with Loader(source, CHAIN, batch_size=4, shuffle=True, threads=3, seed=0, **options) as loader:
        batches, index = epochs(loader, count), loader._pipeline.index
        return batches, loader.stats().parts, None if index is None else index.stats().made


def test_the_second_run_crops_from_the_first_epoch_on(folder, caplog):
    caplog.set_level("INFO", "cuaug")
    want, _, _ = load(folder, count=2, decode=NO_INDEX)
    assert not (folder / NAME).exists()
    first, parts, made = load(folder, count=2)
    assert (parts, made) == (2 * COUNT, COUNT)
    size = (folder / NAME).stat().st_size
    second, parts, made = load(folder, count=2)
    assert (parts, made) == (2 * COUNT, 0) and (folder / NAME).stat().st_size == size
    assert_equal(first, want), assert_equal(second, want)
    assert caplog.text.count(f"the JPEG index of {folder} is {folder / NAME}") == 2
    assert stat.S_IMODE((folder / NAME).stat().st_mode) & 0o022 == 0


def test_ranks_share_it(folder):
    """Each of four ranks sees a quarter of the set; the next epoch deals the files anew."""
    made, loaders = 0, []
    for rank in range(4):
        options = {"batch_size": 1, "shuffle": True, "threads": 1, "seed": 0, "rank": rank, "world_size": 4}
        loaders.append(Loader(folder, CHAIN, **options))
    for _ in range(3):
        for loader in loaders:
            list(loader)
    made = [loader._pipeline.index.stats().made for loader in loaders]
    assert sum(made) == COUNT and all(loader.stats().parts == 3 * COUNT // 4 for loader in loaders)
    for loader in loaders:
        loader.close()


def test_a_replaced_file_is_another_one(folder):
    load(folder)
    path = folder / "a" / "00.jpg"
    path.write_bytes(jpeg(240, 320, quality=97))
    want, _, _ = load(folder, decode=NO_INDEX)
    for expected_made in (1, 0):
        found, _, made = load(folder)
        assert_equal(found, want)
        assert made == expected_made


@pytest.mark.parametrize("damage", ["middle", "end", "foreign"])
def test_a_damaged_index_is_reported_once(folder, damage, caplog):
    want, _, _ = load(folder)
    data = bytearray((folder / NAME).read_bytes())
    if damage == "middle":
        data[5000:5010] = bytes(10)
    data = {"middle": data, "end": data[:-77], "foreign": b"a file of others"}[damage]
    (folder / NAME).write_bytes(data)
    found, _, made = load(folder, count=2)
    assert_equal(found[:1], want)
    assert 0 < made <= COUNT and caplog.text.count(str(folder / NAME)) == 1
    assert load(folder)[2] == 0


def test_no_place_beside_the_images(folder, monkeypatch, tmp_path):
    """It then lies in the cache directory; without that, in memory."""
    opened = Directory.open

    def open_elsewhere(self, name, flags, **options):
        if flags & os.O_CREAT and str(self.path) in refused:
            raise OSError(errno.EROFS, "Read-only file system", name)
        return opened(self, name, flags, **options)

    monkeypatch.setattr(Directory, "open", open_elsewhere)
    refused = [str(folder)]
    for expected_made in (COUNT, 0):
        assert load(folder)[1:] == (COUNT, expected_made)
    assert not (folder / NAME).exists() and len(list((tmp_path / "cache" / "indexes").iterdir())) == 1
    refused.append(str(tmp_path / "cache" / "indexes"))
    for _ in range(2):
        assert load(folder)[1:] == (COUNT, COUNT)


def test_an_index_that_others_can_write_is_ignored(folder, caplog):
    load(folder)
    (folder / NAME).chmod(0o666)
    for expected_made in (COUNT, 0):
        assert load(folder)[1:] == (COUNT, expected_made)
    assert "can be written by other users" in caplog.text


def test_a_hard_link_to_another_file_is_not_overwritten(folder, tmp_path, caplog):
    (tmp_path / "mine").write_bytes(b"a file of the user's")
    (tmp_path / "mine").chmod(0o644)
    (folder / NAME).hardlink_to(tmp_path / "mine")
    for expected_made in (COUNT, 0):
        assert load(folder)[1:] == (COUNT, expected_made)
    assert (tmp_path / "mine").read_bytes() == b"a file of the user's" and "has 2 hard links" in caplog.text


def test_sources_without_paths_have_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert load(Bytes(*FILES))[1:] == (COUNT, COUNT)
    assert not list(tmp_path.iterdir())


def test_no_file_without_jpegs_to_crop(tmp_path):
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(png(i, 240, 320))
    load(tmp_path)
    assert not (tmp_path / NAME).exists()


def test_shards_share_the_index_of_their_folder(tmp_path):
    for shard in range(3):
        pairs = [(i, name) for i in range(4) for name in ("jpg", "cls")]
        members = [(f"x/{i}.{name}", FILES[4 * shard + i] if name == "jpg" else b"0") for i, name in pairs]
        write_tar(tmp_path / f"{shard}.tar", members)
    for source, expected in ((str(tmp_path / "*.tar"), 12), (str(tmp_path / "1.tar"), 0)):
        assert load(source)[2] == expected
    assert (tmp_path / NAME).exists()


def test_patterns_and_folders_do_not_list_it(folder):
    load(folder / "a")
    assert (folder / "a" / NAME).exists()
    assert len(load(str(folder / "a" / "*"))[0][0]) == len(load(folder / "a")[0][0])
