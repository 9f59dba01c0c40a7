"""Files as bytes."""

from __future__ import annotations

import os

__all__ = ["cause_of", "read_bytes"]


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """All of a file. `open` asks twice as much of the system, and for each answer waits for the interpreter.

    Raises:
        OSError: it cannot be read, or no file can have such a name.
    """
    try:
        file = os.open(path, os.O_RDONLY)
    except ValueError as error:  # a null character, or half of a surrogate pair
        raise OSError(f"no file can have such a name: {error}") from error
    try:
        size = os.fstat(file).st_size
        data = os.read(file, size)
    finally:
        os.close(file)
    if size and len(data) == size:
        return data
    with open(path, "rb") as again:  # a pipe, or it is being written
        return again.read()


def cause_of(error: OSError) -> str:
    """What was wrong, in words; `strerror` is whatever stood second where a source raised it, or nothing."""
    said = error.strerror
    return said if said and isinstance(said, str) else str(error) or type(error).__name__
