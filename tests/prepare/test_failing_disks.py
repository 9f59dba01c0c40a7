"""`cuaug prepare` where the disk fails: of what is read it costs that file, of what is written it ends the run."""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil

import pytest

from tests.prepare.stand_in import PLAIN
from tests.prepare.test_tars import write_tar


class Failing(io.FileIO):
    """A file that can be read and written up to its 600th byte."""

    def __init__(self, path, mode: str, number: int, **options) -> None:
        super().__init__(path, mode, **options)
        self._failure = OSError(number, os.strerror(number))

    def readinto(self, buffer) -> int:
        return self._checked(super().readinto(memoryview(buffer)[:500]))

    def readall(self) -> bytes:
        return self._checked(super().readall())

    def write(self, data) -> int:
        return self._checked(super().write(data))

    def _checked(self, done):
        if self.tell() > 600:
            raise self._failure
        return done


@pytest.fixture
def fail(monkeypatch):
    """Makes files whose names begin so fail with this error number."""

    def failing(prefix: str, number: int) -> None:
        opened = builtins.open

        def open_failing(path, mode="r", buffering=-1, *arguments, opener=None, **options):
            if not isinstance(path, (str, os.PathLike)) or not os.path.basename(path).startswith(prefix):
                return opened(path, mode, buffering, *arguments, opener=opener, **options)
            raw = Failing(path, mode.replace("b", ""), number, opener=opener)
            if buffering == 0:
                return raw
            return {"rb": io.BufferedReader, "wb": io.BufferedWriter, "w+b": io.BufferedRandom}[mode](raw)

        monkeypatch.setattr(builtins, "open", open_failing)
        monkeypatch.setattr(io, "open", open_failing)

    return failing


@pytest.mark.parametrize("name", ["bad.jpg", "bad.csv", "bad.tar"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE])
def test_a_file_that_cannot_be_read_to_its_end(prepared, photos, fail, name, error):
    if name.endswith("tar"):
        write_tar(photos / name)
    else:
        (photos / name).write_bytes(PLAIN if name.endswith("jpg") else bytes(2000))
    fail("bad", error)
    status, target, told, errors = prepared(photos)
    assert status == 1 and "2 JPEGs with" in told and "1 not readable" in told
    assert errors == f"cuaug prepare: {photos / name} cannot be read: [Errno {error}] {os.strerror(error)}\n"
    assert sorted(os.listdir(target)) == ["b.png", "cats", "empty", "labels.csv"]


@pytest.mark.parametrize("name", ["a.jpg", "a.csv", "a.tar"])
def test_a_file_that_cannot_be_written(prepared, tmp_path, fail, name):
    source = tmp_path / "photos"
    source.mkdir()
    if name.endswith("tar"):
        write_tar(source / name)
    else:
        (source / name).write_bytes(PLAIN if name.endswith("jpg") else bytes(2000))
    fail(".cuaug-", errno.ENOSPC)
    status, target, _, errors = prepared(source)
    assert status == 1 and errors == f"cuaug prepare: {target / name}: [Errno 28] No space left on device\n"
    assert os.listdir(target) == []


def test_a_folder_that_is_removed_meanwhile(prepared, photos, tmp_path, monkeypatch):
    """The error is that of the writing, not that the unfinished file cannot be taken away."""
    replace = os.replace

    def late(old, new):
        shutil.rmtree(tmp_path / "prepared")
        replace(old, new)

    monkeypatch.setattr(os, "replace", late)
    status, target, _, errors = prepared(photos / "labels.csv")
    assert status == 1 and errors.startswith(f"cuaug prepare: {target}/labels.csv: [Errno 2] No such file")
    assert f"-> '{target}/labels.csv'" in errors
