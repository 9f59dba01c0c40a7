"""Forked children, pickling, and resources that are left behind."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cuaug import Batch, DecodeError, Loader, sources
from cuaug import transforms as T
from cuaug.codec import EncodedImage
from cuaug.pipeline.job import Job
from tests.loader.test_reproducible import training_chain
from tests.support.codec.encoded_images import encode
from tests.support.loader.further_pictures import Bytes, Memory, epoch_of, png, write_photos
from tests.support.loader.programs import IMPORTING, run

# --- forked children -------------------------------------------------------------------------------------------------

# A child's use of its parent's loader, and of its own: True for each line that is as promised.
CHILD = """
def refuses(function, *arguments):
    try:
        function(*arguments)
    except LoaderError as error:
        return "belongs to another process" in str(error)

def use(loader, under_way, kept):
    signal.alarm(100)
    yield refuses(next, iter(loader))
    yield refuses(list, loader)
    yield refuses(next, under_way)
    yield numbers_of(kept.images) == [0, 1, 2, 3]
    yield loader.stats().batches > 0 and loader.state_dict()["epoch"] == 0
    loader.close()
    yield refuses(next, iter(loader))
    with Loader(loader.source, batch_size=4, threads=2) as own:
        yield [n for images, _ in own for n in numbers_of(images)] == list(range(400))

def child(loader, under_way, kept):
    results = list(use(loader, under_way, kept))
    return 5 if results == [True] * 7 else results.index(False) + 10
"""


@pytest.mark.slow
@pytest.mark.cpu_only
@pytest.mark.parametrize("end", ["sys.exit(code)", "os._exit(code)"])
def test_a_forked_child_is_refused_its_parents_loader_and_may_make_its_own(end):
    """Forked with batches under way and one in hand. The child's end does not disturb the parent."""
    assert run(f"""{CHILD}
loader = Loader(Memory(400), batch_size=4, threads=3)
batches = iter(loader)
kept = next(batches)
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        code = child(loader, batches, kept)
        {end}
    assert next(batches).epoch == 0
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)  # else the next child prints it, too
print(sum(len(labels) for _, labels in batches), sum(len(labels) for _, labels in loader))
""").split() == ["5", "5", "388", "400"]


@pytest.mark.cpu_only
def test_locks_are_free_in_a_forked_child():
    """Other threads held them at the fork."""
    output = run(f"""{CHILD}
loader = Loader(Memory(400), batch_size=4, threads=3)
batches = iter(loader)
kept = next(batches)
held, release = threading.Event(), threading.Event()

def hold():
    with loader._recorder._lock, loader._pipeline.workers._lock, loader._pipeline.buffer_pool._lock:
        held.set()
        release.wait()

threading.Thread(target=hold).start()
held.wait()
pid = os.fork()
if pid == 0:
    os._exit(child(loader, batches, kept))
release.set()
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(list(batches)))
""")
    assert output == "5 99\n"


@pytest.mark.cpu_only
@pytest.mark.parametrize("decoders", IMPORTING)
def test_a_fork_waits_for_a_thread_that_imports_the_decoders(decoders):
    """Else the child would wait for that import for ever."""
    output = run(f"""{IMPORTING[decoders]}
child = os.fork()
if child == 0:
    signal.alarm(100)
    complete = [n for images, _ in Loader(Memory(40), batch_size=4, threads=2) for n in numbers_of(images)]
    os._exit(0 if complete == list(range(40)) and nv().__version__ else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert output == "0\n"


# --- spawned workers, pickling ---------------------------------------------------------------------------------------


def shuffled_epoch(source: Any, chain: Any) -> list[Batch]:
    return epoch_of(source, chain, batch_size=5, shuffle=True, seed=3, threads=2, device="cpu")


def pickled_epoch_of(source: Any, chain: Any) -> bytes:
    """Pickled here: torch would pass tensors in shared memory."""
    return pickle.dumps(shuffled_epoch(source, chain))


def assert_equal(actual: list[Batch], expected: list[Batch]) -> None:
    assert len(actual) == len(expected)
    for batch, other in zip(actual, expected, strict=True):
        assert type(batch) is Batch and batch.epoch == other.epoch
        for name in ("images", "labels", "indices", "valid"):
            assert getattr(batch, name).equal(getattr(other, name)), name


@pytest.mark.slow
@pytest.mark.cpu_only
def test_transforms_sources_and_batches_pickle_to_a_spawned_worker_and_back(tmp_path):
    """Pixels are equal in both processes."""
    paths = write_photos(tmp_path, 12)
    (tmp_path / "list.txt").write_text("".join(f"{Path(path).name} {i}\n" for i, path in enumerate(paths)))
    for source in (Memory(12), sources.Files(paths), sources.ListFile(tmp_path / "list.txt")):
        assert_equal(
            shuffled_epoch(pickle.loads(pickle.dumps(source)), training_chain()),
            shuffled_epoch(source, training_chain()),
        )
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        want = shuffled_epoch(sources.Files(paths), training_chain())
        assert_equal(pickle.loads(pool.submit(pickled_epoch_of, sources.Files(paths), training_chain()).result()), want)
        assert_equal(pool.submit(shuffled_epoch, sources.Files(paths), training_chain()).result(), want)


def test_a_loader_does_not_pickle():
    with Loader(Memory(3)) as loader:
        for dumps in (pickle.dumps, ForkingPickler.dumps):
            with pytest.raises(TypeError, match="make it in the process that iterates over it"):
                dumps(loader)


# --- resources after the end -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_is_left_behind(tmp_path):
    """Threads, file descriptors, mapped and temporary files, shared memory, after each kind of end five times."""
    (tmp_path / "temporary").mkdir()
    output = run(f"""
import logging, tempfile
from pathlib import Path
import psutil
from tests.support.loader.further_pictures import write_photos

logging.disable()
paths = write_photos(Path({str(tmp_path)!r}), 24)
tempfile.tempdir = {str(tmp_path / "temporary")!r}

class Stop(Exception):
    pass

class Raising(T.Transform):
    def write(self, plan, where, **params):
        raise Stop

class Source(Memory):
    def read(self, index):
        if index > 20:
            raise Stop
        return super().read(index)

def stop(*_):
    raise Stop

def loader(files=paths, chain=T.CenterCrop(32), **options):
    return Loader(files, chain, batch_size=4, threads=2, **options)

def whole():
    with loader() as whole_epoch:
        list(whole_epoch)

def broken_off():
    for batch in loader():
        break

def closed_early():
    closed = loader()
    batches = iter(closed)
    next(batches)
    closed.close()

def two_at_once():
    shared = loader(shuffle=True)
    for pair in zip(shared, shared):
        pass
    next(iter(shared))

def raising(kind=Stop, **options):
    try:
        list(loader(**options))
    except kind:
        return
    raise AssertionError

def interrupted():
    try:
        for k, batch in enumerate(loader()):
            if k == 2:
                signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return
    raise AssertionError

def forked():
    parent = loader()
    batches = iter(parent)
    next(batches)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)

def every_end():
    whole(), broken_off(), closed_early(), two_at_once(), interrupted()
    if is_cpu:
        forked()
    raising(chain=Raising())
    raising(files=Source(40))
    raising(collate_fn=stop)
    raising(files=Memory(40, damaged=[13]), chain=(), on_error="skip", error_callback=stop)
    raising(files=Memory(40, damaged=[13]), chain=(), kind=ValueError)

def left():
    gc.collect()
    here = psutil.Process()
    files = [os.path.realpath(f"/proc/self/fd/{{file}}") for file in os.listdir("/proc/self/fd") if int(file) > 2]
    maps = [m.path for m in here.memory_maps() if m.path.startswith("/")]
    shared = [path for path in files + maps if "/dev/shm" in path or "memfd" in path]
    return here.num_fds(), here.num_threads(), threading.active_count(), sorted(maps), shared, here.children()

def at_rest():
    now = None
    while now != (now := left()):
        time.sleep(0.5)
    return now

def settled(want):
    end = time.monotonic() + 600
    while (now := left()) != want and time.monotonic() < end:
        time.sleep(0.05)
    return now

is_cpu = loader().device.type == "cpu"
every_end()
before = at_rest()
for _ in range(5):
    every_end()
after = settled(before)
print(after == before or (before, after), after[4], os.listdir(tempfile.tempdir))
""")
    assert output == "True [] []\n"


def held() -> list[Any]:
    """Every job, encoded image and PIL image in this process."""
    gc.collect()
    return [found for found in gc.get_objects() if issubclass(type(found), (Job, EncodedImage, Image.Image))]


def test_a_kept_error_keeps_no_image():
    """The frames of its traceback would keep the whole batch alive."""
    complete = encode(Image.new("RGB", (2000, 2000)), "JPEG")
    truncated = complete[: len(complete) * 3 // 4]
    errors: list[DecodeError] = []
    before = held()  # kept, so that no new object gets the id of an old one
    options = {"batch_size": 2, "threads": 2, "on_error": "skip", "error_callback": errors.append}
    with Loader(Bytes(complete, truncated, truncated, complete), T.Resize((8, 8)), **options) as loader:
        assert [labels.tolist() for _, labels in loader] == [[0], [3]]
    assert [error.index for error in errors] == [1, 2] and "truncated" in str(errors[0].__cause__)
    assert [found for found in held() if not any(found is old for old in before)] == []


def test_a_kept_error_with_a_context_keeps_no_batch():
    """`raise ... from` inside `except` keeps the handled exception too, with its frames."""

    class Fails(Bytes):
        def read(self, index):
            try:
                return super().read(index + 1)
            except IndexError:
                raise OSError("the last one is not there") from KeyError(index)

    errors: list[DecodeError] = []
    before = held()
    with Loader(Fails(png(0), png(1)), on_error="skip", error_callback=errors.append) as loader:
        assert [len(images) for images, _ in loader] == [1, 0]
    assert [error.index for error in errors] == [1]
    assert [found for found in held() if not any(found is old for old in before)] == []
