"""Leaves files out whose library is not installed, as in `make test`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_FILES = {path.name for path in Path(__file__).parent.glob("test_*.py")}
_OF_TRANSFORMERS = {"test_transformers.py"}

collect_ignore = sorted(
    (set() if find_spec("torchvision") else _FILES - _OF_TRANSFORMERS)
    | (set() if find_spec("transformers") else _OF_TRANSFORMERS)
)
