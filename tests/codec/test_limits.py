"""Small files that would take much memory or time are refused before anything is decoded."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, features

from cuaug.codec import read_header
from cuaug.codec.avif import _coded_pixels, as_still_avif
from cuaug.codec.jpeg2000 import check_jpeg2000
from cuaug.codec.sniff import count_scans
from cuaug.codec.tiff import check_tiff
from cuaug.errors import DecodeError
from tests.codec.avifs import av1, avif, with_claimed_size
from tests.codec.memory import forget_peak, peak_bytes
from tests.codec.pictures import (
    FORMATS,
    JPEG,
    PNG,
    RGB,
    SCAN,
    H,
    W,
    app1,
    as_pillow,
    chunk,
    encode,
    tiff_block,
    with_alpha,
)
from tests.codec.test_found_by_fuzzing import assert_refused_at_once

# --- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["ICO", "ICNS", "PCX", "DIB", "DDS", "SGI"])
def test_other_formats_are_refused(form):
    """Pillow opens all of these."""
    with pytest.raises(
        DecodeError, match=f"starts like a file of the format {form}, and cuaug does not read"
    ) as caught:
        read_header(encode(RGB.resize((64, 64)), form))
    assert "JPEG, PNG, WEBP, TIFF, BMP, PPM, JPEG2000, GIF and AVIF" in str(caught.value)


def test_a_large_png_within_an_icon(decoder):
    """The icon's directory claims 16 x 16 pixels."""
    png = encode(Image.new("L", (9000, 9000)), "PNG")
    entry = bytes([16, 16, 0, 0, 1, 0, 32, 0]) + len(png).to_bytes(4, "little") + (22).to_bytes(4, "little")
    assert_refused_at_once(decoder, b"\0\0\1\0\1\0" + entry + png, "format ICO")
    icns = b"ic04" + (8 + len(png)).to_bytes(4, "big") + png
    assert_refused_at_once(decoder, b"icns" + (8 + len(icns)).to_bytes(4, "big") + icns, "format ICNS")


# --- TIFF ------------------------------------------------------------------------------------------------------------


def tiff(*entries: tuple[int, int, int], pixels: bytes = b"", order: str = "<", big: bool = False) -> bytes:
    """A TIFF of (tag, type, value) with one value each; a value of -1 is the place of `pixels`."""
    form = "HHQQ" if big else "HHII"
    at = (16 if big else 8) + (8 if big else 2) + struct.calcsize(order + form) * len(entries) + (8 if big else 4)
    body = b""
    for tag, kind, value in sorted(entries, key=lambda entry: entry[0]):
        size = 8 if big else 4
        number = at if value < 0 else value
        field = struct.pack(order + {3: "H", 4: "I"}.get(kind, "Q" if big else "I"), number).ljust(size, b"\0")
        body += struct.pack(order + form[:3], tag, kind, 1) + field
    magic = {("<", False): b"II*\0", (">", False): b"MM\0*", ("<", True): b"II+\0", (">", True): b"MM\0+"}[order, big]
    head = magic + (
        struct.pack(order + "HHQQ", 8, 0, 16, len(entries)) if big else struct.pack(order + "IH", 8, len(entries))
    )
    return head + body + bytes(8 if big else 4) + pixels


LZW = encode(Image.new("L", (64, 64)), "TIFF", compression="tiff_lzw")
STRIP = Image.open(io.BytesIO(LZW)).tag_v2
PIXELS = LZW[STRIP[273][0] :][: STRIP[279][0]]
GRAY_LZW = [(256, 4, 64), (257, 4, 64), (258, 3, 8), (259, 3, 5), (262, 3, 1), (277, 3, 1)]


def tiled(width: int, height: int, *others: tuple[int, int, int], size: tuple[int, int] = (64, 64), **options) -> bytes:
    tiles = [(322, 4, width), (323, 4, height), (324, 4, -1), (325, 4, len(PIXELS)), *others]
    return tiff((256, 4, size[1]), (257, 4, size[0]), *GRAY_LZW[2:], *tiles, pixels=PIXELS, **options)


@pytest.mark.parametrize("options", [{}, {"order": ">"}, {"big": True}], ids=str)
def test_large_tiles_of_a_small_tiff(decoder, options):
    """libtiff allocated and decoded 2 GB for 558 bytes."""
    assert decoder.decode(read_header(tiled(64, 64, **options))).shape == (64, 64, 3)
    assert_refused_at_once(
        decoder, tiled(46320, 46320, **options), "tiles of 46320 x 46320 pixels .* 2145542400 pixels"
    )
    many = tiled(16, 16, size=(3, 9), **options)
    assert read_header(many, max_pixels=27).width == 9


def test_few_pixels_in_each_of_many_large_tiles(decoder):
    """Each tile is decoded in full, for one column of the picture."""
    assert_refused_at_once(
        decoder, tiled(16, 65_520, size=(1, 60_000)), "above the limit of 357913940, which max_pixels"
    )


@pytest.mark.parametrize("kind", [1, 5, 9, 13, 16, 99])
def test_tags_of_tiles_on_which_readers_differ(decoder, kind):
    """Of two tags libtiff takes the first, and some versions of Pillow the last."""
    for other in [(322, kind, 46320), (323, kind, 46320), (256, kind, 10**8)]:
        assert_refused_at_once(decoder, tiled(64, 64, other), "must occur once, as one SHORT or LONG")


def test_a_big_endian_bigtiff():
    """Pillow looks for its directory elsewhere than libtiff."""
    with pytest.raises(DecodeError, match="a big-endian BigTIFF is not read"):
        read_header(tiled(64, 64, big=True, order=">"))


@pytest.mark.parametrize("size", [(0, 64), (64, 0)])
def test_tiles_without_pixels(size):
    with pytest.raises(DecodeError, match=r"tiles of \d+ x \d+ pixels"):
        read_header(tiled(*size))


@pytest.mark.parametrize(("tag", "cause"), [(277, "65535 samples per pixel, and Pillow reads up to 6"), (258, "TIFF")])
def test_many_samples_or_bits(decoder, tag, cause):
    entries = [entry for entry in GRAY_LZW if entry[0] != tag] + [(tag, 3, 65_535)]
    strip = [(273, 4, -1), (278, 4, 64), (279, 4, len(PIXELS))]
    assert_refused_at_once(decoder, tiff(*entries, *strip, pixels=PIXELS), cause)


@pytest.mark.parametrize("rows", [0, 64, 65, 1 << 20, 2**32 - 1])
def test_rows_of_a_strip_beyond_the_picture(decoder, rows):
    """No more is decoded than the picture has."""
    strip = [(273, 4, -1), (278, 4, rows), (279, 4, len(PIXELS))]
    forget_peak()
    before = peak_bytes()
    with contextlib.suppress(DecodeError):
        decoder.decode(read_header(tiff(*GRAY_LZW, *strip, pixels=PIXELS)))
    assert peak_bytes() - before < 20 << 20


def test_a_bigtiff_of_very_many_tags(decoder):
    """Pillow reads each of them."""
    data = tiled(64, 64, big=True)
    many = data[:16] + struct.pack("<Q", 10**5) + data[24:44] * 10**5
    assert_refused_at_once(decoder, many, "first directory has 100000 entries")


@given(st.data())
def test_damaged_tiffs_are_no_other_error(data):
    damaged = bytearray(tiled(64, 64, big=data.draw(st.booleans())))
    for at, value in data.draw(st.lists(st.tuples(st.integers(4, len(damaged) - 1), st.integers(0, 255)), max_size=4)):
        damaged[at] = value
    with contextlib.suppress(DecodeError):
        check_tiff(bytes(damaged[: data.draw(st.integers(4, len(damaged)))]), 1 << 20)


# --- AVIF ------------------------------------------------------------------------------------------------------------

needs_avif = pytest.mark.skipif(not features.check("avif"), reason="Pillow reads AVIF from 11.3 on")
LIMIT = 1 << 20  # which any picture may cost


@pytest.fixture(scope="module")
def streams() -> dict[int, tuple[bytes, bytes]]:
    """AV1 streams, by the side of their pictures."""
    return {side: av1(side, side) for side in (256, 2048)}


@needs_avif
def test_a_large_frame_behind_a_small_claim(decoder, streams):
    """libavif decodes the frame and scales it."""
    data = avif(*streams[2048], (10, 10))
    assert decoder.decode(read_header(data)).shape == (10, 10, 3)
    with pytest.raises(DecodeError, match="4194304 pixels together, above the limit of 2097152, which max_pixels sets"):
        read_header(data, max_pixels=LIMIT)
    patched = with_claimed_size(encode(Image.new("L", (2048, 2048)), "AVIF", speed=10), 10, 10)
    with pytest.raises(DecodeError, match="4194304 pixels together"):
        read_header(patched, max_pixels=LIMIT)


@needs_avif
@pytest.mark.parametrize("options", [{"extents": 7}, {"in_idat": True}, {"in_idat": True, "extents": 3}], ids=str)
def test_wherever_an_items_data_lies(decoder, streams, options):
    assert (decoder.decode(read_header(avif(*streams[256], (256, 256), **options))) == 77).all()
    with pytest.raises(DecodeError, match="4194304 pixels together"):
        read_header(avif(*streams[2048], (10, 10), **options), max_pixels=LIMIT)


@needs_avif
def test_all_cells_of_a_grid_count(decoder, streams):
    def grid(cells: int) -> bytes:
        return avif(*streams[256], (64, 64), cells=list(range(2, 2 + cells)), grid=(1, cells), output=(64, 64 * cells))

    many = avif(*streams[256], (64, 64), cells=list(range(2, 5002)), grid=(50, 100), output=(3200, 6400))
    assert (decoder.decode(read_header(grid(32), max_pixels=LIMIT)) == 77).all()
    with pytest.raises(DecodeError, match=f"{33 << 16} pixels together"):
        read_header(grid(33), max_pixels=LIMIT)
    assert_refused_at_once(decoder, many, "structure of the AVIF file is damaged, or not one")


@needs_avif
def test_a_cell_that_uses_the_sequence_header_of_another(streams):
    """libavif decodes it, but which header it uses is the decoder's business."""
    data = avif(*streams[256], (256, 256), cells=[2, 3], grid=(1, 2), output=(256, 512), without_header=(3,))
    with pytest.raises(DecodeError, match="structure of the AVIF file"):
        read_header(data)


@needs_avif
def test_frames_that_are_not_shown(streams):
    """Each takes as long as a picture."""
    stream, config = streams[256]
    frame = stream[4 + stream[3] :]
    assert stream[2] >> 3 == 1 and frame[0] >> 3 == 6
    read_header(avif(stream + 31 * frame, config, (256, 256)), max_pixels=LIMIT)
    with pytest.raises(DecodeError, match=f"{33 << 16} pixels together"):
        read_header(avif(stream + 32 * frame, config, (256, 256)), max_pixels=LIMIT)


@needs_avif
def test_the_first_frame_of_a_sequence(decoder):
    """It is the primary item; the file's other frames are never decoded."""
    frames = [RGB, RGB.rotate(180), RGB.rotate(90).resize(RGB.size)]
    data = encode(frames[0], "AVIF", save_all=True, append_images=frames[1:])
    assert data[8:12] == b"avis"
    np.testing.assert_array_equal(decoder.decode(read_header(data)), as_pillow(data))


@needs_avif
def test_alpha_counts_beside_the_picture(decoder):
    image = with_alpha(RGB)
    data = encode(image, "AVIF")
    np.testing.assert_array_equal(decoder.decode(read_header(data, max_pixels=H * W)), as_pillow(data))


@needs_avif
def test_a_file_of_the_brand_that_heic_has_too():
    data = avif(*av1(16, 16), (16, 16)).replace(b"av01", b"hvc1").replace(b"ftypavif", b"ftypmif1")
    with pytest.raises(DecodeError, match="HEIC is not read"):
        read_header(data)


class Writer:
    def __init__(self) -> None:
        self.bits = ""

    def put(self, value: int, bits: int) -> None:
        self.bits += f"{value:0{bits}b}"[:bits] if bits else ""

    def bytes(self) -> bytes:
        padded = self.bits.ljust(-(-len(self.bits) // 8) * 8, "1")
        return int(padded, 2).to_bytes(len(padded) // 8, "big")


@given(st.data())
def test_sequence_headers(data):
    """With all that may be in them (AV1 specification, 5.5.1)."""
    to, draw = Writer(), lambda most: data.draw(st.integers(0, most))
    to.put(draw(15), 4)
    reduced, model, delays = draw(1), 0, 0
    to.put(reduced, 1)
    if reduced:
        to.put(draw(31), 5)
    else:
        timing = draw(1)
        to.put(timing, 1)
        if timing:
            to.put(draw(2**64 - 1), 64)
            equal = draw(1)
            to.put(equal, 1)
            if equal:
                zeros = draw(20)
                to.put(1, zeros + 1)
                to.put(draw(2**zeros - 1), zeros)
            model = draw(1) * (1 + draw(31))
            to.put(bool(model), 1)
            if model:
                to.put(model - 1, 5)
                to.put(draw(2**42 - 1), 42)
        delays = draw(1)
        to.put(delays, 1)
        points = 1 + draw(31)
        to.put(points - 1, 5)
        for _ in range(points):
            to.put(draw(4095), 12)
            level = draw(31)
            to.put(level, 5)
            if level > 7:
                to.put(draw(1), 1)
            for present, bits in ((model, 2 * model + 1), (delays, 4)):
                if present:
                    here = draw(1)
                    to.put(here, 1)
                    if here:
                        to.put(draw(2**bits - 1), bits)
    width_bits, height_bits = 1 + draw(15), 1 + draw(15)
    width, height = 1 + draw(2**width_bits - 1), 1 + draw(2**height_bits - 1)
    for value, bits in ((width_bits - 1, 4), (height_bits - 1, 4), (width - 1, width_bits), (height - 1, height_bits)):
        to.put(value, bits)
    header = to.bytes()
    item = bytes([1 << 3 | 2, len(header) & 127 | 128, len(header) >> 7]) + header + bytes([6 << 3])
    assert _coded_pixels(item) == (width * height if reduced else 1 << width_bits + height_bits)


@needs_avif
@given(st.data())
def test_damaged_avifs_are_no_other_error(data):
    damaged = bytearray(FORMATS["avif"])
    for at, value in data.draw(st.lists(st.tuples(st.integers(4, 400), st.integers(0, 255)), max_size=4)):
        damaged[at] = value
    with contextlib.suppress(DecodeError):
        as_still_avif(bytes(damaged[: data.draw(st.integers(12, len(damaged)))]), 1 << 20)


# --- JPEG 2000 -------------------------------------------------------------------------------------------------------


def j2k(**options) -> bytes:
    return encode(Image.new("L", (16, 16), 7), "JPEG2000", **options)


def claiming(data: bytes, height: int, width: int, tile: tuple[int, int] | None = None) -> bytes:
    """The same file, with another size in both headers, and of its tiles."""
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
    """And a box between the headers, so that Pillow does not look at the codestream's."""
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


@pytest.mark.parametrize("name", HOSTILE_J2K)
def test_structures_of_jpeg_2000_files(decoder, name):
    """The second to the last took 57 seconds and 4 GB, the last 4 GB."""
    assert_refused_at_once(decoder, HOSTILE_J2K[name], "JPEG 2000 (header claims would cost|codestream)")


def test_the_same_in_the_header_of_a_tile_part(decoder):
    data = claiming(j2k(no_jp2=True, codeblock_size=(4, 4)), 13_000, 13_000)
    at, sot = data.index(b"\xff\x52"), data.index(b"\xff\x90")
    style = data[at : at + 14]
    main = data[:at] + style[:10] + b"\4\4" + style[12:] + data[at + 14 : sot]
    read_header(main + data[sot:], max_pixels=1 << 28)
    for marker in (
        style,
        b"\xff\x53" + struct.pack(">HBB", 9, 0, 0) + style[9:],
        b"\xff\x5f\0\x09" + bytes(7),
        b"\xff\x30",
    ):
        (length,) = struct.unpack_from(">I", data, sot + 6)
        part = data[sot : sot + 6] + struct.pack(">I", length + len(marker)) + data[sot + 10 : sot + 12] + marker
        assert_refused_at_once(
            decoder, main + part + data[sot + 12 :], "JPEG 2000 codestream is truncated, damaged, or"
        )
        behind = data[sot:-2] + part + data[sot + 12 :]
        assert_refused_at_once(decoder, main + behind, "JPEG 2000 codestream is truncated, damaged, or")


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


@given(st.data())
def test_damaged_jpeg_2000_files_are_no_other_error(data):
    damaged = bytearray(j2k())
    for at, value in data.draw(st.lists(st.tuples(st.integers(4, len(damaged) - 1), st.integers(0, 255)), max_size=4)):
        damaged[at] = value
    with contextlib.suppress(DecodeError):
        check_jpeg2000(bytes(damaged[: data.draw(st.integers(12, len(damaged)))]), 1 << 20)


# --- JPEG and PNG ----------------------------------------------------------------------------------------------------

PROGRESSIVE = encode(RGB.resize((160, 100)), "JPEG", progressive=True)
LAST_SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]


def with_scans(count: int) -> bytes:
    return PROGRESSIVE[:-2] + LAST_SCAN * (count - count_scans(PROGRESSIVE)) + PROGRESSIVE[-2:]


@pytest.mark.parametrize("odd", [b"", app1(tiff_block(3)) * 2], ids=["common", "odd"])
def test_scans_times_pixels_are_limited(decoder, odd):
    """500 scans at 13,000 x 13,000 pixels took 74 seconds; nvImageCodec and Pillow decode these."""
    data = with_scans(30)
    data = data[:2] + odd + data[2:]
    pixels = 160 * 100
    assert count_scans(data) == 30
    enough = -(-30 * pixels // 24)
    assert decoder.decode(read_header(data, max_pixels=enough)).size == 3 * pixels
    with pytest.raises(DecodeError, match=f"a JPEG of 30 scans .* {30 * pixels} pixels together: above the limit of"):
        read_header(data, max_pixels=enough - 1)
    read_header(with_scans(24), max_pixels=pixels)


def test_scans_that_no_decoder_comes_by_do_not_count(decoder):
    """Those of thumbnails, comments, other pictures and whatever lies behind the end."""
    scans = b"\xff\xda\0\x08\1\1\0\0\x3f\0" * 600
    for segment in (b"\xff\xfe", b"\xff\xec"):
        data = with_odd_exif(JPEG[:2] + segment + struct.pack(">H", 2 + len(scans)) + scans + JPEG[2:])
        assert count_scans(data) == 1
        np.testing.assert_array_equal(decoder.decode(read_header(data)), as_pillow(data))
    for data in (with_odd_exif(JPEG) + scans, encode(RGB, "MPO", save_all=True, append_images=[RGB] * 3) + scans):
        assert data.count(b"\xff\xda") > 600 and count_scans(data) == 1
        np.testing.assert_array_equal(decoder.decode(read_header(data)), as_pillow(data))


def with_odd_exif(data: bytes) -> bytes:
    """A JPEG that is left to Pillow."""
    return data[:2] + app1(tiff_block(1)) * 2 + data[2:]


def test_scans_between_which_something_lies_count():
    """libjpeg skips what is between segments, and fill bytes."""
    for between in (b"\xff\xff\xff", b"junk", b"\xff\xd3", b"\xff\x01", b"\xff\xfe\0\0", b"\0\xff\0"):
        data = PROGRESSIVE[:-2] + (between + LAST_SCAN) * 5 + PROGRESSIVE[-2:]
        assert count_scans(data) == count_scans(PROGRESSIVE) + 5, between
    for length in range(len(JPEG)):
        assert count_scans(JPEG[:length]) == (length >= SCAN + 2)


@pytest.mark.parametrize("name", [b"zTXt", b"iTXt"])
def test_compressed_text_of_a_png(decoder, name):
    """nvImageCodec took 12 seconds to inflate 3 MB of it."""
    text = zlib.compress(bytes(7_900_000), 9)
    head = b"key\0\0" if name == b"zTXt" else b"key\0\1\0\0\0"
    data = PNG[:33] + chunk(name, head + text) * 100 + PNG[33:]
    assert_refused_at_once(decoder, data, "MAX_TEXT_CHUNK")
    plain = PNG[:33] + chunk(b"iTXt", b"key\0\0\0\0\0" + b"text " * 50_000) + PNG[33:]
    assert not read_header(plain).for_pillow
