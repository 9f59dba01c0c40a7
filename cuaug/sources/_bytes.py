"""Files as bytes."""

from __future__ import annotations

import os

__all__ = ["read_bytes"]


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """All of a file.

    Raises:
        OSError: it cannot be read, or no file can have such a name.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - what reading raises is not about the name
    except ValueError as error:  # a null character, or half of a surrogate pair
        raise OSError(f"no file can have such a name: {error}") from error
    with file:
        return file.read()
