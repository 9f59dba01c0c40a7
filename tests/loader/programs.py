"""Programs that use a loader and end in some way: with which exit code, what on the standard error, and how soon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
#: Within so many seconds of what ends it a program must be gone; about half a second of it is torch's own.
SECONDS_TO_END = 5.0
# A program that hangs is given up after so many: enough for a loaded machine to import torch.
_SECONDS_TO_GIVE_UP = 60.0

_PREAMBLE = """
import atexit, gc, os, pickle, random, signal, sys, threading, time
from cuaug import Loader, LoaderError
from cuaug import transforms as T
from tests.loader.pictures import Memory, numbers_of

def ready():
    print("ready", flush=True)
"""


class Ended(NamedTuple):
    """How a program ended: its exit code, negative for a signal, and what it printed after "ready"."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return (self.err.rstrip().splitlines() or [""])[-1]


class Program:
    """A Python program, running. It calls `ready()` right before what is to end it.

    Args:
        body: its text, after imports of what such programs need.
        environment: variables beside those of this process.
    """

    def __init__(self, body: str, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", _PREAMBLE + body],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        self._since = time.monotonic()
        if first != "ready\n":
            _, err = self.process.communicate(timeout=_SECONDS_TO_GIVE_UP)
            pytest.fail(f"the program ended early: {first!r}\n{err}")

    def interrupt(self, after_seconds: float = 0.0) -> None:
        """Presses Ctrl-C; from then on it has its seconds to end."""
        time.sleep(after_seconds)
        self._since = time.monotonic()
        self.process.send_signal(signal.SIGINT)

    def ends(self, within: float = SECONDS_TO_END) -> Ended:
        """Waits for its end, which must come within so many seconds of "ready" or of Ctrl-C."""
        try:
            out, err = self.process.communicate(timeout=_SECONDS_TO_GIVE_UP)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler prints where every thread is
            out, err = self.process.communicate()
            pytest.fail(f"still running after {_SECONDS_TO_GIVE_UP:g} s\n{out}\n{err}")
        seconds = time.monotonic() - self._since
        assert seconds < within, f"ended only after {seconds:.1f} s\n{out}\n{err}"
        return Ended(self.process.returncode, out, err)


def run(body: str, environment: Mapping[str, str] | None = None) -> str:
    """What a program printed that took as long as it needed, and ended well."""
    ended = Program("ready()\n" + body, environment).ends(within=float("inf"))
    assert ended.code == 0 and ended.err == "", ended.err
    return ended.out
