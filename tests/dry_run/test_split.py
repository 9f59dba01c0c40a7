"""The split of decoding between the hardware engine and the multiprocessors."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from cuaug import DecodeOptions
from cuaug.errors import LoaderError
from cuaug.pipeline import cuda_producer
from tests.dry_run import CHAIN
from tests.support.fake_cuda import FakeDecoder
from tests.support.run_plans import assert_same


@pytest.mark.parametrize(
    ("options", "want"),
    [({}, (0.65, 1)), ({"load_hint": 0.9}, (0.9, 1)), ({"load_hint": 0, "decode_threads": 5}, (0.0, 5))],
)
def test_a_given_split_is_the_same_in_every_run(loader_on, image_files, options, want):
    for _ in range(2):
        list(loader_on(True, image_files, CHAIN, batch_size=8, decode=DecodeOptions(**options)))
    assert FakeDecoder.created == [want] * 2
    loader = loader_on(True, image_files, CHAIN, batch_size=8, decode=DecodeOptions(**options))
    because = "as given" if options else "default"
    assert f"load_hint={want[0]:g}, decode_threads={want[1]} ({because})" in str(loader.stats())


def test_the_split_is_autotuned_in_the_first_batches(loader_on, image_files, monkeypatch):
    """Each candidate decodes batches, with the same pixels; the fastest one is kept. There are never two decoders."""
    clock, decode = [0.0], FakeDecoder.decode_batch

    def timed(self: FakeDecoder, headers: Any, slots: Any, stream: int) -> Any:
        factor = 1.0 + abs(self.paths.load_hint - 0.8)
        clock[0] += sum(header.height * header.width for header in headers) * factor
        return decode(self, headers, slots, stream)

    decoders: list[weakref.ref[FakeDecoder]] = []
    init = FakeDecoder.__init__

    def recorded_init(self: FakeDecoder, *arguments: Any, **options: Any) -> None:
        assert not any(decoder() for decoder in decoders), "the last decoder still holds its device memory"
        init(self, *arguments, **options)
        decoders.append(weakref.ref(self))

    monkeypatch.setattr(FakeDecoder, "__init__", recorded_init)
    monkeypatch.setattr(FakeDecoder, "decode_batch", timed)
    monkeypatch.setattr(cuda_producer.time, "perf_counter", lambda: clock[0])
    options = {"batch_size": 4, "last_batch": "drop", "decode": DecodeOptions(load_hint="auto", decode_threads=3)}
    gpu, cpu = (loader_on(device, image_files, CHAIN, **options) for device in (True, False))
    epochs = 0
    assert gpu.stats().setup.split_because == "autotuning"
    while gpu.stats().setup.split_because != "autotuned" and epochs < 50:
        epochs += 1
        for got, want in zip(gpu, cpu, strict=True):
            assert_same(got.images, want.images)
    assert (gpu.stats().setup.load_hint, gpu.stats().setup.decode_threads) == (0.8, 3)
    assert cpu.stats().setup.load_hint is None and {hint for hint, _ in FakeDecoder.created} >= {0.5, 0.65, 0.8, 1.0}
    assert FakeDecoder.created[-1] == (0.8, 3)
    count = len(decoders)
    list(gpu)
    assert len(decoders) == count


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


def test_every_candidates_share_refers_to_a_whole_batch(loader_on, image_files):
    """Even if its first batch is an epoch's last."""
    loader = loader_on(True, image_files, CHAIN, batch_size=8, decode=DecodeOptions(load_hint="auto", decode_threads=3))
    for _ in range(3):
        list(loader)
    assert len(FakeDecoder.first_calls) > 3 and set(FakeDecoder.first_calls) == {8}


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "fast", True, float("nan")])
def test_an_invalid_load_hint(loader_on, image_files, wrong):
    with pytest.raises(LoaderError, match="load_hint must be a number from 0 to 1, 'auto' or None"):
        DecodeOptions(load_hint=wrong)
