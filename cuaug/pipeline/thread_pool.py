"""Worker threads that stop promptly: at `close()`, at the interpreter's exit, or when nothing refers to the pool."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from ctypes import byref, c_int64
from typing import Any, NamedTuple, TypeAlias, TypeVar

from cuaug._runtime.cpus import disable_intraop_threads
from cuaug._runtime.fork import fork_safe_lock, renew_after_fork
from cuaug._runtime.native import library
from cuaug._runtime.threads import OwnThread, end_daemon_at_exit, join_threads
from cuaug.errors import LoaderClosedError, LoaderError, LoaderTimeoutError
from cuaug.profiling.recorder import Clock

__all__ = ["POLL_SECONDS", "NativeWork", "Tasks", "ThreadPool", "Turn", "Wait", "Work"]

Task = Callable[[], None]

#: A waiting consumer checks at this interval for a closed loader and for stuck samples.
POLL_SECONDS = 0.25

# `close` waits so long for running tasks. A read may be stuck for ever.
_CLOSE_SECONDS, _CLOSE_SECONDS_FOR_READS = 2.0, 1.0

_CLOSED = "the loader is closed"
_FORKED = "this Loader belongs to another process, of which this one is a fork: make a new one"

# What the stages of native work (kernels/cpu/batch_work.h) are called in a timeout's error.
_ACTIVITIES = ("reading", "reading", "decoding", "decoding")


class ThreadPool:
    """A thread pool with priorities.

    Tasks with a lower `priority` run first, tasks of the same priority in order. A task catches its own exceptions.
    Threads start with the first task. A forked child refuses all tasks. Threads are called name-0, name-1 and so on.
    """

    def __init__(self, threads: int, name: str = "cuaug-worker") -> None:
        self.threads = threads
        self.name = name
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

    def activities(self) -> list[Clock | _NativeActivity]:
        """What all busy threads do, the longest activity first."""
        workers = self._workers
        native = [] if workers is None else workers.native_activities()
        return sorted([*self._clocks.copy().values(), *native], key=lambda clock: clock.since)

    @property
    def stopping(self) -> bool:
        """Whether running tasks should end early."""
        workers = self._workers
        return bool(self._closed) or (workers is not None and workers.stopping)

    def check(self) -> None:
        """Raises a LoaderError if the pool is closed. At the interpreter's exit, ends a daemon thread."""
        if not self._closed:
            end_daemon_at_exit()
        if self.stopping:
            raise LoaderClosedError(self._closed or _CLOSED)

    def watchdog(self, batch: int, timeout_seconds: float, name: Callable[[int | None], str]) -> Iterator[None]:
        """Raises a LoaderError if a sample of this batch is stuck, or if every thread is stuck in other batches.

        Call `next` every POLL_SECONDS. It counts polls that find a worker at the same sample. Time alone would be
        wrong: after a stopped process continues (Ctrl-Z, a paused container), every sample is older than the timeout.

        Args:
            name: the name of a sample, by index; of any sample, by None.
        """
        polls: dict[tuple[Clock | _NativeActivity, int, int | None], int] = {}
        while True:
            current = [(clock, clock.since, clock.sample) for clock in self.activities()]
            polls = {activity: polls.get(activity, -1) + 1 for activity in current}
            stuck = [clock for (clock, *_), count in polls.items() if count * POLL_SECONDS >= timeout_seconds]
            own = [clock for clock in stuck if clock.batch == batch]
            if own or len(stuck) >= self.threads:
                worst = (own or stuck)[0]
                raise LoaderTimeoutError(
                    f"{worst.activity} {name(worst.sample)} has taken {worst.seconds:.1f} s so far, "
                    f"more than timeout_seconds={timeout_seconds:g}"
                )
            yield

    def submit(self, task: Task, priority: int = 0, native: NativeWork | None = None, *, not_before: int = 0) -> None:
        """Queues a task; after some native work, if that is given.

        Args:
            not_before: it begins at this time by `time.monotonic_ns`, or at `hurry`.

        Raises:
            LoaderError: the pool is closed, or the system starts fewer threads than it has.
            RuntimeError: no thread can start as the main thread has ended (Python 3.12), or the interpreter exits.
        """
        end_daemon_at_exit()
        with self._lock:
            if self._closed:
                raise LoaderClosedError(self._closed)
            workers = self._workers
            if workers is None:
                workers = self._workers = _Workers(self.threads, self._clocks)
                weakref.finalize(self, workers.stop).atexit = False  # `OwnThread` ends them at exit
            try:
                workers.start(self.name)
            except LoaderError:
                self._workers = None
                workers.stop()  # a call with fewer threads finds room
                raise
            workers.put(task, priority, native, not_before)

    def hurry(self) -> None:
        """Begins the tasks that wait for their time."""
        if (workers := self._workers) is not None:
            workers.hurry()

    def close(self) -> None:
        """Drops queued tasks, and waits for running ones: at most 1 s for reads, 2 s for others."""
        with self._lock:
            self._closed = self._closed or _CLOSED
            workers, self._workers = self._workers, None
        if workers is not None:
            workers.stop()
            threads = (thread for thread in threading.enumerate() if isinstance(thread, _Thread))
            join_threads((thread for thread in threads if thread.workers is workers), _Thread.close_seconds)


class NativeWork(NamedTuple):
    """Work without Python, on as many threads as are free.

    Attributes:
        kind: READ or RUN, as `cuaug_pool_add` (kernels/cpu/batch_work.h) numbers them.
        table: the structure that describes the work.
        items: number of them.
        owner: what owns the memory that the table names; it is kept until the work has ended.
    """

    kind: int
    table: Any
    items: int
    owner: Any


class Turn(NamedTuple):
    """A wait for a turn on a thread of the pool; after some native work of that pool, if it is given."""

    pool: ThreadPool
    after: NativeWork | None = None


class Tasks(NamedTuple):
    """A wait for work(some of the rows, clock), by tasks of `size` rows on worker threads."""

    rows: Sequence[int]
    work: Callable[[Sequence[int], Clock], None]
    size: int


T = TypeVar("T")
Wait: TypeAlias = Turn | Tasks
#: Work that yields what it waits for, and returns its result; `Job` runs it.
Work: TypeAlias = Generator[Wait, None, T]


class _NativeActivity(NamedTuple):
    """What a thread does within native work; a `Clock` has the same attributes."""

    batch: int
    sample: int
    activity: str
    since: int

    @property
    def seconds(self) -> float:
        """Time since this sample's stage began."""
        return (time.perf_counter_ns() - self.since) / 1e9


class _Workers:
    """The threads of a pool, and their queue, which is native: see kernels/cpu/work_pool.h.

    Attributes:
        stopping: whether the threads should end.
    """

    def __init__(self, threads: int, clocks: dict[int, Clock]) -> None:
        self.threads = threads
        self._pool = library.cuaug_pool_new()
        if self._pool is None:
            raise MemoryError("no memory for the threads of a loader")
        weakref.finalize(self, library.cuaug_pool_delete, self._pool).atexit = False
        self._tasks: dict[int, tuple[Task, NativeWork | None]] = {}  # by token
        self._tokens = itertools.count()
        self._clocks = clocks
        self._numbers = itertools.count()  # of threads: never one twice
        self._started = self._working = 0
        self._lock = threading.Lock()
        self.stopping = False

    def start(self, name: str) -> None:
        """Starts missing threads; a Ctrl-C may have interrupted an earlier call."""
        while self._started < self.threads:
            number = next(self._numbers)
            try:
                _Thread(self, number, f"{name}-{number}").start()
            except RuntimeError as error:
                if "shutdown" in str(error):
                    raise
                raise LoaderError(f"only {self._started} of threads={self.threads} started: {error}") from None
            self._started += 1

    def put(self, task: Task, priority: int, native: NativeWork | None, not_before: int) -> None:
        token = next(self._tokens)
        kind, table, count = (0, None, 1) if native is None else (native.kind, byref(native.table), native.items)
        try:
            self._tasks[token] = task, native
            if not library.cuaug_pool_add(self._pool, priority, token, kind, table, count, not_before):
                raise MemoryError("no memory for the queue of a loader")
        except BaseException:
            # A Ctrl-C, for one: a task that never runs would keep its loader, and with it these threads. Only the main
            # thread is interrupted, and it adds no native work, whose memory must stay.
            self._tasks.pop(token, None)
            raise

    def hurry(self) -> None:
        library.cuaug_pool_hurry(self._pool)

    def work(self, number: int) -> None:
        """The loop of thread `number`."""
        with self._lock:
            self._working += 1
        while (token := library.cuaug_pool_next(self._pool, number)) >= 0:
            entry = self._tasks.pop(token, None)
            if entry is not None:  # else a Ctrl-C came right after it was added
                entry[0]()
            del entry  # or else its objects would live until the next task
            self._clocks.pop(threading.get_ident(), None)
        with self._lock:
            self._working -= 1
            if not self._working:
                self._tasks.clear()  # no thread writes to their memory any more

    def native_activities(self) -> list[_NativeActivity]:
        found, fields = [], (c_int64 * 4)()
        for number in itertools.count():
            if not library.cuaug_pool_activity(self._pool, number, fields):
                break
            batch, sample, stage, since = fields
            if batch >= 0:
                found.append(_NativeActivity(batch, sample, _ACTIVITIES[stage], since))
        return found

    def stop(self) -> None:
        """Makes the threads end after their current tasks."""
        self.stopping = True
        library.cuaug_pool_stop(self._pool)

    def activity(self, thread: _Thread) -> str:
        """What a thread does, such as "reading"; "" for nothing."""
        if (clock := self._clocks.get(thread.ident or 0)) is not None:
            return clock.activity
        fields = (c_int64 * 4)()
        is_known = library.cuaug_pool_activity(self._pool, thread.number, fields)
        return _ACTIVITIES[fields[2]] if is_known and fields[0] >= 0 else ""


class _Thread(OwnThread):
    """A worker thread. It refers to `_Workers`, but not the reverse, so that no cycle delays freeing them."""

    def __init__(self, workers: _Workers, number: int, name: str) -> None:
        super().__init__(self._work, workers.stop, name)
        self.workers, self.number = workers, number

    def _work(self) -> None:
        disable_intraop_threads()
        self.workers.work(self.number)

    def close_seconds(self) -> float:
        """How long `ThreadPool.close` waits for it."""
        return _CLOSE_SECONDS_FOR_READS if self.workers.activity(self) == "reading" else _CLOSE_SECONDS

    def is_decoding(self) -> bool:
        return self.workers.activity(self) == "decoding"
