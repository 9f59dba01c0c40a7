"""Leaves the room out where torchvision is not installed, as in `make test`."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torchvision") else ["*.py"]
