"""A cache that was filled elsewhere and lies where nothing can be written: on a read-only mount, in files of root."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuaug.cache import DecodedCache
from cuaug.errors import LoaderError
from tests.cache.pictures import picture, same

ROOT = Path(__file__).parents[2]
MOUNT = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1"'
PROGRAM = """
import sys
from cuaug.cache import DecodedCache
from tests.cache.pictures import picture, same
cache = DecodedCache(limit_bytes=1 << 24, directory=sys.argv[1])
try:
    open(sys.argv[1] + "/index", "r+b")
except OSError as error:
    print(error.strerror)
cache.open(40, {"source": "a"})
assert same(cache.get(1), picture(1)) and cache.get(2) is None and cache.put(2, picture(2)) is None
print(cache.stats.samples)
"""


def opened(directory: Path, count: int = 40, source: str = "a") -> DecodedCache:
    cache = DecodedCache(limit_bytes=1 << 24, directory=directory)
    cache.open(count, {"source": source})
    return cache


@pytest.fixture
def filled(tmp_path) -> Path:
    with_1 = opened(tmp_path / "cache")
    assert with_1.put(1, picture(1)) is not None
    with_1.close()
    return tmp_path / "cache"


@pytest.fixture
def locked_up(filled, monkeypatch) -> Path:
    """As on a read-only mount, also for root."""
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
        pytest.skip("this system lets nobody mount")
    done = subprocess.run([*command, PROGRAM], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["Read-only file system", "1"]


def test_what_it_holds_is_read_and_nothing_is_added(locked_up, caplog):
    before = {path.name: path.read_bytes() for path in locked_up.iterdir()}
    cache = opened(locked_up)
    assert same(cache.get(1), picture(1)) and same(cache.put(1, picture(1)), picture(1)) and not caplog.records
    for i in (2, 3):
        assert cache.get(i) is None and cache.put(i, picture(i)) is None
    assert caplog.text.count("takes no more samples: it cannot be written to") == 1 == len(caplog.records)
    assert cache.stats.samples == 1
    cache.close()
    assert before == {path.name: path.read_bytes() for path in locked_up.iterdir()}


def test_damaged_pixels_are_not_shown(locked_up, caplog):
    path = locked_up / "pixels"
    path.write_bytes(bytes(path.stat().st_size))
    cache = opened(locked_up)
    for _ in range(2):
        assert cache.get(1) is None and cache.put(1, picture(1)) is None
    assert [record.message.partition("has pixels")[1] for record in caplog.records] == ["has pixels", ""]


def test_another_cache_and_none_are_refused(locked_up, tmp_path):
    with pytest.raises(LoaderError, match="holds another decoded cache: source is 'a' there and 'b' here"):
        opened(locked_up, source="b")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LoaderError, match=r"cannot keep a cache .*empty.*Read-only file system"):
        opened(tmp_path / "empty")
