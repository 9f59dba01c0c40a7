"""Warnings of the image libraries: captured from C's stderr, and logged with the name of their sample."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator

import numpy as np

from cuaug._runtime.native import address, library

__all__ = ["TEXT_BYTES", "MessageLog", "captured", "lines_of"]

log = logging.getLogger("cuaug")

TEXT_BYTES = 4096
"""The longest text that is kept of one image; kernels/cpu/stderr_capture.h has the same."""


@contextlib.contextmanager
def captured() -> Iterator[list[str]]:
    """Collects the lines that C code prints to stderr on this thread.

    The list is filled when the block ends.
    """
    lines: list[str] = []
    text = np.empty(TEXT_BYTES, dtype=np.uint8)
    try:
        library.cuaug_capture_begin()
        yield lines
    finally:
        length = library.cuaug_capture_end(address(text), TEXT_BYTES)
        lines += lines_of(text[:length].tobytes())


def lines_of(text: bytes) -> list[str]:
    """Splits captured text; the last line ends in '...' where text was dropped."""
    lines = text.decode("utf-8", "backslashreplace").splitlines()
    if len(text) == TEXT_BYTES:
        lines[-1] += "..."
    return lines


class MessageLog:
    """Logs each line about each sample once, as a warning."""

    def __init__(self) -> None:
        self._logged: set[int] = set()

    def warn(self, name: str, lines: Iterable[str]) -> None:
        """Logs what the image libraries printed about one sample.

        Args:
            name: of the sample, such as "'a/b.jpg' (sample 7)".
        """
        for line in lines:
            key = hash((name, line))
            if key not in self._logged:
                self._logged.add(key)
                log.warning("%s: %s", name, line)
