"""How many threads and batches ahead a loader chooses, and that it says so."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import Loader
from cuaug._runtime import cpu_limits
from cuaug._runtime.cpu_limits import allowed_cpus
from cuaug.pipeline.config import SAMPLES_PER_TASK, choose
from tests.loader.pictures import Memory

pytestmark = pytest.mark.cpu_only


@pytest.fixture
def cpus(monkeypatch):
    """Sets what the process may use: CPUs of its affinity, of the machine, and by quota."""

    def use(affinity: int, count: int = 64, limit: float | None = None) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(affinity)), raising=False)
        monkeypatch.setattr(os, "cpu_count", lambda: count)
        monkeypatch.setattr(cpu_limits, "quota", lambda: limit)

    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return use


@pytest.mark.parametrize(
    "affinity, limit, want, because",
    [
        (64, None, 64, "the machine's CPUs"),
        (6, None, 6, "the CPUs that this process may use"),
        (6, 2.5, 2, "the control group's quota of 2.5 CPUs"),
        (6, 0.25, 1, "the control group's quota of 0.25 CPUs"),
        (6, 8.0, 6, "the CPUs that this process may use"),
    ],
)
def test_threads_on_the_cpu(cpus, affinity, limit, want, because):
    cpus(affinity, limit=limit)
    assert allowed_cpus() == (want, because)
    setup = choose("cpu", 256, None, None)
    assert (setup.threads, setup.threads_because) == (want, because)


def test_ranks_share_the_cpus(cpus, monkeypatch):
    cpus(64)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    setup = choose("cpu", 256, None, None)
    assert (setup.threads, setup.threads_because) == (8, "the machine's CPUs, shared by 8 ranks")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "100")
    assert choose("cpu", 256, None, None).threads == 1


def test_a_gpu_takes_no_more_readers_than_help(cpus):
    cpus(64)
    setup = choose("cuda", 256, None, None)
    assert setup.threads == 16 and "enough to read for a GPU" in setup.threads_because
    cpus(6)
    assert choose("cuda", 256, None, None).threads == 6


def test_what_is_given_stays(cpus):
    cpus(6)
    setup = choose("cuda", 1, 40, 1)
    assert (setup.threads, setup.prefetch) == (40, 1)
    assert str(setup) == "device='cuda', threads=40 (as given), prefetch=1 (as given)"


@given(st.integers(1, 2000), st.integers(1, 200))
def test_prefetch_gives_every_thread_a_task(batch_size, threads):
    """While the consumer has one batch and the last tasks of the next are running."""
    prefetch = choose("cpu", batch_size, threads, None).prefetch
    tasks = -(-batch_size // SAMPLES_PER_TASK)
    assert prefetch >= 2 and (prefetch - 1) * tasks >= threads
    assert prefetch == 2 or (prefetch - 2) * tasks < threads, "and no more than it takes"


def test_a_loader_says_what_it_chose(cpus):
    cpus(3)
    with Loader(Memory(40), batch_size=8) as loader:
        assert (loader.threads, loader.prefetch) == (3, 4)
        assert repr(loader) == (
            "Loader(40 samples, batch_size=8, device='cpu', threads=3 (the CPUs that this process may use), "
            "prefetch=4 (batches of 8 give 1 task: enough of them for 3 threads))"
        )
        list(loader)
        assert str(loader.stats().setup) in repr(loader) and str(loader.stats().setup) in str(loader.stats())
