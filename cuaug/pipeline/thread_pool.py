"""Worker threads that stop at once when told to: at `close()`, at the interpreter's exit, when nobody holds them."""

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
from cuaug._runtime.intraop import one_of_many
from cuaug._runtime.libc import libc
from cuaug._runtime.native import library
from cuaug.errors import LoaderError
from cuaug.profiling.recorder import Clock

__all__ = ["LOOK_SECONDS", "ThreadPool"]

Task = Callable[[], None]

#: How often a waiting consumer looks whether somebody has closed the loader, or a sample is stuck.
LOOK_SECONDS = 0.25

# How long stopping waits for tasks that are running, all together: the process must end. Native code gets its time,
# since it crashes where its libraries are torn down under it; a read is Python code, and may be stuck.
_PATIENCE_SECONDS = 2.0
_PATIENCE_WITH_READS_SECONDS = 1.0

_CLOSED = "the loader is closed"
_FORKED = "this Loader belongs to another process, of which this one is a fork: make a new one"

# Whether the interpreter is at its exit.
_ending = False


class ThreadPool:
    """A pool of threads, and tasks that wait for them: those of an earlier turn first, else in their order.

    A task catches its own exceptions. Threads start with the first task; a forked child refuses all tasks. They are
    called name-0, name-1 and so on.
    """

    def __init__(self, threads: int, name: str = "cuaug-worker") -> None:
        self.threads = threads
        self._name = name
        self._pool: _Pool | None = None
        self._closed = ""  # why it takes no more tasks
        self._lock = fork_safe_lock()
        self._clocks: dict[int, Clock] = {}
        renew_after_fork(self._refuse)

    def _refuse(self) -> None:
        self._closed, self._pool = _FORKED, None

    def doing(self, clock: Clock) -> None:
        """Notes the clock that tells what the calling worker is at, until the end of its task."""
        self._clocks[threading.get_ident()] = clock

    def activities(self) -> list[Clock]:
        """What each worker is doing, the longest first."""
        return sorted(self._clocks.copy().values(), key=lambda clock: clock.since)

    @property
    def stopping(self) -> bool:
        """Whether tasks should end early: nobody will ask for what they make."""
        pool = self._pool
        return bool(self._closed) or (pool is not None and pool.stopping)

    def check(self) -> None:
        """Raises a LoaderError once it is closed; at the interpreter's exit the main thread alone is told."""
        if not self._closed:
            _stay_at_exit()
        if self.stopping:
            raise LoaderError(self._closed or _CLOSED)

    def watch(self, batch: int, timeout_seconds: float, name: Callable[[Sequence[int]], str]) -> Iterator[None]:
        """Raises a LoaderError if a sample of this batch is stuck, or those of other batches are on every thread.

        Takes a look at each `next`, LOOK_SECONDS after the last one. It counts the looks that find a worker at the same
        sample: a process that was stopped, as by Ctrl-Z or with its container, finds each sample older than that.

        Args:
            name: of the sample with one of these indices.
        """
        looks: dict[tuple[Clock, int, tuple[int, ...]], int] = {}
        while True:
            now = [(clock, clock.since, tuple(clock.samples)) for clock in self.activities()]
            looks = {each: looks.get(each, -1) + 1 for each in now}
            stuck = [clock for (clock, *_), count in looks.items() if count * LOOK_SECONDS >= timeout_seconds]
            own = [clock for clock in stuck if clock.batch == batch]
            if own or len(stuck) >= self.threads:
                worst = (own or stuck)[0]
                raise LoaderError(
                    f"{worst.doing} {name(worst.samples)} has taken {worst.seconds:.1f} s so far, "
                    f"more than timeout_seconds={timeout_seconds:g}"
                )
            yield

    def submit(self, task: Task, turn: int = 0) -> None:
        """Has a thread run the task.

        Raises:
            LoaderError: it is closed.
            RuntimeError: no thread can be started: there are too many, or the main thread has ended (Python 3.12).
        """
        _stay_at_exit()
        try:
            self._submit(task, turn)
        except RuntimeError as error:
            if "shutdown" in str(error) and threading.current_thread().daemon:
                _stay()
            raise

    def _submit(self, task: Task, turn: int) -> None:
        with self._lock:
            if self._closed:
                raise LoaderError(self._closed)
            pool = self._pool
            if pool is None:
                pool = self._pool = _Pool(self._clocks)
                weakref.finalize(self, pool.tell).atexit = False  # `_stop_all` ends threads then
            pool.start(self.threads, self._name)
            pool.put(task, turn)

    def close(self) -> None:
        """Drops what is queued and waits for what is running: for reads at most 1 s, for the rest at most 2 s."""
        with self._lock:
            self._closed = self._closed or _CLOSED
            pool, self._pool = self._pool, None
        if pool is not None:
            _stop([pool])


class _Pool:
    """Threads, and the tasks that wait for them.

    Attributes:
        calls: wakes a thread for each thing in it: True to look for tasks, False to end.
        stopping: whether the threads are to end.
    """

    def __init__(self, clocks: dict[int, Clock]) -> None:
        self.calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.stopping = False
        self._tasks: list[tuple[int, int, Task]] = []  # a heap
        self._count = itertools.count()
        self._clocks = clocks
        self._started = 0

    def start(self, count: int, name: str) -> None:
        """Starts those threads that have not been: a Ctrl-C may have broken this off."""
        while self._started < count:
            _Thread(self, f"{name}-{self._started}").start()
            self._started += 1

    def put(self, task: Task, turn: int) -> None:
        heapq.heappush(self._tasks, (turn, next(self._count), task))
        self.calls.put(True)

    def work(self) -> None:
        """What each thread does."""
        while self.calls.get():
            # Not one for each call: a Ctrl-C can come between the two steps of `put`.
            while (task := self._next()) is not None:
                task()
                del task  # what it holds must not live until the next one comes
                self._clocks.pop(threading.get_ident(), None)
        self.tell()

    def _next(self) -> Task | None:
        try:
            return None if self.stopping else heapq.heappop(self._tasks)[2]
        except IndexError:
            return None

    def tell(self) -> None:
        """Tells the threads to end after the task that they are at. Each passes it on to the next."""
        self.stopping = True
        self._tasks.clear()
        with contextlib.suppress(queue.Empty):
            while True:
                self.calls.get_nowait()
        self.calls.put(False)

    def patience_seconds(self, thread: threading.Thread) -> float:
        clock = self._clocks.get(thread.ident or 0)
        reads = clock is not None and clock.doing == "reading"
        return _PATIENCE_WITH_READS_SECONDS if reads else _PATIENCE_SECONDS


class _Thread(threading.Thread):
    """A worker. It holds its pool, and the pool does not hold it: so a pool that is let go is gone at once."""

    def __init__(self, pool: _Pool, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.pool = pool

    def run(self) -> None:
        one_of_many()
        self.pool.work()


def _stop(pools: Iterable[_Pool]) -> bool:
    """Ends the threads of all these pools, and waits for them together. Whether native code may still be running."""
    pools = list(pools)
    for pool in pools:
        pool.tell()
    begin = time.monotonic()
    native = False
    for thread in _threads():
        if thread.pool in pools and thread is not threading.current_thread():
            patience = thread.pool.patience_seconds(thread)
            thread.join(max(0.0, begin + patience - time.monotonic()))
            native |= thread.is_alive() and patience == _PATIENCE_SECONDS
    return native


def _threads() -> list[_Thread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, _Thread) and thread.is_alive()]


def _stay() -> NoReturn:
    """The calling thread stays here until the end of the interpreter ends it: a daemon's has nobody to tell."""
    while True:
        threading.Event().wait()


def _stay_at_exit() -> None:
    """At the interpreter's exit, threads that are left beside the main one are daemons, and go on no longer."""
    if _ending and threading.current_thread() is not threading.main_thread():
        _stay()


@atexit.register
def _stop_all() -> None:
    """At exit, while threads can still end in order."""
    global _ending
    _ending = True
    decoding = _stop({thread.pool for thread in _threads()})
    library.cuaug_keep_ended_threads()
    if decoding and hasattr(libc, "on_exit"):  # glibc
        # A picture that takes seconds: the process ends right after the interpreter, before C++ takes away what the
        # decoder is using.
        libc.on_exit(libc._exit, None)
