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
    assert cli.main(["check", str(tmp_path / "table.csv")]) == 0
    assert f"[{'#' * 24}] 3 of 3 samples" in sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert sys.stderr.getvalue().endswith("\r\033[K")  # type: ignore[attr-defined]
