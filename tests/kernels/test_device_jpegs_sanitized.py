"""The JPEG decoder for GPUs, its CPU build under AddressSanitizer and UndefinedBehaviorSanitizer, on damaged files.

That such runs report wrong accesses is tested in tests/kernels/test_sanitizers.py.
CUAUG_FUZZ_CASES=100000 makes a longer run, CUAUG_FUZZ_SEED another one.
"""

from __future__ import annotations

import os
import re
import sys

import pytest

from tests.support.sanitizers import compile_address, run

pytestmark = [pytest.mark.long, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a runtime")]
CASES = int(os.environ.get("CUAUG_FUZZ_CASES", "10000"))
SEED = int(os.environ.get("CUAUG_FUZZ_SEED", "1"))


def test_damaged_files_are_clean(tmp_path):
    library = compile_address(tmp_path, ["jpeg/device_batch.h", "cpu/decode_jpeg.h"], ["-O1", "-w"])
    program = ["-m", "tests.sanitize.sanitized_device_jpegs", str(library), str(CASES), str(SEED)]
    status, output = run(library, "libasan.so", program)
    found = {name: int(number) for name, number in re.findall(r"'([a-z ]+)': (\d+)", output)}
    assert status == 0 and found, output[-5000:]
    assert min(found["added"], found["refused"]) > CASES // 20 and found["damaged"] > CASES // 200, found
