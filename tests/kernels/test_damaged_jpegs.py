"""Damaged JPEGs on the CPU build of the decoder for GPUs.

A file is refused, or its status says that it is damaged, or the pixels are those of the CPU decoder: never others.
Nothing outside is written, and the neighbors in the batch keep their pixels. CUAUG_FUZZ_CASES=100000 makes a longer
run, CUAUG_FUZZ_SEED another one.
"""

from __future__ import annotations

import logging
import os
import random
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cuaug.codec import CpuDecoder, JpegIndex, read_header
from cuaug.codec.image import EncodedImage
from cuaug.codec.jpeg_index import IndexFile
from cuaug.codec.sniff import Region
from cuaug.errors import DecodeError
from tests.fuzz.mutations import mutate
from tests.support.codec.encoded_images import GRAY, encode
from tests.support.codec.index_files import Record, forge, forged_record, open_descriptor, parse
from tests.support.codec.originals import ORIGINALS
from tests.support.device_jpegs import Outcome, decode, decode_rows
from tests.support.jpeg_writer import FACTORS, STANDARD, JpegWriter, Tables, every_kind, segment

CASES = int(os.environ.get("CUAUG_FUZZ_CASES", "10000"))
SEED = int(os.environ.get("CUAUG_FUZZ_SEED", "1"))
MAX_PIXELS = 1 << 18
SEEDS = {name: data for name, data in ORIGINALS.items() if name.startswith("jpeg")} | every_kind()
SOUND = every_kind()["restarts after 5"]  # needs no index


def by_cpu(image: EncodedImage, region: Region | None = None) -> np.ndarray | str:
    """The CPU decoder's pixels, or its error."""
    try:
        return CPU.decode(image, region).copy()
    except DecodeError as error:
        return error.cause or "no cause"


def check(image: EncodedImage, region: Region, name: str, *, index: JpegIndex | None = None) -> tuple[str, str]:
    """Decodes a file and a region of it between two sound ones; what became of both: refused, damaged or fine."""
    whole = (0, 0, image.height, image.width)
    rows = np.concatenate([SOUND_ROW, image.region_row(whole), SOUND_ROW, image.region_row(region), SOUND_ROW])
    rows["is_jpeg"] = 1  # all JPEGs, also where nvImageCodec would not be asked
    outcomes = decode_rows(rows, index=index)
    for sound in outcomes[::2]:
        assert not sound.is_damaged, f"{name}: the neighbor's status changed"
        np.testing.assert_array_equal(sound.pixels, SOUND_PIXELS, f"{name}: the neighbor changed")
    first, second = outcomes[1], outcomes[3]
    return assert_never_others(first, image, None, name), assert_never_others(second, image, region, name)


def assert_never_others(outcome: Outcome, image: EncodedImage, region: Region | None, name: str) -> str:
    if outcome.pixels is None:
        return "refused"
    if outcome.is_damaged:
        return "damaged"
    expected = by_cpu(image, region)
    assert not isinstance(expected, str), f"{name}: decoded, but the CPU says: {expected}"
    np.testing.assert_array_equal(outcome.pixels, expected, f"{name}: other pixels than the CPU's")
    return "fine"


CPU = CpuDecoder()
SOUND_IMAGE = read_header(SOUND)
SOUND_ROW = SOUND_IMAGE.region_row((0, 0, SOUND_IMAGE.height, SOUND_IMAGE.width))
SOUND_PIXELS = by_cpu(SOUND_IMAGE)


def campaign(seed: int, count: int) -> Counter[str]:
    """What became of `count` damaged files."""
    found: Counter[str] = Counter()
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        original, other = rng.choice(list(SEEDS)), rng.choice(list(SEEDS.values()))
        data, mutations = mutate(rng, SEEDS[original], other)
        try:
            image = read_header(data, max_pixels=MAX_PIXELS)
        except DecodeError:
            found["no image"] += 1
            continue
        y0, x0 = rng.randrange(image.height), rng.randrange(image.width)
        region = y0, x0, rng.randint(y0 + 1, image.height), rng.randint(x0 + 1, image.width)
        found.update(check(image, region, f"seed {seed}, case {number}: {original!r} after {mutations}"))
    return found


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.ERROR, logger="cuaug")  # no line for each damaged file
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's
        yield


def test_hundreds_of_damaged_files():
    found = campaign(0, 500)
    assert min(found["fine"], found["refused"]) > 50 and found["damaged"] > 8, found


@pytest.mark.long
def test_thousands_of_damaged_files():
    found = campaign(SEED, CASES)
    assert min(found["fine"], found["refused"]) > CASES // 10 and found["damaged"] > CASES // 50, found


# --- findings: each was decoded to other pixels, or where libjpeg fails ----------------------------------------------


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1
    return data.replace(old, new)


def findings() -> dict[str, bytes]:
    color, gray = JpegWriter(FACTORS["4:4:4"]), JpegWriter([(1, 1)])
    plain, steps = gray.write(40, 50, 0), bytes([8] * 64)
    full = Tables(bytes([0, 0, 4, 8, *[0] * 12]) + STANDARD.dc[16:], STANDARD.ac)
    files = {"a code of all ones": JpegWriter([(1, 1)], tables=full).write(8, 8, 0, 0.0)}
    files["gray of factor 0"] = replaced(plain, b"\1\1\x11\0", b"\1\1\1\0")
    files["gray of factor 5"] = replaced(plain, b"\1\1\x11\0", b"\1\1\x15\0")
    files["an interval of one byte"] = color.write(20, 30, 0).replace(b"\xff\xda", b"\xff\xdd\0\3\0\xff\xda")
    files["a marker that libjpeg does not know"] = plain.replace(b"\xff\xc0", b"\xff\x02\0\2\xff\xc0")
    files["conditions of arithmetic coding"] = plain.replace(b"\xff\xc0", b"\xff\xcc\0\4\xff\xff\xff\xc0")
    files["a quantizer cut short"] = plain.replace(b"\xff\xc0", segment(0xDB, b"\0" + steps[:63]) + b"\xff\xc0")
    files["a quantizer beyond the fourth"] = plain.replace(b"\xff\xc0", segment(0xDB, b"\4" + steps) + b"\xff\xc0")
    return files


FINDINGS = findings()


@pytest.mark.parametrize("name", FINDINGS)
def test_what_libjpeg_refuses_is_refused(name):
    data = FINDINGS[name]
    row = np.array([[np.frombuffer(data, np.uint8).ctypes.data, len(data), 0, 0, 1, 0, 1, 0, 0, 0, 0]])
    for size in ((40, 50), (20, 30), (8, 8)):
        row[0, 2:4] = row[0, 9:11] = size
        assert decode_rows(row) == [Outcome(None, False)]
    with pytest.raises(DecodeError):
        CPU.decode(read_header(data))


@pytest.mark.parametrize("step", [200, 255, 4000, 40000])
@pytest.mark.parametrize("place", [0, 1, 8, 9])
def test_values_that_cpus_compute_differently_are_damage(place, step):
    """With this step a value exceeds 16 bits, where libjpeg's SIMD code saturates or wraps."""
    quantizer = np.full(64, 4)
    data = JpegWriter([(1, 1)], quantizer, wide=True).write(64, 64, 0, 1.0)
    zigzag = {0: 0, 1: 1, 8: 2, 9: 4}[place]
    at = data.index(b"\xff\xdb") + 5 + 2 * zigzag
    data = data[:at] + step.to_bytes(2, "big") + data[at + 2 :]
    assert check(read_header(data), (0, 0, 9, 9), f"step {step}")[0] == "damaged"


def test_damage_that_keeps_the_lengths_of_codes_gives_the_cpus_pixels():
    """Bits of values change, no code: only the pixels tell."""
    data, fine = encode(GRAY, "JPEG", quality=95), 0
    for bit in range(8 * data.index(b"\xff\xda") + 80, 8 * len(data) - 16, 61):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        fine += "fine" in check(read_header(bytes(changed)), (5, 5, 20, 30), f"bit {bit}")
    assert fine > 3


# --- the index -------------------------------------------------------------------------------------------------------

PLANTED = [JpegWriter(factors).write(37, 53, 1) for factors in FACTORS.values()]


def kept(path: Path) -> JpegIndex:
    return JpegIndex(1 << 30, open_file=lambda: IndexFile(open_descriptor(path), True, str(path), 1 << 30))


@pytest.mark.parametrize("kind", ["at", "dc", "distance", "count", "components"])
def test_a_planted_index_gives_the_right_pixels_or_damage(tmp_path, kind):
    path, rng, found = tmp_path / "index", random.Random(kind), Counter()
    decode(PLANTED, index=kept(path))
    sound = path.read_bytes()
    for _ in range(4):
        path.write_bytes(sound)
        forge(path, lambda record: forged_record(rng, kind, record))
        for data in PLANTED:
            found.update(check(read_header(data), (5, 5, 19, 20), kind, index=kept(path)))
    assert found["refused"] + found["damaged"] > 0 or kind in ("distance", "count", "components")


def later(record: Record) -> Record:
    dc = record.dc[record.components :] + record.dc[-record.components :]
    return record._replace(at=record.at[1:] + record.at[-1:], dc=dc)


def brighter(record: Record) -> Record:
    return record._replace(dc=[value + 5 for value in record.dc])


@pytest.mark.parametrize("change", [later, brighter])
def test_a_consistent_planted_index_is_noticed(tmp_path, change):
    """Each segment ends where the next begins; but the first one does not begin at the image's start."""
    path = tmp_path / "index"
    decode(PLANTED[:5], index=kept(path))
    forge(path, change)
    for outcome in decode(PLANTED[:5], index=kept(path)):
        assert outcome == Outcome(None, False) or outcome.is_damaged


def test_the_index_of_another_file_is_noticed(tmp_path):
    """Of the same size, as a stale index could be if its keys did not tell."""
    path = tmp_path / "index"
    files = [JpegWriter(FACTORS["4:2:0"]).write(60, 90, seed) for seed in range(2)]
    decode(files, index=kept(path))
    keys = [record.key for record in parse(path.read_bytes())]
    forge(path, lambda record: record._replace(key=keys[record.key == keys[0]]))
    for outcome in decode(files, [(20, 20, 50, 60), None], index=kept(path)):
        assert outcome.is_damaged
