"""Builds the CPU kernels and adds the kernel sources, which NVRTC compiles at run time, to the wheel.

The library is plain C behind ctypes: one build serves every Python 3, so the wheel is tagged py3-none-<platform>.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

KERNELS = Path(__file__).parent / "kernels"
# No fused multiply-adds and no reassociation: every processor computes the same bits. errno and floating-point
# exceptions are never read, so selects need no branch.
FLAGS = ["-O3", "-std=c++17", "-pthread", "-fPIC", "-fvisibility=hidden", "-Wno-psabi"]
FLAGS += ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
# One translation unit of small functions: by default GCC stops inlining when it has grown by 40 percent.
FLAGS += ["--param", "inline-unit-growth=100"]
LINK_FLAGS = ["-Xlinker", f"--version-script={KERNELS}/cpu/exports.map"]
X86_ISAS = {
    "avx2": ["-mavx2"],
    # Intel since Ice Lake, AMD since Zen 4. 64-byte registers only where the kernels ask for them.
    "avx512": ["-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vbmi", "-mprefer-vector-width=256"],
}


def compiler() -> list[str]:
    """The words of CXX, which may name a cross compiler or clang."""
    words = shlex.split(os.environ.get("CXX", "g++"))
    if shutil.which(words[0]) is None:
        sys.exit(
            f"cuaug: building from source needs a C++17 compiler and {words[0]!r} was not found: "
            "`apt-get install g++`, or set CXX to the one to use"
        )
    return words


def target_machine() -> str:
    """The processor that the compiler compiles for, such as x86_64 or aarch64."""
    done = subprocess.run([*compiler(), "-dumpmachine"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"cuaug: {shlex.join(compiler())} -dumpmachine failed: {done.stderr}")
    return done.stdout.partition("-")[0]


def isas() -> dict[str, list[str]]:
    """The compiler's options for each instruction set of the target."""
    return {"baseline": []} | (X86_ISAS if target_machine() == "x86_64" else {})


def sources_checksum() -> int:
    """Checksum of the library's sources; cuaug/_runtime/native.py computes the same."""
    checksum = 0
    for path in sorted(
        path for path in KERNELS.glob("**/*.*") if path.suffix in (".h", ".cpp", ".def") and path.name[0] != "."
    ):
        checksum = zlib.crc32(path.read_bytes(), zlib.crc32(path.relative_to(KERNELS).as_posix().encode(), checksum))
    return checksum


class BuildKernels(build_ext):
    """Compiles cpu/run.cpp per instruction set and cpu/c_api.cpp, which selects one at run time, and links them."""

    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", "/") + ".so"

    def build_extension(self, ext: Extension) -> None:
        cxx = compiler()
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        extra = os.environ.get("CUAUG_CXXFLAGS", "").split()
        with tempfile.TemporaryDirectory() as scratch:
            have = [f"-DCUAUG_HAS_{isa.upper()}" for isa in isas()] + [f"-DCUAUG_SOURCES={sources_checksum()}u"]
            units = [("cpu/run.cpp", isa, [*flags, f"-DCUAUG_ISA={isa}"]) for isa, flags in isas().items()]
            units.append(("cpu/c_api.cpp", "c_api", have))
            objects = [f"{scratch}/{name}.o" for _, name, _ in units]
            commands = [
                [*cxx, *FLAGS, *flags, *extra, f"-I{KERNELS}", "-c", KERNELS / source, "-o", object_file]
                for (source, _, flags), object_file in zip(units, objects, strict=True)
            ]
            with ThreadPoolExecutor(os.cpu_count()) as pool:  # most of the time of an installation
                list(pool.map(self._run, commands))
            self._run([*cxx, *FLAGS, *LINK_FLAGS, *extra, "-shared", *objects, "-o", target])

    @staticmethod
    def _run(command: list[object]) -> None:
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"cuaug: the C++ compiler failed on the CPU kernels: {' '.join(words)}\n{done.stderr}")


class BuildPython(build_py):
    """Copies kernels/ to cuaug/_kernels/; an editable install reads kernels/ in place."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            shutil.copytree(KERNELS, Path(self.build_lib) / "cuaug" / "_kernels", dirs_exist_ok=True)


class AnyPython3(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        # The platform of the library: a cross compiler may have made it.
        return "py3", "none", super().get_tag()[2].replace(platform.machine(), target_machine())


class Binary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    ext_modules=[Extension("cuaug._kernels", sources=[])],
    cmdclass={"build_ext": BuildKernels, "build_py": BuildPython, "bdist_wheel": AnyPython3},
    distclass=Binary,
)
