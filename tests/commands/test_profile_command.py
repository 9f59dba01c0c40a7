"""`cuaug profile`."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from cuaug.commands.cli import main


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "photos" / "cats"
    folder.mkdir(parents=True)
    paths = [str(folder / f"{i}.png") for i in range(5)]
    for path in paths:
        Image.new("RGB", (20, 10)).save(path)
    return paths


def test_files(pictures, tmp_path, capsys):
    page, trace = tmp_path / "a.html", tmp_path / "a.json"
    written = ["--html", str(page), "--trace", str(trace)]
    options = ["--batches", "500", "--batch-size", "2", "--threads", "2", "--device", "cpu"]
    assert main(["profile", *pictures, *options, *written]) == 0
    output = capsys.readouterr().out
    assert "1000 samples in 500 batches, 0 failed" in output, "the five files come again"
    assert "starting an epoch binds" not in output, "it is one epoch"
    assert "device='cpu', threads=2 (as given)" in output and "decoded by: cpu " in output
    assert output.splitlines()[0] in page.read_text() and json.loads(trace.read_text())["traceEvents"]


def test_a_folder_and_a_chain(pictures, tmp_path, capsys):
    options = ["--batches", "2", "--batch-size", "5", "--device", "cpu", "--transforms", "[T.Resize((4, 4))]"]
    assert main(["profile", str(tmp_path / "photos"), *options]) == 0
    assert "10 samples in 2 batches" in capsys.readouterr().out


def test_one_picture(pictures, capsys):
    """As from a shell pattern that matches one file."""
    assert main(["profile", pictures[0], "--batches", "3", "--batch-size", "2", "--device", "cpu"]) == 0
    assert "6 samples in 3 batches" in capsys.readouterr().out


@pytest.mark.parametrize("number", ["abc", "0", "-1", "1.5", ""])
def test_invalid_numbers_are_refused(pictures, capsys, number):
    with pytest.raises(SystemExit):
        main(["profile", *pictures, f"--batches={number}"])
    assert f"argument --batches: {number!r} is not an integer of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["missing.jpg", "missing.jpg"], "missing.jpg"),
        (["{picture}", "{picture}", "--transforms", "[T.Resize(]"], "--transforms"),
        (["{picture}", "{picture}", "--html", "no/such/folder.html"], "no/such/folder.html"),
    ],
)
def test_errors_are_one_line(pictures, capsys, monkeypatch, tmp_path, arguments, says):
    monkeypatch.chdir(tmp_path)
    arguments = [argument.format(picture=pictures[0]) for argument in arguments]
    assert main(["profile", *arguments, "--device", "cpu", "--batches", "2"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("cuaug profile: ") and says in errors and errors.count("\n") == 1
