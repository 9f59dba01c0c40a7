"""A folder of photos, a fake jpegtran, and a fixture that runs `cuaug prepare`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuaug.commands.cli import main
from tests.support.codec.encoded_images import RGB, encode
from tests.support.prepare.fake_jpegtran import MARKED, PLAIN, FakeJpegtran


@pytest.fixture
def jpegtran(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = FakeJpegtran(folder)
    program.add_answer(PLAIN, MARKED)
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
def prepared(jpegtran, tmp_path, capsys):
    """Runs `cuaug prepare` on a folder or a tar: exit status, target, standard output, standard error."""

    def run(source: Path) -> tuple[int, Path, str, str]:
        target = tmp_path / "prepared"
        status = main(["prepare", str(source), str(target), "--jpegtran", jpegtran.path, "--threads", "2"])
        captured = capsys.readouterr()
        return status, target, captured.out, captured.err

    return run
