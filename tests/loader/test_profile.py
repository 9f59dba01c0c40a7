"""A loader's totals, and profiles: timelines, traces, HTML pages, NVTX ranges."""

from __future__ import annotations

import html
import io
import json
import re
import threading
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cuaug import DecodedCache, Loader, LoaderError
from cuaug import transforms as T
from cuaug.profiling.bottleneck import RuntimeConfig, stages_of
from cuaug.profiling.recorder import Recorder
from cuaug.profiling.timeline import Profile
from tests.support.loader.further_pictures import Bytes, Memory, noisy_jpeg, png

# --- totals ----------------------------------------------------------------------------------------------------------


def test_decoders_are_counted():
    bmp = io.BytesIO()
    Image.open(io.BytesIO(png(1))).save(bmp, "BMP")
    files = [png(0), bmp.getvalue(), bmp.getvalue(), np.zeros((4, 5, 3), np.uint8)]
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
        assert loader._recorder.listener is None


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


def test_files_that_are_no_jpegs_are_parsed_in_python():
    """The timeline has one parse event per sample, one for the batch, and one for the task of other files.

    On CUDA, copying a JPEG for our kernels to pinned memory is an event of its own.
    """
    files = [noisy_jpeg(8, 8)] * 7 + [png(0)] + [noisy_jpeg(8, 8)] * 8
    with Loader(Bytes(*files), [T.Resize((16, 16))], batch_size=16, threads=2) as loader:
        list(loader)
        with loader.profile() as profile:
            list(loader)
    events = [event for events in profile.lanes().values() for event in events]
    assert sorted(event.sample for event in events if event.stage == "read") == list(range(16))
    parsed = [event.sample for event in events if event.stage == "parse" and event.sample is not None]
    assert sorted(parsed) == list(range(16))
    assert sum(event.stage == "parse" for event in events) == 16 + 2
    if loader.device.type == "cuda":
        assert sum(event.stage == "copy" and event.sample is not None for event in events) == 15


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


@pytest.mark.cpu_only
def test_the_trace_check_rejects_bad_traces():
    event = {"ph": "X", "name": "read", "ts": 1.0, "dur": 5.0, "pid": 1, "tid": 1}
    thread = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "a"}}
    check_trace({"traceEvents": [thread, event, event | {"ts": 6.0}]})
    for wrong in ({"ts": 3.0}, {"tid": 2}, {"dur": -1.0, "ts": 9.0}, {"name": "", "ts": 9.0}, {"ph": "x"}):
        with pytest.raises(AssertionError):
            check_trace({"traceEvents": [thread, event, event | wrong]})


@pytest.mark.cpu_only
def test_overlapping_events_get_separate_lanes():
    """Two iterations in one thread overlap."""
    recorder = Recorder(RuntimeConfig("cpu", 1, 1))
    with Profile(recorder, None) as profile:
        base = time.perf_counter_ns()
        for start, end in ((0, 10), (10, 30), (20, 40), (25, 28), (40, 50)):
            profile.on_stage("consumer", "wait_for_data", base + start, base + end, 0, None)
        time.sleep(0.001)
    assert [len(events) for events in profile.lanes().values()] == [3, 1, 1]
    assert list(profile.lanes()) == ["consumer", "consumer (2)", "consumer (3)"]


def test_two_iterations_at_once(tmp_path):
    with Loader(Memory(40), batch_size=4, threads=2) as loader, loader.profile() as profile:
        for _ in zip(loader, loader, strict=True):
            time.sleep(0.001)
    profile.export_chrome_trace(tmp_path / "trace.json")
    assert check_trace(json.loads((tmp_path / "trace.json").read_text()))
    assert "consumer (2)" in profile.lanes()


def test_the_html_page_is_self_contained(profile, tmp_path):
    profile.export_html(tmp_path / "timeline.html")
    page = (tmp_path / "timeline.html").read_text()
    assert not re.search(r"https?:|<link|\bsrc=|\bimport\b|fetch\(|url\(", page)
    assert html.escape(profile.bottleneck) in page and html.escape(str(profile)) in page and "{{" not in page
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert [lane["name"] for lane in data["lanes"]] == list(profile.lanes())
    for lane, events in zip(data["lanes"], profile.lanes().values(), strict=True):
        assert [data["stages"][bar[0]] for bar in lane["bars"]] == [event.stage for event in events]
        assert [bar[3:] for bar in lane["bars"]] == [[event.batch, event.sample] for event in events]
    colors = set(re.findall(r'(\w+): "#', page))
    assert colors == set(stages_of("cuda")), "every stage has a color"


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
