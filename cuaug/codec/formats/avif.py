"""AVIF: bounds the pixels that libavif decodes, which may be more than the container claims.

libavif scales a decoded frame to the claimed size, decodes every cell of a grid, and decodes frames that are never
shown. So we read the sequence headers of all AV1 items and count their frames.

    container   ISO/IEC 14496-12: ftyp 4.3, meta 8.11.1, iloc 8.11.3, iinf and infe 8.11.6, idat 8.11.11
    brands      AVIF 1.1, section 6; ISO/IEC 23008-12, 10.2
    bitstream   AV1 Bitstream & Decoding Process Specification: OBU header 5.3, sequence header 5.5
"""

from __future__ import annotations

from cuaug.codec.formats.jpeg2000 import file_boxes
from cuaug.errors import DecodeError

__all__ = ["AVIF_BRANDS", "as_still_avif"]

AVIF_BRANDS = (b"avif", b"avis", b"mif1", b"msf1")
"""Brands that Pillow opens as AVIF; a file with one of the last two may hold HEVC."""

_MAX_ITEMS = 4096
"""libavif searches all items for each item: 65,536 would take it seconds."""


def as_still_avif(data: bytes, max_pixels: int) -> bytes:
    """Check the coded frames, and return the file with the brand of a still image.

    That brand makes libavif decode the primary item, which is the first frame of an image sequence.

    Raises:
        DecodeError: the AV1 items, image and alpha, code more than 2 * `max_pixels` pixels together; the file has no
            AV1 item; or its structure is unknown to us.
    """
    try:
        items = _av1_items(memoryview(data))
        coded = sum([count * _coded_pixels(item) for item, count in items])
    except (LookupError, StopIteration, ValueError) as error:
        raise DecodeError("the structure of the AVIF file is damaged, or not one that cuaug understands") from error
    if not items:
        raise DecodeError("the file holds no AV1 image; HEIC is not read: convert it to AVIF")
    if coded > 2 * max_pixels:
        raise DecodeError(
            f"the frames of the AVIF file have {coded} pixels together, above the limit of {2 * max_pixels}, which "
            "max_pixels sets"
        )
    return data if data[8:12] == b"avif" else data[:8] + b"avif" + data[12:]


class _BitReader:
    """Reads unsigned big-endian numbers, bit by bit: f(n) of AV1, 4.10.2."""

    def __init__(self, data: memoryview | bytes) -> None:
        self._data, self._at = data, 0

    def read(self, bits: int) -> int:
        begin, end = self._at, self._at + bits
        if end > 8 * len(self._data):
            raise IndexError("the data ends too early")
        self._at = end
        value = int.from_bytes(self._data[begin // 8 : -(-end // 8)], "big")
        return value >> -end % 8 & ((1 << bits) - 1)


# --- the container (ISO/IEC 14496-12) --------------------------------------------------------------------------------


def _av1_items(data: memoryview) -> list[tuple[bytes, int]]:
    """The data of the AV1 items in the first `meta` box, the only one that libavif reads, and how many items share it.

    Encoders store equal items once. Other overlaps are refused: their bytes would be read many times.
    """
    begin, end = next((begin, end) for name, begin, end in file_boxes(data) if name == b"meta")
    meta = {name: data[begin:end] for name, begin, end in file_boxes(data, begin + 4, end)}
    infos, av1_ids = meta[b"iinf"], set()
    for name, begin, _ in file_boxes(infos, 6 if infos[0] == 0 else 8):  # infe: version (1), flags (3), item_ID, ...
        id_bytes = 2 if infos[begin] == 2 else 4
        # ... item_protection_index (2), item_type (4)
        if name == b"infe" and infos[begin + 6 + id_bytes : begin + 10 + id_bytes] == b"av01":
            av1_ids.add(int.from_bytes(infos[begin + 4 : begin + 4 + id_bytes], "big"))
    iloc = _BitReader(meta[b"iloc"])
    version, _ = iloc.read(8), iloc.read(24)  # version, flags
    offset_bits, length_bits, base_bits, index_bits = (8 * iloc.read(4) for _ in range(4))
    count = iloc.read(16 if version < 2 else 32)  # item_count
    if version > 2 or max(len(av1_ids), count) > _MAX_ITEMS:
        raise ValueError("iloc has too many items, or a version that libavif does not read")
    idat = meta.get(b"idat", data[:0])
    places: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}  # (in idat, extents): items there
    for _ in range(count):
        item_id = iloc.read(16 if version < 2 else 32)
        in_idat = bool(version and iloc.read(16) & 15)  # construction_method: idat or file
        _, base, extents = iloc.read(16), iloc.read(base_bits), []  # data_reference_index, base_offset
        for _ in range(iloc.read(16)):  # extent_count
            iloc.read(index_bits if version else 0)
            begin, length = base + iloc.read(offset_bits), iloc.read(length_bits)
            if not length:  # of extents without fields, a small file may claim hundreds of millions
                raise ValueError("an item has no length")
            extents.append((begin, length))
        if item_id in av1_ids:
            place = in_idat, tuple(extents)
            places[place] = places.get(place, 0) + 1
    if sum([length for _, extents in places for _, length in extents]) > len(data):
        raise ValueError("items overlap")
    return [
        (b"".join((idat if in_idat else data)[begin : begin + length] for begin, length in extents), count)
        for (in_idat, extents), count in places.items()
    ]


# --- the bitstream (AV1) ---------------------------------------------------------------------------------------------

_SEQUENCE_HEADER, _FRAME_HEADER, _FRAME, _REDUNDANT_FRAME_HEADER = 1, 3, 6, 7  # obu_type, 6.2.2


def _coded_pixels(item: bytes) -> int:
    """The pixels of all frames of an item, shown or not, at their largest size."""
    data, frames, largest = memoryview(item), 0, 0
    while data:
        # obu_header (5.3.2): forbidden bit, obu_type (4), extension flag, has_size flag, reserved bit
        kind, has_extension, has_size = data[0] >> 3 & 15, data[0] & 4, data[0] & 2
        data = data[2 if has_extension else 1 :]
        size = 0 if has_size else len(data)
        for i in range(8 if has_size else 0):  # leb128 (4.10.5)
            size |= (data[0] & 127) << 7 * i
            more, data = data[0] & 128, data[1:]
            if not more:
                break
        if kind == _SEQUENCE_HEADER:
            largest = max(largest, _max_frame_pixels(_BitReader(data[:size])))
        # A redundant header repeats a frame header, and counts as one if it comes first.
        frames += kind in (_FRAME_HEADER, _FRAME, _REDUNDANT_FRAME_HEADER)
        data = data[size:]
    if frames and not largest:
        raise ValueError("an AV1 item without a sequence header")
    return frames * largest


def _max_frame_pixels(header: _BitReader) -> int:
    """The most pixels that a sequence header allows a frame (5.5.1)."""
    read, model_bits, has_delays = header.read, 0, 0
    read(4)  # seq_profile (3), still_picture
    is_reduced = read(1)  # reduced_still_picture_header
    if is_reduced:
        read(5)  # seq_level_idx
    else:
        if read(1):  # timing_info_present_flag: timing_info (5.5.3)
            read(64)
            if read(1):  # equal_picture_interval: num_ticks_per_picture_minus_1 as uvlc (4.10.3)
                zeros = 0
                while not read(1):
                    zeros += 1
                read(zeros)
            if read(1):  # decoder_model_info_present_flag: decoder_model_info (5.5.4)
                model_bits = read(5) + 1  # buffer_delay_length_minus_1
                read(42)
        has_delays = read(1)  # initial_display_delay_present_flag
        for _ in range(read(5) + 1):  # operating_points_cnt_minus_1
            read(12)  # operating_point_idc
            if read(5) > 7:  # seq_level_idx
                read(1)  # seq_tier
            if model_bits and read(1):  # operating_parameters_info (5.5.5)
                read(2 * model_bits + 1)
            if has_delays and read(1):
                read(4)  # initial_display_delay_minus_1
    width_bits, height_bits = read(4) + 1, read(4) + 1
    # A frame may override the size with any that these bits hold (5.9.5), unless the header is reduced.
    return (read(width_bits) + 1) * (read(height_bits) + 1) if is_reduced else 1 << width_bits + height_bits
