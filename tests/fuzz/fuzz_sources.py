"""Opens and reads damaged datasets, one after another. Run it as a separate process: it may crash.

    python -m tests.fuzz.fuzz_sources tar --seed 7 --count 20000            a campaign
    python -m tests.fuzz.fuzz_sources tar --seed 7 --first 123 --count 1    one case of it again

Each case must raise only cuaug's errors. One that hangs ends the program after --deadline seconds. Before each case the
program writes its number to --mark, which names the case that crashed it. At the end it prints as JSON the longest case
in seconds of processor time, with its child processes, and the largest memory growth in bytes.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import fuzz_cache, fuzz_containers, fuzz_files, fuzz_index, fuzz_kept, fuzz_records
from tests.support.codec.memory import peak_bytes

KINDS: dict[str, Callable[[random.Random, Path], None]] = {
    "tar": fuzz_files.run_tar,
    "coco": fuzz_files.run_coco,
    "yolo": fuzz_files.run_yolo,
    "voc": fuzz_files.run_voc,
    "corpus": fuzz_files.run_corpus,
    "table": fuzz_files.run_table,
    "list": fuzz_files.run_list,
    "index": fuzz_index.run_one,
    "cache": fuzz_cache.run_one,
    "hdf5": fuzz_containers.run_hdf5,
    "tfrecord": fuzz_containers.run_tfrecord,
    "lmdb": fuzz_containers.run_lmdb,
    "parquet": fuzz_records.run_parquet,
    "mds": fuzz_records.run_mds,
    "litdata": fuzz_records.run_litdata,
    "remote index": fuzz_kept.run_remote_index,
    "blocks": fuzz_kept.run_blocks,
    "video index": fuzz_kept.run_video_index,
    "state": fuzz_kept.run_state,
}
_ARM_EVERY = 20  # cases under one deadline: setting it costs as much as a case


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="+", choices=KINDS, metavar="kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000, help="cases of each kind")
    parser.add_argument("--deadline", type=float, default=600.0)
    parser.add_argument("--mark", type=Path)
    given = parser.parse_args()
    logging.getLogger("cuaug").setLevel(logging.CRITICAL)
    longest, before = 0.0, peak_bytes()
    for kind in given.kinds:
        for number in range(given.first, given.first + given.count):
            if number % _ARM_EVERY == 0 or number == given.first:
                faulthandler.dump_traceback_later(given.deadline, exit=True)
            if given.mark is not None:
                given.mark.write_text(f"{kind} {number}")
            began = _processor_seconds()
            if not _run(kind, given.seed, number):
                return 1
            longest = max(longest, _processor_seconds() - began)
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"longest_seconds": longest, "growth_bytes": peak_bytes() - before}))
    return 0


def _processor_seconds() -> float:
    """Unlike a clock's, a busy machine does not lengthen them much."""
    return sum(os.times()[:4])


def _run(kind: str, seed: int, number: int) -> bool:
    """Runs one case; whether it kept its promise."""
    folder = Path(tempfile.mkdtemp())
    try:
        KINDS[kind](random.Random(f"{kind} {seed} {number}"), folder)
    except Exception:
        traceback.print_exc()
        print(f"case {number} of seed {seed} of {kind!r} broke its promise", file=sys.stderr)
        return False
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
