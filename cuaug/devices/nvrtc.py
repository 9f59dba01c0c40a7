"""Compiles the CUDA kernels with NVRTC through CuPy's binding. Needs no driver and no device."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from typing import Any

from cuaug._runtime.disk import UntrustedError, cache_directory, warn_once
from cuaug._runtime.native import KERNEL_DIRECTORY
from cuaug.devices.nvrtc_program import compile_program
from cuaug.errors import DeviceError
from cuaug.plan.pixel_function import PixelFunction

__all__ = ["cached", "code_target", "compile", "options", "read_cached", "register_limits", "sources"]
__all__ += ["write_cached"]

_HEADERS = ("*.h", "*.def", "core/*.h", "cuda/*.h")
_DIGEST_BYTES = hashlib.sha256().digest_size
_MAX_BYTES = 1 << 28  # limit for a file of machine code; usual: 1 MB
# GPUs that share a chip with a CPU (Jetson, Thor) run no machine code of other GPUs, and other GPUs run none of theirs.
_INTEGRATED = frozenset({53, 62, 72, 87, 88, 101, 110})


def code_target(arch: int | str) -> str:
    """NVRTC's name for the code that runs on compute capability `arch` (75, 80, ...).

    It is machine code ("sm_90") of `arch`, or of an earlier one with the same major version, which is compatible. Else
    it is PTX ("compute_90") of the newest earlier one, which the driver compiles.

    Reference: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility".

    Raises:
        DeviceError: CuPy or NVRTC is not installed, or NVRTC no longer knows such an old GPU.
    """
    nvrtc, arch = _nvrtc(), int(arch)
    known = nvrtc.getSupportedArchs()
    if arch in known:
        return f"sm_{arch}"
    earlier = [other for other in known if other < arch and other not in _INTEGRATED]
    if not earlier:
        version = ".".join(map(str, nvrtc.getVersion()))
        raise DeviceError(
            f"NVRTC {version} compiles for compute capability {min(known) / 10} and newer, but this GPU has "
            f"{arch / 10}: install torch and cuaug for an earlier version of CUDA, or use device='cpu'"
        )
    newest = max(earlier)
    is_compatible = newest // 10 == arch // 10 and arch not in _INTEGRATED
    return f"sm_{newest}" if is_compatible else f"compute_{newest}"


def options(target: str, defines: Sequence[str] = ()) -> list[str]:
    """NVRTC options for a target of `code_target`, with macros such as "NAME=1"; `register_limits` adds one more."""
    return [
        f"--gpu-architecture={target}",
        "--std=c++17",
        # Like -ffp-contract=off of the CPU build: products and sums are rounded one by one on every device.
        "--fmad=false",
        # The log reports registers and spills.
        "--ptxas-options=-v",
        *(f"--define-macro={define}" for define in defines),
    ]


def register_limits(defines: Sequence[str]) -> list[int]:
    """Limits for the registers of a thread; the first that spills none to memory is taken.

    Four blocks of 128 threads fit on a multiprocessor of every architecture with 128 registers, six with 80, eight with
    64. The kernels for everything spill some with fewer than 128.
    """
    return [64, 80, 128] if defines else [128]


def sources(program: str = "augment", functions: Sequence[PixelFunction] = ()) -> tuple[str, dict[str, str]]:
    """The text of a program, kernels/cuda/<program>.cu, and its headers by name: the contracts, core/ and cuda/.

    Args:
        functions: pixel functions, for a header of their own, which the macro CUAUG_PIXEL_FUNCTIONS includes.
    """
    paths = sorted(path for pattern in _HEADERS for path in KERNEL_DIRECTORY.glob(pattern))
    headers = {path.relative_to(KERNEL_DIRECTORY).as_posix(): path.read_text() for path in paths}
    if functions:
        headers["pixel_functions.h"] = _functions_header(functions)
    return (KERNEL_DIRECTORY / "cuda" / f"{program}.cu").read_text(), headers


def _functions_header(functions: Sequence[PixelFunction]) -> str:
    """The functions in C++, and their dispatch by number."""
    lines = [function.source for function in functions]
    lines.append("DEVICE void run_compiled(const Op& op, const Sample& sample, Place at, PixelBlock& v) {")
    *others, last = functions  # no launch has further ones
    for function in others:
        lines.append(f"    if (op.function == {function.number:#x}ull) return {function.name}(op, sample, at, v);")
    return "\n".join([*lines, f"    {last.name}(op, sample, at, v);", "}", ""])


def compile(
    arch: int | str,
    defines: Sequence[str] = (),
    program: str = "augment",
    functions: Sequence[PixelFunction] = (),
) -> tuple[bytes, str]:
    """Machine code (a cubin) or PTX for compute capability `arch`, and the compiler's log.

    Args:
        defines: macros of kernels/cuda/augment.cu and kernels/core/signature.h.
        program: of kernels/cuda/.
        functions: as of `sources`.

    Raises:
        DeviceError: as of `code_target`, or the kernels do not compile.
    """
    nvrtc, target = _nvrtc(), code_target(arch)
    try:
        return compile_program(nvrtc, *sources(program, functions), options(target, defines), register_limits(defines))
    except RuntimeError as error:
        raise DeviceError(f"NVRTC cannot compile the kernels for {target}: {error}") from error


def cached(
    arch: int | str, defines: Sequence[str] = (), program: str = "augment", functions: Sequence[PixelFunction] = ()
) -> bytes:
    """The code of `compile`, cached on disk in CUAUG_CACHE_DIR or the user's cache directory.

    Processes that start together may all compile. Each writes its own file and renames it into place, so a reader never
    sees a partial one. The file ends with its digest; a damaged file is replaced. Machine code that other users may
    have written is not loaded (cuaug/_runtime/disk.py).
    """
    code = read_cached(arch, defines, program, functions)
    if code is None:
        code, _ = compile(arch, defines, program, functions)
        write_cached(arch, defines, code, program, functions)
    return code


def read_cached(
    arch: int | str, defines: Sequence[str], program: str = "augment", functions: Sequence[PixelFunction] = ()
) -> bytes | None:
    """The code of `compile` from the disk; None if it is not there."""
    try:
        with cache_directory(make=False) as directory:
            kept = directory.read(_file_name(arch, defines, program, functions), limit=_MAX_BYTES)
        code, digest = kept[:-_DIGEST_BYTES], kept[-_DIGEST_BYTES:]
        return code if hashlib.sha256(code).digest() == digest else None
    except UntrustedError as error:  # nothing else would reveal foreign machine code
        warn_once(error, "compiled kernels there are not used")
    except OSError:  # usually: no such file
        pass
    return None


def write_cached(
    arch: int | str,
    defines: Sequence[str],
    code: bytes,
    program: str = "augment",
    functions: Sequence[PixelFunction] = (),
) -> None:
    """Keeps the code of `compile` for `read_cached`."""
    with (  # without a writable, trusted disk every process compiles
        contextlib.suppress(OSError),
        cache_directory(make=True) as directory,
        directory.atomic_write(_file_name(arch, defines, program, functions), mode=0o644) as file,
    ):
        file.write(code + hashlib.sha256(code).digest())


def _file_name(arch: int | str, defines: Sequence[str], program: str, functions: Sequence[PixelFunction]) -> str:
    text, headers = sources(program, functions)
    target = code_target(arch)
    version = ".".join(map(str, _nvrtc().getVersion()))
    limits = map(str, register_limits(defines))
    recipe = "\0".join([text, *headers.values(), *options(target, defines), *limits, version])
    suffix = "cubin" if target.startswith("sm_") else "ptx"
    return f"{program}-{target}-{hashlib.sha256(recipe.encode()).hexdigest()[:32]}.{suffix}"


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
