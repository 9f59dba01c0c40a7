"""The progress bar of commands: one line on a terminal, nothing elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from cuaug.commands import cli, progress_bar
from cuaug.commands.progress_bar import Progress
from tests.support.sources import writers
from tests.support.sources.writers import samples


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch):
    """Sets the time, in seconds."""
    now = [100.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: now[0])
    return now


def test_a_line_is_rewritten_and_removed(clock):
    stream = Terminal()
    bar = Progress(stream, 8, "samples")
    for _ in range(2):
        clock[0] += 2
        bar.advance("1 damaged")
    assert stream.getvalue().split("\r\033[K") == [
        "",
        "[###.....................] 1 of 8 samples, 1 damaged",
        "[######..................] 2 of 8 samples, 12 s left, 1 damaged",
    ]
    bar.clear()
    bar.clear()
    assert stream.getvalue().endswith("damaged\r\033[K")


def test_it_prints_few_lines_and_the_last(clock):
    stream = Terminal()
    bar = Progress(stream, 1000)
    for _ in range(1000):
        clock[0] += 0.001
        bar.advance()
    lines = stream.getvalue().split("\r\033[K")
    assert len(lines) < 10 and lines[-1] == f"[{'#' * 24}] 1000 of 1000 files"


@pytest.mark.parametrize("total", [0, 1])
def test_more_items_than_were_counted(clock, total):
    stream = Terminal()
    bar = Progress(stream, total)
    for _ in range(3):
        clock[0] += 1
        bar.advance()
    assert stream.getvalue().endswith("3 files")


@pytest.mark.parametrize(("seconds", "text"), [(42, "42 s"), (187, "3:07"), (3753, "1:02:33")])
def test_the_time_left(seconds, text):
    assert progress_bar._duration(seconds) == text


def test_nothing_is_printed_where_there_is_no_terminal():
    stream = io.StringIO()
    bar = Progress(stream, 3)
    bar.advance()
    bar.clear()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("command", ["check", "preview"])
def test_commands_show_one(tmp_path, monkeypatch, capsys, command):
    monkeypatch.setattr("sys.stderr", Terminal())
    writers.write_files(tmp_path, samples(3))
    options = ["--transforms", "[]", "-o", str(tmp_path / "grid.bmp")] if command == "preview" else []
    assert cli.main([command, str(tmp_path / "table.csv"), *options]) == 0
    unit = "images" if command == "preview" else "samples"
    assert f"[{'#' * 24}] 3 of 3 {unit}" in sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert sys.stderr.getvalue().endswith("\r\033[K")  # type: ignore[attr-defined]
