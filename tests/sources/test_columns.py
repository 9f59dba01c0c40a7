"""Columns of labels: an exact array, a list without numbers, or an error that names the row."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import LoaderError, SourceError
from cuaug.sources import Csv, DataFrame, Files, ListFile
from cuaug.sources.labels import to_column

INT64 = np.iinfo(np.int64)
INTEGERS = [np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)]
EDGES = st.sampled_from([0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), -(2**63) - 1, 10**30])
NUMBERS = (
    st.booleans()
    | st.integers()
    | EDGES
    | st.floats()
    | st.floats().map(np.float64)
    | st.floats(width=32).map(np.float32)
)


def integers_of(kind: type) -> st.SearchStrategy:
    info = np.iinfo(kind)
    return st.integers(int(info.min), int(info.max)) | st.sampled_from([int(info.min), int(info.max)])


def column(values) -> np.ndarray:
    return to_column(values, "row {}".format)


@given(st.lists(NUMBERS, min_size=1))
def test_numbers_are_exact_or_refused(values):
    try:
        found = column(values)
    except SourceError as error:
        row = int(str(error).partition(":")[0].removeprefix("row "))
        finite = [value for value in values if isinstance(value, (float, np.floating)) and math.isfinite(value)]
        if isinstance(values[row], (float, np.floating)):  # NaN or infinity among integers
            assert not math.isfinite(values[row]) and not finite
        else:
            integer = int(values[row])
            assert not INT64.min <= integer <= INT64.max or (finite and int(float(integer)) != integer)
        return
    assert found.dtype in (np.bool_, np.int64, np.float64) and len(found) == len(values)
    for value, number in zip(values, found.tolist(), strict=True):
        assert number == value or (number != number and value != value)
    if found.dtype == np.int64:
        assert not any(isinstance(value, (float, np.floating)) for value in values)


@given(st.data(), st.sampled_from(INTEGERS))
def test_every_dtype_of_integers_in_a_table(data, kind):
    values = data.draw(st.lists(integers_of(kind), min_size=1, max_size=5))
    nullable = pd.Series(values, dtype=kind.__name__.replace("i", "I").replace("uI", "UI"))
    for stored in (np.array(values, dtype=kind), nullable):
        frame = pd.DataFrame({"path": ["a.png"] * len(values), "label": stored})
        sources = (lambda frame=frame: DataFrame(frame), lambda frame=frame: Files(frame["path"], frame["label"]))
        for make in sources:
            if max(values) > INT64.max:
                row = next(i for i, value in enumerate(values) if value > INT64.max)
                where = rf"^(frame\['label'\], row|labels, entry) {row}: "
                with pytest.raises(SourceError, match=rf"{where}.*64 bits is beyond int64"):
                    make()
            else:
                labels = make().labels
                assert labels.dtype == np.int64 and labels.tolist() == values


@given(st.lists(st.integers(INT64.min, INT64.max) | st.none() | st.just(math.nan) | st.text(), min_size=1))
def test_text_and_nulls_among_numbers_are_refused(values):
    kinds = {isinstance(value, (int, float)) for value in values}
    if kinds == {True, False}:
        row = next(i for i, value in enumerate(values) if not isinstance(value, (int, float)))
        is_blank = isinstance(values[row], str) and not values[row].strip()
        fault = "the label is blank" if is_blank else ".* is not a number, but other values of the column are"
        with pytest.raises(SourceError, match=rf"^row {row}: {fault}"):
            column(values)
    elif kinds == {False}:
        assert column(values) == values


@pytest.mark.parametrize("dtype", ["float64", "Int64", "boolean", "object"])
def test_a_missing_label_of_a_series_is_named(dtype):
    with pytest.raises(SourceError, match=r"^labels, entry 1: the label is missing"):
        Files(["a.png", "b.png"], pd.Series([1, None], dtype=dtype))
    with pytest.raises(LoaderError, match=r"^frame: row 1 has no 'label'"):
        DataFrame(pd.DataFrame({"path": ["a.png", "b.png"], "label": pd.Series([1, None], dtype=dtype)}))


def test_more_digits_than_float64():
    one = np.longdouble(1)
    value = np.nextafter(one, 2 * one)
    if float(value) == value:
        pytest.skip("long double is double here")
    with pytest.raises(SourceError, match=r"^row 1: .* has more digits than float64"):
        column(np.array([one, value]).tolist())


@pytest.mark.parametrize(
    ("cells", "row", "message"),
    [
        (["1", "2", "nan"], 2, "nan is no integer, but the other values"),
        (["inf", "2", "3"], 0, "inf is no integer, but the other values"),
        (["1", str(2**63), "3"], 1, f"'{2**63}' is not a number"),
        (["1", "1e400", "3"], 1, "'1e400' is not a number"),
        (["9" * 5000, "1", "3"], 0, "'9{90}"),
        (["1", "", "3"], 1, "the label is blank"),
        (["nan", "cat", "cat"], 1, "'cat' is not a number"),
        (["0.5", str(2**53 + 1), "1"], 1, f"{2**53 + 1} has more digits than float64"),
    ],
)
def test_the_line_of_a_cell_is_named(tmp_path, cells, row, message):
    path = tmp_path / "table.csv"
    path.write_text("path,label\n" + "".join(f"{i}.png,{cell}\n" for i, cell in enumerate(cells)))
    with pytest.raises(SourceError, match=rf"table.csv' line {row + 2}, column 'label': {message}.*types=\{{1: str\}}"):
        Csv(path)
    path.write_text("".join(f"{i}.png {cell}\n" for i, cell in enumerate(cells)))
    with pytest.raises(SourceError, match=rf"line {row + 1}"):
        ListFile(path)
    assert Csv(path, header=False, delimiter=" ", types={1: str}, classes=None).labels == cells


@pytest.mark.parametrize("source", [Csv, ListFile])
def test_names_that_no_file_can_have(source):
    for name in ("\ud800.csv", "a\0b.csv"):
        with pytest.raises(SourceError, match=r"^cannot read .*(surrogates not allowed|null byte)"):
            source(name)
