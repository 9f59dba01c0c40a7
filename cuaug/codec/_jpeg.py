"""The decoder for JPEGs of the common kind, in kernels/host_jpeg.cpp."""

from __future__ import annotations

import ctypes

from cuaug._native import BEST_ISA, ISAS, library

__all__ = ["decode_jpeg"]


def _entry(isa: str) -> ctypes._NamedFuncPointer:
    entry = getattr(library, f"cuaug_decode_jpeg_{isa}")
    entry.argtypes = [ctypes.c_char_p, ctypes.c_int64, *[ctypes.c_int] * 6, ctypes.c_void_p]
    return entry


_entries = {isa: _entry(isa) for isa, number in ISAS.items() if number <= BEST_ISA}
_best = next(isa for isa, number in ISAS.items() if number == BEST_ISA)


def decode_jpeg(
    data: bytes, height: int, width: int, region: tuple[int, int, int, int], target: int, *, isa: str = _best
) -> bool:
    """Decodes a region of a JPEG, bit for bit as libjpeg-turbo does by default. Releases the GIL.

    Args:
        data: the whole file.
        height, width: what its header was found to say.
        region: (y0, x0, y1, x1), the end excluded, within the picture as stored.
        target: address of memory for (y1 - y0, x1 - x0, 3) uint8 RGB.
        isa: which build of it; all give the same bits.

    Returns:
        False where this decoder does not take the file, which is progressive, grayscale, CMYK, ... or damaged: then the
        memory holds anything.

    Raises:
        MemoryError: there is none for a few rows of samples.
    """
    status = _entries[isa](data, len(data), height, width, *region, target)
    if status == 2:
        raise MemoryError(f"no memory to decode {height} x {width} pixels")
    return status == 0
