"""Ctrl-C while decoders are loaded, again and again, and in two processes; `test_process_ends.py` has the states."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.loader.programs import IMPORTING, Program, run

# --- Ctrl-C while decoders are loaded --------------------------------------------------------------------------------


@pytest.mark.cpu_only
def test_ctrl_c_while_the_decoders_are_imported():
    program = Program("""
class SlowDisk:
    def find_spec(self, name, path=None, target=None):
        if name == "nvidia.nvimgcodec":
            ready()
            wait_for_ctrl_c()

sys.meta_path.insert(0, SlowDisk())
next(iter(Loader(Memory(40), batch_size=8, threads=2)))
""")
    program.interrupt()
    ended = program.ends()
    assert ended.code == -signal.SIGINT and ended.last_line == "KeyboardInterrupt", ended.err


@pytest.mark.cpu_only
def test_ctrl_c_does_not_interrupt_the_import_of_the_decoders():
    """Interrupted in their initialization, they could not be imported again in this process."""
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
def test_cpu_decoders_load_again_after_a_ctrl_c_during_their_loading():
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
print("nvidia.nvimgcodec" in sys.modules)  # the GPU's decoders are not imported
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
def test_stderr_arrives_while_another_thread_imports_the_decoders(last, line):
    ended = Program(f"{IMPORTING['cuda']}\nimport subprocess\nready()\n{last}").ends()
    assert ended.last_line == line, ended


# --- Ctrl-C again and again ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("anew", [False, True], ids=["one loader", "new loaders"])
def test_a_loader_works_after_many_ctrl_c_at_any_moment(anew):
    """A notebook's "interrupt": the loader goes on, and an epoch after it is exact.

    Python prints and drops a Ctrl-C that arrives in a finalizer, so it is pressed again if it does not arrive. New
    loaders are interrupted while they start their threads.
    """
    assert run(f"""
def new_loader():
    return Loader(Memory(200), batch_size=1, threads=3, shuffle=True)

def settles(*numbers_of_threads):
    end = time.monotonic() + 600
    while time.monotonic() < end:
        gc.collect()
        # Python 3.11 counts a thread for ever that a Ctrl-C kept from starting: it is not alive.
        own = [t for t in threading.enumerate() if t.name.startswith("cuaug") and t.is_alive()]
        if len(own) in numbers_of_threads:
            return True
        time.sleep(0.01)
    return False

loader = new_loader()
list(loader)
dropped, presses, caught = 0, 120, 0
sys.unraisablehook = lambda event: None
begun, arrived, rng = threading.Event(), threading.Event(), random.Random(0)

def press():
    global dropped
    for k in range(presses):
        begun.wait()
        begun.clear()
        time.sleep(0.005 * rng.random())
        os.kill(os.getpid(), signal.SIGINT)
        while not arrived.wait(5):
            dropped += 1
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

print(dropped <= presses // 10 or dropped)
loader.set_epoch(0)
print(sorted(n for images, _ in loader for n in numbers_of(images)) == list(range(200)))
own = 3 + (loader.device.type == "cuda")  # the producer
print(settles(own, own + 1))  # one more where a Ctrl-C came right after the start of a thread
loader.close()
print(settles(0))
""").split() == ["True", "True", "True", "True"]


@pytest.mark.slow
def test_ctrl_c_ends_a_parent_and_its_child():
    """A terminal sends it to both; each has a loader of its own."""
    program = Program("""
import multiprocessing
loader = Loader(Memory(4000), batch_size=8, threads=2)
next(iter(loader))

def child():
    for images, labels in Loader(Memory(4000), batch_size=8, threads=2):
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
