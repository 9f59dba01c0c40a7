"""AVIF: bounds the pixels that libavif decodes, which need not be those that the container claims.

libavif scales a decoded frame to the size that the container claims, decodes every cell of a grid, and decodes frames
that are never shown. So we read the sequence headers of all AV1 items and count their frames.
"""

from __future__ import annotations

from cuaug.codec.boxes import boxes
from cuaug.errors import DecodeError

__all__ = ["AVIF_BRANDS", "as_still_avif"]

AVIF_BRANDS = (b"avif", b"avis", b"mif1", b"msf1")
"""Brands that Pillow takes for AVIF; with the last two a file may hold HEVC."""

_MAX_ITEMS = 4096
"""libavif searches all items for each: 65,536 would take it seconds."""


def as_still_avif(data: bytes, max_pixels: int) -> bytes:
    """Checks the coded frames, and gives the file the brand of a still picture.

    By that brand libavif decodes the primary item, also of an image sequence, whose first frame it is.

    Raises:
        DecodeError: the AV1 items code more than 2 * `max_pixels` together, a picture and its alpha; there are none; or
            we do not understand their structure.
    """
    try:
        items = _av1_items(memoryview(data))
        coded = sum([_coded_pixels(item) for item in items])
    except (LookupError, StopIteration, ValueError) as error:
        raise DecodeError("the structure of the AVIF file is damaged, or not one that cuaug understands") from error
    if not items:
        raise DecodeError("the file has no AV1 picture, as an AVIF has; HEIC is not read")
    if coded > 2 * max_pixels:
        raise DecodeError(
            f"the frames of the AVIF file have {coded} pixels together, above the limit of {2 * max_pixels}, which "
            "max_pixels sets"
        )
    return data if data[8:12] == b"avif" else data[:8] + b"avif" + data[12:]


class _Numbers:
    """Unsigned big-endian numbers of some bits each, one after the other."""

    def __init__(self, data: memoryview | bytes) -> None:
        self._data, self._at = data, 0

    def take(self, bits: int) -> int:
        begin, end = self._at, self._at + bits
        if end > 8 * len(self._data):
            raise IndexError("the data ends too early")
        self._at = end
        held = int.from_bytes(self._data[begin // 8 : -(-end // 8)], "big")
        return held >> -end % 8 & ((1 << bits) - 1)


# --- the container (ISO/IEC 14496-12) --------------------------------------------------------------------------------


def _av1_items(data: memoryview) -> list[bytes]:
    """The data of each AV1 item in the first `meta` box; libavif reads no other."""
    begin, end = next((begin, end) for name, begin, end in boxes(data) if name == b"meta")
    meta = {name: data[begin:end] for name, begin, end in boxes(data, begin + 4, end)}
    infos, av1 = meta[b"iinf"], set()
    for name, begin, _ in boxes(infos, 6 if infos[0] == 0 else 8):
        size = 2 if infos[begin] == 2 else 4
        if name == b"infe" and infos[begin + 6 + size : begin + 10 + size] == b"av01":
            av1.add(int.from_bytes(infos[begin + 4 : begin + 4 + size], "big"))
    iloc = _Numbers(meta[b"iloc"])
    version, _ = iloc.take(8), iloc.take(24)
    offset_bits, length_bits, base_bits, index_bits = (8 * iloc.take(4) for _ in range(4))
    count = iloc.take(16 if version < 2 else 32)
    if version > 2 or max(len(av1), count) > _MAX_ITEMS:
        raise ValueError("too many items, or their places are in a form that libavif does not read")
    items, total = [], 0
    for _ in range(count):
        number = iloc.take(16 if version < 2 else 32)
        within = meta[b"idat"] if version and iloc.take(16) & 15 else data
        _, base, parts = iloc.take(16), iloc.take(base_bits), []
        for _ in range(iloc.take(16)):
            iloc.take(index_bits if version else 0)
            begin, length = base + iloc.take(offset_bits), iloc.take(length_bits)
            total += length
            parts.append(within[begin : begin + length])
            if not length or total > len(data):
                raise ValueError("an item without a length, or items that overlap")
        if number in av1:
            items.append(b"".join(parts))
    return items


# --- AV1 (its specification, 5.3 to 5.5) -----------------------------------------------------------------------------


def _coded_pixels(item: bytes) -> int:
    """The pixels of all frames of an item, shown or not, at their largest size."""
    data, frames, largest = memoryview(item), 0, 0
    while data:
        kind, has_extension, has_size = data[0] >> 3 & 15, data[0] & 4, data[0] & 2
        data = data[2 if has_extension else 1 :]
        size = 0 if has_size else len(data)
        for i in range(8 if has_size else 0):
            size |= (data[0] & 127) << 7 * i
            more, data = data[0] & 128, data[1:]
            if not more:
                break
        if kind == 1:  # a sequence header
            largest = max(largest, _frame_pixels(_Numbers(data[:size])))
        frames += kind in (3, 6, 7)  # frame headers; the last kind repeats one, and counts where it is the first
        data = data[size:]
    if frames and not largest:
        raise ValueError("an AV1 item without a sequence header")
    return frames * largest


def _frame_pixels(header: _Numbers) -> int:
    """The most pixels that a frame may have by a sequence header (5.5.1)."""
    take, model_bits, has_delays = header.take, 0, 0
    take(4)
    is_reduced = take(1)
    if is_reduced:
        take(5)
    else:
        if take(1):  # timing_info
            take(64)
            if take(1):
                zeros = 0
                while not take(1):
                    zeros += 1
                take(zeros)
            if take(1):  # decoder_model_info
                model_bits = take(5) + 1
                take(42)
        has_delays = take(1)
        for _ in range(take(5) + 1):  # operating points
            take(12)
            if take(5) > 7:
                take(1)
            if model_bits and take(1):
                take(2 * model_bits + 1)
            if has_delays and take(1):
                take(4)
    width_bits, height_bits = take(4) + 1, take(4) + 1
    # A frame may override the size with any that these bits can hold, unless the header is a reduced one.
    return (take(width_bits) + 1) * (take(height_bits) + 1) if is_reduced else 1 << width_bits + height_bits
