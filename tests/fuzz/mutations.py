"""Damages JPEGs, PNGs, WebPs and TIFFs; `originals.py` has sound files of every kind.

Blind damage flips bits and overwrites, cuts, inserts and splices bytes. Informed damage knows the segments of a JPEG,
the chunks of a PNG or WebP, and the entries of a TIFF directory: it drops, repeats, swaps and renames them, writes
hostile numbers into their headers, damages their bodies or their lengths, and corrects the checksums, so that it
reaches code behind the first checks.
"""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.support.codec.encoded_images import chunk

# --- files as lists of parts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A segment of a JPEG (`rest`: the entropy-coded data after it) a chunk of a PNG or WebP, an entry of a TIFF."""

    name: bytes
    body: bytes
    rest: bytes = b""
    lie: int = 0  # added to the written length


_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7]")  # in entropy-coded data: no stuffed byte, no restart marker


def _jpeg_parts(data: bytes) -> list[Part]:
    parts, at = [], 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        name = data[at + 1 : at + 2]
        if name == b"\xff":
            at += 1
            continue
        if name == b"\xd9":
            break
        body_end = at + 2 + (data[at + 2] << 8 | data[at + 3])
        end = body_end
        if name == b"\xda":
            found = _MARKER.search(data, body_end)
            end = found.start() if found else len(data)
        parts.append(Part(name, data[at + 4 : body_end], data[body_end:end]))
        at = end
    return parts


def _join_jpeg(parts: list[Part]) -> bytes:
    segments = [
        b"\xff" + part.name + struct.pack(">H", (len(part.body) + 2 + part.lie) & 0xFFFF) + part.body + part.rest
        for part in parts
    ]
    return b"\xff\xd8" + b"".join(segments) + b"\xff\xd9"


def _png_parts(data: bytes) -> list[Part]:
    parts, at = [], 8
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        parts.append(Part(data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return parts


def _join_png(parts: list[Part]) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", (len(part.body) + part.lie) & 0xFFFFFFFF) + chunk(part.name, part.body)[4:] for part in parts
    )


def _webp_parts(data: bytes) -> list[Part]:
    parts, at = [], 12
    while at + 8 <= len(data):
        (length,) = struct.unpack_from("<I", data, at + 4)
        parts.append(Part(data[at : at + 4], data[at + 8 : at + 8 + length]))
        at += 8 + length + (length & 1)
    return parts


def _join_webp(parts: list[Part]) -> bytes:
    body = b"WEBP" + b"".join(
        part.name
        + struct.pack("<I", (len(part.body) + part.lie) & 0xFFFFFFFF)
        + part.body
        + b"\0" * (len(part.body) & 1)
        for part in parts
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _tiff_parts(data: bytes) -> list[Part]:
    """What precedes the first directory's entries, with their number; the entries, by tag; the rest."""
    (at,) = struct.unpack_from("<I", data, 4) if len(data) >= 8 else (0,)
    if not 8 <= at <= len(data) - 2:
        return []
    (count,) = struct.unpack_from("<H", data, at)
    entries = [data[begin : begin + 12] for begin in range(at + 2, min(at + 2 + 12 * count, len(data) - 11), 12)]
    end = at + 2 + 12 * len(entries)
    return [Part(b"head", data[: at + 2]), *(Part(entry[:2], entry) for entry in entries), Part(b"tail", data[end:])]


def _join_tiff(parts: list[Part]) -> bytes:
    """The number of entries is corrected."""
    names = [part.name for part in parts]
    count = sum(len(name) == 2 for name in names) & 0xFFFF
    bodies = [
        part.body[:-2] + struct.pack("<H", count) if part.name == b"head" and b"head" not in names[:i] else part.body
        for i, part in enumerate(parts)
    ]
    return b"".join(bodies)


@dataclass(frozen=True)
class Format:
    """How a format splits into parts, and {name: (offset, bytes)} of the numbers in them."""

    split: Callable[[bytes], list[Part]]
    join: Callable[[list[Part]], bytes]
    numbers: dict[bytes, tuple[tuple[int, int], ...]]
    names: tuple[bytes, ...]
    big_endian: bool = True


_FRAME = ((0, 1), (1, 2), (3, 2), (1, 2), (3, 2), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1), (11, 1), (13, 1))
_JPEG = Format(
    _jpeg_parts,
    _join_jpeg,
    {
        **{bytes([marker]): _FRAME for marker in (0xC0, 0xC1, 0xC2)},
        b"\xda": tuple((i, 1) for i in range(10)),
        b"\xc4": tuple((i, 1) for i in range(30)),
        b"\xdb": ((0, 1), (1, 1), (65, 1)),
        b"\xdd": ((0, 2),),
        b"\xe1": tuple((i, 2) for i in range(6, 32, 2)),
        b"\xee": ((5, 2), (11, 1)),
    },
    tuple(bytes([marker]) for marker in range(0xC0, 0xFF)),
)
_PNG = Format(
    _png_parts,
    _join_png,
    {
        b"IHDR": ((0, 4), (4, 4), (0, 4), (4, 4), (8, 1), (9, 1), (10, 1), (11, 1), (12, 1)),
        b"acTL": ((0, 4), (4, 4)),
        b"fcTL": ((4, 4), (8, 4), (12, 4), (16, 4), (24, 1), (25, 1)),
        b"eXIf": tuple((i, 2) for i in range(0, 26, 2)),
        b"IDAT": ((0, 1), (1, 1), (2, 1)),
    },
    tuple(b"IHDR PLTE IDAT IEND tRNS gAMA iCCP zTXt iTXt eXIf acTL fdAT juNk".split()),
)
_WEBP = Format(
    _webp_parts,
    _join_webp,
    {
        b"VP8X": ((0, 1), (0, 1), (4, 3), (7, 3)),
        b"VP8 ": ((0, 3), (3, 3), (6, 2), (8, 2), (6, 2), (8, 2), (10, 1)),
        b"VP8L": ((0, 1), (1, 4), (1, 2), (3, 2), (5, 1)),
        b"ALPH": ((0, 1), (1, 1)),
        b"ANIM": ((0, 4), (4, 2)),
        b"ANMF": ((0, 3), (3, 3), (6, 3), (9, 3), (15, 1), (16, 4), (20, 4)),
        b"EXIF": tuple((i, 2) for i in range(0, 32, 2)),
    },
    (b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF", b"EXIF", b"ICCP", b"XMP ", b"junk"),
    big_endian=False,
)


_TIFF_TAGS = (254, 256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 284, 317, 322, 323, 324, 325, 338, 339)
_TIFF = Format(
    _tiff_parts,
    _join_tiff,
    {struct.pack("<H", tag): ((0, 2), (2, 2), (4, 4), (8, 4), (8, 2)) for tag in _TIFF_TAGS},
    tuple(struct.pack("<H", tag) for tag in _TIFF_TAGS),
    big_endian=False,
)


def _format_of(data: bytes) -> Format | None:
    if data[:2] == b"\xff\xd8":
        return _JPEG
    if data[:4] == b"\x89PNG":
        return _PNG
    return _WEBP if data[:4] == b"RIFF" else _TIFF if data[:4] == b"II*\0" else None


def split(data: bytes) -> list[Part]:
    form = _format_of(data)
    assert form is not None
    return form.split(data)


def join(like: bytes, parts: list[Part]) -> bytes:
    """Join parts to a file in the format of `like`, with correct checksums, and lengths unless `lie` is set."""
    form = _format_of(like)
    assert form is not None
    return form.join(parts)


# --- blind damage ----------------------------------------------------------------------------------------------------


def flip_bits(rng: random.Random, data: bytes, other: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def overwrite(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at, length = rng.randrange(len(data)), rng.randint(1, 40)
    return (data[:at] + _run(rng, data, length) + data[at + length :])[: len(data)]


def insert(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + _run(rng, data, rng.randint(1, 40)) + data[at:]


def delete(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.randint(1, 40) :]


def truncate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.choice((rng.randrange(len(data)), max(0, len(data) - rng.randint(1, 30))))]


def splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """The start of one file, the end of another."""
    share = rng.random()
    return data[: int(share * len(data))] + other[int(rng.choice((share, rng.random())) * len(other)) :]


def _run(rng: random.Random, data: bytes, length: int) -> bytes:
    kind, at = rng.randrange(4), rng.randrange(len(data))
    if kind == 0:
        return rng.randbytes(length)
    return (b"\0" * length, b"\xff" * length, data[at : at + length])[kind - 1]


# --- informed damage -------------------------------------------------------------------------------------------------

Parts = list[Part]


def drop(rng: random.Random, form: Format, parts: Parts, other: Parts) -> Parts:
    at = rng.randrange(len(parts))
    return parts[:at] + parts[at + 1 :]


def repeat(rng: random.Random, form: Format, parts: Parts, other: Parts) -> Parts:
    at = rng.randrange(len(parts))
    return parts[:at] + [parts[at]] * rng.choice((2, 2, 3, 50)) + parts[at + 1 :]


def swap(rng: random.Random, form: Format, parts: Parts, other: Parts) -> Parts:
    a, b = rng.randrange(len(parts)), rng.randrange(len(parts))
    out = list(parts)
    out[a], out[b] = out[b], out[a]
    return out


def borrow(rng: random.Random, form: Format, parts: Parts, other: Parts) -> Parts:
    """Insert a part of another file of the format, or replace one."""
    at = rng.randrange(len(parts))
    return parts[:at] + [rng.choice(other or parts)] + parts[at + rng.randrange(2) :]


def rename(rng: random.Random, form: Format, parts: Parts, other: Parts) -> Parts:
    return _with(rng, parts, lambda part: replace(part, name=rng.choice(form.names)))


def lie_about_length(rng: random.Random, form: Format, parts: Parts, other: Parts) -> Parts:
    by = rng.choice((-2, -1, 1, 2, rng.randint(-40, 40), 1000, 0x7FFF, 0x7FFFFFFF, -0x7FFFFFFF))
    return _with(rng, parts, lambda part: replace(part, lie=by))


def damage_body(rng: random.Random, form: Format, parts: Parts, other: Parts) -> Parts:
    change = rng.choice((flip_bits, overwrite, insert, delete, truncate))
    return _with(rng, parts, lambda part: replace(part, body=change(rng, part.body, b"") if part.body else b"?"))


def damage_rest(rng: random.Random, form: Format, parts: Parts, other: Parts) -> Parts:
    """Damage a JPEG's entropy-coded data or a PNG's scanlines; `damage_body` for other files."""
    change = rng.choice((flip_bits, overwrite, insert, delete, truncate))
    scans = [i for i, part in enumerate(parts) if part.rest]
    if scans:
        at = rng.choice(scans)
        return parts[:at] + [replace(parts[at], rest=change(rng, parts[at].rest, b""))] + parts[at + 1 :]
    coded = [part for part in parts if part.name == b"IDAT"]
    try:
        rows = zlib.decompress(b"".join(part.body for part in coded))
    except zlib.error:
        rows = b""
    if not rows:
        return damage_body(rng, form, parts, other)
    first = parts.index(coded[0])
    rest = [part for part in parts[first:] if part.name != b"IDAT"]
    return parts[:first] + [replace(coded[0], body=zlib.compress(change(rng, rows, b"")))] + rest


def hostile_number(rng: random.Random, form: Format, parts: Parts, other: Parts) -> Parts:
    """Change a number of a header: a size, count, depth, kind, identifier or offset."""
    candidates = [i for i, part in enumerate(parts) if part.name in form.numbers]
    if not candidates:
        return parts
    at = rng.choice(candidates)
    offset, size = rng.choice(form.numbers[parts[at].name])
    body = parts[at].body
    if offset + size > len(body):
        return parts
    order = "big" if form.big_endian else "little"
    old, most = int.from_bytes(body[offset : offset + size], order), 256**size - 1
    new = rng.choice(
        (0, 1, 2, 3, 4, 8, 16, 255, 256, most, most // 2, most // 2 + 1, old - 1, old + 1, 2 * old, old // 2)
        + (old ^ 1 << rng.randrange(8 * size), rng.randint(0, most), rng.randint(1, 1000), rng.randint(1, 70_000))
    )
    number = (new & most).to_bytes(size, order)
    return parts[:at] + [replace(parts[at], body=body[:offset] + number + body[offset + size :])] + parts[at + 1 :]


def _with(rng: random.Random, parts: Parts, change: Callable[[Part], Part]) -> Parts:
    at = rng.randrange(len(parts))
    return parts[:at] + [change(parts[at])] + parts[at + 1 :]


_BLIND = (flip_bits, overwrite, insert, delete, truncate, splice)
_INFORMED = (
    drop, repeat, swap, borrow, rename, lie_about_length, damage_body, damage_rest, damage_rest,
    hostile_number, hostile_number, hostile_number,
)  # fmt: skip
KINDS = frozenset(change.__name__ for change in (*_BLIND, *_INFORMED))


def mutate(rng: random.Random, data: bytes, other: bytes) -> tuple[bytes, str]:
    """Damage a file one to three times; `other` is for splicing. Also returns the names of the mutations."""
    done, damaged = [], data
    while damaged == data or (damaged and rng.random() < 0.35 and len(done) < 3):
        form = _format_of(damaged)
        parts = [] if form is None else form.split(damaged)
        if parts and rng.random() < 0.65:
            change = rng.choice(_INFORMED)
            others = form.split(other) if _format_of(other) is form else parts
            damaged = form.join(change(rng, form, parts, others))
        else:
            change = rng.choice(_BLIND)
            damaged = change(rng, damaged, other)
        done.append(change.__name__)
    return damaged, "+".join(done)
