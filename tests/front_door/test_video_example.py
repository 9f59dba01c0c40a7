"""examples/video.py learns what no single frame shows."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "video.py"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_example_tells_directions(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), "--data", str(tmp_path)])
    runpy.run_path(str(PROGRAM), run_name="__main__")
    text = capsys.readouterr().out
    accuracies = [int(share) for share in re.findall(r"epoch \d+: (\d+)% of the validation clips", text)]
    assert len(accuracies) == 8 and accuracies[-1] > 90
    assert "per clip" in text and "decoded by: video " in text
