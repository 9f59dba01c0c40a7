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

from numpy.typing import NDArray

from cuaug.errors import DeviceError

__all__ = [
    "BEST_ISA",
    "BYTES_DATA_OFFSET",
    "ISAS",
    "KERNEL_DIRECTORY",
    "address",
    "data_address",
    "libc",
    "library",
    "release_freed_memory",
]

#: `ctypes.get_errno()` returns the error number of its calls.
libc = ctypes.CDLL(None, use_errno=True)


def release_freed_memory() -> None:
    """Returns freed memory to the system; glibc would keep it in an arena per thread."""
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(ctypes.c_size_t(0))


#: Instruction sets, as the library numbers them.
ISAS = {"baseline": 0, "avx2": 1, "avx512": 2}

_here = Path(__file__).parent.parent
#: The kernel sources: inside an installed wheel, or beside the package in a checkout.
KERNEL_DIRECTORY = _here / "_kernels" if (_here / "_kernels").is_dir() else _here.parent / "kernels"

_KEEPS_GIL = (
    *("append", "begin", "borders", "crop", "current_sizes", "finish", "flip", "misfit", "output_sizes", "pad"),
    *("pass_table_size", "regions", "resize", "set_filter", "sort_operations", "split", "transpose", "warp"),
    *("draw", "first_window", "first_window_with_box", "is_resample_signature", "scratch_words", "signature"),
    *("device_batch_add_residents", "device_batch_bound", "device_batch_finish", "device_batch_make_resident"),
    *("device_batch_new", "device_batch_plan", "device_batch_reserve", "pays_to_crop", "resident_jpeg_bytes"),
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
    pointer, i32, i64, u32 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32
    f32, f64 = ctypes.c_float, ctypes.c_double
    lib.cuaug_best_isa.argtypes = []
    lib.cuaug_run.argtypes = [i32, pointer, i64, i32, pointer, pointer, pointer]
    lib.cuaug_run.argtypes += [pointer, i64, i32, i32, pointer, i32, i32]
    lib.cuaug_run_samples.argtypes = [i32, pointer, i64, pointer, i64, i64, i32, pointer, pointer, i64, pointer]
    lib.cuaug_run_samples.restype = i64
    lib.cuaug_run_stack.argtypes = [i32, i32, pointer, i64, i32, pointer, pointer]
    lib.cuaug_run_stack.argtypes += [pointer, i64, i64, i32, pointer, i64]
    lib.cuaug_interleave.argtypes = [i32, i32, pointer, i64, i64, i64, i64, i32, pointer]
    lib.cuaug_interleave.restype = None
    lib.cuaug_convert_yuv.argtypes, lib.cuaug_convert_yuv.restype = [i32, pointer, i64], None
    lib.cuaug_draw.argtypes = [i32, u32, u32, pointer, i64, u32, u32, i64, f64, f64, pointer]
    lib.cuaug_draw.restype = None
    lib.cuaug_jpeg_headers.argtypes = [pointer, pointer, *[i64] * 3, pointer]
    lib.cuaug_jpeg_headers.restype = None
    lib.cuaug_count_scans.argtypes, lib.cuaug_count_scans.restype = [ctypes.c_char_p, i64], i64
    lib.cuaug_jpeg_index_new.argtypes, lib.cuaug_jpeg_index_new.restype = [i32, i64, i64, i32], pointer
    lib.cuaug_jpeg_index_stats.argtypes, lib.cuaug_jpeg_index_stats.restype = [pointer, pointer], None
    lib.cuaug_jpeg_index_delete.argtypes, lib.cuaug_jpeg_index_delete.restype = [pointer], None
    lib.cuaug_device_batch_bound.argtypes, lib.cuaug_device_batch_bound.restype = [pointer, i64], i64
    lib.cuaug_device_batch_new.argtypes = [pointer, i64, i64, i32, i32, i32]
    lib.cuaug_device_batch_new.restype = pointer
    lib.cuaug_jpeg_threads.argtypes, lib.cuaug_jpeg_threads.restype = [pointer], i64
    lib.cuaug_resident_jpeg_bytes.argtypes, lib.cuaug_resident_jpeg_bytes.restype = [], i64
    lib.cuaug_device_batch_add_residents.argtypes = [*[pointer] * 4, i64]
    lib.cuaug_device_batch_add_residents.restype = None
    lib.cuaug_device_batch_make_resident.argtypes = [pointer, i64, pointer, pointer]
    lib.cuaug_device_batch_make_resident.restype = None
    lib.cuaug_device_batch_delete.argtypes, lib.cuaug_device_batch_delete.restype = [pointer], None
    lib.cuaug_device_batch_add.argtypes = [pointer, pointer, pointer, i64, pointer, pointer]
    lib.cuaug_device_batch_add.restype = None
    lib.cuaug_device_batch_reserve.argtypes, lib.cuaug_device_batch_reserve.restype = [pointer, i64], i64
    lib.cuaug_device_batch_plan.argtypes = [pointer, pointer]
    lib.cuaug_device_batch_finish.argtypes, lib.cuaug_device_batch_finish.restype = [pointer] * 3, None
    lib.cuaug_device_batch_keep.argtypes, lib.cuaug_device_batch_keep.restype = [pointer] * 4, None
    lib.cuaug_scan_jpegs.argtypes, lib.cuaug_scan_jpegs.restype = [pointer, i64, pointer], None
    lib.cuaug_build_lookups.argtypes, lib.cuaug_build_lookups.restype = [pointer, i64, pointer], None
    lib.cuaug_decode_jpegs.argtypes, lib.cuaug_decode_jpegs.restype = [pointer, pointer, i64], None
    lib.cuaug_color_jpegs.argtypes, lib.cuaug_color_jpegs.restype = [pointer, pointer, i64], None
    lib.cuaug_crop_jpeg.argtypes = [pointer, i64, pointer, pointer, pointer, i64, pointer]
    lib.cuaug_crop_jpeg.restype = i64
    for name in ("file_memory_delete", "pool_delete", "pool_stop"):
        function = getattr(lib, f"cuaug_{name}")
        function.argtypes, function.restype = [pointer], None
    lib.cuaug_file_memory_new.argtypes, lib.cuaug_file_memory_new.restype = [], pointer
    lib.cuaug_file_memory_chunks.argtypes, lib.cuaug_file_memory_chunks.restype = [pointer], i64
    lib.cuaug_file_memory_release.argtypes, lib.cuaug_file_memory_release.restype = [pointer, i64, pointer], pointer
    lib.cuaug_free_chunk.argtypes, lib.cuaug_free_chunk.restype = [pointer, i64], None
    lib.cuaug_free_kept_chunks.argtypes, lib.cuaug_free_kept_chunks.restype = [], None
    lib.cuaug_pool_new.argtypes, lib.cuaug_pool_new.restype = [], pointer
    lib.cuaug_pool_add.argtypes = [pointer, i64, i64, i32, pointer, i64]
    lib.cuaug_pool_next.argtypes, lib.cuaug_pool_next.restype = [pointer, i64], i64
    lib.cuaug_pool_activity.argtypes = [pointer, i64, pointer]
    lib.cuaug_copy_rows.argtypes, lib.cuaug_copy_rows.restype = [pointer, i64], None
    lib.cuaug_keep_ended_threads.argtypes, lib.cuaug_keep_ended_threads.restype = [], None
    lib.cuaug_codec_version.argtypes, lib.cuaug_codec_version.restype = [pointer], i64
    lib.cuaug_codec_new.argtypes, lib.cuaug_codec_new.restype = [pointer, pointer, i64], pointer
    lib.cuaug_codec_size.argtypes = [pointer, ctypes.c_char_p, i64, pointer]
    lib.cuaug_decoder_new.argtypes, lib.cuaug_decoder_new.restype = [pointer, ctypes.c_char_p], pointer
    lib.cuaug_decoder_delete.argtypes, lib.cuaug_decoder_delete.restype = [pointer], None
    lib.cuaug_pays_to_crop.argtypes = [pointer, i32]
    lib.cuaug_decode_region.argtypes = [*[pointer] * 4, i64, pointer, pointer, i64]
    lib.cuaug_capture_begin.argtypes, lib.cuaug_capture_begin.restype = [], None
    lib.cuaug_capture_end.argtypes, lib.cuaug_capture_end.restype = [pointer, i64], i64
    lib.cuaug_apply_orientation.argtypes = [pointer, i64, i64, i64, i32, pointer]
    lib.cuaug_apply_orientation.restype = None
    lib.cuaug_tiff_orientation.argtypes = [ctypes.c_char_p, i64]
    lib.cuaug_scratch_words.argtypes, lib.cuaug_scratch_words.restype = [pointer, i64, i32, i32, pointer], None
    lib.cuaug_signature.argtypes, lib.cuaug_signature.restype = [pointer, i64, pointer], ctypes.c_uint64
    lib.cuaug_is_resample_signature.argtypes = [ctypes.c_uint64]
    lib.cuaug_sizes.argtypes = [pointer]
    lib.cuaug_sizes.restype = None
    lib.cuaug_pass_table_size.argtypes, lib.cuaug_pass_table_size.restype = [], i64
    lib.cuaug_begin.argtypes, lib.cuaug_begin.restype = [pointer, pointer, i32], None
    lib.cuaug_finish.argtypes, lib.cuaug_finish.restype = [pointer, i64, i32, i32, i32, pointer], i64
    lib.cuaug_sort_operations.argtypes = [pointer, i64, pointer, pointer, i64, pointer]
    lib.cuaug_sort_operations.restype = None
    changes: dict[str, list[Any]] = {
        "append": [pointer, i64, f64, pointer, pointer],
        "crop": [pointer],
        "flip": [i32],
        "misfit": [pointer],
        "pad": [pointer],
        "resize": [pointer, i32, i32, f32],
        "split": [],
        "set_filter": [pointer],
        "transpose": [],
        "warp": [pointer, pointer, i32, i32, pointer, f32],
    }
    looks = {"borders": [pointer, pointer], "current_sizes": [pointer]}
    for name, arguments in (changes | looks).items():
        function = getattr(lib, f"cuaug_{name}")
        function.argtypes = [pointer, pointer, i64, *arguments]
        function.restype = i64 if name in changes else None
    lib.cuaug_regions.argtypes, lib.cuaug_regions.restype = [pointer, i64, pointer], i64
    lib.cuaug_output_sizes.argtypes, lib.cuaug_output_sizes.restype = [pointer, i64, i64, pointer], None
    lib.cuaug_pack_taps.argtypes = [pointer, i64, i64, pointer, pointer, pointer]
    lib.cuaug_pack_taps.restype = None
    lib.cuaug_first_window.argtypes = [i64, i64, *[pointer] * 5, i64, pointer, pointer]
    lib.cuaug_first_window.restype = None
    lib.cuaug_move_boxes.argtypes = [pointer, pointer, pointer, i64, pointer, pointer]
    lib.cuaug_move_boxes.restype = None
    lib.cuaug_first_window_with_box.argtypes = [i64, i64, *[pointer] * 10]
    lib.cuaug_first_window_with_box.restype = None


#: Offset of the bytes of a bytes object from its id: the last field, which counts as one byte of its size.
BYTES_DATA_OFFSET = bytes.__basicsize__ - 1

_address_of = ctypes.addressof
_from_buffer: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer


def address(array: NDArray[Any]) -> int:
    """Address of the array's first element; keep the array until the library has used it."""
    try:
        if array.dtype.names is None:  # the buffer of a structured type would list every field
            return _address_of(_from_buffer(array))
    except (TypeError, ValueError):  # not contiguous, or read-only
        pass
    return int(array.ctypes.data)  # takes twice as long


def data_address(data: bytes | NDArray[Any]) -> int:
    """Address of the first byte of bytes, or of an array."""
    return id(data) + BYTES_DATA_OFFSET if isinstance(data, bytes) else address(data)


#: The loaded library. CUAUG_KERNEL_LIBRARY may name another build, such as one with a sanitizer.
library = _load()
#: The widest instruction set of both this processor and the build.
BEST_ISA = int(library.cuaug_best_isa())
