"""Containers of a few samples, damaged at random, and read through their sources.

Each function makes one container, or a batch of them, and lets only `CuaugError` pass: anything else is raised. It is a
function of `rng`, so a seed repeats a failure:

    python -m tests.fuzz.fuzz_sources hdf5 --count 3000
"""

from __future__ import annotations

import os
import random
import re
import signal
import struct
import traceback
from functools import partial
from pathlib import Path

import h5py
import lmdb
import numpy as np

from cuaug.errors import CuaugError
from cuaug.sources import Hdf5, Lmdb, TFRecord
from tests.fuzz.fuzz_files import damaged, open_and_read
from tests.support.sources.writers import block, example, feature, frame, masked_crc, varint

_LMDB_MUTANTS = 20
_LMDB_SECONDS = 100  # to end a hang
_PAGE = 4096
# By which liblmdb ends a process, as `Lmdb` documents.
_DEATHS = {signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV}
_ODD_NUMBERS = [b"\xff" * 4, b"\xff" * 8, b"\0" * 4, b"\0" * 8, b"\xff\xff\xff\x7f", struct.pack("<Q", 2**63)]


_read = partial(open_and_read, allowed=(CuaugError,))


# --- HDF5 ------------------------------------------------------------------------------------------------------------


def run_hdf5(rng: random.Random, folder: Path) -> None:
    """Encoded or decoded images, and labels, in any layout."""
    path = folder / "fuzz.h5"
    images, labels = _write_hdf5(rng, path)
    whole = path.read_bytes()
    data = damaged(rng, whole)
    if b"source" in whole and not all(heap in data for heap in _heaps(whole)):
        return  # as it opens a view, HDF5 2.0 reads its sources from a heap, and never returns from some damaged ones
    path.write_bytes(data)
    _read(lambda: Hdf5(path, images, labels, max_bytes=1 << 20, max_pixels=1 << 18))


def _heaps(data: bytes) -> list[bytes]:
    """Heaps of values of variable length, which begin with their name and size."""
    places = [match.start() for match in re.finditer(b"GCOL", data)]
    return [data[at : at + int.from_bytes(data[at + 8 : at + 16], "little")] for at in places]


def _write_hdf5(rng: random.Random, path: Path) -> tuple[str, list[str]]:
    count = rng.choice([1, 3, 6])
    bytes_rng = np.random.default_rng(rng.randrange(1000))
    chunks = rng.choice([None, 1, min(2, count)])
    with h5py.File(
        path, "w", libver=rng.choice(["earliest", "latest"]), userblock_size=rng.choice([0, 0, 512])
    ) as file:
        group = file.create_group("group", track_order=rng.random() < 0.5) if rng.random() < 0.3 else file
        compression = rng.choice([None, "gzip"]) if chunks else None
        kind = rng.choice(["variable", "variable", "opaque", "pixels", "pixels"])
        if kind == "variable":
            options = {"chunks": chunks and (chunks,), "compression": compression}
            images = group.create_dataset("images", (count,), h5py.vlen_dtype(np.uint8), **options)
            for i in range(count):
                images[i] = bytes_rng.integers(0, 256, rng.choice([1, 40, 5000]), dtype=np.uint8)
        elif kind == "opaque":
            group["images"] = np.array([np.void(bytes_rng.bytes(30)) for _ in range(count)])
        else:
            pixels = bytes_rng.integers(0, 256, (count, 6, 5, 3), dtype=np.uint8)
            compression = rng.choice([compression, "lzf"]) if chunks else None
            grid = chunks and (chunks, rng.choice([3, 6]), 5, 3)
            checks = bool(chunks) and rng.random() < 0.3
            group.create_dataset("images", data=pixels, chunks=grid, compression=compression, fletcher32=checks)
        group["numbers"] = np.arange(count)
        group["boxes"] = np.arange(4.0 * count).reshape(count, 4)
        group["names"] = [f"name {i}" * rng.choice([1, 9]) for i in range(count)]
        group["fixed"] = np.array([b"x%d" % i for i in range(count)])
        if rng.random() < 0.3:
            file["soft"] = h5py.SoftLink(group.name + "/numbers")
        at = group.name.rstrip("/")
    fields = rng.sample(["numbers", "boxes", "names", "fixed"], rng.choice([0, 1, 2]))
    return f"{at}/images", [f"{at}/{name}" for name in fields]


# --- TFRecord --------------------------------------------------------------------------------------------------------


def run_tfrecord(rng: random.Random, folder: Path) -> None:
    """Records that are damaged, mostly in frames that fit them; the index is made anew, or damaged itself."""
    path = folder / "fuzz.tfrecord"
    records = [_record(rng, i) for i in range(rng.choice([1, 3, 6]))]
    how = rng.random()
    if how < 0.5:
        k = rng.randrange(len(records))
        records[k] = damaged(rng, records[k])
    data = b"".join(map(frame, records))
    if how > 0.9:  # a length beyond the file, with a checksum that fits
        length = struct.pack("<Q", rng.choice([len(data), 5 * 10**9, 2**63, 2**64 - 1]))
        data += length + masked_crc(length) + bytes(20)
    elif how > 0.5:
        data = damaged(rng, data)
    path.write_bytes(data)
    index = Path(f"{path}.cuaug-index")
    index.unlink(missing_ok=True)
    label = rng.choice([None, "n", "text", ["n", "floats", "text"]])
    verify = rng.random() < 0.5
    _read(lambda: TFRecord(path, "image", label, verify=verify))
    if index.exists() and rng.random() < 0.3:
        index.write_bytes(damaged(rng, index.read_bytes()))
        _read(lambda: TFRecord(path, "image", label, verify=verify))


def _record(rng: random.Random, i: int) -> bytes:
    fields = {"image": rng.randbytes(rng.choice([1, 40, 300])), "n": rng.choice([i, -i, 2**63 - 1])}
    fields |= {"floats": [0.5, float(i)], "text": b"text", "numbers": list(range(i))} if rng.random() < 0.8 else {}
    fields = {name: value for name, value in fields.items() if value != []}
    record = example(fields, packed=rng.random() < 0.5)
    if rng.random() < 0.2:  # fields of later versions, and others that come twice
        record += varint(8 * 9) + varint(5) + block(1, block(1, block(1, b"n") + block(2, feature(7))))
    return record


# --- LMDB ------------------------------------------------------------------------------------------------------------


def run_lmdb(rng: random.Random, folder: Path) -> None:
    """Many damaged environments, read in a child: liblmdb may end it."""
    whole = _environment(rng, folder / "fuzz.mdb")
    mutants = [_damaged_pages(rng, whole) for _ in range(_LMDB_MUTANTS)]
    at = 0
    while at < len(mutants):
        at += _read_in_child(mutants[at:], folder)


def _environment(rng: random.Random, path: Path) -> bytes:
    path.unlink(missing_ok=True)
    with lmdb.open(str(path), subdir=False, map_size=1 << 22, lock=False) as environment:
        for _ in range(rng.choice([1, 1, 2])):
            with environment.begin(write=True) as transaction:
                for i in range(rng.choice([1, 5, 100])):
                    transaction.put(b"%05d" % i, bytes([i]) * rng.choice([1, 100, 3000, 9000]))
    return path.read_bytes()


def _damaged_pages(rng: random.Random, data: bytes) -> bytes:
    """Mostly in the headers of pages and of what is on them."""
    if rng.random() < 0.1:
        return damaged(rng, data)
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        page = rng.randrange(len(changed) // _PAGE) * _PAGE
        at = page + rng.choice([rng.randrange(16), rng.randrange(160), rng.randrange(_PAGE - 8)])
        odd = rng.choice([bytes([rng.randrange(256)]), bytes([changed[at] ^ 1 << rng.randrange(8)]), *_ODD_NUMBERS])
        changed[at : at + len(odd)] = odd
    return bytes(changed)


def _read_in_child(mutants: list[bytes], folder: Path) -> int:
    """How many were read, the last of which may have ended the child."""
    done, written = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2) if not os.environ.get("FUZZ_VERBOSE") else None
            signal.alarm(_LMDB_SECONDS)
            for i, mutant in enumerate(mutants):
                path = folder / f"{os.getpid()}-{i}.mdb"
                path.write_bytes(mutant)
                os.write(written, b".")
                _read(lambda path=path: Lmdb(path))
                path.unlink()
            os._exit(0)
        except BaseException:
            os.write(written, traceback.format_exc().encode())
            os._exit(1)
    os.close(written)
    with os.fdopen(done, "rb") as file:
        told = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for path in folder.glob(f"{child}-*.mdb"):
        path.unlink()
    begun = len(told) - len(told.lstrip(b"."))
    if status and (status > 0 or -status not in _DEATHS):
        raise AssertionError(f"the child ended with {status} at mutant {begun - 1}: {told[begun:].decode()}")
    return begun
