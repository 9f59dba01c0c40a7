"""Memory over many epochs, with images of every size.

The tests measure resident memory between epochs, in a process whose malloc returns each freed block of 64 kB or more to
the system at once. By default malloc keeps some freed blocks, depending on the order in which threads free them. Those
blocks are not in use and their number does not grow. The last test uses the default.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import mmap
import os
import time

import numpy as np
import psutil
import pytest
import torch

from cuaug import Loader
from cuaug import transforms as T
from cuaug._runtime.huge_pages import pages
from tests.support.loader.further_pictures import Memory
from tests.support.loader.programs import run_apart

pytestmark = pytest.mark.cpu_only

PROGRAM = """
import json, logging
import psutil
import torch
from PIL import Image
from tests.support.codec.encoded_images import encode, photo
from tests.support.loader.further_pictures import Bytes

logging.disable()
rng = random.Random(0)

# Large and tiny images alternate; the largest size comes several times, so that every thread soon decodes it.
sizes = [(1200, 1700), (1, 1), (1700, 1200), (1, 1600), (1200, 1700), (2, 3), (375, 500), (1600, 1), (64, 64), (7, 5)]
forms = ["PNG" if i in (4, 7, 9) else "JPEG" for i in range(10)]
data = [encode(Image.fromarray(photo(*size)), form) for size, form in zip(sizes, forms)]
damaged = [b"", b"nothing", data[0][: len(data[0]) // 2], data[2][: len(data[2]) // 2]]
small = [T.Resize((64, 64)), T.RandomHorizontalFlip(), T.ColorJitter(0.2, 0.2)]

def resident():
    gc.collect()
    return psutil.Process().memory_info().rss

def wait_for_workers(loader):
    while loader._pipeline.workers.activities():
        time.sleep(0.001)

def one_loader(chain, batch_size):
    with Loader(Bytes(*data), chain, batch_size=batch_size, shuffle=True, dtype=torch.float32, threads=2) as loader:
        for epoch in range(40):
            for batch in loader:
                pass
            del batch
            wait_for_workers(loader)
            yield

def damaged_and_abandoned():
    options = {"batch_size": 3, "shuffle": True, "threads": 2, "on_error": "replace", "dtype": torch.float32}
    with Loader(Bytes(*data, *damaged), small, **options) as loader:
        for epoch in range(40):
            kept = []
            for step, batch in enumerate(loader):
                kept = [*kept, batch][-rng.randint(1, 4) :]
                if step == epoch % 5:
                    break
            del batch, kept
            wait_for_workers(loader)
            yield

def new_loaders():
    for epoch in range(40):
        options = {"batch_size": rng.randint(1, 9), "threads": rng.randint(1, 3), "prefetch": rng.randint(1, 4)}
        kept = []
        with Loader(Bytes(*data, *damaged), small, shuffle=True, on_error="skip", **options) as loader:
            for batch in loader:
                kept = [*kept, batch][-3:]
                if rng.random() < 0.1:
                    break
        del batch, kept, loader
        yield

print(json.dumps({
    "resized images": [resident() for _ in one_loader(small, 4)],
    "images of their own sizes": [resident() for _ in one_loader([], 1)],
    "damaged images replaced, iterations abandoned, batches kept": [resident() for _ in damaged_and_abandoned()],
    "a new loader per epoch": [resident() for _ in new_loaders()],
}))
"""


@pytest.fixture(scope="module")
def resident_mib() -> dict[str, list[float]]:
    out = run_apart(PROGRAM, {"MALLOC_MMAP_THRESHOLD_": "65536"})
    return {epochs: [round(level / 2**20, 1) for level in levels] for epochs, levels in json.loads(out).items()}


@pytest.mark.long
@pytest.mark.parametrize(
    "epochs",
    [
        "resized images",
        "images of their own sizes",
        "damaged images replaced, iterations abandoned, batches kept",
        "a new loader per epoch",
    ],
)
def test_resident_memory_is_flat(epochs, resident_mib):
    """Within 4 % over 30 epochs, after 10 to warm up, and within 1 % over the last 10.

    A thread's first large allocation adds a few MiB to its heap, once, at any time; a leak grows in every epoch.
    """
    levels = resident_mib[epochs]
    assert len(levels) == 40
    assert max(levels[10:]) <= 1.04 * min(levels[10:]), f"MiB after each epoch: {levels}"
    assert max(levels[30:]) <= 1.01 * min(levels[30:]), f"MiB after each epoch: {levels}"


def resident() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss >> 20


@pytest.mark.slow
def test_an_idle_loader_holds_no_batch():
    """Not even for reuse: a validation loader is idle while training runs for hours."""
    with Loader(Memory(30), T.Resize((1000, 1000)), batch_size=3, dtype=torch.float32, threads=2) as loader:
        for abandoned in (True, False):
            before = resident()
            addresses = set()
            for step, batch in enumerate(loader):
                addresses.add(batch.images.data_ptr())
                if step == 5:
                    during = resident()
                    if abandoned:
                        break
            del batch
            while loader._pipeline.workers.activities():
                time.sleep(0.001)
            assert during - before > 60, "three batches of 34 MiB each are ready, held or in progress"
            assert resident() - before < 20
            assert len(addresses) < 6, "an iteration reuses memory"


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 255 << 10, 256 << 10, 50 << 20])
def test_pages(size):
    memory = pages(size)
    assert memory.shape == (size,) and memory.dtype == np.uint8 and memory.flags.writeable and memory.flags.c_contiguous
    before = resident()
    memory[:] = 7
    # The kernel's count is a few MiB off in a process with many threads.
    assert resident() - before >= (size >> 20) * 0.9 - 8
    if os.fork() == 0:
        memory[:] = 8
        os._exit(0)
    os.wait()
    # No temporary array: the C library might keep its memory.
    assert size == 0 or memory.min() == memory.max() == 7, "a fork writes to its own copy"
    part = memory[size // 2 :]
    del memory
    assert size == 0 or part.min() == part.max() == 7
    del part
    assert resident() <= before + 8, "freed memory returns to the system"


def test_pages_without_huge_pages(monkeypatch):
    """A kernel without huge pages, as on some small aarch64 machines, refuses the advice."""

    class RefusingMmap(mmap.mmap):
        def madvise(self, *advice):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(mmap, "mmap", RefusingMmap)
    memory = pages(8 << 20)
    memory[:] = 7
    assert (memory == 7).all()


def test_a_failed_allocation_is_a_memory_error():
    """Not an OSError, which would look like an unreadable file."""
    for size in (1 << 50, 1 << 62):
        with pytest.raises(MemoryError, match=rf"no memory for {size:,} bytes"):
            pages(size)


CLOSED = """
import json
import psutil
from PIL import Image
from cuaug.pipeline import pipeline
from tests.support.codec.encoded_images import encode
from tests.support.loader.further_pictures import Bytes

def measured_release():
    levels.append(psutil.Process().memory_info().rss >> 20)
    release()
    levels.append(psutil.Process().memory_info().rss >> 20)

levels, release = [], pipeline.release_freed_memory
pipeline.release_freed_memory = measured_release
forms = ("GIF", "PPM", "TIFF", "GIF")
data = [encode(Image.new("RGB", (2600 + 100 * i, 2400), "red"), form) for i, form in enumerate(forms)]
with Loader(Bytes(*data * 8), T.Resize((64, 64)), batch_size=8, threads=8, device="cpu") as loader:
    for _ in loader:
        pass
print(json.dumps(levels))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library keeps no memory to trim")
def test_close_returns_memory_that_the_c_library_has_kept():
    before, after = json.loads(run_apart(CLOSED, {}))
    assert after < before - 50, f"{before} MB before, {after} MB after"
