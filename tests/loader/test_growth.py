"""Costs that grow with the data set, as counts of calls, reads and bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import cuaug
from cuaug import transforms as T
from cuaug.sources import open_source
from tests.support.loader.further_pictures import WatchedSource

CHAIN = [T.Resize((8, 8))]


def calls(work: Callable[[], Any]) -> int:
    """Number of function calls, of Python and C functions, by Python code."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "entry", [lambda path: path, lambda path: (path, 1), lambda path: [path, 1]], ids=["paths", "pairs", "lists"]
)
def test_a_list_costs_no_call_per_entry(entry):
    few, many = ([entry(f"train/{i}.jpg") for i in range(count)] for count in (10, 10_000))
    open_source(few)  # isinstance caches its results
    assert calls(lambda: open_source(many)) == calls(lambda: open_source(few))


@pytest.mark.parametrize("shuffle", [False, True])
def test_starting_calls_no_method_of_the_source_per_sample(shuffle):
    def start(source: WatchedSource) -> None:
        cuaug.Loader(source, CHAIN, shuffle=shuffle, device="cpu", threads=1).close()

    few, many = WatchedSource(10), WatchedSource(1_000_000)
    start(few)  # one-time imports and objects
    assert calls(lambda: start(many)) == calls(lambda: start(few))
    assert many.reads == []


def test_only_prefetched_batches_are_read():
    source = WatchedSource(100_000)
    with cuaug.Loader(source, CHAIN, batch_size=4, prefetch=2, shuffle=True, device="cpu", threads=1) as loader:
        batches = iter(loader)
        next(batches)
        batches.close()
    assert 4 <= len(source.reads) <= 3 * 4
