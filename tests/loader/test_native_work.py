"""Native work against the same steps in Python, and under ThreadSanitizer."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cuaug import DeviceError, Loader
from cuaug import transforms as T
from cuaug._runtime.native import library
from cuaug.codec import CpuDecoder, JpegIndex, read_header
from cuaug.errors import DecodeError, LoaderError
from cuaug.pipeline.job import Job
from cuaug.pipeline.native_work import FileReads, SampleRuns
from cuaug.pipeline.thread_pool import ThreadPool
from tests.codec.test_regions import JPEG_OPTIONS
from tests.support.builds import build
from tests.support.codec.encoded_images import FORMATS, PHOTO, PNG, app1, encode, photo, tiff_block
from tests.support.loader.further_pictures import Memory, assert_epoch_raises, write_photos
from tests.support.loader.native_runs import Decoded, run
from tests.support.sanitizers import THREAD, plant_mistakes
from tests.support.sanitizers import run as run_sanitized

_pool = ThreadPool(3, "native-work")


def finish(work: FileReads | SampleRuns) -> None:
    ended = threading.Event()
    _pool.submit(ended.set, native=work.work)
    assert ended.wait(600)


def test_more_threads_than_the_system_starts_are_an_error(monkeypatch):
    """As for `threads=2**31`; the threads that did start end, and the pool may be used again."""
    begin, started = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        begin(thread)

    pool, ended = ThreadPool(5, "too-many"), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(LoaderError, match="only 3 of threads=5 started: can't start new thread"):
            pool.submit(ended.set)
    for thread in started:
        thread.join(600)
        assert not thread.is_alive()
    pool.submit(ended.set)
    assert ended.wait(600)
    pool.close()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_batch_equals_single_decodes(data):
    """Formats that nvImageCodec decodes, rotated and damaged files, narrow and cropped regions, decoded images."""
    single, index = CpuDecoder(), JpegIndex(1 << 20)
    large = Image.fromarray(photo(200, 300))
    exif_blocks = [app1(tiff_block(orientation))[4:] for orientation in (1, 3, 6)]
    jpegs = [encode(large, "JPEG", exif=exif, quality=95, **chosen) for exif in exif_blocks for chosen in JPEG_OPTIONS]
    formats = [file for file in FORMATS.values() if not read_header(file, lossy=True).for_pillow]
    files = [*jpegs, *formats, jpegs[0][:-2000] + jpegs[0][-2:], PNG[:-100]]
    for _ in range(2):
        items, regions = [], []
        for file in data.draw(st.lists(st.none() | st.sampled_from(files), min_size=1, max_size=9)):
            items.append(item := Decoded(PHOTO) if file is None else read_header(file, lossy=True))
            y0, x0 = data.draw(st.integers(0, item.height - 1)), data.draw(st.integers(0, item.width - 1))
            y1, x1 = data.draw(st.integers(y0 + 1, item.height)), data.draw(st.integers(x0 + 1, item.width))
            regions.append(data.draw(st.sampled_from([(0, 0, item.height, item.width), (y0, x0, y1, x1)])))
        finish(runs := run(items, regions, index=index))
        for i, (item, region, status) in enumerate(zip(items, regions, runs.statuses.tolist(), strict=True)):
            try:
                expected = single.decode(item, region)
            except DecodeError:
                assert status == 0
                continue
            if status:
                np.testing.assert_array_equal(runs.outputs[i], expected)
                assert single.decoded_by == ("source" if status == 3 else "cpu")
            else:
                assert single.decoded_by == "pillow"
            if status:
                assert runs.lines().get(i, []) == single.lines


def test_a_missing_decoder_is_an_error_and_no_work_for_pillow(monkeypatch):
    monkeypatch.setattr(SampleRuns, "statuses", property(lambda self: np.full(len(self.positions), 4)))
    assert_epoch_raises(DeviceError, "no decoder", Memory(4), batch_size=4, device="cpu")


def test_an_interrupted_submission_leaves_no_task(monkeypatch):
    """A Ctrl-C in the main thread, before or after the queue has the task: it may run, but nothing keeps it."""
    add = library.cuaug_pool_add

    def interrupted_before(*arguments: Any) -> int:
        raise KeyboardInterrupt

    def interrupted_after(*arguments: Any) -> int:
        add(*arguments)
        raise KeyboardInterrupt

    for interrupted in (interrupted_before, interrupted_after):
        pool, ended, task = ThreadPool(2), threading.Event(), threading.Event()
        monkeypatch.setattr(library, "cuaug_pool_add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.submit(task.set)
        monkeypatch.setattr(library, "cuaug_pool_add", add)
        pool.submit(ended.set)
        assert ended.wait(600) and pool._workers is not None and not pool._workers._tasks
        pool.close()


def test_tasks_and_native_work_run_by_priority():
    """One thread: what was submitted while it was busy runs in the order of priorities, then of submission."""
    pool, started, go, order = ThreadPool(1), threading.Event(), threading.Event(), []
    pool.submit(lambda: (started.set(), go.wait(600)))
    assert started.wait(600)
    works = [run([Decoded(PHOTO)] * 3, [(0, 0, 8, 8)] * 3) for _ in range(3)]
    ended = threading.Event()
    for name, priority, native in (("a", 2, None), ("b", 1, works[0].work), ("c", 2, works[1].work), ("d", 0, None)):
        pool.submit(lambda name=name: order.append(name), priority, native)
    pool.submit(ended.set, 3)
    go.set()
    assert ended.wait(600) and order == ["d", "b", "a", "c"]
    pool.close()


@pytest.mark.cpu_only
def test_the_next_batch_is_planned_before_a_batch_is_decoded(tmp_path, monkeypatch):
    """So threads that have decoded a batch need not wait for the plan of the next; but no more is read ahead."""
    loader = Loader(write_photos(tmp_path, 16), [T.Resize((8, 8))], batch_size=4, threads=1, prefetch=3)
    wait, all_are_submitted = Job.wait, threading.Event()
    monkeypatch.setattr(Job, "wait", lambda *arguments: (all_are_submitted.set(), wait(*arguments))[1])
    with loader, loader.profile() as profile:
        loader._pipeline.workers.submit(lambda: all_are_submitted.wait(600), -100)
        list(loader)
    first, last = {}, {}
    for event in profile.lanes()["cuaug-worker-0"]:
        first.setdefault((event.stage, event.batch), event.start)
        last[event.stage, event.batch] = event.end
    for batch in range(1, 3):
        assert last["plan", batch + 1] <= first["decode", batch]
    for batch in range(2):
        assert first["read", batch + 2] >= last["decode", batch]


def test_a_delayed_task_waits_for_its_time_or_to_be_hurried():
    pool, late, now, ran = ThreadPool(2), threading.Event(), threading.Event(), threading.Event()
    pool.submit(late.set, not_before=time.monotonic_ns() + 10**15)
    pool.submit(now.set, priority=1)
    assert now.wait(600) and not late.is_set()
    pool.hurry()
    assert late.wait(600)
    begun, due = [], time.monotonic_ns() + 50_000_000
    pool.submit(lambda: [begun.append(time.monotonic_ns()), ran.set()], not_before=due)
    assert ran.wait(600) and begun[0] >= due
    pool.submit(late.set, not_before=time.monotonic_ns() + 10**15)
    pool.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12: a fork of a process with threads
def test_a_forked_child_stops_no_pool_of_its_parent():
    """Its copy of the pool may be locked by a thread that the child lacks, which once let `cuaug.decode` hang."""
    pool = library.cuaug_pool_new()
    child = os.fork()
    if not child:
        try:
            library.cuaug_pool_stop(pool)
            library.cuaug_pool_add(pool, 0, 7, 0, None, 1, 0)
            os._exit(0 if library.cuaug_pool_next(pool, 0) == 7 else 1)  # -1 if stopped
        finally:
            os._exit(1)  # else it would go on with the tests of its parent
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    library.cuaug_pool_delete(pool)


def test_a_closed_pool_keeps_the_memory_of_running_work():
    """The work ends on its thread; what it writes to lives until then."""
    for _ in range(30):
        pool = ThreadPool(4)
        for batch in range(6):
            pool.submit(lambda: None, batch, run([Decoded(PHOTO)] * 50, [(0, 0, 30, 40)] * 50, batch).work)
        pool.close()


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a runtime")
def test_no_data_race_and_one_is_reported(tmp_path, monkeypatch):
    """Sixteen threads. A count of open items without order between threads must be reported."""
    order = "{std::memory_order_acq_rel <> std::memory_order_relaxed}"
    mistakes = {"count": ("cpu/work_pool.h", f"fetch_sub(items, {order})")}
    flags = plant_mistakes(tmp_path / "kernels", mistakes)
    library = build(tmp_path / "kernels.so", ["-Og", *THREAD, *flags], kernels=tmp_path / "kernels", isas=("baseline",))
    program = ["-m", "tests.sanitize.sanitized_pool", "30"]
    monkeypatch.setenv("CUAUG_MISTAKE", "-1")
    status, output = run_sanitized(library, "libtsan.so", program)
    assert status == 0 and "batches" in output and "WARNING: ThreadSanitizer" not in output, output[-5000:]
    monkeypatch.setenv("CUAUG_MISTAKE", "0")
    status, output = run_sanitized(library, "libtsan.so", program)
    assert "data race" in output, output[-5000:]
