"""What a loader says of itself: times, queue, verdict, timelines; on loaders that are slow in one place on purpose."""

from __future__ import annotations

import html
import io
import json
import re
import threading
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import DecodedCache, Loader, LoaderError
from cuaug import transforms as T
from cuaug.pipeline.choices import Setup
from cuaug.pipeline.profile import Profile
from cuaug.pipeline.stats import Recorder, Stats, stages
from cuaug.pipeline.verdict import verdict
from tests.loader.pictures import Bytes, Memory, png

# --- the verdict is a function of the numbers ------------------------------------------------------------------------


def measured(device: str = "cpu", threads: int = 2, ready: tuple[int, ...] = (8, 1, 0), **seconds: float) -> Stats:
    """Of 1000 samples in ten batches."""
    return Stats(
        samples=1000,
        batches=10,
        failed=0,
        begun=1000,
        seconds=dict.fromkeys(stages(device), 0.0) | seconds,
        decoded_by={"cpu": 1000},
        ready=ready,
        setup=Setup(device, threads, 2),
    )


CONSUMER = {"wait_for_first_batch": 0.1, "wait_for_data": 0.5, "wait_for_consumer": 0.4}


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "stats, says",
    [
        (
            measured(**CONSUMER, decode=1.8, augment=0.15),
            "decoding binds: 1.8 ms per image on 2 threads, 92% of their time; the consumer waited 60%",
        ),
        (
            measured(
                wait_for_first_batch=0.02, wait_for_data=0.01, wait_for_consumer=0.97, decode=0.9, ready=(1, 0, 9)
            ),
            "the consumer binds: a batch was ready 90% of the times that it asked; it waited 3%",
        ),
        (
            measured(wait_for_consumer=1.0, ready=(0, 0, 0)),
            "the consumer binds: it waited 0%",
        ),
        (
            measured(wait_for_first_batch=0.8, wait_for_data=0.1, wait_for_consumer=0.1, decode=1.9),
            "starting binds: for the first batches of iterations alone, the consumer waited 80%",
        ),
        (
            measured(**CONSUMER, threads=4, decode=1.0),
            "prefetch binds: 4 threads were busy only 25% of the time, but the consumer waited 60%; "
            "2 batches ahead are too few",
        ),
        (
            measured("cuda", 4, **CONSUMER, read=3.9, decode=0.5, gpu_decode=0.6),
            "reading binds: 3.9 ms per image on 4 threads, 100% of their time; the consumer waited 60%",
        ),
        (
            measured("cuda", 4, **CONSUMER, read=1.0, decode=0.6, augment=0.3, gpu_decode=0.6),
            "decoding binds: 600 us per image on the producer thread, 67% of its time; the consumer waited 60%",
        ),
        (
            measured("cuda", 4, **CONSUMER, read=1.0, decode=0.6, gpu_decode=0.4, gpu_augment=0.55),
            "augmentation binds: 550 us per image on the GPU, 58% of its time; the consumer waited 60%",
        ),
        (
            measured("cuda", 4, **CONSUMER, read=1.0, decode=0.3, wait_for_gpu=0.7, gpu_decode=0.4),
            "prefetch binds: the GPU was busy only 40% of the time, but the consumer waited 60%; "
            "2 batches ahead are too few",
        ),
        (replace(measured(), batches=0, samples=0), "nothing to judge by: no batch was taken"),
    ],
)
def test_the_verdict(stats, says):
    assert verdict(stats) == stats.verdict == says
    assert str(stats).startswith(says)


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "stage, doing",
    [
        ("read", "reading"),
        ("parse", "parsing headers"),
        ("plan", "planning"),
        ("decode", "decoding"),
        ("augment", "augmentation"),
        ("targets", "moving targets"),
        ("finish", "finishing (mixes, collate_fn)"),
    ],
)
def test_each_stage_can_bind(stage, doing):
    assert verdict(measured(**CONSUMER, **{stage: 1.9})).startswith(f"{doing} binds: 1.9 ms per image on 2 threads")


@pytest.mark.cpu_only
def test_the_table():
    text = str(measured(**CONSUMER, decode=1.8, read=0.1, augment=0.1))
    assert "1000 samples in 10 batches, 0 failed; 1.00 s, 1000 images/s" in text
    assert re.search(r"^2 threads +2\.00 +100% busy$", text, re.MULTILINE)
    assert re.search(r"^  decode +1\.80 +1\.8 ms +90%$", text, re.MULTILINE)
    assert re.search(r"^  wait_for_data +0\.50 +500 us +50%$", text, re.MULTILINE)
    assert "batches ready when it asked: 0.1 in the mean; how often how many: 0: 8, 1: 1" in text
    assert text.endswith("decoded by: cpu 1000")


# --- loaders that are slow in one place ------------------------------------------------------------------------------


def profiled(loader: Loader, consumer_seconds: float = 0.0) -> Profile:
    """A profile of the loader's second epoch: in the first, decoders are opened."""
    with loader:
        list(loader)
        with loader.profile() as profile:
            for _ in loader:
                time.sleep(consumer_seconds)
    return profile


class Sleepy(Memory):
    """Takes 20 ms for each read."""

    def read(self, index):
        time.sleep(0.02)
        return super().read(index)


class _SlowPlan(T.Transform):
    def plan(self, plan, draws, where=None):
        time.sleep(0.1)


def _slowly(labels: list[Any]) -> torch.Tensor:
    time.sleep(0.1)
    return torch.tensor(labels)


def noise(height: int, width: int) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, "JPEG", quality=95)
    return out.getvalue()


def test_a_slow_source():
    profile = profiled(Loader(Sleepy(96), batch_size=8, threads=2))
    assert profile.verdict.startswith("reading binds: "), profile
    assert profile.stats.seconds["read"] >= 96 * 0.02
    assert sum(profile.stats.ready) == 11


def test_a_slow_consumer():
    profile = profiled(Loader(Memory(64), batch_size=8, threads=2, prefetch=2), consumer_seconds=0.3)
    assert profile.verdict.startswith("the consumer binds: "), profile
    assert profile.stats.seconds["wait_for_consumer"] >= 8 * 0.3
    assert sum(profile.stats.ready) == 7 and profile.stats.ready[2] >= 4, "both were ready"


@pytest.mark.cpu_only
def test_big_pictures():
    loader = Loader(
        Bytes(*[noise(1500, 1500)] * 24), T.Resize((8, 8), interpolation="nearest"), batch_size=2, threads=2
    )
    profile = profiled(loader)
    assert profile.verdict.startswith("decoding binds: "), profile


@pytest.mark.cpu_only
def test_a_heavy_chain():
    chain = [T.Resize((192, 192)), T.MedianBlur(7), T.GaussianBlur(31)]
    profile = profiled(Loader(Memory(48), chain, batch_size=4, threads=2))
    assert profile.verdict.startswith("augmentation binds: "), profile


def test_slow_planning():
    profile = profiled(Loader(Memory(24), [_SlowPlan()], batch_size=2, threads=1))
    assert profile.verdict.startswith("planning binds: "), profile


def test_a_slow_collate_fn():
    profile = profiled(Loader(Memory(24), batch_size=2, threads=1, collate_fn=_slowly))
    assert profile.verdict.startswith("finishing (mixes, collate_fn) binds: "), profile


def test_too_little_under_way():
    """Eight threads, and one sample at a time for three of them."""
    profile = profiled(Loader(Sleepy(60), batch_size=1, threads=8, prefetch=1))
    assert profile.verdict.startswith("prefetch binds: 8 threads were busy only "), profile


def test_epochs_of_one_batch():
    with Loader(Sleepy(8), batch_size=8, threads=2, prefetch=2) as loader:
        for _ in range(4):
            list(loader)
        assert loader.stats().verdict.startswith("starting binds: "), loader.stats()
        assert loader.stats().ready == (0, 0, 0)


# --- what is counted -------------------------------------------------------------------------------------------------


def test_who_decoded():
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
                assert profile.stats.batches <= 4, "it can be asked while it lasts"
        list(loader)
        assert (profile.stats.samples, profile.stats.batches, profile.stats.begun) == (20, 4, 20)
        assert (loader.stats().samples, loader.stats().batches) == (60, 12)
        assert str(profile) == str(profile.stats) and profile.complete
        assert loader._recorder.listener is None


def test_one_profile_at_a_time():
    with Loader(Memory(4)) as loader:
        unused = loader.profile()
        with pytest.raises(LoaderError, match="nothing has been profiled"):
            _ = unused.stats
        with loader.profile() as profile:
            with pytest.raises(LoaderError, match="another profile"), loader.profile():
                pass
            list(loader)
        assert profile.stats.samples == 4
        with pytest.raises(LoaderError, match="taken once"), profile:
            pass


def test_breaking_off_counts_no_time_of_the_consumer():
    with Loader(Memory(20), batch_size=2) as loader:
        batches = iter(loader)
        next(batches)
        time.sleep(0.3)
        del batches
        assert loader.stats().seconds["wait_for_consumer"] < 0.3


# --- the timeline ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profile(loaders_device) -> Profile:
    with Loader(Memory(40), [T.Resize((16, 16)), T.RandomInvert()], batch_size=8, threads=2) as loader:
        list(loader)
        with loader.profile() as profile:
            list(loader)
    return profile


def test_every_stage_of_every_sample_is_there(profile):
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
    assert {name for name in lanes if name.startswith("cuaug-worker-")}
    assert len(profile.queue()) == 4


def test_headers_of_jpegs_are_parsed_together():
    """So the timeline has a bar for all that a task reads, and one for each other file."""
    files = [noise(8, 8)] * 7 + [png(0)] + [noise(8, 8)] * 8
    with Loader(Bytes(*files), [T.Resize((16, 16))], batch_size=16, threads=2) as loader:
        list(loader)
        with loader.profile() as profile:
            list(loader)
    events = [event for events in profile.lanes().values() for event in events]
    assert sorted(event.sample for event in events if event.stage == "read") == list(range(16))
    assert [event.sample for event in events if event.stage == "parse" and event.sample is not None] == [7]
    assert sum(event.stage == "parse" for event in events) == 3


def test_the_timeline_adds_up_to_the_totals(profile):
    for stage in ("read", "parse", "plan", "finish", "wait_for_first_batch"):
        events = [event for events in profile.lanes().values() for event in events if event.stage == stage]
        total = sum(event.end - event.start for event in events) / 1e9
        assert total == pytest.approx(profile.stats.seconds[stage], rel=0.01, abs=1e-4)


def check_trace(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """What Perfetto asks of a trace; its complete events."""
    named = {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["name"] == "thread_name"}
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in complete:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert (event["pid"], event["tid"]) in named
        assert event["ts"] >= 0 and event["dur"] > 0
        lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for stretches in lanes.values():
        for (_, end), (start, _) in pairwise(sorted(stretches)):
            assert start >= end - 1e-3, "two events of a lane overlap"
    for event in trace["traceEvents"]:
        assert event["ph"] in "XMC", event
        if event["ph"] == "C":
            assert event["ts"] >= 0 and all(isinstance(value, int) for value in event["args"].values())
        if event["ph"] == "M":
            assert event["args"]
    return complete


def test_the_trace_is_what_perfetto_asks_for(profile, tmp_path):
    profile.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    complete = check_trace(trace)
    assert len(complete) == sum(map(len, profile.lanes().values()))
    assert {event["args"]["sample"] for event in complete if event["name"] == "read"} == set(range(40))
    counters = [event["args"]["ready"] for event in trace["traceEvents"] if event["ph"] == "C"]
    assert counters == [ready for _, ready in profile.queue()]
    assert trace["otherData"]["verdict"] == profile.verdict


@pytest.mark.cpu_only
def test_a_bad_trace_is_noticed():
    event = {"ph": "X", "name": "read", "ts": 1.0, "dur": 5.0, "pid": 1, "tid": 1}
    thread = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "a"}}
    check_trace({"traceEvents": [thread, event, event | {"ts": 6.0}]})
    for wrong in ({"ts": 3.0}, {"tid": 2}, {"dur": -1.0, "ts": 9.0}, {"name": "", "ts": 9.0}, {"ph": "x"}):
        with pytest.raises(AssertionError):
            check_trace({"traceEvents": [thread, event, event | wrong]})


@pytest.mark.cpu_only
def test_what_overlaps_gets_a_lane_of_its_own():
    """As two iterations do that one thread takes turns with."""
    recorder = Recorder(Setup("cpu", 1, 1))
    with recorder_profile(recorder) as profile:
        base = time.perf_counter_ns()
        for start, end in ((0, 10), (10, 30), (20, 40), (25, 28), (40, 50)):
            profile.stretch("consumer", "wait_for_data", base + start, base + end, 0, None)
        time.sleep(0.001)
    assert [len(events) for events in profile.lanes().values()] == [3, 1, 1]
    assert list(profile.lanes()) == ["consumer", "consumer (2)", "consumer (3)"]


def recorder_profile(recorder: Recorder, ranges: Any = None) -> Profile:
    return Profile(recorder, ranges)


def test_two_iterations_at_once(tmp_path):
    with Loader(Memory(40), batch_size=4, threads=2) as loader, loader.profile() as profile:
        for _ in zip(loader, loader, strict=True):
            time.sleep(0.001)
    profile.export_chrome_trace(tmp_path / "trace.json")
    assert check_trace(json.loads((tmp_path / "trace.json").read_text()))
    assert "consumer (2)" in profile.lanes()


def test_the_page_needs_nothing_else(profile, tmp_path):
    profile.export_html(tmp_path / "timeline.html")
    page = (tmp_path / "timeline.html").read_text()
    assert not re.search(r"https?:|<link|\bsrc=|\bimport\b|fetch\(|url\(", page)
    assert html.escape(profile.verdict) in page and html.escape(str(profile)) in page and "{{" not in page
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert [lane["name"] for lane in data["lanes"]] == list(profile.lanes())
    for lane, events in zip(data["lanes"], profile.lanes().values(), strict=True):
        assert [data["stages"][bar[0]] for bar in lane["bars"]] == [event.stage for event in events]
        assert [bar[3:] for bar in lane["bars"]] == [[event.batch, event.sample] for event in events]
    colors = set(re.findall(r'(\w+): "#', page))
    assert colors == set(stages("cuda")), "every stage has a colour"


@pytest.mark.cpu_only
def test_events_end_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr("cuaug.pipeline.profile._MOST_EVENTS", 10)
    with Loader(Memory(40), batch_size=4) as loader, loader.profile() as profile:
        list(loader)
    assert not profile.complete and profile.stats.samples == 40
    assert sum(map(len, profile.lanes().values())) <= 10 and "ends after 10 events" in str(profile)


@pytest.mark.cpu_only
def test_ranges_nest_and_leave_the_consumers_alone():
    class Ranges(threading.local):
        """What torch.cuda.nvtx does, for each thread."""

        def __init__(self) -> None:
            self.open: list[str] = []
            self.seen: list[str] = []

        def range_push(self, name: str) -> None:
            self.open.append(name)
            self.seen.append(name)

        def range_pop(self) -> None:
            self.open.pop()

    ranges = Ranges()
    with Loader(Memory(12), batch_size=4) as loader, recorder_profile(loader._recorder, ranges):
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
