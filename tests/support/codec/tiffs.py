"""TIFFs that no library writes."""

from __future__ import annotations

import struct


def tiff(*entries: tuple[int, int, int], pixels: bytes = b"", order: str = "<", big: bool = False) -> bytes:
    """A TIFF of (tag, type, value) entries; the value -1 is the offset of `pixels`."""
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
