"""What a profile and the statistics tell of the GPU."""

from __future__ import annotations

import json
import math
import time

import pytest

from cuaug import DecodeOptions
from cuaug.profiling.timeline import chrome_trace
from tests.dry_run import CHAIN
from tests.loader.test_profile import check_trace
from tests.support.fake_cuda import FakeDecoder, FakeEvent


def test_a_profile_has_the_gpus_lane(loader_on, pictures, fake, tmp_path):
    loader = loader_on(True, pictures, CHAIN, batch_size=4)
    list(loader)
    with loader.profile() as profile:
        list(loader)
    lanes = profile.lanes()
    assert list(lanes)[:3] == ["consumer", "GPU", "cuaug-producer-0"]
    batches = [event.batch for event in lanes["cuaug-producer-0"] if event.stage == "decode"]  # as they were planned
    assert len(set(batches)) == 10
    of_gpu = [(event.stage, event.batch) for event in lanes["GPU"]]
    assert of_gpu == [(stage, batch) for batch in batches[:8] for stage in ("gpu_decode", "gpu_augment")]
    queued = {event.batch: event for event in lanes["cuaug-producer-0"] if event.stage == "decode"}
    for event in lanes["GPU"]:
        if event.stage == "gpu_decode":  # the stand-in's GPU works while it is told what to do
            assert abs(event.start - queued[event.batch].start) < 5e6 or event.start >= queued[event.batch].start
    check_trace(json.loads(json.dumps(chrome_trace(lanes, profile.queue(), ""))))
    ranges = fake.torch.ranges
    assert not any(ranges.open.values()), "each was closed in the thread that opened it"
    assert {"cuaug read", "cuaug decode", "cuaug augment", "cuaug wait_for_data"} <= set(ranges.closed)
    closed = len(ranges.closed)
    list(loader)
    assert len(ranges.closed) == closed, "none where nothing profiles"


def test_batches_do_not_overlap_however_roughly_cuda_tells_a_while(loader_on, pictures, monkeypatch):
    """It tells milliseconds in a float32, of a mark just before as of one an hour ago."""
    exactly = FakeEvent.elapsed_time
    monkeypatch.setattr(FakeEvent, "elapsed_time", lambda self, other: float(math.ceil(exactly(self, other))))
    loader = loader_on(True, pictures, CHAIN, batch_size=4)
    with loader.profile() as profile:
        for _ in range(3):
            list(loader)
    assert [lane for lane in profile.lanes() if lane.startswith("GPU")] == ["GPU"]


def test_the_gpus_times_are_read_without_waiting(loader_on, pictures, monkeypatch):
    """Only for a batch's memory, which it must; and once when a profile begins."""
    waits: list[FakeEvent] = []
    monkeypatch.setattr(FakeEvent, "synchronize", lambda self: waits.append(self))
    loader = loader_on(True, pictures, CHAIN, batch_size=4, decode=DecodeOptions(load_hint=0.5))
    list(loader)
    assert len(waits) == 10 and not any(event.timed for event in waits)
    for _ in range(2):
        waits.clear()
        with loader.profile():
            list(loader)
        assert len(waits) == 11 and sum(event.timed for event in waits) == 1
    stats = loader.stats()
    assert stats.seconds["gpu_decode"] > 0 and stats.seconds["gpu_augment"] > 0
    assert stats.decoded_by == {"cpu": 3 * 31, "pillow": 3 * 6}
    assert "the producer thread" in str(stats) and "the GPU" in str(stats)


def test_slow_decoding_is_seen(loader_on, pictures, monkeypatch):
    decode = FakeDecoder.decode

    def slowly(*arguments):
        time.sleep(0.1)
        return decode(*arguments)

    monkeypatch.setattr(FakeDecoder, "decode", slowly)
    loader = loader_on(True, pictures, CHAIN, batch_size=4)
    list(loader)
    assert loader.stats().bottleneck.startswith("decoding binds: "), loader.stats()


def test_a_failed_batch_leaves_no_times(loader_on, pictures, monkeypatch):
    loader = loader_on(True, pictures, CHAIN, batch_size=4)
    with monkeypatch.context() as patch:
        patch.setattr(FakeDecoder, "decode", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(loader)
    list(loader)
    assert loader.stats().seconds["gpu_decode"] > 0
