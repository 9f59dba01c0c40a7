"""Arrays as .npy and .npz files, which `numpy.load` reads too; nothing is pickled."""

from __future__ import annotations

import io
import math
import re
import zipfile
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cuaug._runtime.limits import DEFAULT_MAX_BYTES

NPY_SIGNATURE = b"\x93NUMPY"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NPY_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def decode_npy(data: bytes) -> NDArray[Any]:
    """Decodes an array written by `np.save`, but never a pickle.

    The size is checked first, since NumPy would allocate for any shape that the header claims.

    Raises:
        ValueError: the data are anything else, or shorter than the header claims.
    """
    file = io.BytesIO(data)
    try:
        shape, is_fortran, dtype = _NPY_HEADERS[npy.read_magic(file)](file)
    except KeyError as error:
        raise ValueError(f"version {error} of NumPy's format") from error
    except Exception as error:  # NumPy parses the header as Python
        # Some messages name an object by its address.
        raise ValueError(f"its header is damaged: {type(error).__name__}: {_ADDRESS.sub('', str(error))}") from error
    if dtype.hasobject:
        raise ValueError("an array of objects, which is a pickle")
    if any(size < 0 for size in shape):
        raise ValueError(f"an array of shape {shape}")
    available = len(data) - file.tell()
    if math.prod(shape) * dtype.itemsize > available:
        raise ValueError(f"an array of type {dtype} and shape {shape} has more than {available} bytes")
    array = np.frombuffer(data, np.uint8, math.prod(shape) * dtype.itemsize, file.tell()).view(dtype)
    return array.reshape(shape, order="F" if is_fortran else "C").copy()


def decode_npz(data: bytes) -> dict[str, Any]:
    """Decodes the members of an .npz; arrays without dimensions become numbers and strings.

    Raises:
        ValueError: the data are anything else, or claim more than `DEFAULT_MAX_BYTES`.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > DEFAULT_MAX_BYTES:  # deflated zeros grow a thousandfold
                raise ValueError(f"its arrays claim {size:,} bytes, above the limit of {DEFAULT_MAX_BYTES:,}")
            arrays = {member.filename.removesuffix(".npy"): decode_npy(archive.read(member)) for member in members}
    except ValueError:
        raise
    except Exception as error:  # zipfile and zlib raise various types on damage
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return {name: array if array.ndim else array.item() for name, array in arrays.items()}
