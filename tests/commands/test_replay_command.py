"""`cuaug replay` makes a batch of a run again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import Loader
from cuaug import transforms as T
from cuaug.commands.cli import main
from tests.loader.pictures import png

PROGRAM = """
import cuaug
from cuaug import transforms as T

def make_loader():
    return cuaug.Loader("photos", [T.RandomHorizontalFlip(), T.ColorJitter(0.5)], batch_size=3, shuffle=True)

number = 5
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A folder with a program, its photos and a checkpoint; and the batches of the run."""
    for k in range(10):
        (tmp_path / "photos" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / "ab"[k % 2] / f"{k}.png").write_bytes(png(k))
    name = f"program_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(8)
    chain = [T.RandomHorizontalFlip(), T.ColorJitter(0.5)]
    with Loader("photos", chain, batch_size=3, shuffle=True) as loader:
        batches = list(loader)
        second = iter(loader)
        batches += [next(second), next(second)]
        state = loader.state_dict()
    (tmp_path / "state.json").write_text(json.dumps(state))
    torch.save({"model": {"weight": torch.zeros(2)}, "loader": state}, tmp_path / "last.pt")
    return name, batches


def test_a_batch_is_printed_and_written(run, capsys):
    name, batches = run
    assert main(["replay", "state.json", "1", "--loader", f"{name}:make_loader", "-o", "batch.pt"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    want = batches[5]
    assert head.startswith("epoch 1, step 1, seed ") and head.endswith(f"digest {want.digest}")
    assert rows == [
        f"{index:>8}  {path}  {label}"
        for index, path, label in zip(want.indices.tolist(), want.paths, want.labels.tolist(), strict=True)
    ]
    written = torch.load("batch.pt", weights_only=True)
    assert written["images"].equal(want.images.cpu()) and written["digest"] == want.digest
    assert written["params"] == want.params() and written["paths"] == want.paths


def test_another_epoch_from_a_checkpoint_as_a_picture(run, capsys):
    name, batches = run
    command = ["replay", "last.pt", "3", "--loader", f"{name}:make_loader", "--epoch", "0", "--output", "grid.png"]
    assert main(command) == 0
    assert f"digest {batches[3].digest}" in capsys.readouterr().out
    assert np.asarray(Image.open("grid.png")).ndim == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.json", "0"], "No such file"),
        (["photos/a/0.png", "0"], "STATE 'photos/a/0.png' is neither JSON nor a file that torch.save wrote"),
        (["torn.pt", "0"], "STATE 'torn.pt' is neither JSON nor a file that torch.save wrote: list index out of range"),
        (["two.json", "0"], "STATE holds 2 states of a Loader"),
        (["empty.json", "0"], "STATE holds 0 states of a Loader"),
        (["state.json", "9"], "step must be from 0 to 3"),
        (["state.json", "0", "-o", "grid.what"], "--output must end in .pt or in an image format's name"),
        (["old.json", "0"], "state_dict has version 1; this cuaug reads version 2"),
    ],
)
def test_errors_are_one_line(run, capsys, arguments, message):
    name, _ = run
    state = json.loads(Path("state.json").read_text())
    for file, value in {"two": [state, state], "empty": {"a": 1}, "old": state | {"version": 1}}.items():
        Path(f"{file}.json").write_text(json.dumps({"a": value[0], "b": value[1]} if file == "two" else value))
    Path("torn.pt").write_bytes(b"\x80\x02}(K\x01u.")  # a key without its value
    assert main(["replay", *arguments, "--loader", f"{name}:make_loader"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("cuaug replay: ") and message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ("program", "--loader must be MODULE:FUNCTION"),
        ("no_such_program:make", "--loader: No module named 'no_such_program'"),
        ("{name}:number", "must give a cuaug.Loader, not 5"),
        ("{name}:missing", "must give a cuaug.Loader, not None"),
    ],
)
def test_a_loader_that_is_none(run, capsys, loader, message):
    assert main(["replay", "state.json", "0", "--loader", loader.format(name=run[0])]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
