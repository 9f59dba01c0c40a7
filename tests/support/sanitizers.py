"""Runs programs with a sanitized library, and plants deliberate mistakes in a library.

A library with mistakes is compiled once; an environment variable selects the mistake when a process loads it.
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

ROOT = Path(__file__).parents[2]
ADDRESS = ["-g1", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
THREAD = ["-g1", "-fsanitize=thread", "-DCUAUG_BLOCK_THREADS=4"]

# In a line of a kernel file: {right <> wrong}.
CHOICE = re.compile(r"\{([^{}]*) <> ([^{}]*)\}")

# Imports slow modules once, then forks a child per mistake, which loads the library.
EACH = """
import os, sys
folder, prepare, work, *mistakes = sys.argv[1:]
exec(prepare)
for mistake in mistakes:
    if not (child := os.fork()):
        output = os.open(f"{folder}/{mistake}", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1), os.dup2(output, 2)
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


def compile_address(folder: Path, includes: list[str], flags: list[str]) -> Path:
    """Compiles a library of the kernels' headers under AddressSanitizer and UndefinedBehaviorSanitizer."""
    source, library = folder / "headers.cpp", folder / "headers.so"
    lines = "".join(f'#include "{name}"\n' for name in includes)
    source.write_text(f'#define EXPORT __attribute__((visibility("default")))\n{lines}')
    options = ["-std=c++17", "-fPIC", "-shared", *ADDRESS, f"-I{KERNEL_DIRECTORY}", *flags]
    subprocess.run([os.environ.get("CXX", "g++"), *options, str(source), "-o", str(library)], check=True)
    return library


def run(library: Path, preload: str, program: list[str]) -> tuple[int, str]:
    """The exit status and the output of a Python program with this library and a sanitizer."""
    environment = os.environ | {
        # libstdc++ too: a sanitizer that finds it later does not know the exceptions of other libraries.
        "LD_PRELOAD": f"{_runtime(preload)} {_runtime('libstdc++.so.6')}",
        "CUAUG_KERNEL_LIBRARY": str(library),
        "PYTHONPATH": str(ROOT),
        # Python frees some memory only at exit. GCC 13 misaligns objects that it moves off the stack (bug 110027).
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": f"halt_on_error=1:suppressions={Path(__file__).with_name('thread_sanitizer.supp')}",
        "OPENBLAS_NUM_THREADS": "1",
    }
    # Without address randomization where possible: with it, ThreadSanitizer cannot always place its own memory.
    prefix = ["setarch", "-R"]
    if not shutil.which("setarch") or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        prefix = []
    command = [*prefix, sys.executable, *program]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def plant_mistakes(folder: Path, mistakes: Mapping[str, tuple[str, str]]) -> list[str]:
    """Copies the kernels to `folder` and adds mistakes; CUAUG_MISTAKE selects one by its number.

    Args:
        mistakes: by name, in the order of their numbers: a file, and a line of it with {right <> wrong}.

    Returns:
        extra compiler flags. In the sources, `mistake` is the selected number.
    """
    shutil.copytree(KERNEL_DIRECTORY, folder)
    for number, (file, line) in enumerate(mistakes.values()):
        choice = CHOICE.sub(rf"(mistake == {number} ? (\2) : (\1))", line)
        replace_once(folder, file, CHOICE.sub(r"\1", line), choice)
    header = folder / "mistake.h"
    header.write_text('#include <cstdlib>\nstatic const int mistake = atoi(getenv("CUAUG_MISTAKE"));\n')
    return ["-include", str(header)]


def run_each(
    library: Path, preload: str, prepare: str, work: str, mistakes: Mapping[str, int], folder: Path
) -> dict[str, tuple[int, str]]:
    """By the name of each mistake: the exit status and the output of Python code that makes it.

    Args:
        prepare: Python code that runs once, before any process loads the library.
        work: Python code that runs once per mistake.
        mistakes: numbers by name; a number without a mistake selects none.
        folder: for files.
    """
    (files := folder / "output").mkdir()
    status, output = run(library, preload, ["-c", EACH, str(files), prepare, work, *map(str, mistakes.values())])
    assert status == 0, output
    statuses = dict(map(int, line.split()) for line in output.splitlines())
    return {name: (statuses[number], (files / str(number)).read_text()) for name, number in mistakes.items()}
