"""A damaged or planted cache on disk, or a failing disk: costs time, never gives a wrong pixel."""

from __future__ import annotations

import errno
import functools
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

from cuaug import DecodedCache, Loader, LoaderError
from cuaug import transforms as T
from tests.fuzz import fuzz_cache
from tests.support.cache import cached_images
from tests.support.cache.cached_images import ROOT, is_same, make_image
from tests.support.foreign_files import NOBODY, chown_to_nobody
from tests.support.loader.further_pictures import write_photos

COUNT = 20
SIZES = [make_image(i).nbytes for i in range(COUNT)]
FILES = ("contents.json", "index", "pixels", "lock")


open_cache = functools.partial(cached_images.open_cache, count=COUNT)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A cache with half of the samples."""
    cache = open_cache(tmp_path / "cache")
    for i in range(COUNT // 2):
        assert cache.put(i, make_image(i)) is not None
    cache.close()
    return tmp_path / "cache"


def change(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def record(height: int, width: int, offset: int) -> bytes:
    return struct.pack("<?3xIIIQ", True, 0, height, width, offset)


# --- faults after opening --------------------------------------------------------------------------------------------

FAULTS = {
    "pixels end within the image": lambda folder: os.truncate(folder / "pixels", sum(SIZES[:5]) - 1),
    "no pixels": lambda folder: os.truncate(folder / "pixels", 0),
    "index ends within the record": lambda folder: os.truncate(folder / "index", 4 * 24 + 1),
    "an image of 2**64 pixels": lambda folder: change(folder / "index", 4 * 24, record(2**32 - 1, 2**32 - 1, 0)),
    "an image beyond the file": lambda folder: change(folder / "index", 4 * 24, record(1, 1, 2**64 - 4)),
    "an image without width": lambda folder: change(folder / "index", 4 * 24, record(5, 0, 0)),
}


@pytest.mark.parametrize("is_verified", [False, True], ids=["unverified", "verified"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_disables_the_cache(folder, fault, is_verified, caplog):
    cache = open_cache(folder)
    if is_verified:
        assert all(is_same(cache.get(i), make_image(i)) for i in range(COUNT // 2))
    FAULTS[fault](folder)
    for _ in range(2):
        assert cache.get(4) is None and cache.put(4, make_image(4)) is None
        assert cache.put(COUNT - 1, make_image(0)) is None
    results = [cache.get(i) for i in range(COUNT)]
    assert all(result is None or is_same(result, make_image(i)) for i, result in enumerate(results))
    assert caplog.text.count("cannot be read; this process stops using it") == 1 == len(caplog.records)
    assert repr(str(folder)) in caplog.text


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("call", ["preadv", "pread"])
def test_a_failing_disk_disables_the_cache(folder, call, number, caplog, monkeypatch):
    cache = open_cache(folder)

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        assert cache.get(1) is None and cache.stats.samples == (COUNT // 2 if call == "preadv" else 0)
    assert cache.get(2) is None and cache.put(2, make_image(2)) is None
    assert os.strerror(number) in caplog.text and len(caplog.records) == 1


def test_a_pixel_file_that_shrank_never_grows_again(folder, caplog):
    """A process that has verified checksums would take other pixels for its images."""
    cache, other = open_cache(folder), open_cache(folder)
    assert all(is_same(cache.get(i), make_image(i)) for i in range(COUNT // 2))
    os.truncate(folder / "pixels", SIZES[0])
    with pytest.raises(LoaderError, match=r"the cache in '.*' is damaged: its pixels were truncated; delete it"):
        open_cache(folder)
    for i in range(COUNT // 2, COUNT):
        assert other.put(i, make_image(i)) is None
    assert (folder / "pixels").stat().st_size == SIZES[0]
    assert is_same(cache.get(0), make_image(0)) and all(cache.get(i) is None for i in range(1, COUNT))
    assert caplog.text.count("its pixels were truncated") == 1


def test_freed_memory_is_reused(folder):
    cache = open_cache(folder)
    first = [cache.get(i) for i in range(10)]
    assert all(is_same(view, make_image(i)) for i, view in enumerate(first))
    rows = first[3][1:]
    addresses = {view.ctypes.data for view in first}
    del first
    again = [cache.get(i) for i in range(10)]
    assert len(addresses & {view.ctypes.data for view in again}) >= 5
    assert is_same(rows, make_image(3)[1:]), "a view keeps its memory"
    assert all(is_same(view, make_image(i)) for i, view in enumerate(again))


@pytest.mark.parametrize("fault", ["pixels", "index", "deleted", "EIO", "full"])
def test_a_faulty_cache_does_not_change_an_epoch(tmp_path, fault, caplog, monkeypatch):
    photos = write_photos(tmp_path, 12)
    chain = [T.RandomResizedCrop(24), T.RandomHorizontalFlip()]

    def epoch(loader: Loader) -> dict[int, np.ndarray]:
        return {int(i): image.numpy() for batch in loader for i, image in zip(batch.indices, batch.images, strict=True)}

    with Loader(photos, chain, batch_size=4, seed=0) as plain:
        expected = [epoch(plain) for _ in range(3)]
    cache = DecodedCache(limit_bytes=1 << 24, directory=tmp_path / "cache")
    with monkeypatch.context() as patch, Loader(photos, chain, batch_size=4, cache=cache, seed=0) as loader:
        if fault == "full":
            patch.setattr(os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        result = [epoch(loader)]
        if fault in ("pixels", "index"):
            os.truncate(tmp_path / "cache" / fault, 1000 if fault == "pixels" else 30)
        elif fault == "deleted":
            for name in FILES:
                os.remove(tmp_path / "cache" / name)
        elif fault == "EIO":
            patch.setattr(os, "preadv", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "EIO")))
        result += [epoch(loader) for _ in range(2)]
    for cached, uncached in zip(result, expected, strict=True):
        assert cached.keys() == uncached.keys() and all((cached[i] == uncached[i]).all() for i in uncached)
    assert len(caplog.records) == (0 if fault == "deleted" else 1)


# --- opening a damaged cache -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"no JSON", b"\xff", b"[" * 100_000, b"3"])
def test_damaged_contents_are_refused(folder, text):
    (folder / "contents.json").write_bytes(text)
    message = r"the cache in '.*' is damaged: its contents.json is no JSON object; delete it"
    with pytest.raises(LoaderError, match=message):
        open_cache(folder)


@pytest.mark.parametrize(("name", "length"), [("index", 24), ("index", 24 * COUNT + 1), ("pixels", 9)])
def test_wrong_lengths_are_refused(folder, name, length):
    os.truncate(folder / name, length)
    with pytest.raises(LoaderError, match=r"the cache in '.*' is damaged: its .*; delete it"):
        open_cache(folder)


def test_other_files_stay(tmp_path):
    """The user may give a wrong directory, or a planted link may lead to it."""
    (tmp_path / "index").write_bytes(b"precious")
    with pytest.raises(LoaderError, match="holds an index or pixels but no cache: give an empty directory"):
        open_cache(tmp_path)
    assert (tmp_path / "index").read_bytes() == b"precious"


@given(seed=st.integers(0, 2**64))
def test_random_damage_to_a_cache(seed, tmp_path_factory):
    fuzz_cache.run_one(random.Random(seed), tmp_path_factory.getbasetemp())


# --- planted ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("exists", [False, True], ids=["new cache", "old cache"])
def test_nothing_is_written_through_a_link(tmp_path, name, exists):
    folder, target = tmp_path / "cache", tmp_path / "target"
    if exists:
        open_cache(folder).put(1, make_image(1))
        os.rename(folder / name, target)
    else:
        folder.mkdir()
        target.write_bytes(b"")
    before = target.read_bytes()
    (folder / name).symlink_to(target)
    with pytest.raises(LoaderError, match=rf"is not trusted: .*{name}' is a symbolic link|holds an index or pix"):
        open_cache(folder)
    assert target.read_bytes() == before


def test_a_predictable_name_is_not_followed(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "cache" / "contents.json.new").symlink_to(tmp_path / "precious")
    assert is_same(open_cache(tmp_path / "cache").put(1, make_image(1)), make_image(1))
    assert (tmp_path / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["", *FILES])
def test_files_that_others_can_write_are_refused(folder, name):
    os.chmod(folder / name, 0o775)
    message = r"is not trusted: .* \(mode 0775\): run `chmod go-w .*; use your own directory"
    with pytest.raises(LoaderError, match=message):
        open_cache(folder)
    os.chmod(folder / name, 0o755)
    assert is_same(open_cache(folder).get(1), make_image(1))


@pytest.mark.parametrize("name", ["", *FILES])
def test_files_of_others_are_refused(folder, name):
    chown_to_nobody(folder / name)
    with pytest.raises(LoaderError, match=r"is not trusted: .* belongs to user .*, and only root is trusted; use your"):
        open_cache(folder)


def test_new_files_are_not_writable_by_others(tmp_path):
    before = os.umask(0)
    try:
        open_cache(tmp_path / "a" / "cache").put(1, make_image(1))
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((tmp_path / "a" / "cache" / name).stat().st_mode) for name in ("", *FILES)}
    assert modes == {"": 0o755, "contents.json": 0o644, "index": 0o644, "pixels": 0o644, "lock": 0o600}


AS_NOBODY = f"""
import os, sys
from cuaug import LoaderError
from tests.support.cache.cached_images import make_image, is_same, open_cache
image, other = make_image(1), make_image(0)

# As root first, to import every module: nobody may be unable to read the folder of this clone.
rehearsal = open_cache(sys.argv[2], count={COUNT})
assert is_same(rehearsal.put(1, image), image)
rehearsal._store._stop_adding("it is a rehearsal")
os.setgid({NOBODY})
os.setuid({NOBODY})
try:
    cache = open_cache(sys.argv[1], count={COUNT})
except LoaderError as error:
    sys.exit(f"refused: {{error}}")
assert is_same(cache.get(1), image) and cache.put({COUNT - 1}, other) is None
"""


@pytest.mark.slow
@pytest.mark.parametrize("owner", ["root", "another user"])
def test_other_users_read_a_cache_of_root_only(owner):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as name:  # pytest's folders are closed to other users
        top = Path(name)
        os.chmod(top, 0o755)
        cache = open_cache(top / "cache")
        assert cache.put(1, make_image(1)) is not None
        if owner != "root":
            for path in (top / "cache", *(top / "cache").iterdir()):
                os.chown(path, 12_345, -1)
        command = [sys.executable, "-c", AS_NOBODY, str(top / "cache"), str(top / "rehearsal")]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    if owner == "root":
        assert (done.returncode, done.stderr.count("takes no more samples: it cannot be written to")) == (0, 1), (
            done.stderr
        )
    else:
        assert "belongs to user id 12345, and only user 'nobody' and root are trusted" in done.stderr
