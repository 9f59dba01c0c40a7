"""Names of tracked files: one that an editor's or a shell's slip made does not stay."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Files of the root whose names have no extension, or begin with a dot.
PLAIN = {"LICENSE", "Makefile", ".clang-format", ".gitignore", ".pre-commit-config.yaml"}
#: Extensions of the others, and folders.
SUFFIXES = {".cff", ".in", ".md", ".py", ".toml", ".yml"}


def odd_names(names: list[str]) -> list[str]:
    """Names of characters that need quotes in a shell, and files of the root of no known kind."""
    in_root = [name for name in names if "/" not in name and name not in PLAIN and Path(name).suffix not in SUFFIXES]
    return [*in_root, *(name for name in names if not re.fullmatch(r"[\w.][\w.-]*(/[\w.][\w.-]*)*", name, re.ASCII))]


def test_odd_names_are_found():
    odd = ["ith a slash: it may be the file's own folder#", "cuaug/-n", "docs/a b.md", "docs/ü.md", "saved", "x.orig"]
    assert set(odd_names([*odd, "README.md", "docs/a-b.md", ".github/workflows/ci.yml"])) == set(odd)


def test_no_tracked_name_is_odd():
    if not (ROOT / ".git").exists():
        pytest.skip("no repository")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert odd_names(listed.stdout.split("\0")[:-1]) == []
