"""Damaged decoded caches on disk: for test_faults.py and longer runs."""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import struct
import tempfile
from pathlib import Path

from cuaug import DecodedCache, LoaderError
from tests.fuzz.fuzz_files import damaged
from tests.support.cache.cached_images import is_same, make_image

COUNT = 8
HELD = 5
_RECORD = struct.Struct("<?3xIIIQ")
_NUMBERS = (0, 1, 2, 255, 2**31, 2**32 - 1)
_VALUES = (None, -1, 0, 3, 2**70, "", [], {}, True)


def open_cache(folder: Path) -> DecodedCache:
    cache = DecodedCache(limit_bytes=1 << 20, directory=folder)
    cache.open(COUNT, {"source": "a"})
    return cache


@functools.cache
def whole() -> dict[str, bytes]:
    """The files of a cache that holds the first images."""
    with tempfile.TemporaryDirectory() as folder:
        cache = open_cache(Path(folder))
        for i in range(HELD):
            cache.put(i, make_image(i))
        cache.close()
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def edit(rng: random.Random, name: str, data: bytes) -> bytes:
    """Edits one field of a file."""
    if name == "index":
        i = rng.randrange(HELD)
        ready, checksum, height, width, offset = _RECORD.unpack_from(data, i * _RECORD.size)
        field = rng.randrange(4)
        if field == 0:
            height, width = rng.choice([(width, height), (rng.choice(_NUMBERS), rng.choice(_NUMBERS))])
        elif field == 1:
            offset = rng.choice([0, 1, len(whole()["pixels"]), 2**63, 2**64 - 1])
        elif field == 2:
            checksum ^= 1 << rng.randrange(32)
        else:
            ready, checksum, height, width, offset = _RECORD.unpack_from(data, rng.randrange(COUNT) * _RECORD.size)
        record = _RECORD.pack(ready, checksum, height, width, offset)
        return data[: i * _RECORD.size] + record + data[(i + 1) * _RECORD.size :]
    if name == "contents.json":
        contents = json.loads(data)
        contents[rng.choice([*contents, "other"])] = rng.choice(_VALUES)
        return json.dumps(contents).encode()
    if name == "lock":
        return rng.choice(_NUMBERS).to_bytes(8, "little")
    return data[: rng.randrange(len(data))]


def run_one(rng: random.Random, folder: Path) -> None:
    """Damages a cache before or after it is opened, then uses it. Leaves nothing in `folder`.

    Raises:
        AssertionError: the cache returned wrong pixels.
    """
    files = whole()
    name = rng.choice(sorted(files))
    mutant = edit(rng, name, files[name]) if rng.random() < 0.5 else damaged(rng, files[name])
    case_folder = Path(tempfile.mkdtemp(dir=folder))
    try:
        for file_name, data in files.items():
            (case_folder / file_name).write_bytes(data)
            os.chmod(case_folder / file_name, 0o600)
        before = open_cache(case_folder) if rng.random() < 0.5 else None
        if before is not None:
            _use(rng, before)
        # In place, like a disk fault: a process with the open file sees it.
        with open(case_folder / name, "r+b") as file:
            if rng.random() < 0.2:
                os.remove(case_folder / name)
            file.truncate(len(mutant))
            file.write(mutant)
        # A process does not notice changed pixels that it has already verified.
        if before is not None and (name != "pixels" or files[name].startswith(mutant)):
            _use(rng, before)
        for _ in range(2):
            try:
                _use(rng, open_cache(case_folder))
            except LoaderError as error:
                assert str(case_folder) in str(error)
    finally:
        shutil.rmtree(case_folder)


def _use(rng: random.Random, cache: DecodedCache) -> None:
    for i in rng.sample(range(COUNT), COUNT):
        result = cache.put(i, make_image(i)) if rng.random() < 0.5 else cache.get(i)
        assert result is None or is_same(result, make_image(i)), f"wrong pixels of sample {i}"
    assert cache.stats.samples <= COUNT
