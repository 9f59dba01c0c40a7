"""A loader's totals, and profiles: timelines, traces, HTML pages, NVTX ranges."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cuaug import DecodedCache, Loader, LoaderError
from cuaug import transforms as T
from cuaug.profiling.timeline import Profile
from tests.support.codec.encoded_images import encode
from tests.support.loader.further_pictures import Bytes, Memory, png

# --- totals ----------------------------------------------------------------------------------------------------------


def test_decoders_are_counted():
    bmp = encode(Image.new("RGB", (5, 4)), "BMP")
    files = [png(0), bmp, bmp, np.zeros((4, 5, 3), np.uint8)]
    with Loader(Bytes(*files), batch_size=2) as loader:
        list(loader)
        assert loader.stats().decoded_by == {"cpu": 1, "pillow": 2, "source": 1}
    with Loader(Bytes(*files), batch_size=2, cache=DecodedCache()) as loader:
        list(loader)
        assert loader.stats().decoded_by == {"cpu": 1, "pillow": 2, "source": 1}
        with loader.profile() as profile:
            list(loader)
        assert profile.stats.decoded_by == {"cache": 4}


def test_a_profile_has_its_own_totals():
    with Loader(Memory(20), batch_size=6) as loader:
        list(loader)
        with loader.profile() as profile:
            for _ in loader:
                assert profile.stats.batches <= 4, "totals so far are available while the profile runs"
        list(loader)
        assert (profile.stats.samples, profile.stats.batches, profile.stats.begun) == (20, 4, 20)
        assert (loader.stats().samples, loader.stats().batches) == (60, 12)
        assert str(profile) == str(profile.stats) and profile.complete


def test_one_profile_at_a_time():
    with Loader(Memory(4)) as loader:
        unused = loader.profile()
        with pytest.raises(LoaderError, match="the profile has not begun"):
            _ = unused.stats
        with loader.profile() as profile:
            with pytest.raises(LoaderError, match="another profile"), loader.profile():
                pass
            list(loader)
        assert profile.stats.samples == 4
        with pytest.raises(LoaderError, match="entered once only"), profile:
            pass


def test_an_abandoned_iteration_counts_no_time_of_the_consumer():
    with Loader(Memory(20), batch_size=2) as loader:
        batches = iter(loader)
        next(batches)
        time.sleep(0.3)
        del batches
        assert loader.stats().seconds["wait_for_consumer"] < 0.3


# --- timelines -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profile(loaders_device) -> Profile:
    with Loader(Memory(40), [T.Resize((16, 16)), T.RandomInvert()], batch_size=8, threads=2) as loader:
        list(loader)
        with loader.profile() as profile:
            list(loader)
    return profile


def test_the_timeline_has_every_stage_of_every_sample(profile):
    events = [event for events in profile.lanes().values() for event in events]
    for stage in ("read", "parse"):
        samples = [event.sample for event in events if event.stage == stage and event.sample is not None]
        assert sorted(samples) == list(range(40))
    batches = {event.batch for event in events if event.stage == "plan"}
    assert len(batches) == 5
    assert batches == {event.batch for event in events if event.stage == "finish"}
    lanes = profile.lanes()
    assert next(iter(lanes)) == "consumer"
    assert {event.stage for event in lanes["consumer"]} <= {
        "wait_for_first_batch", "wait_for_data", "wait_for_consumer"
    }  # fmt: skip
    workers = {name for name in lanes if name.startswith("cuaug-worker-")}
    assert workers and workers <= {"cuaug-worker-0", "cuaug-worker-1"}
    assert len(profile.queue()) == 4


def test_the_timeline_adds_up_to_the_totals(profile):
    for stage in ("read", "parse", "plan", "finish", "wait_for_first_batch"):
        events = [event for events in profile.lanes().values() for event in events if event.stage == stage]
        total = sum(event.end - event.start for event in events) / 1e9
        assert total == pytest.approx(profile.stats.seconds[stage], rel=0.01, abs=1e-4)


def check_trace(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Checks a trace against Perfetto's rules. Returns its complete events."""
    named = {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["name"] == "thread_name"}
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in complete:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert (event["pid"], event["tid"]) in named
        assert event["ts"] >= 0 and event["dur"] > 0
        lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for intervals in lanes.values():
        for (_, end), (start, _) in pairwise(sorted(intervals)):
            assert start >= end - 1e-3, "two events of a lane overlap"
    for event in trace["traceEvents"]:
        assert event["ph"] in "XMC", event
        if event["ph"] == "C":
            assert event["ts"] >= 0 and all(isinstance(value, int) for value in event["args"].values())
        if event["ph"] == "M":
            assert event["args"]
    return complete


def test_the_chrome_trace_follows_perfettos_rules(profile, tmp_path):
    profile.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    complete = check_trace(trace)
    assert len(complete) == sum(map(len, profile.lanes().values()))
    assert {event["args"]["sample"] for event in complete if event["name"] == "read"} == set(range(40))
    counters = [event["args"]["ready"] for event in trace["traceEvents"] if event["ph"] == "C"]
    assert counters == [ready for _, ready in profile.queue()]
    assert trace["otherData"]["bottleneck"] == profile.bottleneck


def test_two_iterations_at_once(tmp_path):
    with Loader(Memory(40), batch_size=4, threads=2) as loader, loader.profile() as profile:
        for _ in zip(loader, loader, strict=True):
            time.sleep(0.001)
    profile.export_chrome_trace(tmp_path / "trace.json")
    assert check_trace(json.loads((tmp_path / "trace.json").read_text()))
    assert "consumer (2)" in profile.lanes()


@pytest.mark.cpu_only
def test_events_beyond_the_limit_are_dropped(monkeypatch):
    monkeypatch.setattr("cuaug.profiling.timeline._MAX_EVENTS", 10)
    with Loader(Memory(40), batch_size=4) as loader, loader.profile() as profile:
        list(loader)
    assert not profile.complete and profile.stats.samples == 40
    assert sum(map(len, profile.lanes().values())) <= 10 and "ends after 10 events" in str(profile)


@pytest.mark.cpu_only
def test_ranges_nest_with_the_consumers_own():
    class Ranges(threading.local):
        """In place of torch.cuda.nvtx: ranges per thread."""

        def __init__(self) -> None:
            self.open: list[str] = []
            self.seen: list[str] = []

        def range_push(self, name: str) -> None:
            self.open.append(name)
            self.seen.append(name)

        def range_pop(self) -> None:
            self.open.pop()

    ranges = Ranges()
    with Loader(Memory(12), batch_size=4) as loader, Profile(loader._recorder, ranges):
        batches = iter(loader)
        ranges.range_push("data")
        next(batches)
        ranges.range_pop()
        assert ranges.open == []
        ranges.range_push("training")
        ranges.range_push("data")
        next(batches)
        assert ranges.open == ["training", "data"]
        next(batches)
        with pytest.raises(StopIteration):
            next(batches)
        assert ranges.open == ["training", "data"]
    assert ranges.seen.count("cuaug wait_for_first_batch") == 1
    assert "cuaug wait_for_consumer" not in ranges.seen
