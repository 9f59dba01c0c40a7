"""The split of decoding between the hardware engine and the multiprocessors."""

from __future__ import annotations

import pytest

from cuaug import DecodeOptions
from cuaug.errors import LoaderError
from tests.dry_run import CHAIN
from tests.support.codec.jpeg_crops import jpeg
from tests.support.fake_cuda import FakeDecoder
from tests.support.loader.further_pictures import Bytes


@pytest.mark.parametrize(
    ("options", "want"),
    [({}, (1.0, 1)), ({"load_hint": 0.9}, (0.9, 1)), ({"load_hint": 0, "decode_threads": 5}, (0.0, 5))],
)
def test_a_given_split_is_the_same_in_every_run(loader_on, image_files, options, want):
    for _ in range(2):
        list(loader_on(True, image_files, CHAIN, batch_size=8, decode=DecodeOptions(**options)))
    assert FakeDecoder.created == [want] * 2
    loader = loader_on(True, image_files, CHAIN, batch_size=8, decode=DecodeOptions(**options))
    because = "as given" if options else "default"
    assert "load_hint" not in str(loader.stats())
    list(loader)
    assert f"load_hint={want[0]:g}, decode_threads={want[1]} ({because})" in str(loader.stats())


def test_the_report_has_no_split_where_our_kernels_decode(loader_on):
    files = Bytes(*[jpeg(60, 80)] * 8)
    loader = loader_on(True, files, CHAIN, batch_size=4, decode=DecodeOptions(load_hint=0.5))
    list(loader)
    assert loader.stats().decoded_by == {"kernels": 8} and "load_hint" not in str(loader.stats())


def test_half_of_the_threads_decode_by_default(loader_on, image_files):
    """The other half reads and parses the next batches."""
    for threads in (1, 2, 3, 16):
        list(loader_on(True, image_files, CHAIN, batch_size=8, threads=threads))
    assert [threads for _, threads in FakeDecoder.created] == [1, 1, 2, 8]


def test_the_engines_share_refers_to_a_whole_batch(loader_on, image_files):
    """nvImageCodec fixes the share at a decoder's first call, even if the loader's first batch is partial."""
    loader = loader_on(True, image_files, CHAIN, batch_size=8, prefetch=1)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    FakeDecoder.first_calls.clear()
    resumed = loader_on(True, image_files, CHAIN, batch_size=8)
    resumed.load_state_dict(state)
    assert [len(batch.images) for batch in resumed] == [5]
    for _ in range(2):
        list(resumed)
    assert FakeDecoder.first_calls == [8]


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "auto", True, float("nan")])
def test_an_invalid_load_hint(wrong):
    with pytest.raises(
        LoaderError, match=f"load_hint must be a number from 0 to 1, or None for the default, not {wrong!r}"
    ):
        DecodeOptions(load_hint=wrong)
