"""cuaug's threads end before the interpreter does, whatever they wait for; and nothing is left of what they began."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import cuaug
from cuaug._runtime import threads
from cuaug._runtime.threads import map_in_threads
from cuaug.remote import ReadAhead, RemoteObject
from tests.support.loader.programs import Program, run

# A function for `after_cuaug` runs at exit once cuaug's has run: its threads have ended.
_AFTER = """
from cuaug._runtime import threads

def after_cuaug(function):
    atexit.unregister(threads._end_all)
    atexit.register(function)
    atexit.register(threads._end_all)

def own():
    return [thread.name for thread in threading.enumerate() if isinstance(thread, threads.OwnThread)]

after_cuaug(lambda: print(own()))
"""

# Each leaves running threads of cuaug.
WAITING = {
    "for work": """
loader = Loader(Memory(40), batch_size=8, threads=4)
list(loader)
""",
    "in Python code": """
class Polling(Memory):
    def read(self, index):
        try:
            while True:
                time.sleep(0.01)
        finally:
            print("the file is closed")

batches = Loader(Polling(4), batch_size=4, threads=1).peek
threading.Thread(target=batches, daemon=True).start()
while not own():
    time.sleep(0.01)
time.sleep(0.1)
""",
    "for a lock": """
lock, begun = threading.Lock(), threading.Semaphore(0)

class Locked(Memory):
    def read(self, index):
        begun.release()
        with lock:
            while True:
                time.sleep(0.01)

threading.Thread(target=list, args=[Loader(Locked(40), batch_size=1, threads=4)], daemon=True).start()
for _ in range(4):
    begun.acquire()
""",
    "for memory of a read-ahead": """
import numpy as np
from cuaug.remote import ReadAhead, RemoteObject

class Reader:
    connections = 3

    def read(self, remote, offset, size, stop=None):
        return bytes(size)

def spans(indices):
    return np.stack([0 * indices, indices << 20, 0 * indices + 1000], axis=-1)[:, None]

ahead = ReadAhead(Reader(), [RemoteObject("", 1 << 40, "")], [np.arange(100)], spans, 2000)
while ahead.held_bytes < 2000:
    time.sleep(0.001)
""",
    "in a map": """
from cuaug._runtime.threads import map_in_threads

def poll(item):
    while True:
        time.sleep(0.01)

threading.Thread(target=map_in_threads, args=[poll, range(9), 3], daemon=True).start()
while len(own()) < 2:
    time.sleep(0.001)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("waiting", WAITING)
def test_threads_end_before_the_interpreter(waiting):
    out = run(_AFTER + WAITING[waiting])
    assert out == ("the file is closed\n" if "Python" in waiting else "") + "[]\n"


# What a program prints at its end, and the program.
EXITS = {
    "a daemon thread that iterates frees what a function of the user at exit needs": (
        "joined\n",
        """
begun, lock = threading.Event(), threading.Lock()

def iterate():
    with lock:
        for images, labels in Loader(Memory(10 ** 6), batch_size=8, threads=2):
            begun.set()

thread = threading.Thread(target=iterate, daemon=True)
thread.start()
after_cuaug(lambda: (lock.acquire(), thread.join(), print("joined")))
begun.wait()
""",
    ),
    # Where Python ended it in a destructor of PyTorch's, the process would abort.
    "the exit waits for a daemon thread that leaves": (
        "left\n",
        """
asked = threading.Event()

def iterate():
    try:
        while True:
            threads.end_daemon_at_exit()
            time.sleep(0.001)
    finally:
        time.sleep(0.5)
        print("left")

threading.Thread(target=iterate, daemon=True).start()
threads.OwnThread(lambda: (asked.wait(), time.sleep(0.2)), asked.set, "slow").start()
""",
    ),
    "no thread starts at exit, not even one that a thread begins which is just ending": (
        "refused\n",
        """
asked = threading.Event()

def work():
    asked.wait()
    try:
        threads.OwnThread(print, print, "late").start()
    except SystemExit:
        print("refused")

threads.OwnThread(work, asked.set, "first").start()
""",
    ),
    "what threads begin while they end ends too": (
        "[]\n",
        """
asked = threading.Event()
begun = []
after_cuaug(lambda: print(begun))
threads.call_at_exit(begun.clear)
threads.OwnThread(lambda: (asked.wait(), begun.append("a compilation")), asked.set, "first").start()
""",
    ),
}


@pytest.mark.parametrize("name", EXITS)
def test_the_exit(name):
    printed, program = EXITS[name]
    assert run(_AFTER + program) == printed + "[]\n"


@pytest.mark.slow
def test_a_decode_that_outlasts_the_exit_takes_no_gil():
    """Its thread waits for the end of the process. Python would end it."""
    program = Program(f"""{_AFTER}
from cuaug._runtime.native import library
from cuaug.pipeline.thread_pool import c_int64
from tests.support.loader.further_pictures import Bytes, png, slow_to_decode

def number_of_threads(listdir=os.listdir):
    return len(listdir("/proc/self/task"))

class SlowExit:
    def __del__(self, sleep=time.sleep, count=number_of_threads, busy=library.cuaug_pool_activity, print=print):
        before = count()
        while busy(pool, 0, fields) and fields[0] >= 0:
            sleep(0.01)
        sleep(0.1)  # it would take the GIL meanwhile
        print(count() - before, flush=True)

threads._SECONDS = threads._SECONDS_TO_DECODE = 0
loader = Loader(Bytes(png(0), slow_to_decode(40)), T.Resize((8, 8)), threads=1, prefetch=1)
batches = iter(loader)
next(batches)
while not any(clock.activity == "decoding" for clock in loader._pipeline.workers.activities()):
    time.sleep(0.001)
pool, fields = loader._pipeline.workers._workers._pool, (c_int64 * 4)()
slow_exit = SlowExit()
ready()
""")
    ended = program.ends(within=float("inf"))
    assert ended.code == 0 and ended.err == "" and ended.out == "['cuaug-worker-0']\n0\n", ended


# --- mapping on threads ----------------------------------------------------------------------------------------------


def test_a_map_where_no_thread_starts(monkeypatch):
    """As Python 3.12 and newer, once the main thread has ended."""
    monkeypatch.setattr(threads.OwnThread, "start", lambda self: threading._start_new_thread(no, ()))  # type: ignore[attr-defined]
    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    assert map_in_threads(str, range(9), 3) == list("012345678")


def no() -> None:
    raise AssertionError


def refuse(*_: object) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")


def test_a_thread_that_outlives_the_main_thread_decodes_on_the_cpu():
    """Its loader's GPU leaves images to the CPU."""
    assert run("""
from cuaug.codec import CpuFallback, read_header
from tests.support.loader.further_pictures import png

def decode():
    threading.main_thread().join()
    time.sleep(0.1)
    (pixels, lines), *_ = fallback.decode([read_header(png(0))] * 3)
    print(pixels.shape)

fallback = CpuFallback(fancy_upsampling=True, threads=2)
threading.Thread(target=decode).start()
""").startswith("(")


def test_no_cycle_keeps_a_closed_read_ahead():
    class Reader:
        connections = 2

        def read(self, remote, offset, size, stop=None):
            return bytes(size)

    gc.disable()
    try:
        ahead = ReadAhead(Reader(), [RemoteObject("", 9, "")], [], lambda indices: np.empty((0, 1, 3), np.int64), 9)
        alive = weakref.ref(ahead)
        ahead.close()
        del ahead
        assert alive() is None
    finally:
        gc.enable()


def test_all_threads_of_the_package_are_its_own():
    """`commands` are programs of their own."""
    package = Path(cuaug.__file__).parent
    words = ("daemon=True", "ThreadPoolExecutor(", "atexit.register")
    found = {
        path.relative_to(package).as_posix()
        for path in package.glob("**/*.py")
        if any(word in path.read_text() for word in words)
    }
    assert {name for name in found if not name.startswith("commands/")} == {"_runtime/threads.py"}
