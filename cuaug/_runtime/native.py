"""The compiled kernel library: CPU kernels, planner, JPEG code and random draws, through ctypes.

A call releases the GIL, but not of functions in `_KEEPS_GIL`: while other threads wait for the GIL, a release costs a
system call and often a wait: more than these functions take. They take microseconds for a batch, wait for nothing and
take no lock. A function that reads, decodes, runs kernels or may take 100 us must release the GIL.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import zlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.c_headers import KERNEL_DIRECTORY, parse_functions
from cuaug.errors import DeviceError

#: `ctypes.get_errno()` returns the error number of its calls.
libc = ctypes.CDLL(None, use_errno=True)


def release_freed_memory() -> None:
    """Returns freed memory to the system; glibc would keep it in an arena per thread."""
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(ctypes.c_size_t(0))


#: Instruction sets, as the library numbers them.
ISAS = {"baseline": 0, "avx2": 1, "avx512": 2}

_here = Path(__file__).parent.parent
# Of KERNEL_DIRECTORY: their files define the library's functions.
_API_FOLDERS = ("cpu", "jpeg", "planner")

_KEEPS_GIL = (
    *("append", "begin", "borders", "crop", "current_sizes", "finish", "flip", "misfit", "output_sizes", "pad"),
    *("regions", "resize", "set_filter", "sort_operations", "split", "transpose", "warp"),
    *("draw", "first_window", "first_window_with_box", "is_resample_signature", "scratch_words", "signature"),
    *("device_batch_add_residents", "device_batch_bound", "device_batch_finish", "device_batch_make_resident"),
    *("device_batch_new", "device_batch_prepare", "device_batch_reserve", "resident_jpeg_bytes"),
    # A consumer that gives up the GIL here gets it back after a switch interval of each thread that waits for it.
    *("pool_add", "pool_hurry"),
)


def _sources_checksum(folder: Path) -> int:
    """Checksum of the library's sources, as in setup.py. About 0.3 ms."""
    checksum = 0
    for path in sorted(
        path for path in folder.glob("**/*.*") if path.suffix in (".h", ".cpp", ".def") and path.name[0] != "."
    ):
        checksum = zlib.crc32(path.read_bytes(), zlib.crc32(path.relative_to(folder).as_posix().encode(), checksum))
    return checksum


def _check_sources(lib: ctypes.CDLL, path: Path, folder: Path) -> None:
    """Checks that a checkout's library was built from its sources: after `git pull` it may be older.

    Raises:
        DeviceError: it was built from other sources.
    """
    try:
        lib.cuaug_sources.argtypes, lib.cuaug_sources.restype = [], ctypes.c_uint32
        built_from = lib.cuaug_sources()
    except AttributeError:  # the library is older than this check
        built_from = None
    if built_from != _sources_checksum(folder):
        raise DeviceError(
            f"{path} was built from other sources than those in {folder}: run `make` or `pip install -e .` again"
        )


def _library_path() -> Path:
    """The library of this package. In a checkout that has none, and hides an installed cuaug: that one's."""
    own = _here / "_kernels.so"
    if not own.exists():
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed = Path(str(metadata.distribution("cuaug").locate_file("cuaug/_kernels.so")))
            if installed.exists():
                return installed
    return own


def _load() -> ctypes.CDLL:
    override = os.environ.get("CUAUG_KERNEL_LIBRARY")
    path = Path(override) if override else _library_path()
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise DeviceError(
            f"the compiled CPU kernels cannot be loaded from {path} ({error}): install cuaug with "
            "`pip install .`, or run `make` in a checkout"
        ) from error
    if not override and KERNEL_DIRECTORY.name == "kernels" and KERNEL_DIRECTORY.is_dir():  # not in an installed wheel
        _check_sources(lib, path, KERNEL_DIRECTORY)
    _declare(lib)
    keeping = ctypes.PyDLL(str(path))
    for name in (f"cuaug_{name}" for name in _KEEPS_GIL):
        function, declared = getattr(keeping, name), getattr(lib, name)
        function.argtypes, function.restype = declared.argtypes, declared.restype
        setattr(lib, name, function)
    return lib


def _declare(lib: ctypes.CDLL) -> None:
    """Declares the argument and result types; ctypes takes an undeclared result for an int."""
    for folder in _API_FOLDERS:
        for path in (KERNEL_DIRECTORY / folder).glob("*.[ch]*"):
            text = path.read_text()
            for name, (result, arguments) in parse_functions(text).items() if "EXPORT " in text else ():
                function = getattr(lib, name)
                function.restype, function.argtypes = result, arguments


#: Offset of the bytes of a bytes object from its id: the last field, which counts as one byte of its size.
BYTES_DATA_OFFSET = bytes.__basicsize__ - 1

_address_of = ctypes.addressof
_from_buffer: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer


def address(array: NDArray[Any]) -> int:
    """Address of the array's first element; keep the array until the library has used it."""
    try:
        # The buffer of a structured type would list every field.
        return _address_of(_from_buffer(array if array.dtype.names is None else array.view(np.uint8)))
    except (TypeError, ValueError):  # not contiguous, or read-only
        return int(array.ctypes.data)  # takes twice as long


def data_address(data: bytes | NDArray[Any]) -> int:
    """Address of the first byte of bytes, or of an array."""
    return id(data) + BYTES_DATA_OFFSET if isinstance(data, bytes) else address(data)


#: The loaded library. CUAUG_KERNEL_LIBRARY may name another build, such as one with a sanitizer.
library = _load()
#: The widest instruction set of both this processor and the build.
BEST_ISA = int(library.cuaug_best_isa())
