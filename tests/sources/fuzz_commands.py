"""Damaged files that commands read: checksums, states of `cuaug replay`, sets of `cuaug shard`; see fuzz_files.py."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import torch

from cuaug import Loader
from cuaug.commands.cli import main
from cuaug.commands.replay import find_state, read_state
from cuaug.errors import CuaugError
from cuaug.sources import ChecksumSource, Files
from tests.loader.pictures import png
from tests.sources.fuzz_files import changed_json, damaged, open_and_read

__all__ = ["run_checksums", "run_shard_set", "run_state"]

_COUNT = 6


def _write_photos(folder: Path) -> list[Path]:
    paths = [folder / "photos" / f"class{i % 2}" / f"{i}.png" for i in range(_COUNT)]
    for i, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(i))
    return paths


def run_checksums(rng: random.Random, folder: Path) -> None:
    source = Files(list(map(str, _write_photos(folder))))
    path = folder / "sums.crc32"
    ChecksumSource(source, ChecksumSource.compute(source, threads=1)).save(path)
    path.write_bytes(damaged(rng, path.read_bytes()))
    open_and_read(lambda: ChecksumSource(source, path, rng.choice(("crc32", "crc32", "sha256"))))


# --- states ----------------------------------------------------------------------------------------------------------


@functools.cache
def _state() -> dict[str, Any]:
    with _loader() as loader:
        next(iter(loader))
        return loader.state_dict()


def run_state(rng: random.Random, folder: Path) -> None:
    """JSON, or a file of `torch.save`, alone or in a checkpoint; a loader refuses it, or takes it."""
    state = _state()
    value = state if rng.random() < 0.5 else {"model": {"weight": [1, 2]}, "loader": state}
    path = folder / "state"
    if rng.random() < 0.5:
        path.write_text(json.dumps(changed_json(rng, value) if rng.random() < 0.8 else value))
    else:
        torch.save(value, path, _use_new_zipfile_serialization=rng.random() < 0.5)
    if rng.random() < 0.6:
        path.write_bytes(damaged(rng, path.read_bytes()))
    with contextlib.suppress(CuaugError), _loader() as loader:
        loader.load_state_dict(find_state(read_state(str(path))))


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
def _sets(extension: str) -> list[dict[str, bytes]]:
    """Files of a set that was made half, and of a finished one."""
    photos, sets = _photos()[1], []
    for is_half in (True, False):
        with tempfile.TemporaryDirectory() as name:
            if is_half:
                os.environ.update(RANK="0", WORLD_SIZE="2")
            assert _shard(photos, Path(name), extension) == 0
            if is_half:
                del os.environ["RANK"], os.environ["WORLD_SIZE"]
            files = [path for path in sorted(Path(name).rglob("*")) if path.is_file()]
            sets.append({str(path.relative_to(name)): path.read_bytes() for path in files})
    assert "a.partial/plan.json" in sets[0] and "a.manifest.json" in sets[1]
    return sets


def _shard(photos: Path, out: Path, extension: str) -> int:
    arguments = ["shard", str(photos), f"{out}/a-{{:03d}}{extension}", "--size", "150", "--threads", "1", "--checksums"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return main(arguments)


def run_shard_set(rng: random.Random, folder: Path) -> None:
    """The command ends with an error of one line, or makes the set, whatever its own JSON holds."""
    extension = rng.choice((".tar", ".parquet"))
    files = dict(rng.choice(_sets(extension)))
    name = rng.choice([name for name in files if name.endswith((".json", ".crc32"))])
    if name.endswith(".json") and rng.random() < 0.7:
        files[name] = json.dumps(changed_json(rng, json.loads(files[name]))).encode("utf-8", "surrogatepass")
    else:
        files[name] = damaged(rng, files[name])
    for path, data in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)
    assert _shard(_photos()[1], folder, extension) in (0, 1)
