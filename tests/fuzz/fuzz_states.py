"""Damaged states of a Loader; see fuzz_files.py."""

from __future__ import annotations

import contextlib
import functools
import random
import tempfile
from pathlib import Path
from typing import Any

from cuaug import Loader
from cuaug.errors import CuaugError
from tests.fuzz.fuzz_files import changed_json
from tests.support.loader.further_pictures import png

__all__ = ["run_state"]


def run_state(rng: random.Random, folder: Path) -> None:
    """A loader refuses a changed state, or takes it."""
    with contextlib.suppress(CuaugError), _loader() as loader:
        loader.load_state_dict(changed_json(rng, _state()))


@functools.cache
def _state() -> dict[str, Any]:
    with _loader() as loader:
        next(iter(loader))
        return loader.state_dict()


def _loader() -> Loader:
    return Loader(Path(_photos().name), batch_size=2, device="cpu", threads=1)


@functools.cache
def _photos() -> tempfile.TemporaryDirectory[str]:
    """A folder of photos that stays the same, since a state names its source's times."""
    folder = tempfile.TemporaryDirectory()
    for i in range(6):
        path = Path(folder.name, f"class{i % 2}", f"{i}.png")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(i))
    return folder
