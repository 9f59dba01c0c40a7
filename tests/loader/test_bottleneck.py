"""What a loader says binds: of given numbers, and of loaders that are slow in one place on purpose."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest
import torch

from cuaug import Loader
from cuaug import transforms as T
from cuaug.pipeline.config import RuntimeConfig
from cuaug.profiling.bottleneck import bottleneck
from cuaug.profiling.profile import Profile
from cuaug.profiling.recorder import Stats
from cuaug.profiling.stages import stages
from tests.loader.pictures import Bytes, Memory, noisy_jpeg

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
        parts=0,
        ready=ready,
        setup=RuntimeConfig(device, threads, 2),
    )


CONSUMER = {"wait_for_first_batch": 0.1, "wait_for_data": 0.5, "wait_for_consumer": 0.4}


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "stats, says",
    [
        (
            measured(**CONSUMER, decode=1.8, augment=0.15),
            "decoding binds: 1.8 ms per image on 2 threads, 90% of their time; the consumer waited 60%",
        ),
        (
            measured(
                wait_for_first_batch=0.02, wait_for_data=0.01, wait_for_consumer=0.97, decode=0.9, ready=(1, 0, 9)
            ),
            "nothing in the loader binds: a batch was ready 90% of the times it was asked for; the consumer waited 3%",
        ),
        (
            measured(wait_for_consumer=1.0, ready=(0, 0, 0)),
            "nothing in the loader binds: the consumer waited 0%",
        ),
        (
            measured(wait_for_first_batch=0.8, wait_for_data=0.1, wait_for_consumer=0.1, decode=1.9),
            "starting an epoch binds: waiting for first batches was 80% of the consumer's time",
        ),
        (
            measured(**CONSUMER, threads=4, decode=1.0),
            "too small a prefetch binds: with 2 batches ahead, 4 threads were busy only 25% of the time; "
            "the consumer waited 60%",
        ),
        (
            measured("cuda", 4, **CONSUMER, read=3.9, decode=0.5, gpu_decode=0.6),
            "reading binds: 3.9 ms per image on 4 threads, 98% of their time; the consumer waited 60%",
        ),
        (
            measured("cuda", 4, **CONSUMER, read=1.0, decode=0.6, augment=0.3, gpu_decode=0.6),
            "decoding binds: 600 us per image on the producer thread, 60% of its time; the consumer waited 60%",
        ),
        (
            measured("cuda", 4, **CONSUMER, read=1.0, decode=0.6, gpu_decode=0.4, gpu_augment=0.55),
            "augmentation binds: 550 us per image on the GPU, 55% of its time; the consumer waited 60%",
        ),
        (
            measured("cuda", 4, **CONSUMER, read=1.0, decode=0.3, wait_for_gpu=0.7, gpu_decode=0.4),
            "too small a prefetch binds: with 2 batches ahead, the GPU was busy only 40% of the time; "
            "the consumer waited 60%",
        ),
        (replace(measured(), batches=0, samples=0), "nothing to judge by: no batch was taken"),
    ],
)
def test_the_verdict(stats, says):
    assert bottleneck(stats) == stats.bottleneck == says
    assert str(stats).startswith(says)


@pytest.mark.cpu_only
def test_the_verdict_and_the_table_tell_the_same_share():
    told = str(measured(**CONSUMER, decode=1.08, augment=0.25))
    assert "on 2 threads, 54% of their time" in told and re.search(r"^  decode .* 54%$", told, re.MULTILINE)


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
    assert bottleneck(measured(**CONSUMER, **{stage: 1.9})).startswith(f"{doing} binds: 1.9 ms per image on 2 threads")


@pytest.mark.cpu_only
def test_the_table():
    text = str(measured(**CONSUMER, decode=1.8, read=0.1, augment=0.1))
    assert "1000 samples in 10 batches, 0 failed; 1.00 s, 1000 images/s" in text
    assert re.search(r"^2 threads +2\.00 +100% busy$", text, re.MULTILINE)
    assert re.search(r"^  decode +1\.80 +1\.8 ms +90%$", text, re.MULTILINE)
    assert re.search(r"^  wait_for_data +0\.50 +500 us +50%$", text, re.MULTILINE)
    assert "batches ready when the consumer asked: 0.1 on average (0 ready 8 times, 1 ready 1 time)" in text
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
    def plan(self, plan, rng, where=None):
        time.sleep(0.1)


def _slowly(labels: list[Any]) -> torch.Tensor:
    time.sleep(0.1)
    return torch.tensor(labels)


def test_a_slow_source():
    profile = profiled(Loader(Sleepy(96), batch_size=8, threads=2))
    assert profile.bottleneck.startswith("reading binds: "), profile
    assert profile.stats.seconds["read"] >= 96 * 0.02
    assert sum(profile.stats.ready) == 11


def test_a_slow_consumer():
    profile = profiled(Loader(Memory(64), batch_size=8, threads=2, prefetch=2), consumer_seconds=0.3)
    assert profile.bottleneck.startswith("nothing in the loader binds: "), profile
    assert profile.stats.seconds["wait_for_consumer"] >= 8 * 0.3
    assert sum(profile.stats.ready) == 7 and profile.stats.ready[2] >= 4, "both were ready"


@pytest.mark.slow
@pytest.mark.cpu_only
def test_big_pictures():
    loader = Loader(
        Bytes(*[noisy_jpeg(1500, 1500)] * 24), T.Resize((8, 8), interpolation="nearest"), batch_size=2, threads=2
    )
    profile = profiled(loader)
    assert profile.bottleneck.startswith("decoding binds: "), profile


@pytest.mark.cpu_only
def test_a_heavy_chain():
    chain = [T.Resize((192, 192)), T.MedianBlur(7), T.GaussianBlur(31)]
    profile = profiled(Loader(Memory(480), chain, batch_size=4, threads=2))
    assert profile.bottleneck.startswith("augmentation binds: "), profile


@pytest.mark.slow
def test_slow_planning():
    profile = profiled(Loader(Memory(24), [_SlowPlan()], batch_size=2, threads=1))
    assert profile.bottleneck.startswith("planning binds: "), profile


@pytest.mark.slow
def test_a_slow_collate_fn():
    profile = profiled(Loader(Memory(24), batch_size=2, threads=1, collate_fn=_slowly))
    assert profile.bottleneck.startswith("finishing (mixes, collate_fn) binds: "), profile


@pytest.mark.slow
def test_too_little_under_way():
    """Eight threads, and one sample at a time for three of them."""
    profile = profiled(Loader(Sleepy(60), batch_size=1, threads=8, prefetch=1))
    says = "too small a prefetch binds: with 1 batch ahead, 8 threads were busy only "
    assert profile.bottleneck.startswith(says), profile


def test_epochs_of_one_batch():
    with Loader(Sleepy(8), batch_size=8, threads=2, prefetch=2) as loader:
        for _ in range(4):
            list(loader)
        assert loader.stats().bottleneck.startswith("starting an epoch binds: "), loader.stats()
        assert loader.stats().ready == (0, 0, 0)
