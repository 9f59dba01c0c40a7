"""`cuaug index` makes a data set's JPEG index ahead of the first epoch."""

from __future__ import annotations

import argparse
import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TextIO

from cuaug._runtime.cpus import allowed_cpus
from cuaug.codec import JpegIndex, read_header
from cuaug.codec.image import EncodedJpeg
from cuaug.codec.jpeg_index import crop_jpeg
from cuaug.commands.open_paths import open_paths, read_sample
from cuaug.commands.progress_bar import Progress
from cuaug.errors import CuaugError, DecodeError, SourceError
from cuaug.sources.file_bytes import error_reason, is_fd_limit_error
from cuaug.sources.jpeg_index_file import open_index_file

_SAMPLES_PER_TASK = 64


def index(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """Runs the command: prints the outcome and returns the exit status."""
    try:
        source: Any = open_paths(options.paths)
        file = open_index_file(source)
        if file.path is None or not file.can_write:
            os.close(file.fd)
            place = f"{file.path!r} cannot be written" if file.path else "there is no place for it"
            raise SourceError(f"the index cannot be kept: {place}; set CUAUG_CACHE_DIR to a folder of yours")
        jpeg_index = JpegIndex(options.index_bytes, len(source), lambda: file)
        failed = _index_all(source, jpeg_index, options.threads or allowed_cpus()[0], errors)
    except (CuaugError, OSError) as error:
        print(f"cuaug index: {error}", file=errors)
        return 1
    stats = jpeg_index.stats()
    jpeg_index.report()
    is_complete = not jpeg_index.has_stopped
    outcome = f"{stats.made} of {len(source)} samples added, {failed} unreadable"
    print(f"{file.path}: {outcome}; {stats.images} files in {stats.bytes / 1e6:.1f} MB", file=out)
    if not is_complete:
        print(f"cuaug index: {file.path} takes no more files: --index-bytes raises its limit", file=errors)
    return 0 if is_complete and not failed else 1


def _index_all(source: Any, jpeg_index: JpegIndex, threads: int, errors: TextIO) -> int:
    """Adds all samples to the index; returns the number of unreadable ones."""
    progress, lock, failed = Progress(errors, len(source), "samples"), threading.Lock(), 0
    starts = range(0, len(source), _SAMPLES_PER_TASK)

    def add(start: int) -> None:
        nonlocal failed
        for i in range(start, min(start + _SAMPLES_PER_TASK, len(source))):
            cause = _add(source, i, jpeg_index)
            with lock:
                if cause is not None:
                    failed += 1
                    progress.clear()
                    print(f"cuaug index: sample {i} cannot be read: {cause}", file=errors)
                progress.advance()

    pool = ThreadPoolExecutor(threads, thread_name_prefix="cuaug-index")
    remaining = iter(starts)
    try:
        while tasks := list(itertools.islice(remaining, 16 * threads)):
            for _ in pool.map(add, tasks):
                pass
    finally:
        pool.shutdown(cancel_futures=True)
        progress.clear()
    return failed


def _add(source: Any, i: int, jpeg_index: JpegIndex) -> str | None:
    """Adds a sample's JPEG to the index; the cause if it cannot be read."""
    try:
        data = read_sample(source, i)
        if getattr(data, "ndim", 1) > 1:  # decoded pixels
            return None
        header = read_header(bytes(data), apply_exif=False)
    except DecodeError as error:
        return error.cause
    except OSError as error:
        if is_fd_limit_error(error):
            raise
        return error_reason(error)
    if isinstance(header, EncodedJpeg):
        size = header.height, header.width
        crop_jpeg(header.data, (0, 0, 1, 1), size, 1, jpeg_index)  # a crop to any region makes the entry
    return None
