"""The C library."""

from __future__ import annotations

import ctypes

__all__ = ["libc", "release_freed_memory"]

#: `ctypes.get_errno()` returns the error number of its calls.
libc = ctypes.CDLL(None, use_errno=True)


def release_freed_memory() -> None:
    """Returns freed memory to the system; glibc would keep it in an arena per thread."""
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(ctypes.c_size_t(0))
