"""`cuaug prepare` on tars: no member may get lost."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from cuaug.sources import TarShards
from tests.support.prepare.fake_jpegtran import MARKED, PLAIN

MEMBERS = {"0001.jpg": PLAIN, "0001.cls": b"7", "x/0002.jpg": PLAIN, "x/0002.cls": b"8"}


def write_tar(path: Path, **pax: str) -> Path:
    with tarfile.open(path, "w") as tar:
        directory = tarfile.TarInfo("x")
        directory.type = tarfile.DIRTYPE
        tar.addfile(directory)
        for name, data in MEMBERS.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 1234567
            member.pax_headers = {key: value.format(size=len(data)) for key, value in pax.items()}
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("pax", [{}, {"size": "{size}", "comment": "kept"}], ids=["plain", "sizes in PAX records"])
def test_a_tar_is_written_anew(prepared, tmp_path, pax):
    source = write_tar(tmp_path / "shard-0.tar", **pax)
    os.chmod(source, 0o640)
    os.utime(source, (7654321, 7654321))
    status, target, output, errors = prepared(source)
    file_status = (target / "shard-0.tar").stat()
    assert (file_status.st_mode & 0o777, file_status.st_mtime) == (0o640, 7654321)
    assert status == 0 and "2 JPEGs with restart markers" in output and not errors
    with tarfile.open(target / "shard-0.tar") as tar:
        assert tar.getnames() == ["x", *MEMBERS] and tar.getmembers()[0].isdir()
        read = {member.name: tar.extractfile(member).read() for member in tar.getmembers()[1:]}
        assert {member.mtime for member in tar.getmembers()[1:]} == {1234567}
        assert {member.pax_headers.get("comment") for member in tar.getmembers()[1:]} == {pax.get("comment")}
    assert read == {name: MARKED if name.endswith("jpg") else data for name, data in MEMBERS.items()}


def test_shard_indexes_are_left_out(prepared, tmp_path):
    """A prepared tar often has the size and time of its original, so the old index would count as valid."""
    source = tmp_path / "shards"
    source.mkdir()
    write_tar(source / "a.tar")
    assert len(TarShards(source)) == 2 and (source / "a.tar.cuaug-index").exists()
    (tmp_path / "prepared").mkdir()
    shutil.copy(source / "a.tar.cuaug-index", tmp_path / "prepared")
    _, target, output, _ = prepared(source)
    assert os.listdir(target) == ["a.tar"] and "0 other files copied" in output
    shards = TarShards(target)
    assert [shards.read(i) for i in range(2)] == [(MARKED, 7), (MARKED, 8)]


def test_a_link_in_place_of_an_index_stays(prepared, tmp_path):
    source = tmp_path / "shards"
    source.mkdir()
    write_tar(source / "a.tar")
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "a.tar.cuaug-index").symlink_to(source)
    status, target, _, errors = prepared(source)
    assert status == 1 and errors.endswith("a.tar.cuaug-index' is a symbolic link\n")
    assert os.listdir(target) == ["a.tar.cuaug-index"]


def test_a_tar_with_links_and_names_of_any_kind(prepared, tmp_path):
    path = tmp_path / "a.tar"
    odd = os.fsdecode(b"\xff\xfe.jpg")
    with tarfile.open(path, "w", encoding="utf-8", errors="surrogateescape") as tar:
        for name in (odd, "n" * 180 + ".jpg"):
            member = tarfile.TarInfo(name)
            member.size = len(PLAIN)
            tar.addfile(member, io.BytesIO(PLAIN))
        for name, kind in (("hard.jpg", tarfile.LNKTYPE), ("soft.jpg", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, odd
            tar.addfile(member)
    status, target, output, _ = prepared(path)
    assert status == 0 and "2 JPEGs with" in output
    with tarfile.open(target / "a.tar", encoding="utf-8", errors="surrogateescape") as tar:
        assert tar.getnames() == [odd, "n" * 180 + ".jpg", "hard.jpg", "soft.jpg"]
        assert tar.extractfile("hard.jpg").read() == MARKED and tar.getmember("soft.jpg").linkname == odd


def write_damaged_tar(damage: str, path: Path) -> None:
    write_tar(path)
    data = bytearray(path.read_bytes())
    second = data.index(b"0001.cls")
    if damage == "a damaged header":
        data[second + 150] ^= 1
    elif damage == "cut in a header":
        data = data[: second + 100]
    elif damage == "two archives":
        data = data * 2
    elif damage == "compressed":
        data = bytearray(gzip.compress(bytes(data)))
    elif damage == "empty":
        data = bytearray()
    else:  # a member type, with data, that tarfile skips
        data[second + 156 : second + 157] = b"D"
        data[second + 148 : second + 156] = b"        "
        data[second + 148 : second + 156] = b"%06o\0 " % sum(data[second : second + 512])
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage", ["a damaged header", "cut in a header", "two archives", "compressed", "empty", "another type"]
)
def test_a_tar_that_would_lose_a_member_is_copied_unchanged(prepared, tmp_path, damage):
    path = tmp_path / "a.tar"
    write_damaged_tar(damage, path)
    status, target, output, errors = prepared(path)
    assert status == 0 and "0 JPEGs with" in output and "1 copied unchanged" in output
    assert errors.count("\n") == 1 and f"{path} is copied unchanged: " in errors
    assert (target / "a.tar").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_a_tar_with_a_sparse_member_is_copied_unchanged(prepared, tmp_path, form):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 20)
    path = tmp_path / "a.tar"
    subprocess.run(["tar", "-S", f"--format={form}", "-cf", path, "-C", tmp_path, "sparse"], check=True)
    status, target, _, errors = prepared(path)
    assert status == 0 and "sparse" in errors and (target / "a.tar").read_bytes() == path.read_bytes()
