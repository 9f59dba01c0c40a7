"""Special files damage one sample at once: a pipe would block, a device may have no end."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from cuaug import DecodeError, Loader, LoaderError
from cuaug.sources import TarShards, _bytes
from cuaug.sources._bytes import read_bytes, read_files
from tests.cache.images import run
from tests.loader.pictures import numbers_of, png
from tests.sources.writers import write_tar

pytestmark = pytest.mark.timeout(60)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/null")  # like /dev/zero, but with an end


@pytest.mark.parametrize("make", [pipe, device])
def test_special_files_are_not_read(tmp_path, make):
    make(tmp_path / "x.jpg")
    with pytest.raises(OSError, match=r"it is no regular file: .*x.jpg'"):
        read_bytes(tmp_path / "x.jpg")


def test_other_paths(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert read_bytes(tmp_path / "empty") == b""
    assert read_bytes("/proc/self/status").startswith(b"Name:"), "a file without a known size"
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
    with pytest.raises(OSError, match="no file can have such a name"):
        read_bytes("a\0b")


def make_files(folder: Path) -> dict[str, bytes | None]:
    """{path: result of `read_files`} for all sorts of paths; None: left to `read_bytes`."""
    results: dict[str, bytes | None] = {}
    for name, size in {"one": 1, "two": 2, "some": 5_000, os.fsdecode(b"no text \xff"): 100, "many": 1 << 20}.items():
        results[str(folder / name)] = data = os.urandom(size)
        (folder / name).write_bytes(data)
    (folder / "empty").write_bytes(b"")
    pipe(folder / "pipe")
    device(folder / "device")
    others = [folder, folder / "empty", folder / "pipe", folder / "device", folder / "missing", "/proc/self/status"]
    return results | dict.fromkeys([*map(str, others), f"{folder}/one\0.jpg", f"{folder}/\ud800", ""])


def test_reading_several_files(tmp_path):
    expected = make_files(tmp_path)
    before, progress = len(os.listdir("/proc/self/fd")), ctypes.c_int64()
    assert read_files(list(expected), progress) == list(expected.values())
    assert progress.value == 4, "the last file that was read"
    assert len(os.listdir("/proc/self/fd")) == before and read_files([], progress) == []


def test_several_files_that_shrink_or_do_not_fit_in_memory(tmp_path, monkeypatch):
    """A file truncated while it is read is left to `read_bytes`; no descriptor stays open."""
    paths = [str(tmp_path / name) for name in "abc"]
    for path in paths:
        Path(path).write_bytes(b"0123456789")
    before, new_bytes = len(os.listdir("/proc/self/fd")), _bytes._new_bytes

    def truncate(nothing: None, size: int) -> bytes:
        os.truncate(paths[1], 4)
        return new_bytes(nothing, size)

    monkeypatch.setattr(_bytes, "_new_bytes", truncate)
    assert read_files(paths, ctypes.c_int64()) == [b"0123456789", None, b"0123456789"]

    def out_of_memory(nothing: None, size: int) -> bytes:
        raise MemoryError

    monkeypatch.setattr(_bytes, "_new_bytes", out_of_memory)
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
    """The file is sparse."""
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
    assert run(program, tmp_path / "x.jpg") == f"its 1,099,511,627,776 bytes do not fit in memory {tmp_path}/x.jpg\n"


def test_a_pipe_in_a_folder_damages_one_sample(tmp_path):
    (tmp_path / "ant").mkdir()
    for i in (0, 2):
        (tmp_path / "ant" / f"{i}.png").write_bytes(png(i))
    pipe(tmp_path / "ant" / "1.png")
    errors: list[DecodeError] = []
    with Loader(tmp_path, batch_size=3, on_error="skip", error_callback=errors.append) as loader:
        assert [numbers_of(images) for images, _ in loader] == [[0, 2]]
    assert [(error.path, error.cause) for error in errors] == [(f"{tmp_path}/ant/1.png", "it is no regular file")]


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
