"""Dicts of arrays as .npz files, which `numpy.load` reads too; nothing is pickled."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from cuaug._runtime.npy import decode_npy
from cuaug.limits import DEFAULT_MAX_BYTES

__all__ = ["decode_npz", "encode_npz"]

_KINDS = "biufU"


def encode_npz(values: Mapping[str, Any]) -> bytes:
    """Encodes arrays, numbers, strings and lists of them; equal values give equal bytes.

    Raises:
        ValueError: a value is anything else.
    """
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, value in values.items():
            try:
                array = np.asarray(value)
            except ValueError:  # a ragged list
                array = np.empty(0, object)
            if array.dtype.kind not in _KINDS:
                raise ValueError(f"{name!r} holds {value!r:.100}, which no array of numbers or text holds")
            member = io.BytesIO()
            np.save(member, array, allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy")  # of 1980: the same in every run
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, member.getbuffer())
    return file.getvalue()


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
