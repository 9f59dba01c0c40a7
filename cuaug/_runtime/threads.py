"""cuaug's threads, and what else ends before the interpreter does. The package uses `atexit` nowhere else.

Once Python finalizes, it ends each thread that takes the GIL: before 3.14 by pthread_exit, which aborts the process in
a C++ destructor; later it stops the thread for ever, with the locks that it holds. So cuaug's threads end before:

    all are asked to stop, and none starts any more
    1 s later, a SystemExit is raised in those that still run: it ends Python code, such as a source's `read`
    1 s later, those that decode are waited for: that ends by itself, and crashes where its library is torn down

Then a thread is left only if it waits outside of Python: in a `read` that sleeps for an hour, or for a dead server.
Nothing can end such a thread, and the process must end. Python treats it as any daemon thread.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from cuaug._runtime.fork import fork_safe_lock
from cuaug._runtime.native import library

_SECONDS = 1.0
_SECONDS_TO_DECODE = 30.0

_start_lock = fork_safe_lock()
_is_exiting = False
_functions: list[Callable[[], Any]] = []
_leaving: list[threading.Thread] = []  # the user's, which `end_daemon_at_exit` ends

T = TypeVar("T")
R = TypeVar("R")


class OwnThread(threading.Thread):
    """A daemon thread that ends before the interpreter does.

    Args:
        target: what the thread does.
        stop: asks the thread to end; returns at once.
        name: of the thread.
    """

    def __init__(self, target: Callable[[], Any], stop: Callable[[], Any], name: str | None = None) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.stop = stop

    def is_decoding(self) -> bool:
        """Whether it is in a decoder, which ends by itself."""
        return False

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.stop = _do_nothing  # its owner may hold this thread: no cycle delays freeing it

    def start(self) -> None:
        """Starts the thread.

        Raises:
            RuntimeError: the system starts no further thread, or the interpreter exits.
            SystemExit: the interpreter exits; see `end_daemon_at_exit`.
        """
        try:
            with _start_lock:
                if _is_exiting:
                    raise RuntimeError("can't start new thread at interpreter shutdown")
                super().start()
        except RuntimeError as error:
            if "shutdown" in str(error):  # Python 3.12 raises it as soon as the main thread has ended
                _end_daemon()
            raise


def _do_nothing() -> None:
    pass


def start_threads(threads: Iterable[OwnThread]) -> None:
    """Starts threads; stops all of them if one cannot be started, or after a Ctrl-C."""
    threads = list(threads)
    try:
        for thread in threads:
            thread.start()
    except BaseException:
        for thread in threads:
            thread.stop()
        raise


def join_threads(threads: Iterable[threading.Thread], seconds: float | Callable[[Any], float]) -> None:
    """Waits for threads to end, together; for each at most its number of seconds, from now on."""
    begin = time.monotonic()
    for thread in threads:
        if thread is not threading.current_thread() and thread.is_alive():
            limit = seconds(thread) if callable(seconds) else seconds
            thread.join(max(0.0, begin + limit - time.monotonic()))


def map_in_threads(
    function: Callable[[T], R], items: Sequence[T], threads: int, stop: threading.Event | None = None
) -> list[R]:
    """[function(item) for item in items], on several threads: the caller's, and as many others as can start.

    Args:
        stop: is set at the first error, and at exit; no further item is begun then.

    Raises:
        the first error.
    """
    results: list[Any] = [None] * len(items)
    pending, errors = deque(range(len(items))), list[BaseException]()
    stop = stop or threading.Event()

    def end(error: BaseException | None = None) -> None:
        errors.append(error or SystemExit())
        stop.set()

    def work() -> None:
        while not stop.is_set():
            try:
                i = pending.popleft()
            except IndexError:
                return
            try:
                results[i] = function(items[i])
            except BaseException as error:
                end(error)

    others = [OwnThread(work, end, f"cuaug-map-{i}") for i in range(1, min(threads, len(items)))]
    try:
        with contextlib.suppress(RuntimeError):
            for thread in others:
                thread.start()
        work()
        for thread in others:
            if thread.ident is not None:
                thread.join()
    except BaseException as error:  # a Ctrl-C
        end(error)
        raise
    if errors:
        raise errors[0]
    return results


def call_at_exit(function: Callable[[], Any]) -> None:
    """Calls a function at exit, once cuaug's threads have ended."""
    _functions.append(function)


def end_daemon_at_exit() -> None:
    """At exit, ends the calling thread if it is a daemon thread of Python's. So it frees its locks and what it holds.

    Raises:
        SystemExit: ends a thread without a message.
    """
    if _is_exiting:
        _end_daemon()


def _end_daemon() -> None:
    thread = threading.current_thread()
    if thread.daemon and not isinstance(thread, threading._DummyThread):  # one of C or C++
        _leaving.append(thread)
        raise SystemExit


@atexit.register
def _end_all() -> None:
    global _is_exiting
    with _start_lock:
        _is_exiting = True
    threads = [thread for thread in threading.enumerate() if isinstance(thread, OwnThread)]
    try:
        for stop in {thread.stop for thread in threads}:
            stop()
        join_threads(threads, _SECONDS)
        for thread in threads:
            if thread.is_alive():  # else the number may be another thread's
                number, error = ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(number, error)
        join_threads(threads, _SECONDS)
        join_threads((thread for thread in threads if thread.is_decoding()), _SECONDS_TO_DECODE)
        join_threads(_leaving, _SECONDS)
    finally:  # also after a Ctrl-C
        library.cuaug_park_threads()
        for function in _functions:
            function()
