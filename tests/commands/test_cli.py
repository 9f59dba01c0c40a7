"""`cuaug` alone, `cuaug demo`, and the progress bar of commands."""

from __future__ import annotations

import argparse
import io
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from cuaug.commands import demo, progress_bar
from cuaug.commands.cli import main, make_parser
from cuaug.commands.progress_bar import Progress
from tests.support.sources import writers
from tests.support.sources.writers import samples


def commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = (action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return action.choices


def test_the_overview_shows_each_command_with_an_example(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main([]) == 0
    shown = capsys.readouterr().out.splitlines()
    starts = [i for i, line in enumerate(shown) if re.match(r"  \w", line)]
    assert [shown[i].split()[0] for i in starts] == [*commands()]
    for name in commands():
        (example,) = (line for line in shown if line.strip().startswith(f"cuaug {name}"))
        words = shlex.split(example.partition(" > ")[0])
        assert make_parser().parse_args(words[1:]).command == name
    assert not [line for line in shown if len(line) > 60 and not line.startswith(" " * 14 + "cuaug ")]


@pytest.mark.slow
def test_the_demo_draws_shapes_and_learns_them(tmp_path, monkeypatch, capsys):
    """Smaller than a user's, so less is learned; chance is 25 %."""
    monkeypatch.setattr(demo, "_COUNT", 320)
    monkeypatch.setattr(demo, "_EPOCHS", 4)
    threads = torch.get_num_threads()
    output = tmp_path / "batch.png"
    try:
        assert main(["demo", "--device", "cpu", "-o", str(output)]) == 0
    finally:
        torch.set_num_threads(threads)
    out = capsys.readouterr().out
    shares = [float(share) for share in re.findall(r"([\d.]+)% correct", out)]
    assert len(shares) == 4 and max(shares) > 40
    assert "320 JPEGs of 4 shapes" in out and "bottleneck" in out
    with Image.open(output) as picture:
        assert picture.width > 500


def test_the_demo_writes_its_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "_COUNT", 16)
    folder = tmp_path / "shapes"
    assert main(["demo", "--pictures", str(folder)]) == 0
    assert len(list(folder.glob("train/*/*.jpg"))) == 16 and len(list(folder.glob("validation/*/*.jpg"))) == 4
    assert capsys.readouterr().out.startswith("16 JPEGs of 4 shapes")
    assert main(["demo", "--pictures", str(folder)]) == 1
    assert "exists" in capsys.readouterr().err, "pictures of a user are not overwritten"


@pytest.mark.parametrize(
    "arguments, says", [(["-o", "no/such/folder.png"], "no/such/folder.png"), (["--device", "gpu"], "gpu")]
)
def test_errors_of_the_demo_are_one_line(arguments, says, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "_COUNT", 40)
    assert main(["demo", "--device", "cpu", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cuaug demo: ") and says in line


# --- the progress bar: one line on a terminal, nothing elsewhere ------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch):
    """Sets the time, in seconds."""
    now = [100.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("total", [0, 1])
def test_more_items_than_were_counted(clock, total):
    stream = Terminal()
    bar = Progress(stream, total)
    for _ in range(3):
        clock[0] += 1
        bar.advance()
    assert stream.getvalue().endswith("3 files")


def test_nothing_is_printed_where_there_is_no_terminal():
    stream = io.StringIO()
    bar = Progress(stream, 3)
    bar.advance()
    bar.clear()
    assert stream.getvalue() == ""


def test_check_shows_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr", Terminal())
    writers.write_files(tmp_path, samples(3))
    assert main(["check", str(tmp_path / "table.csv")]) == 0
    assert f"[{'#' * 24}] 3 of 3 samples" in sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert sys.stderr.getvalue().endswith("\r\033[K")  # type: ignore[attr-defined]
