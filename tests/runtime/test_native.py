"""The compiled library: its functions are declared as in the headers, and which of them keep the GIL."""

from __future__ import annotations

from cuaug._runtime.c_headers import KERNEL_DIRECTORY, parse_functions
from cuaug._runtime.native import _KEEPS_GIL, library

KEEPS_GIL = 4  # FUNCFLAG_PYTHONAPI of CPython's ctypes

# Each waits, takes a lock that is held for long, or may take long.
RELEASES_GIL = (
    *("capture_begin", "codec_new", "convert_yuv", "copy_rows", "crop_jpeg", "decode_region", "decoder_new"),
    *("device_batch_add", "device_batch_keep", "file_memory_release", "free_chunk", "jpeg_headers", "jpeg_index_stats"),
    *("pool_activity", "pool_delete", "pool_next", "pool_stop", "run", "run_samples", "run_stack"),
)


def keeps_gil(name: str) -> bool:
    return bool(type(getattr(library, f"cuaug_{name}"))._flags_ & KEEPS_GIL)


def test_short_functions_keep_the_gil_and_functions_that_wait_release_it():
    assert all(map(keeps_gil, _KEEPS_GIL))
    assert [name for name in RELEASES_GIL if keeps_gil(name)] == []


def test_every_exported_function_is_declared():
    texts = [path.read_text() for path in KERNEL_DIRECTORY.glob("**/*.[ch]*")]
    names = {name for text in texts for name in parse_functions(text)}
    assert len(names) == sum(text.count("\nEXPORT ") for text in texts) > 70
    assert all(getattr(library, name).argtypes is not None for name in names)
