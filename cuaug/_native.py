"""The compiled host library: kernels for the CPU and the random draws, through ctypes (which releases the GIL)."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from cuaug.errors import DeviceError

__all__ = ["BEST_ISA", "ISAS", "KERNEL_DIRECTORY", "library"]

#: Instruction sets that the library may be told to use, by name.
ISAS = {"baseline": 0, "avx2": 1}

_here = Path(__file__).parent
#: Where the kernel sources lie: inside an installed wheel, or beside the package in a checkout.
KERNEL_DIRECTORY = _here / "_kernels" if (_here / "_kernels").is_dir() else _here.parent / "kernels"


def _load() -> ctypes.CDLL:
    path = Path(os.environ.get("CUAUG_HOST_LIBRARY", _here / "_host.so"))
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise DeviceError(
            f"the compiled host kernels cannot be loaded from {path} ({error}); install cuaug with "
            "`pip install .`, or run `make` in a checkout"
        ) from error
    pointer, i32, i64, u32 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32
    lib.cuaug_best_isa.argtypes = []
    lib.cuaug_run.argtypes = [i32, pointer, i64, i32, pointer, pointer, pointer]
    lib.cuaug_run.argtypes += [pointer, i64, i32, i32, pointer, i32, i32]
    lib.cuaug_draw.argtypes = [u32, u32, pointer, i64, u32, u32, i64, pointer]
    lib.cuaug_draw.restype = None
    lib.cuaug_walk_jpeg.argtypes = [ctypes.c_char_p, i64, i32, pointer]
    lib.cuaug_sizes.argtypes = [pointer]
    lib.cuaug_sizes.restype = None
    return lib


#: The loaded library. CUAUG_HOST_LIBRARY names another build of it, such as one with a sanitizer.
library = _load()
#: The widest instruction set that this processor and the build both have.
BEST_ISA = int(library.cuaug_best_isa())
