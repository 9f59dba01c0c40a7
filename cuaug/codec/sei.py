"""Supplemental enhancement information (SEI) of H.264 and HEVC: messages beside the pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["hide_sei"]

# NAL units of SEI, from the header on (H.264, 7.3.1 and 7.3.2.3; HEVC, 7.3.1.2 and 7.3.5). Two kinds change decoding,
# and stay: recovery points (type 6, up to 4 bytes), and x264's version (user data, type 5, with its size and a UUID).
_SEI_UNITS = {
    "h264": re.compile(rb"[\x06\x26\x46\x66](?!\x06[\x01-\x04]|\x05.{17,19}x264 - core)", re.DOTALL),
    "hevc": re.compile(rb"[\x4e-\x51].(?!\x06[\x01-\x04])", re.DOTALL),
}
# The bits of a header that hold no type, and the type of filler data, which decoders ignore.
_FILLER = {"h264": (0xE0, 12), "hevc": (0x81, 38 << 1)}
# Where a decoder configuration record (ISO/IEC 14496-15) has the size of length fields.
_LENGTH_SIZE = {"h264": 4, "hevc": 21}
_START_CODE = re.compile(rb"\x00\x00\x01")


def hide_sei(packet: Any, codec: str, extradata: bytes | None) -> bool:
    """Turn the SEI of a packet into filler data, in place.

    Args:
        packet: PyAV's.
        codec: FFmpeg's name.
        extradata: the stream's: a decoder configuration record, or none for units behind start codes.

    Returns:
        Whether the packet held any.
    """
    if codec not in _SEI_UNITS:
        return False
    data, (kept, filler) = bytearray(packet), _FILLER[codec]
    places = [at for at in _units(data, codec, extradata or b"") if _SEI_UNITS[codec].match(data, at)]
    for at in places:
        data[at] = data[at] & kept | filler
    if places:
        packet.update(data)
    return bool(places)


def _units(data: bytearray, codec: str, extradata: bytes) -> Iterator[int]:
    """Where the NAL units of a packet begin."""
    if extradata[:1] != b"\1" or len(extradata) <= _LENGTH_SIZE[codec]:
        yield from (match.end() for match in _START_CODE.finditer(data))
        return
    size, at = (extradata[_LENGTH_SIZE[codec]] & 3) + 1, 0
    while at + size < len(data):
        yield at + size
        at += size + int.from_bytes(data[at : at + size], "big")
