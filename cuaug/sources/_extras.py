"""Libraries that only some sources need."""

from __future__ import annotations

import sys
from typing import Any

from cuaug.errors import LoaderError

__all__ = ["need"]


def need(module: str, extra: str) -> Any:
    """The module, which comes with one of cuaug's extras.

    Raises:
        LoaderError: it cannot be imported; the message has the command that installs it.
    """
    try:
        # Not import_module: Python 3.10's takes a lock even for what is imported, and a fork may copy it locked.
        __import__(module)
    except ImportError as error:
        raise LoaderError(f'this source needs {module} ({error}): pip install "cuaug[{extra}]"') from error
    return sys.modules[module]
