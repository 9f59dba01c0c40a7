"""Parsing and cropping of damaged and truncated JPEGs under AddressSanitizer and UndefinedBehaviorSanitizer.

A copy of the library with a deliberate mistake must be reported; otherwise the clean run would prove nothing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from cuaug._runtime.native import KERNEL_DIRECTORY
from tests.support.sanitizers import compile_address, plant_mistakes, run, run_each

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a runtime"),
]

MISTAKES = {
    "frame": ("jpeg/headers.h", "if ({at + 10 > size <> false} || header"),
    "progress": ("jpeg/headers.h", "{end > size <> false} || !progress.add"),
    "entries": ("jpeg/headers.h", "if ({end > size <> false}) return 0;"),
    "directory": ("jpeg/headers.h", "if ({directory + 2 > size <> false}) return 0;"),
    "scan": ("jpeg/headers.h", "size_t({size - 1 - at <> size - at})"),
    "block": ("jpeg/headers.h", "for (; {at + 17 <= size <> at + 16 <= size}; at += 16)"),
    "marker": ("jpeg/headers.h", "for (int64_t at = 2; {at + 2 <= size <> at + 1 <= size} &&"),
    "result": ("jpeg/headers.h", "memcpy(out + {5 * i <> 5 * i + 1}, &header, sizeof header);"),
    "segment": ("jpeg/frame.h", "if (length < 2 || {end > size <> false} || marker == DAC || "),
    "headers": ("jpeg/crop.h", "size_t({frame.data_begin <> frame.data_begin + (1 << 16)}));"),
    "bits": ("jpeg/huffman.h", "if ({end - next >= 8 <> end - next >= 1} && "),
    "capacity": ("jpeg/huffman.h", "if ({end - next < 16 <> end - next < 1}) {"),
    "inside": ("jpeg/entry_points.h", "{at[size_t(end)] < 8 * size <> true};"),
    "sum": ("jpeg/index_file.h", "for (; {at + 64 <= size <> at < size}; at += 64)"),
}


def compiled(folder: Path, kernels: Path, flags: list[str]) -> Path:
    return compile_address(folder, kernels, ["jpeg/crop.h"], flags)


def test_damaged_files_are_clean(tmp_path):
    library = compiled(tmp_path, KERNEL_DIRECTORY, [])
    status, output = run(library, "libasan.so", ["-m", "tests.sanitize.sanitized_jpegs", str(library), "3000"])
    found = re.search(r"(\d+) of (\d+) files are sound, (\d+) crops", output)
    assert status == 0 and found, output[-5000:]
    assert 100 < int(found[1]) < int(found[2]) - 3000 and int(found[3]) > 50


def test_wrong_accesses_are_reported(tmp_path):
    library = compiled(tmp_path, tmp_path / "kernels", plant_mistakes(tmp_path / "kernels", MISTAKES))
    numbers = {name: number for number, name in enumerate(MISTAKES)} | {"none": -1}
    work = f"sanitized_jpegs.main({str(library)!r}, 300)"
    found = run_each(library, "libasan.so", "from tests.sanitize import sanitized_jpegs", work, numbers, tmp_path)
    status, output = found.pop("none")
    assert status == 0 and "crops" in output, f"the library without a mistake: {output}"
    for mistake, (status, output) in found.items():
        assert status != 0 and "ERROR: AddressSanitizer" in output, f"{mistake}: {output[-5000:]}"
