"""`cuaug shard` in a folder that others can write: what it did not make stays as it is, and is never followed."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands.shard_sets import Labeled, read_manifest, shard, shard_source, write_photos
from tests.support.foreign_files import chown_to_nobody

pytestmark = pytest.mark.cpu_only

NAMES = ("x-00001.tar", "x-00001.tar.cuaug-index", "x.manifest.json")


def _socket(path: Path, _: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # the names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    os.chdir(before)


def _foreign(path: Path, _: Path) -> None:
    path.write_bytes(b"another user's")
    chown_to_nobody(path)


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, home: path.symlink_to(home / "thesis"),
    "link to a folder": lambda path, home: path.symlink_to(home),
    "link to no file": lambda path, home: path.symlink_to(home / "new"),
    "hard link": lambda path, home: path.hardlink_to(home / "thesis"),
    "pipe": lambda path, home: os.mkfifo(path),
    "folder": lambda path, home: path.mkdir(),
    "file": lambda path, home: path.write_bytes(b"the user's own"),
    "socket": _socket,
    "another user's file": _foreign,
}


def snapshot(folder: Path) -> dict[str, object]:
    """What a folder holds, with the identity of each file."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        found[str(path)] = status.st_ino, status.st_mode, status.st_nlink, data
    return found


@pytest.fixture
def folders(tmp_path) -> tuple[Path, Path, Path]:
    """Photos, the folder of the set, and the user's folder with a file."""
    for name in ("out", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "thesis").write_bytes(b"precious")
    return write_photos(tmp_path, 12), tmp_path / "out", tmp_path / "home"


def run(photos: Path, out: Path) -> int:
    return shard(photos, out / "x-{:05d}.tar", "--size", "2kB")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_has_a_name_of_a_new_set_is_refused(folders, kind, name, capsys):
    photos, out, home = folders
    KINDS[kind](out / name, home)
    before = snapshot(out.parent)
    assert run(photos, out) == 1
    assert snapshot(out.parent) == before
    error = capsys.readouterr().err
    assert error.startswith("cuaug shard: ") and name in error and error.count("\n") == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_takes_the_place_of_a_set_s_file_is_refused(folders, kind, name, capsys):
    photos, out, home = folders
    assert run(photos, out) == 0
    (out / name).unlink()
    KINDS[kind](out / name, home)
    before = snapshot(out.parent)
    if kind == "file" and name.endswith(".cuaug-index"):
        assert run(photos, out) == 0  # readers replace an index that is damaged, too
        return
    capsys.readouterr()
    assert run(photos, out) == 1
    assert snapshot(out.parent) == before
    error = capsys.readouterr().err
    assert error.startswith("cuaug shard: ") and name in error and error.count("\n") == 1


@pytest.mark.parametrize("kind", ["link", "hard link", "file", "folder"])
def test_what_takes_a_name_during_the_run_stays(folders, kind, monkeypatch, capsys):
    """Before the shard that has the name is finished."""
    _, out, home = folders
    name = "x-00001.tar"

    class Planter(Labeled):
        reads = 0

        def read(self, index):
            self.reads += 1
            if self.reads == 2 * len(self.labels) - 1:  # after the plan's reads, near the end
                KINDS[kind](out / name, home)
            return super().read(index)

    source = Planter([0] * 12)
    assert shard_source(monkeypatch, source, out / "x-{:05d}.tar", "--size", "40kB", "--threads", "1")
    assert f"{name}' exists and is not of this set" in capsys.readouterr().err
    assert (home / "thesis").read_bytes() == b"precious" and len(os.listdir(home)) == 1
    assert (
        (out / name).is_symlink()
        or (out / name).is_dir()
        or (out / name).read_bytes()
        in (
            b"precious",
            b"the user's own",
        )
    )
    assert not [path for path in os.listdir(out) if path.startswith(".")]


@pytest.mark.parametrize("name", ["x.partial", "x-00000.tar.tmp", "x.manifest.json.tmp", "notes.txt", ".0123.tar"])
def test_other_names_are_the_user_s(folders, name):
    photos, out, home = folders
    (out / name).mkdir()
    (out / name / "notes").write_bytes(b"mine")
    (out / f"{name}2").symlink_to(home)
    before = {path: found for path, found in snapshot(out.parent).items() if path != str(out)}
    assert run(photos, out) == 0
    after = snapshot(out.parent)
    assert {path: after.get(path) for path in before} == before
    assert len(read_manifest(out / "x.manifest.json")["shards"]) > 2


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_the_umask_holds_and_no_other_user_writes(folders, umask):
    photos, out, _ = folders
    before = os.umask(umask)
    try:
        assert run(photos, out) == 0
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()}
    assert modes == {0o644 & ~umask}
