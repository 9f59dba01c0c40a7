"""Conversion of float32 to narrower types, by a search for the nearest value of the type."""

from __future__ import annotations

import numpy as np


def half_values() -> np.ndarray:
    """(0x7C00,) values of the non-negative finite float16 bit patterns, in order."""
    bits = np.arange(0x7C00)
    exponent, fraction = bits >> 10, bits & 0x3FF
    subnormal = np.ldexp(fraction / 1024.0, -14)
    return np.where(exponent == 0, subnormal, np.ldexp(1 + fraction / 1024.0, exponent - 15))


def bfloat16_values() -> np.ndarray:
    """(0x7F80,) values of the same bfloat16 patterns, which are the upper half of a float32's."""
    bits = np.arange(0x7F80)
    exponent, fraction = bits >> 7, bits & 0x7F
    return np.where(exponent == 0, np.ldexp(fraction / 128.0, -126), np.ldexp(1 + fraction / 128.0, exponent - 127))


def nearest_bits(values: np.ndarray, table: np.ndarray, overflow: float) -> np.ndarray:
    """Bit patterns of the nearest entries of `table`, ties to the even pattern.

    Values from `overflow` on become infinity, one past the last entry. The sign is the top bit. NaNs are not supported.
    """
    size = np.abs(values.astype(np.float64))
    upper = np.clip(np.searchsorted(table, size), 1, len(table) - 1)
    lower = upper - 1
    below, above = size - table[lower], table[upper] - size
    bits = np.where(below < above, lower, np.where(above < below, upper, lower + (lower & 1)))
    bits = np.where(size >= overflow, len(table), bits)
    return (bits | np.signbit(values) << 15).astype(np.uint16)


def half_bits(values: np.ndarray) -> np.ndarray:
    return nearest_bits(values, half_values(), 65520.0)


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    return nearest_bits(values, bfloat16_values(), np.ldexp(2.0 - 2.0**-8, 127))


def to_uint8(values: np.ndarray) -> np.ndarray:
    """Rounds to the nearest level, halves up, and saturates; NaN becomes 0."""
    values = np.where(np.isnan(values), 0.0, values.astype(np.float64))
    return np.floor(np.clip(values, 0, 255) + 0.5).astype(np.uint8)
