"""Parses and crops damaged JPEGs, and parses PNGs and WebPs, with a sanitized library.

tests/kernels/test_sanitizers.py runs it in a process. Each file is an allocation of exactly its size, so that reading
one byte too many is out of bounds.
"""

from __future__ import annotations

import ctypes
import functools
import os
import random
import sys
from pathlib import Path

from PIL import Image

from tests.fuzz.mutations import mutate
from tests.support.codec.encoded_images import app1, encode, jpeg_with, tiff_block
from tests.support.codec.index_files import forge, forged_record
from tests.support.codec.originals import ORIGINALS

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype, LIBC.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
LIBC.free.restype, LIBC.free.argtypes = None, [ctypes.c_void_p]


def main(path: str, count: int) -> None:
    library = ctypes.CDLL(path)
    library.cuaug_tiff_orientation.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    library.cuaug_count_scans.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    library.cuaug_jpeg_headers.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    library.cuaug_crop_jpeg.argtypes = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3]
    library.cuaug_crop_jpeg.argtypes += [ctypes.c_int64, ctypes.c_void_p]
    library.cuaug_crop_jpeg.restype = ctypes.c_int64
    jpegs = [data for name, data in ORIGINALS.items() if name.startswith("jpeg")]
    noise = Image.effect_noise((200, 96), 60)
    rows = [encode(noise.convert(mode), "JPEG", quality=q) for mode in ("L", "RGB") for q in (60, 95)]
    rows += [encode(noise.convert("YCbCr"), "JPEG", subsampling=factors, optimize=True) for factors in range(3)]
    jpegs += rows * 3
    rotated = jpeg_with(app1(tiff_block(6)))
    files = [rotated[:n] for n in range(len(rotated) + 1)]
    files += [data[:n] for data in jpegs for n in range(0, min(len(data), 1200))]
    blocks = [tiff_block(6, order)[:n] for order in "<>" for n in range(len(tiff_block(6)) + 1)]
    rng = random.Random(0)
    for _ in range(count):
        files.append(mutate(rng, rng.choice(jpegs), rng.choice(jpegs))[0])
        block = bytearray(rng.choice(blocks))
        for _ in range(rng.randrange(3) if block else 0):
            block[rng.randrange(len(block))] = rng.randrange(256)
        blocks.append(bytes(block))
    for block in blocks:
        address = exact(bytes(block))
        library.cuaug_tiff_orientation(address, len(block))
        LIBC.free(address)
    sound = 0
    for start in range(0, len(files), 7):
        held = [exact(data) for data in files[start : start + 7]]
        n = len(held)
        out = exact(bytes(20 * n))
        sizes = (ctypes.c_int64 * n)(*map(len, files[start : start + 7]))
        library.cuaug_jpeg_headers((ctypes.c_void_p * n)(*held), sizes, n, 500, 1 << 30, ctypes.c_void_p(out))
        for address, data in zip(held, files[start : start + 7], strict=True):
            library.cuaug_count_scans(address, len(data))
        sound += sum(value > 0 for value in (ctypes.c_int32 * (5 * n)).from_address(out)[3::5])
        for address in (*held, out):
            LIBC.free(address)
    others = [data for name, data in ORIGINALS.items() if name.startswith(("png", "webp"))]
    others += [mutate(rng, rng.choice(others), rng.choice(others))[0] for _ in range(count)]
    sized = sum(has_first_header(library, data) for data in files + others)
    i32, i64 = ctypes.c_int32, ctypes.c_int64
    library.cuaug_jpeg_index_new.argtypes, library.cuaug_jpeg_index_new.restype = [i32, i64, i64, i32], ctypes.c_void_p
    library.cuaug_jpeg_index_delete.argtypes = [ctypes.c_void_p]
    path = Path(f"/proc/self/fd/{os.memfd_create('index')}")
    crops = crop_all(library, rng, files * 3, path)
    sound_index = path.read_bytes()
    for kind in ("at", "dc", "count", "distance", "components"):
        path.write_bytes(sound_index)
        forge(path, functools.partial(forged_record, rng, kind))
        crop_all(library, rng, files, path)
    print(sound, "of", len(files), "files are sound,", crops, "crops were made,", sized, "have a size")


def has_first_header(library: ctypes.CDLL, data: bytes) -> bool:
    """Whether the beginning of a file, which lies in memory, tells its size."""
    held, out = exact(data), exact(bytes(20))
    opened = (ctypes.c_int64 * 4)(-1, len(data), held, 0)
    place = (ctypes.c_int64 * 4)(0, ctypes.addressof(opened), 0, len(data))
    assert library.cuaug_first_headers(place, ctypes.c_int64(1), ctypes.c_int64(1 << 40), ctypes.c_void_p(out)) == 0
    height = ctypes.c_int32.from_address(out).value
    for address in (held, out):
        LIBC.free(address)
    return height > 0


def crop_all(library: ctypes.CDLL, rng: random.Random, files: list[bytes], path: Path) -> int:
    """Crop files with the index at `path`; the number of crops."""
    index = library.cuaug_jpeg_index_new(os.open(path, os.O_RDWR), 1 << 30, 1, 1)
    crops = sum(crop(library, rng, data, index) for data in files)
    library.cuaug_jpeg_index_delete(index)
    return crops


def crop(library: ctypes.CDLL, rng: random.Random, data: bytes, index: int) -> bool:
    """Crop a JPEG to a region, mostly inside the image; whether that succeeded."""
    top, left = rng.randrange(30), rng.randrange(45)
    region = [top, left, top + 5, left + 5] if rng.random() < 0.9 else [rng.randrange(-70000, 70000) for _ in range(4)]
    capacity = max(0, len(data) + rng.choice((0, 64, -1, -len(data) // 2)))
    held, out, corners = exact(data), exact(bytes(capacity)), exact(bytes(32))
    written = library.cuaug_crop_jpeg(held, len(data), (ctypes.c_int64 * 4)(*region), index, out, capacity, corners)
    for address in (held, out, corners):
        LIBC.free(address)
    return written > 0


def exact(data: bytes) -> int:
    """Copy to an allocation of exactly this size."""
    address = LIBC.malloc(len(data))
    ctypes.memmove(address, data, len(data))
    return address


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
