"""Imports of optional libraries: cuaug's extras."""

from __future__ import annotations

import sys
from typing import Any

from cuaug.errors import LoaderError

__all__ = ["require_module"]


def require_module(module: str, extra: str, user: str = "this source") -> Any:
    """Imports a module of one of cuaug's extras.

    Raises:
        LoaderError: the import fails; the message has the command that installs the extra.
    """
    try:
        # Not import_module: Python 3.10's takes a lock even for imported modules, and a fork may copy it locked.
        __import__(module)
    except ImportError as error:
        raise LoaderError(f'{user} needs {module} ({error}): pip install "cuaug[{extra}]"') from error
    return sys.modules[module]
