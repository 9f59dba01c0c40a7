"""The default numbers of threads and of prefetched batches, and their reasons."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import Loader
from cuaug._runtime import cpus
from cuaug._runtime.cpus import allowed_cpus
from cuaug.pipeline.config import SAMPLES_PER_TASK, choose
from tests.support.loader.further_pictures import Memory

pytestmark = pytest.mark.cpu_only


@pytest.fixture
def set_cpus(monkeypatch):
    """Sets the CPUs of the process: by affinity, of the machine, and by quota."""

    def set_cpus(affinity: int, count: int = 64, limit: float | None = None) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(affinity)), raising=False)
        monkeypatch.setattr(os, "cpu_count", lambda: count)
        monkeypatch.setattr(cpus, "quota", lambda: limit)

    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return set_cpus


@pytest.mark.parametrize(
    "affinity, limit, threads, because",
    [
        (64, None, 64, "the machine's CPUs"),
        (6, None, 6, "the CPUs that this process may use"),
        (6, 2.5, 2, "the control group's quota of 2.5 CPUs"),
        (6, 0.25, 1, "the control group's quota of 0.25 CPUs"),
        (6, 8.0, 6, "the CPUs that this process may use"),
    ],
)
def test_one_thread_per_cpu(set_cpus, affinity, limit, threads, because):
    set_cpus(affinity, limit=limit)
    assert allowed_cpus() == (threads, because)
    runtime = choose("cpu", 256, None, None)
    assert (runtime.threads, runtime.threads_because) == (threads, because)


def test_ranks_share_the_cpus(set_cpus, monkeypatch):
    set_cpus(64)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    runtime = choose("cpu", 256, None, None)
    assert (runtime.threads, runtime.threads_because) == (8, "the machine's CPUs, shared by 8 ranks")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "100")
    assert choose("cpu", 256, None, None).threads == 1


def test_a_gpu_has_at_most_sixteen_readers(set_cpus):
    set_cpus(64)
    runtime = choose("cuda", 256, None, None)
    assert runtime.threads == 16 and "enough to read for a GPU" in runtime.threads_because
    set_cpus(6)
    assert choose("cuda", 256, None, None).threads == 6


@given(st.integers(1, 2000), st.integers(1, 200))
def test_prefetch_gives_every_thread_a_task(batch_size, threads):
    """Even while the consumer has one batch and the last tasks of the next are running."""
    prefetch = choose("cpu", batch_size, threads, None).prefetch
    tasks = -(-batch_size // SAMPLES_PER_TASK)
    assert prefetch >= 2 and (prefetch - 1) * tasks >= threads
    assert prefetch == 2 or (prefetch - 2) * tasks < threads, "and no more than needed"


def test_a_loader_reports_its_choices(set_cpus):
    set_cpus(3)
    with Loader(Memory(40), batch_size=8, seed=0) as loader:
        assert (loader.threads, loader.prefetch) == (3, 4)
        assert repr(loader) == (
            "Loader(40 samples, batch_size=8, seed=0, device='cpu', threads=3 (the CPUs that this process may use), "
            "prefetch=4 (batches of 8 give 1 task each, for 3 threads))"
        )
        list(loader)
        assert str(loader.stats().setup) in repr(loader) and str(loader.stats().setup) in str(loader.stats())
