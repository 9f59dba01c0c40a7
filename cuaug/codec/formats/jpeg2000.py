"""JPEG 2000: bounds the memory that OpenJPEG allocates for the structure that a header claims.

OpenJPEG allocates each tile, and each precinct, code block and packet of a tile, even if the file has no data for it: a
file of 231 bytes took 57 seconds and 4 GB.

Sections are those of ISO/IEC 15444-1; MCT, MCC, MCO and CBD come from 15444-2.

    file         boxes I.4, the codestream in jp2c I.5.4; or the codestream alone
    codestream   main header A.3, tile-parts A.4.2; a marker segment is: marker (2), length (2), parameters
    SIZ          A.5.1: capabilities (2), Xsiz, Ysiz, XOsiz, YOsiz, XTsiz, YTsiz, XTOsiz, YTOsiz (4 each), Csiz (2)
    COD          A.6.1: Scod (1), progression (1), layers (2), component transform (1), SPcod
    COC          A.6.2: component (1), Scoc (1), SPcoc
    SPcod/SPcoc  decomposition levels, code block width and height, style, transform (1 each), precinct sizes
    POC          A.6.6: progression order changes of 7 bytes
    SOT          A.4.2: marker (2), length (2), tile (2), bytes of the tile-part (4), tile-part (1), tile-parts (1)
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError

from cuaug.errors import DecodeError

__all__ = ["CODESTREAM", "check_jpeg2000", "file_boxes", "sample_depths"]


def file_boxes(data: memoryview, begin: int = 0, end: int | None = None) -> Iterator[tuple[bytes, int, int]]:
    """Yield the boxes between two offsets: type, begin and end of the content.

    Each box is: size (4 bytes, big-endian, header included), type (4), largesize (8, if size is 1), content.

    Raises:
        ValueError: a box is shorter than its header.
    """
    end = len(data) if end is None else end
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


CODESTREAM = b"\xff\x4f\xff\x51"
"""The first bytes of a codestream."""

_TILE_COST, _PRECINCT_COST, _BLOCK_COST, _PACKET_COST = 10_000, 300, 300, 100
"""Bytes that OpenJPEG 2.5 takes for each, measured. A packet takes 7 bytes, but 100 ns."""

_COST_PER_PIXEL = 8
"""Bytes that the structure may cost per pixel of `max_pixels`."""

_MAX_COMPONENTS, _MAX_TILE_PARTS = 4, 1 << 17  # Pillow reads up to 4 components
_MAX_STYLES = 64
"""Different coding styles of tiles and components: counting the precincts of each takes 20 us."""

_SIZ, _COD, _COC, _POC, _SOT, _SOD = 0xFF51, 0xFF52, 0xFF53, 0xFF5F, 0xFF90, 0xFF93
_IN_TILE_PARTS = {_COD, _COC, _POC, 0xFF58, 0xFF5C, 0xFF5D, 0xFF5E, 0xFF61, 0xFF64}  # PLT, QCD, QCC, RGN, PPT, COM
_IN_MAIN_HEADER = _IN_TILE_PARTS | {_SIZ}
_IN_MAIN_HEADER |= {0xFF50, 0xFF55, 0xFF56, 0xFF57, 0xFF59, 0xFF60, 0xFF63}  # CAP, TLM, PRF, PLM, CPF, PPM, CRG
_IN_MAIN_HEADER |= {0xFF74, 0xFF75, 0xFF77, 0xFF78}  # MCT, MCC, MCO, CBD

_U16, _U32, _SIZES = Struct(">H"), Struct(">I"), Struct(">8IH")

_Segment = tuple[int, memoryview]  # marker, parameters


def check_jpeg2000(data: bytes, max_pixels: int) -> None:
    """Refuse a codestream whose structure costs too much memory or time.

    Raises:
        DecodeError: above the limit, or a structure that is damaged or unknown to us.
    """
    view = memoryview(data)
    try:
        begin = 0
        if data[:4] != CODESTREAM:
            begin = next((begin for name, begin, _ in file_boxes(view) if name == b"jp2c"), len(data))
        cost = _cost(view[begin:])
    except (IndexError, StructError, ValueError) as error:
        raise DecodeError(
            "the JPEG 2000 codestream is truncated, damaged, or has a structure that cuaug does not understand"
        ) from error
    if cost > _COST_PER_PIXEL * max_pixels:
        raise DecodeError(
            f"the tiles, precincts, code blocks and packets that the JPEG 2000 header claims would cost {cost} bytes, "
            f"above the limit of {_COST_PER_PIXEL * max_pixels}, which max_pixels sets"
        )


def sample_depths(data: bytes) -> list[int]:
    """Bits per sample of each component, 128 more if it is signed, of a file that `check_jpeg2000` accepts."""
    view = memoryview(data)
    begin = 0 if data[:4] == CODESTREAM else next(begin for name, begin, _ in file_boxes(view) if name == b"jp2c")
    (components,) = _U16.unpack_from(view, begin + 40)
    return [size + 1 for size in data[begin + 42 : begin + 42 + 3 * components : 3]]  # A.5.1, Ssiz


def _cost(data: memoryview) -> int:
    """Estimate the bytes that OpenJPEG allocates besides the pixels."""
    segments, at = _segments(data, 2, _SOT, _IN_MAIN_HEADER)
    (marker, sizes), *others = segments
    x1, y1, x0, y0, tile_width, tile_height, tile_x, tile_y, components = _SIZES.unpack_from(sizes, 2)
    if marker != _SIZ or not tile_width or not tile_height or not 1 <= components <= _MAX_COMPONENTS:
        raise ValueError("SIZ is not first, has empty tiles, or more components than Pillow reads")
    in_tiles, tile_changes = _read_tile_parts(data, at)
    others += in_tiles
    tiles = -(-(x1 - tile_x) // tile_width) * -(-(y1 - tile_y) // tile_height)  # B.3
    size = min(tile_width, x1 - x0), min(tile_height, y1 - y0)
    layers = max(_U16.unpack_from(body, 2)[0] for marker, body in others if marker == _COD)
    styles = {(bytes(body[5:43]), body[0] & 1) for marker, body in others if marker == _COD}
    styles |= {(bytes(body[2:40]), body[1] & 1) for marker, body in others if marker == _COC}
    if len(styles) > _MAX_STYLES:
        raise ValueError("too many coding styles")
    counts = [_count_precincts_and_blocks(style, bool(flags), *size) for style, flags in styles]
    precincts, blocks = (components * max(values) for values in zip(*counts, strict=True))
    changes = sum(len(body) // 7 for marker, body in segments if marker == _POC)
    progressions = 1 + changes + max(tile_changes.values(), default=0)
    packets = tiles * precincts * layers * progressions
    return tiles * _TILE_COST + precincts * _PRECINCT_COST + blocks * _BLOCK_COST + packets * _PACKET_COST


def _count_precincts_and_blocks(style: bytes, has_precincts: bool, width: int, height: int) -> tuple[int, int]:
    """Count the precincts (B.6) and code blocks (B.7) of a tile-component; all sizes are powers of 2.

    has_precincts: bit 0 of Scod or Scoc; else precincts are 2**15 samples wide and high.
    """
    levels, block_x, block_y = style[0], style[1] + 2, style[2] + 2  # exponents
    if levels > 32:
        raise ValueError("too many decomposition levels")
    precincts = blocks = 0
    for level in range(levels + 1):
        scale = levels - level
        exponents = style[5 + level] if has_precincts else 0xFF
        x, y = exponents & 15, exponents >> 4
        precincts += _cells(width, scale + x) * _cells(height, scale + y)
        in_bands = 1 if level else 0  # a precinct covers three subbands of half its size, except at level 0
        x, y = min(block_x, max(0, x - in_bands)), min(block_y, max(0, y - in_bands))
        blocks += _cells(width, scale + x) * _cells(height, scale + y)
    return precincts, blocks


def _cells(length: int, exponent: int) -> int:
    """ceil(length / 2**exponent)."""
    return -(-length >> exponent)


def _segments(data: memoryview, at: int, end: int, allowed: set[int]) -> tuple[list[_Segment], int]:
    """Parse marker segments up to the marker `end`; also return its offset."""
    segments = []
    while (marker := _U16.unpack_from(data, at)[0]) != end:
        (length,) = _U16.unpack_from(data, at + 2)
        if marker not in allowed or length < 2:
            raise ValueError(f"the marker {marker:#x} at byte {at}")
        segments.append((marker, data[at + 4 : at + 2 + length]))
        at += 2 + length
    return segments, at


def _read_tile_parts(data: memoryview, at: int) -> tuple[list[_Segment], dict[int, int]]:
    """The coding styles in the headers of all tile-parts, and the progression order changes of each tile."""
    styles: list[_Segment] = []
    changes: dict[int, int] = {}
    for _ in range(_MAX_TILE_PARTS):
        (tile,), (length,) = _U16.unpack_from(data, at + 4), _U32.unpack_from(data, at + 6)
        segments, end = _segments(data, at + 12, _SOD, _IN_TILE_PARTS)
        styles += [segment for segment in segments if segment[0] in (_COD, _COC)]
        changes[tile] = changes.get(tile, 0) + sum(len(body) // 7 for marker, body in segments if marker == _POC)
        at += length
        # A length of 0 is that of the last tile-part, up to the end of the codestream.
        if length and at < end + 2:
            raise ValueError("a tile-part is shorter than its header")
        if not length or data[at : at + 2] != b"\xff\x90":
            return styles, changes
    raise ValueError("too many tile-parts")
