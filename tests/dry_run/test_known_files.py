"""JPEGs that the index knows: no thread reads more of them than a batch needs, and a changed file is noticed."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuaug import transforms as T
from cuaug.errors import DecodeError, LoaderError
from cuaug.pipeline.native_work import FileReads
from cuaug.sources import TarShards
from tests.dry_run import CHAIN
from tests.support.codec.jpeg_crops import MCU, jpeg
from tests.support.run_plans import assert_same
from tests.support.sources import writers

COUNT = 12
#: Seconds until a file's times tell of any later change (kernels/cpu/file_status.h).
SETTLED = 3.2


def content(i: int) -> bytes:
    return jpeg(160 + 3 * i, 260 - 2 * i, [*MCU][i % len(MCU)], 90, orientation=i % 8 + 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """JPEGs in files and in shards, whose times tell of any later change. A test changes no file but its own."""
    folder = tmp_path_factory.mktemp("known")
    for i in range(COUNT):
        (folder / f"{i}.jpg").write_bytes(content(i))
    for shard in range(2):
        members = [(f"{i}.{kind}", data) for i in range(6 * shard, 6 * shard + 6) for kind, data in _members(i)]
        writers.write_tar(folder / f"{shard}.tar", members)
    for name in ("replaced", "shrunken2", "gone2", "overwritten2", "overwritten0", "turned", "resized"):
        (folder / f"{name}.jpg").write_bytes(content(0))
    writers.write_tar(folder / "overwritten.tar", [(f"{i}.{kind}", data) for i in (0, 8) for kind, data in _members(i)])
    time.sleep(SETTLED)
    return folder


def _members(i: int) -> list[tuple[str, bytes]]:
    return [("jpg", content(i)), ("cls", str(i).encode())]


@pytest.fixture
def known(monkeypatch):
    """The numbers of files that each batch did not read, and what to do before they are staged."""
    finish, numbers, meanwhile = FileReads.finish, list[int](), list[Any]()

    def watched(self: FileReads) -> Any:
        result = finish(self)
        if self._index is not None:  # else it is a loader's on the CPU
            numbers.append(int(np.count_nonzero(result[0] & (self.files["data"] == 0))))
            for action in meanwhile:
                action()
        return result

    monkeypatch.setattr(FileReads, "finish", watched)
    return numbers, meanwhile


def source_of(kind: str, folder: Path) -> Any:
    if kind == "files":
        return [(str(folder / f"{i}.jpg"), i) for i in range(COUNT)]
    return TarShards([str(folder / f"{shard}.tar") for shard in range(2)])


@pytest.mark.parametrize("kind", ["files", "tars"])
@pytest.mark.parametrize("chain", [CHAIN, []], ids=["crops", "whole images"])
def test_later_epochs_read_what_they_need(equal_loaders, known, folder, kind, chain):
    """In three epochs, of which at least the last knows all files. The pixels are the CPU's."""
    numbers, _ = known
    options = {"batch_size": 4 if chain else 1, "shuffle": True, "seed": 3}
    gpu = equal_loaders(source_of(kind, folder), chain, epochs=3, **options)
    per_epoch = [numbers[i : i + len(gpu)] for i in range(0, len(numbers), len(gpu))]
    assert sum(per_epoch[0]) == 0 and sum(per_epoch[-1]) == COUNT
    assert gpu.stats().decoded_by == {"kernels": 3 * COUNT}


def test_a_file_that_just_changed_is_read(loader_on, known, tmp_path):
    """Its times may stay the same when it changes once more."""
    (tmp_path / "new.jpg").write_bytes(content(0))
    loader = loader_on(True, [str(tmp_path / "new.jpg")], CHAIN)
    for _ in range(4):
        list(loader)
    assert known[0] == [0] * 4


def test_a_file_that_was_replaced_between_epochs_is_read_anew(loader_on, known, folder):
    path = folder / "replaced.jpg"
    gpu, cpu = (loader_on(gpu, [str(path)], [T.CenterCrop(100)]) for gpu in (True, False))
    for _ in range(3):
        list(gpu)
    stat, data = path.stat(), bytearray(content(0))
    data[data.index(b"\xff\xdb") + 6] += 9  # a step of a quantizer
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # only the time of change tells
    ((got, _),), ((want, _),) = gpu, cpu
    assert_same(got, want)
    assert known[0][2:4] == [1, 0]


def last_epoch(loader: Any, known: Any, change: Any) -> tuple[Any, list[DecodeError]]:
    """The batch of an epoch in which all files are known, and change before they are staged; and its errors."""
    numbers, meanwhile = known
    for _ in range(3):
        list(loader)
    assert numbers[-1] == len(loader.source)
    meanwhile.append(change)
    errors = list[DecodeError]()
    loader.error_callback = errors.append
    (batch,) = loader
    return batch, errors


@pytest.mark.parametrize(("name", "others"), [("shrunken", 2), ("gone", 2), ("overwritten", 2), ("overwritten", 0)])
def test_a_file_that_changes_before_it_is_staged_is_an_error_or_read(loader_on, known, folder, name, others):
    """Nothing of it is shown as if it were the file that was planned; the rest of the batch is."""
    path = folder / f"{name}{others}.jpg"
    paths = [str(path), str(folder / "1.jpg"), str(folder / "2.jpg")][: others + 1]
    gpu = loader_on(True, paths, [T.CenterCrop(100)], batch_size=3, on_error="skip")
    change = {
        "shrunken": lambda: path.write_bytes(content(0)[:-1]),
        "gone": path.unlink,
        "overwritten": lambda: path.write_bytes(content(0)),
    }
    batch, errors = last_epoch(gpu, known, change[name])
    assert batch.labels is not None and len(batch.images) == others + (name == "overwritten")
    reasons = {"shrunken": "the file has changed", "gone": "No such file"}
    assert [error.path for error in errors] == ([] if name == "overwritten" else [str(path)])
    assert all(reasons[name] in str(error) for error in errors)


@pytest.mark.parametrize("name", ["turned", "resized"])
def test_a_file_that_gets_another_header_is_an_error(loader_on, known, folder, name):
    """The batch is planned for the old header's size and orientation."""
    path = folder / f"{name}.jpg"
    loader = loader_on(True, [str(path)], [T.CenterCrop(100)], on_error="skip")
    new = jpeg(160, 260, 0x111111, 90, orientation=3) if name == "turned" else jpeg(260, 160, 0x111111, 80)
    batch, errors = last_epoch(loader, known, lambda: path.write_bytes(new.ljust(len(content(0)), b"\0")))
    assert not len(batch.images)
    assert [(error.path, "the file has changed" in str(error)) for error in errors] == [(str(path), True)]


def test_a_shard_that_is_overwritten_before_its_sample_is_staged_is_an_error(loader_on, known, folder):
    """Another sample may lie at the same bytes."""
    path = folder / "overwritten.tar"
    shards = TarShards([str(path), str(folder / "0.tar")])
    gpu = loader_on(True, shards, [T.CenterCrop(100)], batch_size=8, on_error="skip")
    batch, errors = last_epoch(gpu, known, lambda: path.write_bytes(path.read_bytes()))
    assert batch.labels is not None and batch.labels.tolist() == list(range(6))
    assert len(errors) == 2 and all("the file has changed" in str(error) for error in errors)


def test_too_many_open_files_are_no_damage(loader_on, known, folder):
    """on_error does not apply: the sample is sound."""
    gpu = loader_on(True, [str(folder / "3.jpg")], [T.CenterCrop(100)], on_error="skip")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with pytest.raises(LoaderError, match="not damaged"):
            last_epoch(gpu, known, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1])))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert known[0][-1] == 1
