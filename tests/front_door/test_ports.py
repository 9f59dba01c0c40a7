"""Each program of examples/ports runs and checks its own results."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

PORTS = Path(__file__).parents[2] / "examples" / "ports"
NAMES = sorted(path.stem for path in PORTS.glob("*.py") if path.stem != "pictures")


def test_the_programs_are_found():
    assert len(NAMES) >= 9


@pytest.mark.parametrize("name", NAMES)
def test_ports(name, monkeypatch, capsys):
    monkeypatch.syspath_prepend(PORTS)
    runpy.run_path(str(PORTS / f"{name}.py"), run_name="__main__")
    assert "(" in capsys.readouterr().out  # shapes
