"""A wheel built from source, and what a machine without a compiler is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy, because building writes beside the sources."""
    copy = tmp_path / "source"
    copy.mkdir()
    for name in ("cuaug", "kernels"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


def build(source: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "wheels", "."]
    return subprocess.run(pip, cwd=source, env=os.environ | environment, capture_output=True, text=True)


def test_a_wheel_is_for_every_python_3_and_brings_the_kernel_sources(source: Path):
    done = build(source)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (source / "wheels").iterdir()
    assert wheel.name.startswith("cuaug-") and "-py3-none-" in wheel.name

    installed = source.parent / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    kernels = {path.name for path in (ROOT / "kernels").iterdir()}
    assert {path.name for path in (installed / "cuaug" / "_kernels").iterdir()} == kernels
    assert (installed / "cuaug" / "pipeline" / "timeline.html").is_file()
    program = (
        "import numpy as np, cuaug, cuaug._native as native; from cuaug import transforms as T; "
        "assert native.KERNEL_DIRECTORY.parent.parent.samefile('.'), native.KERNEL_DIRECTORY; "
        "assert T.Resize(8)(np.zeros((20, 30, 3), np.uint8)).shape == (8, 12, 3)"
    )
    used = subprocess.run([sys.executable, "-c", program], cwd=installed, capture_output=True, text=True)
    assert used.returncode == 0, used.stderr


def test_without_a_compiler_one_line_says_so(source: Path):
    done = build(source, CXX="no-such-compiler")
    assert done.returncode != 0
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "needs a C++17 compiler" in line]
    assert "'no-such-compiler' was not found" in line and "apt-get install g++" in line


def test_a_failing_compiler_is_quoted(source: Path):
    (source / "kernels" / "store.h").write_text("this is no C++")
    done = build(source)
    assert done.returncode != 0
    assert "the C++ compiler failed on the host kernels" in done.stdout + done.stderr
    assert "store.h" in done.stdout + done.stderr
