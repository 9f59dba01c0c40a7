"""LMDB: keys, labels, values with more than an image, shared environments, and damage."""

from __future__ import annotations

import gc
import os
import shutil
import struct
from collections import deque
from pathlib import Path

import pytest

from cuaug import DecodeError, LoaderError
from cuaug.sources import Lmdb
from tests.support.loader.further_pictures import png
from tests.support.loader.programs import run
from tests.support.sources.loading import load, load_numbers, read_all
from tests.support.sources.writers import overwrite, split_value, value_page_at, write_environment

lmdb = pytest.importorskip("lmdb")

ITEMS = {b"a": b"1", b"b/x": b"2", b"\xff\x00": b"3"}


def environment(folder: Path, items=ITEMS, name: str = "db") -> Path:
    write_environment(folder / name, items)
    return folder / name


def test_all_keys_in_order(tmp_path):
    source = Lmdb(environment(tmp_path))
    assert source.keys == sorted(ITEMS) and read_all(source) == [(b"1", 0), (b"2", 1), (b"3", 2)]
    names = [source.path(i).removeprefix(str(tmp_path)) for i in range(3)]
    assert names == ["/db[a]", "/db[b/x]", "/db[ff00]"]


@pytest.mark.parametrize(
    "labels",
    [[10, 20], (10, 20), {"b/x": 10, b"a": 20, "other": 3}, deque([10, 20])],
    ids=["list", "tuple", "mapping", "deque"],
)
def test_given_keys_and_labels(tmp_path, labels):
    path = environment(tmp_path)
    for keys in (["b/x", b"a"], iter([b"b/x", "a"])):
        source = Lmdb(path, keys=keys, labels=labels)
        assert read_all(source) == [(b"2", 10), (b"1", 20)] and source.label(1) == 20


def test_decode(tmp_path):
    path = environment(tmp_path, {b"x": struct.pack("<i", 7) + png(3), b"y": b"", b"z": struct.pack("<i", 8) + png(4)})
    source = Lmdb(path, decode=split_value)
    assert source.read(0) == (png(3), 7) and source.label(2) == 8
    with pytest.raises(struct.error):
        source.read(1)

    def checked_split(key: bytes, value: bytes):
        if len(value) < 4:
            raise ValueError(f"{len(value)} bytes of {key!r}")
        return split_value(key, value)

    source = Lmdb(path, decode=checked_split)
    with pytest.raises(DecodeError, match="decode refuses the value: 0 bytes of b'y'"):
        source.read(1)
    assert load_numbers(source, on_error="skip") == ([3, 4], [7, 8])


def test_a_missing_key_damages_its_sample(tmp_path):
    source = Lmdb(environment(tmp_path), keys=["a", "c"])
    with pytest.raises(DecodeError, match="there is no such key"):
        source.read(1)
    with pytest.raises(DecodeError):
        load(source)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": []}, "keys is empty"),
        ({"keys": ["a", 5]}, "keys must be bytes or strings, not 5"),
        ({"labels": {1: 1}}, "keys must be bytes or strings, not 1"),
        ({"labels": [1]}, r"labels has 1 entries for 3 keys"),
        ({"labels": {"a": 1}}, r"labels lack 2 of the 3 keys of .*; the first is 'b/x'"),
        ({"labels": [1, 2, 3], "decode": split_value}, "labels and decode exclude each other"),
    ],
)
def test_invalid_arguments_are_refused(tmp_path, arguments, message):
    with pytest.raises(LoaderError, match=message):
        Lmdb(environment(tmp_path), **arguments)


def test_a_single_file(tmp_path):
    with lmdb.open(str(tmp_path / "x.mdb"), subdir=False) as db, db.begin(write=True) as transaction:
        transaction.put(b"k", b"v")
    assert read_all(Lmdb(tmp_path / "x.mdb")) == [(b"v", 0)]


def test_sources_of_one_environment_share_it(tmp_path):
    """LMDB allows one open environment per file; the last source closes it."""
    path = environment(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(path)
    train, test = Lmdb(path, keys=["a"]), Lmdb(link, keys=["b/x"])
    assert (read_all(train), read_all(test)) == ([(b"1", 0)], [(b"2", 0)])
    del train
    assert read_all(test) == [(b"2", 0)]
    del test
    gc.collect()
    with lmdb.open(str(path)) as db, db.begin(write=True) as transaction:
        transaction.put(b"a", b"new")
    assert Lmdb(path).read(0) == (b"new", 0)


def test_an_environment_that_is_replaced(tmp_path):
    path = environment(tmp_path)
    old = Lmdb(path)
    shutil.rmtree(path)
    environment(tmp_path, {b"a": b"other"})
    assert read_all(Lmdb(path)) == [(b"other", 0)] and read_all(old)[0] == (b"1", 0)


def test_an_environment_open_for_writing_is_refused(tmp_path):
    path = environment(tmp_path)
    with lmdb.open(str(path)), pytest.raises(LoaderError, match=r"cannot open .*already open in this process"):
        Lmdb(path)
    assert len(Lmdb(path)) == 3


@pytest.mark.slow
def test_a_forked_child_ends_with_an_inherited_environment(tmp_path):
    """On closing it, lmdb would wait for readers that exist only in the parent."""
    path = environment(tmp_path, {b"%d" % i: bytes(100_000) for i in range(20)})
    program = f"""
import gc, os, threading
from cuaug.sources import Lmdb
source = Lmdb({str(path)!r})
def keep_reading():
    while True:
        source.read(3)
for _ in range(4):
    threading.Thread(target=keep_reading, daemon=True).start()
for _ in range(8):
    child = os.fork()
    if not child:
        source.read(1)
        del source
        gc.collect()
        os._exit(0 if Lmdb({str(path)!r}).read(2)[1] == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
print("done", flush=True)
os._exit(0)
"""
    assert run(program) == "done\n"


def test_missing_and_empty_environments(tmp_path):
    with pytest.raises(LoaderError, match=r"is no LMDB environment: No such file"):
        Lmdb(tmp_path / "none")
    with pytest.raises(LoaderError, match=r"No such file or directory: '.*data.mdb'"):
        Lmdb(tmp_path)
    (tmp_path / "x.mdb").write_bytes(b"label,path\n" * 1000)
    with pytest.raises(LoaderError, match="cannot open the LMDB environment"):
        Lmdb(tmp_path / "x.mdb")
    write_environment(tmp_path / "empty", {})
    with pytest.raises(LoaderError, match="has none: there is nothing to load"):
        Lmdb(tmp_path / "empty")


def test_a_truncated_environment_is_refused(tmp_path):
    """Reading beyond the end of a mapped file would end the process."""
    path = environment(tmp_path, {b"%d" % i: bytes(5000) for i in range(10)})
    size = os.path.getsize(path / "data.mdb")
    for cut in (0, 100, 4096, 8192, 20_000, size - 4096, size - 1):
        copy = tmp_path / str(cut)
        shutil.copytree(path, copy)
        os.truncate(copy / "data.mdb", cut)
        with pytest.raises(LoaderError, match=r"cannot open|is truncated: its 23 pages take"):
            Lmdb(copy)
    assert len(Lmdb(path)) == 10


@pytest.mark.parametrize("count", [2, 4, 2**60])
def test_a_wrong_number_of_keys_is_refused(tmp_path, count):
    path = environment(tmp_path)
    for meta in (0, 4096):  # entry count of the main database, in both headers
        overwrite(path / "data.mdb", meta + 120, struct.pack("<Q", count))
    with pytest.raises(LoaderError, match=rf"/db' is damaged: its header claims {count} keys"):
        Lmdb(path)
    assert read_all(Lmdb(path, keys=["a"])) == [(b"1", 0)]


def test_sizes_of_values(tmp_path):
    path = environment(tmp_path, {b"%d" % i: bytes(1000 * i) for i in range(6)})
    source = Lmdb(path, keys=["0", "3", "5", "none"])
    assert [source.encoded_size(i) for i in range(4)] == [0, 3000, 5000, 0]
    overwrite(path / "data.mdb", value_page_at((path / "data.mdb").read_bytes(), b"5"), struct.pack("<Q", 2**40))
    for method in (source.encoded_size, source.read):
        with pytest.raises(DecodeError, match=r"LMDB cannot read it: .*MDB_"):
            method(2)


def test_damaged_values_still_have_a_fingerprint(tmp_path):
    """A state can still be saved."""
    path = environment(tmp_path, {b"%d" % i: bytes(5000) for i in range(6)})

    def fingerprint() -> str:
        return Lmdb(path, keys=map(str, range(6)), decode=split_value).fingerprint()

    undamaged = fingerprint()
    overwrite(path / "data.mdb", value_page_at((path / "data.mdb").read_bytes(), b"5"), struct.pack("<Q", 2**40))
    assert fingerprint() == fingerprint() != undamaged
