"""Worker threads that stop promptly: at `close()`, at the interpreter's exit, or when nothing refers to the pool."""

from __future__ import annotations

import atexit
import contextlib
import heapq
import itertools
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from cuaug._runtime.fork import fork_safe_lock, renew_after_fork
from cuaug._runtime.intraop import disable_intraop_threads
from cuaug._runtime.libc import libc
from cuaug._runtime.native import library
from cuaug.errors import LoaderClosedError, LoaderTimeoutError
from cuaug.profiling.recorder import Clock

__all__ = ["POLL_SECONDS", "ThreadPool"]

Task = Callable[[], None]

#: A waiting consumer checks at this interval for a closed loader and for stuck samples.
POLL_SECONDS = 0.25

# `close` waits this long for running tasks, in total. Native code gets more time, as it crashes if its libraries are
# torn down meanwhile; a read is Python code, and may be stuck.
_CLOSE_SECONDS = 2.0
_CLOSE_SECONDS_FOR_READS = 1.0

_CLOSED = "the loader is closed"
_FORKED = "this Loader belongs to another process, of which this one is a fork: make a new one"

_at_exit = False


class ThreadPool:
    """A thread pool with priorities.

    Tasks with a lower `priority` run first, tasks of the same priority in order. A task catches its own exceptions.
    Threads start with the first task. A forked child refuses all tasks. Threads are named name-0, name-1 and so on.
    """

    def __init__(self, threads: int, name: str = "cuaug-worker") -> None:
        self.threads = threads
        self._name = name
        self._workers: _Workers | None = None
        self._closed = ""  # why the pool takes no more tasks
        self._lock = fork_safe_lock()
        self._clocks: dict[int, Clock] = {}
        renew_after_fork(self._refuse)

    def _refuse(self) -> None:
        self._closed, self._workers = _FORKED, None

    def track(self, clock: Clock) -> None:
        """Sets the calling thread's clock, until the end of its task."""
        self._clocks[threading.get_ident()] = clock

    def activities(self) -> list[Clock]:
        """The clocks of all busy threads, the longest activity first."""
        return sorted(self._clocks.copy().values(), key=lambda clock: clock.since)

    @property
    def stopping(self) -> bool:
        """Whether running tasks should end early."""
        workers = self._workers
        return bool(self._closed) or (workers is not None and workers.stopping)

    def check(self) -> None:
        """Raises a LoaderError if the pool is closed; at the interpreter's exit only in the main thread."""
        if not self._closed:
            _block_at_exit()
        if self.stopping:
            raise LoaderClosedError(self._closed or _CLOSED)

    def watchdog(self, batch: int, timeout_seconds: float, name: Callable[[Sequence[int]], str]) -> Iterator[None]:
        """Raises a LoaderError if a sample of this batch is stuck, or if every thread is stuck in other batches.

        Call `next` every POLL_SECONDS. It counts polls that find a worker at the same sample. Time alone would be
        wrong: after a stopped process continues (Ctrl-Z, a paused container), every sample is older than the timeout.

        Args:
            name: the name of the sample, or of several candidates, by index.
        """
        polls: dict[tuple[Clock, int, tuple[int, ...]], int] = {}
        while True:
            current = [(clock, clock.since, tuple(clock.samples)) for clock in self.activities()]
            polls = {activity: polls.get(activity, -1) + 1 for activity in current}
            stuck = [clock for (clock, *_), count in polls.items() if count * POLL_SECONDS >= timeout_seconds]
            own = [clock for clock in stuck if clock.batch == batch]
            if own or len(stuck) >= self.threads:
                worst = (own or stuck)[0]
                raise LoaderTimeoutError(
                    f"{worst.activity} {name(worst.samples)} has taken {worst.seconds:.1f} s so far, "
                    f"more than timeout_seconds={timeout_seconds:g}"
                )
            yield

    def submit(self, task: Task, priority: int = 0) -> None:
        """Queues a task.

        Raises:
            LoaderError: the pool is closed.
            RuntimeError: no thread can start: there are too many, or the main thread has ended (Python 3.12).
        """
        _block_at_exit()
        try:
            with self._lock:
                if self._closed:
                    raise LoaderClosedError(self._closed)
                workers = self._workers
                if workers is None:
                    workers = self._workers = _Workers(self._clocks)
                    weakref.finalize(self, workers.stop).atexit = False  # `_stop_all` ends threads at exit
                workers.start(self.threads, self._name)
                workers.put(task, priority)
        except RuntimeError as error:
            if "shutdown" in str(error) and threading.current_thread().daemon:
                _block_forever()
            raise

    def close(self) -> None:
        """Drops queued tasks, and waits for running ones: at most 1 s for reads, 2 s for others."""
        with self._lock:
            self._closed = self._closed or _CLOSED
            workers, self._workers = self._workers, None
        if workers is not None:
            _stop([workers])


class _Workers:
    """The threads of a pool, and their queue.

    Attributes:
        wakeups: wakes one thread per entry: True to look for tasks, False to end.
        stopping: whether the threads should end.
    """

    def __init__(self, clocks: dict[int, Clock]) -> None:
        self.wakeups: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.stopping = False
        self._tasks: list[tuple[int, int, Task]] = []  # a heap
        self._count = itertools.count()
        self._clocks = clocks
        self._started = 0

    def start(self, count: int, name: str) -> None:
        """Starts missing threads; a Ctrl-C may have interrupted an earlier call."""
        while self._started < count:
            _Thread(self, f"{name}-{self._started}").start()
            self._started += 1

    def put(self, task: Task, priority: int) -> None:
        heapq.heappush(self._tasks, (priority, next(self._count), task))
        self.wakeups.put(True)

    def work(self) -> None:
        """The loop of each thread."""
        while self.wakeups.get():
            # All tasks, not one per wake-up: a Ctrl-C can come between the two steps of `put`.
            while (task := self._next_task()) is not None:
                task()
                del task  # or else its objects would live until the next task
                self._clocks.pop(threading.get_ident(), None)
        self.stop()

    def _next_task(self) -> Task | None:
        try:
            return None if self.stopping else heapq.heappop(self._tasks)[2]
        except IndexError:
            return None

    def stop(self) -> None:
        """Makes the threads end after their current tasks; each thread wakes the next one."""
        self.stopping = True
        self._tasks.clear()
        with contextlib.suppress(queue.Empty):
            while True:
                self.wakeups.get_nowait()
        self.wakeups.put(False)

    def close_seconds(self, thread: threading.Thread) -> float:
        clock = self._clocks.get(thread.ident or 0)
        reads = clock is not None and clock.activity == "reading"
        return _CLOSE_SECONDS_FOR_READS if reads else _CLOSE_SECONDS


class _Thread(threading.Thread):
    """A worker thread. It refers to `_Workers`, but not the reverse, so that no cycle delays freeing them."""

    def __init__(self, workers: _Workers, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.workers = workers

    def run(self) -> None:
        disable_intraop_threads()
        self.workers.work()


def _stop(stopped: Iterable[_Workers]) -> bool:
    """Stops threads, and waits for them together. Returns whether native code may still run."""
    stopped = list(stopped)
    for workers in stopped:
        workers.stop()
    begin = time.monotonic()
    native = False
    for thread in _running_threads():
        if thread.workers in stopped and thread is not threading.current_thread():
            limit = thread.workers.close_seconds(thread)
            thread.join(max(0.0, begin + limit - time.monotonic()))
            native |= thread.is_alive() and limit == _CLOSE_SECONDS
    return native


def _running_threads() -> list[_Thread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, _Thread) and thread.is_alive()]


def _block_forever() -> NoReturn:
    """Blocks a daemon thread until the interpreter's end: no caller could receive its exception."""
    while True:
        threading.Event().wait()


def _block_at_exit() -> None:
    """At the interpreter's exit, blocks threads other than the main thread: they are daemons."""
    if _at_exit and threading.current_thread() is not threading.main_thread():
        _block_forever()


@atexit.register
def _stop_all() -> None:
    global _at_exit
    _at_exit = True
    decoding = _stop({thread.workers for thread in _running_threads()})
    library.cuaug_keep_ended_threads()
    if decoding and hasattr(libc, "on_exit"):  # glibc
        # An image that takes seconds to decode: the process ends right after the interpreter, before C++ destroys the
        # decoder's objects.
        libc.on_exit(libc._exit, None)
