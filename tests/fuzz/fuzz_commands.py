"""Damaged states of a Loader, and sets of `cuaug shard`; see fuzz_files.py."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from cuaug import Loader
from cuaug.commands.cli import main
from cuaug.errors import CuaugError
from tests.fuzz.fuzz_files import changed_json, damaged
from tests.support.loader.further_pictures import png

__all__ = ["run_shard_set", "run_state"]

_COUNT = 6


def _write_photos(folder: Path) -> list[Path]:
    paths = [folder / "photos" / f"class{i % 2}" / f"{i}.png" for i in range(_COUNT)]
    for i, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(i))
    return paths


# --- states ----------------------------------------------------------------------------------------------------------


@functools.cache
def _state() -> dict[str, Any]:
    with _loader() as loader:
        next(iter(loader))
        return loader.state_dict()


def run_state(rng: random.Random, folder: Path) -> None:
    """A loader refuses a changed state, or takes it."""
    with contextlib.suppress(CuaugError), _loader() as loader:
        loader.load_state_dict(changed_json(rng, _state()))


def _loader() -> Loader:
    return Loader(_photos()[1], batch_size=2, device="cpu", threads=1)


# --- sets of shards --------------------------------------------------------------------------------------------------


@functools.cache
def _photos() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """A folder of photos that stays the same, since a set names its source's times."""
    folder = tempfile.TemporaryDirectory()
    _write_photos(Path(folder.name))
    return folder, Path(folder.name, "photos")


@functools.cache
def _set() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        assert _shard(_photos()[1], Path(name)) == 0
        return {path.name: path.read_bytes() for path in Path(name).iterdir()}


def _shard(photos: Path, out: Path) -> int:
    arguments = ["shard", str(photos), f"{out}/a-{{:03d}}.tar", "--size", "150", "--threads", "1"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return main(arguments)


def run_shard_set(rng: random.Random, folder: Path) -> None:
    """The command ends with an error of one line, or makes the set, whatever its own files hold, or lack."""
    files = dict(_set())
    for name in rng.sample(sorted(files), rng.choice((0, 0, 1, 3))):
        del files[name]
    name = rng.choice(["a.manifest.json", "a.manifest.json", *files])
    if name == "a.manifest.json" and rng.random() < 0.7:
        files[name] = json.dumps(changed_json(rng, json.loads(_set()[name]))).encode("utf-8", "surrogatepass")
    else:
        files[name] = damaged(rng, _set()[name])
    for path, data in files.items():
        (folder / path).write_bytes(data)
    assert _shard(_photos()[1], folder) in (0, 1)
