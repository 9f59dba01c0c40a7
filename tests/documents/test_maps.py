"""Every room has a map: the docstring of its `__init__.py` names all its files, and no others."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import cuaug

ROOT = Path(cuaug.__file__).parent
ROOMS = sorted(path.parent for path in ROOT.rglob("__init__.py") if len(list(path.parent.glob("*.py"))) > 1)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(ROOT.parent).as_posix())
def test_the_map_of_a_room_names_its_files(room):
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    files = {path.name for path in room.glob("*.py")} - {"__init__.py"}
    rows = re.findall(r"^((?:\w+\.py(?:, )?)+)  ", text, re.MULTILINE)
    assert {name for row in rows for name in row.split(", ")} == files
