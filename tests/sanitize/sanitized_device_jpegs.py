"""Decodes damaged JPEGs by the kernels for GPUs in a sanitized library; test_sanitizers.py runs it.

Each file and each kind of device memory is an allocation of exactly its size.
"""

from __future__ import annotations

import ctypes
import functools
import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.mutations import mutate
from tests.sanitize.sanitized_jpegs import LIBC, exact
from tests.support.codec.index_files import forge, forged_record
from tests.support.codec.originals import ORIGINALS
from tests.support.jpeg_writer import every_kind

MAX_PIXELS = 1 << 16
_FIELDS = ["images", "blocks", "tiles", "sets", "scans", "images_at", "blocks_at", "tiles_at", "definitions_at"]
_FIELDS += ["scans_at", "statuses_at", "upload_bytes", "sample_bytes", "target_bytes", "lookup_bytes", "scan_bytes"]
_FIELDS += ["segment_bytes", "parts"]


def declare(path: str) -> Any:
    library = ctypes.CDLL(path)
    pointer, i32, i64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    for name, result, arguments in (
        ("jpeg_headers", None, [pointer, pointer, i64, i64, i64, pointer]),
        ("jpeg_index_new", pointer, [i32, i64, i64, i32]),
        ("jpeg_index_delete", None, [pointer]),
        ("device_batch_bound", i64, [pointer, i64]),
        ("device_batch_new", pointer, [pointer, i64, i64, i32, i32, i32]),
        ("device_batch_delete", None, [pointer]),
        ("device_batch_add", None, [pointer, pointer, pointer, i64, pointer, pointer]),
        ("device_batch_prepare", None, [pointer, pointer]),
        ("device_batch_finish", None, [pointer] * 3),
        ("device_batch_keep", None, [pointer] * 4),
        ("build_lookups", None, [pointer, i64, pointer]),
        ("scan_jpegs", None, [pointer, i64, pointer]),
        ("decode_jpegs", None, [pointer, pointer, i64]),
        ("color_jpegs", None, [pointer, pointer, i64]),
    ):
        function = getattr(library, f"cuaug_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def stored_size(library: Any, data: bytes) -> tuple[int, int]:
    header = (ctypes.c_int32 * 5)()
    held, size = exact(data), (ctypes.c_int64 * 1)(len(data))
    library.cuaug_jpeg_headers((ctypes.c_void_p * 1)(held), size, 1, 500, 1 << 30, header)
    LIBC.free(held)
    return (header[0], header[1]) if 0 < header[0] * header[1] <= MAX_PIXELS else (37, 53)


def make_row(library: Any, rng: random.Random, data: bytes, held: int) -> list[int]:
    """An `EncodedRegion`, mostly a part of the image."""
    height, width = stored_size(library, data)
    orientation = rng.choice((1, 1, rng.randint(1, 8)))
    if orientation > 4:
        height, width = width, height
    region = [0, 0, height, width]
    if rng.random() < 0.7:
        region[:2] = rng.randrange(height), rng.randrange(width)
        region[2:] = rng.randint(region[0] + 1, height), rng.randint(region[1] + 1, width)
    return [held, len(data), height, width, orientation, 0, 1, *region]


def decode(library: Any, rng: random.Random, files: list[bytes], index: int) -> Counter[str]:
    """Decodes a batch; what became of its files."""
    held = [exact(data) for data in files]
    rows = [make_row(library, rng, *pair) for pair in zip(files, held, strict=True)]
    count, values = len(files), [value for row in rows for value in row]
    table = (ctypes.c_int64 * len(values))(*values)
    capacity = library.cuaug_device_batch_bound(table, count)
    capacity = rng.choice((capacity, capacity, capacity // 2)) // 16 * 16
    memory = exact(bytes(capacity))
    batch = library.cuaug_device_batch_new(memory, capacity, count, *(rng.randrange(2) for _ in range(3)))
    added = (ctypes.c_uint8 * count)()
    library.cuaug_device_batch_add(batch, (ctypes.c_int64 * count)(*range(count)), table, count, index, added)
    launch, found = (ctypes.c_int64 * len(_FIELDS))(), Counter(refused=count - sum(added))
    library.cuaug_device_batch_prepare(batch, launch)
    if not any(launch):
        found["batches too large"] += 1
    else:
        found["damaged"] += run_launch(library, batch, dict(zip(_FIELDS, launch, strict=True)), memory, count, index)
        found["added"] += sum(added)
    library.cuaug_device_batch_delete(batch)
    for address in (*held, memory):
        LIBC.free(address)
    return found


def run_launch(library: Any, batch: int, launch: dict[str, int], memory: int, count: int, index: int) -> int:
    """Decodes a prepared batch, and keeps the entry points that it finds; the number of damaged files."""
    device = [LIBC.malloc(launch[f"{name}_bytes"]) for name in ("sample", "target", "lookup", "scan")]
    targets = (ctypes.c_uint64 * count)()
    library.cuaug_device_batch_finish(batch, (ctypes.c_uint64 * 5)(memory, *device), targets)
    images = memory + launch["images_at"]
    library.cuaug_build_lookups(memory + launch["definitions_at"], launch["sets"], device[2])
    library.cuaug_scan_jpegs(memory + launch["scans_at"], launch["scans"], (ctypes.c_int32 * count)())
    library.cuaug_decode_jpegs(images, memory + launch["blocks_at"], launch["blocks"])
    library.cuaug_color_jpegs(images, memory + launch["tiles_at"], launch["tiles"])
    statuses = (ctypes.c_int32 * count).from_address(memory + launch["statuses_at"])
    damaged = sum(statuses)
    library.cuaug_device_batch_keep(batch, device[3], statuses, index)
    for address in device:
        LIBC.free(address)
    return damaged


def main(path: str, count: int, seed: int = 0) -> None:
    library, rng, found = declare(path), random.Random(seed), Counter[str]()
    seeds = [data for name, data in ORIGINALS.items() if name.startswith("jpeg")] + list(every_kind().values())
    file = Path(f"/proc/self/fd/{os.memfd_create('index')}")

    def decode_all(files: list[bytes]) -> None:
        index = library.cuaug_jpeg_index_new(os.open(file, os.O_RDWR), 1 << 30, 1, 1)
        for start in range(0, len(files), 5):
            found.update(decode(library, rng, files[start : start + 5], index))
        library.cuaug_jpeg_index_delete(index)

    decode_all(seeds)
    sound = file.read_bytes()
    for kind in ("at", "dc", "count", "distance", "components") * 2:
        file.write_bytes(sound)
        forge(file, functools.partial(forged_record, rng, kind))
        decode_all(seeds)
    for start in range(0, count, 1000):
        file.write_bytes(b"")
        decode_all([mutate(rng, rng.choice(seeds), rng.choice(seeds))[0] for _ in range(min(1000, count - start))])
    print(dict(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
