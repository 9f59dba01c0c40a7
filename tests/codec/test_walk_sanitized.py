"""The library's look at JPEGs, and what it cuts out of them, under AddressSanitizer and UndefinedBehaviorSanitizer.

The files are damaged, and end anywhere.

And copies of it with one deliberate mistake each, which must be reported: otherwise the clean run would prove nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cuaug._native import KERNEL_DIRECTORY
from tests.builds import patched
from tests.test_sanitizers import ADDRESS, ROOT, runtime

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a runtime")


def run(folder: Path, kernels: Path, count: int) -> tuple[int, str]:
    """The exit status of reading so many damaged files' headers with these sources, and what was said."""
    source, library = folder / "headers.cpp", folder / "headers.so"
    source.write_text('#define EXPORT __attribute__((visibility("default")))\n#include "host_parts.h"\n')
    flags = ["-std=c++17", "-fPIC", "-shared", *ADDRESS, f"-I{kernels}"]
    subprocess.run([os.environ.get("CXX", "g++"), *flags, str(source), "-o", str(library)], check=True)
    environment = os.environ | {
        "LD_PRELOAD": runtime("libasan.so"),
        "PYTHONPATH": str(ROOT),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python leaves some of its own memory to the exit
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.codec.sanitized", str(library), str(count)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_damaged_files(tmp_path):
    status, said = run(tmp_path, KERNEL_DIRECTORY, 3000)
    found = re.search(r"(\d+) of (\d+) files are sound, (\d+) parts", said)
    assert status == 0 and found, said[-5000:]
    assert 100 < int(found[1]) < int(found[2]) - 3000 and int(found[3]) > 50


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("host_jpeg.h", "if (at + 10 > size || found", "if (found"),
        ("host_jpeg.h", "end > size || !progress.note", "!progress.note"),
        ("host_jpeg.h", "if (end > size) return 0;", ""),
        ("host_jpeg.h", "if (directory + 2 > size) return 0;", ""),
        ("host_jpeg.h", "size_t(size - 1 - at)", "size_t(size - at)"),
        ("host_jpeg.h", "for (; at + 17 <= size; at += 16)", "for (; at + 16 <= size; at += 16)"),
        ("host_jpeg.h", "for (int64_t at = 2; at + 2 <= size &&", "for (int64_t at = 2; at + 1 <= size &&"),
        (
            "host_jpeg.h",
            "memcpy(out + 5 * i, &header, sizeof header);",
            "memcpy(out + 5 * i + 1, &header, sizeof header);",
        ),
        ("host_frame.h", "if (length < 2 || end > size) return false;", "if (length < 2) return false;"),
        ("host_parts.h", "size_t(frame.begin));", "size_t(frame.begin)), out[1 << 16] = 0;"),
        ("host_codes.h", "if (end - next >= 8 && ", "if (end - next >= 1 && "),
        ("host_codes.h", "if (end - next < 16) {", "if (end - next < 1) {"),
        ("host_index.h", "for (; at + 64 <= size; at += 64)", "for (; at < size; at += 64)"),
    ],
    ids=[
        "frame",
        "progress",
        "entries",
        "directory",
        "scan",
        "block",
        "marker",
        "result",
        "segment",
        "part",
        "bits",
        "room",
        "sum",
    ],
)
def test_a_wrong_access_is_reported(tmp_path, file, right, wrong):
    status, said = run(tmp_path, patched(tmp_path / "kernels", file, right, wrong), 300)
    assert status != 0 and "ERROR: AddressSanitizer" in said, said[-5000:]
