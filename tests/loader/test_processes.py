"""Children are on their own, loaders and their parts pickle or say why not, and nothing is left behind."""

from __future__ import annotations

import gc
import io
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
from tests.loader.pictures import Bytes, Memory, write_photos
from tests.loader.programs import IMPORTING, run
from tests.loader.test_reproducible import training_chain

# --- children --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.cpu_only
@pytest.mark.parametrize("end", ["sys.exit(code)", "os._exit(code)"])
def test_a_fork_uses_the_loader_anew_and_its_end_disturbs_nobody(end):
    """Forked with batches under way and with one in hand, which the child can read as well."""
    assert run(f"""
loader = Loader(Memory(400), batch_size=4, threads=3)
batches = iter(loader)
kept = next(batches)
for _ in range(2):
    child = os.fork()
    if child == 0:
        whole = [n for images, _ in loader for n in numbers_of(images)] == list(range(400))
        code = 5 if whole and numbers_of(kept.images) == [0, 1, 2, 3] else 6
        loader.close()
        {end}
    assert next(batches).epoch == 0
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)  # else the next child prints it, too
print(sum(len(labels) for _, labels in batches), sum(len(labels) for _, labels in loader))
""").split() == ["5", "5", "388", "400"]


@pytest.mark.slow
@pytest.mark.cpu_only
def test_forked_processes_of_multiprocessing():
    assert (
        run("""
import multiprocessing
loader = Loader(Memory(40), batch_size=4, threads=2)
batches = iter(loader)
next(batches)

def child():
    sys.exit(0 if [n for images, _ in loader for n in numbers_of(images)] == list(range(40)) else 3)

processes = [multiprocessing.get_context("fork").Process(target=child) for _ in range(3)]
for process in processes:
    process.start()
for process in processes:
    process.join()
print([process.exitcode for process in processes], len(list(batches)), len(list(loader)))
""")
        == "[0, 0, 0] 9 10\n"
    )


@pytest.mark.cpu_only
@pytest.mark.parametrize("decoders", IMPORTING)
def test_a_fork_beside_a_thread_that_imports_the_decoders(decoders):
    """It waits: in the child nobody would go on with that import, and Python would wait for it for ever."""
    assert (
        run(f"""{IMPORTING[decoders]}
child = os.fork()
if child == 0:
    signal.alarm(30)
    whole = [n for images, _ in Loader(Memory(40), batch_size=4, threads=2) for n in numbers_of(images)]
    os._exit(0 if whole == list(range(40)) and nv().__version__ else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
        == "0\n"
    )


@pytest.mark.cpu_only
def test_an_iteration_that_began_before_a_fork_says_so():
    """Also where the fork met another thread that was just adding a task: there it has that thread's lock."""
    assert (
        run("""
loader = Loader(Memory(400), batch_size=4, threads=3)
batches = iter(loader)
next(batches)
held, let_go = threading.Event(), threading.Event()

def hold():
    with loader._pipeline.workers._lock:
        held.set()
        let_go.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    try:
        next(batches)
    except LoaderError as error:
        os._exit(0 if "before the process was forked" in str(error) else 3)
let_go.set()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
        == "0\n"
    )


def epoch_of(source: Any, chain: Any) -> list[Batch]:
    with Loader(source, chain, batch_size=5, shuffle=True, seed=3, threads=2, device="cpu") as loader:
        return list(loader)


def pickled_epoch_of(source: Any, chain: Any) -> bytes:
    """As they are, rather than handed over in shared memory as torch has it."""
    return pickle.dumps(epoch_of(source, chain))


def assert_equal(got: list[Batch], want: list[Batch]) -> None:
    assert len(got) == len(want)
    for mine, other in zip(got, want, strict=True):
        assert type(mine) is Batch and mine.epoch == other.epoch
        for name in ("images", "labels", "indices", "valid"):
            assert getattr(mine, name).equal(getattr(other, name)), name


@pytest.mark.slow
@pytest.mark.cpu_only
def test_transforms_sources_and_batches_go_to_a_spawned_worker_and_back(tmp_path):
    """What a loader is made of does, and gives equal pixels there."""
    paths = write_photos(tmp_path, 12)
    (tmp_path / "list.txt").write_text("".join(f"{Path(path).name} {i}\n" for i, path in enumerate(paths)))
    for source in (Memory(12), sources.Files(paths), sources.ListFile(tmp_path / "list.txt")):
        assert_equal(epoch_of(pickle.loads(pickle.dumps(source)), training_chain()), epoch_of(source, training_chain()))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        want = epoch_of(sources.Files(paths), training_chain())
        assert_equal(pickle.loads(pool.submit(pickled_epoch_of, sources.Files(paths), training_chain()).result()), want)
        assert_equal(pool.submit(epoch_of, sources.Files(paths), training_chain()).result(), want)


def test_a_loader_does_not_pickle_and_says_what_to_do():
    with Loader(Memory(3)) as loader:
        for dumps in (pickle.dumps, ForkingPickler.dumps):
            with pytest.raises(TypeError, match="make it in the process that iterates over it"):
                dumps(loader)


# --- what is left behind ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_is_left_behind(tmp_path):
    """Threads of Python and of libraries, descriptors, mapped files, shared memory and temporary files, after every
    kind of end five times over."""
    (tmp_path / "temporary").mkdir()
    assert (
        run(f"""
import logging, tempfile
from pathlib import Path
import psutil
from tests.loader.pictures import write_photos

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
    with loader() as mine:
        list(mine)

def broken_off():
    for batch in loader():
        break

def closed_early():
    mine = loader()
    batches = iter(mine)
    next(batches)
    mine.close()

def two_at_once():
    mine = loader(shuffle=True)
    for pair in zip(mine, mine):
        pass
    next(iter(mine))

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
    mine = loader()
    batches = iter(mine)
    next(batches)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)

def every_end():
    whole(), broken_off(), closed_early(), two_at_once(), interrupted()
    if mine_is_the_cpu:
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

def settled(want):
    end = time.monotonic() + 5
    while (now := left()) != want and time.monotonic() < end:
        time.sleep(0.05)
    return now

mine_is_the_cpu = loader().device.type == "cpu"
every_end()
time.sleep(0.5)
before = left()
for _ in range(5):
    every_end()
after = settled(before)
print(after == before or (before, after), after[4], os.listdir(tempfile.tempdir))
""")
        == "True [] []\n"
    )


def held() -> list[Any]:
    """Every job, header and picture in this process."""
    gc.collect()
    return [found for found in gc.get_objects() if issubclass(type(found), (Job, EncodedImage, Image.Image))]


def test_an_error_that_is_kept_keeps_no_picture():
    """The frames of its cause would, and the whole batch: a callback that collects errors would collect those."""
    out = io.BytesIO()
    Image.new("RGB", (2000, 2000)).save(out, "JPEG")
    whole = out.getvalue()
    cut = whole[: len(whole) * 3 // 4]
    errors: list[DecodeError] = []
    before = held()  # other tests' pictures, and they are kept so that no new one gets an old one's place
    options = {"batch_size": 2, "threads": 2, "on_error": "skip", "error_callback": errors.append}
    with Loader(Bytes(whole, cut, cut, whole), T.Resize((8, 8)), **options) as loader:
        assert [labels.tolist() for _, labels in loader] == [[0], [3]]
    assert [error.index for error in errors] == [1, 2] and "truncated" in str(errors[0].__cause__)
    assert [found for found in held() if not any(found is old for old in before)] == []


def test_an_error_with_a_context_beside_its_cause_keeps_no_batch():
    """An error that is raised from another keeps the one that was being handled, too, and its frames."""

    class Fails(Bytes):
        def read(self, index):
            try:
                return super().read(index + 1)
            except IndexError:
                raise OSError("the last one is not there") from KeyError(index)

    errors: list[DecodeError] = []
    before = held()
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    with Loader(Fails(picture.getvalue(), picture.getvalue()), on_error="skip", error_callback=errors.append) as loader:
        assert [len(images) for images, _ in loader] == [1, 0]
    assert [error.index for error in errors] == [1]
    assert [found for found in held() if not any(found is old for old in before)] == []
