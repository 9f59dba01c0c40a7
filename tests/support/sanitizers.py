"""Running programs with a library that has a sanitizer, and libraries that can make deliberate mistakes.

Such a library is compiled once. Which mistake it makes, the environment tells when a process loads it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cuaug._runtime.native import KERNEL_DIRECTORY
from tests.support.builds import replace_once

__all__ = ["ADDRESS", "ROOT", "THREAD", "each", "planted", "run"]

ROOT = Path(__file__).parents[2]
ADDRESS = ["-g1", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
THREAD = ["-g1", "-fsanitize=thread", "-DCUAUG_BLOCK_THREADS=4"]

# In a line of a kernels' file: {what is right <> what is wrong}.
CHOICE = re.compile(r"\{([^{}]*) <> ([^{}]*)\}")

# What takes long to import is imported once, before a child for each mistake loads the library.
EACH = """
import os, sys
folder, prepare, work, *mistakes = sys.argv[1:]
exec(prepare)
for mistake in mistakes:
    if not (child := os.fork()):
        said = os.open(f"{folder}/{mistake}", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1), os.dup2(said, 2)
        os.environ["CUAUG_MISTAKE"] = mistake
        exec(work)
        break
    print(mistake, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def _runtime(name: str) -> str:
    compiler = os.environ.get("CXX", "g++")
    path = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
    if "/" not in path:
        pytest.skip(f"the compiler has no {name}")
    return path.strip()


def run(library: Path, preload: str, program: list[str]) -> tuple[int, str]:
    """The exit status of a program of Python's with this library and a sanitizer, and what it said."""
    environment = os.environ | {
        # And C++, for the exceptions of other libraries: a sanitizer that finds it only later does not know them.
        "LD_PRELOAD": f"{_runtime(preload)} {_runtime('libstdc++.so.6')}",
        "CUAUG_KERNEL_LIBRARY": str(library),
        "PYTHONPATH": str(ROOT),
        # Python leaves some of its own memory to the exit. GCC 13 misaligns what it moves off the stack (bug 110027).
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    # Without address randomisation, if that can be had: with it ThreadSanitizer cannot always place its own memory.
    steady = ["setarch", "-R"]
    if not shutil.which("setarch") or subprocess.run([*steady, "true"], capture_output=True).returncode:
        steady = []
    command = [*steady, sys.executable, *program]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def planted(folder: Path, mistakes: Mapping[str, tuple[str, str]]) -> list[str]:
    """Copies the kernels to `folder`, and has them make the mistake that CUAUG_MISTAKE has the number of, if any.

    Args:
        mistakes: by name and in the order of their numbers, a file and a line of it with {what is right <> what is
            wrong}.

    Returns:
        what the compiler is to be told besides. Within the sources, `mistake` is that number.
    """
    shutil.copytree(KERNEL_DIRECTORY, folder)
    for number, (file, line) in enumerate(mistakes.values()):
        either = CHOICE.sub(rf"(mistake == {number} ? (\2) : (\1))", line)
        replace_once(folder, file, CHOICE.sub(r"\1", line), either)
    chosen = folder / "mistake.h"
    chosen.write_text('#include <cstdlib>\nstatic const int mistake = atoi(getenv("CUAUG_MISTAKE"));\n')
    return ["-include", str(chosen)]


def each(
    library: Path, preload: str, prepare: str, work: str, mistakes: Mapping[str, int], folder: Path
) -> dict[str, tuple[int, str]]:
    """By the name of each mistake, the exit status of a piece of Python that makes it, and what was said.

    Args:
        prepare: Python that runs once, before any process loads the library.
        mistakes: their numbers; any other is none.
        folder: for files.
    """
    (files := folder / "said").mkdir()
    status, said = run(library, preload, ["-c", EACH, str(files), prepare, work, *map(str, mistakes.values())])
    assert status == 0, said
    statuses = dict(map(int, line.split()) for line in said.splitlines())
    return {name: (statuses[number], (files / str(number)).read_text()) for name, number in mistakes.items()}
