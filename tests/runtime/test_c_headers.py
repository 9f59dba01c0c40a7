"""Functions and structs of C++ headers as ctypes types."""

from __future__ import annotations

import ctypes

import pytest

from cuaug._runtime.c_headers import KERNEL_DIRECTORY, columns, parse_functions, parse_struct
from cuaug._runtime.native import library

HEADER = """
// struct Row { int a comment; };
struct Point {
    double x, y;
};

struct Row {
    const Point* const* points;  // a pointer; more
    char* text;
    int64_t size, first[3];
    Point center;
    int height, width;
    bool is_empty() const { return size == 0; }
};

EXPORT void cuaug_nothing() {
}
EXPORT const void* cuaug_find(const Row* row, int32_t (*const* calls)(Row*),
                              double factor, uint64_t key) {
    return row;
}
int cuaug_private(int a) { return a; }
"""


def test_fields_and_their_columns():
    point = parse_struct(HEADER, "Point")
    row = parse_struct(HEADER, "Row", point)
    pointers = [("points", ctypes.c_void_p), ("text", ctypes.c_char_p)]
    numbers = [("size", ctypes.c_int64), ("first", ctypes.c_int64 * 3)]
    sizes = [("height", ctypes.c_int32), ("width", ctypes.c_int32)]
    assert row._fields_ == [*pointers, *numbers, ("center", point), *sizes]
    places = {"points": 0, "text": 1, "size": 2, "first": 3, "center": 6, "x": 6, "y": 7, "height": 8}
    assert vars(columns(row)) == places, "no column begins with the width"


def test_an_unknown_type_is_an_error():
    with pytest.raises(KeyError, match="Point"):
        parse_struct(HEADER, "Row")


def test_results_and_arguments():
    pointer = ctypes.c_void_p
    assert parse_functions(HEADER) == {
        "cuaug_nothing": (None, []),
        "cuaug_find": (pointer, [pointer, pointer, ctypes.c_double, ctypes.c_uint64]),
    }


def test_every_exported_function_is_declared():
    texts = [path.read_text() for path in KERNEL_DIRECTORY.glob("**/*.[ch]*")]
    names = {name for text in texts for name in parse_functions(text)}
    assert len(names) == sum(text.count("\nEXPORT ") for text in texts) > 70
    assert all(getattr(library, name).argtypes is not None for name in names)
