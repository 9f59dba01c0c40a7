"""The memory that a JPEG 2000 main header makes OpenJPEG allocate is bounded."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from cuaug.codec import read_header
from tests.codec.test_found_by_fuzzing import assert_refused_at_once
from tests.support.codec.encoded_images import RGB, H, W, as_pillow, encode


def j2k(**options) -> bytes:
    return encode(Image.new("L", (16, 16), 7), "JPEG2000", **options)


def claiming(data: bytes, height: int, width: int, tile: tuple[int, int] | None = None) -> bytes:
    """The same file with another image size, in both headers, and tile size."""
    out, at = bytearray(data), data.index(b"\xff\x51")
    struct.pack_into(">II", out, at + 6, width, height)
    struct.pack_into(">II", out, at + 22, *(tile or (height, width))[::-1])
    if (ihdr := data.find(b"ihdr")) >= 0:
        struct.pack_into(">II", out, ihdr + 4, height, width)
    return bytes(out)


def with_layers(data: bytes, layers: int) -> bytes:
    at = data.index(b"\xff\x52") + 6
    return data[:at] + struct.pack(">H", layers) + data[at + 2 :]


def with_precincts(data: bytes, exponents: int) -> bytes:
    at = data.index(b"\xff\x52")
    resolutions = data[at + 9] + 1
    return data[: at + 14] + bytes([exponents]) * resolutions + data[at + 14 + resolutions :]


def with_components(data: bytes, components: int) -> bytes:
    """More components, and a box between the headers that hides the codestream's from Pillow."""
    at, box = data.index(b"\xff\x51"), data.index(b"jp2c") - 4
    sizes = struct.pack(">H", 38 + 3 * components) + data[at + 4 : at + 38] + struct.pack(">H", components)
    data = data[:at] + b"\xff\x51" + sizes + b"\7\1\1" * components + data[at + 43 :]
    return data[:box] + struct.pack(">I4s4x", 12, b"free") + bytes(4) + data[box + 4 :]


HOSTILE_J2K = {
    "code blocks of 4 x 4": claiming(j2k(codeblock_size=(4, 4)), 13_000, 13_000),
    "precincts of 2 x 2": with_precincts(claiming(j2k(precinct_size=(8, 8), codeblock_size=(4, 4)), 4000, 4000), 0x11),
    "65,535 layers": with_layers(claiming(j2k(precinct_size=(64, 64)), 5000, 5000), 65_535),
    "too many tiles": claiming(j2k(), 13_000, 13_000, tile=(1, 1)),
    "400 components": with_components(claiming(j2k(), 1000, 1000, tile=(10, 10)), 400),
}


def in_tile_parts(data: bytes, marker: bytes) -> bytes:
    """The same codestream with a marker segment in the header of every tile's first part."""
    at = data.index(b"\xff\x90")
    out = data[:at]
    while data[at : at + 2] == b"\xff\x90":
        (length,) = struct.unpack_from(">I", data, at + 6)
        out += data[at : at + 6] + struct.pack(">I", length + len(marker)) + data[at + 10 : at + 12] + marker
        out, at = out + data[at + 12 : at + length], at + length
    return out + data[at:]


@pytest.mark.parametrize("tile", [None, (16, 16)])
@pytest.mark.parametrize("kind", ["COD", "COC", "POC"])
def test_tile_parts_may_state_the_coding_style(decoder, kind, tile):
    """As OpenJPEG 1.x and others write them."""
    options = {"tile_size": tile, "num_resolutions": 3} if tile else {"num_resolutions": 3}
    data = encode(RGB, "JPEG2000", no_jp2=True, **options)
    at = data.index(b"\xff\x52")
    style = data[at : at + 2 + struct.unpack_from(">H", data, at + 2)[0]]
    marker = {
        "COD": style,
        "COC": b"".join(b"\xff\x53" + struct.pack(">HBB", len(style) - 5, i, 0) + style[9:] for i in range(3)),
        "POC": b"\xff\x5f" + struct.pack(">HBBHBBB", 9, 0, 0, 1, 3, 3, style[5]),
    }[kind]
    changed = in_tile_parts(data, marker)
    assert len(changed) > len(data) and (as_pillow(changed) == as_pillow(data)).all()
    np.testing.assert_array_equal(decoder.decode(read_header(changed, max_pixels=4 * H * W)), as_pillow(data))


@pytest.mark.parametrize("name", HOSTILE_J2K)
def test_costly_structures_are_refused(decoder, name):
    """ "too many tiles" took 57 seconds and 4 GB, "400 components" 4 GB."""
    assert_refused_at_once(decoder, HOSTILE_J2K[name], "JPEG 2000 (header claims would cost|codestream)")


def test_costly_styles_in_the_main_header_are_refused(decoder):
    data = j2k(no_jp2=True)
    at = data.index(b"\xff\x90")
    orders = b"\xff\x5f" + struct.pack(">H", 2 + 7 * 9000) + bytes(7 * 9000)
    read_header(data[:at] + orders + data[at:])
    assert_refused_at_once(decoder, with_layers(data[:at] + orders * 40 + data[at:], 65_535), "would cost")
    many = [b"\xff\x53" + struct.pack(">H7B", 10, 0, 1, 0, 4, 4, 0, 1) + bytes([i]) for i in range(0x11, 0x52)]
    assert_refused_at_once(decoder, data[:at] + b"".join(many) + data[at:], "truncated, damaged, or")


@pytest.mark.parametrize(
    "options",
    [
        {"tile_size": (16, 16), "num_resolutions": 3},
        {"precinct_size": (32, 64), "codeblock_size": (16, 16)},
        {"quality_layers": [40, 20, 10], "quality_mode": "rates", "plt": True},
        {"progression": "CPRL", "irreversible": True, "comment": b"comment"},
    ],
    ids=str,
)
@pytest.mark.parametrize("no_jp2", [False, True])
def test_sound_jpeg_2000_files_are_read(decoder, options, no_jp2):
    data = encode(RGB, "JPEG2000", no_jp2=no_jp2, **options)
    np.testing.assert_array_equal(decoder.decode(read_header(data, max_pixels=H * W)), as_pillow(data))
