"""Imports of optional libraries, cuaug's extras, and how this cuaug was installed."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any

from cuaug.errors import LoaderError


def installed_from() -> tuple[str, str]:
    """(kind, URL) of what pip installed cuaug from; ("", "") where pip has no record of it."""
    texts = (found.read_text("direct_url.json") for found in metadata.distributions(name="cuaug"))
    record = json.loads(next(filter(None, texts), "{}"))  # a folder of sources may be found first, without a record
    url = record.get("url", "")
    if vcs := record.get("vcs_info"):
        return vcs["vcs"], f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    if "dir_info" in record:
        return "editable" if record["dir_info"].get("editable") else "source", url
    return "wheel" if url.endswith(".whl") else "archive" if url else "", url


def install_command(extra: str = "", options: str = "") -> str:
    """pip's command that adds an extra, from where this cuaug comes: no package index has cuaug."""
    kind, url = installed_from()
    extra = f"[{extra}]" if extra else ""
    if not kind:
        target = f'".{extra}"  (in the folder of cuaug\'s sources)'
    elif kind == "editable":
        target = f'-e "{url}{extra}"'
    else:
        target = f'"cuaug{extra} @ {url}"'
    return f"pip install {options}{target}"


def require_module(module: str, extra: str, user: str = "this source") -> Any:
    """Imports a module of one of cuaug's extras.

    Raises:
        LoaderError: the import fails; the message has the command that installs the extra.
    """
    try:
        # Not import_module: Python 3.10's takes a lock even for imported modules, and a fork may copy it locked.
        __import__(module)
    except ImportError as error:
        raise LoaderError(f"{user} needs {module} ({error}): {install_command(extra)}") from error
    return sys.modules[module]
