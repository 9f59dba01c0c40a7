"""Runs commands in this process, and puts modules in place of libraries in their children."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cuaug.commands.cli import main


@pytest.fixture
def run(capfd) -> Callable[..., tuple[int, list[str], str]]:
    """Runs a command; returns the exit status, output lines and stderr."""

    def run(*arguments: object) -> tuple[int, list[str], str]:
        status = main(list(map(str, arguments)))
        told = capfd.readouterr()
        return status, told.out.splitlines(), told.err

    return run


@pytest.fixture
def in_place_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a module in place of a library that imports the library and runs code in the child."""

    def replace(library: str, code: str) -> None:
        folder = tmp_path / "stub"
        folder.mkdir()
        head = (
            f"import os, sys, time\nsys.path.remove({str(folder)!r})\ndel sys.modules[{library!r}]\nimport {library}\n"
        )
        (folder / f"{library}.py").write_text(head + code)
        monkeypatch.syspath_prepend(folder)

    return replace
