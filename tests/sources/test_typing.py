"""Type checking of a user's program: mypy accepts what sources accept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Dataset, TensorDataset, random_split

from cuaug.sources import Files, Source, open_source


class Typed(Dataset[tuple[str, int]]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> tuple[str, int]:
        return "a.png", 1


class Plain:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, number: int) -> str:
        return "a.png"


class Own:
    def __len__(self) -> int:
        return 1

    def read(self, index: int) -> tuple[str, int]:
        return "a.png", index


def found() -> Iterator[Path]:
    yield Path("a.png")


Files(sorted(Path("photos").glob("*.png")), labels=[1])
source: Source = Files(["a.png", Path("b.png")])
open_source(Typed())
open_source(Plain())
open_source(Own())
open_source(source)
open_source(TensorDataset(torch.zeros(1)))
open_source(ConcatDataset([Typed(), Typed()]))
for half in random_split(Typed(), [0.5, 0.5]):
    open_source(half)
open_source(Path("photos"))
open_source(found())
open_source([("a.png", 1)])
open_source({"a.png": 1})
open_source(np.array(["a.png"]))
open_source(7)  # type: ignore[arg-type]
Files([7])  # type: ignore[list-item]
"""


@pytest.mark.slow
def test_mypy_accepts_a_correct_program(tmp_path):
    """It also refuses the wrong calls: an unused `type: ignore` is an error."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(tmp_path / "program.py")],
        cwd=Path(__file__).parents[2],  # its pyproject.toml
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
