"""docs/parity.md: it is up to date, has every operation, and no error exceeds its tolerance."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from cuaug import functional
from cuaug import transforms as T
from tests.support import tolerances
from tests.support.transforms.cases import CASES
from tests.tools import batch_cases, differences, parity
from tests.tools.batch_cases import BATCH_CASES
from tests.tools.peer_outputs import photos

PAGE = Path(__file__).parents[2] / "docs" / "parity.md"
# The largest error and the mean: the first two numeric cells of a line.
FIGURES = re.compile(r"(?<=[^\d] )\| ([\d.e-]+) \| ([\d.e-]+) \|")


@pytest.fixture(scope="module")
def tables() -> tuple[list[parity.Row], list[parity.Row]]:
    return parity.functions(), parity.transforms()


@pytest.mark.slow
def test_no_error_exceeds_its_tolerance(tables):
    for row in [*tables[0], *tables[1]]:
        assert row.mean <= row.most <= row.tolerance.most, f"{row.cells}: {row.most} levels ({row.tolerance.reason})"


@pytest.mark.slow
def test_the_page_is_up_to_date(tables):
    """Except for the last digits, which depend on the processor and the libraries."""
    written, current = PAGE.read_text(), parity.page(*tables)
    command = "run `python -m tests.tools.parity --out docs/parity.md`"
    assert without_figures(written) == without_figures(current), command
    for before, now in zip(figures(written), figures(current), strict=True):
        assert now == pytest.approx(before, rel=0.2, abs=0.02), command


def without_figures(page: str) -> str:
    return re.sub(FIGURES, "|", page)


def figures(page: str) -> list[float]:
    return [float(number) for pair in re.findall(FIGURES, page) for number in pair]


def test_every_operation_is_in_the_table():
    names = {re.match(r"F\.(\w+)\(", entry.call)[1] for entry in parity.FUNCTIONS}
    assert names | set(parity.DRAWN) == set(functional.__all__)
    assert set(parity.DRAWN.values()) <= set(CASES), "random functions are compared as transforms"
    compared = set(CASES) | set(BATCH_CASES)
    assert compared | parity.PIXELLESS == set(T.__all__), "a new transform needs a line in cases.py"
    assert not parity.PIXELLESS & compared and set(CASES) >= parity.EXACT
    page = PAGE.read_text()
    for line in [
        *(f"| `{entry.call}` | {entry.peer}" for entry in parity.FUNCTIONS),
        *(f"| `{n}` |" for n in [*CASES, *BATCH_CASES]),
    ]:
        assert line in page, "run `python -m tests.tools.parity --out docs/parity.md`"


def test_wrong_results_exceed_the_tolerance(monkeypatch):
    """Truncation instead of rounding, one wrong level, and another size."""
    entry = next(entry for entry in parity.FUNCTIONS if entry.call == "F.adjust_gamma(image, 0.6, 1.1)")
    adjusted = functional.adjust_gamma
    for wrong in (lambda v: v - 1, lambda v: np.where(np.arange(v.shape[1])[:, None] == 5, v - 1, v)):
        monkeypatch.setattr(functional, "adjust_gamma", lambda *a, wrong=wrong: wrong(adjusted(*a).astype(int)))
        row = parity.function_row(entry)
        assert row.most > row.tolerance.most
    monkeypatch.setattr(functional, "adjust_gamma", lambda *a: adjusted(*a)[1:])
    with pytest.raises(AssertionError, match=r"\(199, 200, 3\), not \(200, 200, 3\)"):
        parity.function_row(entry)


@pytest.mark.parametrize("name", BATCH_CASES)
def test_a_batch_case_changes_images_and_detects_a_flipped_input(name, monkeypatch):
    images = parity.small_photos()[:2]
    results = batch_cases.pairs(name, images)
    assert len(results) == 2
    assert not any(np.array_equal(got, image) for (got, _), image in zip(results, images, strict=True))
    assert all(np.abs(got - want).max() <= BATCH_CASES[name].tolerance.most for got, want in results)
    case, reference = BATCH_CASES[name], BATCH_CASES[name].image
    wrong = case._replace(image=lambda images, i, **drawn: reference(images[:, ::-1], i, **drawn))
    monkeypatch.setitem(BATCH_CASES, name, wrong)
    assert parity.transform_row(name).most > 20


def test_half_a_level_is_detected_in_exact_transforms(monkeypatch):
    transform, _ = CASES["RandomInvert"][0]
    monkeypatch.setitem(CASES, "RandomInvert", [(transform, lambda image: np.clip(254.6 - image, 0, 255))])
    row = parity.transform_row("RandomInvert")
    assert row.tolerance.most == tolerances.EXACT.most < row.most < tolerances.ROUNDING_LEVELS.most


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
    lines = "| `F.crop(image, 9, 20)` | NumPy | 1.00 | 5.4e-05 | 1 | Pillow's 2 |\n| `Resize` | 0 | 0.25 | 0.501 |\n"
    assert figures(lines) == [1.0, 5.4e-05, 0.0, 0.25]
    assert without_figures(lines) == "| `F.crop(image, 9, 20)` | NumPy | 1 | Pillow's 2 |\n| `Resize` | 0.501 |\n"
