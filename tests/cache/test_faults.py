"""A cache on disk that is damaged, planted, or on a disk that fails: it costs time, and never a wrong pixel."""

from __future__ import annotations

import errno
import os
import random
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import DecodedCache, EncodedCache, Loader, LoaderError
from cuaug import transforms as T
from tests.cache import fuzz_cache
from tests.cache.pictures import ROOT, picture, same
from tests.loader.pictures import write_photos
from tests.support.foreign_files import NOBODY, chown_to_nobody

COUNT = 20
SIZES = [picture(i).nbytes for i in range(COUNT)]
FILES = ("contents.json", "index", "pixels", "lock")


def opened(directory: Path, count: int = COUNT, short_side: int | None = None) -> DecodedCache:
    cache = DecodedCache(short_side, limit_bytes=1 << 24, directory=directory)
    cache.open(count, {"source": "a"})
    return cache


@pytest.fixture
def folder(tmp_path) -> Path:
    """A cache of half of the samples."""
    cache = opened(tmp_path / "cache")
    for i in range(COUNT // 2):
        assert cache.put(i, picture(i)) is not None
    cache.close()
    return tmp_path / "cache"


def change(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def record(height: int, width: int, offset: int) -> bytes:
    return struct.pack("<?3xIIIQ", True, 0, height, width, offset)


# --- once it is open -------------------------------------------------------------------------------------------------

FAULTS = {
    "pixels end within the picture": lambda folder: os.truncate(folder / "pixels", sum(SIZES[:5]) - 1),
    "no pixels": lambda folder: os.truncate(folder / "pixels", 0),
    "the index ends within the record": lambda folder: os.truncate(folder / "index", 4 * 24 + 1),
    "a picture of 2**64 pixels": lambda folder: change(folder / "index", 4 * 24, record(2**32 - 1, 2**32 - 1, 0)),
    "a picture beyond the file": lambda folder: change(folder / "index", 4 * 24, record(1, 1, 2**64 - 4)),
    "a picture without width": lambda folder: change(folder / "index", 4 * 24, record(5, 0, 0)),
}


@pytest.mark.parametrize("seen", [False, True], ids=["not seen", "seen before"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_turns_the_cache_off(folder, fault, seen, caplog):
    cache = opened(folder)
    if seen:
        assert all(same(cache.get(i), picture(i)) for i in range(COUNT // 2))
    FAULTS[fault](folder)
    for _ in range(2):
        assert cache.get(4) is None and cache.put(4, picture(4)) is None and cache.put(COUNT - 1, picture(0)) is None
    assert all(got is None or same(got, picture(i)) for i in range(COUNT) if (got := cache.get(i)) is not None)
    assert caplog.text.count("cannot be read and is not used any more by this process") == 1 == len(caplog.records)
    assert repr(str(folder)) in caplog.text


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("call", ["preadv", "pread"])
def test_a_disk_that_fails_turns_the_cache_off(folder, call, number, caplog, monkeypatch):
    cache = opened(folder)

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        assert cache.get(1) is None and cache.stats.samples == (COUNT // 2 if call == "preadv" else 0)
    assert cache.get(2) is None and cache.put(2, picture(2)) is None
    assert os.strerror(number) in caplog.text and len(caplog.records) == 1


def test_no_memory_turns_the_cache_off(folder, caplog, monkeypatch):
    cache = opened(folder)

    def refuse(size: int) -> np.ndarray:
        raise MemoryError

    monkeypatch.setattr(cache._store._blocks, "empty", refuse)
    assert cache.get(1) is None and "MemoryError" in caplog.text and len(caplog.records) == 1


def test_pixels_that_shrank_and_grew_again_are_not_shown(folder, caplog):
    """A process that has compared checksums before would take what others wrote there since for its pictures."""
    cache, other = opened(folder), opened(folder)
    assert all(same(cache.get(i), picture(i)) for i in range(COUNT // 2))
    os.truncate(folder / "pixels", SIZES[0])
    with pytest.raises(LoaderError, match=r"the cache in '.*' is damaged: its pixels were cut short; delete it"):
        opened(folder)
    for i in range(COUNT // 2, COUNT):
        assert other.put(i, picture(i)) is None
    assert (folder / "pixels").stat().st_size == SIZES[0]
    assert same(cache.get(0), picture(0)) and all(cache.get(i) is None for i in range(1, COUNT))
    assert caplog.text.count("its pixels were cut short") == 1


def test_an_index_outside_the_cache(folder):
    cache = opened(folder)
    assert cache.get(-1) is None and cache.get(COUNT) is None and same(cache.get(1), picture(1))


def test_memory_is_used_again_once_nobody_holds_it(folder):
    cache = opened(folder)
    held = [cache.get(i) for i in range(10)]
    assert all(same(view, picture(i)) for i, view in enumerate(held))
    rows = held[3][1:]
    addresses = {view.ctypes.data for view in held}
    del held
    again = [cache.get(i) for i in range(10)]
    assert len(addresses & {view.ctypes.data for view in again}) >= 5
    assert same(rows, picture(3)[1:]), "a view keeps its memory"
    assert all(same(view, picture(i)) for i, view in enumerate(again))


@pytest.mark.parametrize("fault", ["pixels", "index", "deleted", "EIO", "full"])
def test_an_epoch_is_as_without_a_cache(tmp_path, fault, caplog, monkeypatch):
    photos = write_photos(tmp_path, 12)
    chain = [T.RandomResizedCrop(24), T.RandomHorizontalFlip()]

    def epoch(loader: Loader) -> dict[int, np.ndarray]:
        return {int(i): image.numpy() for batch in loader for i, image in zip(batch.indices, batch.images, strict=True)}

    with Loader(photos, chain, batch_size=4) as plain:
        want = [epoch(plain) for _ in range(3)]
    cache = DecodedCache(limit_bytes=1 << 24, directory=tmp_path / "cache")
    with monkeypatch.context() as patch, Loader(photos, chain, batch_size=4, cache=cache) as loader:
        if fault == "full":
            patch.setattr(os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        got = [epoch(loader)]
        if fault in ("pixels", "index"):
            os.truncate(tmp_path / "cache" / fault, 1000 if fault == "pixels" else 30)
        elif fault == "deleted":
            for name in FILES:
                os.remove(tmp_path / "cache" / name)
        elif fault == "EIO":
            patch.setattr(os, "preadv", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "EIO")))
        got += [epoch(loader) for _ in range(2)]
    for mine, other in zip(got, want, strict=True):
        assert mine.keys() == other.keys() and all((mine[i] == other[i]).all() for i in other)
    assert len(caplog.records) == (0 if fault == "deleted" else 1)


def test_no_memory_in_the_encoded_cache(caplog):
    class Huge(bytearray):
        def __bytes__(self) -> bytes:
            raise MemoryError

    cache = EncodedCache(1000)
    cache.open(3, {})
    assert cache.put(0, b"a", None) and not cache.put(1, Huge(b"b"), None) and not cache.put(2, b"c", None)
    assert cache.get(0) == (b"a", None) and caplog.text.count("takes no more samples") == 1


# --- opening a damaged one -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"no JSON", b"\xff", b"[" * 100_000, b"3"])
def test_damaged_contents_are_refused(folder, text):
    (folder / "contents.json").write_bytes(text)
    with pytest.raises(
        LoaderError, match=r"the cache in '.*' is damaged: its contents.json is no JSON object; delete it"
    ):
        opened(folder)


@pytest.mark.parametrize(("name", "length"), [("index", 24), ("index", 24 * COUNT + 1), ("pixels", 9)])
def test_wrong_lengths_are_refused(folder, name, length):
    os.truncate(folder / name, length)
    with pytest.raises(LoaderError, match=r"the cache in '.*' is damaged: its .*; delete it"):
        opened(folder)


def test_files_that_are_no_caches_stay(tmp_path):
    """As in a directory that somebody gave by mistake, or to which a planted link leads."""
    (tmp_path / "index").write_bytes(b"precious")
    with pytest.raises(LoaderError, match="holds an index or pixels and no decoded cache: give an empty directory"):
        opened(tmp_path)
    assert (tmp_path / "index").read_bytes() == b"precious"


@given(seed=st.integers(0, 2**64))
def test_a_cache_that_is_damaged_anyhow(seed, tmp_path_factory):
    fuzz_cache.run_one(random.Random(seed), tmp_path_factory.getbasetemp())


# --- planted ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("made", [False, True], ids=["new cache", "old cache"])
def test_nothing_is_written_through_a_link(tmp_path, name, made):
    folder, target = tmp_path / "cache", tmp_path / "target"
    if made:
        opened(folder).put(1, picture(1))
        os.rename(folder / name, target)
    else:
        folder.mkdir()
        target.write_bytes(b"")
    before = target.read_bytes()
    (folder / name).symlink_to(target)
    with pytest.raises(
        LoaderError, match=rf"cannot trust the cache .*{name}' is a symbolic link|holds an index or pix"
    ):
        opened(folder)
    assert target.read_bytes() == before


def test_a_predictable_name_is_not_followed(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "cache" / "contents.json.new").symlink_to(tmp_path / "precious")
    assert same(opened(tmp_path / "cache").put(1, picture(1)), picture(1))
    assert (tmp_path / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["", *FILES])
def test_what_others_may_write_is_refused(folder, name):
    os.chmod(folder / name, 0o775)
    with pytest.raises(LoaderError, match=r"cannot trust the cache .* \(mode 0775\): run `chmod go-w .*; give a dir"):
        opened(folder)
    os.chmod(folder / name, 0o755)
    assert same(opened(folder).get(1), picture(1))


@pytest.mark.parametrize("name", ["", *FILES])
def test_what_belongs_to_others_is_refused(folder, name):
    chown_to_nobody(folder / name)
    with pytest.raises(
        LoaderError, match=r"cannot trust the cache .* belongs to user .*, and only root is trusted; give"
    ):
        opened(folder)


def test_others_may_not_write_what_is_made(tmp_path):
    before = os.umask(0)
    try:
        opened(tmp_path / "a" / "cache").put(1, picture(1))
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((tmp_path / "a" / "cache" / name).stat().st_mode) for name in ("", *FILES)}
    assert modes == {"": 0o755, "contents.json": 0o644, "index": 0o644, "pixels": 0o644, "lock": 0o600}


AS_NOBODY = f"""
import os, sys
import cuaug.codec
from cuaug import DecodedCache, LoaderError
from tests.cache import fuzz_cache
from tests.cache.pictures import picture, same
os.setgid({NOBODY})
os.setuid({NOBODY})
cache = DecodedCache(limit_bytes=1 << 24, directory=sys.argv[1])
try:
    cache.open({COUNT}, {{"source": "a"}})
except LoaderError as error:
    sys.exit(f"refused: {{error}}")
assert same(cache.get(1), picture(1)) and cache.put({COUNT - 1}, picture(0)) is None
"""


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["root", "another user"])
def test_a_cache_of_root_is_read_by_all_and_anothers_by_none(whose):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders let no other user in
        top = Path(name)
        os.chmod(top, 0o755)
        cache = opened(top / "cache")
        assert cache.put(1, picture(1)) is not None
        if whose != "root":
            for path in (top / "cache", *(top / "cache").iterdir()):
                os.chown(path, 12_345, -1)
        command = [sys.executable, "-c", AS_NOBODY, str(top / "cache")]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    if whose == "root":
        assert (done.returncode, done.stderr.count("takes no more samples")) == (0, 1), done.stderr
    else:
        assert "belongs to user id 12345, and only user 'nobody' and root are trusted" in done.stderr
