"""The bottleneck in a loader's report: from given totals, and of loaders with one slow stage."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest

from cuaug import Loader
from cuaug.profiling.bottleneck import RuntimeConfig, Stats, find_bottleneck, stages_of
from cuaug.profiling.timeline import Profile
from tests.support.loader.further_pictures import Memory

# --- the bottleneck from given totals --------------------------------------------------------------------------------


def make_stats(device: str = "cpu", threads: int = 2, ready: tuple[int, ...] = (8, 1, 0), **seconds: float) -> Stats:
    """Stats of 1000 samples in ten batches."""
    return Stats(
        samples=1000,
        batches=10,
        failed=0,
        begun=1000,
        seconds=dict.fromkeys(stages_of(device), 0.0) | seconds,
        decoded_by={"cpu": 1000},
        parts=0,
        kernels={},
        ready=ready,
        setup=RuntimeConfig(device, threads, 2),
    )


def by_kernels(stats: Stats) -> Stats:
    """The same, if our CUDA kernels decode all JPEGs and some pixels come from a cache."""
    return replace(stats, decoded_by={"kernels": 900, "cache": 100})


CONSUMER = {"wait_for_first_batch": 0.1, "wait_for_data": 0.5, "wait_for_consumer": 0.4}


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "stats, want",
    [
        (
            make_stats(**CONSUMER, decode=1.8, augment=0.15),
            "decoding (1.8 ms per image on 2 threads, 90% of their time; the consumer waited 60%)",
        ),
        (
            make_stats(
                wait_for_first_batch=0.02, wait_for_data=0.01, wait_for_consumer=0.97, decode=0.9, ready=(1, 0, 9)
            ),
            "none (a batch was ready for 90% of requests; the consumer waited 3%)",
        ),
        (
            make_stats(wait_for_consumer=1.0, ready=(0, 0, 0)),
            "none (the consumer waited 0%)",
        ),
        (
            make_stats(wait_for_first_batch=0.8, wait_for_data=0.1, wait_for_consumer=0.1, decode=1.9),
            "startup (the consumer waited 80% of its time for first batches)",
        ),
        (
            make_stats(**CONSUMER, threads=4, decode=1.0),
            "prefetch (with 2 batches ahead, 4 threads were busy only 25% of the time; the consumer waited 60%)",
        ),
        (
            make_stats("cuda", 4, **CONSUMER, read=3.9, decode=0.5, gpu_decode=0.6),
            "reading (3.9 ms per image on 4 threads, 98% of their time; the consumer waited 60%)",
        ),
        (
            make_stats("cuda", 4, **CONSUMER, read=1.0, decode=0.6, augment=0.3, gpu_decode=0.6),
            "decoding (600 us per image on the producer thread, 60% of its time; the consumer waited 60%)",
        ),
        (
            make_stats("cuda", 4, **CONSUMER, read=1.0, decode=0.6, gpu_decode=0.4, gpu_augment=0.55),
            "augmenting (550 us per image on the GPU, 55% of its time; the consumer waited 60%)",
        ),
        (
            make_stats("cuda", 4, **CONSUMER, read=1.0, decode=0.3, wait_for_gpu=0.1, gpu_decode=0.4),
            "prefetch (with 2 batches ahead, the GPU was busy only 40% of the time; the consumer waited 60%)",
        ),
        (  # they work in turn: prefetching more would not help
            make_stats("cuda", 4, **CONSUMER, read=2.3, decode=0.3, augment=0.1, wait_for_gpu=0.5, gpu_decode=0.55),
            "decoding (550 us per image on the GPU, 55% of its time; the consumer waited 60%)",
        ),
        (
            make_stats("cuda", 4, **CONSUMER, read=1.0, decode=0.2, augment=0.35, wait_for_gpu=0.4, gpu_decode=0.5),
            "launching (350 us per image on the producer thread, 35% of its time; the consumer waited 60%)",
        ),
        (
            by_kernels(make_stats("cuda", 4, **CONSUMER, read=1.0, decode=0.6, augment=0.3, gpu_decode=0.8)),
            "launching (600 us per image on the producer thread, 60% of its time; the consumer waited 60%)",
        ),
        (
            by_kernels(make_stats("cuda", 4, **CONSUMER, read=1.0, copy=2.8, decode=0.2, gpu_decode=0.4)),
            "copying (2.8 ms per image on 4 threads, 70% of their time; the consumer waited 60%)",
        ),
        (replace(make_stats(), batches=0, samples=0), "unknown (no batch was taken)"),
    ],
)
def test_bottleneck_of_given_totals(stats, want):
    assert find_bottleneck(stats) == stats.bottleneck == want
    assert str(stats).startswith(f"bottleneck: {want}\n")


@pytest.mark.cpu_only
def test_the_table():
    text = str(make_stats(**CONSUMER, decode=1.8, read=0.1, augment=0.1))
    assert "1000 samples in 10 batches, 0 failed; 1.00 s, 1000 images/s" in text
    assert re.search(r"^2 threads +2\.00 +100% busy$", text, re.MULTILINE)
    assert re.search(r"^  decode +1\.80 +1\.8 ms +90%$", text, re.MULTILINE)
    assert re.search(r"^  wait_for_data +0\.50 +500 us +50%$", text, re.MULTILINE)
    assert "batches ready when the consumer requested one: 0.1 on average (0 ready 8 times, 1 ready 1 time)" in text
    assert text.endswith("decoded by: cpu 1000")


# --- loaders with one slow stage -------------------------------------------------------------------------------------


def profiled(loader: Loader, consumer_seconds: float = 0.0) -> Profile:
    """A profile of the loader's second epoch; the first one opens decoders."""
    with loader:
        list(loader)
        with loader.profile() as profile:
            for _ in loader:
                time.sleep(consumer_seconds)
    return profile


class SlowSource(Memory):
    """A source that takes 20 ms per read."""

    def read(self, index):
        time.sleep(0.02)
        return super().read(index)


def test_a_slow_source():
    profile = profiled(Loader(SlowSource(96), batch_size=8, threads=2))
    assert profile.bottleneck.startswith("reading ("), profile
    assert profile.stats.seconds["read"] >= 96 * 0.02
    assert sum(profile.stats.ready) == 11


def test_a_slow_consumer():
    profile = profiled(Loader(Memory(64), batch_size=8, threads=2, prefetch=2), consumer_seconds=0.3)
    assert profile.bottleneck.startswith("none ("), profile
    assert profile.stats.seconds["wait_for_consumer"] >= 8 * 0.3
    assert sum(profile.stats.ready) == 7 and profile.stats.ready[2] >= 4, "two batches were ready"


def test_epochs_of_one_batch():
    with Loader(SlowSource(8), batch_size=8, threads=2, prefetch=2) as loader:
        for _ in range(4):
            list(loader)
        assert loader.stats().bottleneck.startswith("startup ("), loader.stats()
        assert loader.stats().ready == (0, 0, 0)
