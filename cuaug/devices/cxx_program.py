"""Compiles one program with a C++ compiler, as a shared library. It runs as a script, without importing cuaug.

    python -I cxx_program.py < REQUEST > LIBRARY

`make_request` makes REQUEST. LIBRARY ends with its SHA-256 digest. Errors go to stderr.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence


def make_request(text: str, command: Sequence[str]) -> bytes:
    """The input of the script: C++, and the compiler with its options."""
    return json.dumps([text, list(command)]).encode()


def _main() -> None:
    os.nice(10)  # training goes first
    # What the training ignores or blocks is inherited.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else the compiler's status is lost
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("it was ended"))  # so that the folder is removed
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    text, command = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="cuaug-") as folder:
        library = os.path.join(folder, "library.so")
        done = subprocess.run(
            [*command, "-x", "c++", "-", "-o", library],
            input=text.encode(),
            capture_output=True,
            env={**os.environ, "TMPDIR": folder},  # for the compiler's own files
        )
        if done.returncode:
            sys.exit(done.stderr.decode(errors="replace"))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # else the folder may be removed in part
        with open(library, "rb") as file:
            code = file.read()
    sys.stdout.buffer.write(code + hashlib.sha256(code).digest())


if __name__ == "__main__":
    _main()
