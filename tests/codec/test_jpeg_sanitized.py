"""Damaged JPEGs are parsed and cropped, PNGs and WebPs parsed, under AddressSanitizer and UndefinedBehaviorSanitizer.

That such runs report wrong accesses is tested in tests/kernels/test_sanitizers.py.
"""

from __future__ import annotations

import re
import sys

import pytest

from tests.support.sanitizers import compile_address, run

pytestmark = [pytest.mark.long, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a runtime")]


def test_damaged_files_are_clean(tmp_path):
    library = compile_address(tmp_path, ["jpeg/crop.h", "cpu/first_headers.h"], [])
    status, output = run(library, "libasan.so", ["-m", "tests.sanitize.sanitized_jpegs", str(library), "3000"])
    found = re.search(r"(\d+) of (\d+) files are sound, (\d+) crops were made, (\d+) have a size", output)
    assert status == 0 and found, output[-5000:]
    assert 100 < int(found[1]) < int(found[2]) - 3000 and int(found[3]) > 50 and int(found[4]) > int(found[1]) + 100
