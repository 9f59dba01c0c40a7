"""The compiled library: which functions keep the GIL."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("name", _KEEPS_GIL)
def test_short_functions_keep_the_gil(name):
    assert keeps_gil(name) and getattr(library, f"cuaug_{name}").argtypes is not None


@pytest.mark.parametrize("name", RELEASES_GIL)
def test_functions_that_wait_release_it(name):
    assert not keeps_gil(name)
