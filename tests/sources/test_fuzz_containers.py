"""Some damaged containers of each kind; the fuzz program runs many more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cuaug import DecodeError
from tests.sources.fuzz_containers import read_all, run_hdf5, run_lmdb, run_tfrecord

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(("run", "count"), [(run_hdf5, 60), (run_tfrecord, 100), (run_lmdb, 2)])
def test_damaged_containers(tmp_path: Path, run, count):
    for seed in range(count):
        run(random.Random(seed), tmp_path)


class Source:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 1

    def fingerprint(self) -> str:
        return ""

    path = encoded_size = label = lambda self, index: index

    def read(self, index: int):
        raise self.error


def test_any_other_exception_is_noticed():
    read_all(lambda: Source(DecodeError("damaged")))
    with pytest.raises(KeyError):
        read_all(lambda: Source(KeyError(0)))
