"""Builds of the host library other than the installed one, with setup.py's flags."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
from pathlib import Path
from unittest import mock

from cuaug._runtime.native import KERNEL_DIRECTORY

SETUP = Path(__file__).parents[2] / "setup.py"
#: Makes x86-64's compiler compile what it does for other processors, with `char` as aarch64 has it; for "baseline".
PORTABLE = ["-U__SSE2__", "-funsigned-char"]


def build(target: Path, extra: list[str], *, kernels: Path = KERNEL_DIRECTORY, isas: tuple[str, ...] = ()) -> Path:
    """Compiles the library of `kernels` into `target`; `extra` flags come last. All instruction sets, or `isas`."""
    with mock.patch("setuptools.setup"):
        names = runpy.run_path(str(SETUP))
    compiler = os.environ.get("CXX", "g++")
    chosen = {isa: flags for isa, flags in names["ISAS"].items() if not isas or isa in isas}
    flags = [*names["FLAGS"], *extra, f"-I{kernels}"]
    objects, running = [], []
    for isa, own in chosen.items():
        objects.append(target.with_suffix(f".{isa}.o"))
        command = [compiler, *flags, *own, f"-DCUAUG_ISA={isa}", "-c", kernels / "cpu/run.cpp", "-o", objects[-1]]
        running.append(subprocess.Popen(command))
    assert [process.wait() for process in running] == [0] * len(running), "the host kernels do not compile"
    have = [f"-DCUAUG_HAS_{isa.upper()}" for isa in chosen]
    command = [compiler, *flags, *have, "-shared", kernels / "cpu/c_api.cpp", *objects, "-o", target]
    subprocess.run(command, check=True)
    return target


def patched(folder: Path, file: str, old: str, new: str) -> Path:
    """A copy of the kernels in `folder` in which `old`, which occurs once in `file`, reads `new`."""
    shutil.copytree(KERNEL_DIRECTORY, folder)
    replace_once(folder, file, old, new)
    return folder


def replace_once(folder: Path, file: str, old: str, new: str) -> None:
    """In a copy of the kernels."""
    text = (folder / file).read_text()
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in kernels/{file}: adapt this test"
    (folder / file).write_text(text.replace(old, new))
