"""Builds of the kernel library with setup.py's flags and more."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from cuaug._runtime.native import KERNEL_DIRECTORY

SETUP = Path(__file__).parents[2] / "setup.py"
#: Compiles the portable code on x86-64, with `char` unsigned as on aarch64; for "baseline".
PORTABLE = ["-U__SSE2__", "-funsigned-char"]


def build(target: Path, extra: list[str], *, kernels: Path = KERNEL_DIRECTORY, isas: tuple[str, ...] = ()) -> Path:
    """Compiles the library from `kernels` to `target`, for all instruction sets or `isas`; `extra` flags come last."""
    with mock.patch("setuptools.setup"):
        names = runpy.run_path(str(SETUP))
    compiler = names["compiler"]()
    chosen = {isa: flags for isa, flags in names["isas"]().items() if not isas or isa in isas}
    flags = [*names["FLAGS"], *extra, f"-I{kernels}"]
    objects, running = [], []
    for isa, own in chosen.items():
        objects.append(target.with_suffix(f".{isa}.o"))
        command = [*compiler, *flags, *own, f"-DCUAUG_ISA={isa}", "-c", kernels / "cpu/run.cpp", "-o", objects[-1]]
        running.append(subprocess.Popen(command))
    assert [process.wait() for process in running] == [0] * len(running), "the CPU kernels do not compile"
    have = [f"-DCUAUG_HAS_{isa.upper()}" for isa in chosen]
    command = [*compiler, *flags, *have, "-shared", kernels / "cpu/c_api.cpp", *objects, "-o", target]
    subprocess.run(command, check=True)
    return target


def compile_emulation(source: Path, folder: Path, kernels: Path = KERNEL_DIRECTORY, extra: Sequence[str] = ()) -> Path:
    """Compiles CUDA kernels for a CPU, from a C++ file of tests/support; `extra` flags come last."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"no compiler: {compiler}")
    target = folder / "emulated.so"
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-w", "-fsanitize=alignment"]
    subprocess.run([compiler, *flags, *extra, f"-I{kernels}", "-c", str(source), "-o", f"{target}.o"], check=True)
    subprocess.run([compiler, "-shared", f"{target}.o", "-o", str(target)], check=True)
    return target


def copy_patched(folder: Path, file: str, old: str, new: str) -> Path:
    """Copies the kernels to `folder` with `old`, which occurs once in `file`, replaced by `new`."""
    shutil.copytree(KERNEL_DIRECTORY, folder)
    replace_once(folder, file, old, new)
    return folder


def replace_once(folder: Path, file: str, old: str, new: str) -> None:
    """Replaces `old`, which occurs once, in a file of a copy of the kernels."""
    text = (folder / file).read_text()
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in kernels/{file}: adapt this test"
    (folder / file).write_text(text.replace(old, new))
