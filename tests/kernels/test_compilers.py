"""The compiler that CXX names gives the bits of the installed library. `make test-clang` runs this with clang.

`make test-aarch64` compares the bits of aarch64.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cuaug._runtime.native import ISAS
from tests.support.builds import build

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.skipif("CXX" not in os.environ, reason="CXX names no compiler to compare")]


def run_plans(library: Path | None) -> str:
    """The number of plans and the digest of their results, or an empty string if instruction sets disagree."""
    environment = os.environ | ({} if library is None else {"CUAUG_KERNEL_LIBRARY": str(library)})
    command = [sys.executable, "-m", "tests.support.sanitizer_plans", "1", *ISAS]
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True).stdout


def test_the_bits_are_those_of_the_installed_library(tmp_path):
    expected = run_plans(None)
    assert re.fullmatch(r"1\d{3} plans [0-9a-f]{64}\n", expected)
    assert run_plans(build(tmp_path / "kernels.so", [])) == expected
