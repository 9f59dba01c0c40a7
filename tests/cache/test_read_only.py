"""A filled cache that cannot be written: on a read-only mount, or in files of root."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuaug.errors import LoaderError
from tests.support.cache.cached_images import ROOT, is_same, make_image, open_cache

MOUNT = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1"'
PROGRAM = """
import sys
from tests.support.cache.cached_images import make_image, is_same, open_cache
try:
    open(sys.argv[1] + "/index", "r+b")
except OSError as error:
    print(error.strerror)
cache = open_cache(sys.argv[1])
assert is_same(cache.get(1), make_image(1)) and cache.get(2) is None and cache.put(2, make_image(2)) is None
print(cache.stats.samples)
"""


@pytest.fixture
def filled(tmp_path) -> Path:
    cache = open_cache(tmp_path / "cache")
    assert cache.put(1, make_image(1)) is not None
    cache.close()
    return tmp_path / "cache"


@pytest.fixture
def read_only(filled, monkeypatch) -> Path:
    """Behaves like a read-only mount, even for root."""
    plain_open, plain_access = os.open, os.access

    def refuse(path, flags, *rest, **options):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return plain_open(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(
        os, "access", lambda path, mode, **options: mode != os.W_OK and plain_access(path, mode, **options)
    )
    return filled


@pytest.mark.slow
def test_on_a_read_only_mount(filled):
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", str(filled), sys.executable]
    if subprocess.run([*command, "pass"], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount")
    done = subprocess.run([*command, PROGRAM], capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["Read-only file system", "1"]


def test_a_read_only_cache_is_read_and_never_written(read_only, caplog):
    before = {path.name: path.read_bytes() for path in read_only.iterdir()}
    cache = open_cache(read_only)
    assert is_same(cache.get(1), make_image(1)) and is_same(cache.put(1, make_image(1)), make_image(1))
    assert not caplog.records
    for i in (2, 3):
        assert cache.get(i) is None and cache.put(i, make_image(i)) is None
    assert caplog.text.count("takes no more samples: it cannot be written to") == 1 == len(caplog.records)
    assert cache.stats.samples == 1
    cache.close()
    assert before == {path.name: path.read_bytes() for path in read_only.iterdir()}


def test_damaged_pixels_are_not_returned(read_only, caplog):
    path = read_only / "pixels"
    path.write_bytes(bytes(path.stat().st_size))
    cache = open_cache(read_only)
    for _ in range(2):
        assert cache.get(1) is None and cache.put(1, make_image(1)) is None
    assert [record.message.partition("has pixels")[1] for record in caplog.records] == ["has pixels", ""]


def test_another_cache_and_an_empty_directory_are_refused(read_only, tmp_path):
    with pytest.raises(LoaderError, match="holds another decoded cache: source is 'a' there and 'b' here"):
        open_cache(read_only, source="b")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LoaderError, match=r"directory .*empty.* cannot hold a cache: .*Read-only file system"):
        open_cache(tmp_path / "empty")
