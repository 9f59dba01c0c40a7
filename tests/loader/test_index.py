"""A loader's JPEG index: crops are decoded from part of the file, with the same pixels."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import time
import weakref

import pytest
from PIL import Image

from cuaug import DecodeOptions, Loader
from cuaug import transforms as T
from cuaug._runtime import cpus
from cuaug.sources.jpeg_index_file import open_index_file
from tests.loader.test_cache import assert_equal, epochs
from tests.loader.test_reproducible import training_chain
from tests.support.codec.encoded_images import encode
from tests.support.codec.jpeg_crops import MCU, jpeg
from tests.support.loader.further_pictures import Bytes, photo, png
from tests.support.loader.programs import run
from tests.support.sources.writers import KINDS, Sample
from tests.support.waiting import eventually

pytestmark = pytest.mark.cpu_only

COUNT = 12
CROP = [T.RandomCrop(200), T.RandomHorizontalFlip()]
SMALL = T.CenterCrop(32)
VIEWS = [T.CenterCrop(64), T.MultiView([T.Compose([T.RandomResizedCrop(24), T.ColorJitter(0.3)])] * 3)]
MIXED = [T.RandomCrop(200), T.Normalize(0.5, 0.2), T.MixUp(0.4, num_classes=COUNT + 2)]
CHAINS = {"crop": CROP, "small crop": SMALL, "training": training_chain(), "views": VIEWS, "mixed": MIXED}


@functools.cache
def jpegs() -> tuple[bytes, ...]:
    """All chroma subsamplings and EXIF orientations; a crop leaves out at least 8 kB, and less than half."""
    kinds = itertools.cycle(MCU)
    return tuple(jpeg(240, 320, next(kinds), 98, orientation=i % 8 + 1) for i in range(COUNT))


def crops_per_epoch(loader: Loader) -> list[int]:
    """Number of samples decoded from a JPEG crop, in each of four epochs."""
    counts = [loader.stats().parts]
    for _ in range(4):
        list(loader)
        counts.append(loader.stats().parts)
    return [after - before for before, after in itertools.pairwise(counts)]


# --- pixels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("index_bytes", [None, 8000, 1 << 70])
def test_the_same_pixels_in_every_epoch(chain, index_bytes):
    """With any index size, order and number of threads, among files of other formats."""
    progressive = encode(Image.fromarray(photo(210, 300)), "JPEG", progressive=True)
    source = Bytes(*jpegs(), png(3, 250, 220), progressive)
    chain = CHAINS[chain]
    options = {"batch_size": 5, "shuffle": True, "seed": 0}
    with Loader(source, chain, threads=1, decode=DecodeOptions(index_bytes=0), **options) as plain:
        want = epochs(plain, 4)
        assert plain.stats().parts == 0
    with Loader(source, chain, threads=4, decode=DecodeOptions(index_bytes=index_bytes), **options) as loader:
        assert_equal(epochs(loader, 4), want)
        assert loader.stats().parts > 0


def test_crops_are_counted():
    """From the first epoch on."""
    for chain in (CROP, SMALL):
        with Loader(Bytes(*jpegs()), chain, batch_size=4, shuffle=True, threads=3) as loader:
            assert crops_per_epoch(loader) == 4 * [COUNT]
            assert f"; {4 * COUNT} from a JPEG crop" in str(loader.stats())


def test_the_limit_is_for_the_loaders_life():
    """The first files stay in the index; no others are added."""
    with Loader(Bytes(*jpegs()), CROP, batch_size=4, threads=1, decode=DecodeOptions(index_bytes=8000)) as loader:
        counts = crops_per_epoch(loader)
        assert counts == 4 * [counts[0]] and 2 < counts[0] < COUNT - 2
    for too_little in (0, 63):
        with Loader(Bytes(*jpegs()), CROP, batch_size=4, decode=DecodeOptions(index_bytes=too_little)) as loader:
            assert crops_per_epoch(loader) == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["files", "tar", "tfrecord", "lmdb", "lmdb decode", "hdf5", "dataset bytes", "http"])
def test_every_source_of_files(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "cache"))

    class Jpeg(Sample):
        data = property(lambda self: jpegs()[self.number])

    # Images of one stored size: the HDF5 writer stacks their pixels.
    KINDS[kind].write(tmp_path, [Jpeg(f"{i:04d}", 8 * (i // 4) + i % 4, i % 3) for i in range(6)])
    with Loader(KINDS[kind].open(tmp_path), CROP, batch_size=4, threads=2) as loader:
        assert crops_per_epoch(loader) == [6, 6, 6, 6]


def test_a_decoded_cache_needs_no_index():
    with Loader(Bytes(*jpegs()), CROP, batch_size=4, cache="decoded") as loader:
        assert crops_per_epoch(loader) == [0, 0, 0, 0]


def test_an_overwritten_file_gives_its_new_pixels(tmp_path):
    """Also with the same path, size in bytes and size in pixels."""
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
    """They fail as they do without an index, in each epoch."""
    files = list(jpegs())
    files[2], files[5], files[7] = files[2][: len(files[2]) // 2], b"nothing", files[7][:-9000]
    at = files[9].index(b"\xff\xda") + 2000
    files[9] = files[9][:at] + bytes(40) + files[9][at + 40 :]
    results = []
    for index_bytes in (0, None):
        options = {"on_error": on_error, "decode": DecodeOptions(index_bytes=index_bytes)}
        with Loader(Bytes(*files), CROP, batch_size=4, shuffle=True, threads=3, seed=0, **options) as loader:
            batches = [batch for _ in range(4) for batch in loader]
            results.append((batches, loader.stats().failed))
        assert (loader.stats().parts > 0) == (index_bytes is None)
    (plain, failed), (indexed, failed_again) = results
    assert failed == failed_again > 0
    for got, want in zip(indexed, plain, strict=True):
        assert all(getattr(got, name).equal(getattr(want, name)) for name in ("images", "labels", "indices", "valid"))


# --- the argument ----------------------------------------------------------------------------------------------------


def test_the_default_is_a_share_of_the_memory(monkeypatch):
    """Of the available memory, per process of the machine; without memory there is no index."""
    for available, ranks, want in [(64_000, "", 1000), (64_000, "4", 250), (63, "", 0), (64_000, "none", 1000)]:
        monkeypatch.setattr(cpus, "available_memory", lambda available=available: available)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        file = open_index_file(Bytes(png(0), png(1)))
        assert file.limit_bytes == want
        os.close(file.fd)


# --- its memory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "deleted", "deleted in mid-epoch", "deleted before its iterator"])
def test_memory_is_freed(how):
    """At once, without the garbage collector: a program may make a loader per epoch."""
    gc.disable()
    try:
        loader = Loader(Bytes(*jpegs()), CROP, batch_size=2, threads=3)
        index = weakref.ref(loader._pipeline.index)
        for _ in loader:
            if how == "deleted in mid-epoch":
                break
        batches = iter(loader)
        kept = next(batches)
        if how == "closed":
            loader.close()
        elif how == "deleted before its iterator":
            del loader
            time.sleep(0.1)  # for threads that end
            assert index() is not None and len(list(batches)) == COUNT // 2 - 1
        else:
            del loader, batches
        assert eventually(lambda: index() is None) and kept.images.shape == (2, 3, 200, 200)
    finally:
        gc.enable()


@pytest.mark.slow
def test_a_forked_child_makes_its_own_index():
    """It frees its copy of the parent's index, in any state; the parent continues."""
    output = run("""
from tests.support.loader.further_pictures import Bytes, checksums, noisy_jpeg

files = [noisy_jpeg(200, 240 + i) for i in range(16)]
loader = Loader(Bytes(*files), T.CenterCrop(160), batch_size=4, threads=3)

def all_checksums():
    return [sum for images, _ in loader for sum in checksums(images)]

want = all_checksums()
assert all_checksums() == want and loader.stats().parts == 32, loader.stats()
batches = iter(loader)
next(batches)

def child_works():
    global loader, batches
    loader, batches = Loader(loader.source, T.CenterCrop(160), batch_size=4, threads=3), None
    counts = [(all_checksums() == want, loader.stats().parts) for _ in range(3)]
    loader.close()
    return counts == [(True, 16), (True, 32), (True, 48)]
codes = []
for how in range(4):
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        correct = child_works()
        gc.collect()
        sys.exit(0 if correct else 3) if how % 2 else os._exit(0 if correct else 3)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(codes, len(list(batches)), all_checksums() == want, loader.stats().parts)
""")
    assert output == "[0, 0, 0, 0] 3 True 64\n"
