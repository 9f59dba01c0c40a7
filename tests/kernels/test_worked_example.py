"""docs/design.md's example of a new point operation, followed in a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.builds import build

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"`([\w/.]+)`, above `([^`\n]+)`:\n\n```\w+\n(.*?)```", re.DOTALL)
#: A file that lists names, an entry of the list, and the new entry.
ENTRIES = [
    ("cuaug/transforms/__init__.py", '"RandomSolarize",', '"RandomTint",'),
    ("cuaug/transforms/__init__.py", "    RandomSolarize,", "    RandomTint,"),
    ("cuaug/functional/pixel_functions.py", "    RandomSolarize,", "    RandomTint,"),
    ("cuaug/functional/__init__.py", "    solarize,", "    tint,"),
    ("cuaug/functional/__init__.py", '"solarize",', '"tint",'),
    ("docs/transforms.md", "`RandomSolarize`", "`RandomTint`"),
]
#: Tests that name every operation or transform, and those that run each.
TESTS = [
    "tests/kernels/test_layout.py",
    "tests/transforms/test_compiled.py",
    "tests/transforms/test_every.py",
    "tests/properties/test_color.py",
    "tests/front_door/test_api.py",
    "tests/documents/test_gallery.py::test_every_transform_has_a_chain",
    "tests/documents/test_docs.py",
]
SELECTED = "Tint or tint or TINT or every_ or layout or dunder_all or public or map"


@pytest.mark.long
def test_the_example_of_a_point_operation_works(tmp_path):
    for name in ("cuaug", "kernels", "tests", "docs", "examples", "benchmarks", "setup.py", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    steps = STEP.findall((ROOT / "docs" / "design.md").read_text())
    edits = [(file, anchor, text + anchor) for file, anchor, text in steps]
    edits += [(file, entry, new + " " + entry) for file, entry, new in ENTRIES]
    for file, anchor, text in edits:
        before = (tmp_path / file).read_text()
        assert before.count(anchor) == 1, f"{anchor!r} occurs {before.count(anchor)} times in {file}"
        (tmp_path / file).write_text(before.replace(anchor, text))
    assert len({file for file, *_ in edits}) == 11
    build(tmp_path / "kernels.so", [], kernels=tmp_path / "kernels")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-k", SELECTED, *TESTS]
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "CUAUG_KERNEL_LIBRARY": str(tmp_path / "kernels.so"),
        "CUAUG_SLOW_TESTS": "",
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 20, done.stdout
