"""A loader's index of the JPEGs that come again: parts of them are decoded, and nobody sees a difference."""

from __future__ import annotations

import functools
import gc
import itertools
import time
import weakref

import pytest
from PIL import Image

from cuaug import DecodeOptions, Loader, LoaderError
from cuaug import transforms as T
from cuaug._runtime import cpu_limits
from cuaug.codec import JpegIndex
from cuaug.pipeline import cpu
from tests.codec.jpeg_crops import MCU, jpeg
from tests.codec.pictures import encode
from tests.loader.pictures import Bytes, photo, png
from tests.loader.programs import run
from tests.loader.test_cache import assert_equal, epochs
from tests.loader.test_reproducible import training_chain
from tests.sources.writers import KINDS, Sample

pytestmark = pytest.mark.cpu_only

COUNT = 12
CROP = [T.RandomCrop(200), T.RandomHorizontalFlip()]
SMALL = T.CenterCrop(32)
VIEWS = [T.CenterCrop(64), T.MultiView([T.Compose([T.RandomResizedCrop(24), T.ColorJitter(0.3)])] * 3)]
MIXED = [T.RandomCrop(200), T.Normalize(0.5, 0.2), T.MixUp(0.4, num_classes=COUNT + 2)]
CHAINS = {"a crop": CROP, "a small one": SMALL, "training": training_chain(), "views": VIEWS, "mixed": MIXED}


@functools.cache
def jpegs() -> tuple[bytes, ...]:
    """With chroma of every kind, turned in every way; a crop leaves out at least 8 kB, and less than half."""
    kinds = itertools.cycle(MCU)
    return tuple(jpeg(240, 320, next(kinds), 98, orientation=i % 8 + 1) for i in range(COUNT))


def parts(loader: Loader) -> list[int]:
    """How many samples of each of four epochs were decoded from a part of their file."""
    counts = [loader.stats().parts]
    for _ in range(4):
        list(loader)
        counts.append(loader.stats().parts)
    return [after - before for before, after in itertools.pairwise(counts)]


# --- pixels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("index_bytes", [None, 8000, 1 << 70])
def test_the_same_pixels_in_every_epoch(chain, index_bytes):
    """Whatever the index has room for, in any order, on any number of threads, among files of other kinds."""
    progressive = encode(Image.fromarray(photo(210, 300)), "JPEG", progressive=True)
    source = Bytes(*jpegs(), png(3, 250, 220), progressive)
    chain = CHAINS[chain]
    with Loader(source, chain, batch_size=5, shuffle=True, threads=1, decode=DecodeOptions(index_bytes=0)) as plain:
        want = epochs(plain, 4)
        assert plain.stats().parts == 0
    with Loader(
        source, chain, batch_size=5, shuffle=True, threads=4, decode=DecodeOptions(index_bytes=index_bytes)
    ) as loader:
        assert_equal(epochs(loader, 4), want)
        assert loader.stats().parts > 0


def test_parts_are_counted():
    """Of what is indexed from the second epoch on, and small ones from the first."""
    with Loader(Bytes(*jpegs()), CROP, batch_size=4, shuffle=True, threads=3) as loader:
        assert parts(loader) == [0, COUNT, COUNT, COUNT]
        assert f"; {3 * COUNT} from a part of the file" in str(loader.stats())
    with Loader(Bytes(*jpegs()), SMALL, batch_size=4, shuffle=True, threads=3) as loader:
        assert parts(loader) == 4 * [COUNT]


def test_the_limit_is_for_the_loaders_life():
    """The files that came first stay, and no others come to them."""
    with Loader(Bytes(*jpegs()), CROP, batch_size=4, threads=1, decode=DecodeOptions(index_bytes=8000)) as loader:
        counts = parts(loader)
        assert counts == [0, *[counts[1]] * 3] and 2 < counts[1] < COUNT - 2
    for nothing in (0, 63):
        with Loader(Bytes(*jpegs()), CROP, batch_size=4, decode=DecodeOptions(index_bytes=nothing)) as loader:
            assert parts(loader) == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["files", "tar", "tfrecord", "lmdb", "lmdb decode", "hdf5", "dataset bytes", "http"])
@pytest.mark.parametrize("cache", [None, "encoded"])
def test_every_source_of_files(kind, cache, tmp_path):
    class Jpeg(Sample):
        data = property(lambda self: jpegs()[self.number])

    # Those that are stored at the same size: HDF5's writer stacks their pixels.
    KINDS[kind].write(tmp_path, [Jpeg(f"{i:04d}", 8 * (i // 4) + i % 4, i % 3) for i in range(6)])
    with Loader(KINDS[kind].open(tmp_path), CROP, batch_size=4, threads=2, cache=cache) as loader:
        assert parts(loader) == [0, 6, 6, 6]


def test_a_decoded_cache_needs_none():
    with Loader(Bytes(*jpegs()), CROP, batch_size=4, cache="decoded") as loader:
        assert parts(loader) == [0, 0, 0, 0]


def test_a_file_that_is_written_anew_has_its_new_pixels(tmp_path):
    """Also with the same size in bytes and pixels, in the same place."""
    path, chain = tmp_path / "0.jpg", [T.CenterCrop(200)]
    first = jpeg(240, 320, quality=95)
    at = first.index(b"\xff\xda") + 20
    for k, data in enumerate([first, first[:at] + bytes([first[at] ^ 4]) + first[at + 1 :], jpegs()[0]]):
        path.write_bytes(data)
        with Loader([str(path)], chain, decode=DecodeOptions(index_bytes=0)) as plain:
            (want,) = epochs(plain, 1)
        if k == 0:
            loader = Loader([str(path)], chain)
        assert_equal(epochs(loader), [want] * 3)
    assert loader.stats().parts >= 4
    loader.close()


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_damaged_files(on_error):
    """They fail, or do not, as they do without an index, each time anew."""
    files = list(jpegs())
    files[2], files[5], files[7] = files[2][: len(files[2]) // 2], b"nothing", files[7][:-9000]
    at = files[9].index(b"\xff\xda") + 2000
    files[9] = files[9][:at] + bytes(40) + files[9][at + 40 :]
    seen = []
    for index_bytes in (0, None):
        options = {
            "on_error": on_error,
            "shuffle": True,
            "threads": 3,
            "decode": DecodeOptions(index_bytes=index_bytes),
        }
        with Loader(Bytes(*files), CROP, batch_size=4, **options) as loader:
            batches = [batch for _ in range(4) for batch in loader]
            seen.append((batches, loader.stats().failed))
        assert (loader.stats().parts > 0) == (index_bytes is None)
    (plain, failed), (indexed, failed_again) = seen
    assert failed == failed_again > 0
    for got, want in zip(indexed, plain, strict=True):
        assert all(getattr(got, name).equal(getattr(want, name)) for name in ("images", "labels", "indices", "valid"))


def test_going_on_from_a_state():
    """A loader that has seen nothing goes on as the one that has indexed everything."""
    options = {"batch_size": 4, "shuffle": True, "threads": 2}
    with Loader(Bytes(*jpegs()), CROP, **options) as loader, Loader(Bytes(*jpegs()), CROP, **options) as other:
        list(loader), list(loader)
        batches = iter(loader)
        next(batches)
        other.load_state_dict(loader.state_dict())
        for got, want in zip(other, batches, strict=True):
            assert got.epoch == want.epoch == 2 and got.images.equal(want.images)
        assert loader.stats().parts > other.stats().parts == 0


# --- the argument ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, 0.5, 1e9, True, "1 GB"])
def test_a_number_of_bytes(value):
    with pytest.raises(LoaderError, match=f"index_bytes is an integer of at least 0, not {value!r}"):
        DecodeOptions(index_bytes=value)


def test_the_default_is_a_share_of_the_memory(monkeypatch):
    """Of what is available, for each process of this machine; where there is none, no index is made. For all files."""
    made: list[int] = []
    monkeypatch.setattr(cpu, "JpegIndex", lambda limit, files: made.append(limit) if files == 2 else None)
    for available, ranks, want in [(64_000, "", [1000]), (64_000, "4", [250]), (63, "", []), (64_000, "none", [1000])]:
        monkeypatch.setattr(cpu_limits, "available_memory", lambda available=available: available)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        Loader(Bytes(png(0), png(1)), rank=0, world_size=1)
        assert made == want
        made.clear()


# --- its memory ------------------------------------------------------------------------------------------------------


def gone(index: weakref.ref[JpegIndex], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while index() is not None and time.monotonic() < end:
        time.sleep(0.01)
    return index() is None


@pytest.mark.parametrize("how", ["closed", "let go", "let go in mid-epoch", "let go before its iteration"])
def test_memory_is_given_back(how):
    """At once, without the garbage collector: a loop may make a loader for each epoch."""
    gc.disable()
    try:
        loader = Loader(Bytes(*jpegs()), CROP, batch_size=2, threads=3)
        index = weakref.ref(loader._pipeline.index)
        for _ in loader:
            if how == "let go in mid-epoch":
                break
        batches = iter(loader)
        kept = next(batches)
        if how == "closed":
            loader.close()
        elif how == "let go before its iteration":
            del loader
            assert not gone(index, 0.1) and len(list(batches)) == COUNT // 2 - 1
        else:
            del loader, batches
        assert gone(index) and kept.images.shape == (2, 3, 200, 200)
    finally:
        gc.enable()


FORKED = """
import multiprocessing
from tests.loader.pictures import Bytes, checksums, noisy_jpeg

files = [noisy_jpeg(200, 240 + i) for i in range(16)]
loader = Loader(Bytes(*files), T.CenterCrop(160), batch_size=4, threads=3)

def whole():
    return [sum for images, _ in loader for sum in checksums(images)]

want = whole()
assert whole() == want and loader.stats().parts == 16, loader.stats()
batches = iter(loader)
next(batches)

def goes_on():
    global loader, batches  # the parent's: the child makes its own
    loader, batches = Loader(loader.source, T.CenterCrop(160), batch_size=4, threads=3), None
    counts = [(whole() == want, loader.stats().parts) for _ in range(3)]
    loader.close()
    return counts == [(True, 0), (True, 16), (True, 32)]
"""


@pytest.mark.slow
def test_a_forked_child_learns_anew_and_its_parent_goes_on():
    """The child lets go of its copy of the parent's index, in whatever state it is there."""
    assert (
        run(f"""{FORKED}
codes = []
for how in range(4):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        right = goes_on()
        gc.collect()
        sys.exit(0 if right else 3) if how % 2 else os._exit(0 if right else 3)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
processes = [multiprocessing.get_context("fork").Process(target=lambda: sys.exit(not goes_on())) for _ in range(2)]
for process in processes:
    process.start()
for process in processes:
    process.join()
codes += [process.exitcode for process in processes]
print(codes, len(list(batches)), whole() == want, loader.stats().parts)
""")
        == "[0, 0, 0, 0, 0, 0] 3 True 48\n"
    )
