"""Functions and structs of C++ headers as ctypes types."""

from __future__ import annotations

from cuaug._runtime.c_headers import KERNEL_DIRECTORY, parse_functions
from cuaug._runtime.native import library


def test_every_exported_function_is_declared():
    texts = [path.read_text() for path in KERNEL_DIRECTORY.glob("**/*.[ch]*")]
    names = {name for text in texts for name in parse_functions(text)}
    assert len(names) == sum(text.count("\nEXPORT ") for text in texts) > 70
    assert all(getattr(library, name).argtypes is not None for name in names)
