"""Pictures that tell which sample they are of, and programs that put them in caches."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]


def picture(index: int, height: int | None = None, width: int | None = None) -> NDArray[np.uint8]:
    """(height, width, 3) uint8 noise of this sample; a size of 1 to 40 a side, of its own, where none is given."""
    rng = np.random.default_rng(index)
    h, w = rng.integers(1, 41, 2)
    return rng.integers(0, 256, (height or h, width or w, 3), dtype=np.uint8)


def same(got: Any, want: NDArray[np.uint8]) -> bool:
    return got is not None and got.shape == want.shape and got.dtype == want.dtype and bool((got == want).all())


def overlapping(views: Iterable[NDArray[np.uint8]]) -> bool:
    """Whether two of these contiguous arrays share a byte."""
    spans = sorted((view.__array_interface__["data"][0], view.nbytes) for view in views)
    return any(a + size > b for (a, size), (b, _) in itertools.pairwise(spans))


def start(program: str, *arguments: Any, prefix: Iterable[str] = ()) -> subprocess.Popen[str]:
    """A Python process that can import this package's modules."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(program: str, *arguments: Any, **options: Any) -> str:
    """What a program prints; it must end well, within a minute, and write nothing to stderr."""
    process = start(program, *arguments, **options)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, ""), f"exit code {process.returncode}\n{out}\n{err}"
    return out
