"""Memory use of this process."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

_libc, _M_PERTURB = ctypes.CDLL(None), -6


class _Mallinfo2(ctypes.Structure):
    _fields_ = [("before", 7 * ctypes.c_size_t), ("allocated", ctypes.c_size_t), ("behind", 2 * ctypes.c_size_t)]


def allocated() -> int:
    """Bytes that this process holds from malloc, as glibc counts them."""
    if not hasattr(_libc, "mallinfo2"):
        pytest.skip("this C library does not count")
    _libc.mallinfo2.restype = _Mallinfo2
    return _libc.mallinfo2().allocated


def peak_bytes() -> int:
    """Peak memory of this process since its start, or since `forget_peak`.

    `getrusage` would include the peak of the parent process.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("/proc/self/status has no VmHWM")


def forget_peak() -> int:
    """Makes the memory that this process holds its peak; returns it."""
    Path("/proc/self/clear_refs").write_text("5")  # proc(5)
    return peak_bytes()


def fill_fresh_memory(byte: int) -> None:
    """Make `malloc` fill new memory with this byte, in all threads; 0 turns it off.

    Allocated memory then counts as used, and bytes that a decoder leaves unwritten show.
    """
    _libc.mallopt(_M_PERTURB, byte)
