"""Photos to prepare, and the program that does it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuaug.commands.cli import main
from tests.codec.pictures import RGB, encode
from tests.prepare.stand_in import MARKED, PLAIN, StandIn


@pytest.fixture
def stand_in(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = StandIn(folder)
    program.answer(PLAIN, MARKED)
    return program


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "cats").mkdir(parents=True)
    (folder / "cats" / "a.jpg").write_bytes(PLAIN)
    (folder / "cats" / "no suffix").write_bytes(PLAIN)
    (folder / "labels.csv").write_text("cats/a.jpg,0\n")
    (folder / "b.png").write_bytes(encode(RGB, "PNG"))
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def prepared(stand_in, tmp_path, capsys):
    """Prepares a folder or a tar: the exit status, the target, and what was said on standard output and error."""

    def run(source: Path) -> tuple[int, Path, str, str]:
        target = tmp_path / "prepared"
        status = main(["prepare", str(source), str(target), "--jpegtran", stand_in.path, "--threads", "2"])
        told = capsys.readouterr()
        return status, target, told.out, told.err

    return run
