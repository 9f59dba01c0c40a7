"""Compiles one program with a C++ compiler, as a shared library. It runs as a script, without importing cuaug.

    python -I cxx_program.py < REQUEST > LIBRARY

`make_request` makes REQUEST. Errors go to stderr.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

__all__ = ["make_request"]


def make_request(text: str, command: Sequence[str]) -> bytes:
    """The input of the script: C++, and the compiler with its options."""
    return json.dumps([text, list(command)]).encode()


def _main() -> None:
    os.nice(10)  # training goes first
    text, command = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="cuaug-") as folder:
        library = os.path.join(folder, "library.so")
        done = subprocess.run([*command, "-x", "c++", "-", "-o", library], input=text.encode(), capture_output=True)
        if done.returncode:
            sys.exit(done.stderr.decode(errors="replace"))
        with open(library, "rb") as file:
            sys.stdout.buffer.write(file.read())


if __name__ == "__main__":
    _main()
