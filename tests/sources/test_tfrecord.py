"""TFRecord: framing, checksums, protobuf messages, and files that are refused."""

from __future__ import annotations

import gzip
import os
import resource
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import DecodeError, LoaderError
from cuaug.sources import TFRecord
from cuaug.sources.shards.tfrecord import feature_values, parse_features
from tests.support.loader.further_pictures import png
from tests.support.sources.loading import load_numbers, read_all
from tests.support.sources.writers import block, example, feature, flip_bit, frame, masked_crc, varint, write_tfrecord

IMAGE, LABEL = "image/encoded", "image/class/label"

# Two records written by the packages tfrecord 1.14.6, protobuf 7.36.2 and crc32c 2.9.
REFERENCE_FILE = bytes.fromhex(
    "9700000000000000e47640f30a94010a110a047465787412090a070a056772c3bc6e0a1b0a0d696d6167652f656e636f6465"
    "64120a0a080a0689504e4700ff0a1b0a11696d6167652f636c6173732f6c6162656c12061a040a02ac020a1c0a0369647312"
    "151a130a1101ffffffffffffffffff018080808080200a120a06776569676874120812060a040000003f0a130a03626f7812"
    "0c120a0a080000803f000020c0bfb1c774410000000000000000a9c2ab0a3f0a180a0d696d6167652f656e636f6465641207"
    "0a050a0374776f0a230a11696d6167652f636c6173732f6c6162656c120e1a0c0a0af9ffffffffffffffff0117f4212c"
)


def write_file(folder: Path, *records: bytes, name: str = "a.tfrecord") -> Path:
    write_tfrecord(folder / name, list(records))
    return folder / name


def record_of(i: int) -> bytes:
    return example({IMAGE: png(i), LABEL: i})


def test_a_file_written_by_other_packages(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(REFERENCE_FILE)
    source = TFRecord(path, verify=True)
    assert read_all(source) == [(b"\x89PNG\x00\xff", 300), (b"two", -7)]
    assert source.path(1) == f"{path}[1]" and source.shard_sizes == [2]
    label = TFRecord(path, label=["text", "weight", "box", "ids"]).read(0)[1]
    assert label["text"] == "grün" and label["weight"] == 0.5
    assert label["box"].dtype == np.float32 and label["box"].tolist() == [1.0, -2.5]
    assert label["ids"].dtype == np.int64 and label["ids"].tolist() == [1, -1, 2**40]


def test_the_writer_of_these_tests_matches_the_reference():
    """protobuf does not fix the order of features."""
    fields = {"text": "grün".encode(), IMAGE: b"\x89PNG\x00\xff", LABEL: 300, "ids": [1, -1, 2**40], "weight": 0.5}
    first = example({**fields, "box": [1.0, -2.5]})
    second = example({IMAGE: b"two", LABEL: -7})
    assert frame(first) + frame(second) == REFERENCE_FILE


def test_verify(tmp_path):
    records = [record_of(i) for i in range(3)]
    path = write_file(tmp_path, *records)
    flip_bit(path, path.read_bytes().index(png(1)) + 30)
    assert TFRecord(path).read(1)[1] == 1, "not verified"
    source = TFRecord(path, verify=True)
    assert [source.read(i) for i in (0, 2)] == [(png(0), 0), (png(2), 2)]
    with pytest.raises(DecodeError, match="its checksum does not match"):
        source.read(1)
    assert load_numbers(source, on_error="skip") == ([0, 2], [0, 2])


_values = st.one_of(
    st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=6),
)


@given(st.dictionaries(st.text(min_size=1), _values), st.booleans())
def test_any_example(fields, packed):
    record = example(fields, packed)
    parsed = {name: feature_values(feature) for name, feature in parse_features(record).items()}
    assert {name: list(value) for name, value in parsed.items()} == fields
    for name, value in fields.items():
        if isinstance(value[0], float):
            assert parsed[name].dtype == np.float32
        elif isinstance(value[0], int):
            assert parsed[name].dtype == np.int64


def test_unknown_fields_are_ignored():
    """Wire types 0, 1, 2 and 5, as a later version of the messages might add."""
    more = varint(8 * 9) + varint(5) + varint(8 * 10 + 1) + bytes(8) + block(11, b"abc") + varint(8 * 12 + 5) + bytes(4)
    entry = block(1, b"name") + block(2, more + feature(7))
    record = more + block(1, more + block(1, entry))
    assert {name: feature_values(each).tolist() for name, each in parse_features(record).items()} == {"name": [7]}


def test_the_last_of_two_equal_features_counts():
    record = block(1, b"".join(block(1, block(1, b"name") + block(2, feature(value))) for value in (7, b"text")))
    assert {name: feature_values(each) for name, each in parse_features(record).items()} == {"name": [b"text"]}


def test_features_may_be_empty():
    assert not parse_features(b"")
    empty = parse_features(block(1, block(1, block(1, b"name"))))
    assert list(empty) == ["name"] and feature_values(empty["name"]) == []
    for number in (2, 3):
        (each,) = parse_features(block(1, block(1, block(1, b"name") + block(2, block(number, b""))))).values()
        assert feature_values(each).tolist() == []


def one_feature(message: bytes) -> bytes:
    """An Example with this message as its only feature."""
    return block(1, block(1, block(1, b"name") + block(2, message)))


@pytest.mark.parametrize(
    "record",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0b",
        b"\xff" * 11,
        block(1, block(1, b"\x0a\x7fname")),
        block(1, block(1, block(1, b"\xff\xfe") + block(2, b""))),
        one_feature(block(2, block(1, b"abc"))),
        one_feature(block(3, block(1, b"\x80"))),
    ],
    ids=["no length", "too short", "wire type 3", "long number", "inner", "name", "three bytes", "cut number"],
)
def test_invalid_examples_are_refused(record):
    with pytest.raises(ValueError):
        parse_features(record)


@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_give_a_value_error_or_features(data, is_feature):
    try:
        for each in parse_features(one_feature(data) if is_feature else data).values():
            feature_values(each)
    except ValueError:
        pass


@pytest.mark.parametrize("message", [varint(8 + 0) + b"\x01", block(2, varint(8 + 0) + b"\x01")], ids=["list", "float"])
def test_a_number_in_place_of_a_list_damages_its_sample(tmp_path, message):
    """protobuf takes it for a field of a later version."""
    image = block(1, block(1, IMAGE.encode()) + block(2, feature(b"i")))
    number = block(1, block(1, b"n") + block(2, message))
    source = TFRecord(write_file(tmp_path, example({IMAGE: b"i", "n": 1}), block(1, image + number)), label="n")
    assert source.read(0) == (b"i", 1)
    with pytest.raises(DecodeError, match="feature 'n' is damaged: it holds no value of its type"):
        source.read(1)


def test_labels(tmp_path):
    fields = {IMAGE: b"i", "f": 2.5, "fs": [1.0, 2.0], "n": [3, 4], "t": b"text", "ts": [b"a", b"b"]}
    fields["raw"] = b"\xff\x00"
    path = write_file(tmp_path, example(fields))
    assert TFRecord(path, label="f").read(0) == (b"i", 2.5) and TFRecord(path, label=None).read(0) == (b"i", 0)
    label = TFRecord(path, label=["fs", "n", "t", "ts"]).read(0)[1]
    assert label["fs"].tolist() == [1, 2] and label["n"].tolist() == [3, 4]
    assert label["t"] == "text" and label["ts"] == ["a", "b"]
    with pytest.raises(DecodeError, match=r"label 'raw' holds b'\\xff\\x00'.*utf-8"):
        TFRecord(path, label="raw").read(0)
    assert TFRecord(path, label="raw", decoders={"raw": list}).read(0)[1] == [255, 0]


def test_a_missing_feature_damages_its_sample(tmp_path):
    records = [record_of(0), example({LABEL: 1}), example({IMAGE: png(2)}), example({IMAGE: 3, LABEL: 3}), b"", b"\xff"]
    source = TFRecord(write_file(tmp_path, *records))
    causes = [f"no feature '{IMAGE}'", f"no feature '{LABEL}'", "must be one image", "no feature", "damaged"]
    for i, cause in enumerate(causes, start=1):
        with pytest.raises(DecodeError, match=cause):
            source.read(i)
    assert load_numbers(source, on_error="skip") == ([0], [0])


def test_unknown_features_are_refused(tmp_path):
    path = write_file(tmp_path, record_of(0))
    message = rf"the first 8 records of '.*a.tfrecord' have no feature 'label'; .* '{LABEL}', '{IMAGE}'"
    with pytest.raises(LoaderError, match=message):
        TFRecord(path, label="label")
    with pytest.raises(LoaderError, match="have no feature 'jpeg'"):
        TFRecord(path, "jpeg")


def test_several_files(tmp_path):
    for i in range(4):
        write_file(tmp_path, *(record_of(10 * i + k) for k in range(i)), name=f"train-{i:05d}-of-00004")
    source = TFRecord(f"{tmp_path}/train-*-of-00004")
    assert [source.read(i)[1] for i in range(len(source))] == [10, 20, 21, 30, 31, 32]
    assert source.shard_sizes == [1, 2, 3] and source.path(2).endswith("train-00002-of-00004[1]")
    assert len(TFRecord(f"{tmp_path}/train-{{00001..00002}}-of-00004")) == 3
    write_file(tmp_path, record_of(1), name="x.tfrecords")
    assert len(TFRecord(tmp_path)) == 1
    with pytest.raises(LoaderError, match="shards hold no sample"):
        TFRecord(f"{tmp_path}/train-00000-of-00004")


def test_a_truncated_file_is_refused(tmp_path):
    path = write_file(tmp_path, record_of(0), record_of(1))
    whole = path.read_bytes()
    boundary = len(frame(record_of(0)))
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        if size == boundary:
            assert len(TFRecord(path)) == 1
        else:
            with pytest.raises(LoaderError, match=r"a.tfrecord' is truncated: .*record [01]"):
                TFRecord(path)
    path.write_bytes(b"")
    with pytest.raises(LoaderError, match="shards hold no sample"):
        TFRecord(path)


@pytest.mark.parametrize("size", [5 * 10**9, 2**63, 2**64 - 1])
def test_huge_claimed_sizes_are_refused(tmp_path, size):
    """The checksum of the length matches."""
    path = tmp_path / "a.tfrecord"
    length = struct.pack("<Q", size)
    path.write_bytes(frame(record_of(0)) + length + masked_crc(length) + bytes(1000))
    with pytest.raises(LoaderError, match=r"a.tfrecord' is truncated: record 1 ends at byte"):
        TFRecord(path)


def test_the_scan_skips_large_records(tmp_path):
    """The file is sparse: 5 GB that take no space."""
    path = tmp_path / "a.tfrecord"
    length = struct.pack("<Q", 5 * 10**9)
    with open(path, "wb") as file:
        file.write(frame(record_of(0)) + length + masked_crc(length))
        file.seek(5 * 10**9 + 4, os.SEEK_CUR)
        file.write(frame(record_of(2)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    source = TFRecord(path)
    assert [source.encoded_size(i) for i in range(3)] == [len(record_of(0)), 5 * 10**9, len(record_of(2))]
    assert source.read(2) == (png(2), 2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(REFERENCE_FILE))
    with pytest.raises(LoaderError, match=r"is compressed \(gzip\)"):
        TFRecord(path)
    path.write_bytes(png(0))
    with pytest.raises(LoaderError, match="is no TFRecord file, or damaged: record 0, at byte 0, has a wrong length"):
        TFRecord(path)
    size = struct.unpack("<Q", REFERENCE_FILE[:8])[0] + 16
    path.write_bytes(REFERENCE_FILE)
    flip_bit(path, size)
    with pytest.raises(LoaderError, match=f"record 1, at byte {size}, has a wrong length"):
        TFRecord(path)
    path.write_bytes(frame(b"\xff\xff"))
    with pytest.raises(LoaderError, match=r"no tf.train.Example"):
        TFRecord(path)
