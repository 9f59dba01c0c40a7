"""Decoding labels from untrusted bytes: an invalid label damages one sample and allocates nothing."""

from __future__ import annotations

import contextlib
import io
import json
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from cuaug import DecodeError
from cuaug._runtime import npy as npz
from cuaug._runtime.npy import decode_npz
from cuaug.sources.labels import decode_field, decode_integer, decode_json, decode_npy, decode_text


def to_npy(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def to_npz(values: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **values)
    return file.getvalue()


def npy(header: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


def test_integers():
    for value in (0, -(2**63), 2**63 - 1):
        assert decode_integer(b" %d\n" % value) == decode_json(b"%d" % value) == value
    for value in (-(2**63) - 1, 2**63, int("9" * 19 + "9")):
        for decode in (decode_integer, decode_json):
            with pytest.raises(ValueError, match="an integer beyond int64"):
                decode(b"%d" % value)
    for text in (b"9" * 10_000, b"1.0", b"", b"\xff"):
        with pytest.raises(ValueError):
            decode_integer(text)


@pytest.mark.parametrize("text", ["[1, 99999999999999999999]", '{"a": [{"b": -9223372036854775809}]}'])
def test_integers_in_json_are_within_int64(text):
    with pytest.raises(ValueError, match="beyond int64"):
        decode_json(text.encode())


def test_json_values():
    value = {"a": [1, 2.5, 1e300, None, True, "ä"], "b": {"c": []}}
    assert decode_json(json.dumps(value).encode()) == value
    with pytest.raises(ValueError):
        decode_json(b"[" * 100_000)


def test_errors_show_the_beginning_of_a_label():
    with pytest.raises(DecodeError, match=r"label 'x' holds b'aaa") as caught:
        decode_field("x", b"a" * 1_000_000 + b"\xff", decode_text)
    assert len(str(caught.value)) < 300


@given(
    st_np.arrays(
        st.sampled_from(["u1", "<i8", ">i4", "<f4", "?", "S3", "<c8"]), st_np.array_shapes(min_dims=0, min_side=0)
    ),
    st.booleans(),
    st.sampled_from([(1, 0), (2, 0)]),
)
def test_arrays(array, is_fortran, version):
    array = np.asfortranarray(array) if is_fortran else array
    decoded = decode_npy(to_npy(array, version))
    assert decoded.shape == array.shape and decoded.dtype == array.dtype and decoded.flags.writeable
    assert decoded.tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [f"({2**40},)", f"({2**30}, 4, 100)", f"({2**62}, 4)", "(3,)"])
def test_a_header_that_claims_too_many_elements_is_refused(shape):
    data = npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}", bytes(23))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="has more than 23 bytes"):
            decode_npy(data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


INVALID = {
    "objects": to_npy(np.array([1, None], dtype=object)),
    "negative": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", bytes(80)),
    "no size": npy("{'descr': 'V0', 'fortran_order': False, 'shape': (5,)}"),
    "no order": npy("{'descr': '<f8', 'shape': (1,)}", bytes(8)),
    "parens": npy("(((("),
    "long": npy("{" + "'a':" * 5000),
    "zip": b"PK\x03\x04" + bytes(100),
    "pickle": b"\x80\x04K\x01.",
    "version 3": b"\x93NUMPY\x03\x00\x02\x00\x00\x00{}",
    "version 9": b"\x93NUMPY\x09\x00",
    "empty": b"",
}


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID)
def test_invalid_arrays_are_refused(data):
    with pytest.raises(ValueError):
        decode_npy(data)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_give_an_array_or_a_value_error(data):
    for candidate in (data, npy(repr(data)), b"\x93NUMPY\x01\x00" + data):
        with contextlib.suppress(ValueError):
            decode_npy(candidate)


def test_dicts_of_arrays():
    values = {"boxes": np.zeros((0, 4), np.float32), "scores": np.arange(3.0), "id": 7, "name": "x", "flag": True}
    decoded = decode_npz(to_npz(values))
    assert list(decoded) == list(values) and [decoded[name] for name in ("id", "name", "flag")] == [7, "x", True]
    for name in ("boxes", "scores"):
        np.testing.assert_array_equal(decoded[name], values[name], strict=True)


def test_deflated_zeros_are_refused_before_they_are_inflated(monkeypatch):
    monkeypatch.setattr(npz, "DEFAULT_MAX_BYTES", 1 << 20)
    data = to_npz({"a": np.zeros(1 << 24, np.uint8)})
    assert len(data) < 1 << 18
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="above the limit"):
            decode_npz(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def zipped(data: bytes, name: str = "a.npy") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, data)
    return file.getvalue()


@pytest.mark.parametrize("data", [b"", b"PK", zipped(b"no array"), zipped(to_npy(np.array([1, None], dtype=object)))])
def test_invalid_dicts_of_arrays_are_refused(data):
    with pytest.raises(ValueError):
        decode_npz(data)


@given(st.integers(0, 500), st.binary(min_size=1, max_size=8))
def test_damaged_dicts_of_arrays_give_a_value_error_or_values(at, noise):
    data = bytearray(to_npz({"a": np.arange(30), "b": "x"}))
    at %= len(data)
    data[at : at + len(noise)] = noise
    with contextlib.suppress(ValueError):
        decode_npz(bytes(data))
