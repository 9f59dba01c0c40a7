"""`cuaug replay`: makes a batch of a run again, from the run's state and the program's loader."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import torch

from cuaug.batch import Batch
from cuaug.errors import ArgumentError, CuaugError
from cuaug.loader import Loader
from cuaug.sampling.state import VERSION
from cuaug.sources._bytes import read_bytes

__all__ = ["find_state", "read_state", "replay"]

_FIELDS = {"version", "epoch", "position", "seed"}


def replay(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """Prints the batch, writes it, and returns the exit status; errors are one line on `errors`."""
    try:
        state = find_state(read_state(options.state))
        with _make_loader(options.loader) as loader:
            loader.load_state_dict(state)
            epoch = state["epoch"] if options.epoch is None else options.epoch
            batch = loader.replay(epoch, options.step)
            print(f"epoch {epoch}, step {options.step}, seed {loader.seed}, digest {batch.digest}", file=out)
            _print_samples(batch, out)
            if options.output:
                _write(batch, options.output, loader)
    except (CuaugError, OSError) as error:
        print(f"cuaug replay: {error}", file=errors)
        return 1
    return 0


def find_state(value: Any) -> dict[str, Any]:
    """The loader's state in a checkpoint: the value itself, or the one state among its dicts.

    Raises:
        ArgumentError: it holds none, or several.
    """
    found: list[dict[str, Any]] = []
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, Mapping):
            if current.keys() >= _FIELDS:
                found.append(dict(current))
            else:
                pending += current.values()
    if len(found) != 1:
        raise ArgumentError(
            f"STATE holds {len(found)} states of a Loader; give a file with the result of loader.state_dict(), version "
            f"{VERSION}, alone or in a checkpoint"
        )
    return found[0]


def read_state(path: str) -> Any:
    """The contents of a JSON file, or of one that `torch.save` wrote; it runs no code of the file."""
    data = read_bytes(path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # not text, or no JSON
        pass
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # torch's parser raises any exception type on a damaged file
        reason = str(error).partition("\n")[0]
        raise ArgumentError(f"STATE {path!r} is neither JSON nor a file that torch.save wrote: {reason}") from error


def _make_loader(name: str) -> Loader:
    """The loader that `module:function` returns; modules of the current folder come first."""
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise ArgumentError(f"--loader must be MODULE:FUNCTION, a function that returns the Loader, not {name!r}")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ArgumentError(f"--loader: {error}; run the command where `import {module_name}` works") from error
    finally:
        del sys.path[0]
    function = getattr(module, function_name, None)
    loader = function() if callable(function) else function
    if not isinstance(loader, Loader):
        raise ArgumentError(f"--loader: {name} must give a cuaug.Loader, not {loader!r:.100}")
    return loader


def _print_samples(batch: Batch, out: TextIO) -> None:
    labels: Any = batch.labels
    shown = labels.tolist() if isinstance(labels, torch.Tensor) else labels
    is_list = isinstance(shown, list) and len(shown) == len(batch.indices)
    for row, (index, valid, path) in enumerate(
        zip(batch.indices.tolist(), batch.valid.tolist(), batch.paths, strict=True)
    ):
        notes = "" if valid else "  not valid"
        label = f"  {shown[row]!r:.100}" if is_list else ""
        print(f"{index:>8}  {path or '-'}{label}{notes}", file=out)
    if not is_list:
        print(f"labels: {shown!r:.500}", file=out)


def _write(batch: Batch, path: str, loader: Loader) -> None:
    """Writes a batch as a file for `torch.load`, or as a picture."""
    if path.endswith((".pt", ".pth")):
        batch = batch.to("cpu")
        fields = {
            name: getattr(batch, name) for name in ("images", "labels", "indices", "valid", "epoch", "digest", "paths")
        }
        torch.save({**fields, "params": batch.params()}, path)
        return
    try:
        batch.show(classes=loader.classes).save(path)
    except ValueError as error:  # Pillow knows no such format
        raise ArgumentError(
            f"--output must end in .pt or in an image format's name, as .png, not {path!r}: {error}"
        ) from error
