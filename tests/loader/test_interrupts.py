"""Ctrl-C: none is lost, the process ends within 5 seconds with one traceback, and a loader that goes on is whole."""

from __future__ import annotations

import os
import signal

import pytest

from tests.loader.programs import IMPORTING, Program, run

# What the program is at when the key is pressed: it reads, decodes and yields; a read hangs; it waits for a batch; it
# is in the consumer's code, in Python or asleep.
SITUATIONS = {
    "busy": """
for step, batch in enumerate(Loader(Memory(60000), batch_size=8, threads=4)):
    if step == 20:
        ready()
""",
    "stuck in a source": """
class Stuck(Memory):
    def read(self, index):
        if index > 20:
            time.sleep(600)
        return super().read(index)

for images, labels in Loader(Stuck(4000), batch_size=8, threads=4):
    ready()
""",
    "every thread of three loaders stuck": """
class Stuck(Memory):
    def read(self, index):
        time.sleep(600)

ready()
threads = [threading.Thread(target=list, args=[Loader(Stuck(10), threads=3)], daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
threads[0].join()
""",
    "waiting": """
class Slow(Memory):
    def read(self, index):
        time.sleep(0.2 if index >= 8 else 0)
        return super().read(index)

for images, labels in Loader(Slow(4000), batch_size=8, threads=2):
    ready()
""",
    "in the consumer's code": """
for images, labels in Loader(Memory(4000), batch_size=8, threads=4):
    ready()
    while True:
        sum(range(1000))
""",
    "while the consumer sleeps": """
for images, labels in Loader(Memory(4000), batch_size=8, threads=4):
    ready()
    time.sleep(600)
""",
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_ctrl_c(situation):
    program = Program(SITUATIONS[situation])
    program.interrupt(after_seconds=0.3)
    ended = program.ends()
    assert ended.code == -signal.SIGINT and ended.last_line == "KeyboardInterrupt", ended.err
    assert ended.err.count("Traceback") == 1 and "Exception ignored" not in ended.err, ended.err


@pytest.mark.cpu_only
def test_ctrl_c_while_the_decoders_are_imported():
    """The traceback is seen."""
    program = Program("""
class SlowDisk:
    def find_spec(self, name, path=None, target=None):
        if name == "nvidia.nvimgcodec":
            ready()
            time.sleep(600)

sys.meta_path.insert(0, SlowDisk())
next(iter(Loader(Memory(40), batch_size=8, threads=2)))
""")
    program.interrupt(after_seconds=0.3)  # when it sleeps: a signal right before a sleep begins does not cut it short
    ended = program.ends()
    assert ended.code == -signal.SIGINT and ended.last_line == "KeyboardInterrupt", ended.err


@pytest.mark.cpu_only
def test_ctrl_c_does_not_break_off_the_import_of_the_decoders():
    """Broken off in their initialisation, they could not be imported again: a notebook had to be started anew."""
    assert run("""
from cuaug.codec import nv

imports = []

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "nvidia.nvimgcodec":
            imports.append(name)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)

sys.meta_path.insert(0, Interrupted())
try:
    nv()
except KeyboardInterrupt:
    print("arrived")
print(nv().__name__, imports)
""").splitlines() == ["arrived", "nvidia.nvimgcodec ['nvidia.nvimgcodec']"]


@pytest.mark.cpu_only
def test_after_a_ctrl_c_while_the_decoders_of_the_cpu_are_loaded_they_are_loaded_anew():
    assert run("""
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "nvidia.nvimgcodec":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
loader = Loader(Memory(8), batch_size=8, threads=2)
try:
    next(iter(loader))
except KeyboardInterrupt:
    print("arrived")
print(numbers_of(next(iter(loader)).images) == list(range(8)))
print("nvidia.nvimgcodec" in sys.modules)  # nothing for GPUs was imported
""").splitlines() == ["arrived", "True", "False"]


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    ("last", "line"),
    [
        ("raise ValueError('the real error')", "ValueError: the real error"),
        ("signal.raise_signal(signal.SIGINT)", "KeyboardInterrupt"),
        ("subprocess.run([sys.executable, '-c', 'import sys; print(3, file=sys.stderr)'])", "3"),
    ],
)
def test_the_standard_error_while_another_thread_imports_the_decoders(last, line):
    ended = Program(f"{IMPORTING['cuda']}\nimport subprocess\nready()\n{last}").ends()
    assert ended.last_line == line, ended


@pytest.mark.slow
@pytest.mark.parametrize("anew", [False, True], ids=["one loader", "new loaders"])
def test_no_ctrl_c_is_lost_and_the_loader_goes_on(anew):
    """A notebook's "interrupt", again and again at any moment: each arrives, and then an epoch is exact.

    In a finaliser, which Python runs wherever an object is let go, it would be printed and forgotten. New loaders are
    interrupted while they start their threads. Where Python's own `Thread.start` is, that may end the new thread before
    it runs, with a KeyError for which nobody waits; another one is started in its place.
    """
    assert run(f"""
def new_loader():
    return Loader(Memory(200), batch_size=1, threads=3, shuffle=True)

def settles(*numbers_of_threads):
    end = time.monotonic() + 10
    while time.monotonic() < end:
        gc.collect()
        # Not alive is one that a Ctrl-C kept from starting: Python 3.11 counts it for ever.
        own = [t for t in threading.enumerate() if t.name.startswith("cuaug") and t.is_alive()]
        if len(own) in numbers_of_threads:
            return True
        time.sleep(0.01)
    return False

loader = new_loader()
list(loader)
lost, presses, caught = [], 120, 0

def forgotten(event):
    if event.exc_type is not KeyError or "_bootstrap" not in repr(event.object):
        lost.append(f"{{event.exc_type.__name__}} in {{event.object!r}}")

sys.unraisablehook = forgotten
begun, arrived, rng = threading.Event(), threading.Event(), random.Random(0)

def press():
    for k in range(presses):
        begun.wait()
        begun.clear()
        time.sleep(0.005 * rng.random())
        os.kill(os.getpid(), signal.SIGINT)
        while not arrived.wait(5):
            lost.append(f"number {{k}}")
            os.kill(os.getpid(), signal.SIGINT)
        arrived.clear()

threading.Thread(target=press, daemon=True).start()
while caught < presses:
    try:
        begun.set()
        while True:
            if {anew}:
                loader = new_loader()
            for images, labels in loader:
                pass
    except KeyboardInterrupt:
        caught += 1
        arrived.set()

print(lost)
loader.set_epoch(0)
print(sorted(n for images, _ in loader for n in numbers_of(images)) == list(range(200)))
own = 3 + (loader.device.type == "cuda")  # the producer
print(settles(own, own + 1))  # one more where a Ctrl-C came right after the start of a thread
loader.close()
print(settles(0))
""").split() == ["[]", "True", "True", "True"]


@pytest.mark.slow
@pytest.mark.cpu_only
@pytest.mark.parametrize("kind", ["ForkSafeLock", "ForkWaitsLock"])
def test_no_ctrl_c_leaves_a_lock_taken(kind):
    """One that comes between taking it and going into the block would: the next to ask for it waits for ever."""
    assert run(f"""
from cuaug import forks

class Rang(Exception):
    pass

def ring(*_):
    raise Rang

signal.signal(signal.SIGALRM, ring)
def ask():
    if lock._lock.acquire(timeout=0):
        free.append(True)
        lock._lock.release()

lock, free, rings, rng = forks.{kind}(), [], 0, random.Random(0)
while rings == len(free) < 3000:
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-5 + 1e-4 * rng.random())
        while True:
            with lock:
                pass
    except Rang:
        rings += 1
    asks = threading.Thread(target=ask)
    asks.start()
    asks.join()
print(len(free))
""").split() == ["3000"]


@pytest.mark.slow
def test_ctrl_c_reaches_children_and_parent():
    """The terminal sends it to all: a forked child that iterates ends as well, and none waits for the other."""
    program = Program("""
import multiprocessing
loader = Loader(Memory(4000), batch_size=8, threads=2)
next(iter(loader))

def child():
    for images, labels in loader:
        if labels[0] == 0:
            print(os.getpid(), flush=True)

ready()
multiprocessing.get_context("fork").Process(target=child).start()
for images, labels in loader:
    time.sleep(0.01)
""")
    os.kill(int(program.line()), signal.SIGINT)
    program.interrupt()
    ended = program.ends()
    assert ended.code == -signal.SIGINT and ended.err.splitlines().count("KeyboardInterrupt") == 2, ended.err
