"""Files seen as memory, further than they reach yet."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os

import numpy as np
from numpy.typing import NDArray

from cuaug.gone import libc, when_gone

__all__ = ["read_only_map"]

_int, _size = ctypes.c_int, ctypes.c_size_t
libc.mmap.argtypes, libc.mmap.restype = [ctypes.c_void_p, _size, _int, _int, _int, ctypes.c_int64], ctypes.c_void_p
libc.munmap.argtypes = [ctypes.c_void_p, _size]


def read_only_map(file: int, size: int) -> NDArray[np.uint8]:
    """(size,) uint8 over the start of an open file: what is written to the file later appears in it.

    `mmap.mmap` refuses to map beyond the file's end, so that a file that grows would be mapped over and over, with a
    descriptor for each map that somebody still looks at. Bytes beyond the end must not be touched (SIGBUS). The map
    goes with the last view of it, and needs the file to stay open no longer than this call.

    Raises:
        OSError: the system refuses, for example for want of addresses.
    """
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    if address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    memory = (ctypes.c_uint8 * size).from_address(address)
    # Not at exit: a worker thread may be reading then, and the system takes all maps back anyway.
    when_gone(memory, functools.partial(libc.munmap, address), size)
    return np.frombuffer(memoryview(memory).toreadonly(), dtype=np.uint8)
