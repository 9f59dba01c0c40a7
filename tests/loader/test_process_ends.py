"""However a program ends, it ends within 5 seconds, with its own exit code and one traceback.

One matrix: event x state of the loader x device (the fixture `loaders_device`).
"""

from __future__ import annotations

import signal

import pytest

from tests.support.loader.programs import Program

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
    wait_for_ctrl_c()
""",
    "after a break": """
for images, labels in Loader(Memory(4000), batch_size=8, threads=4):
    break
event()
wait_for_ctrl_c()
""",
    "iterators of several loaders": """
batches = [iter(Loader(Memory(4000), batch_size=8, threads=2)) for _ in range(5)]
for _ in range(3):
    for iterator in batches:
        next(iterator)
event()
wait_for_ctrl_c()
""",
    "JPEG crops are decoded": """
from tests.support.loader.further_pictures import Bytes, noisy_jpeg

markers = {"restart_marker_blocks": 4} if os.environ["CUAUG_DEVICE"] == "cuda" else {}  # a GPU needs them for crops
files = [noisy_jpeg(300, 400 + i, **markers) for i in range(40)]
loader = Loader(Bytes(*files), T.RandomCrop(48), batch_size=8, threads=4)
list(loader)
batches = iter(loader)
next(batches)
assert loader.stats().parts >= 8
event()
wait_for_ctrl_c()
""",
    "inside a function": """
def train():
    loader = Loader(Memory(4000), batch_size=8, threads=4)
    for images, labels in loader:
        event()
        wait_for_ctrl_c()

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
wait_for_ctrl_c()
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
wait_for_ctrl_c()
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
wait_for_ctrl_c()
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

    Both crash. The JPEG takes seconds because of its many passes, and the wait is shortened.
    """
    ended = Program(f"""{_SLOW_EXIT.format(seconds=seconds)}
from cuaug.pipeline import thread_pool
from tests.support.loader.further_pictures import Bytes, png, slow_to_decode

thread_pool._CLOSE_SECONDS = 0.1
loader = Loader(Bytes(png(0), slow_to_decode(300 if {seconds} else 400)), T.Resize((8, 8)), threads=1, prefetch=1)
batches, deadline = iter(loader), time.monotonic() + 60
next(batches)
while not any(clock.activity == "decoding" for clock in loader._pipeline.workers.activities()):
    assert time.monotonic() < deadline, f"the decode was not seen: {{loader.stats()}}"
    time.sleep(0.001)
time.sleep(0.05)
ready()
sys.exit(7)
""").ends()
    assert ended.code == 7, ended.err
