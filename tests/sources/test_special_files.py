"""What is no regular file costs its sample at once: a pipe would be waited for, a device may have no end."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from cuaug import DecodeError, Loader, LoaderError
from cuaug.sources import TarShards, _bytes
from cuaug.sources._bytes import read_bytes, read_files
from tests.cache.pictures import run
from tests.loader.pictures import numbers_of, png
from tests.sources.writers import write_tar

pytestmark = pytest.mark.timeout(60)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/null")  # as /dev/zero is, but with an end


@pytest.mark.parametrize("make", [pipe, device])
def test_special_files_are_not_read(tmp_path, make):
    make(tmp_path / "x.jpg")
    with pytest.raises(OSError, match=r"it is no regular file: .*x.jpg'"):
        read_bytes(tmp_path / "x.jpg")


def test_what_else_can_be_read_or_not(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert read_bytes(tmp_path / "empty") == b""
    assert read_bytes("/proc/self/status").startswith(b"Name:"), "a file that does not say how long it is"
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
    with pytest.raises(OSError, match="no file can have such a name"):
        read_bytes("a\0b")


def many(folder: Path) -> dict[str, bytes | None]:
    """Paths of all sorts, and what `read_files` makes of them; None: `read_bytes` is asked."""
    found: dict[str, bytes | None] = {}
    for name, size in {"one": 1, "two": 2, "some": 5_000, os.fsdecode(b"no text \xff"): 100, "many": 1 << 20}.items():
        found[str(folder / name)] = data = os.urandom(size)
        (folder / name).write_bytes(data)
    (folder / "empty").write_bytes(b"")
    pipe(folder / "pipe")
    device(folder / "device")
    others = [folder, folder / "empty", folder / "pipe", folder / "device", folder / "missing", "/proc/self/status"]
    return found | dict.fromkeys([*map(str, others), f"{folder}/one\0.jpg", f"{folder}/\ud800", ""])


def test_several_at_once(tmp_path):
    expected = many(tmp_path)
    before, at = len(os.listdir("/proc/self/fd")), ctypes.c_int64()
    assert read_files(list(expected), at) == list(expected.values())
    assert at.value == 4, "the last one that was read"
    assert len(os.listdir("/proc/self/fd")) == before and read_files([], at) == []


def test_several_at_once_that_shrink_or_find_no_room(tmp_path, monkeypatch):
    """One that is cut off between its size and its bytes is left to `read_bytes`; no descriptor stays open."""
    paths = [str(tmp_path / name) for name in "abc"]
    for path in paths:
        Path(path).write_bytes(b"0123456789")
    before, new_bytes = len(os.listdir("/proc/self/fd")), _bytes._new_bytes

    def cut_off(nothing: None, size: int) -> bytes:
        os.truncate(paths[1], 4)
        return new_bytes(nothing, size)

    monkeypatch.setattr(_bytes, "_new_bytes", cut_off)
    assert read_files(paths, ctypes.c_int64()) == [b"0123456789", None, b"0123456789"]

    def no_room(nothing: None, size: int) -> bytes:
        raise MemoryError

    monkeypatch.setattr(_bytes, "_new_bytes", no_room)
    assert read_files(paths, ctypes.c_int64()) == [None] * 3
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_stays_open(tmp_path):
    pipe(tmp_path / "x.jpg")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(OSError):
            read_bytes(tmp_path / "x.jpg")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.slow
def test_a_file_larger_than_memory(tmp_path):
    """Its size costs nothing where it is sparse."""
    with open(tmp_path / "x.jpg", "wb") as file:
        file.truncate(1 << 40)
    program = """
import resource, sys
from cuaug.sources._bytes import read_bytes
resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))
try:
    read_bytes(sys.argv[1])
except OSError as error:
    print(error.strerror, error.filename)
"""
    assert run(program, tmp_path / "x.jpg") == f"its 1,099,511,627,776 bytes find no room in memory {tmp_path}/x.jpg\n"


def test_a_pipe_in_a_folder_costs_one_sample(tmp_path):
    (tmp_path / "ant").mkdir()
    for i in (0, 2):
        (tmp_path / "ant" / f"{i}.png").write_bytes(png(i))
    pipe(tmp_path / "ant" / "1.png")
    told: list[DecodeError] = []
    with Loader(tmp_path, batch_size=3, on_error="skip", error_callback=told.append) as loader:
        assert [numbers_of(images) for images, _ in loader] == [[0, 2]]
    assert [(error.path, error.cause) for error in told] == [(f"{tmp_path}/ant/1.png", "it is no regular file")]


def test_a_pipe_in_place_of_a_shard_or_its_index(tmp_path):
    pipe(tmp_path / "a.tar")
    with pytest.raises(LoaderError, match=r"cannot read '.*a.tar': it is no regular file"):
        TarShards(tmp_path / "a.tar")
    write_tar(tmp_path / "b.tar", {"0.jpg": b"it"})
    pipe(tmp_path / "b.tar.cuaug-index")
    source = TarShards(tmp_path / "b.tar", label=None)
    os.rename(tmp_path / "b.tar", tmp_path / "c.tar")
    pipe(tmp_path / "b.tar")
    with pytest.raises(OSError, match="it is no regular file"):
        source.read(0)
