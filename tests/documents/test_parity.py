"""docs/parity.md: it is up to date, has every operation, and no error exceeds its tolerance."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from cuaug import functional
from tests.support.transforms.cases import CASES
from tests.tools import differences, parity
from tests.tools.peer_outputs import photos

PAGE = Path(__file__).parents[2] / "docs" / "parity.md"
# The largest error and the mean: the first two numeric cells of a line.
FIGURES = re.compile(r"(?<=[^\d] )\| ([\d.e-]+) \| ([\d.e-]+) \|")


@pytest.fixture(scope="module")
def rows() -> list[parity.Row]:
    return parity.functions()


@pytest.mark.slow
def test_no_error_exceeds_its_tolerance(rows):
    for row in rows:
        assert row.mean <= row.most <= row.tolerance.most, f"{row.cells}: {row.most} levels ({row.tolerance.reason})"


@pytest.mark.slow
def test_the_page_is_up_to_date(rows):
    """Except for the last digits, which depend on the processor and the libraries."""
    written, current = PAGE.read_text(), parity.page(rows)
    command = "run `python -m tests.tools.parity --out docs/parity.md`"
    assert without_figures(written) == without_figures(current), command
    for before, now in zip(figures(written), figures(current), strict=True):
        assert now == pytest.approx(before, rel=0.2, abs=0.02), command


def without_figures(page: str) -> str:
    return re.sub(FIGURES, "|", page)


def figures(page: str) -> list[float]:
    return [float(number) for pair in re.findall(FIGURES, page) for number in pair]


def test_every_operation_is_in_the_table():
    names = set(re.findall(r"^F\.(\w+)\(", "\n".join(entry.call for entry in parity.FUNCTIONS), re.MULTILINE))
    assert names | set(parity.DRAWN) == set(functional.__all__)
    assert set(parity.DRAWN.values()) <= set(CASES), "random functions are compared as transforms"
    page = PAGE.read_text()
    for entry in parity.FUNCTIONS:
        assert f"| `{entry.call}` | {entry.peer}" in page, "run `python -m tests.tools.parity --out docs/parity.md`"


def test_truncated_color_changes_equal_torchs_arithmetic():
    """torch converts to uint8 without rounding."""
    image = photos()[0]
    levels = torch.tensor(image).float()
    gray = (levels * torch.tensor([0.2989, 0.587, 0.114])).sum(2, keepdim=True).floor()

    def truncate(values: torch.Tensor) -> np.ndarray:
        return values.clamp(0, 255).to(torch.uint8).numpy()

    for got, want in (
        (differences.brightness(1.3), truncate(levels * 1.3)),
        (differences.contrast(0.7), truncate(levels * 0.7 + gray.mean() * 0.3)),
        (differences.saturation(1.4), truncate(levels * 1.4 - gray * 0.4)),
    ):
        assert (got(image) != want).mean() < 0.001
        assert (np.rint(got(image) + 0.5) != want).mean() > 0.1, "rounded bytes differ"


def test_the_pattern_finds_the_figures():
    lines = "| `F.crop(image, 9, 20)` | NumPy | 1.00 | 5.4e-05 | 1 | Pillow's 2 |\n| `Resize` | rounded | 0 | 0.25 |\n"
    assert figures(lines) == [1.0, 5.4e-05, 0.0, 0.25]
    assert without_figures(lines) == "| `F.crop(image, 9, 20)` | NumPy | 1 | Pillow's 2 |\n| `Resize` | rounded |\n"
