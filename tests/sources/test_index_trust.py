"""Indexes that others planted, that are damaged, or that no longer fit their shard: none is believed."""

from __future__ import annotations

import io
import os
import random
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import Loader
from cuaug._runtime import trusted_files
from cuaug.sources import TarShards, TFRecord, tar_shards, tfrecord
from cuaug.sources import _index as indexing
from tests.loader.pictures import numbers_of, png
from tests.sources import fuzz_index
from tests.sources.writers import example, frame, write_tar
from tests.support.foreign_files import chown_to_nobody

SUFFIX = indexing.SUFFIX
COUNT = 4


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(trusted_files, "_warned", set())
    return tmp_path / "cache" / "indexes"


@pytest.fixture
def shard(tmp_path) -> Path:
    """A tar whose samples have their number as image and label."""
    path = tmp_path / "data" / "a.tar"
    path.parent.mkdir()
    write_tar(path, {f"{i}.{field}": b"%d" % i for i in range(COUNT) for field in ("jpg", "cls")})
    return path


def samples(path: Path) -> list[tuple[bytes, int]]:
    source = TarShards(path)
    return [source.read(i) for i in range(len(source))]


RIGHT = [(b"%d" % i, i) for i in range(COUNT)]


def load(path: Path) -> indexing.Index:
    with open(path, "rb") as file:
        return indexing.Index(indexing.Stamp.of(file.fileno()), *tar_shards._KIND.scan(str(path), file))


def pack(index: indexing.Index, **arrays: object) -> bytes:
    """An index on disk with other arrays."""
    return indexing._pack(tar_shards._KIND, indexing.Index(index.stamp, index.notes, {**index.arrays, **arrays}))


def reversed_labels(path: Path) -> bytes:
    """A whole index that gives each sample another's label."""
    index = load(path)
    labels = index.arrays["member_field"] == index.notes["fields"].index("cls")
    arrays = {}
    for name in ("member_offset", "member_size", "member_header"):
        arrays[name] = index.arrays[name].copy()
        arrays[name][labels] = arrays[name][labels][::-1]
    return pack(index, **arrays)


# --- planted ---------------------------------------------------------------------------------------------------------


def test_such_an_index_would_be_believed(shard):
    """Of this user: it is what the tests below plant."""
    Path(f"{shard}{SUFFIX}").write_bytes(reversed_labels(shard))
    assert samples(shard) == [(b"%d" % i, COUNT - 1 - i) for i in range(COUNT)]


@pytest.mark.parametrize("how", ["another's", "group", "others", "link"])
def test_one_beside_the_shard(shard, how, cache, caplog):
    planted = Path(f"{shard}{SUFFIX}")
    planted.write_bytes(reversed_labels(shard))
    before = planted.read_bytes()
    if how == "another's":
        chown_to_nobody(planted)
    elif how == "link":
        planted.rename(shard.parent / "elsewhere")
        planted.symlink_to("elsewhere")
    else:
        os.chmod(planted, 0o664 if how == "group" else 0o646)
    assert samples(shard) == RIGHT
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert str(planted) in warning and warning.endswith(
        "this index and others like it there are not used but made anew"
    )
    if how == "another's":  # who could otherwise make it anew again, and so on
        assert planted.read_bytes() == before and len(os.listdir(cache)) == 1
    else:
        assert not planted.is_symlink() and planted.stat().st_mode & 0o777 == 0o644
        assert how != "link" or (shard.parent / "elsewhere").read_bytes() == before
    made = caplog.text.count("made the index of")
    assert samples(shard) == RIGHT and caplog.text.count("made the index of") == made, "the one that was made is used"


def test_the_shards_owner_may_make_its_index(shard, monkeypatch):
    """Who could write other labels into the shard as well."""
    assert samples(shard) == RIGHT
    for path in (shard, Path(f"{shard}{SUFFIX}")):
        chown_to_nobody(path)
    monkeypatch.setattr(indexing, "_make", lambda *_: pytest.fail("it is there"))
    assert samples(shard) == RIGHT


def test_one_in_the_cache_directory(shard, cache, caplog):
    shard = shard.rename(shard.with_name("n" * 248 + ".tar"))  # too long a name for an index beside it
    assert samples(shard) == RIGHT
    (planted,) = cache.iterdir()
    planted.write_bytes(reversed_labels(shard))
    chown_to_nobody(planted)
    assert samples(shard) == samples(shard) == RIGHT
    assert caplog.text.count("this index and others like it there are not used") == 1


@pytest.mark.parametrize("how", ["0777", "another's"])
def test_a_cache_directory_that_is_not_trusted(shard, cache, how, caplog):
    paths = [shard.with_name(letter * 248 + ".tar") for letter in "nm"]
    for path in paths:
        path.write_bytes(shard.read_bytes())
        assert samples(path) == RIGHT
    assert len(os.listdir(cache)) == 2
    if how == "0777":
        os.chmod(cache.parent, 0o777)
    else:
        chown_to_nobody(cache)
    caplog.clear()
    for _ in range(2):
        assert [samples(path) for path in paths] == [RIGHT, RIGHT]
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    assert ("run `chmod go-w" if how == "0777" else "belongs to user") in caplog.text


def test_a_sticky_cache_directory(shard, cache):
    """As CUAUG_CACHE_DIR=/tmp, with a directory for this user alone in it."""
    cache.parent.mkdir()
    os.chmod(cache.parent, 0o1777)
    shard = shard.rename(shard.with_name("n" * 248 + ".tar"))
    assert samples(shard) == RIGHT and len(os.listdir(cache)) == 1 and cache.stat().st_mode & 0o777 == 0o700


def test_a_huge_index_is_not_read(shard):
    planted = Path(f"{shard}{SUFFIX}")
    planted.write_bytes(b"")
    os.truncate(planted, 1 << 42)
    assert samples(shard) == RIGHT and planted.stat().st_size < 10_000


# --- damaged ---------------------------------------------------------------------------------------------------------

BIG = 2**63 - 1
EDITS = {
    "a member beyond the file": {"member_offset": {0: 1 << 40}},
    "a member before the first header": {"member_offset": {0: 0}},
    "a member that begins before the file": {"member_offset": {0: -512}},
    "an end that overflows": {"member_size": {0: BIG}},
    "an offset that overflows": {"member_offset": {0: BIG}, "member_size": {0: BIG}},
    "a negative size": {"member_size": {1: -1}},
    "a member that ends beyond the file": {"member_size": {1: 1 << 30}},
    "no such sample": {"member_sample": {2: COUNT}},
    "a sample before the first": {"member_sample": {2: -1}},
    "no such field": {"member_field": {2: 2}},
    "a field before the first": {"member_field": {2: -1}},
    "a key that ends before it begins": {"key_ends": {1: 0}},
    "keys that end beyond the text": {"key_ends": {COUNT - 1: 99}},
}


@pytest.mark.parametrize("edit", EDITS)
def test_numbers_out_of_bounds(shard, edit, caplog):
    index = load(shard)
    arrays = {name: index.arrays[name].copy() for name in EDITS[edit]}
    for name, values in EDITS[edit].items():
        for place, value in values.items():
            arrays[name][place] = value
    Path(f"{shard}{SUFFIX}").write_bytes(pack(index, **arrays))
    assert samples(shard) == RIGHT and "is damaged and is made anew" in caplog.text
    caplog.clear()
    assert samples(shard) == RIGHT and not caplog.records, "the new one is kept"


@pytest.mark.parametrize("name", list(tar_shards._KIND.dtypes))
def test_arrays_of_other_lengths(shard, name, caplog):
    index = load(shard)
    Path(f"{shard}{SUFFIX}").write_bytes(pack(index, **{name: index.arrays[name][:-1]}))
    assert samples(shard) == RIGHT and "is damaged and is made anew" in caplog.text


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {"fields": "jpg", "digest": ""},
        {"fields": ["jpg", "jpg"], "digest": ""},
        {"fields": ["jpg", 3], "digest": ""},
    ]
    + [{"fields": ["jpg", "cls"], "digest": value} for value in (None, 3, [])],
)
def test_notes_of_other_types(shard, notes, caplog):
    index = load(shard)
    Path(f"{shard}{SUFFIX}").write_bytes(
        indexing._pack(tar_shards._KIND, index.__class__(index.stamp, notes, index.arrays))
    )
    assert samples(shard) == RIGHT and "is damaged and is made anew" in caplog.text


@pytest.mark.parametrize("head", [b"[" * 100_000, b"null", b"[]", b"{}", b"\xff", b'{"kind": ["tar", 3], "stamp": 3}'])
def test_other_json(shard, head, caplog):
    rest = head + b"\n"
    Path(f"{shard}{SUFFIX}").write_bytes(b"%08x\n" % zlib.crc32(rest) + rest)
    assert samples(shard) == RIGHT and "is damaged and is made anew" in caplog.text


@pytest.mark.parametrize("span", [(0, 1), (12, "one byte too many"), (1 << 40, 1), (12, -1), (12, BIG), (BIG, BIG)])
def test_records_out_of_bounds(tmp_path, span, caplog):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(example({"image/encoded": b"x", "image/class/label": 4})))
    kind = tfrecord._KIND
    with open(path, "rb") as file:
        index = indexing.Index(indexing.Stamp.of(file.fileno()), *kind.scan(str(path), file))
    if span[1] == "one byte too many":
        span = (12, path.stat().st_size - 12 - 4 + 1)
    spans = {name: np.array([value]) for name, value in zip(("offset", "size"), span, strict=True)}
    Path(f"{path}{SUFFIX}").write_bytes(indexing._pack(kind, indexing.Index(index.stamp, index.notes, spans)))
    assert TFRecord(path).read(0) == (b"x", 4) and "is damaged and is made anew" in caplog.text


@given(seed=st.integers(0, 2**64))
def test_an_index_that_is_damaged_anyhow(seed, tmp_path_factory):
    fuzz_index.run_one(random.Random(seed), tmp_path_factory.getbasetemp())


# --- of a shard that has changed -------------------------------------------------------------------------------------


def big_shard(path: Path, order: list[int]) -> None:
    """Of 10,240 bytes more before and after, so that the samples are neither in its head nor in its tail."""
    members = [("first.jpg", bytes(20_480))] + [(f"{i}.{f}", b"%d" % i) for i in order for f in ("jpg", "cls")]
    write_tar(path, [*members, ("last.jpg", bytes(40_960))])
    os.utime(path, ns=(10**18, 10**18))


def test_members_that_moved_in_a_shard_as_large_and_as_old(tmp_path):
    """Whose beginning and end are the same: the header before the data tells."""
    path = tmp_path / "a.tar"
    big_shard(path, [0, 1, 2])
    source = TarShards(path, label=None)
    assert [source.read(i)[0] for i in (1, 2, 3)] == [b"0", b"1", b"2"]
    big_shard(path, [2, 1, 0])
    for opened in (source, TarShards(path, label=None)):
        assert opened.read(2) == (b"1", 2)
        for i in (1, 3):
            with pytest.raises(OSError, match=r"a.tar' has changed since its index was made.*touch it, then open"):
                opened.read(i)
    os.utime(path)
    again = TarShards(path, label=None)
    assert [again.read(i)[0] for i in (1, 2, 3)] == [b"2", b"1", b"0"]


def test_a_loader_skips_members_that_moved(tmp_path):
    path = tmp_path / "a.tar"

    def write(order: list[int]) -> None:
        members = [("first.png", png(9) + bytes(20_480))] + [(f"{i}.png", png(i)) for i in order]
        write_tar(path, [*members, ("last.png", png(9) + bytes(40_960))])
        os.utime(path, ns=(10**18, 10**18))

    write([0, 1, 2])
    errors = []
    with Loader(TarShards(path, label=None), batch_size=5, on_error="skip", error_callback=errors.append) as loader:
        assert [numbers_of(images) for images, _ in loader] == [[9, 0, 1, 2, 9]]
        write([2, 1, 0])
        assert [numbers_of(images) for images, _ in loader] == [[9, 1, 9]]
    assert len(errors) == 2 and all("has changed since its index was made" in error.cause for error in errors)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_hard_links_and_long_names(tmp_path, form):
    """The data of a hard link follows another member's header; long names have headers of their own."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=form) as archive:
        for name in ("0.jpg", "n" * 300 + ".jpg", "grün.JPG"):
            info = tarfile.TarInfo(name)
            info.size = len(name)
            archive.addfile(info, io.BytesIO(b"x" * len(name)))
            link = tarfile.TarInfo(f"link-to-{name}")
            link.type, link.linkname = tarfile.LNKTYPE, name
            archive.addfile(link)
    for _ in range(2):
        source = TarShards(path, label=None)
        assert [len(source.read(i)[0]) for i in range(6)] == [5, 5, 304, 304, 8, 8]
