"""When a batch begins: at once, or in the middle of a training step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import Loader
from cuaug.pipeline import iteration
from cuaug.pipeline.iteration import _Pace
from cuaug.pipeline.thread_pool import ThreadPool
from tests.support.loader.further_pictures import Memory, numbers_of

MS = 1_000_000


@given(
    steps=st.lists(st.integers(1, 100), min_size=1, max_size=5),
    ready=st.lists(st.booleans(), max_size=3),
    latency=st.integers(1, 50),
)
def test_a_batch_waits_if_all_are_ready_and_a_step_takes_twice_as_long(steps, ready, latency):
    pace, now = _Pace(), 5 * MS
    jobs = [SimpleNamespace(ready=value, latency=latency * MS) for value in ready]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iteration.time, "monotonic_ns", lambda: now)
        pace.next_step(jobs)
        assert pace.not_before == 0, "no step is known yet"
        for step in steps:
            now += step * MS
            pace.next_step(jobs)
            waits = bool(ready) and all(ready) and step > 2 * latency
            assert pace.not_before == (now + step * MS // 2 if waits else 0)


def test_a_consumer_that_comes_early_hurries_the_batch_that_waits(monkeypatch):
    """Each next batch would wait for ever, but for the consumer's next request."""
    delayed, submit = [], ThreadPool.submit

    def next_step(self, under_way):
        for job in under_way:
            job.wait(600)
            job._done.put(None)  # it stays ready
        self.not_before = 2**62

    def count(self, task, priority=0, native=None, *, not_before=0):
        delayed.append(not_before)
        submit(self, task, priority, native, not_before=not_before)

    monkeypatch.setattr(_Pace, "next_step", next_step)
    monkeypatch.setattr(ThreadPool, "submit", count)
    with Loader(Memory(40), batch_size=4, threads=2, prefetch=2, timeout_seconds=60) as loader:
        found = [number for batch in loader for number in numbers_of(batch.images)]
    assert found == list(range(40)) and delayed.count(2**62) >= 7
