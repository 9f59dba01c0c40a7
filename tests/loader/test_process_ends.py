"""However a program ends, it ends within 5 seconds, with its own exit code and one traceback.

One matrix: event x state of the loader x device (the fixture `loaders_device`).
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.support.loader.programs import ROOT, Program

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
source = WatchedSource(4000, lambda index: time.sleep(600 if index > 20 else 0))
for images, labels in Loader(source, batch_size=8, threads=4):
    event()
""",
    "waiting for a slow read": """
source = WatchedSource(4000, lambda index: time.sleep(0.3 if index > 7 else 0))
for images, labels in Loader(source, batch_size=8, threads=4):
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
begun = threading.Semaphore(0)
for _ in range(3):
    source = WatchedSource(10, lambda index: (begun.release(), time.sleep(600)))
    threading.Thread(target=list, args=[Loader(source, threads=3)], daemon=True).start()
for _ in range(9):
    begun.acquire()
event()
wait_for_ctrl_c()
""",
}


# A daemon thread that has batches while the main thread ends.
_DAEMON = """
begun = threading.Event()

def iterate():
    for images, labels in Loader(Memory(10 ** 6, slow=0.02), batch_size=8, threads=2):
        begun.set()
        {body}

threading.Thread(target=iterate, daemon=True).start()
begun.wait()
event()
wait_for_ctrl_c()
"""
STATES |= {
    "a daemon thread iterates": _DAEMON.format(body="pass"),
    "a daemon thread holds a batch for ever": _DAEMON.format(body="threading.Event().wait()"),
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

# A code other than 0 leaves by the same way as 0: the states whose threads run until the end.
WITH_CODE = ("busy", "a read is stuck", "a daemon thread iterates")

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
        for state in {"exit": STATES | LATE, "exit code": WITH_CODE}.get(event, STATES)
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
def test_exit_during_a_decode():
    """The exit waits for the image: the decoder crashes while its library is torn down."""
    ended = Program("""
from tests.support.loader.further_pictures import Bytes, png, slow_to_decode

loader = Loader(Bytes(png(0), slow_to_decode(100)), T.Resize((8, 8)), threads=1, prefetch=1)
batches, deadline = iter(loader), time.monotonic() + 600
next(batches)
while not any(clock.activity == "decoding" for clock in loader._pipeline.workers.activities()):
    assert time.monotonic() < deadline, f"the decode was not seen: {loader.stats()}"
    time.sleep(0.001)
ready()
sys.exit(7)
""").ends(within=float("inf"))
    assert ended.code == 7 and ended.err == "", ended.err


# --- threads of other libraries --------------------------------------------------------------------------------------

# A thread takes the GIL in a destructor while Python exits, as one of PyTorch's does, and holds a mutex that the end of
# the process needs. Before Python 3.14, Python ends the thread there, and C++ aborts the process.
_FOREIGN_THREAD = r"""
#include <dlfcn.h>
#include <unistd.h>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

static std::mutex mutex;
static std::atomic<bool> has_begun{false};

struct TakesGil {
    ~TakesGil() { reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"))(); }
};

extern "C" void begin() {
    std::atexit([] { mutex.lock(); });
    std::thread([] {
        const std::lock_guard<std::mutex> lock(mutex);
        has_begun = true;
        const auto is_finalizing = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "_Py_IsFinalizing"));
        while (!is_finalizing()) usleep(100);
        TakesGil{};
    }).detach();
    while (!has_begun) usleep(100);
}
"""


@pytest.mark.cpu_only
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python has another name for it, or stops the thread itself")
def test_a_foreign_thread_ends_as_without_cuaug(tmp_path):
    """PyTorch's abort stays an abort. If the thread stayed, with its mutex, the process would never end."""
    library = tmp_path / "foreign.so"
    command = ["g++", "-std=c++17", "-shared", "-fPIC", "-pthread", "-x", "c++", "-", "-o", str(library)]
    subprocess.run(command, input=_FOREIGN_THREAD, text=True, check=True)
    program = f"""
import ctypes
{_SLOW_EXIT.format(seconds=0.2)}
foreign = ctypes.CDLL({str(library)!r})
foreign.begin()
ready()
"""
    plain = Program(program).ends()
    ended = Program("list(Loader(Memory(40), batch_size=8, threads=2))" + program).ends()
    assert ended.code == plain.code == -signal.SIGABRT, ended.err


@pytest.mark.long
@pytest.mark.cpu_only
def test_ranks_that_do_not_leave_their_process_group_end(tmp_path):
    """PyTorch itself aborts a few of such processes. None may hang: a hanging rank keeps its GPU."""
    script = tmp_path / "train.py"
    script.write_text(f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import torch.distributed
torch.distributed.init_process_group("gloo", init_method=f"file://{{sys.argv[1]}}", rank=int(sys.argv[2]), world_size=2)
from cuaug import Loader
from tests.support.loader.further_pictures import Memory
for images, labels in Loader(Memory(64), batch_size=8, threads=2):
    torch.distributed.all_reduce(labels)
""")
    for turn in range(15):
        command = [sys.executable, str(script), str(tmp_path / f"store{turn}")]
        ranks = [subprocess.Popen([*command, str(rank)], stderr=subprocess.PIPE) for rank in range(2)]
        for rank in ranks:
            _, errors = rank.communicate(timeout=600)  # it takes seconds
            is_abort = rank.returncode == -signal.SIGABRT and b"terminate called" in errors
            assert rank.returncode == 0 or is_abort, errors
