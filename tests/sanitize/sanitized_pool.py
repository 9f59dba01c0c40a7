"""Native work on sixteen threads, some of it dropped; tests/loader/test_native_work.py runs it under ThreadSanitizer.

python -m tests.sanitize.sanitized_pool ROUNDS
"""

from __future__ import annotations

import os
import queue
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from cuaug.sources.file_bytes import FileRanges
from tests.support.loader.native_runs import Decoded, read, run

THREADS, SAMPLES = 16, 40


def _ranges(path: Path) -> FileRanges:
    """The first range of a sample is its JPEG and number of zeros, the second the zeros alone."""
    from tests.support.codec.encoded_images import JPEG

    file = path.open("rb")
    status = os.fstat(file.fileno())
    sizes = len(JPEG) + np.arange(SAMPLES)
    zero, ends = np.zeros_like(sizes), np.cumsum(sizes)
    whole = np.stack([zero, ends - sizes, sizes, zero], -1)
    zeros = np.stack([zero, ends - np.arange(SAMPLES), np.arange(SAMPLES), zero], -1)
    states = np.array([[file.fileno(), status.st_size, status.st_mtime_ns, status.st_ctime_ns]])
    return FileRanges([file], states, np.stack([whole, zeros], 1), 0, lambda i, parts: len(parts[0]) == i)


def main(rounds: int) -> None:
    from cuaug.pipeline.thread_pool import ThreadPool
    from tests.support.codec.encoded_images import JPEG, PHOTO

    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / str(i)) for i in range(SAMPLES)]
        for i, path in enumerate(paths):
            Path(path).write_bytes(JPEG + bytes(i))
        joined = Path(folder) / "joined"  # the same files as ranges of one
        joined.write_bytes(b"".join(Path(path).read_bytes() for path in paths))
        ranges = _ranges(joined)
        whole = dropped = 0
        for number in range(rounds):
            pool, ended = ThreadPool(THREADS), queue.SimpleQueue[int]()
            batches = []
            for batch in range(4):
                cancelled = np.zeros(1, dtype=np.int64)
                of_files = batch % 2 == 0
                reads = read(paths if of_files else [None] * SAMPLES, batch, cancelled, None if of_files else ranges)
                pool.submit(partial(ended.put, batch), batch, reads.work)
                runs = run([Decoded(PHOTO)] * SAMPLES, [(3, 5, 33, 45)] * SAMPLES, batch, cancelled)
                pool.submit(partial(ended.put, batch), batch, runs.work)
                batches.append((cancelled, reads, runs))
            if number % 2:
                batches[rng.randrange(4)][0][0] = 1
            if number % 3 == 2:
                pool.close()
            else:
                assert sorted(ended.get(timeout=600) for _ in range(8)) == sorted([*range(4)] * 2)
                for cancelled, reads, runs in batches:
                    is_read, labels = reads.finish()
                    if cancelled[0]:
                        dropped += 1
                        continue
                    whole += 1
                    assert all(labels.values()) and len(labels) in (0, SAMPLES)
                    assert is_read.all() and all(bytes(reads.read(i)) == JPEG + bytes(i) for i in range(SAMPLES))
                    assert (reads.files["origin"]["header"]["orientation"] == 1).all() and (runs.statuses == 3).all()
                    assert all((output == PHOTO[3:33, 5:45]).all() for output in runs.outputs)
                pool.close()
    print("batches", whole, "dropped", dropped)
    assert whole and dropped


if __name__ == "__main__":
    main(int(sys.argv[1]))
