"""`Job`: one batch in progress. Its work is a generator, which yields each `Wait`: what other threads have to do first.

The thread that does the last of this runs the generator on, up to the next wait. There the work may be cancelled, too.
`BatchPart.images` (part.py) is the work, from top to bottom.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cuaug.batch import Batch
from cuaug.errors import DecodeError
from cuaug.pipeline.part import BatchPart
from cuaug.pipeline.thread_pool import POLL_SECONDS, ThreadPool, Turn, Wait, Work
from cuaug.profiling.recorder import Clock
from cuaug.sampling import Epoch, RankSlice

if TYPE_CHECKING:
    from cuaug.pipeline.pipeline import FinishedBatch, Pipeline

__all__ = ["Job"]


class Job:
    """The batch of a rank slice: `start` it, `wait` for it, `take` it.

    Attributes:
        number: the batch's number in the pipeline.
        prepares: whether it prepares its main work. Threads prefer the job with the lower number, but prepare the next
            batch first: otherwise they would all wait, at the end of a batch, for the one that plans the next.
        dropped: (1,) not zero once the batch is no longer wanted; native work watches it.
        latency: nanoseconds that its work took, once it is ready.
        errors: of damaged samples and damaged replacements, until `failures` returns them.
    """

    def __init__(self, pipeline: Pipeline, epoch: Epoch, rank_slice: RankSlice) -> None:
        self.pipeline, self.epoch, self.rank_slice = pipeline, epoch, rank_slice
        self.number = next(pipeline.batch_numbers)
        self.prepares = False
        self.dropped: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.errors: list[DecodeError] = []
        self._first = int(epoch.indices[rank_slice.positions[0]])
        self.latency = self._began = 0
        self._failure: BaseException | None = None
        self._batch: FinishedBatch | None = None
        # Receives None when the job ends. Unlike Event.wait, `get` leaves no lock behind at a Ctrl-C.
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open_tasks = 0

    def start(self, not_before: int = 0) -> Job:
        """Starts the work; at this time by `time.monotonic_ns`, or at `hurry` of the worker threads."""
        work = self._make_batch()  # only the threads keep it: it refers to this job
        self._began = max(not_before, time.monotonic_ns())
        self._begin(work, next(work), not_before)
        return self

    def _make_batch(self) -> Work[None]:
        reader = self.pipeline.config.reader
        if reader.locates:  # quick work, but not for the consumer, who begins a step
            self.prepares = self.pipeline.decodes_on_workers  # a slow source's would delay the first batch
            yield Turn(self.pipeline.workers)
        part = BatchPart(self, self.rank_slice, self.pipeline.config.on_error, self.errors)
        made = yield from part.images()
        if made is not None:
            images, positions = made
            with self.pipeline.on_stream(), self.pipeline.recorder.at("finish", self.number):
                positions = positions if self.rank_slice.kept else positions[:0]
                batch = part.samples.make_batch(images, positions, self.pipeline.config)
                self._batch = self.pipeline.finish(batch)

    # --- for the consumer ---------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether `wait` would return at once."""
        return not self._done.empty()

    def wait(self, timeout_seconds: float | None = None) -> None:
        """Waits until the job ends.

        Raises:
            LoaderError: the loader is closed; this process is a forked child; or a thread has spent more than
                `timeout_seconds` of this wait on one sample or on finishing the batch.
        """
        workers, pools = self.pipeline.workers, self.pipeline.pools
        workers.check()
        watchdogs: list[Iterator[None]] = []
        while True:
            with contextlib.suppress(queue.Empty):
                return self._done.get(timeout=POLL_SECONDS)
            workers.check()
            if timeout_seconds is not None and not watchdogs:
                watchdogs = [pool.watchdog(self.number, timeout_seconds, self.name) for pool in pools]
            for watchdog in watchdogs:
                next(watchdog)

    @property
    def sample_count(self) -> int:
        """Number of samples in the finished batch."""
        assert self._batch is not None
        return self._batch.batch.valid.shape[0]

    def failures(self) -> list[DecodeError]:
        """Returns the errors of damaged samples and damaged replacements, and forgets them."""
        errors = self.errors.copy()
        self.errors.clear()  # the part of the batch has this list, too, and frames of the errors may hold the part
        return errors

    def check(self) -> None:
        """Raises the exception of a failed job; errors of single samples are in `failures`."""
        if self._failure is not None:
            try:
                raise self._failure
            finally:
                self._forget_errors()

    def take(self) -> Batch:
        """Returns the finished batch, and forgets it; call `wait` and `check` first."""
        assert self._batch is not None
        finished, self._batch = self._batch, None
        return finished.take()

    def cancel(self) -> None:
        """Drops the batch; tasks that have not begun do not run."""
        self.dropped[0] = 1
        if self.ready:
            self._forget_errors()

    def name(self, index: int | None) -> str:
        """The name of a sample, or of any sample, for messages."""
        if index is None:
            return "samples"
        path = self.pipeline.config.reader.path(index)
        return f"sample {index}" if path is None else f"{path!r} (sample {index})"

    # --- for the threads ----------------------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        return bool(self.dropped[0]) or self.pipeline.workers.stopping

    def track(self, pool: ThreadPool) -> None:
        """Marks the calling thread as busy with the whole batch; errors name the batch's first sample."""
        pool.track(self.pipeline.recorder.at(batch=self.number, sample=self._first))

    def _begin(self, work: Work[None], wait: Wait, not_before: int = 0) -> None:
        """Has worker threads do what the work waits for; the last of them calls `_resume`."""
        priority = 2 * self.number - 3 * self.prepares
        if isinstance(wait, Turn):
            wait.pool.submit(partial(self._resume, work, wait.pool), priority, wait.after, not_before=not_before)
            return
        pool = self.pipeline.workers
        tasks = [wait.rows[i : i + wait.size] for i in range(0, len(wait.rows), wait.size)]
        self._open_tasks = len(tasks)
        for rows in tasks:
            pool.submit(partial(self._run_task, work, wait.work, rows), priority, not_before=not_before)

    def _run_task(self, work: Work[None], task: Callable[[Sequence[int], Clock], None], rows: Sequence[int]) -> None:
        try:
            if not self.cancelled and self._failure is None:
                with self.pipeline.recorder.at(batch=self.number) as clock:
                    self.pipeline.workers.track(clock)
                    task(rows, clock)
        except BaseException as error:
            self._failure = error
        with self._lock:
            self._open_tasks -= 1
            is_last = self._open_tasks == 0
        if is_last:
            self._resume(work, self.pipeline.workers)

    def _resume(self, work: Work[None], pool: ThreadPool) -> None:
        """Runs the work on to its next wait, or ends the job: finished, failed or cancelled."""
        self.track(pool)
        if self._failure is None and not self.cancelled:
            try:
                self._begin(work, next(work))
                return
            except StopIteration:
                pass
            except BaseException as error:
                self._failure = error
        work.close()  # frees what the work holds
        cancelled = self.cancelled
        self.latency = time.monotonic_ns() - self._began
        if not cancelled:
            self._done.put(None)
        if cancelled or self.dropped[0]:  # but not if the loader is closed meanwhile: a consumer may still ask
            self._forget_errors()

    def _forget_errors(self) -> None:
        """Drops errors: their tracebacks' frames hold this job and its threads in a cycle."""
        self._failure = None
        self.errors.clear()
