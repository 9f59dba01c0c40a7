"""Native work on sixteen threads, some of it dropped; tests/loader/test_native_work.py runs it under ThreadSanitizer.

python -m tests.loader.sanitized_pool ROUNDS
"""

from __future__ import annotations

import queue
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from tests.loader.native_runs import Decoded, read, run

THREADS, SAMPLES = 16, 40


def main(rounds: int) -> None:
    from cuaug.pipeline.thread_pool import ThreadPool
    from tests.codec.images import JPEG, PHOTO

    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / str(i)) for i in range(SAMPLES)]
        for i, path in enumerate(paths):
            Path(path).write_bytes(JPEG + bytes(i))
        whole = dropped = 0
        for number in range(rounds):
            pool, ended = ThreadPool(THREADS), queue.SimpleQueue[int]()
            batches = []
            for batch in range(4):
                cancelled = np.zeros(1, dtype=np.int64)
                reads = read(paths, batch, cancelled)
                pool.submit(partial(ended.put, batch), batch, reads.work)
                runs = run([Decoded(PHOTO)] * SAMPLES, [(3, 5, 33, 45)] * SAMPLES, batch, cancelled)
                pool.submit(partial(ended.put, batch), batch, runs.work)
                batches.append((cancelled, reads, runs))
            if number % 2:
                batches[rng.randrange(4)][0][0] = 1
            if number % 3 == 2:
                pool.close()
            else:
                assert sorted(ended.get(timeout=60) for _ in range(8)) == sorted([*range(4)] * 2)
                for cancelled, reads, runs in batches:
                    data, headers = reads.finish()
                    if cancelled[0]:
                        dropped += 1
                        continue
                    whole += 1
                    assert all(bytes(value) == JPEG + bytes(i) for i, value in enumerate(data))
                    assert (headers[:, 3] == 1).all() and (runs.statuses == 3).all()
                    assert all((output == PHOTO[3:33, 5:45]).all() for output in runs.outputs)
                pool.close()
    print("batches", whole, "dropped", dropped)
    assert whole and dropped


if __name__ == "__main__":
    main(int(sys.argv[1]))
