"""The kernels under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer.

Each sanitizer gets the kernels as they are, which must be clean, and kernels that make one deliberate mistake at a
time, which must be reported: otherwise the clean run would prove nothing. For ThreadSanitizer every block runs on four
real threads with a real barrier, so that it sees the barriers that a GPU needs.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from cuaug._runtime.native import ISAS
from cuaug.plan import Border, Filter, Layout, Plan, Type
from cuaug.plan.layout import Measure, Neighbourhood, OpCode
from tests.support import sanitizer_plans
from tests.support.builds import PORTABLE, build
from tests.support.sanitizers import ADDRESS, ROOT, THREAD, each, planted, run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a runtime")


def plans(every: int, isas: Iterable[str]) -> list[str]:
    """The program that makes each `every`-th plan, with these instruction sets."""
    return ["-m", "tests.support.sanitizer_plans", str(every), *isas]


def test_the_plans_reach_every_path():
    """Every operation, measure, neighbourhood, filter and border, on gathering and resampling passes."""
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
    gathers = (every["warped"] != 0) | (every["neighbourhood"] > Neighbourhood.SEPARABLE)
    assert set(every["neighbourhood"]) == set(Neighbourhood)
    for passes in (every[gathers], every[~gathers]):
        assert set(passes["measure"]) == set(Measure)
        assert set(passes["border_before"]) == set(passes["border_after"]) == set(Border)
        assert set(passes["transposed"]) == {0, 1} and set(passes["filter"]) == set(Filter)
    # What was measured is used first thing, so never by a pass that gathers.
    pairs = set(zip(every[~gathers]["measured"], every[~gathers]["measure"], strict=True))
    assert pairs >= set(itertools.product(Measure, Measure)) and not every[gathers]["measured"].any()
    warped = every[every["warped"] != 0]
    perspective, moved = (warped["matrix"][:, 6:8] != 0).any(axis=1), warped["field_rows"] > 0
    assert {(False, False), (True, False), (False, True), (True, True)} <= set(zip(perspective, moved, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "isas"), [([], tuple(ISAS)), (PORTABLE, ("baseline",))], ids=["x86-64", "others"])
def test_addresses_and_undefined_behaviour(tmp_path, flags, isas):
    library = build(tmp_path / "host.so", ["-Og", *ADDRESS, *flags], isas=isas)
    status, said = run(library, "libasan.so", plans(1, isas))
    assert status == 0 and "plans" in said, said
    if not flags:
        status, said = run(library, "libasan.so", ["-m", "tests.codec.sanitized_decoding", "400"])
        assert status == 0 and "decoded" in said, said[-5000:]


@pytest.mark.slow
def test_threads(tmp_path):
    library = build(tmp_path / "host.so", ["-Og", *THREAD], isas=("baseline",))
    # Four threads that meet at barriers are slow, and every plan passes the same ones.
    status, said = run(library, "libtsan.so", plans(12, ["baseline"]))
    assert status == 0 and "plans" in said and "WARNING: ThreadSanitizer" not in said, said


# As `planted` takes them; of wrong accesses, also what is reported.
ACCESSES = {
    "read": ("core/resample.h", "const int n = {3 * (high - low) <> 3 * (high - low) + 1};", "of size"),
    "write": ("core/store.h", "plane = {int64(sample.y.out) * sample.x.out <> int64(sample.y.out) * sample.x.out + 1};",
              "WRITE of size"),
    "division": ("core/sampling.h", "if ({border == EDGE || n == 1 <> border == EDGE})", "division by zero"),
    "conversion": ("core/clahe.h", "return int({clamp(value * scale + 0.5f, 255.0f) <> value * 1e12f});",
                   "outside the range"),
    "warp": ("core/warp.h", "left, {right - left - taps <> right - left - taps + 1})", "READ of size"),
    "stencil": ("core/neighbourhood.h",
                "&& {at.row + down < sample.y.inner_high <> at.row + down <= sample.y.inner_high}", "READ of size"),
    "cells": ("core/clahe.h", "y = first.y + i; {y < grid.rows * grid.height <> y <= grid.rows * grid.height}",
              "READ of size"),
    "transposed": ("core/store.h", "at = {int64(x) * width + y <> int64(x) * width + y + 1};", "WRITE of size"),
    "median": ("core/median.h", "high = {smaller(end, x.inner_high) <> end};", "READ of size"),
    "bytes": ("cpu/uint8_path.h", "sample.target) + 3 * ({row * width + column <> row * width + column + 1});",
              "WRITE of size"),
    "colours": ("cpu/uint8_color.h", "const int some = {smaller(PIXELS, count - p) <> PIXELS};", "of size"),
    "matrix": ("cpu/uint8_color.h", "const int whole = {count / FULL * FULL <> larger(count - 1, 0)};", "of size"),
    "rolling": ("cpu/sliding_window.h",
                "smaller(last, {sample.x.inner_high <> sample.x.inner_high + 1})", "READ of size"),
}  # fmt: skip
SUMS = {
    "sum": (
        "platform.h",
        "(int64* sum, int64 value) { {__atomic_fetch_add(sum, value, __ATOMIC_RELAXED) <> *sum += value}; }",
    ),
    "count": ("platform.h", "{ {__atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED) <> ++*counter}; }"),
}
BARRIERS = {"core/resample.h": 3, "core/clahe.h": 2, "core/jpeg_compression.h": 4, "core/statistics.h": 4}
MISSING = [f"{file}-{k}" for file, count in BARRIERS.items() for k in range(count)]
NUMBERS = {name: number for number, name in enumerate([*ACCESSES, *SUMS, *MISSING])} | {"none": -1}


def test_every_barrier_is_known():
    folder = ROOT / "kernels"
    found = {
        path.relative_to(folder).as_posix(): path.read_text().count("block.sync();") for path in folder.glob("**/*.h")
    }
    assert {file: count for file, count in found.items() if count} == BARRIERS, "adapt BARRIERS"


def reports(folder: Path, sanitizer: list[str], preload: str, mistakes: Iterable[str]) -> dict[str, tuple[int, str]]:
    """By mistake, or "none", the exit status of each twelfth plan and what they said."""
    kernels = folder / "kernels"
    flags = planted(kernels, {name: (file, line) for name, (file, line, *_) in (ACCESSES | SUMS).items()})
    for file in BARRIERS:
        before, *after = (kernels / file).read_text().split("block.sync();")
        parts = [f"if (mistake != {NUMBERS[f'{file}-{k}']}) block.sync();{part}" for k, part in enumerate(after)]
        (kernels / file).write_text("".join([before, *parts]))
    library = build(folder / "host.so", ["-Og", *sanitizer, *flags], kernels=kernels, isas=("baseline",))
    work = 'from tests.support import sanitizer_plans; sanitizer_plans.main(12, ["baseline"])'
    return each(library, preload, "import torch", work, {name: NUMBERS[name] for name in mistakes}, folder)


@pytest.mark.slow
def test_wrong_accesses_are_reported(tmp_path):
    found = reports(tmp_path, ADDRESS, "libasan.so", [*ACCESSES, "none"])
    status, said = found.pop("none")
    assert status == 0 and "plans" in said, f"kernels that can make every mistake, and make none: {said}"
    for mistake, (status, said) in found.items():
        assert status != 0 and ACCESSES[mistake][2] in said, f"{mistake}: {said[-5000:]}"


@pytest.mark.slow
def test_missing_barriers_and_sums_that_are_not_atomic_are_reported(tmp_path):
    for mistake, (status, said) in reports(tmp_path, THREAD, "libtsan.so", [*MISSING, *SUMS]).items():
        # Where the others go on without a barrier, one reads what is not there yet, or scratch that was given back.
        wanted = "data race" if mistake in SUMS else "data race|heap-use-after-free|ThreadSanitizer: SEGV"
        assert status != 0 and re.search(wanted, said), f"{mistake}: {said[-5000:]}"
