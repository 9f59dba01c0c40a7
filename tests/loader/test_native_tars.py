"""Tar samples read by native work: the same samples, labels, checks and errors as `TarShards.read`."""

from __future__ import annotations

import io
import os
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import DecodeError, DecodeOptions, Loader
from cuaug.sources import TarShards
from cuaug.sources.file_bytes import FileRanges
from cuaug.sources.subset_concat import ConcatSource, SubsetSource
from tests.loader.test_native_work import finish
from tests.support.codec.encoded_images import JPEG, PNG
from tests.support.loader.native_runs import read
from tests.support.sources import writers


class InPython(TarShards):
    """Its own `label` may be any code, so Python reads the samples."""

    def label(self, index: int) -> Any:
        return super().label(index)


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> str:
    writers.write_tar(path, members)
    return str(path)


def write_shards(folder: Path) -> list[str]:
    """Three shards of five JPEGs and PNGs, with class numbers."""
    paths = []
    for shard in range(3):
        members = []
        for i in range(5):
            members += [(f"{i}.jpg", (JPEG, PNG)[i % 2]), (f"{i}.cls", b"%d" % (10 * shard + i))]
        paths.append(write_tar(folder / f"{shard}.tar", members))
    return paths


def open_all(source: TarShards) -> None:
    for index in range(len(source)):
        source.read(index)


def read_natively(source: Any, indices: Sequence[int]) -> list[tuple[bytes, Any] | None]:
    """(image, label) of each sample that native code reads, else None."""
    ranges = source.locate(np.array(indices))
    finish(work := read([None] * len(indices), ranges=ranges))
    is_read, labels = work.finish()
    data = [work.read(i).tobytes() if is_read[i] else None for i in range(len(indices))]
    for image, orientation in zip(data, work.files["origin"]["header"]["orientation"], strict=True):
        assert image is None or (orientation > 0) == (image[:2] == b"\xff\xd8")
    return [None if image is None else (image, labels[i]) for i, image in enumerate(data)]


@pytest.fixture
def source(tmp_path):
    source = TarShards(write_shards(tmp_path))
    open_all(source)
    return source


def test_samples_equal_those_of_python(source):
    indices = [14, 0, 3, 3, 7]
    assert read_natively(source, indices) == [source.read(i) for i in indices]
    assert read_natively(SubsetSource(source, [4, 9]), [1, 0]) == [source.read(9), source.read(4)]


def test_joined_tars_are_read_natively(tmp_path):
    paths = write_shards(tmp_path)
    numbered = TarShards(paths[1], label=None)
    named = write_tar(tmp_path / "names.tar", [("a.jpg", JPEG), ("a.cls", b"4"), ("a.txt", b"cat"), ("b.jpg", PNG)])
    joined = ConcatSource([TarShards(paths[0]), numbered, TarShards(named, label=["cls", "txt"]), numbered])
    open_all(joined.sources[0])
    joined.read(10)
    order = [10, 6, 0, 4, 11, 16, 0]
    found = read_natively(joined, order)
    assert found == [joined.read(10), None, joined.read(0), joined.read(4), None, None, joined.read(0)]
    open_all(numbered)
    assert read_natively(joined, order)[5] == joined.read(16)
    assert ConcatSource([numbered, InPython(paths[0])]).locate(np.arange(10)) is None
    with Loader(joined, batch_size=17, device="cpu", stack=False, on_error="skip", collate_fn=list) as loader:
        for _ in range(2):
            (batch,) = loader
            assert batch.indices.tolist() == [i for i in range(17) if i != 11]


@pytest.mark.parametrize("label", [None, "json", ["cls", "txt;text", "npy"], "mask.png"])
def test_labels_equal_those_of_python(tmp_path, label):
    npy = io.BytesIO()
    np.save(npy, np.arange(5))
    labels = {"cls": b"7", "json": b'{"a": [1, 2]}', "txt": "\u00e9".encode(), "npy": npy.getvalue(), "mask.png": PNG}
    members = [(f"a.{field}", data) for field, data in labels.items()]
    path = write_tar(tmp_path / "a.tar", [("a.jpg", JPEG), *members, ("b.jpg", JPEG), ("b.text", b""), ("b.cls", b"1")])
    source = TarShards(path, label=label)
    open_all(TarShards(path, label=None))
    source._files.get()._open(source.paths[0], source._stamps[0])
    ((image, found), missing) = read_natively(source, [0, 1])
    expected_image, expected = source.read(0)
    assert image == expected_image
    np.testing.assert_equal(found, expected)
    if label is not None:  # the second sample lacks a field
        assert missing is None
        with pytest.raises(DecodeError, match="no field"):
            source.read(1)


def test_shards_that_are_not_open_are_left_to_python(tmp_path):
    source = TarShards(write_shards(tmp_path))
    source.read(6)
    assert [found is not None for found in read_natively(source, range(15))] == [5 <= i < 10 for i in range(15)]


def test_code_of_the_user_decides_about_labels(tmp_path):
    paths = write_shards(tmp_path)
    assert TarShards(paths, decoders={"cls": int}).locate(np.arange(2)) is None
    assert InPython(paths).locate(np.arange(2)) is None


def test_files_in_use_are_limited(source):
    """Batches keep their files open until they are read: beyond half of the limit, Python reads."""
    files = source._files.get()
    files._max_open = 1
    assert read_natively(source, [0]) == [None]
    files._max_open = 2
    assert read_natively(source, [0]) == [source.read(0)]


@pytest.mark.parametrize("change", ["mtime", "ctime", "content", "truncated"])
def test_a_file_that_changes_is_left_to_python(source, change):
    ranges = source.locate(np.array([0, 1, 12]))
    path = source.paths[0]
    status = os.stat(path)
    if change == "mtime":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    elif change == "ctime":
        os.chmod(path, status.st_mode ^ 0o010)
    elif change == "content":
        with open(path, "r+b") as file:
            file.seek(600)
            file.write(b"other")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.truncate(path, 700)
    finish(work := read([None] * 3, ranges=ranges))
    is_read, labels = work.finish()
    assert is_read.tolist() == [False, False, True] and labels == {2: 22}


def test_an_overwritten_header_is_an_error_of_its_sample(tmp_path):
    """The file keeps its size, time, beginning and end: only the header's checksum tells."""
    path = write_tar(tmp_path / "a.tar", [(f"{i}.jpg", JPEG + bytes(9000)) for i in range(6)])
    source = TarShards(path, label=None)
    with Loader(source, batch_size=6, device="cpu", on_error="skip", stack=False) as loader:
        list(loader)
        status, offset = os.stat(path), int(source._columns[source.image].offsets[2]) - 512
        assert 4096 < offset < status.st_size - 16_384
        time.sleep(0.01)  # file systems store time in steps of milliseconds
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(b"9")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        for _ in range(2):  # Python verifies the file's new state; in the second epoch native code reads the others
            assert next(iter(loader)).indices.tolist() == [0, 1, 3, 4, 5]
    assert [found is None for found in read_natively(source, range(6))] == [i == 2 for i in range(6)]


@given(st.binary(min_size=512, max_size=512), st.binary(max_size=3000), st.integers(0, 2**32 - 1))
def test_headers_are_checked_by_their_crc_32(tmp_path_factory, header, data, wrong):
    path = tmp_path_factory.mktemp("crc") / "file"
    path.write_bytes(header + data)
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        state = np.array([[file.fileno(), status.st_size, status.st_mtime_ns, status.st_ctime_ns]])
        crc = zlib.crc32(header)
        rows = [(0, 512, len(data), crc), (0, 512, len(data), wrong), (0, 512, len(data) + 1, crc), (-1, 0, 0, 0)]
        ranges = FileRanges([file], state, np.array(rows)[:, None], 512, lambda i, parts: i)
        finish(work := read([None] * 4, ranges=ranges))
        is_read, _ = work.finish()
        assert is_read.tolist() == [True, wrong == crc, False, False]
        assert all(work.read(i).tobytes() == data for i in np.flatnonzero(is_read).tolist())
        finish(work := read([None] * 4, ranges=ranges._replace(header_bytes=0)))
        assert work.finish()[0].tolist() == [True, True, False, False]


@given(st.binary(min_size=600, max_size=3000), st.integers(-10, 3010), st.integers(0, 3010))
def test_ranges_in_memory_lie_within_it(data, begin, size):
    memory = np.frombuffer(data, np.uint8)
    state = np.array([[-1, memory.size, memory.ctypes.data, 0]])
    crc = zlib.crc32(data[max(0, begin - 512) : max(0, begin)])
    is_inside = begin >= 0 and begin + size <= len(data)
    for header_bytes, expected in [(0, is_inside), (512, is_inside and begin >= 512)]:
        ranges = FileRanges([memory], state, np.array([[[0, begin, size, crc]]]), header_bytes, lambda i, parts: i)
        finish(work := read([None], ranges=ranges))
        assert work.finish()[0].tolist() == [expected]
        assert not expected or work.read(0).tobytes() == data[begin : begin + size]


def two_epochs(source: TarShards, **options: Any) -> list[Any]:
    """(images, labels, indices) of batches; in the second epoch the shards are open."""
    options |= {"batch_size": 4, "shuffle": True, "seed": 1, "device": "cpu", "on_error": "skip", "stack": False}
    with Loader(source, threads=2, **options) as loader:
        return [
            ([image.numpy().tobytes() for image in batch.images], batch.labels, batch.indices.tolist())
            for _ in range(2)
            for batch in loader
        ]


def test_batches_and_errors_equal_those_of_python(tmp_path, caplog):
    good = [member for i in range(7) for member in ((f"{i}.jpg", (JPEG, PNG)[i % 2]), (f"{i}.cls", b"%d" % i))]
    bad = [("x.jpg", JPEG), ("x.cls", b"cat"), ("y.jpg", JPEG), ("z.cls", b"1"), ("v.jpg", b""), ("v.cls", b"2")]
    bad += [("w.jpg", JPEG[: len(JPEG) // 2]), ("w.cls", b"3"), ("u.jpg", b"\xff\xd8" + bytes(30_000)), ("u.cls", b"4")]
    paths = [write_tar(tmp_path / "a.tar", good), write_tar(tmp_path / "b.tar", bad)]
    found, messages = [], []
    for kind in (TarShards, InPython):
        caplog.clear()
        found.append(two_epochs(kind(paths), decode=DecodeOptions(max_bytes=20_000)))
        messages.append(sorted(record.message for record in caplog.records if "skipped" in record.message))
    assert str(found[0]) == str(found[1])
    assert messages[0] == messages[1] and len(messages[0]) == 6
