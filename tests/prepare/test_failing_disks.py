"""`cuaug prepare` on a failing disk: a read error costs that file, a write error ends the run."""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil

import pytest

from tests.prepare.test_tars import write_tar
from tests.support.prepare.fake_jpegtran import PLAIN


class Failing(io.FileIO):
    """A file that fails beyond its 600th byte."""

    def __init__(self, path, mode: str, number: int, **options) -> None:
        super().__init__(path, mode, **options)
        self._failure = OSError(number, os.strerror(number))

    def readinto(self, buffer) -> int:
        return self._check(super().readinto(memoryview(buffer)[:500]))

    def readall(self) -> bytes:
        return self._check(super().readall())

    def write(self, data) -> int:
        return self._check(super().write(data))

    def _check(self, done):
        if self.tell() > 600:
            raise self._failure
        return done


@pytest.fixture
def fail(monkeypatch):
    """Makes files with this name prefix fail with this error number."""

    def install(prefix: str, number: int) -> None:
        opened = builtins.open

        def open_failing(path, mode="r", buffering=-1, *arguments, opener=None, **options):
            name = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else path
            if not isinstance(name, (str, os.PathLike)) or not os.path.basename(name).startswith(prefix):
                return opened(path, mode, buffering, *arguments, opener=opener, **options)
            raw = Failing(path, mode.replace("b", ""), number, opener=opener)
            if buffering == 0:
                return raw
            return {"rb": io.BufferedReader, "wb": io.BufferedWriter, "w+b": io.BufferedRandom}[mode](raw)

        monkeypatch.setattr(builtins, "open", open_failing)
        monkeypatch.setattr(io, "open", open_failing)

    return install


@pytest.mark.parametrize("name", ["bad.jpg", "bad.csv", "bad.tar"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE])
def test_a_read_error_costs_that_file_alone(prepared, photos, fail, name, error):
    if name.endswith("tar"):
        write_tar(photos / name)
    else:
        (photos / name).write_bytes(PLAIN if name.endswith("jpg") else bytes(2000))
    fail("bad", error)
    status, target, output, errors = prepared(photos)
    assert status == 1 and "2 JPEGs with" in output and "1 unreadable" in output
    assert errors == f"cuaug prepare: {photos / name} cannot be read: [Errno {error}] {os.strerror(error)}\n"
    assert sorted(os.listdir(target)) == ["b.png", "cats", "empty", "labels.csv"]


@pytest.mark.parametrize("name", ["a.jpg", "a.csv", "a.tar"])
def test_a_write_error_ends_the_run(prepared, tmp_path, fail, name):
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


def test_a_removed_target_folder_reports_the_write_error(prepared, photos, tmp_path, monkeypatch):
    """The failed removal of the unfinished file is not reported."""
    replace = os.replace

    def remove_and_replace(old, new, **directories):
        shutil.rmtree(tmp_path / "prepared")
        replace(old, new, **directories)

    monkeypatch.setattr(os, "replace", remove_and_replace)
    status, target, _, errors = prepared(photos / "labels.csv")
    assert status == 1 and errors.startswith(f"cuaug prepare: {target}/labels.csv: [Errno 2] No such file")
    assert "-> 'labels.csv'" in errors
