"""Runs programs that use a loader, and returns their exit code, output and time to end."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
#: A program must end within these seconds by `clock` after the event. docs/promises.md says 5, which machines of a
#: quarter of the usual speed do not keep: torch alone takes two there.
SECONDS_TO_END = 20.0
# A hanging program is killed after these seconds.
_SECONDS_TO_GIVE_UP = 600.0
# Python 3.12 warns of each fork beside other threads.
_PYTHON = [sys.executable, "-W", "ignore:This process:DeprecationWarning"]

_IMPORTS = """
import atexit, gc, os, random, signal, sys, threading, time
from cuaug import Loader, LoaderError
from cuaug import transforms as T
from tests.support.loader.further_pictures import Memory, WatchedSource, numbers_of
from tests.support.loader.programs import clock

def ready():
    print("ready", flush=True)

def wait_for_ctrl_c():
    while True:  # Python loses some signals that arrive right before one long sleep, if threads take turns at the GIL
        time.sleep(0.05)
"""

#: Programs in which another thread is just loading the decoders: the CPU's by a first loader, or the GPU's.
IMPORTING = {
    device: f"""
from cuaug.codec import nv

class SlowDisk:
    def find_spec(self, name, path=None, target=None):
        if name == "nvidia.nvimgcodec":
            importing.set()
            time.sleep(1)

sys.meta_path.insert(0, SlowDisk())
importing = threading.Event()
threading.Thread(target=lambda: {load}, daemon=True).start()
importing.wait()
"""
    for device, load in {"cpu": "list(Loader(Memory(40), batch_size=8, threads=2))", "cuda": "nv()"}.items()
}

# Importing torch takes longer than the rest of a program. So a fork server imports it once and forks each program.
_FORK_SERVER = (
    _IMPORTS
    + """
import json, socket
_socket = socket.socket(fileno=int(sys.argv[1]))
while True:
    _body, _files, *_ = socket.recv_fds(_socket, 1 << 16, 2)
    if not _body:
        os._exit(0)
    _child = os.fork()
    if _child == 0:
        os.dup2(_files[0], 1)
        os.dup2(_files[1], 2)
    for _file in _files:
        os.close(_file)
    if _child == 0:
        _socket.close()
        break
    _socket.send(json.dumps(_child).encode())
    os.waitid(os.P_PID, _child, os.WEXITED | os.WNOWAIT)
    _at = clock(_child)
    _socket.send(json.dumps([os.waitstatus_to_exitcode(os.waitpid(_child, 0)[1]), _at]).encode())
exec(compile(_body, "<program>", "exec"))
"""
)


def clock(process: int) -> float:
    """A clock in seconds that stops while the process's main thread waits for a CPU.

    So a busy machine does not make a program late.
    """
    try:
        waited = int(Path(f"/proc/{process}/schedstat").read_text().split()[1])
    except OSError:  # not on every system
        waited = 0
    return time.monotonic() - waited / 1e9


class _ForkServer:
    """The process that forks the programs."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_SECONDS_TO_GIVE_UP)
        command = [*_PYTHON, "-X", "faulthandler", "-c", _FORK_SERVER, str(theirs.fileno())]
        self.process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
        theirs.close()

    def start(self, body: str, out: int, err: int) -> int:
        """Starts a program and returns its process id."""
        socket.send_fds(self._socket, [body.encode()], [out, err])
        return self.reply()

    def reply(self) -> Any:
        return json.loads(self._socket.recv(1 << 10))


@functools.cache
def _fork_server(device: str | None) -> _ForkServer:
    return _ForkServer()


class Ended(NamedTuple):
    """A program's exit code (negative for a signal) and its output after "ready"."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return (self.err.rstrip().splitlines() or [""])[-1]


class Program:
    """A running Python program, one at a time. It calls `ready()` right before the event that ends it.

    Args:
        body: its text, without common imports.
    """

    def __init__(self, body: str) -> None:
        self._fork_server = _fork_server(os.environ.get("CUAUG_DEVICE"))
        reading, writing = os.pipe()
        self._out = os.fdopen(reading)
        self._err = os.fdopen(os.memfd_create("err"), "r")
        self.process = self._fork_server.start(body, writing, self._err.fileno())
        os.close(writing)
        first = self.line()
        self._since = clock(self.process)
        if first != "ready":
            pytest.fail(f"the program ended early: {first!r}\n{self._ended()[0]}")

    def line(self) -> str:
        """The next line of its output."""
        return self._out.readline().rstrip("\n")

    def interrupt(self, after_seconds: float = 0.0) -> None:
        """Sends Ctrl-C, and starts the clock."""
        time.sleep(after_seconds)
        self._since = clock(self.process)
        os.kill(self.process, signal.SIGINT)

    def ends(self, within: float = SECONDS_TO_END) -> Ended:
        """Waits for its end, at most these seconds after "ready" or Ctrl-C."""
        ended, at = self._ended()
        assert at - self._since < within, f"ended only after {at - self._since:.1f} s: {ended}"
        return ended

    def _ended(self) -> tuple[Ended, float]:
        try:
            code, at = self._fork_server.reply()
        except TimeoutError:
            os.kill(self.process, signal.SIGABRT)  # faulthandler prints all stacks
            code, at = self._fork_server.reply()
        with self._out, self._err:
            self._err.seek(0)
            return Ended(code, self._out.read(), self._err.read()), at


def run(body: str) -> str:
    """The output of a program that ends without errors, in any time."""
    ended = Program("ready()\n" + body).ends(within=float("inf"))
    assert ended.code == 0 and ended.err == "", ended.err
    return ended.out


def run_apart(body: str, environment: Mapping[str, str]) -> str:
    """The same in a process of its own, with other environment variables."""
    ended = subprocess.run(
        [*_PYTHON, "-c", _IMPORTS + body],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_SECONDS_TO_GIVE_UP,
    )
    assert ended.returncode == 0 and ended.stderr == "", ended.stderr
    return ended.stdout
