"""However a program ends, it ends within 5 seconds, with its own exit code and one traceback.

One matrix: event x state of the loader x device (the fixture `loaders_device`).
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.loader.programs import IMPORTING, Program, run

# Bodies of `event()`, which each program of STATES calls once it is in its state.
EVENTS = {
    "exit": "ready(); sys.exit()",
    "exit code": "ready(); sys.exit(7)",
    "exception": "ready(); raise KeyError('the consumer')",
    "ctrl-c": "ready()",  # and the program goes on until the signal arrives
}

STATES = {
    "busy": """
for step, batch in enumerate(Loader(Memory(60000), batch_size=8, threads=4)):
    if step == 20:
        event()
""",
    "a read is stuck": """
class Stuck(Memory):
    def read(self, index):
        if index > 20:
            time.sleep(600)
        return super().read(index)

for images, labels in Loader(Stuck(4000), batch_size=8, threads=4):
    event()
""",
    "waiting for a slow read": """
class Slow(Memory):
    def read(self, index):
        time.sleep(0.3 if index > 7 else 0)
        return super().read(index)

for images, labels in Loader(Slow(4000), batch_size=8, threads=4):
    event()
""",
    "in the consumer's code": """
for images, labels in Loader(Memory(4000), batch_size=8, threads=4):
    event()
    while True:
        sum(range(1000))
""",
    "the consumer sleeps": """
for images, labels in Loader(Memory(4000), batch_size=8, threads=4):
    event()
    time.sleep(600)
""",
    "after a break": """
for images, labels in Loader(Memory(4000), batch_size=8, threads=4):
    break
event()
time.sleep(600)
""",
    "iterators of several loaders": """
batches = [iter(Loader(Memory(4000), batch_size=8, threads=2)) for _ in range(5)]
for _ in range(3):
    for iterator in batches:
        next(iterator)
event()
time.sleep(600)
""",
    "JPEG crops are decoded": """
from tests.loader.pictures import Bytes, noisy_jpeg

markers = {"restart_marker_blocks": 4} if os.environ["CUAUG_DEVICE"] == "cuda" else {}  # a GPU needs them for crops
files = [noisy_jpeg(300, 400 + i, **markers) for i in range(40)]
loader = Loader(Bytes(*files), T.RandomCrop(48), batch_size=8, threads=4)
list(loader)
batches = iter(loader)
next(batches)
assert loader.stats().parts >= 8
event()
time.sleep(600)
""",
    "inside a function": """
def train():
    loader = Loader(Memory(4000), batch_size=8, threads=4)
    for images, labels in loader:
        event()
        time.sleep(600)

train()
""",
    "all threads of three loaders are stuck": """
class Stuck(Memory):
    def read(self, index):
        begun.release()
        time.sleep(600)

begun = threading.Semaphore(0)
for _ in range(3):
    threading.Thread(target=list, args=[Loader(Stuck(10), threads=3)], daemon=True).start()
for _ in range(9):
    begun.acquire()
event()
time.sleep(600)
""",
}


# A daemon thread that has batches while the main thread ends. PyTorch's destructors release the GIL: the interpreter
# would abort the process if it ended a thread within one.
_DAEMON = """
begun = threading.Event()

def iterate():
    {before}
    for images, labels in Loader(Memory(10 ** 6), batch_size=8, threads=2):
        begun.set()
        {body}

threading.Thread(target=iterate, daemon=True).start()
begun.wait()
event()
time.sleep(600)
"""
_OTHER_LOADER = "list(Loader(Memory(8), batch_size=8, threads=2))"
STATES |= {
    "a daemon thread iterates": _DAEMON.format(before="", body="pass"),
    "a daemon thread uses its batches": _DAEMON.format(before="", body="for _ in range(2000): images = images.clone()"),
    "a daemon thread uses a batch for ever": _DAEMON.format(before="", body="while True: images = images.clone()"),
    "a daemon thread uses a batch for ever, after another loader's": _DAEMON.format(
        before=_OTHER_LOADER, body="while True: images = images.clone()"
    ),
    "a daemon thread holds a batch for ever": _DAEMON.format(before="", body="threading.Event().wait()"),
    "a daemon thread makes loaders for ever": f"""
begun = threading.Event()

def iterate():
    while True:
        {_OTHER_LOADER}
        begun.set()

threading.Thread(target=iterate, daemon=True).start()
begun.wait()
event()
time.sleep(600)
""",
}

# States of the interpreter's exit itself.
LATE = {
    # Python 3.12 starts no thread once the main thread has ended.
    "a thread iterates to its end": """
begun = threading.Event()

def iterate():
    batches = iter(Loader(Memory(200), batch_size=8, threads=2))
    images, labels = next(batches)
    begun.set()
    print(len(labels) + sum(len(labels) for images, labels in batches))

threading.Thread(target=iterate).start()
begun.wait()
event()
""",
    "a function called at exit iterates": """
loader = Loader(Memory(200), batch_size=8, threads=2)
next(iter(loader))
atexit.register(lambda: print(sum(len(labels) for images, labels in loader)))
event()
""",
}

# The interpreter ends threads that return to it during its exit. This gives them the time to return.
_SLOW_EXIT = """
class SlowExit:
    def __del__(self, sleep=time.sleep):
        sleep({seconds})

slow_exit = SlowExit()
"""


def program_of(event: str, state: str) -> str:
    setup = f"def event():\n    {EVENTS[event]}\n"
    return setup + (_SLOW_EXIT.format(seconds=0.2) if event == "exit" else "") + state


@pytest.mark.parametrize(
    ("event", "state"),
    [
        pytest.param(event, state, marks=[pytest.mark.slow] if event != "ctrl-c" or "daemon" in state else [])
        for event in EVENTS
        for state in (STATES | LATE if event == "exit" else STATES)
    ],
)
def test_a_program_ends(event, state):
    program = Program(program_of(event, (STATES | LATE)[state]))
    if event == "ctrl-c":
        program.interrupt(after_seconds=0.3)
    ended = program.ends()
    if event in ("exit", "exit code"):
        assert ended.code == (7 if event == "exit code" else 0) and ended.err == "", ended.err
        assert ended.out.replace("ready\n", "") == ("200\n" if state in LATE else "")
        return
    code, last_line = (1, "KeyError: 'the consumer'") if event == "exception" else (-signal.SIGINT, "KeyboardInterrupt")
    assert ended.code == code and ended.last_line == last_line, ended.err
    assert ended.err.count("Traceback") == 1 and "Exception ignored" not in ended.err, ended.err
    assert event == "ctrl-c" or ended.err.count(", in event\n") == 1, ended.err


# --- where an exception is raised ------------------------------------------------------------------------------------

RAISING = {
    "source": """
class Broken(Memory):
    def read(self, index):
        if index == 77:
            raise KeyError("the source's own")
        return super().read(index)

ready()
list(Loader(Broken(4000), batch_size=8, threads=4))
""",
    "transform": """
class Broken(T.Transform):
    def write(self, plan, where, **params):
        raise KeyError("the transform's own")

ready()
list(Loader(Memory(4000), Broken(), batch_size=8, threads=4))
""",
    "collate_fn": """
def collate(labels):
    if labels[0] == 80:
        raise KeyError("the collate_fn's own")
    return labels

ready()
list(Loader(Memory(4000), batch_size=8, threads=4, collate_fn=collate))
""",
    "error_callback": """
def callback(error):
    raise KeyError("the error_callback's own")

ready()
list(Loader(Memory(4000, damaged=[80]), batch_size=8, threads=4, on_error="skip", error_callback=callback))
""",
    "consumer": """
def consumer():
    for images, labels in Loader(Memory(4000), batch_size=8, threads=4):
        ready()
        raise KeyError("the consumer's own")

consumer()
""",
    "generator": """
def generator():
    with Loader(Memory(4000), batch_size=8, threads=4) as loader:
        yield from loader

batches = generator()
next(batches)
ready()
batches.throw(KeyError("the generator's own"))
""",
}
# The function that raises.
_FRAMES = {"source": "read", "transform": "write", "collate_fn": "collate", "error_callback": "callback"}


@pytest.mark.slow
@pytest.mark.parametrize("raised_by", RAISING)
def test_an_exception_ends_the_process_with_its_traceback(raised_by):
    ended = Program(RAISING[raised_by]).ends()
    # A source's exception has a note about the sample behind it.
    assert ended.code == 1 and f'KeyError: "the {raised_by}\'s own"' in ended.err.splitlines()[-2:], ended.err
    frame = f", in {_FRAMES.get(raised_by, raised_by)}\n"
    assert ended.err.count(frame) == 1 and ended.err.index("Traceback") < ended.err.index(frame)
    assert ended.err.count("Traceback") == 1 and "Exception" not in ended.err, ended.err


@pytest.mark.slow
@pytest.mark.cpu_only
@pytest.mark.parametrize("seconds", [0, 2])
def test_exit_during_a_decode_that_outlasts_the_wait(seconds):
    """The decoder must neither run while its libraries are torn down nor be ended on its return to Python.

    Both crash. The JPEG takes about 2 s because of its many passes, and the wait is shortened.
    """
    ended = Program(f"""{_SLOW_EXIT.format(seconds=seconds)}
from cuaug.pipeline import thread_pool
from tests.loader.pictures import Bytes, png, slow_to_decode

thread_pool._PATIENCE_SECONDS = 0.1
loader = Loader(Bytes(png(0), slow_to_decode(100 if {seconds} else 200)), T.Resize((8, 8)), threads=1, prefetch=1)
batches = iter(loader)
next(batches)
while not any(activity.doing == "decoding" for activity in loader._pipeline.workers.activities()):
    pass
time.sleep(0.05)
ready()
sys.exit(7)
""").ends()
    assert ended.code == 7, ended.err


# --- Ctrl-C while decoders are loaded --------------------------------------------------------------------------------


@pytest.mark.cpu_only
def test_ctrl_c_while_the_decoders_are_imported():
    program = Program("""
class SlowDisk:
    def find_spec(self, name, path=None, target=None):
        if name == "nvidia.nvimgcodec":
            ready()
            time.sleep(600)

sys.meta_path.insert(0, SlowDisk())
next(iter(Loader(Memory(40), batch_size=8, threads=2)))
""")
    program.interrupt(after_seconds=0.3)  # once it sleeps: a signal right before a sleep does not end the sleep
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
    end = time.monotonic() + 10
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
        while not arrived.wait(1):
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
