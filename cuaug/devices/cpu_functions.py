"""Pixel functions compiled for the CPU, in the background.

The library's interpreter runs any pixel function. Where the user has a C++ compiler (CXX, c++, g++ or clang++), each
function is also compiled, by a process of its own, one after the other; until it is there, the interpreter computes the
same bits. `CUAUG_CACHE_DIR` or the user's cache directory keeps the code. CUAUG_SPECIALIZE=0 turns this off.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import tempfile
from pathlib import Path

from cuaug._runtime.fork import fork_safe_lock, renew_after_fork
from cuaug._runtime.native import BEST_ISA, ISAS, KERNEL_DIRECTORY
from cuaug._runtime.threads import call_at_exit
from cuaug.devices import cxx_program
from cuaug.devices.background import BackgroundProcess, read_code, write_code
from cuaug.errors import DeviceError
from cuaug.plan import CompiledPlan
from cuaug.plan.pixel_function import PixelFunction

log = logging.getLogger("cuaug")

#: As in setup.py: no fused multiply-adds and no reassociation, so the bits are those of the library.
FLAGS = ["-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-Wno-psabi"]
FLAGS += ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
ISA_FLAGS: dict[str, list[str]] = {
    "baseline": [],
    "avx2": ["-mavx2"],
    "avx512": ["-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vbmi", "-mprefer-vector-width=256"],
}
_COMPILERS = ("c++", "g++", "clang++")
_MAX_BYTES = 1 << 24  # limit for a library; usual: 20 KB
_PROGRAM = """
#include <cstdint>
#include <cstdlib>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif
namespace cuaug {{
#define CUAUG_COMPILED_FUNCTION
#include "cpu/philox_avx2.h"
#include "core/pixel_function.h"
{source}
extern "C" __attribute__((visibility("default"))) void cuaug_pixel_function(
    const Op* op, const Sample* sample, const Place* at, float (*v)[PIXELS]) {{
    {name}(*op, *sample, *at, *reinterpret_cast<PixelBlock*>(v));
}}
}}
"""

# Of this process, by the function's number; 0 without a compiler.
_addresses: dict[int, int] = {}
_libraries: list[ctypes.CDLL] = []  # never unloaded: plans hold addresses
_running: tuple[PixelFunction, BackgroundProcess] | None = None  # one at a time
_failed = False
_lock = fork_safe_lock()


def with_compiled_functions(compiled: CompiledPlan) -> CompiledPlan:
    """The plan with addresses of compiled pixel functions, for the CPU; 0 where there is none yet."""
    if not compiled.functions:
        return compiled
    ops = compiled.ops.copy()
    numbers = compiled.ops["function"]
    for function in compiled.functions:
        ops["function"][numbers == function.number] = _address(function)
    return dataclasses.replace(compiled, ops=ops, functions=())


def _address(function: PixelFunction) -> int:
    """The address of a function's code; 0 until it is compiled, in turn with others."""
    global _failed
    with _lock:
        if function.number not in _addresses and not _failed and os.environ.get("CUAUG_SPECIALIZE") != "0":
            try:
                _advance(function)
            except (DeviceError, OSError) as error:
                _failed = True
                log.warning("no pixel functions are compiled, so the slower interpreter runs them: %s", error)
        return _addresses.get(function.number, 0)


def _advance(function: PixelFunction) -> None:
    """Loads what a process has compiled, or the function from the disk; else starts its compilation."""
    global _running
    if _running is not None:
        other, process = _running
        code = process.poll()
        if code is None:
            return
        _running = None
        _load(other, code)  # first: code that does not load is not kept
        write_code(_file_name(other), code)
    if function.number in _addresses:
        return
    if (cached := _read_cached(function)) is not None:
        _load(function, cached)
    elif (command := _compiler()) is not None:
        request = cxx_program.make_request(_text(function), [*command, *_flags()])
        _running = function, BackgroundProcess(cxx_program.__file__, request)
    else:
        _addresses[function.number] = 0  # the disk is not asked again


def _text(function: PixelFunction) -> str:
    return _PROGRAM.format(source=function.source, name=function.name)


def _flags() -> list[str]:
    isa = next(name for name, number in ISAS.items() if number == BEST_ISA)
    return [*FLAGS, *ISA_FLAGS[isa], f"-I{KERNEL_DIRECTORY}", "-shared"]


@functools.cache
def _compiler() -> tuple[str, ...] | None:
    """The words of CXX, or the first usual compiler; None without one."""
    words = shlex.split(os.environ.get("CXX", ""))
    names = words[:1] or list(_COMPILERS)
    found = next((name for name in names if shutil.which(name)), None)
    return None if found is None else (found, *words[1:])


def _load(function: PixelFunction, code: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="cuaug-") as folder:
        path = Path(folder, f"{function.name}.so")
        path.write_bytes(code)
        library = ctypes.CDLL(str(path))
    _libraries.append(library)
    _addresses[function.number] = ctypes.cast(library.cuaug_pixel_function, ctypes.c_void_p).value or 0


# --- the disk ---------------------------------------------------------------------------------------------------------


@functools.cache
def _headers() -> bytes:
    """Digest of the kernel headers that a function is compiled with."""
    digest = hashlib.sha256()
    for path in sorted(KERNEL_DIRECTORY.glob("**/*.*")):
        if path.suffix in (".h", ".def"):
            digest.update(path.read_bytes())
    return digest.digest()


def _file_name(function: PixelFunction) -> str:
    recipe = [_text(function), *_flags(), *(_compiler() or ()), platform.machine(), platform.libc_ver()[0]]
    digest = hashlib.sha256("\0".join(recipe).encode() + _headers()).hexdigest()[:32]
    return f"{function.name}-{digest}.so"


def _read_cached(function: PixelFunction) -> bytes | None:
    return read_code(_file_name(function), _MAX_BYTES, "compiled pixel functions there are not used")


def _kill_running() -> None:
    """At exit nothing waits for a compilation."""
    if _running is not None:
        _running[1].kill()


def _renew() -> None:
    """In a forked child: the process belongs to the parent. Loaded code stays."""
    global _running
    _running = None


call_at_exit(_kill_running)
renew_after_fork(_renew)
