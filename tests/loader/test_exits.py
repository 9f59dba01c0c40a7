"""However a program ends, it ends within 5 seconds with its own exit code and traceback."""

from __future__ import annotations

import pytest

from tests.loader.programs import Program

# --- an exception --------------------------------------------------------------------------------------------------

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
# Where the traceback leads: the frame that raised.
_FRAMES = {"source": "read", "transform": "write", "collate_fn": "collate", "error_callback": "callback"}


@pytest.mark.slow
@pytest.mark.parametrize("where", RAISING)
def test_an_exception_ends_the_process_with_its_traceback(where):
    ended = Program(RAISING[where]).ends()
    # A source's has a note behind it, which says of which sample.
    assert ended.code == 1 and f'KeyError: "the {where}\'s own"' in ended.err.splitlines()[-2:], ended.err
    frame = f", in {_FRAMES.get(where, where)}\n"
    assert ended.err.count(frame) == 1 and ended.err.index("Traceback") < ended.err.index(frame)
    assert ended.err.count("Traceback") == 1 and "Exception" not in ended.err, ended.err


# --- an exit without close() -----------------------------------------------------------------------------------------


def _in_a_daemon_thread(then: str) -> str:
    """A program that ends while a thread goes on with batches, each time it has one."""
    return f"""
begun = threading.Event()

def iterate():
    for images, labels in Loader(Memory(10 ** 6), batch_size=8, threads=2):
        begun.set()
        {then}

threading.Thread(target=iterate, daemon=True).start()
begun.wait()
ready()
"""


LEAVING = {
    "at the program's end, with batches under way": """
batches = iter(Loader(Memory(4000), batch_size=8, threads=4))
next(batches)
ready()
""",
    "while parts of files are cut out and decoded": """
from tests.loader.pictures import Bytes, noisy_jpeg

markers = {"restart_marker_blocks": 4} if os.environ["CUAUG_DEVICE"] == "cuda" else {}  # where a GPU's are cut
files = [noisy_jpeg(300, 400 + i, **markers) for i in range(40)]
loader = Loader(Bytes(*files), T.RandomCrop(48), batch_size=8, threads=4)
list(loader)
batches = iter(loader)
next(batches)
assert loader.stats().parts >= 8
ready()
""",
    "inside a function": """
def train():
    loader = Loader(Memory(4000), batch_size=8, threads=4)
    for images, labels in loader:
        ready()
        return sys.exit(0)

train()
""",
    "after a break": """
for images, labels in Loader(Memory(4000), batch_size=8, threads=4):
    break
ready()
""",
    "with iterators of several loaders alive": """
batches = [iter(Loader(Memory(4000), batch_size=8, threads=2)) for _ in range(5)]
for _ in range(3):
    for each in batches:
        next(each)
ready()
""",
    "while a source is stuck": """
class Stuck(Memory):
    def read(self, index):
        if index > 20:
            time.sleep(600)
        return super().read(index)

for images, labels in Loader(Stuck(4000), batch_size=8, threads=4):
    ready()
    break
""",
    "while a source is slow": """
class Slow(Memory):
    def read(self, index):
        time.sleep(0.5 if index > 7 else 0)
        return super().read(index)

for images, labels in Loader(Slow(4000), batch_size=8, threads=4):
    ready()
    break
""",
    "while a daemon thread iterates": _in_a_daemon_thread("pass"),
    # PyTorch's destructors let other threads run: a thread that is ended within one aborts the process.
    "while a daemon thread uses its batches": _in_a_daemon_thread("for _ in range(2000): images = images.clone()"),
    "while a daemon thread uses a batch for ever": _in_a_daemon_thread("while True: images = images.clone()"),
    "while a daemon thread uses a batch for ever after others of another loader": _in_a_daemon_thread("""
        list(Loader(Memory(8), batch_size=8, threads=2))
        while True: images = images.clone()
"""),
    "while a daemon thread holds a batch for ever": _in_a_daemon_thread("threading.Event().wait()"),
    "while a daemon thread makes loaders for ever": """
begun = threading.Event()

def iterate():
    while True:
        list(Loader(Memory(8), batch_size=8, threads=2))
        begun.set()

threading.Thread(target=iterate, daemon=True).start()
begun.wait()
ready()
""",
    # Since 3.12, Python has no thread started once the main thread has ended.
    "while a thread iterates to its end": """
begun = threading.Event()

def iterate():
    batches = iter(Loader(Memory(200), batch_size=8, threads=2))
    images, labels = next(batches)
    begun.set()
    print(len(labels) + sum(len(labels) for images, labels in batches))

threading.Thread(target=iterate).start()
begun.wait()
ready()
""",
    "in a function called at exit": """
loader = Loader(Memory(200), batch_size=8, threads=2)
next(iter(loader))
atexit.register(lambda: print(sum(len(labels) for images, labels in loader)))
ready()
""",
}


# The interpreter ends threads that return to it while it ends. This gives each of them the time to.
ENDING_SLOWLY = """
class Ending:
    def __del__(self, sleep=time.sleep):
        sleep({seconds})

ending = Ending()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", LEAVING)
def test_exit_without_close(how):
    ended = Program(ENDING_SLOWLY.format(seconds=0.2) + LEAVING[how]).ends()
    assert ended.code == 0 and ended.err == "", ended.err
    assert ended.out.replace("ready\n", "") in ("", "200\n")


def test_an_exit_code_survives():
    ended = Program("""
for images, labels in Loader(Memory(4000), batch_size=8, threads=4):
    ready()
    raise SystemExit(7)
""").ends()
    assert ended.code == 7 and ended.err == ""


@pytest.mark.slow
@pytest.mark.cpu_only
@pytest.mark.parametrize("seconds", [0, 2])
def test_exit_while_a_picture_is_decoded_that_takes_longer_than_the_exit_waits(seconds):
    """The decoder must not run on where its libraries are torn down, and must not be ended on its return to Python
    while the interpreter ends, for which it is given some seconds here: both crash. A picture that takes 2 s has 100
    megapixels; this one takes as long because of its many passes, and the wait is shortened."""
    ended = Program(f"""{ENDING_SLOWLY.format(seconds=seconds)}
from cuaug.pipeline import thread_pool
from tests.loader.pictures import Bytes, png, slow_to_decode

thread_pool._CLOSE_SECONDS = 0.1
loader = Loader(Bytes(png(0), slow_to_decode(100 if {seconds} else 200)), T.Resize((8, 8)), threads=1, prefetch=1)
batches = iter(loader)
next(batches)
while not any(activity.activity == "decoding" for activity in loader._pipeline.workers.activities()):
    pass
time.sleep(0.05)
ready()
sys.exit(7)
""").ends()
    assert ended.code == 7, ended.err
