"""JPEG 2000: bounds the memory that OpenJPEG allocates for the structure that the main header claims.

OpenJPEG allocates each tile, and each precinct, code block and packet of a tile, even if the file has no data for it: a
file of 231 bytes took 57 seconds and 4 GB. The headers of tile-parts, which may state other styles, are not counted.

Sections are those of ISO/IEC 15444-1: boxes I.4, main header A.3, SIZ A.5.1, COD A.6.1, COC A.6.2, POC A.6.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError

from cuaug.errors import DecodeError

CODESTREAM = b"\xff\x4f\xff\x51"
"""The first bytes of a codestream."""
_TILE_COST, _PRECINCT_COST, _BLOCK_COST, _PACKET_COST = 10_000, 300, 300, 100
"""Bytes that OpenJPEG 2.5 takes for each, measured. A packet takes 7 bytes, but 100 ns."""
_COST_PER_PIXEL = 8  # bytes that the structure may cost per pixel of `max_pixels`
_MAX_COMPONENTS, _MAX_STYLES = 4, 64  # Pillow reads up to 4 components; counting the precincts of a style takes 20 us
_SIZ, _COD, _COC, _POC, _SOT = 0xFF51, 0xFF52, 0xFF53, 0xFF5F, 0xFF90
_U16, _SIZES = Struct(">H"), Struct(">8IH")


def file_boxes(data: memoryview) -> Iterator[tuple[bytes, int, int]]:
    """Yield the boxes of a file: type, begin and end of the content; ValueError if one is damaged.

    Each box is: size (4 bytes, big-endian, header included), type (4), largesize (8, if size is 1), content.
    """
    begin, end = 0, len(data)
    while begin < end:
        size, header = int.from_bytes(data[begin : begin + 4], "big"), 8
        if size == 1:  # largesize follows
            size, header = int.from_bytes(data[begin + 8 : begin + 16], "big"), 16
        elif size == 0:  # the box extends to the end
            size = end - begin
        if size < header:
            raise ValueError("a box is shorter than its header")
        yield bytes(data[begin + 4 : begin + 8]), begin + header, min(begin + size, end)
        begin += size


def check_jpeg2000(data: bytes, max_pixels: int) -> None:
    """Raise a DecodeError if the main header claims a structure that costs too much memory or time, or is damaged."""
    try:
        cost = _cost(_codestream(data))
    except (IndexError, StructError, ValueError) as error:
        raise DecodeError("the JPEG 2000 codestream is truncated, damaged, or of an unknown structure") from error
    if cost > _COST_PER_PIXEL * max_pixels:
        raise DecodeError(
            f"the tiles, precincts, code blocks and packets that the JPEG 2000 header claims would cost {cost} bytes, "
            f"above the limit of {_COST_PER_PIXEL * max_pixels}, which max_pixels sets"
        )


def sample_depths(data: bytes) -> list[int]:
    """Bits per sample of each component, 128 more if it is signed, of a file that `check_jpeg2000` accepts."""
    view = _codestream(data)
    (components,) = _U16.unpack_from(view, 40)
    return [size + 1 for size in view[42 : 42 + 3 * components : 3]]  # A.5.1, Ssiz


def _codestream(data: bytes) -> memoryview:
    view, begin = memoryview(data), 0
    if data[:4] != CODESTREAM:
        begin = next((begin for name, begin, _ in file_boxes(view) if name == b"jp2c"), len(data))
    return view[begin:]


def _cost(data: memoryview) -> int:
    """Estimate the bytes that OpenJPEG allocates besides the pixels."""
    x1, y1, x0, y0, tile_width, tile_height, tile_x, tile_y, components = _SIZES.unpack_from(data, 8)
    if data[:4] != CODESTREAM or not tile_width or not tile_height or not 1 <= components <= _MAX_COMPONENTS:
        raise ValueError("SIZ is not first, has empty tiles, or more components than Pillow reads")
    styles, layers, progressions, at = set[tuple[bytes, int]](), 0, 1, 2
    while (marker := _U16.unpack_from(data, at)[0]) != _SOT and len(styles) <= _MAX_STYLES:
        (length,) = _U16.unpack_from(data, at + 2)
        body = data[at + 4 : at + 2 + length]
        if marker == _COD:
            layers = max(layers, _U16.unpack_from(body, 2)[0])
        if marker in (_COD, _COC):
            styles.add((bytes(body[5:43]), body[0] & 1) if marker == _COD else (bytes(body[2:40]), body[1] & 1))
        progressions += len(body) // 7 if marker == _POC else 0
        at += 2 + length
    if len(styles) > _MAX_STYLES:
        raise ValueError("too many coding styles")
    tiles = -(-(x1 - tile_x) // tile_width) * -(-(y1 - tile_y) // tile_height)  # B.3
    size = min(tile_width, x1 - x0), min(tile_height, y1 - y0)
    counts = [_count_precincts_and_blocks(style, bool(flags), *size) for style, flags in styles]
    precincts, blocks = (components * max(values) for values in zip(*counts, strict=True))
    packets = tiles * precincts * layers * progressions
    return tiles * _TILE_COST + precincts * _PRECINCT_COST + blocks * _BLOCK_COST + packets * _PACKET_COST


def _count_precincts_and_blocks(style: bytes, has_precincts: bool, width: int, height: int) -> tuple[int, int]:
    """Count the precincts (B.6) and code blocks (B.7) of a tile-component; else precincts are 2**15 samples wide."""
    levels, block_x, block_y = style[0], style[1] + 2, style[2] + 2  # exponents
    if levels > 32:
        raise ValueError("too many decomposition levels")
    precincts = blocks = 0
    for level in range(levels + 1):
        scale, exponents = levels - level, style[5 + level] if has_precincts else 0xFF
        x, y = exponents & 15, exponents >> 4
        precincts += -(-width >> scale + x) * -(-height >> scale + y)
        in_bands = 1 if level else 0  # a precinct covers three subbands of half its size, except at level 0
        x, y = min(block_x, max(0, x - in_bands)), min(block_y, max(0, y - in_bands))
        blocks += -(-width >> scale + x) * -(-height >> scale + y)
    return precincts, blocks
