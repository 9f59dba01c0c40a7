"""What becomes of a label's bytes, also of bytes from anybody: what is no label costs its sample, and no memory."""

from __future__ import annotations

import contextlib
import io
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from cuaug import DecodeError, Loader
from cuaug.sources import TarShards
from cuaug.sources._labels import as_array, as_integer, as_json, as_text, decoded
from tests.loader.pictures import png
from tests.sources.writers import write_tar


def saved(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def npy(header: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


def test_integers():
    for value in (0, -(2**63), 2**63 - 1):
        assert as_integer(b" %d\n" % value) == as_json(b"%d" % value) == value
    for value in (-(2**63) - 1, 2**63, int("9" * 19 + "9")):
        for decode in (as_integer, as_json):
            with pytest.raises(ValueError, match="an integer beyond int64"):
                decode(b"%d" % value)
    for text in (b"9" * 10_000, b"1.0", b"", b"\xff"):
        with pytest.raises(ValueError):
            as_integer(text)


@pytest.mark.parametrize("text", ["[1, 99999999999999999999]", '{"a": [{"b": -9223372036854775809}]}'])
def test_integers_within_json(text):
    with pytest.raises(ValueError, match="beyond int64"):
        as_json(text.encode())


def test_json_as_ever():
    value = {"a": [1, 2.5, 1e300, None, True, "ä"], "b": {"c": []}}
    assert as_json(json.dumps(value).encode()) == value
    with pytest.raises(ValueError):
        as_json(b"[" * 100_000)


@pytest.mark.parametrize(("name", "data"), [("cls", b"9" * 19), ("json", b"9" * 20), ("npy", npy("{}"))])
def test_what_is_no_label_costs_its_sample(tmp_path, name, data):
    """Nineteen nines are more than an int64; a batch with them was the end of the run."""
    good = {"cls": b"1", "json": b"1", "npy": saved(np.array(1))}[name]
    members = {"a.png": png(0), f"a.{name}": good, "b.png": png(1), f"b.{name}": data}
    write_tar(tmp_path / "a.tar", members)
    with Loader(TarShards(tmp_path / "a.tar", label=name), batch_size=2, on_error="skip") as loader:
        ((_, labels),) = loader
    assert labels.tolist() == [1]


def test_what_an_error_shows_of_a_label():
    with pytest.raises(DecodeError, match=r"label 'x' holds b'aaa") as caught:
        decoded("x", b"a" * 1_000_000 + b"\xff", as_text)
    assert len(str(caught.value)) < 300


# --- arrays ----------------------------------------------------------------------------------------------------------


@given(
    st_np.arrays(
        st.sampled_from(["u1", "<i8", ">i4", "<f4", "?", "S3", "<c8"]), st_np.array_shapes(min_dims=0, min_side=0)
    ),
    st.booleans(),
    st.sampled_from([(1, 0), (2, 0)]),
)
def test_arrays(array, fortran, version):
    array = np.asfortranarray(array) if fortran else array
    got = as_array(saved(array, version))
    assert got.shape == array.shape and got.dtype == array.dtype and got.flags.writeable
    assert got.tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [f"({2**40},)", f"({2**30}, 4, 100)", f"({2**62}, 4)", "(3,)"])
def test_arrays_of_more_elements_than_there_are(shape):
    data = npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}", bytes(23))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="has more than 23 bytes"):
            as_array(data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        saved(np.array([1, None], dtype=object)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", bytes(80)),
        npy("{'descr': 'V0', 'fortran_order': False, 'shape': (5,)}"),
        npy("{'descr': '<f8', 'shape': (1,)}", bytes(8)),
        npy("(((("),
        npy("{" + "'a':" * 5000),
        b"PK\x03\x04" + bytes(100),
        b"\x80\x04K\x01.",
        b"\x93NUMPY\x03\x00\x02\x00\x00\x00{}",
        b"\x93NUMPY\x09\x00",
        b"",
    ],
    ids=[
        "objects",
        "negative",
        "no size",
        "no order",
        "parens",
        "long",
        "zip",
        "pickle",
        "version 3",
        "version 9",
        "empty",
    ],
)
def test_what_is_no_array(data):
    with pytest.raises(ValueError):
        as_array(data)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_give_an_array_or_a_value_error(data):
    for each in (data, npy(repr(data)), b"\x93NUMPY\x01\x00" + data):
        with contextlib.suppress(ValueError):
            as_array(each)
