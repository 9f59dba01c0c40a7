"""The GPU's times in profiles and statistics."""

from __future__ import annotations

import json
import math
import threading
import time

import pytest

from cuaug import DecodeOptions
from cuaug.pipeline.cuda import producer
from cuaug.profiling.timeline import chrome_trace
from tests.dry_run import CHAIN
from tests.loader.test_profile import check_trace
from tests.support.codec.jpeg_crops import jpeg
from tests.support.fake_cuda import FakeDecoder, FakeEvent
from tests.support.loader.further_pictures import Bytes


def test_a_profile_has_the_gpus_lane(loader_on, image_files, fake, tmp_path):
    loader = loader_on(True, image_files, CHAIN, batch_size=4)
    list(loader)
    with loader.profile() as profile:
        list(loader)
    lanes = profile.lanes()
    assert list(lanes)[:3] == ["consumer", "GPU", "cuaug-producer-0"]
    batches = [event.batch for event in lanes["cuaug-producer-0"] if event.stage == "decode"]
    assert len(set(batches)) == 10
    gpu_events = [(event.stage, event.batch) for event in lanes["GPU"]]
    assert gpu_events == [(stage, batch) for batch in batches[:8] for stage in ("gpu_decode", "gpu_augment")]
    queued = {event.batch: event for event in lanes["cuaug-producer-0"] if event.stage == "decode"}
    for event in lanes["GPU"]:
        if event.stage == "gpu_decode":  # the fake GPU works at once
            assert abs(event.start - queued[event.batch].start) < 5e6 or event.start >= queued[event.batch].start
    check_trace(json.loads(json.dumps(chrome_trace(lanes, profile.queue(), ""))))
    ranges = fake.torch.ranges
    assert not any(ranges.open.values()), "each thread closes its own ranges"
    assert {"cuaug read", "cuaug decode", "cuaug augment", "cuaug wait_for_data"} <= set(ranges.closed)
    closed = len(ranges.closed)
    list(loader)
    assert len(ranges.closed) == closed, "no ranges without a profile"


def test_batches_do_not_overlap_with_rounded_cuda_times(loader_on, image_files, monkeypatch):
    """CUDA reports float32 milliseconds, which are rough for an event an hour ago."""
    exact = FakeEvent.elapsed_time
    monkeypatch.setattr(FakeEvent, "elapsed_time", lambda self, other: float(math.ceil(exact(self, other))))
    loader = loader_on(True, image_files, CHAIN, batch_size=4)
    with loader.profile() as profile:
        for _ in range(3):
            list(loader)
    assert [lane for lane in profile.lanes() if lane.startswith("GPU")] == ["GPU"]


def test_gpu_times_are_read_without_waiting(loader_on, image_files, monkeypatch):
    """The producer waits only for each arena, and once when a profile begins."""
    waits: list[FakeEvent] = []
    wait = FakeEvent.synchronize
    monkeypatch.setattr(FakeEvent, "synchronize", lambda self: (waits.append(self), wait(self)))
    loader = loader_on(True, image_files, CHAIN, batch_size=4, decode=DecodeOptions(load_hint=0.5))
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


@pytest.mark.parametrize("cache", [None, "decoded"])
def test_waiting_for_our_kernels_is_no_work(loader_on, fake, monkeypatch, cache):
    """The producer thread waits for each batch's statuses: "augment" and "decode" leave that out."""
    during: list[list[str]] = []
    wait = FakeEvent.synchronize

    def recorded(self: FakeEvent) -> None:
        during.append(list(fake.torch.ranges.open.get(threading.get_ident(), [])))
        wait(self)

    loader = loader_on(True, Bytes(*[jpeg(60, 80)] * 8), CHAIN, batch_size=4, cache=cache)
    monkeypatch.setattr(FakeEvent, "synchronize", recorded)
    with loader.profile():
        list(loader)
    assert loader.stats().decoded_by == {"kernels": 8}
    assert during == [["cuaug wait_for_gpu"]] * 5, "two for each batch, and one as the profile begins"


def test_few_batches_record_events_with_timing_unless_a_profile_runs(loader_on, image_files, monkeypatch):
    """Such an event can take milliseconds to record. The other batches count as the last one measured."""
    timed: list[FakeEvent] = []
    record = FakeEvent.record

    def recorded(self: FakeEvent, stream: object = None) -> None:
        if self.timed:
            timed.append(self)
        record(self, stream)

    monkeypatch.setattr(FakeEvent, "record", recorded)
    monkeypatch.setattr(FakeEvent, "elapsed_time", lambda self, other: 2.0)
    loader = loader_on(True, image_files, CHAIN, batch_size=1)  # 37 batches: 0 to 3, 16 and 32 are measured
    list(loader)
    assert len(timed) == 3 * 6
    finished = 37 - producer._ARENAS  # the last ones are read when their arenas are used again
    seconds = loader.stats().seconds
    assert seconds["gpu_decode"] == seconds["gpu_augment"] == pytest.approx(2e-3 * finished)
    timed.clear()
    with loader.profile():
        list(loader)
    assert len(timed) == 3 * 37 + 1  # one as the profile begins
    assert loader.stats().seconds["gpu_decode"] == pytest.approx(2e-3 * (37 + finished), rel=0.05)


def test_slow_decoding_is_the_bottleneck(loader_on, image_files, monkeypatch):
    decode = FakeDecoder.decode_batch

    def decode_slowly(*arguments):
        time.sleep(0.1)
        return decode(*arguments)

    monkeypatch.setattr(FakeDecoder, "decode_batch", decode_slowly)
    loader = loader_on(True, image_files, CHAIN, batch_size=4)
    list(loader)
    assert loader.stats().bottleneck.startswith("decoding ("), loader.stats()


def test_a_failed_batch_has_no_gpu_times(loader_on, image_files, monkeypatch):
    loader = loader_on(True, image_files, CHAIN, batch_size=4)
    with monkeypatch.context() as patch:
        patch.setattr(FakeDecoder, "decode_batch", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(loader)
    list(loader)
    assert loader.stats().seconds["gpu_decode"] > 0
