"""`cuaug check`: reads and decodes every sample of a data set, and lists the damaged ones.

A child process does the work, because some damage crashes a process: liblmdb fails an assertion, or reads beyond the
end of a mapped file. The child reports each sample before reading it. If the child dies, the parent starts another one,
which first checks the samples under way one by one, to find the faulty one, and then continues after them.

A sample of videos is a whole video. As decoding one may take long, the child also reports each second of it.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TextIO

from cuaug._runtime.cpus import allowed_cpus
from cuaug._runtime.limits import DEFAULT_MAX_PIXELS
from cuaug.commands.progress_bar import Progress
from cuaug.errors import CuaugError, DecodeError

_MAX_CHILDREN = 50
_CLASSES_SHOWN = 10
_REPORT_SECONDS = 1.0  # between two reports of a video in progress
_OPENING = 30  # time limit for opening, in multiples of a sample's: opening may index shards


def check(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """Prints the damaged samples and returns the exit status."""
    report = _Report(out, errors)
    try:
        with open(options.csv or os.devnull, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            report.table = csv.writer(file)
            report.table.writerow(["index", "path", "cause"])
            is_complete = _check_all(options, report)
    except OSError as error:
        print(f"cuaug check: {error}", file=errors)
        return 1
    finally:
        report.clear()
    if report.samples:
        if report.classes:
            print(report.classes, file=out)
        print(f"{report.checked} of {report.samples} samples checked, {report.damaged} damaged", file=out)
    return 0 if is_complete and not report.damaged else 1


class _Report:
    """Prints damaged samples and progress.

    Attributes:
        table: a csv.writer.
        samples, checked, damaged: counts.
        classes: what the labels mean.
    """

    def __init__(self, out: TextIO, errors: TextIO) -> None:
        self.table: Any = None
        self.checked = self.damaged = 0
        self.classes = ""
        self._out, self._errors = out, errors
        self._progress = Progress(errors, unit="samples")

    @property
    def samples(self) -> int:
        return self._progress.total

    @samples.setter
    def samples(self, count: int) -> None:
        self._progress.total = count

    def add(self, index: int, path: str, cause: str | None) -> None:
        self.checked += 1
        if cause is not None:
            self.damaged += 1
            self.clear()
            print(f"{path!r} (sample {index}): {' '.join(cause.split())}", file=self._out, flush=True)
            self.table.writerow([index, path, cause])
        self._progress.advance(f"{self.damaged} damaged")

    def message(self, text: str) -> None:
        self.clear()
        print(f"cuaug check: {text}", file=self._errors, flush=True)

    def clear(self) -> None:
        self._progress.clear()


def _check_all(options: argparse.Namespace, report: _Report) -> bool:
    """Runs children until all samples are checked; False if that fails."""
    alone: list[int] = []
    begin, unexplained = 0, ""
    for _ in range(_MAX_CHILDREN):
        threads = options.threads or allowed_cpus()[0]
        request = {"paths": options.paths, "decode": options.decode, "threads": threads, "alone": alone, "begin": begin}
        under_way: dict[int, str] = {}
        death = None
        with contextlib.closing(_events(request, options.timeout)) as events:
            for kind, *event in events:
                if kind == "opened":
                    report.samples, report.classes = event
                elif kind == "begin":
                    under_way[event[0]] = event[1]
                    begin = max(begin, event[0] + 1)
                elif kind == "done":
                    del under_way[event[0]]
                    alone = [index for index in alone if index != event[0]]
                    report.add(*event)
                elif kind == "working":
                    continue
                elif kind == "failed":
                    report.message(event[0])
                    return False
                else:
                    death = event[0]
        if death is None:
            if unexplained:
                report.message(f"{unexplained}, but none of them does so alone")
            return not unexplained
        if not under_way:
            subject = ", ".join(options.paths) if report.samples else f"opening {', '.join(options.paths)}"
            report.message(f"{subject} {death}")
            return False
        if len(under_way) == 1:
            ((index, path),) = under_way.items()
            report.add(index, path, f"it {death}")
            unexplained = ""
            alone = [other for other in alone if other != index]
        else:
            alone = sorted(under_way)
            unexplained = f"one of the samples {', '.join(map(str, alone))} {death}"
            report.message(f"{unexplained}: checking each alone")
    report.message(f"gave up after {_MAX_CHILDREN} crashed processes")
    return False


def _events(request: dict[str, Any], timeout: float) -> Generator[list[Any], None, None]:
    """The events of a child; the last one is ["death", cause] if it crashes."""
    # Not `-m`: it puts the working folder, perhaps the data set's, first on the path.
    program = f"import sys; sys.path[:] = {sys.path!r}; from cuaug.commands.check import _child; _child()"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin is not None and child.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # it has died; its exit status follows
            child.stdin.write(json.dumps(request).encode())
            child.stdin.close()
        text, limit = b"", _OPENING * timeout
        while True:
            if not select.select([child.stdout], [], [], limit)[0]:
                yield ["death", f"takes longer than {limit:g} seconds"]
                return
            chunk = os.read(child.stdout.fileno(), 1 << 16)
            *lines, text = (text + chunk).split(b"\n")
            for event in map(json.loads, lines):
                if event[0] == "finished":
                    return
                limit = timeout
                yield event
            if not chunk:
                status = child.wait()
                ended = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
                yield ["death", f"ends the process {ended}"]
                return
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


# --- the child -------------------------------------------------------------------------------------------------------


def _child() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent prints the traceback
    request = json.load(sys.stdin)
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps the output of libraries out of the channel
    lock = threading.Lock()

    def send(*event: Any) -> None:
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    try:
        _check_samples(request, send, lock)
        send("finished")
    except (CuaugError, OSError) as error:
        send("failed", str(error))


def _check_samples(request: dict[str, Any], send: Any, lock: threading.Lock) -> None:
    from cuaug.codec import CpuDecoder
    from cuaug.commands.open_paths import open_paths

    source: Any = open_paths(request["paths"])
    names = list(getattr(source, "classes", None) or ())
    shown = ", ".join(f"{str(name)[:60]!r}" for name in names[:_CLASSES_SHOWN]) + ", ..." * (
        len(names) > _CLASSES_SHOWN
    )
    send("opened", len(source), f"{len(names)} classes, numbered from 0: {shown}" if names else "")

    last_report = time.monotonic()

    def report_work() -> None:
        nonlocal last_report
        with lock:
            if time.monotonic() - last_report >= _REPORT_SECONDS:
                send("working")
                last_report = time.monotonic()

    def run(indices: Iterator[int]) -> None:
        decoder = CpuDecoder() if request["decode"] else None
        while True:
            with lock:
                index = next(indices, None)
                if index is None:
                    return
                path = source.path(index)
                send("begin", index, path)
            cause = _cause(source, index, decoder, report_work)
            with lock:
                send("done", index, path, cause)

    run(iter(request["alone"]))
    following = iter(range(request["begin"], len(source)))
    with ThreadPoolExecutor(request["threads"]) as pool:
        for future in [pool.submit(run, following) for _ in range(request["threads"])]:
            future.result()


def _cause(source: Any, index: int, decoder: Any, on_frame: Callable[[], None]) -> str | None:
    """The damage of a sample; None if it has none."""
    from cuaug.codec import DecodedImage, read_header
    from cuaug.commands.open_paths import read_sample
    from cuaug.sources.file_bytes import error_reason, is_fd_limit_error
    from cuaug.sources.videos import ClipRequest

    try:
        data = read_sample(source, index)
        if isinstance(data, ClipRequest):
            _check_video(data, decoder is not None, on_frame)
            return None
        if decoder is not None:
            is_decoded = getattr(data, "ndim", 1) > 1
            decoder.decode(DecodedImage(data, max_pixels=DEFAULT_MAX_PIXELS) if is_decoded else read_header(data))
    except DecodeError as error:
        return error.cause
    except OSError as error:
        if is_fd_limit_error(error):
            raise
        return error_reason(error)
    except Exception as error:  # from a source or decoder: go on with the other samples
        return f"{type(error).__name__}: {error}"
    return None


def _check_video(request: Any, decodes: bool, on_frame: Callable[[], None]) -> None:
    """Indexes a video and decodes the frames of its range.

    Raises:
        DecodeError: it is damaged; the error names the time.
        OSError: the file cannot be read.
    """
    import numpy as np

    from cuaug.codec.video.decoder import thread_video_decoder
    from cuaug.pipeline.clip_reader import read_clip

    clip = read_clip(request, np.zeros(request.sampler.frames), DEFAULT_MAX_PIXELS)
    if decodes:
        numbers = np.arange(*request.frame_range(clip.index.seconds))
        thread_video_decoder().check(request.path, clip.index, numbers, on_frame)
