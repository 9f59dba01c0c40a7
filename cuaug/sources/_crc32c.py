"""CRC-32C (Castagnoli), which TFRecord has around its records."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

__all__ = ["crc32c", "masked"]

_POLYNOMIAL = 0x82F63B78  # reversed: the lowest bit is the highest power
_LANE_BITS = 7  # long data is cut into lanes of 2**7 bytes, which are worked on side by side


def _table() -> NDArray[np.uint32]:
    value = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        value = (value >> np.uint32(1)) ^ np.where(value & np.uint32(1), np.uint32(_POLYNOMIAL), np.uint32(0))
    return value


_TABLE = _table()
_TABLE_LIST = _TABLE.tolist()


def crc32c(data: bytes) -> int:
    """The checksum of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    if len(data) <= 512:
        value = 0xFFFFFFFF
        for byte in data:
            value = _TABLE_LIST[(value ^ byte) & 255] ^ (value >> 8)
        return value ^ 0xFFFFFFFF
    return _in_lanes(data) ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """As TFRecord stores it, so that a checksum of data that holds checksums stays a good one."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _in_lanes(data: bytes) -> int:
    """Without the last inversion.

    The checksum is linear over GF(2): that of a message is the sum of those of its parts, each followed by as many
    zeros as there are bytes after it; zeros in front change nothing, and the first inversion is that of the first
    four bytes.
    """
    lanes = 1 << (((len(data) - 1) >> _LANE_BITS).bit_length())
    padded = np.zeros(lanes << _LANE_BITS, dtype=np.uint8)
    start = len(padded) - len(data)
    padded[start:] = np.frombuffer(data, dtype=np.uint8)
    padded[start : start + 4] ^= np.uint8(255)
    value = np.zeros(lanes, dtype=np.uint32)
    for column in np.ascontiguousarray(padded.reshape(lanes, -1).T):
        value = _TABLE[(value & np.uint32(255)) ^ column] ^ (value >> np.uint32(8))
    bits = _LANE_BITS
    while len(value) > 1:
        value = _after_zeros(value[0::2], bits) ^ value[1::2]
        bits += 1
    return int(value[0])


def _after_zeros(value: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """Checksums as they are after 2**bits bytes of zeros: a matrix of 32 x 32 bits, by the bytes of the vector."""
    tables = _zeros(bits)
    parts = [tables[k][(value >> np.uint32(8 * k)) & np.uint32(255)] for k in range(4)]
    return parts[0] ^ parts[1] ^ parts[2] ^ parts[3]


@functools.cache
def _zeros(bits: int) -> NDArray[np.uint32]:
    """(4, 256): what each byte of a checksum becomes after 2**bits bytes of zeros."""
    if bits == 0:
        value = np.arange(256, dtype=np.uint32) << (np.uint32(8) * np.arange(4, dtype=np.uint32)[:, None])
        return _TABLE[value & np.uint32(255)] ^ (value >> np.uint32(8))
    half = _zeros(bits - 1)
    return _after_zeros(half.reshape(-1), bits - 1).reshape(4, 256)
