"""Images that identify their sample, and helpers to run test programs."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.cache import DecodedCache
from tests.support.loader import programs

ROOT = Path(__file__).parents[3]


def open_cache(directory: Path, limit_bytes: int = 1 << 24, *, count: int = 40, **contents: str) -> DecodedCache:
    """The cache in a directory, for a data set of `count` samples."""
    cache = DecodedCache(limit_bytes=limit_bytes, directory=directory)
    cache.open(count, contents or {"source": "a"})
    return cache


def make_image(index: int, height: int | None = None, width: int | None = None) -> NDArray[np.uint8]:
    """Noise of sample `index`, (height, width, 3) uint8; default sides are random, 1 to 40."""
    rng = np.random.default_rng(index)
    h, w = rng.integers(1, 41, 2)
    return rng.integers(0, 256, (height or h, width or w, 3), dtype=np.uint8)


def is_same(result: Any, expected: NDArray[np.uint8]) -> bool:
    return (
        result is not None
        and result.shape == expected.shape
        and result.dtype == expected.dtype
        and bool((result == expected).all())
    )


def overlap(views: Iterable[NDArray[np.uint8]]) -> bool:
    """Whether two of these contiguous arrays share a byte."""
    spans = sorted((view.__array_interface__["data"][0], view.nbytes) for view in views)
    return any(a + size > b for (a, size), (b, _) in itertools.pairwise(spans))


def run(program: str, *arguments: Any, prefix: Iterable[str] = ()) -> str:
    """Runs a program that can import the tests, and returns its output; it must succeed with an empty stderr."""
    if not prefix:  # no import of torch
        return programs.run(f"sys.argv[1:] = {[*map(str, arguments)]!r}\n{program}")
    command = [*prefix, sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
