"""Untrusted, damaged and stale indexes are refused."""

from __future__ import annotations

import os
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug._runtime import disk
from cuaug.sources import TarShards
from cuaug.sources.shards import shard_index as indexing
from cuaug.sources.shards import tar
from tests.fuzz import fuzz_index
from tests.support.foreign_files import chown_to_nobody
from tests.support.sources.writers import write_tar

SUFFIX = indexing.SUFFIX
COUNT = 4


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(disk, "_warned", set())
    return tmp_path / "cache" / "indexes"


@pytest.fixture
def shard(tmp_path) -> Path:
    """A tar; each sample's image and label are its number."""
    path = tmp_path / "data" / "a.tar"
    path.parent.mkdir()
    write_tar(path, {f"{i}.{field}": b"%d" % i for i in range(COUNT) for field in ("jpg", "cls")})
    return path


def samples(path: Path) -> list[tuple[bytes, int]]:
    source = TarShards(path)
    return [source.read(i) for i in range(len(source))]


EXPECTED = [(b"%d" % i, i) for i in range(COUNT)]


def load(path: Path) -> indexing.Index:
    with open(path, "rb") as file:
        return indexing.Index(indexing.Stamp.of(file.fileno()), *tar._FORMAT.scan(str(path), file))


def pack(index: indexing.Index, **arrays: object) -> bytes:
    """Serializes an index with other arrays."""
    return indexing._pack(tar._FORMAT, indexing.Index(index.stamp, index.notes, {**index.arrays, **arrays}))


def reversed_labels(path: Path) -> bytes:
    """A valid index that gives each sample another sample's label."""
    index = load(path)
    labels = index.arrays["member_field"] == index.notes["fields"].index("cls")
    arrays = {}
    for name in ("member_offset", "member_size", "member_header"):
        arrays[name] = index.arrays[name].copy()
        arrays[name][labels] = arrays[name][labels][::-1]
    return pack(index, **arrays)


def test_a_planted_index_of_this_user_is_believed(shard):
    """The tests below plant the same index as another user."""
    Path(f"{shard}{SUFFIX}").write_bytes(reversed_labels(shard))
    assert samples(shard) == [(b"%d" % i, COUNT - 1 - i) for i in range(COUNT)]


@pytest.mark.parametrize("flaw", ["other owner", "group", "others", "link"])
def test_a_planted_index_beside_the_shard_is_ignored(shard, flaw, cache, caplog):
    planted = Path(f"{shard}{SUFFIX}")
    planted.write_bytes(reversed_labels(shard))
    before = planted.read_bytes()
    if flaw == "other owner":
        chown_to_nobody(planted)
    elif flaw == "link":
        planted.rename(shard.parent / "elsewhere")
        planted.symlink_to("elsewhere")
    else:
        os.chmod(planted, 0o664 if flaw == "group" else 0o646)
    assert samples(shard) == EXPECTED
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert str(planted) in warning
    assert warning.endswith("this index and others like it there are ignored and made again")
    if flaw in ("other owner", "link"):  # replacing them could go on forever
        assert planted.read_bytes() == before and len(os.listdir(cache)) == 1
    else:
        assert planted.stat().st_mode & 0o777 == 0o644
    made = caplog.text.count("made the index of")
    assert samples(shard) == EXPECTED and caplog.text.count("made the index of") == made, "the new index is used"


def test_the_owner_of_a_shard_may_write_its_index(shard, monkeypatch):
    """The owner could as well write other labels into the shard."""
    assert samples(shard) == EXPECTED
    for path in (shard, Path(f"{shard}{SUFFIX}")):
        chown_to_nobody(path)
    monkeypatch.setattr(indexing, "_make", lambda *_: pytest.fail("the index exists"))
    assert samples(shard) == EXPECTED


def test_a_planted_index_in_the_cache_directory_is_ignored(shard, cache, caplog):
    shard = shard.rename(shard.with_name("n" * 248 + ".tar"))  # too long a name for an index beside it
    assert samples(shard) == EXPECTED
    (planted,) = cache.iterdir()
    planted.write_bytes(reversed_labels(shard))
    chown_to_nobody(planted)
    assert samples(shard) == samples(shard) == EXPECTED
    assert caplog.text.count("this index and others like it there are ignored") == 1


def test_an_untrusted_cache_directory(shard, cache, caplog):
    paths = [shard.with_name(letter * 248 + ".tar") for letter in "nm"]
    for path in paths:
        path.write_bytes(shard.read_bytes())
        assert samples(path) == EXPECTED
    assert len(os.listdir(cache)) == 2
    os.chmod(cache.parent, 0o777)
    caplog.clear()
    for _ in range(2):
        assert [samples(path) for path in paths] == [EXPECTED, EXPECTED]
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    assert "run `chmod go-w" in caplog.text


def test_a_huge_index_is_not_read(shard):
    planted = Path(f"{shard}{SUFFIX}")
    planted.write_bytes(b"")
    os.truncate(planted, 1 << 42)
    assert samples(shard) == EXPECTED and planted.stat().st_size < 10_000


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
def test_an_index_with_numbers_out_of_bounds_is_made_again(shard, edit, caplog):
    index = load(shard)
    arrays = {name: index.arrays[name].copy() for name in EDITS[edit]}
    for name, values in EDITS[edit].items():
        for row, value in values.items():
            arrays[name][row] = value
    Path(f"{shard}{SUFFIX}").write_bytes(pack(index, **arrays))
    assert samples(shard) == EXPECTED and "is damaged and is made again" in caplog.text
    caplog.clear()
    assert samples(shard) == EXPECTED and not caplog.records, "the new index is kept"


@pytest.mark.parametrize("head", [b"[" * 100_000, b"null", b"[]", b"{}", b"\xff", b'{"kind": ["tar", 3], "stamp": 3}'])
def test_an_index_with_other_json_is_made_again(shard, head, caplog):
    rest = head + b"\n"
    Path(f"{shard}{SUFFIX}").write_bytes(b"%08x\n" % zlib.crc32(rest) + rest)
    assert samples(shard) == EXPECTED and "is damaged and is made again" in caplog.text


@given(seed=st.integers(0, 2**64))
def test_random_damage_to_an_index(seed, tmp_path_factory):
    fuzz_index.run_one(random.Random(seed), tmp_path_factory.getbasetemp())


def big_shard(path: Path, order: list[int]) -> None:
    """Large first and last members keep the samples out of the stamped head and tail."""
    members = [("first.jpg", bytes(20_480))] + [(f"{i}.{f}", b"%d" % i) for i in order for f in ("jpg", "cls")]
    write_tar(path, [*members, ("last.jpg", bytes(40_960))])
    os.utime(path, ns=(10**18, 10**18))


def test_moved_members_in_a_shard_with_an_equal_stamp_are_noticed(tmp_path):
    """The CRC of the tar header before the data differs."""
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
