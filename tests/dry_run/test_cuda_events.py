"""The GPU's times in profiles and statistics."""

from __future__ import annotations

import json
import math

from cuaug.profiling.timeline import chrome_trace
from tests.dry_run import CHAIN
from tests.loader.test_profile import check_trace
from tests.support.fake_streams import FakeEvent


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
    loader = loader_on(True, image_files, CHAIN, batch_size=4)
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
