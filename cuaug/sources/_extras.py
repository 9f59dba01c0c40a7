"""Libraries that only some sources need."""

from __future__ import annotations

import importlib
from typing import Any

from cuaug.errors import LoaderError

__all__ = ["need"]


def need(module: str, extra: str) -> Any:
    """The module, which comes with one of cuaug's extras.

    Raises:
        LoaderError: it cannot be imported; the message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LoaderError(f'this source needs {module} ({error}): pip install "cuaug[{extra}]"') from error
