"""Compiles the CUDA kernels with NVRTC through CuPy's binding. Needs no driver and no device."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

from cuaug._runtime.native import KERNEL_DIRECTORY
from cuaug._runtime.trusted_files import UntrustedError, cache_directory, warn_once
from cuaug.errors import DeviceError

__all__ = ["cached", "compile", "options", "sources"]

_HEADERS = ("*.h", "ops.def", "core/*.h", "cuda/*.h")
_DIGEST_BYTES = hashlib.sha256().digest_size
_MAX_BYTES = 1 << 28  # limit for a file of machine code; usual: 1 MB


def options(arch: int | str) -> list[str]:
    """NVRTC options for compute capability `arch` (75, 80, ...)."""
    return [
        f"--gpu-architecture=sm_{arch}",
        "--std=c++17",
        # Like -ffp-contract=off of the CPU build: products and sums are rounded one by one on every device.
        "--fmad=false",
        # Four blocks of 128 threads fit on a multiprocessor of every architecture, without spills.
        "--maxrregcount=128",
        # The log reports registers and spills.
        "--ptxas-options=-v",
    ]


def sources() -> tuple[str, dict[str, str]]:
    """The text of cuda/augment.cu, and its headers by name: the contract, core/ and cuda/."""
    paths = sorted(path for pattern in _HEADERS for path in KERNEL_DIRECTORY.glob(pattern))
    headers = {path.relative_to(KERNEL_DIRECTORY).as_posix(): path.read_text() for path in paths}
    return (KERNEL_DIRECTORY / "cuda" / "augment.cu").read_text(), headers


def compile(arch: int | str) -> tuple[bytes, str]:
    """Machine code (a cubin) for compute capability `arch`, and the compiler's log.

    Raises:
        DeviceError: CuPy or NVRTC is not installed, or the kernels do not compile.
    """
    nvrtc = _nvrtc()
    text, headers = sources()
    program = nvrtc.createProgram(
        text, "cuda/augment.cu", [header.encode() for header in headers.values()], [name.encode() for name in headers]
    )
    try:
        try:
            nvrtc.compileProgram(program, options(arch))
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            raise DeviceError(f"NVRTC cannot compile the kernels for sm_{arch}: {error}\n{log}") from error
        return nvrtc.getCUBIN(program), nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)


def cached(arch: int | str) -> bytes:
    """Machine code of `compile(arch)`, cached on disk in CUAUG_CACHE_DIR or the user's cache directory.

    Processes that start together may all compile. Each writes its own file and renames it into place, so a reader never
    sees a partial one. The file ends with its digest; a damaged file is replaced. Machine code that other users may
    have written is not loaded (cuaug/_runtime/trusted_files.py).
    """
    text, headers = sources()
    version = ".".join(map(str, _nvrtc().getVersion()))
    recipe = "\0".join([text, *headers.values(), *options(arch), version])
    name = f"augment-sm_{arch}-{hashlib.sha256(recipe.encode()).hexdigest()[:32]}.cubin"
    try:
        with cache_directory(make=False) as directory:
            kept = directory.read(name, limit=_MAX_BYTES)
        code, digest = kept[:-_DIGEST_BYTES], kept[-_DIGEST_BYTES:]
        if hashlib.sha256(code).digest() == digest:
            return code
    except UntrustedError as error:  # nothing else would reveal foreign machine code
        warn_once(error, "compiled kernels there are not used")
    except OSError:  # usually: no such file
        pass
    code, _ = compile(arch)
    with (  # without a writable, trusted disk every process compiles
        contextlib.suppress(OSError),
        cache_directory(make=True) as directory,
        directory.atomic_write(name, mode=0o644) as file,
    ):
        file.write(code + hashlib.sha256(code).digest())
    return code


def _nvrtc() -> Any:
    """Imports CuPy's binding of NVRTC."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()  # loads the library
    except (ImportError, RuntimeError) as error:
        raise DeviceError(
            f"the CUDA kernels need CuPy and NVRTC ({error}): `pip install 'cuaug[cuda12]'`, or cuda13, "
            "whichever torch was built for"
        ) from error
    return nvrtc
