"""The JPEG decoder for GPUs, on its CPU build: the pixels of Pillow and nvImageCodec's CPU decoder, bit for bit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cuaug.codec import CpuDecoder, JpegIndex, read_header
from cuaug.codec.jpeg_index import IndexFile
from tests.support import strategies
from tests.support.codec.encoded_images import FORMATS, RGB, encode, encode_jpeg, without_segments
from tests.support.codec.index_files import open_descriptor
from tests.support.codec.jpeg_crops import displayed, draw_region, slice_region
from tests.support.codec.originals import ORIGINALS
from tests.support.device_jpegs import Outcome, decode, decode_rows, request
from tests.support.jpeg_writer import ADOBE_RGB, FACTORS, LONG, STANDARD, JpegWriter, every_kind, segment

CORPUS = Path(__file__).parents[1] / "corpus" / "images"
KINDS = every_kind()
sizes = st.tuples(st.integers(1, 70), st.integers(1, 90)) | strategies.sizes(20_000)


def stored(data: bytes) -> np.ndarray:
    """Pillow's pixels, without the EXIF orientation."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def oriented(pixels: np.ndarray, orientation: int) -> np.ndarray:
    height, width = pixels.shape[:2]
    return pixels.reshape(-1, 3)[displayed(np.arange(height * width).reshape(height, width), orientation)]


def assert_is(outcome: Outcome, expected: np.ndarray, name: str = "") -> None:
    assert outcome.pixels is not None, f"{name} was refused"
    assert not outcome.is_damaged, f"{name} is not damaged"
    np.testing.assert_array_equal(outcome.pixels, expected, err_msg=name)


# --- files that are decoded ------------------------------------------------------------------------------------------


@st.composite
def jpegs_of_pillow(draw) -> bytes:
    image = Image.fromarray(draw(strategies.images(sizes)))
    if draw(st.integers(0, 4)) == 0:
        image = image.convert("L")
    options: dict[str, Any] = {"quality": draw(st.integers(1, 100)), "optimize": draw(st.booleans())}
    if image.mode == "RGB":
        options |= draw(st.sampled_from([{"subsampling": factors} for factors in range(3)] + [{"keep_rgb": True}]))
    restarts = draw(st.sampled_from(["", "", "restart_marker_blocks", "restart_marker_rows"]))
    if restarts:
        options[restarts] = draw(st.sampled_from([1, 2, 5, 1000]))
    return encode_jpeg(image, **options)


@st.composite
def written_jpegs(draw) -> bytes:
    wide = draw(st.booleans())
    steps = draw(st.sampled_from([1, 3, 8, 40])) + np.arange(64) * draw(st.integers(0, 3))
    writer = JpegWriter(
        draw(st.sampled_from(list(FACTORS.values()))),
        steps * draw(st.sampled_from([1, 1, 6])) if wide else np.minimum(steps, 255),
        wide=wide,
        interval=draw(st.sampled_from([0, 0, 1, 2, 3, 5, 7, 1000])),
        ids=draw(st.sampled_from([(1, 2, 3), (1, 2, 3), b"RGB", (0, 7, 200)])),
        marker=draw(st.sampled_from([0xC0, 0xC1])),
        before=draw(st.sampled_from([b"", ADOBE_RGB, segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")])),
        tables=draw(st.sampled_from([STANDARD, LONG])),
    )
    size = draw(st.tuples(st.integers(1, 70), st.integers(1, 140)))
    return writer.write(*size, draw(st.integers(0, 1 << 32)), draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])))


jpegs = jpegs_of_pillow() | written_jpegs()


def compare(data: st.DataObject, files: list[bytes]) -> None:
    """Decodes a region of each as displayed in an orientation, with entry points at a drawn distance."""
    orientations = [data.draw(st.integers(1, 8)) for _ in files]
    expected = [oriented(stored(file), value) for file, value in zip(files, orientations, strict=True)]
    regions = [data.draw(st.none() | draw_region(*pixels.shape[:2])) for pixels in expected]
    index = JpegIndex(1 << 30, files=data.draw(st.sampled_from([1, 1 << 20, 1 << 22, 1 << 30])))
    outcomes = decode(files, regions, orientations, index=index)
    for file, outcome, pixels, region in zip(files, outcomes, expected, regions, strict=True):
        if outcome.pixels is None:  # its intervals are so short that their segments exceed the memory
            assert b"\xff\xdd" in file
        else:
            assert_is(outcome, pixels if region is None else slice_region(pixels, region))


@given(st.data(), st.lists(jpegs, min_size=1, max_size=3))
def test_regions_of_drawn_jpegs_equal_pillows(data, files):
    compare(data, files)


def test_every_kind_in_one_batch():
    outcomes = decode(list(KINDS.values()))
    for (name, data), outcome in zip(KINDS.items(), outcomes, strict=True):
        assert_is(outcome, stored(data), name)


@pytest.mark.parametrize("name", [name for name in KINDS if "RGB" not in name])
def test_without_fancy_upsampling(name):
    """As libjpeg does through nvImageCodec; Pillow always interpolates."""
    expected = CpuDecoder(fancy_upsampling=False).decode(read_header(KINDS[name])).copy()
    (outcome,) = decode([KINDS[name]], fancy_upsampling=False)
    assert_is(outcome, expected)
    if name in ("4:2:0", "4:2:2", "4:4:0", "subsampled luma"):
        assert (expected != stored(KINDS[name])).any()


@settings(max_examples=20)
@given(written_jpegs() | jpegs_of_pillow())
def test_drawn_jpegs_without_fancy_upsampling(data):
    header = read_header(data)
    if header.for_pillow:
        return
    (outcome,) = decode([data], fancy_upsampling=False)
    if outcome.pixels is not None:
        assert_is(outcome, CpuDecoder(fancy_upsampling=False).decode(header))


def is_ours(name: str) -> bool:
    return "jpeg" in name and not any(other in name for other in ("progressive", "cmyk", "ycck", "jpeg2000", "tiff"))


def test_the_corpus():
    files = {name: data for name, data in (FORMATS | ORIGINALS).items() if data[:2] == b"\xff\xd8"}
    files |= {path.name: path.read_bytes() for path in CORPUS.glob("jpeg*") if path.read_bytes()[:2] == b"\xff\xd8"}
    files |= {path.name: path.read_bytes() for path in CORPUS.glob("*/jpeg*") if path.is_file()}
    assert sum(map(is_ours, files)) > 30
    for (name, data), outcome in zip(files.items(), decode(list(files.values())), strict=True):
        if is_ours(name) or name == "mpo":
            assert_is(outcome, stored(data), name)
        else:
            assert outcome == Outcome(None, False), name


@pytest.mark.parametrize("quality", [1, 2, 25, 50, 99, 100])
def test_the_largest_coefficients(quality):
    """Blocks of white, black, and the sign of each of the DCT's 64 patterns: no block has larger sums."""
    i = np.arange(8)
    waves = np.cos((2 * i + 1) * i[:, None] * np.pi / 16) >= 0
    blocks = (waves[:, None, :, None] == waves[None, :, None, :]).transpose(0, 2, 1, 3).reshape(64, 64)
    levels = np.block([[blocks, ~blocks], [np.ones_like(blocks), np.zeros_like(blocks)]]) * np.uint8(255)
    data = encode(Image.fromarray(levels), "JPEG", quality=quality)
    assert_is(decode([data])[0], stored(data))


# --- entry points ----------------------------------------------------------------------------------------------------


def kept_index(path: Path, limit: int, files: int, room: int) -> JpegIndex:
    """An index in a file; `limit` bytes for each of `room` files."""
    return JpegIndex(limit * room, room * files, lambda: IndexFile(open_descriptor(path), True, str(path), 1 << 40))


def test_a_kept_index_is_used(tmp_path):
    files = [data for name, data in KINDS.items() if "restarts" not in name]
    first = kept_index(tmp_path / "index", 1 << 20, 1, 100)
    again = kept_index(tmp_path / "index", 1 << 20, 1, 100)
    for index, made in ((first, len(files)), (again, 0)):
        for outcome, data in zip(decode(files, index=index), files, strict=True):
            assert_is(outcome, stored(data))
        assert index.stats().made == made


# --- files that are refused ------------------------------------------------------------------------------------------


def patched(data: bytes, marker: int, offset: int, value: int) -> bytes:
    """One byte of the first segment with this marker, counted from the marker, replaced."""
    at = data.index(bytes((0xFF, marker))) + offset
    return data[:at] + bytes([value]) + data[at + 1 :]


def refused_files() -> dict[str, bytes]:
    color, chroma = KINDS["4:4:4"], FACTORS["4:2:0"]
    files = {name: FORMATS[f"jpeg {name}"] for name in ("progressive", "cmyk adobe", "cmyk plain", "ycck")}
    files |= {"arithmetic": patched(color, 0xC0, 1, 0xC9), "lossless": patched(color, 0xC0, 1, 0xC3)}
    files |= {"12 bits": patched(color, 0xC0, 4, 12), "png": encode(RGB, "PNG"), "nothing": b"\xff\xd8\xff"}
    files["two scans"] = color[:-2] + color[color.index(b"\xff\xda") :]
    files["a scan of one component"] = patched(color, 0xDA, 4, 1)
    files["a third"] = JpegWriter([(3, 1), (1, 1), (1, 1)]).write(20, 30, 0)
    files["three halves"] = JpegWriter([(3, 2), (2, 2), (1, 1)]).write(20, 30, 0)
    files["14 blocks"] = JpegWriter([(4, 3), (1, 1), (1, 1)]).write(20, 30, 0)
    files["16 blocks"] = JpegWriter([(4, 2), (4, 1), (4, 1)]).write(20, 30, 0)
    files["two components"] = JpegWriter([(2, 2), (1, 1)]).write(20, 30, 0)
    files |= {f"no {name}": without_segments(color, m) for name, m in {"quantizer": 0xDB, "tables": 0xC4}.items()}
    files["another quantizer"] = patched(color, 0xC0, 12, 3)
    files["another table"] = patched(color, 0xDA, 6, 0x11)
    files["a missing restart marker"] = JpegWriter(chroma, interval=2).write(40, 90, 0).replace(b"\xff\xd2", b"")
    files["restart markers in another order"] = (
        JpegWriter(chroma, interval=2).write(40, 90, 0).replace(b"\xff\xd1", b"\xff\xd4")
    )
    files["restart markers without an interval"] = without_segments(
        JpegWriter(chroma, interval=2).write(40, 90, 0), 0xDD
    )
    files["no end"] = JpegWriter(chroma).write(40, 90, 0)[:-2]
    return files


REFUSED = refused_files()


@pytest.mark.parametrize("name", REFUSED)
def test_refused_files_touch_nothing(name):
    """Neither their memory nor their neighbors."""
    sound = KINDS["4:2:0"]
    rows = np.array([request(sound)] * 3, dtype=np.int64)
    held = np.frombuffer(REFUSED[name], np.uint8)
    rows[1, :2] = held.ctypes.data, len(held)
    for size in ((37, 53), (20, 30), (40, 90)):
        rows[1, 2:4] = rows[1, 9:11] = size
        first, refused, last = decode_rows(rows)
        assert refused == Outcome(None, False)
        assert_is(first, stored(sound)), assert_is(last, stored(sound))
