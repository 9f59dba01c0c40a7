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

__all__ = ["Kernels", "convert_kernel", "kernels", "load_functions", "shared_memory_limit"]


class Kernels(NamedTuple):
    """The entry points of kernels/cuda/augment.cu, which documents them."""

    augment: Any
    resample: Any


# By device index. Entries are never replaced: unloading a module would unload kernels that are still queued.
_kernels: dict[int, Kernels] = {}
_convert_kernels: dict[int, Any] = {}
_kernels_lock = fork_safe_lock()

_CONVERT_ONLY = ("CUAUG_ONLY_CONVERT_YUV",)


def kernels(device_index: int) -> Kernels:
    """The compiled kernels, loaded once per device for all threads.

    Raises:
        DeviceError: CuPy or NVRTC is missing, or the kernels do not compile or load there.
    """
    with _kernels_lock:
        if device_index not in _kernels:
            _kernels[device_index] = Kernels(*_load(device_index, (), Kernels._fields))
        return _kernels[device_index]


def convert_kernel(device_index: int) -> Any:
    """`convert_yuv` (kernels/cuda/convert_yuv.h), which only clips need. As `kernels`, also in its errors."""
    with _kernels_lock:
        if device_index not in _convert_kernels:
            (_convert_kernels[device_index],) = _load(device_index, _CONVERT_ONLY, ["convert_yuv"])
        return _convert_kernels[device_index]


def _load(device_index: int, defines: Sequence[str], names: Sequence[str]) -> list[Any]:
    try:
        major, minor = torch.cuda.get_device_capability(device_index)
        return load_functions(nvrtc.cached(f"{major}{minor}", defines), names, device_index)
    except DeviceError:
        raise
    except (RuntimeError, OSError) as error:  # torch's, CuPy's of the driver or the runtime, or no temporary file
        raise DeviceError(f"the kernels do not load on CUDA device {device_index}: {error}") from error


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
            function.max_dynamic_shared_size_bytes = shared_memory_limit(device_index)
        return functions


def shared_memory_limit(device_index: int) -> int:
    """The most shared memory of one block, in bytes."""
    from cupy.cuda import runtime

    return int(runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, device_index))
