"""nvImageCodec decodes with half of the threads, and its engine takes whole batches."""

from __future__ import annotations

from tests.dry_run import CHAIN
from tests.support.fake_cuda import FakeDecoder


def test_half_of_the_threads_decode_by_default(loader_on, image_files):
    """The other half reads and parses the next batches."""
    for threads in (1, 2, 3, 16):
        list(loader_on(True, image_files, CHAIN, batch_size=8, threads=threads))
    assert FakeDecoder.created == [1, 1, 2, 8]


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
