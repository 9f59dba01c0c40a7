"""cuaug's own JPEG decoder: the bits of libjpeg-turbo, or a refusal that another decoder makes good."""

from __future__ import annotations

import ctypes
import io
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from cuaug._native import BEST_ISA, ISAS, KERNEL_DIRECTORY
from cuaug.codec import HostDecoder, read_header
from cuaug.codec._jpeg import decode_jpeg
from cuaug.codec.exif import orientation
from tests.codec.mutations import ORIGINALS, mutate
from tests.codec.pictures import FORMATS, GRAY, RGB, adobe_cmyk, as_pillow, encode, photo
from tests.test_sanitizers import ADDRESS, runtime

ROOT = Path(__file__).parents[2]
AVAILABLE = [isa for isa, number in ISAS.items() if number <= BEST_ISA]
GUARD = 64
MARK = 0xA5
COMMON = {name: data for name, data in FORMATS.items() if name in ("jpeg 4:44", "jpeg 4:22", "jpeg 4:20")}


def own(data: bytes, region=None, size=None, isa: str = AVAILABLE[-1]) -> np.ndarray | None:
    """The region's pixels, or None; fails where anything beside them was written to."""
    height, width = size or Image.open(io.BytesIO(data)).size[::-1]
    y0, x0, y1, x1 = region or (0, 0, height, width)
    count = (y1 - y0) * (x1 - x0) * 3
    memory = np.full(count + 2 * GUARD, MARK, dtype=np.uint8)
    taken = decode_jpeg(data, height, width, (y0, x0, y1, x1), memory.ctypes.data + GUARD, isa=isa)
    assert (memory[:GUARD] == MARK).all() and (memory[-GUARD:] == MARK).all()
    return memory[GUARD:-GUARD].reshape(y1 - y0, x1 - x0, 3) if taken else None


@st.composite
def jpegs(draw) -> tuple[bytes, tuple[int, int, int, int]]:
    """A file that an encoder writes, and a region of it."""
    h, w = draw(st.integers(1, 90)), draw(st.integers(5, 90))
    noise = draw(st.booleans())
    pixels = np.random.default_rng(h * w).integers(0, 256, (h, w, 3), dtype=np.uint8) if noise else photo(h, w, h + w)
    options = {
        "quality": draw(st.sampled_from([1, 10, 50, 75, 90, 95, 100])),
        "subsampling": draw(st.sampled_from([0, 1, 2])),
        "optimize": draw(st.booleans()),
        "restart_marker_blocks": draw(st.sampled_from([0, 0, 1, 3, 20])),
    }
    y0, x0 = draw(st.integers(0, h - 1)), draw(st.integers(0, w - 1))
    y1, x1 = draw(st.integers(y0 + 1, h)), draw(st.integers(x0 + 1, w))
    return encode(Image.fromarray(pixels), "JPEG", **options), (y0, x0, y1, x1)


@pytest.fixture(autouse=True)
def room_for_noise(monkeypatch):
    monkeypatch.setattr(ImageFile, "MAXBLOCK", 1 << 20)  # or Pillow cannot write optimised noise


@settings(max_examples=300, deadline=None)
@given(jpegs())
def test_the_bits_of_libjpeg(file):
    data, region = file
    y0, x0, y1, x1 = region
    expected = as_pillow(data)
    for isa in AVAILABLE:
        np.testing.assert_array_equal(own(data, isa=isa), expected)
        np.testing.assert_array_equal(own(data, region, isa=isa), expected[y0:y1, x0:x1])


def test_a_region_is_decoded_no_further_than_its_last_row():
    """What comes after it may be missing."""
    data = encode(Image.fromarray(photo(400, 300)), "JPEG", quality=95)
    cut = data[: len(data) // 2]
    np.testing.assert_array_equal(own(cut, (0, 0, 100, 300)), as_pillow(data)[:100])
    assert own(cut, (0, 0, 400, 300)) is None


@pytest.mark.parametrize("name", COMMON)
def test_other_sizes_than_the_header_has_are_refused(name):
    height, width = as_pillow(COMMON[name]).shape[:2]
    assert own(COMMON[name]) is not None
    for size in ((height + 1, width), (height, width - 1)):
        assert own(COMMON[name], (0, 0, 1, 1), size) is None


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff\xd8", b"\xff\xd8\xff\xd9", FORMATS["jpeg progressive"], encode(GRAY, "JPEG"), adobe_cmyk()[0],
        encode(RGB, "PNG"), encode(RGB, "JPEG", keep_rgb=True), encode(RGB.resize((4, 9)), "JPEG", subsampling=2),
    ],
    ids=["nothing", "a beginning", "no picture", "progressive", "gray", "cmyk", "png", "rgb", "narrow chroma"],
)  # fmt: skip
def test_what_it_does_not_take(data):
    assert own(data, (0, 0, 1, 1), None if len(data) > 4 else (1, 1)) is None


def test_damaged_files_look_like_libjpegs_or_are_refused():
    """Every cut, and thousands of changes: never other pixels than Pillow's, and never beyond the picture."""
    taken = 0
    for name, data in COMMON.items():
        size = as_pillow(data).shape[:2]
        whole = (0, 0, *size)
        for length in range(0, len(data) - 2, 7):
            assert own(data[:length], whole, size) is None, (name, length)
        for seed in range(1500):
            damaged = _damaged(data, seed)
            found = own(damaged, whole, size)
            if found is not None and orientation(damaged, "jpeg") == 1:  # others are Pillow's before they come here
                taken += 1
                np.testing.assert_array_equal(found, as_pillow(damaged), f"{name}, seed {seed}")
    assert taken > 300  # so the comparison was made


def _damaged(data: bytes, seed: int) -> bytes:
    """Some bytes changed, in the header and in the coded data alike."""
    rng = random.Random(seed)
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(2, len(data))] = rng.randrange(256)
    return bytes(changed)


def test_which_decoder_has_which_file(monkeypatch):
    """nvImageCodec has what is turned, what is not common, and all where chroma is not to be smoothed."""
    data = COMMON["jpeg 4:20"]
    turned = ORIGINALS["jpeg turned 6"]
    asked: list[bool] = []
    for fancy in (True, False):
        decoder = HostDecoder(fancy_upsampling=fancy)

        class Spy:
            def decode(self, *args, _decoder=decoder._decoder, **kwargs):
                asked.append(True)
                return _decoder.decode(*args, **kwargs)

        decoder._decoder = Spy()
        for file, nvimagecodec in ((data, not fancy), (turned, True), (FORMATS["jpeg progressive"], True)):
            asked.clear()
            pixels = decoder.decode(read_header(file))
            assert bool(asked) == nvimagecodec
            if fancy:
                np.testing.assert_array_equal(pixels, as_pillow(file))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a runtime")
@pytest.mark.parametrize("isa", AVAILABLE)
def test_addresses_and_undefined_behaviour(tmp_path, isa):
    """Whole files and damaged ones, of which each process decodes thousands, under the sanitizers."""
    library = tmp_path / "jpeg.so"
    flags = ["-std=c++17", "-fPIC", "-shared", "-Wno-psabi", *ADDRESS, *(["-mavx2"] if isa == "avx2" else [])]
    source = KERNEL_DIRECTORY / "host_jpeg.cpp"
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, *flags, f"-DCUAUG_ISA={isa}", source, "-o", library], check=True)
    cases = [(data, *as_pillow(data).shape[:2]) for data in COMMON.values()]
    for name in (name for name in ORIGINALS if name.startswith("jpeg")):
        height, width = as_pillow(ORIGINALS[name]).shape[:2]
        cases += [
            (mutate(random.Random(seed), ORIGINALS[name], COMMON["jpeg 4:20"])[0], height, width) for seed in range(100)
        ]
    cases += [(_damaged(data, seed), *as_pillow(data).shape[:2]) for data in COMMON.values() for seed in range(1000)]
    (tmp_path / "cases").write_bytes(pickle.dumps(cases))
    environment = os.environ | {
        "LD_PRELOAD": runtime("libasan.so"), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": str(ROOT)
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.codec.test_jpeg", library, isa, tmp_path / "cases"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    taken, refused = map(int, done.stdout.split())
    assert taken > 300 and refused > 300


def _decode_all(library: str, isa: str, cases: str) -> None:
    """In a process of its own: prints how many were decoded and how many were refused."""
    entry = getattr(ctypes.CDLL(library), f"cuaug_decode_jpeg_{isa}")
    outcomes = [0, 0]
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    for data, height, width in pickle.loads(Path(cases).read_bytes()):
        for y0, x0, y1, x1 in ((0, 0, height, width), (height // 3, width // 3, height // 2 + 1, width // 2 + 1)):
            # Memory of the sanitizer's malloc, as large as it must be: a byte too many is reported.
            target = ctypes.c_void_p(libc.malloc((y1 - y0) * (x1 - x0) * 3))
            copy = ctypes.c_void_p(libc.malloc(len(data)))
            ctypes.memmove(copy, data, len(data))
            outcomes[entry(copy, ctypes.c_int64(len(data)), height, width, y0, x0, y1, x1, target)] += 1
            libc.free(target)
            libc.free(copy)
    print(*outcomes)


if __name__ == "__main__":
    _decode_all(*sys.argv[1:])
