"""Packets of a video stream: the NAL units in them, and which streams hold one frame in each packet.

A demuxer's packet need not be a frame that a decoder gives: it may hold a field, a frame that is never shown, or none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from cuaug._runtime.extras import require_module

# Where a decoder configuration record (ISO/IEC 14496-15) has the size of length fields.
_LENGTH_SIZE = {"h264": 4, "hevc": 21}
_START_CODE = re.compile(rb"\x00\x00\x01")
# Profiles whose parameter set tells of chroma and scaling lists (H.264, 7.3.2.1.1).
_HIGH_PROFILES = frozenset({100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135})
_PARAMETER_SET_BYTES = 64  # as many hold the fields that are read


def nal_units(data: bytes | bytearray, codec: str, extradata: bytes) -> Iterator[tuple[int, int]]:
    """Where the NAL units of a packet begin and end.

    Args:
        codec: "h264" or "hevc".
        extradata: the stream's: a decoder configuration record, or none for units behind start codes.
    """
    if extradata[:1] != b"\1" or len(extradata) <= _LENGTH_SIZE[codec]:
        starts = [match.end() for match in _START_CODE.finditer(data)]
        yield from zip(starts, [start - 3 for start in starts[1:]] + [len(data)], strict=False)
        return
    size, at = (extradata[_LENGTH_SIZE[codec]] & 3) + 1, 0
    while at + size < len(data):
        end = at + size + int.from_bytes(data[at : at + size], "big")
        yield at + size, end
        at = end


def packet_check(stream: Any) -> Callable[[bytes], bool]:
    """Make a function that tells whether a packet is certain to give one frame.

    It takes the packets of the stream in the file's order, the first of which is a key frame. Codecs that it does not
    know are never certain: their decoders are fast.

    Args:
        stream: PyAV's.
    """
    codec = stream.codec_context.codec.canonical_name
    if codec in _LENGTH_SIZE:
        check = _NalCheck(stream, codec)
        return check.h264 if codec == "h264" else check.hevc
    count = {"vp8": _count_vp8, "vp9": _count_vp9, "av1": _count_av1}.get(codec)
    return (lambda data: False) if count is None else (lambda data: count(data) == 1)


def _count_vp8(data: bytes) -> int:
    """Frames that a packet shows (RFC 6386, 9.1)."""
    return data[0] >> 4 & 1


def _count_vp9(data: bytes) -> int:
    """Frames that a packet shows (VP9 bitstream specification 0.7, 7.2 and annex B)."""
    starts, marker = [0], data[-1]
    if marker >> 5 == 0b110:
        count, width = (marker & 7) + 1, (marker >> 3 & 3) + 1
        table = data[-1 - count * width : -1]
        for k in range(count - 1):
            starts.append(starts[-1] + int.from_bytes(table[k * width : (k + 1) * width], "little"))
    shown = 0
    for start in starts:
        bits = data[start] << (data[start] >> 4 & 3 == 3)  # profile 3 has a reserved bit
        shown += data[start] >> 6 == 0b10 and bits & 0b1010 != 0  # frame_marker; show_existing_frame, show_frame
    return shown


def _count_av1(data: bytes) -> int:
    """Frames that a packet shows (AV1 bitstream specification, 5.3 and 5.9.2)."""
    shown = at = 0
    while at < len(data):
        header, at = data[at], at + 1 + (data[at] >> 2 & 1)
        size = len(data) - at
        if header & 2:
            size = 0
            for shift in range(0, 56, 7):
                size |= (data[at] & 127) << shift
                at += 1
                if data[at - 1] < 128:
                    break
        if header >> 3 & 15 in (3, 6):  # a frame's header, alone or with its tiles
            shown += data[at] & 0x90 != 0  # show_existing_frame, show_frame
        at += size
    return shown


class _NalCheck:
    """Checks of H.264 and HEVC.

    A stream is certain if its first picture needs none before it, one parameter set describes it to the end, no
    picture is a field, and nothing tells the decoder to drop pictures.
    """

    def __init__(self, stream: Any, codec: str) -> None:
        self._stream, self._codec, self._extradata = stream, codec, bytes(stream.codec_context.extradata or b"")
        self._parameter_sets: set[bytes] = set()
        self._is_first = True

    def _units(self, data: bytes) -> Iterator[bytes]:
        """The units of a packet; the first one's with the parameter sets of the container."""
        extradata = self._extradata
        if self._is_first:
            av = require_module("av.bitstream", "video")
            chain = av.BitStreamFilterContext(f"{self._codec}_mp4toannexb", self._stream)
            packet = require_module("av", "video").Packet(data)
            data, extradata = b"".join(map(bytes, chain.filter(packet))), b""
        for start, end in nal_units(data, self._codec, extradata):
            yield data[start:end]
        self._is_first = False

    def h264(self, data: bytes) -> bool:
        """Whether a packet of H.264 gives one frame."""
        pictures, needs_idr = 0, self._is_first
        for unit in self._units(data):
            kind = unit[0] & 31
            if kind in (2, 3, 4):  # data partitions
                return False
            if kind in (1, 5):
                pictures += unit[1] >> 7  # first_mb_in_slice is 0
                needs_idr &= kind != 5
            elif kind == 7:
                self._parameter_sets.add(unit.rstrip(b"\0"))
                if len(self._parameter_sets) > 1 or not _has_frames_alone(unit):
                    return False
        return pictures == 1 and not needs_idr and len(self._parameter_sets) == 1

    def hevc(self, data: bytes) -> bool:
        """Whether a packet of HEVC gives one frame."""
        pictures, needs_idr = 0, self._is_first
        for unit in self._units(data):
            kind, layer = unit[0] >> 1 & 63, (unit[0] & 1) << 5 | unit[1] >> 3
            if layer:
                continue
            # Broken links and ends of sequences drop the leading pictures of the next key frame.
            if kind in (16, 17, 18, 36, 37):
                return False
            if kind < 32:
                pictures += unit[2] >> 7  # first_slice_segment_in_pic_flag
                needs_idr &= kind not in (19, 20)
                if 16 <= kind < 24 and unit[2] & 0x40:  # no_output_of_prior_pics_flag
                    return False
            elif kind == 33:
                self._parameter_sets.add(unit.rstrip(b"\0"))
                if len(self._parameter_sets) > 1:
                    return False
            elif kind == 34 and _may_hide_pictures(unit):
                return False
        return pictures == 1 and not needs_idr and len(self._parameter_sets) == 1


class _Bits:
    """Reads the bits behind the header of a parameter set (H.264, 7.4.1.1 and 9.1)."""

    def __init__(self, data: bytes) -> None:
        data = data[:_PARAMETER_SET_BYTES].replace(b"\0\0\3", b"\0\0")
        self._value, self._left = int.from_bytes(data, "big"), 8 * len(data)

    def u(self, count: int) -> int:
        """An unsigned number of `count` bits."""
        self._left -= count
        if self._left < 0:
            raise IndexError("the parameter set ends early")
        return self._value >> self._left & ((1 << count) - 1)

    def ue(self) -> int:
        """An unsigned number in Exp-Golomb code."""
        zeros = 0
        while not self.u(1):
            zeros += 1
        return (1 << zeros) - 1 + self.u(zeros)


def _has_frames_alone(unit: bytes) -> bool:
    """Whether no picture of an H.264 stream is a field (H.264, 7.3.2.1.1); False for unusual parameter sets, too."""
    bits = _Bits(unit[1:])
    profile = bits.u(8)
    bits.u(16), bits.ue()
    if profile in _HIGH_PROFILES:
        if bits.ue() == 3:
            bits.u(1)
        bits.ue(), bits.ue(), bits.u(1)
        if bits.u(1):  # scaling lists
            return False
    bits.ue()
    order = bits.ue()
    if order == 1:
        return False
    if order == 0:
        bits.ue()
    bits.ue(), bits.u(1), bits.ue(), bits.ue()
    return bool(bits.u(1))  # frame_mbs_only_flag


def _may_hide_pictures(unit: bytes) -> bool:
    """Whether slices tell if their picture is shown: output_flag_present_flag (HEVC, 7.3.2.3.1)."""
    bits = _Bits(unit[2:])
    bits.ue(), bits.ue(), bits.u(1)
    return bool(bits.u(1))
