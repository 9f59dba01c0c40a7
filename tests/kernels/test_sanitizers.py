"""The kernels under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer.

The unchanged kernels must be clean. Kernels with one deliberate mistake at a time must be reported; otherwise a clean
run would prove nothing. ThreadSanitizer runs every block on four threads with a real barrier, so it sees the barriers
that a GPU needs.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from cuaug._runtime.native import ISAS
from cuaug.plan import Border, Filter, Layout, Plan, Type
from cuaug.plan.layout import WARP_FILTERS, Measure, Neighborhood, OpCode
from tests.support import sanitizer_plans
from tests.support.builds import PORTABLE, build
from tests.support.sanitizers import ADDRESS, ROOT, THREAD, compile_address, plant_mistakes, run, run_each

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a runtime")


def plans(every: int, isas: Iterable[str]) -> list[str]:
    """The arguments that run each `every`-th plan with these instruction sets."""
    return ["-m", "tests.support.sanitizer_plans", str(every), *isas]


def test_the_plans_reach_every_path():
    """Every operation, measure, neighborhood, filter and border, on gathering and resampling passes."""
    rows, codes = [], set()
    always = [(31, 45, write) for write in sanitizer_plans.ALWAYS.values()]
    parts = itertools.product(sanitizer_plans.SIZES, (sanitizer_plans.geometries, sanitizer_plans.warps))
    for h, w, write in always + [(*size, write) for size, part in parts for _, write in part(*size)]:
        plan = Plan([h], [w])
        write(plan)
        tables = plan.compile(Type.FLOAT32, Layout.HWC)
        rows.append(tables.rows.reshape(-1))
        codes |= set(tables.ops["code"].tolist())
    assert codes == set(OpCode)
    every = np.concatenate(rows)
    gathers = (every["warped"] != 0) | (every["neighborhood"] > Neighborhood.SEPARABLE)
    assert set(every["neighborhood"]) == set(Neighborhood)
    stored = set(Filter) - {Filter.NEAREST_EXACT}  # which rows hold as NEAREST with an offset
    for passes, filters in ((every[gathers], set(WARP_FILTERS)), (every[~gathers], stored)):
        assert set(passes["measure"]["kind"]) == set(Measure)
        assert set(passes["before"]["border"]) == set(passes["after"]["border"]) == set(Border)
        assert set(passes["transposed"]) == {0, 1} and set(passes["filter"]) == filters
    # The first operation of a pass uses the statistics, so a gathering pass never does.
    pairs = set(zip(every[~gathers]["measured"]["kind"], every[~gathers]["measure"]["kind"], strict=True))
    assert pairs >= set(itertools.product(Measure, Measure)) and not every[gathers]["measured"]["kind"].any()
    warped = every[every["warped"] != 0]
    perspective, displaced = (warped["matrix"][:, 6:8] != 0).any(axis=1), warped["field"]["rows"] > 0
    assert {(False, False), (True, False), (False, True), (True, True)} <= set(zip(perspective, displaced, strict=True))


@pytest.mark.long
@pytest.mark.parametrize(("flags", "isas"), [([], tuple(ISAS)), (PORTABLE, ("baseline",))], ids=["x86-64", "portable"])
def test_no_bad_access_and_no_undefined_behavior(tmp_path, flags, isas):
    library = build(tmp_path / "kernels.so", ["-Og", *ADDRESS, *flags], isas=isas)
    status, output = run(library, "libasan.so", plans(1, isas))
    assert status == 0 and "plans" in output, output
    if not flags:
        status, output = run(library, "libasan.so", ["-m", "tests.sanitize.sanitized_decoding", "400"])
        assert status == 0 and "decoded" in output, output[-5000:]


@pytest.mark.long
def test_no_data_race(tmp_path):
    library = build(tmp_path / "kernels.so", ["-Og", *THREAD], isas=("baseline",))
    # Four threads with barriers are slow, and every plan passes the same barriers.
    status, output = run(library, "libtsan.so", plans(12, ["baseline"]))
    assert status == 0 and "plans" in output and "WARNING: ThreadSanitizer" not in output, output


@pytest.mark.long
def test_damaged_files_are_parsed_and_cropped_cleanly(tmp_path):
    library = compile_address(tmp_path, ["jpeg/crop.h", "cpu/first_headers.h"], [])
    status, output = run(library, "libasan.so", ["-m", "tests.sanitize.sanitized_jpegs", str(library), "3000"])
    found = re.search(r"(\d+) of (\d+) files are sound, (\d+) crops were made, (\d+) have a size", output)
    assert status == 0 and found, output[-5000:]
    sound, files, crops, sized = map(int, found.groups())
    assert 100 < sound < files - 3000 and crops > 50 and sized > sound + 100


@pytest.mark.long
def test_damaged_jpegs_are_decoded_cleanly_by_the_kernels_for_gpus(tmp_path):
    """CUAUG_FUZZ_CASES=100000 makes a longer run, CUAUG_FUZZ_SEED another one."""
    cases, seed = int(os.environ.get("CUAUG_FUZZ_CASES", "10000")), os.environ.get("CUAUG_FUZZ_SEED", "1")
    library = compile_address(tmp_path, ["jpeg/device_batch.h", "cpu/decode_jpeg.h"], ["-O1", "-w"])
    program = ["-m", "tests.sanitize.sanitized_device_jpegs", str(library), str(cases), seed]
    status, output = run(library, "libasan.so", program)
    found = {name: int(number) for name, number in re.findall(r"'([a-z ]+)': (\d+)", output)}
    assert status == 0 and found, output[-5000:]
    assert min(found["added"], found["refused"]) > cases // 20 and found["damaged"] > cases // 200, found


# Mistakes as `plant_mistakes` takes them; for wrong accesses also the report.
ACCESSES = {
    "read": ("cpu/resample.h", "const int n = {3 * (high - low) <> 3 * (high - low) + 1};", "of size"),
    "write": ("core/store.h", "return {int64(sample.y.out) * sample.x.out <> int64(sample.y.out) * sample.x.out + 1};",
              "WRITE of size"),
    "division": ("core/pixel_block.h", "if ({is<Borders>(border, EDGE) || n == 1 <> is<Borders>(border, EDGE)})",
                 "division by zero"),
    "conversion": ("core/pixel_block.h", "return int({clamp(value * scale + 0.5f, 0.0f, 255.0f) <> value * 1e12f});",
                   "outside the range"),
    "warp": ("core/warp_points.h", "left, {right - left - taps <> right - left - taps + 1})", "READ of size"),
}  # fmt: skip
SUMS = {
    "sum": (
        "cpu/platform.h",
        "(int64* sum, int64 value) { {__atomic_fetch_add(sum, value, __ATOMIC_RELAXED) <> *sum += value}; }",
    ),
    "count": ("cpu/platform.h", "{ return {__atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED) <> (*counter)++}; }"),
}
BARRIERS = {
    "core/clahe.h": 1,
    "core/jpeg_blocks.h": 2,
    "core/jpeg_compression.h": 2,
    "core/pillow_resize.h": 6,
    "core/resample.h": 3,
    "core/statistics.h": 4,
    "cpu/clahe.h": 1,
}
MISSING = [f"{file}-{k}" for file, count in BARRIERS.items() for k in range(count)]
NUMBERS = {name: number for number, name in enumerate([*ACCESSES, *SUMS, *MISSING])} | {"none": -1}


# JPEG decoding has tests of its own: tests/kernels/test_emulated_jpeg.py.
OTHER_PROGRAMS = {"core/jpeg_bits.h", "core/color_jpeg.h", "core/scan_jpeg.h"}


def test_barriers_lists_every_barrier():
    folder = ROOT / "kernels"
    found = {
        path.relative_to(folder).as_posix(): path.read_text().count("block.sync();") for path in folder.glob("**/*.h")
    }
    found = {file: count for file, count in found.items() if count and file not in OTHER_PROGRAMS}
    assert found == BARRIERS, "adapt BARRIERS"


def reports(folder: Path, sanitizer: list[str], preload: str, mistakes: Iterable[str]) -> dict[str, tuple[int, str]]:
    """By mistake, or "none": the exit status and the output of each twelfth plan."""
    kernels = folder / "kernels"
    flags = plant_mistakes(kernels, {name: (file, line) for name, (file, line, *_) in (ACCESSES | SUMS).items()})
    for file in BARRIERS:
        before, *after = (kernels / file).read_text().split("block.sync();")
        parts = [f"if (mistake != {NUMBERS[f'{file}-{k}']}) block.sync();{part}" for k, part in enumerate(after)]
        (kernels / file).write_text("".join([before, *parts]))
    library = build(folder / "kernels.so", ["-Og", *sanitizer, *flags], kernels=kernels, isas=("baseline",))
    work = 'from tests.support import sanitizer_plans; sanitizer_plans.main(12, ["baseline"])'
    return run_each(library, preload, "import torch", work, {name: NUMBERS[name] for name in mistakes}, folder)


@pytest.mark.long
def test_wrong_accesses_are_reported(tmp_path):
    found = reports(tmp_path, ADDRESS, "libasan.so", [*ACCESSES, "none"])
    status, output = found.pop("none")
    assert status == 0 and "plans" in output, f"without a mistake: {output}"
    for mistake, (status, output) in found.items():
        assert status != 0 and ACCESSES[mistake][2] in output, f"{mistake}: {output[-5000:]}"


@pytest.mark.long
def test_missing_barriers_and_non_atomic_sums_are_reported(tmp_path):
    for mistake, (status, output) in reports(tmp_path, THREAD, "libtsan.so", [*MISSING, *SUMS]).items():
        # Without a barrier, a thread reads values that are not written yet, or scratch that is freed.
        wanted = "data race" if mistake in SUMS else "data race|heap-use-after-free|ThreadSanitizer: SEGV"
        assert status != 0 and re.search(wanted, output), f"{mistake}: {output[-5000:]}"
