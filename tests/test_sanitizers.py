"""The kernels under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer.

Each sanitizer gets the kernels as they are, which must be clean, and copies with one deliberate mistake, which must be
reported: otherwise the clean run would prove nothing. For ThreadSanitizer every block runs on four real threads with a
real barrier, so that it sees the barriers that a GPU needs.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cuaug._native import ISAS
from cuaug.plan import Border, Filter, Layout, Plan, Type
from cuaug.plan.layout import Measure, Neighbourhood, OpCode
from tests import sanitizer_plans
from tests.builds import build, patched

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a runtime")

ROOT = Path(__file__).parent.parent
ADDRESS = ["-O1", "-g", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
THREAD = ["-O1", "-g", "-fsanitize=thread", "-DCUAUG_BLOCK_THREADS=4"]
# Where a mistake ends the run soon, the compiler's time counts.
QUICK = ["-O0", "-g0"]


def runtime(name: str) -> str:
    compiler = os.environ.get("CXX", "g++")
    path = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
    if "/" not in path:
        pytest.skip(f"the compiler has no {name}")
    return path.strip()


def run(library: Path, preload: str, isas: tuple[str, ...], every: int = 1) -> tuple[int, str]:
    """The exit status of each `every`-th plan with this library, and what they said."""
    environment = os.environ | {
        "LD_PRELOAD": runtime(preload),
        "CUAUG_HOST_LIBRARY": str(library),
        "PYTHONPATH": str(ROOT),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python leaves some of its own memory to the exit
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    # Without address randomisation, if that can be had: with it ThreadSanitizer cannot always place its own memory.
    steady = ["setarch", "-R"]
    if not shutil.which("setarch") or subprocess.run([*steady, "true"], capture_output=True).returncode:
        steady = []
    command = [*steady, sys.executable, "-m", "tests.sanitizer_plans", str(every), *isas]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_plans_reach_every_path():
    """Every operation, measure, neighbourhood, filter and border, on gathering and resampling passes."""
    rows, codes = [], set()
    always = [(31, 45, write) for write in sanitizer_plans.ALWAYS.values()]
    parts = itertools.product(sanitizer_plans.SIZES, (sanitizer_plans.geometries, sanitizer_plans.warps))
    for h, w, write in always + [(*size, write) for size, part in parts for _, write in part(*size)]:
        plan = Plan([h], [w])
        write(plan)
        tables = plan.tables(Type.FLOAT32, Layout.HWC)
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
def test_addresses_and_undefined_behaviour(tmp_path):
    library = build(tmp_path / "host.so", ADDRESS)
    status, said = run(library, "libasan.so", tuple(ISAS))
    assert status == 0 and "plans" in said, said


@pytest.mark.slow
def test_threads(tmp_path):
    library = build(tmp_path / "host.so", THREAD, isas=("baseline",))
    # Starting four threads for each tile is slow, and every plan passes the same barriers.
    status, said = run(library, "libtsan.so", ("baseline",), every=12)
    assert status == 0 and "plans" in said and "WARNING: ThreadSanitizer" not in said, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "right", "wrong", "report"),
    [
        ("sampling.h", "const int n = 3 * (high - low);", "const int n = 3 * (high - low) + 1;", "READ of size"),
        ("store.h", "plane = int64(sample.y.out) * sample.x.out;", "plane = int64(sample.y.out) * sample.x.out + 1;",
         "WRITE of size"),
        ("sampling.h", "border == EDGE || n == 1", "border == EDGE", "division by zero"),
        ("cells.h", "return int(clamp(value * scale + 0.5f, 255.0f));",
         "return int(clamp(value * scale + 0.5f, 255.0f)) + 0 * int(value * 1e12f);", "outside the range"),
        ("warp.h", "(k < right - taps)", "(k <= right - taps)", "READ of size"),
        ("neighbourhood.h", "at.row + down < sample.y.inner_high", "at.row + down <= sample.y.inner_high",
         "READ of size"),
        ("cells.h", "y = first.y + i; y < grid.rows * grid.height", "y = first.y + i; y <= grid.rows * grid.height",
         "READ of size"),
        ("store.h", "at = int64(x) * width + y;", "at = int64(x) * width + y + 1;", "WRITE of size"),
        ("median.h", "low == begin && high == end &&", "low == begin &&", "READ of size"),
        ("bytes.h", "return reinterpret_cast<uint8*>(sample.target) + 3 * (row * width + column);",
         "return reinterpret_cast<uint8*>(sample.target) + 3 * (row * width + column) + 1;", "WRITE of size"),
        ("colours.h", "const int some = smaller(PIXELS, count - p);", "const int some = PIXELS;", "of size"),
        ("colours.h", "const int whole = count / MANY * MANY;", "const int whole = larger(count - 1, 0);",
         "of size"),
        ("rolling.h", "smaller(last, sample.x.inner_high)", "smaller(last, sample.x.inner_high + 1)", "READ of size"),
    ],
    ids=["read", "write", "division", "conversion", "warp", "stencil", "cells", "transposed", "median", "bytes",
         "colours", "matrix", "rolling"],
)  # fmt: skip
def test_a_wrong_access_is_reported(tmp_path, file, right, wrong, report):
    kernels = patched(tmp_path / "kernels", file, right, wrong)
    library = build(tmp_path / "host.so", [*ADDRESS, *QUICK], kernels=kernels, isas=("baseline",))
    status, said = run(library, "libasan.so", ("baseline",))
    assert status != 0 and report in said, said[-5000:]


BARRIERS = {"augment.h": 3, "cells.h": 2, "jpeg.h": 4, "statistics.h": 4}


def test_every_barrier_is_known():
    found = {path.name: path.read_text().count("block.sync();") for path in (ROOT / "kernels").glob("*.h")}
    assert {file: count for file, count in found.items() if count} == BARRIERS, "adapt BARRIERS"


@pytest.mark.slow
@pytest.mark.parametrize(("file", "barrier"), [(file, k) for file, count in BARRIERS.items() for k in range(count)])
def test_a_missing_barrier_is_reported(tmp_path, file, barrier):
    text = (ROOT / "kernels" / file).read_text()
    parts = text.split("block.sync();")
    without = "block.sync();".join(parts[: barrier + 1]) + ";" + "block.sync();".join(parts[barrier + 1 :])
    kernels = patched(tmp_path / "kernels", file, text, without)
    library = build(tmp_path / "host.so", [*THREAD, *QUICK], kernels=kernels, isas=("baseline",))
    status, said = run(library, "libtsan.so", ("baseline",))
    # Where the others go on without it, the scratch may be given back before one is done with it.
    assert status != 0 and ("data race" in said or "heap-use-after-free" in said), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("add_to(int64* sum, int64 value) { __atomic_fetch_add(sum, value, __ATOMIC_RELAXED); }",
         "add_to(int64* sum, int64 value) { *sum += value; }"),
        ("{ __atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED); }", "{ ++*counter; }"),
    ],
    ids=["sum", "count"],
)  # fmt: skip
def test_a_sum_that_is_not_atomic_is_reported(tmp_path, right, wrong):
    kernels = patched(tmp_path / "kernels", "shim.h", right, wrong)
    library = build(tmp_path / "host.so", [*THREAD, *QUICK], kernels=kernels, isas=("baseline",))
    status, said = run(library, "libtsan.so", ("baseline",))
    assert status != 0 and "data race" in said, said
