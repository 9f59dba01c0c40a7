"""Files that cuaug writes and reads back: which ones are trusted, and how they are made, replaced and removed."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path

import pytest

from cuaug._runtime import disk
from cuaug._runtime.disk import Directory, UntrustedError, cache_directory
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


def replace(folder: Path, name: str, data: bytes, mode: int = 0o644, **options) -> None:
    with Directory(folder) as directory, directory.atomic_write(name, mode=mode, **options) as file:
        file.write(data)


def plant(folder: Path, name: str, kind: str) -> Path:
    """Puts a link or another kind of file there; returns the file of the user's that a link leads to."""
    target = folder.parent / "target"
    target.write_bytes(b"precious")
    os.chmod(target, 0o644)
    {
        "symbolic link": lambda: (folder / name).symlink_to(target),
        "dangling link": lambda: (folder / name).symlink_to(folder.parent / "nowhere"),
        "hard link": lambda: (folder / name).hardlink_to(target),
        "pipe": lambda: os.mkfifo(folder / name, 0o600),
        "directory": lambda: (folder / name).mkdir(),
    }[kind]()
    return target


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


def test_modes_of_new_files_and_directories(folder):
    replace(folder, "new", b"1", mode=0o751)
    os.umask(0o027)
    replace(folder, "another", b"1", mode=0o751)
    os.umask(0)
    assert mode(folder / "new") == mode(folder / "another") == 0o751
    with Directory(folder) as directory:
        os.close(directory.open("made", os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o666))
    assert mode(folder / "made") == 0o644
    Directory(folder / "a" / "b", make_mode=0o700).__exit__()
    assert mode(folder / "a") == mode(folder / "a" / "b") == 0o700


@pytest.mark.parametrize("kind", ["symbolic link", "dangling link", "pipe", "directory"])
def test_only_regular_files_are_replaced_removed_and_written(folder, kind):
    target = plant(folder, "name", kind)
    reason = "name' is a symbolic link" if kind.endswith("link") else "name' is not a regular file"
    before = (folder / "name").lstat()
    with Directory(folder) as directory:
        with pytest.raises(UntrustedError, match=reason):
            replace(folder, "name", b"new")
        with pytest.raises(UntrustedError, match=reason):
            directory.remove("name")
        with pytest.raises(OSError), directory.locked("name"):
            pass
    assert (folder / "name").lstat() == before and target.read_bytes() == b"precious"
    assert sorted(os.listdir(folder)) == ["file", "name"] and not (folder.parent / "nowhere").exists()


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY | os.O_CREAT])
def test_a_hard_link_is_not_written(folder, flags):
    target = plant(folder, "name", "hard link")
    with Directory(folder) as directory:
        with pytest.raises(UntrustedError, match="name' has 2 hard links, which would all change: delete it"):
            directory.open("name", flags)
        with pytest.raises(UntrustedError, match="has 2 hard links"), directory.locked("name"):
            pass
        assert directory.read("name", limit=9) == b"precious", "reading changes nothing"
        replace(folder, "name", b"new")
        assert (folder / "name").read_bytes() == b"new" and target.read_bytes() == b"precious"


def test_files_are_removed(folder):
    chown = folder / "other"
    chown.write_bytes(b"")
    with Directory(folder) as directory:
        for name in ("file", "file", "none", "n" * 300):
            directory.remove(name)
        assert directory.names() == ["other"]
        chown_to_nobody(chown)
        with pytest.raises(UntrustedError, match="other' belongs to user"):
            directory.remove("other")
    assert chown.exists()


def test_one_holds_the_lock(folder):
    with Directory(folder) as directory:
        with directory.locked("lock") as held:
            assert os.fstat(held).st_ino == (folder / "lock").stat().st_ino and mode(folder / "lock") == 0o600
            for _ in range(2):
                with directory.locked("lock", wait=False) as second:
                    assert second is None
        with pytest.raises(BlockingIOError), directory.locked("lock"):
            raise BlockingIOError("of the block itself")
        with directory.locked("lock", wait=False) as third:
            assert third is not None


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_file_reaches_the_disk_before_its_name(folder, is_durable, monkeypatch):
    calls = []
    replace_file = os.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: calls.append((os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd).st_size))
    )
    monkeypatch.setattr(os, "replace", lambda *names, **fds: (calls.append("named"), replace_file(*names, **fds)))
    replace(folder, "new", b"12345", is_durable=is_durable)
    if not is_durable:
        assert calls == ["named"]
        return
    (unfinished, size), named, (synced, _) = calls
    assert os.path.basename(unfinished).startswith(disk.TEMPORARY_PREFIX) and size == 5
    assert named == "named" and synced == str(folder)


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
