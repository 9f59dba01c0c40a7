"""The JPEG decoder for GPUs, its CPU build under AddressSanitizer and UndefinedBehaviorSanitizer, on damaged files.

A copy of the library with a deliberate mistake must be reported; otherwise the clean run would prove nothing.
CUAUG_FUZZ_CASES=100000 makes a longer run, CUAUG_FUZZ_SEED another one.
"""

from __future__ import annotations

import os
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
CASES = int(os.environ.get("CUAUG_FUZZ_CASES", "10000"))
SEED = int(os.environ.get("CUAUG_FUZZ_SEED", "1"))

MISTAKES = {
    "begin": ("core/jpeg_bits.h", "end = size, next = irregular = {min(bit / 8, size) <> bit / 8};"),
    "rectangle": ("core/decode_jpeg.h", "return {is_inside <> true} ? place : NOT_STORED;"),
    "neighbor": ("core/color_jpeg.h", "if ({count > 8 <> true}) {"),
    "tile": ("core/color_jpeg.h", "if ({row < image.bottom && column < image.right <> true}) color_pixels"),
    "pixel": ("core/color_jpeg.h", "if ({row >= target.rows <> false} || 3 * column < target.left"),
    "vector": ("core/color_jpeg.h", "if ({first + 16 * k < left || first + 16 * k + 16 > right <> false}) continue;"),
    "samples": ("jpeg/device_batch.h", "plan.sample_bytes += {jpeg.sample_bytes(i) <> jpeg.sample_bytes(i) - 64};"),
    "target": ("jpeg/device_batch.h", "plan.target_bytes += {round_to_16(jpeg.target_bytes()) <> 16};"),
    "capacity": ("jpeg/device_batch.h", "return {at + bytes <= capacity <> true} ? at : -1;"),
    "quantizer": ("jpeg/device_jpeg.h", "if ({its.quantizer >= MAX_QUANTIZERS <> false} ||"),
    "entries": ("jpeg/device_jpeg.h", "if ({!entries.are_inside(frame, size, first, last) <> false}) return false;"),
    "cells": ("jpeg/device_batch.h", "plan.scan_bytes += {cell_bytes(jpeg.scan) <> cell_bytes(jpeg.scan) - 8};"),
    "run": ("core/scan_jpeg.h", "if (is_met || {++cell == end <> ++cell > end}) return;"),
    "found": ("jpeg/device_batch.h", "plan.segment_bytes += {segment_bytes(jpeg.scan) <> 16};"),
}


def compiled(folder: Path, kernels: Path, flags: list[str]) -> Path:
    return compile_address(folder, kernels, ["jpeg/device_batch.h", "cpu/decode_jpeg.h"], ["-O1", "-w", *flags])


def test_damaged_files_are_clean(tmp_path):
    library = compiled(tmp_path, KERNEL_DIRECTORY, [])
    program = ["-m", "tests.sanitize.sanitized_device_jpegs", str(library), str(CASES), str(SEED)]
    status, output = run(library, "libasan.so", program)
    found = {name: int(number) for name, number in re.findall(r"'([a-z ]+)': (\d+)", output)}
    assert status == 0 and found, output[-5000:]
    assert min(found["added"], found["refused"]) > CASES // 20 and found["damaged"] > CASES // 200, found


def test_wrong_accesses_are_reported(tmp_path):
    library = compiled(tmp_path, tmp_path / "kernels", plant_mistakes(tmp_path / "kernels", MISTAKES))
    numbers = {name: number for number, name in enumerate(MISTAKES)} | {"none": -1}
    work = f"sanitized_device_jpegs.main({str(library)!r}, 500)"
    prepare = "from tests.sanitize import sanitized_device_jpegs"
    found = run_each(library, "libasan.so", prepare, work, numbers, tmp_path)
    status, output = found.pop("none")
    assert status == 0 and "added" in output, f"the library without a mistake: {output}"
    report = re.compile("ERROR: AddressSanitizer|runtime error: index .* out of bounds")
    reports = {mistake: bool(report.search(output)) for mistake, (_, output) in found.items()}
    assert all(reports.values()), (reports, {name: found[name] for name, reported in reports.items() if not reported})
