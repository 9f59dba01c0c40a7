"""How decoding is shared out between the hardware engine and the multiprocessors."""

from __future__ import annotations

from typing import Any

import pytest

from cuaug import DecodeOptions
from cuaug.errors import LoaderError
from cuaug.pipeline import cuda as pipeline
from tests.dry_run import CHAIN
from tests.support.fake_cuda import FakeDecoder
from tests.support.run_plans import assert_same


@pytest.mark.parametrize(
    ("options", "want"),
    [({}, (0.65, 2)), ({"load_hint": 0.9}, (0.9, 2)), ({"load_hint": 0, "decode_threads": 5}, (0.0, 5))],
)
def test_the_split_is_as_given_and_the_same_in_every_run(loader_on, pictures, options, want):
    for _ in range(2):
        list(loader_on(True, pictures, CHAIN, batch_size=8, decode=DecodeOptions(**options)))
    assert FakeDecoder.made == [want] * 2
    loader = loader_on(True, pictures, CHAIN, batch_size=8, decode=DecodeOptions(**options))
    because = "as given" if options else "the default"
    assert f"load_hint={want[0]:g}, decode_threads={want[1]} ({because})" in str(loader.stats())


def test_the_split_is_chosen_in_the_first_batches(loader_on, pictures, monkeypatch):
    """Each candidate decodes batches; the fastest one is kept, and the same pixels come out meanwhile."""
    clock, decode = [0.0], FakeDecoder.decode

    def timed(self: FakeDecoder, headers: Any, slots: Any, stream: int) -> Any:
        hint = {id(d): h for d, h in alive}[id(self)]
        clock[0] += sum(header.height * header.width for header in headers) * (1.0 + abs(hint - 0.8))
        return decode(self, headers, slots, stream)

    alive: list[tuple[FakeDecoder, float]] = []
    make = FakeDecoder.__init__

    def made(self: FakeDecoder, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        alive.append((self, options["load_hint"]))

    monkeypatch.setattr(FakeDecoder, "__init__", made)
    monkeypatch.setattr(FakeDecoder, "decode", timed)
    monkeypatch.setattr(pipeline.time, "perf_counter", lambda: clock[0])
    options = {"batch_size": 4, "last_batch": "drop", "decode": DecodeOptions(load_hint="auto", decode_threads=3)}
    gpu, cpu = (loader_on(device, pictures, CHAIN, **options) for device in (True, False))
    epochs = 0
    assert gpu.stats().setup.split_because == "still trying"
    while gpu.stats().setup.split_because != "chosen by trying" and epochs < 50:
        epochs += 1
        for got, want in zip(gpu, cpu, strict=True):
            assert_same(got.images, want.images)
    assert (gpu.stats().setup.load_hint, gpu.stats().setup.decode_threads) == (0.8, 3)
    assert cpu.stats().setup.load_hint is None and {hint for hint, _ in FakeDecoder.made} >= {0.5, 0.65, 0.8, 1.0}
    assert FakeDecoder.made[-1] == (0.8, 3)
    decoders = len(alive)
    list(gpu)
    assert len(alive) == decoders


def test_the_share_is_of_a_whole_batch_also_where_the_first_is_partial(loader_on, pictures):
    """nvImageCodec counts it at a decoder's first call and never again: that is one of a whole batch."""
    loader = loader_on(True, pictures, CHAIN, batch_size=8, prefetch=1)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    FakeDecoder.shared.clear()
    resumed = loader_on(True, pictures, CHAIN, batch_size=8)
    resumed.load_state_dict(state)
    assert [len(batch.images) for batch in resumed] == [5]
    for _ in range(2):
        list(resumed)
    assert FakeDecoder.shared == [8]


def test_every_candidate_has_the_share_of_a_whole_batch(loader_on, pictures):
    """Also the one whose first batch is an epoch's last."""
    loader = loader_on(True, pictures, CHAIN, batch_size=8, decode=DecodeOptions(load_hint="auto", decode_threads=3))
    for _ in range(3):
        list(loader)
    assert len(FakeDecoder.shared) > 3 and set(FakeDecoder.shared) == {8}


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "fast", True, float("nan")])
def test_a_load_hint_that_is_none(wrong):
    with pytest.raises(LoaderError, match="load_hint is a number from 0 to 1, 'auto' or None"):
        DecodeOptions(load_hint=wrong)
