"""Boxes, the containers of AVIF and JPEG 2000 files (ISO/IEC 14496-12, 4.2; ISO/IEC 15444-1, I.4)."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["boxes"]


def boxes(data: memoryview, begin: int = 0, end: int | None = None) -> Iterator[tuple[bytes, int, int]]:
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
