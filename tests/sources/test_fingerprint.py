"""Fingerprints: equal for equal data, different for different data, fast for many samples."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug.sources.labels import LabelColumns
from cuaug.sources.source import fingerprint, relative_paths

_plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(), st.binary()),
    lambda items: st.one_of(st.lists(items, max_size=4), st.dictionaries(st.text(), items, max_size=4)),
    max_leaves=8,
)


def canonical(value):
    """A form that is equal for equal data: numbers in lists compare by value, as in NumPy."""
    if isinstance(value, dict):
        return "dict", [(key, canonical(item)) for key, item in value.items()]
    if isinstance(value, (str, bytes)) or value is None:
        return type(value).__name__, value
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty(0, object)
    if array.dtype.kind in "biuf":
        kind = {"b": np.bool_, "f": np.float64}.get(array.dtype.kind, np.int64)
        return "numbers", array.shape, array.astype(kind).tobytes(), array.dtype.kind.replace("u", "i")
    return "list", [canonical(item) for item in value]


@given(_plain, _plain)
def test_equal_exactly_if_the_data_are_equal(a, b):
    assert (fingerprint("x", a) == fingerprint("x", b)) == (canonical(a) == canonical(b))
    assert fingerprint("x", a) == fingerprint("x", a) != fingerprint("y", a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (["ab", "c"], ["a", "bc"]),
        (["a", "b"], ["a\0b"]),
        (["a\0", "b"], ["a", "\0b"]),
        (["a"], [b"a"]),
        ([1, 2], [2, 1]),
        ([1, 2], [1, 2, 0]),
        ([1, 2], ["1", "2"]),
        ([[1, 2], [3, 4]], [1, 2, 3, 4]),
        ([[1], [2, 3]], [[1, 2], [3]]),
        ([{"a": 1}], [{"b": 1}]),
        ([1, 0], [True, False]),
        ([0.1], [np.nextafter(0.1, 1)]),
        (None, []),
        ([np.zeros((300, 300))], [np.eye(300)]),
    ],
)
def test_different_data(a, b):
    assert fingerprint("x", a) != fingerprint("x", b)


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], (1, 2), np.array([1, 2], np.uint8), torch.tensor([1, 2]), range(1, 3), [np.int16(1), 2]],
        [[0.5, 2.0], np.array([0.5, 2], np.float32), torch.tensor([0.5, 2.0])],
        [["a", "b"], ("a", "b"), np.array(["a", "b"]), [np.str_("a"), "b"]],
        [[torch.tensor([1, 2]), torch.tensor([3, 4])], [[1, 2], [3, 4]]],
    ],
)
def test_equal_values_in_different_containers(values):
    assert len({fingerprint("x", value) for value in values}) == 1


def test_all_columns_count():
    columns = [LabelColumns({"a": a, "b": b}) for a in ([1, 2], [1, 3]) for b in (["x", "y"], ["x", "z"])]
    assert len({fingerprint("x", labels) for labels in columns}) == 4


_words = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=4)


@given(st.lists(st.lists(_words, min_size=1, max_size=4), min_size=1), st.lists(_words, max_size=3))
def test_relative_paths_do_not_depend_on_the_folder(paths, folder):
    here = ["/".join(parts) for parts in paths]
    there = ["/" + "/".join([*folder, *parts]) for parts in paths]
    relative = relative_paths(here)
    assert relative == relative_paths(there)
    common = here[0][: len(here[0]) - len(relative[0])]
    assert [common + path for path in relative] == here and (not common or common.endswith("/"))
    first_folders = {path.split("/")[0] for path in relative if "/" in path}
    assert len(first_folders) != 1 or len(relative) != sum("/" in path for path in relative), "no deeper folder"


@pytest.mark.slow
def test_a_fingerprint_is_the_same_in_every_process():
    """It contains no address and no order of a set or hash."""
    program = (
        "from cuaug.sources import Files\n"
        "labels = [{'a': 'x', 'b': [1, None]}, {'a': 'y', 'b': [2.5, 'z']}]\n"
        "print(Files(['/d/1.jpg', '/d/2.jpg'], labels, ['ant', 'bee']).fingerprint())"
    )
    command = [sys.executable, "-c", program]
    printed = {subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": seed}) for seed in "12"}
    assert len(printed) == 1
