"""The tables of docs/parity.md: every operation is in them, no error exceeds its tolerance, the page is this one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from cuaug import functional
from cuaug import transforms as T
from tests.support import tolerances
from tests.tools import differences, parity, stages
from tests.tools.peer_outputs import photos
from tests.tools.stages import STAGES
from tests.transforms.cases import CASES

PAGE = Path(__file__).parents[1] / "docs" / "parity.md"
# The largest error and the mean: the first two cells of a line that are numbers.
FIGURES = re.compile(r"(?<=[^\d] )\| ([\d.e-]+) \| ([\d.e-]+) \|")


@pytest.fixture(scope="module")
def tables() -> tuple[list[parity.Row], list[parity.Row]]:
    return parity.functions(), parity.transforms()


@pytest.mark.slow
def test_no_error_exceeds_its_tolerance(tables):
    for row in [*tables[0], *tables[1]]:
        assert row.mean <= row.most <= row.tolerance.most, f"{row.what}: {row.most} levels ({row.tolerance.reason})"


@pytest.mark.slow
def test_the_page_is_this_one(tables):
    """But for the last digits of its figures, which another processor or library may have otherwise."""
    told, made = PAGE.read_text(), parity.page(*tables)
    command = "run `python -m tests.tools.parity --out docs/parity.md`"
    assert without_figures(told) == without_figures(made), command
    for before, now in zip(figures(told), figures(made), strict=True):
        assert now == pytest.approx(before, rel=0.2, abs=0.02), command


def without_figures(page: str) -> str:
    return re.sub(FIGURES, "|", page)


def figures(page: str) -> list[float]:
    return [float(number) for pair in re.findall(FIGURES, page) for number in pair]


def test_every_operation_is_in_the_table():
    names = {re.match(r"F\.(\w+)\(", entry.call)[1] for entry in parity.FUNCTIONS}
    assert names | set(parity.DRAWN) == set(functional.__all__)
    assert set(parity.DRAWN.values()) <= set(CASES), "a function that draws is compared as a transform"
    assert set(CASES) | set(STAGES) | parity.PIXELLESS == set(T.__all__), "a new transform has a line in cases.py"
    assert not parity.PIXELLESS & (set(CASES) | set(STAGES)) and set(CASES) >= parity.EXACT
    page = PAGE.read_text()
    for line in [
        *(f"| `{entry.call}` | {entry.against}" for entry in parity.FUNCTIONS),
        *(f"| `{n}` |" for n in [*CASES, *STAGES]),
    ]:
        assert line in page, "run `python -m tests.tools.parity --out docs/parity.md`"


def test_another_result_would_exceed_the_tolerance(monkeypatch):
    """Truncating instead of rounding, a level too much in one place, and another size."""
    entry = next(entry for entry in parity.FUNCTIONS if entry.call == "F.adjust_gamma(image, 0.6, 1.1)")
    adjusted = functional.adjust_gamma
    for wrong in (lambda v: v - 1, lambda v: np.where(np.arange(v.shape[1])[:, None] == 5, v - 1, v)):
        monkeypatch.setattr(functional, "adjust_gamma", lambda *a, wrong=wrong: wrong(adjusted(*a).astype(int)))
        row = parity.function_row(entry)
        assert row.most > row.tolerance.most
    monkeypatch.setattr(functional, "adjust_gamma", lambda *a: adjusted(*a)[1:])
    with pytest.raises(AssertionError, match=r"\(199, 200, 3\), not \(200, 200, 3\)"):
        parity.function_row(entry)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_does_something_and_that_of_another_image_is_noticed(name, monkeypatch):
    images = parity.small_photos()[:2]
    made = stages.pairs(name, images)
    assert len(made) == 2 and not any(np.array_equal(got, image) for (got, _), image in zip(made, images, strict=True))
    assert all(np.abs(got - want).max() <= STAGES[name].tolerance.most for got, want in made)
    stage, reference = STAGES[name], STAGES[name].image
    wrong = stage._replace(image=lambda images, i, **drawn: reference(images[:, ::-1], i, **drawn))
    monkeypatch.setitem(STAGES, name, wrong)
    assert parity.transform_row(name).most > 20


def test_a_level_too_much_is_noticed_where_whole_pixels_move(monkeypatch):
    transform, _ = CASES["RandomInvert"][0]
    monkeypatch.setitem(CASES, "RandomInvert", [(transform, lambda image: np.clip(254.6 - image, 0, 255))])
    row = parity.transform_row("RandomInvert")
    assert row.tolerance.most == tolerances.EXACT.most < row.most < tolerances.ROUNDING_LEVELS.most


def test_changes_of_colour_that_are_cut_off_are_torchs_arithmetic():
    """Bytes that are made without rounding."""
    image = photos()[0]
    levels = torch.tensor(image).float()
    gray = (levels * torch.tensor([0.2989, 0.587, 0.114])).sum(2, keepdim=True).floor()

    def cut(values: torch.Tensor) -> np.ndarray:
        return values.clamp(0, 255).to(torch.uint8).numpy()

    for got, want in (
        (differences.brightness(1.3), cut(levels * 1.3)),
        (differences.contrast(0.7), cut(levels * 0.7 + gray.mean() * 0.3)),
        (differences.saturation(1.4), cut(levels * 1.4 - gray * 0.4)),
    ):
        assert (got(image) != want).mean() < 0.001
        assert (np.rint(got(image) + 0.5) != want).mean() > 0.1, "other bytes would be noticed"


def test_figures_are_found():
    lines = "| `F.crop(image, 9, 20)` | NumPy | 1.00 | 5.4e-05 | 1 | Pillow's 2 |\n| `Resize` | 0 | 0.25 | 0.501 |\n"
    assert figures(lines) == [1.0, 5.4e-05, 0.0, 0.25]
    assert without_figures(lines) == "| `F.crop(image, 9, 20)` | NumPy | 1 | Pillow's 2 |\n| `Resize` | 0.501 |\n"
