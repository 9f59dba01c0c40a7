"""Starts training programs, alone or under torchrun, and ends all their processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parents[3]


class Launch:
    """`python -m module folder arguments` in one process; or under torchrun, in `world_size` of them.

    Each process calls `begin`, so that it can be found, and killed. Their output goes to a file in `folder`.
    """

    def __init__(self, module: str, folder: Path, *arguments: str, world_size: int | None = None) -> None:
        self.folder = folder
        folder.mkdir()
        command = [sys.executable]
        if world_size is not None:
            # By address: some machines cannot resolve their own name.
            here = ["--standalone", "--local-addr=127.0.0.1"]
            command += ["-m", "torch.distributed.run", *here, f"--nproc-per-node={world_size}"]
        with (folder / "output").open("w") as output:
            self.process = subprocess.Popen(
                [*command, "-m", module, str(folder), *arguments],
                cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    @property
    def pids(self) -> list[int]:
        """Process ids by rank, of processes that have started."""
        return [int(path.read_text()) for path in sorted(self.folder.glob("*.pid"))]

    def wait(self, seconds: float = 600.0) -> int:
        """The exit status of the program or of torchrun, which ends last."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds:.0f} s\n{self.output}")

    def wait_until(self, happened: Callable[[], bool], seconds: float = 600.0) -> None:
        end = time.monotonic() + seconds
        while not happened():
            if self.process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"it ended, or {seconds:.0f} s have passed\n{self.output}")
            time.sleep(0.01)

    def __enter__(self) -> Launch:
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.process.poll() is None:
            for pid in self.pids:
                os.kill(pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()


def begin(folder: Path, rank: int) -> None:
    """Writes this process's id for the launcher."""
    write(folder / f"{rank}.pid", str(os.getpid()))


def write(path: Path, text: str) -> None:
    """Writes a file atomically: readers see the old or the new text, also after a kill."""
    path.with_suffix(f".{os.getpid()}").write_text(text)
    path.with_suffix(f".{os.getpid()}").replace(path)


def leave() -> NoReturn:
    """Ends a program that has used torch.distributed, its work done.

    On a busy machine one orderly exit of a dozen aborts after DistributedDataParallel over gloo, also where nothing but
    PyTorch was used: "terminate called without an active exception".
    """
    sys.stdout.flush()
    os._exit(0)
