"""Worker threads that stop at once when told to: at `close()`, at the interpreter's exit, when nobody holds them."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple

from cuaug.errors import LoaderError

__all__ = ["Activity", "Workers"]

Task = Callable[[], None]


class Activity(NamedTuple):
    """What a worker does with which sample, and since when by `time.monotonic`."""

    since: float
    what: str
    sample: int


# How long stopping waits for tasks that are running: a source may be stuck in a read, and the process must end.
_PATIENCE_SECONDS = 2.0


class Workers:
    """A pool of threads and a queue of tasks.

    A task catches its own exceptions. Threads start with the first task; a process that was forked from one with
    running threads starts its own.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool: _Pool | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._activities: dict[int, Activity] = {}

    def doing(self, what: str, sample: int) -> None:
        """Notes what the calling worker is about to do."""
        self._activities[threading.get_ident()] = Activity(time.monotonic(), what, sample)

    def longest(self) -> Activity | None:
        """What some worker has been doing for the longest time now."""
        return min(self._activities.copy().values(), default=None)

    def check(self) -> None:
        """Raises a LoaderError once it is closed."""
        if self._closed:
            raise LoaderError("the loader is closed")

    def submit(self, task: Task) -> None:
        with self._lock:
            self.check()
            if self._pool is None or self._pool.process != os.getpid():
                self._activities.clear()
                self._pool = _Pool(self.threads, self._activities)
                # Runs when this object goes away, and at exit while threads can still end in order: native code must
                # not be running in one when the process tears its libraries down.
                weakref.finalize(self, self._pool.stop)
            self._pool.tasks.put(task)

    def close(self) -> None:
        """Drops what is queued and waits for what is running, but no longer than 2 s."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()


class _Pool:
    def __init__(self, threads: int, activities: dict[int, Activity]) -> None:
        self.process = os.getpid()
        self._activities = activities
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"cuaug-worker-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (task := self.tasks.get()) is not None and not self._stopping:
            task()
            self._activities.pop(threading.get_ident(), None)
            del task  # what it holds must not live until the next one comes

    def stop(self) -> None:
        if self.process != os.getpid():  # a fork's copy: its threads do not exist here
            return
        self._stopping = True
        with contextlib.suppress(queue.Empty):
            while True:
                self.tasks.get_nowait()
        for _ in self._threads:
            self.tasks.put(None)
        end = time.monotonic() + _PATIENCE_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
