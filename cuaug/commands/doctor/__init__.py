"""`cuaug doctor`: checks an installation and prints a command that fixes each problem.

The checks run one by one in a child process. A library that crashes or hangs costs one check: the child is started
again for the remaining ones. The parent imports only the standard library.

checks.py  the checks, each with its remedy
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from cuaug.commands.doctor.checks import CHECKS, Broken, NotTried, one_line

__all__ = ["Finding", "examine", "report"]

# Longer than any check takes, with a cold disk and kernels to compile.
_LIMIT_SECONDS = 300.0
_MARK = "cuaug-doctor:"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        needed_by: "CPU"; "GPU" if only the GPU path needs it, "video" if only clips of videos do.
        name: the checked component.
        verdict: "OK", "no", or "--" if another problem must be fixed first.
        text: one line of explanation.
        fix: the command or action that fixes it.
    """

    needed_by: str
    name: str
    verdict: str
    text: str
    fix: str = ""


def _check(number: int) -> Finding:
    needed_by, name, run = CHECKS[number]
    try:
        return Finding(needed_by, name, "OK", run())
    except Broken as error:
        return Finding(needed_by, name, "no", one_line(error), error.args[1])
    except NotTried as error:
        return Finding(needed_by, name, "--", f"not tried: {one_line(error)}")
    except BaseException as error:  # the next check runs after any error
        return Finding(needed_by, name, "no", one_line(error), "fix the problems above; if this one remains, report it")


def _run_from(first: int) -> None:
    """The child: runs the checks from number `first` on and prints a line of JSON for each."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps the output of libraries apart
    for number in range(first, len(CHECKS)):
        out.write(f"{_MARK}{json.dumps(asdict(_check(number)))}\n")
        out.flush()
    os._exit(0)  # no library can crash at exit


def examine(limit_seconds: float = _LIMIT_SECONDS) -> Iterator[Finding]:
    """Runs the checks one by one; a crash or a timeout is a finding too."""
    done = 0
    while done < len(CHECKS):
        for finding in _examine_from(done, limit_seconds):
            done += 1
            yield finding


def _examine_from(first: int, limit_seconds: float) -> Iterator[Finding]:
    """Findings from number `first` on, up to a check that ended the child."""
    program = f"from cuaug.commands import doctor; doctor._run_from({first})"
    # Finds this copy of the package from any working folder.
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parents[3])]
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert child.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read(pipe: TextIO) -> None:
        for line in pipe:
            lines.put(line)
        lines.put("")

    reader = threading.Thread(target=read, args=[child.stdout], daemon=True)
    reader.start()
    try:
        for number in range(first, len(CHECKS)):
            try:
                line = lines.get(timeout=limit_seconds)
            except queue.Empty:
                yield _ended(number, f"no answer in {limit_seconds:.0f} s")
                return
            if not line.startswith(_MARK):
                yield _ended(number, f"this check ended its process {_how(child.wait())}")
                return
            yield Finding(**json.loads(line[len(_MARK) :]))
    finally:
        child.kill()
        child.wait()
        reader.join()
        child.stdout.close()


def _how(status: int) -> str:
    with contextlib.suppress(ValueError):
        return f"by {signal.Signals(-status).name}"
    return f"with status {status}"


def _ended(number: int, text: str) -> Finding:
    needed_by, name, _ = CHECKS[number]
    return Finding(needed_by, name, "no", text, f"reinstall {name} if it is a package; else report it")


def report(findings: Iterable[Finding], out: TextIO) -> dict[str, bool]:
    """Prints findings as they come; returns whether the "CPU" and "GPU" paths, and other groups found, work."""
    works, path = {"CPU": True, "GPU": True}, ""
    for finding in findings:
        if finding.needed_by != path:
            path = finding.needed_by
            print(path, file=out)
        works[path] = works.get(path, True) and finding.verdict == "OK"
        print(f"  {finding.verdict:2}  {finding.name:13} {finding.text}", file=out)
        if finding.fix:
            print(f"      {'':13} fix: {finding.fix}", file=out)
        out.flush()
    works["GPU"] &= works["CPU"]
    if works["GPU"]:
        summary = "loading works on the GPU and the CPU"
    elif works["CPU"]:
        summary = "loading works on the CPU; for the GPU, fix the first 'no' above"
    else:
        summary = "loading does not work; fix the first 'no' above"
    print(f"\n{summary}", file=out)
    return works
