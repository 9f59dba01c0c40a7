"""Damaged and hostile indexes of shards: for test_index_trust.py and longer runs."""

from __future__ import annotations

import functools
import io
import json
import os
import random
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuaug import DecodeError, LoaderError
from cuaug.sources import TarShards, TFRecord
from cuaug.sources.shards.shard_index import SUFFIX
from tests.fuzz.fuzz_files import damaged

COUNT = 4
SOURCES: dict[str, Callable[[Path], Any]] = {"a.tar": TarShards, "a.tfrecord": TFRecord}
_NUMBERS = (0, 1, -1, 2, 511, 512, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**63))
_VALUES = (None, True, -1, 0, 2**70, 0.5, "", "cls", [], {}, [[]], [None, 1], ["jpg", "jpg"], ["cls", "jpg"], {"a": 1})


def write_shard(path: Path) -> None:
    """Writes samples whose image and label are their number; always the same size, bytes and time."""
    from tests.support.sources.writers import example, frame

    if path.suffix == ".tar":
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
            for i in range(COUNT):
                for field in ("jpg", "cls"):
                    info = tarfile.TarInfo(f"{i}.{field}")
                    info.size = 1
                    archive.addfile(info, io.BytesIO(b"%d" % i))
    else:
        records = ({"image/encoded": b"%d" % i, "image/class/label": i} for i in range(COUNT))
        path.write_bytes(b"".join(frame(example(record)) for record in records))
    os.utime(path, ns=(10**18, 10**18))


@functools.cache
def whole(name: str) -> tuple[bytes, bytes]:
    """Returns (shard, index)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        write_shard(path)
        SOURCES[name](path)
        return path.read_bytes(), Path(f"{path}{SUFFIX}").read_bytes()


def edit(rng: random.Random, data: bytes) -> bytes:
    """Edits fields or array numbers and fixes the checksum, as only this user or root could."""
    _, head, body = data.split(b"\n", 2)
    fields = json.loads(head)
    target = rng.randrange(8)
    if target == 0:
        fields[rng.choice(list(fields))] = rng.choice(_VALUES)
    elif target == 1:
        del fields[rng.choice(list(fields))]
    elif target == 2:
        section = fields[rng.choice(["notes", "lengths"])]
        section[rng.choice(list(section))] = rng.choice(_VALUES)
    elif target == 3:
        lengths = fields["lengths"]
        lengths[rng.choice(list(lengths))] = rng.choice(_NUMBERS)
    else:
        numbers = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(numbers) // 4) * 4 + rng.randrange(4) * (rng.random() < 0.1)
            value = rng.choice(_NUMBERS) if rng.random() < 0.5 else rng.randint(-9, 9000)
            numbers[at : at + 8] = (value % 2**64).to_bytes(8, "little")[: len(numbers) - at]
        body = bytes(numbers)
    rest = json.dumps(fields).encode() + b"\n" + body
    return b"%08x\n" % zlib.crc32(rest) + rest


def run_one(rng: random.Random, folder: Path) -> None:
    """Opens and reads a shard beside a mutated index. Leaves nothing in `folder`.

    Raises:
        AssertionError: a label is wrong although the checksum shows the damage, or an index was not made again.
    """
    name = rng.choice(sorted(SOURCES))
    shard, index = whole(name)
    is_edit = rng.random() < 0.5
    mutant = (edit if is_edit else damaged)(rng, index)
    case_folder = Path(tempfile.mkdtemp(dir=folder))
    try:
        path = case_folder / name
        path.write_bytes(shard)
        os.utime(path, ns=(10**18, 10**18))
        index_path = Path(f"{path}{SUFFIX}")
        index_path.write_bytes(mutant)
        os.chmod(index_path, 0o644)
        try:
            source = SOURCES[name](path)
            for i in range(len(source)):
                source.path(i)
            samples = [read(source, i) for i in range(len(source))]
            source.fingerprint()
        except LoaderError:
            assert is_edit, "a damaged index is made again"
            return
        if not is_edit:
            assert samples == [(b"%d" % i, i) for i in range(COUNT)]
            assert index_path.read_bytes() == index
    finally:
        shutil.rmtree(case_folder)


def read(source: Any, index: int) -> Any:
    try:
        return source.read(index)
    except (DecodeError, OSError):
        return None
