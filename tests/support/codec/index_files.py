"""Files of JPEG indexes: opening, parsing and forging them, for test_index_file.py and the sanitized run."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HEADER, RECORD = struct.Struct("<8sQ8QQ"), struct.Struct("<QQIIIIQQ")
_MASK = (1 << 64) - 1


class Record(NamedTuple):
    """A record, at `offset` of its file. at, dc: lists of `count` and `count * components` numbers."""

    offset: int
    key: tuple[int, int]
    count: int
    components: int
    distance: int
    at: list[int]
    dc: list[int]

    @property
    def end(self) -> int:
        return self.offset + RECORD.size + -(-self.count * (4 + 2 * self.components) // 8) * 8


def checksum(keys: tuple[int, ...], data: bytes) -> int:
    """The first half of the checksum in kernels/jpeg/index_file.h."""
    sums = [(keys[chain] + len(data)) & _MASK for chain in range(4)]
    padded = data + bytes(64 - len(data) % 64)
    for at in range(0, len(padded), 16):
        first, second = struct.unpack_from("<2Q", padded, at)
        chain = at // 16 % 4
        sums[chain] = _fold(first ^ keys[4 + chain], second ^ sums[chain])
    return _fold(sums[0] ^ keys[4], sums[1]) ^ _fold(sums[2] ^ keys[5], sums[3])


def _fold(a: int, b: int) -> int:
    return (a * b & _MASK) ^ (a * b >> 64)


def keys_of(data: bytes) -> tuple[int, ...]:
    _, _, *keys, total = HEADER.unpack_from(data)
    assert checksum(tuple(keys), data[: HEADER.size - 8]) == total
    return tuple(keys)


def parse(data: bytes) -> list[Record]:
    """The records of a sound index."""
    keys, records, offset = keys_of(data), [], HEADER.size
    while offset < len(data):
        *key, count, components, distance, _, payload_sum, total = RECORD.unpack_from(data, offset)
        assert checksum(keys, data[offset : offset + RECORD.size - 8]) == total
        begin = offset + RECORD.size
        at = list(struct.unpack_from(f"<{count}I", data, begin))
        dc = list(struct.unpack_from(f"<{count * components}h", data, begin + 4 * count))
        record = Record(offset, (key[0], key[1]), count, components, distance, at, dc)
        assert checksum(keys, data[begin : record.end]) == payload_sum
        records.append(record)
        offset = record.end
    assert offset == len(data)
    return records


def pack(keys: tuple[int, ...], record: Record) -> bytes:
    """A record with valid checksums, whatever it holds."""
    payload = struct.pack(f"<{len(record.at)}I", *record.at) + struct.pack(f"<{len(record.dc)}h", *record.dc)
    payload += bytes(-len(payload) % 8)
    fields = struct.pack(
        "<QQIIIIQ", *record.key, record.count, record.components, record.distance, 0, checksum(keys, payload)
    )
    return fields + struct.pack("<Q", checksum(keys, fields)) + payload


def forge(path: Path, change: Callable[[Record], Record]) -> None:
    """Changes all records of an index, and gives them valid checksums."""
    data = path.read_bytes()
    keys = keys_of(data)
    path.write_bytes(data[: HEADER.size] + b"".join(pack(keys, change(record)) for record in parse(data)))


def forged_record(rng: random.Random, kind: str, record: Record) -> Record:
    """A record with one field changed at random; if possible, its arrays have the lengths that the fields say."""
    if kind == "at":
        at = [rng.choice((at, rng.randrange(1 << 32), at + rng.randrange(-64, 64) & 0xFFFFFFFF)) for at in record.at]
        return record._replace(at=at)
    if kind == "dc":
        return record._replace(dc=[rng.randrange(-1 << 15, 1 << 15) for _ in record.dc])
    if kind == "check":
        return record._replace(key=(record.key[0], record.key[1] ^ 1 << rng.randrange(64)))
    choices = {
        "count": (0, 1, max(record.count - 1, 0), record.count + 1, 1 << 31, (1 << 32) - 1),
        "distance": (0, 1, record.distance + 1, 1 << 31, (1 << 32) - 1),
        "components": (0, 1, 2, 4, 5, 1 << 31),
    }
    forged = record._replace(**{kind: rng.choice(choices[kind])})
    if forged.count * forged.components > 1 << 20:
        return forged
    dc_count = forged.count * forged.components
    return forged._replace(at=(record.at + [9])[: forged.count], dc=(record.dc * 5 + [9] * 4)[:dc_count])


def open_descriptor(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    return os.open(path, flags, 0o644)
