"""Compiles the CUDA kernels with NVRTC through CuPy's binding, and loads them by CuPy's `RawModule` and `RawKernel`.

Compiling needs no driver and no device. CuPy does not compile: `RawModule(code=...)` needs a device to compile, and
trusts its cache on disk unchecked. `RawModule` loads files only, so the code goes through a temporary file. Two facts
about CuPy 14.2 (cupy/_core/raw.pyx) matter here:
    - `_get_raw_module` memoizes modules by path and device, so the file's name holds a digest of the code.
    - `RawKernel.__call__` passes `stream` on to the launch, though only `shared_mem` is documented. The documented way,
      to make torch's stream current in CuPy, needs `ExternalStream`, which 14.0 deprecated.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cuaug._runtime.extras import install_command
from cuaug._runtime.fork import fork_safe_lock
from cuaug._runtime.native import KERNEL_DIRECTORY
from cuaug.devices.background import read_code, write_code
from cuaug.devices.nvrtc_program import compile_program
from cuaug.errors import DeviceError
from cuaug.plan.pixel_function import PixelFunction

# Registers of a thread with which a program for everything spills none.
_REGISTERS = {"augment": 128, "convert_yuv": 64, "decode_jpeg": 128, "resample": 80}
_HEADERS = ("*.h", "*.def", "core/*.h", "cuda/*.h")
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


def register_limits(program: str, defines: Sequence[str]) -> list[int]:
    """Limits for the registers of a thread; the first that spills none to memory is taken.

    Four blocks of 128 threads fit on a multiprocessor of every architecture with 128 registers, six with 80, eight with
    64.
    """
    return [64, 80, 128] if defines else [_REGISTERS[program]]


def sources(program: str = "augment", functions: Sequence[PixelFunction] = ()) -> tuple[str, dict[str, str]]:
    """The text of a program, kernels/cuda/<program>.cu, and its headers by name: the contracts, core/ and cuda/.

    Args:
        functions: pixel functions, for a header of their own, which the macro CUAUG_PIXEL_FUNCTIONS includes.
    """
    headers, _ = _headers(KERNEL_DIRECTORY)
    if functions:
        headers = headers | {"pixel_functions.h": _functions_header(functions)}
    return (KERNEL_DIRECTORY / "cuda" / f"{program}.cu").read_text(), headers


@functools.cache
def _headers(directory: Path) -> tuple[dict[str, str], str]:
    """The headers of all programs by name, and their digest: a new chain while the loader runs hashes none of them."""
    paths = sorted(path for pattern in _HEADERS for path in directory.glob(pattern))
    headers = {path.relative_to(directory).as_posix(): path.read_text() for path in paths}
    return headers, hashlib.sha256("\0".join([*headers, *headers.values()]).encode()).hexdigest()


def _functions_header(functions: Sequence[PixelFunction]) -> str:
    """The functions in C++, and their dispatch by number."""
    lines = [function.source for function in functions]
    lines.append("DEVICE void run_compiled(const Op& op, const Sample& sample, Place at, PixelBlock& v) {")
    *others, last = functions  # no launch has further ones
    for function in others:
        lines.append(f"    if (op.function == {function.number:#x}ull) return {function.name}(op, sample, at, v);")
    return "\n".join([*lines, f"    {last.name}(op, sample, at, v);", "}", ""])


def compile(
    arch: int | str, program: str = "augment", defines: Sequence[str] = (), functions: Sequence[PixelFunction] = ()
) -> tuple[bytes, str]:
    """Machine code (a cubin) or PTX for compute capability `arch`, and the compiler's log.

    Args:
        program: kernels/cuda/<program>.cu.
        defines: macros of kernels/core/signature.h.
        functions: as of `sources`.

    Raises:
        DeviceError: as of `code_target`, or the kernels do not compile.
    """
    nvrtc, target = _nvrtc(), code_target(arch)
    try:
        limits = register_limits(program, defines)
        return compile_program(nvrtc, *sources(program, functions), options(target, defines), limits)
    except RuntimeError as error:
        raise DeviceError(f"NVRTC cannot compile the kernels for {target}: {error}") from error


def cached(
    arch: int | str, program: str = "augment", defines: Sequence[str] = (), functions: Sequence[PixelFunction] = ()
) -> bytes:
    """The code of `compile`, kept on disk (cuaug/devices/background.py)."""
    code = read_cached(arch, program, defines, functions)
    if code is None:
        code, _ = compile(arch, program, defines, functions)
        write_cached(arch, program, defines, code, functions)
    return code


def read_cached(
    arch: int | str, program: str, defines: Sequence[str], functions: Sequence[PixelFunction] = ()
) -> bytes | None:
    """The code of `compile` from the disk; None if it is not there."""
    return read_code(_file_name(arch, program, defines, functions), _MAX_BYTES, "compiled kernels there are not used")


def write_cached(
    arch: int | str, program: str, defines: Sequence[str], code: bytes, functions: Sequence[PixelFunction] = ()
) -> None:
    """Keeps the code of `compile` for `read_cached`."""
    write_code(_file_name(arch, program, defines, functions), code)


def _file_name(arch: int | str, program: str, defines: Sequence[str], functions: Sequence[PixelFunction]) -> str:
    text = (KERNEL_DIRECTORY / "cuda" / f"{program}.cu").read_text()
    own = _functions_header(functions) if functions else ""
    target = code_target(arch)
    version = ".".join(map(str, _nvrtc().getVersion()))
    limits = map(str, register_limits(program, defines))
    recipe = "\0".join([text, own, _headers(KERNEL_DIRECTORY)[1], *options(target, defines), *limits, version])
    suffix = "cubin" if target.startswith("sm_") else "ptx"
    return f"{program}-{target}-{hashlib.sha256(recipe.encode()).hexdigest()[:32]}.{suffix}"


def _nvrtc() -> Any:
    """Imports CuPy's binding of NVRTC."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()  # loads the library
    except (ImportError, RuntimeError) as error:
        extra = "cuda13" if (torch.version.cuda or "").startswith("13") else "cuda12"
        raise DeviceError(f"the CUDA kernels need CuPy and NVRTC ({error}): {install_command(extra)}") from error
    return nvrtc


class Kernels(NamedTuple):
    """The entry points of kernels/cuda/augment.cu and resample.cu, which document them."""

    augment: Any
    resample: Any


class JpegKernels(NamedTuple):
    """The entry points of kernels/cuda/decode_jpeg.cu, which documents them."""

    build_lookups: Any
    scan_jpeg: Any
    decode_jpeg: Any
    color_jpeg: Any


# By device index and program. Entries are never replaced: unloading a module would unload kernels that are still
# queued.
_loaded: dict[tuple[int, str], list[Any]] = {}
_loaded_lock = fork_safe_lock()


def kernels(device_index: int) -> Kernels:
    """The compiled kernels, loaded once per device for all threads.

    Raises:
        DeviceError: CuPy or NVRTC is missing, or the kernels do not compile or load there.
    """
    return Kernels(*(_load_once(device_index, name, [name])[0] for name in Kernels._fields))


def convert_kernel(device_index: int) -> Any:
    """`convert_yuv` (kernels/cuda/convert_yuv.cu), which only clips need. As `kernels`, also in its errors."""
    (function,) = _load_once(device_index, "convert_yuv", ["convert_yuv"])
    return function


def jpeg_kernels(device_index: int) -> JpegKernels:
    """The kernels that decode JPEGs. As `kernels`, also in its errors."""
    return JpegKernels(*_load_once(device_index, "decode_jpeg", JpegKernels._fields))


def _load_once(device_index: int, program: str, names: Sequence[str]) -> list[Any]:
    with _loaded_lock:
        if (functions := _loaded.get((device_index, program))) is None:
            try:
                major, minor = torch.cuda.get_device_capability(device_index)
                functions = load_functions(cached(f"{major}{minor}", program), names, device_index)
            except DeviceError:
                raise
            except (RuntimeError, OSError) as error:  # torch's, CuPy's, or no temporary file
                raise DeviceError(f"the kernels do not load on CUDA device {device_index}: {error}") from error
            _loaded[device_index, program] = functions
        return functions


def load_functions(code: bytes, names: Sequence[str], device_index: int) -> list[Any]:
    """Loads machine code or PTX on a device. Each function may use all the shared memory that a block can have there.

    Returns:
        a `RawKernel` for each name, to be launched with the device current.

    Raises:
        RuntimeError: the driver refuses the code.
        OSError: the temporary directory cannot be written.
    """
    from cupy import RawModule

    # Not CuPy's context manager: on exit it makes a context on the device that was current before.
    with tempfile.TemporaryDirectory(prefix="cuaug-") as directory, torch.cuda.device(device_index):
        path = Path(directory, hashlib.sha256(code).hexdigest())
        path.write_bytes(code)
        module = RawModule(path=str(path))
        functions = [module.get_function(name) for name in names]  # loads the file now; launches do not read it
        for function in functions:
            function.max_dynamic_shared_size_bytes = shared_memory_limit(device_index) - function.shared_size_bytes
        return functions


def shared_memory_limit(device_index: int) -> int:
    """The most shared memory of one block, in bytes."""
    from cupy.cuda import runtime

    return int(runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, device_index))
