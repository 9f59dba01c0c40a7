"""`TaskSteps`: steps of tasks on worker threads, each begun by the last task of the one before."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.pipeline.config import SAMPLES_PER_TASK
from cuaug.pipeline.thread_pool import POLL_SECONDS, NativeWork, ThreadPool
from cuaug.profiling.recorder import Recorder

__all__ = ["TaskSteps"]


class TaskSteps:
    """Base class of `Job`: runs steps until one ends the job, fails, or finds it cancelled.

    Args:
        pipeline: has the worker threads and the recorder.
        number: of the batch.

    Attributes:
        prepares: whether the steps prepare the batch for its main work. Threads prefer lower numbers, but prepare the
            next batch first: otherwise they would all wait, at the end of a batch, for the one that plans the next.
        dropped: (1,) not zero once the batch is no longer wanted; native work watches it.
    """

    def __init__(self, pipeline: Any, number: int) -> None:
        self.pipeline, self.number = pipeline, number
        self._workers: ThreadPool = pipeline.workers
        self._recorder: Recorder = pipeline.recorder
        self.prepares = False
        self._failure: BaseException | None = None
        self.dropped: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        # Receives None when the job ends. Unlike Event.wait, `get` leaves no lock behind at a Ctrl-C.
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open_tasks = 0

    @property
    def cancelled(self) -> bool:
        return bool(self.dropped[0]) or self._workers.stopping

    def track_batch(self, pool: ThreadPool) -> None:
        """Marks the calling thread as busy with the whole batch."""
        raise NotImplementedError

    def _end(self) -> None:
        """Ends the job: finished, failed or cancelled."""
        raise NotImplementedError

    def _name(self, index: int | None) -> str:
        """Names a sample, or any sample, for messages."""
        raise NotImplementedError

    @property
    def _priority(self) -> int:
        return 2 * self.number - 3 * self.prepares

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
        self._workers.check()
        watchdogs: list[Iterator[None]] = []
        while True:
            with contextlib.suppress(queue.Empty):
                return self._done.get(timeout=POLL_SECONDS)
            self._workers.check()
            if timeout_seconds is not None and not watchdogs:
                pools = self.pipeline.pools
                watchdogs = [pool.watchdog(self.number, timeout_seconds, self._name) for pool in pools]
            for watchdog in watchdogs:
                next(watchdog)

    def _submit_tasks(
        self, count: int, work: Callable[[range], None], then: Callable[[], None], size: int = SAMPLES_PER_TASK
    ) -> None:
        """Runs work(rows) for rows 0 ... count - 1, in tasks of `size` rows, and `then()` after the last task."""
        tasks = [range(i, min(i + size, count)) for i in range(0, count, size)]
        self._open_tasks = len(tasks)

        def run(rows: range) -> None:
            try:
                if not self.cancelled and self._failure is None:
                    work(rows)
            except BaseException as error:
                self._failure = error
            with self._lock:
                self._open_tasks -= 1
                last = self._open_tasks == 0
            if last:
                self.track_batch(self._workers)
                self.run_step(then)

        for rows in tasks:
            self._workers.submit(partial(run, rows), self._priority)

    def submit_step(self, step: Callable[[], None], after: NativeWork | None = None) -> None:
        """Runs `step()` on a worker thread; after the last item of some native work, if that is given."""

        def run() -> None:
            self.track_batch(self._workers)
            self.run_step(step)

        self._workers.submit(run, self._priority, after)

    def run_step(self, step: Callable[[], None]) -> None:
        """Runs the next step, unless the job has failed or is cancelled; then it ends."""
        if self._failure is None and not self.cancelled:
            try:
                step()
                return
            except BaseException as error:
                self._failure = error
        self._end()
