"""The notebooks hold their results, are small, and link to pages that exist; `make notebooks` runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_results_are_stored(path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)], (
        "run tests/tools/notebooks.py --write"
    )
    outputs = [output for cell in code for output in cell["outputs"]]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert "image/jpeg" in kinds and "image/png" not in kinds
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert path.stat().st_size < 300_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    text = "".join(line for cell in json.loads(path.read_text())["cells"] for line in cell["source"])
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    assert links and all((FOLDER / link).is_file() for link in links)


def test_every_notebook_is_listed():
    listed = re.findall(r"\]\((\w+\.ipynb)\)", (FOLDER / "README.md").read_text())
    assert sorted(listed) == [path.name for path in NOTEBOOKS] and len(listed) >= 4
