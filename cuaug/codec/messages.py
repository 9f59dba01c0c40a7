"""Warnings of the image libraries: captured from C's stderr and logged with the sample's name."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator

import numpy as np

from cuaug._runtime.native import address, library

log = logging.getLogger("cuaug")

TEXT_BYTES = 4096
"""Capacity for one image's text, as in kernels/cpu/stderr_capture.h."""


@contextlib.contextmanager
def capture_stderr() -> Iterator[list[str]]:
    """Capture the lines that C code prints to stderr on this thread.

    The list is filled when the block ends.
    """
    lines: list[str] = []
    text = np.empty(TEXT_BYTES, dtype=np.uint8)
    try:
        library.cuaug_capture_begin()
        yield lines
    finally:
        length = library.cuaug_capture_end(address(text), TEXT_BYTES)
        lines += split_lines(text[:length].tobytes())


def split_lines(text: bytes) -> list[str]:
    """Split captured text; the last line ends in '...' where text was dropped."""
    lines = text.decode("utf-8", "backslashreplace").splitlines()
    if len(text) == TEXT_BYTES:
        lines[-1] += "..."
    return lines


class MessageLog:
    """Logs warnings, each once: lines about samples, and that the CPU decodes JPEGs or clips for a GPU."""

    def __init__(self) -> None:
        self._logged: set[int] = set()
        self._fallbacks_logged: set[bool] = set()
        self._clip_fallback_logged = False

    def warn(self, name: str, lines: Iterable[str]) -> None:
        """Log the lines that the image libraries printed about one sample.

        Args:
            name: of the sample, for example "'a/b.jpg' (sample 7)".
        """
        for line in lines:
            key = hash((name, line))
            if key not in self._logged:
                self._logged.add(key)
                log.warning("%s: %s", name, line)

    def warn_fallback(self, name: str, fallbacks: int, decoded: int, cause: str) -> None:
        """Log once that the CPU decoded JPEGs of a batch for the GPU; and once that it decoded all of a batch.

        Args:
            name: name of one such sample.
            fallbacks: their number.
            decoded: number of JPEGs of the batch that the GPU decoded.
            cause: why the GPU failed.
        """
        whole_batch = fallbacks > 1 and not decoded
        if whole_batch in self._fallbacks_logged:
            return
        self._fallbacks_logged.add(whole_batch)
        if whole_batch:
            text = f"the GPU decoded none of a batch's JPEGs, and the CPU decoded {fallbacks}, such as {name}: {cause}"
        else:
            text = f"{name}: the GPU did not decode this JPEG, and the CPU did: {cause}"
        log.warning("%s. Later cases are only counted, as cpu_fallback in stats().decoded_by", text)

    def warn_clip_fallback(self, name: str, cause: str) -> None:
        """Log once that FFmpeg decoded a clip for the GPU.

        Args:
            name: of the sample.
            cause: why the GPU did not decode it.
        """
        if not self._clip_fallback_logged:
            self._clip_fallback_logged = True
            text = f"{name}: NVDEC did not decode this clip, and FFmpeg did: {cause}"
            log.warning("%s. Later cases are only counted, as cpu_fallback in stats().decoded_by", text)
