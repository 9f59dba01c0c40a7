"""Trusted files: which ones are read, and how new ones are made."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path

import pytest

from cuaug._runtime import trusted_files
from cuaug._runtime.trusted_files import Directory, UntrustedError, cache_directory, warn_once
from tests.support.foreign_files import NOBODY, chown_to_nobody


@pytest.fixture(autouse=True)
def umask():
    """Tests must not depend on the umask."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "folder"
    path.mkdir(0o755)
    (path / "file").write_bytes(b"data")
    os.chmod(path / "file", 0o644)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def read(folder: Path, name: str = "file", limit: int = 100, **options) -> bytes:
    with Directory(folder) as directory:
        return directory.read(name, limit=limit, **options)


def replace(folder: Path, name: str, data: bytes, mode: int = 0o666) -> None:
    with Directory(folder) as directory, directory.atomic_write(name, mode=mode) as file:
        file.write(data)


def test_files_of_this_user_are_read(folder):
    assert read(folder) == b"data"
    with pytest.raises(FileNotFoundError):
        read(folder, "none")
    with pytest.raises(OSError, match="it has 4 bytes, more than 3"):
        read(folder, limit=3)


@pytest.mark.parametrize("bits", [0o664, 0o646])
def test_files_that_others_can_write_are_not_trusted(folder, bits):
    os.chmod(folder / "file", bits)
    with pytest.raises(
        UntrustedError, match=rf"folder/file' can be written by other users \(mode {bits:04o}\): run `ch"
    ):
        read(folder)


def test_files_of_others_are_not_trusted(folder):
    chown_to_nobody(folder / "file")
    with pytest.raises(UntrustedError, match=r"folder/file' belongs to user .*, and only root is trusted"):
        read(folder)
    assert read(folder, owners=(NOBODY,)) == b"data"


def test_links_pipes_and_directories_are_not_trusted_files(folder):
    (folder / "link").symlink_to("file")
    with pytest.raises(UntrustedError, match="link' is a symbolic link"):
        read(folder, "link")
    os.mkfifo(folder / "pipe", 0o600)
    with pytest.raises(UntrustedError, match="pipe' is not a regular file"):
        read(folder, "pipe")
    with pytest.raises(UntrustedError, match="folder' is not a regular file"):
        read(folder.parent, "folder")


@pytest.mark.parametrize(("bits", "trusted"), [(0o755, True), (0o775, False), (0o757, False), (0o1777, True)])
def test_directories_that_others_can_write_are_trusted_if_sticky(folder, bits, trusted):
    os.chmod(folder, bits)
    if trusted:
        assert read(folder) == b"data"
    else:
        with pytest.raises(UntrustedError, match=rf"folder' can be written by other users \(mode {bits:04o}\)"):
            read(folder)


def test_directories_of_others_are_not_trusted(folder):
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert read(link) == b"data"
    chown_to_nobody(link)
    with pytest.raises(UntrustedError, match="link' belongs to user"):
        read(link)
    chown_to_nobody(folder)
    with pytest.raises(UntrustedError, match="folder' belongs to user"):
        read(folder)
    with Directory(folder, trusted=False) as directory:
        assert directory.read("file", limit=9) == b"data", "files are checked separately"


def test_new_files_and_directories_are_not_writable_by_others(folder):
    replace(folder, "new", b"1", mode=0o777)
    assert mode(folder / "new") == 0o644
    with Directory(folder) as directory:
        os.close(directory.open("made", os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o666))
    assert mode(folder / "made") == 0o644
    Directory(folder / "a" / "b", make_mode=0o700).__exit__()
    assert mode(folder / "a") == mode(folder / "a" / "b") == 0o700


def test_a_new_file_never_goes_through_a_link(folder):
    target = folder.parent / "target"
    target.write_bytes(b"precious")
    (folder / "link").symlink_to(target)
    replace(folder, "link", b"new")
    assert target.read_bytes() == b"precious" and not (folder / "link").is_symlink()
    (folder / "other").symlink_to(target)
    with Directory(folder) as directory, pytest.raises(FileExistsError):
        directory.open("other", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with Directory(folder) as directory, pytest.raises(UntrustedError, match="is a symbolic link"):
        directory.open("other", os.O_WRONLY | os.O_CREAT)


def test_files_of_others_are_not_replaced(folder):
    """Two users of one folder would replace each other's files forever."""
    chown_to_nobody(folder / "file")
    with pytest.raises(UntrustedError, match="file' belongs to user"):
        replace(folder, "file", b"mine")
    assert (folder / "file").read_bytes() == b"data" and os.listdir(folder) == ["file"]


def test_a_failure_leaves_the_old_file(folder):
    with (
        pytest.raises(ZeroDivisionError),
        Directory(folder) as directory,
        directory.atomic_write("file", mode=0o600) as new,
    ):
        new.write(b"half")
        raise ZeroDivisionError
    assert read(folder) == b"data" and os.listdir(folder) == ["file"]


def test_an_exchanged_directory_is_not_followed(folder):
    with Directory(folder) as directory:
        folder.rename(folder.parent / "moved")
        (folder.parent / "planted").mkdir()
        (folder.parent / "planted" / "file").write_bytes(b"planted")
        folder.symlink_to("planted")
        assert directory.read("file", limit=9) == b"data"


def test_the_cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "a" / "cache"))
    with pytest.raises(FileNotFoundError):
        cache_directory(make=False)
    with cache_directory("indexes", make=True) as directory:
        assert directory.path == str(tmp_path / "a" / "cache" / "indexes")
    assert [mode(tmp_path / "a" / name) for name in ("", "cache", "cache/indexes")] == [0o700] * 3
    os.chmod(tmp_path / "a" / "cache", 0o777)
    for name in (".", "indexes"):
        with pytest.raises(UntrustedError, match=r"a/cache' can be written by other users \(mode 0777\)"):
            cache_directory(name, make=True)
    monkeypatch.delenv("CUAUG_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    cache_directory(make=True).__exit__()
    assert mode(tmp_path / "home" / ".cache" / "cuaug") == 0o700


def test_one_warning_per_directory(caplog, monkeypatch):
    monkeypatch.setattr(trusted_files, "_warned", set())
    for path in ("/a/b", "/a/c", "/d/b"):
        warn_once(UntrustedError("is not yours", path), "it is not used")
    assert [record.message for record in caplog.records] == [
        "'/a/b' is not yours: it is not used",
        "'/d/b' is not yours: it is not used",
    ]


def test_the_error_pickles():
    error = pickle.loads(pickle.dumps(UntrustedError("is not yours", "/a/b")))
    assert (type(error), str(error), error.filename) == (UntrustedError, "'/a/b' is not yours", "/a/b")


def test_no_descriptor_stays_open(folder):
    os.chmod(folder / "file", 0o666)
    (folder / "link").symlink_to("file")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("file", "link", "none"):
        with pytest.raises(OSError):
            read(folder, name)
    os.chmod(folder, 0o777)
    with pytest.raises(OSError):
        read(folder)
    assert len(os.listdir("/proc/self/fd")) == before
