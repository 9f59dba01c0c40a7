"""Loads the compiled CUDA kernels by CuPy's public `RawModule` and `RawKernel`.

cuaug/devices/nvrtc.py compiles, not CuPy: `RawModule(code=...)` needs a device to compile, and trusts its cache on disk
unchecked. `RawModule` loads files only, so the code goes through a temporary file. Two facts about CuPy 14.2
(cupy/_core/raw.pyx) matter here:
    - `_get_raw_module` memoizes modules by path and device, so the file's name holds a digest of the code.
    - `RawKernel.__call__` passes `stream` on to the launch, though only `shared_mem` is documented. The documented way,
      to make torch's stream current in CuPy, needs `ExternalStream`, which 14.0 deprecated.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cuaug._runtime.fork import fork_safe_lock
from cuaug.devices import nvrtc
from cuaug.errors import DeviceError

__all__ = ["JpegKernels", "Kernels", "convert_kernel", "jpeg_kernels", "kernels", "load_functions"]
__all__ += ["shared_memory_limit"]


class Kernels(NamedTuple):
    """The entry points of kernels/cuda/augment.cu, which documents them."""

    augment: Any
    resample: Any


class JpegKernels(NamedTuple):
    """The entry points of kernels/cuda/decode_jpeg.cu, which documents them."""

    build_lookups: Any
    scan_jpeg: Any
    decode_jpeg: Any
    color_jpeg: Any


# By device index and first name. Entries are never replaced: unloading a module would unload kernels that are still
# queued.
_loaded: dict[tuple[int, str], list[Any]] = {}
_loaded_lock = fork_safe_lock()

_CONVERT_ONLY = ("CUAUG_ONLY_CONVERT_YUV",)


def kernels(device_index: int) -> Kernels:
    """The compiled kernels, loaded once per device for all threads.

    Raises:
        DeviceError: CuPy or NVRTC is missing, or the kernels do not compile or load there.
    """
    return Kernels(*_load_once(device_index, "augment", Kernels._fields))


def convert_kernel(device_index: int) -> Any:
    """`convert_yuv` (kernels/cuda/convert_yuv.h), which only clips need. As `kernels`, also in its errors."""
    (function,) = _load_once(device_index, "augment", ("convert_yuv",), _CONVERT_ONLY)
    return function


def jpeg_kernels(device_index: int) -> JpegKernels:
    """The kernels that decode JPEGs. As `kernels`, also in its errors."""
    return JpegKernels(*_load_once(device_index, "decode_jpeg", JpegKernels._fields))


def _load_once(device_index: int, program: str, names: Sequence[str], defines: Sequence[str] = ()) -> list[Any]:
    with _loaded_lock:
        if (functions := _loaded.get((device_index, names[0]))) is None:
            try:
                major, minor = torch.cuda.get_device_capability(device_index)
                functions = load_functions(nvrtc.cached(f"{major}{minor}", defines, program), names, device_index)
            except DeviceError:
                raise
            except (RuntimeError, OSError) as error:  # torch's, CuPy's, or no temporary file
                raise DeviceError(f"the kernels do not load on CUDA device {device_index}: {error}") from error
            _loaded[device_index, names[0]] = functions
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
