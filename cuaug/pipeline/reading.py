"""One sample from its source: its encoded bytes and header, or its pixels, and its label."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np

from cuaug.codec import Header, Pixels, read_header
from cuaug.errors import DecodeError, LoaderError
from cuaug.sources import Source

__all__ = ["Item", "fetch", "parse"]

#: A sample that can be decoded, or is.
Item = Header | Pixels


def fetch(source: Source, index: int) -> tuple[Any, Any]:
    """(bytes or array, label) of a sample; a path is read.

    Raises:
        DecodeError: it cannot be read.
        LoaderError: the source gave something else.
    """
    path = None
    try:
        data, label = _checked(source.read(index), index)
        if isinstance(data, (str, os.PathLike)):
            path = os.fspath(data)
            with open(path, "rb") as file:
                data = file.read()
    except OSError as error:
        raise DecodeError(error.strerror or str(error) or type(error).__name__, path=path) from error
    return data, label


def parse(data: Any, *, apply_exif: bool, max_pixels: int) -> Item:
    """What the decoders take.

    Raises:
        DecodeError: it is no picture, or one that is too large.
    """
    if isinstance(data, np.ndarray) and data.ndim > 1:
        return Pixels(data, max_pixels=max_pixels)
    return read_header(data, apply_exif=apply_exif, max_pixels=max_pixels)


def _checked(given: Any, index: int) -> tuple[Any, Any]:
    if isinstance(given, (tuple, list)) and len(given) == 2:
        if isinstance(given[0], (str, os.PathLike)):
            return given[0], given[1]
        with contextlib.suppress(TypeError, ValueError):
            memoryview(given[0])  # bytes, an array, or anything that lends them
            return given[0], given[1]
    raise LoaderError(
        f"a source's read(i) returns (path, encoded bytes or uint8 array, label); read({index}) gave {given!r:.200}"
    )
