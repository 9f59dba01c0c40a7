"""The kernels under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer.

Each sanitizer gets the kernels as they are, which must be clean, and kernels that make one deliberate mistake at a
time, which must be reported: otherwise the clean run would prove nothing. For ThreadSanitizer every block runs on four
real threads with a real barrier, so that it sees the barriers that a GPU needs.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cuaug._native import ISAS
from cuaug.plan import Border, Filter, Layout, Plan, Type
from cuaug.plan.layout import Measure, Neighbourhood, OpCode
from tests import sanitizer_plans
from tests.builds import PORTABLE, build

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a runtime")

ROOT = Path(__file__).parent.parent
ADDRESS = ["-g1", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
THREAD = ["-g1", "-fsanitize=thread", "-DCUAUG_BLOCK_THREADS=4"]


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
        # Python leaves some of its own memory to the exit. GCC 13 misaligns what it moves off the stack (bug 110027).
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
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
@pytest.mark.parametrize(("flags", "isas"), [([], tuple(ISAS)), (PORTABLE, ("baseline",))], ids=["x86-64", "others"])
def test_addresses_and_undefined_behaviour(tmp_path, flags, isas):
    library = build(tmp_path / "host.so", ["-O0", *ADDRESS, *flags], isas=isas)  # takes longer than the plans do
    status, said = run(library, "libasan.so", isas)
    assert status == 0 and "plans" in said, said


@pytest.mark.slow
def test_threads(tmp_path):
    library = build(tmp_path / "host.so", ["-O1", *THREAD], isas=("baseline",))
    # Four threads that meet at barriers are slow, and every plan passes the same ones.
    status, said = run(library, "libtsan.so", ("baseline",), every=12)
    assert status == 0 and "plans" in said and "WARNING: ThreadSanitizer" not in said, said


# Mistakes: a kernel's file, a line of it with {what is right <> what is wrong}, and what is reported.
ACCESSES = {
    "read": ("resample.h", "const int n = {3 * (high - low) <> 3 * (high - low) + 1};", "of size"),
    "write": ("store.h", "plane = {int64(sample.y.out) * sample.x.out <> int64(sample.y.out) * sample.x.out + 1};",
              "WRITE of size"),
    "division": ("sampling.h", "if ({border == EDGE || n == 1 <> border == EDGE})", "division by zero"),
    "conversion": ("cells.h", "return int({clamp(value * scale + 0.5f, 255.0f) <> value * 1e12f});",
                   "outside the range"),
    "warp": ("warp.h", "left, {right - left - taps <> right - left - taps + 1})", "READ of size"),
    "stencil": ("neighbourhood.h",
                "&& {at.row + down < sample.y.inner_high <> at.row + down <= sample.y.inner_high}", "READ of size"),
    "cells": ("cells.h", "y = first.y + i; {y < grid.rows * grid.height <> y <= grid.rows * grid.height}",
              "READ of size"),
    "transposed": ("store.h", "at = {int64(x) * width + y <> int64(x) * width + y + 1};", "WRITE of size"),
    "median": ("median.h", "high = {smaller(end, x.inner_high) <> end};", "READ of size"),
    "bytes": ("bytes.h", "sample.target) + 3 * ({row * width + column <> row * width + column + 1});",
              "WRITE of size"),
    "colours": ("colours.h", "const int some = {smaller(PIXELS, count - p) <> PIXELS};", "of size"),
    "matrix": ("colours.h", "const int whole = {count / FULL * FULL <> larger(count - 1, 0)};", "of size"),
    "rolling": ("rolling.h", "smaller(last, {sample.x.inner_high <> sample.x.inner_high + 1})", "READ of size"),
}  # fmt: skip
SUMS = {
    "sum": (
        "shim.h",
        "(int64* sum, int64 value) { {__atomic_fetch_add(sum, value, __ATOMIC_RELAXED) <> *sum += value}; }",
    ),
    "count": ("shim.h", "{ {__atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED) <> ++*counter}; }"),
}
BARRIERS = {"resample.h": 3, "cells.h": 2, "jpeg.h": 4, "statistics.h": 4}
MISSING = [f"{file}-{k}" for file, count in BARRIERS.items() for k in range(count)]
MISTAKES = [*ACCESSES, *SUMS, *MISSING]
CHOICE = re.compile(r"\{([^{}]*) <> ([^{}]*)\}")


def test_every_barrier_is_known():
    found = {path.name: path.read_text().count("block.sync();") for path in (ROOT / "kernels").glob("*.h")}
    assert {file: count for file, count in found.items() if count} == BARRIERS, "adapt BARRIERS"


def mistaken(folder: Path) -> Path:
    """A copy of the kernels in `folder` that makes the mistake whose place in MISTAKES the environment tells."""
    shutil.copytree(ROOT / "kernels", folder)
    chosen = 'static const int mistake = atoi(getenv("CUAUG_MISTAKE"));\n'
    for name, (file, line, *_) in (ACCESSES | SUMS).items():
        text = (folder / file).read_text()
        right = CHOICE.sub(r"\1", line)
        assert text.count(right) == 1, f"{right!r} occurs {text.count(right)} times in kernels/{file}: adapt this test"
        either = CHOICE.sub(rf"(mistake == {MISTAKES.index(name)} ? (\2) : (\1))", line)
        (folder / file).write_text(text.replace(right, either))
    for file in BARRIERS:
        before, *after = (folder / file).read_text().split("block.sync();")
        numbers = range(MISTAKES.index(f"{file}-0"), len(MISTAKES))
        parts = [f"if (mistake != {k}) block.sync();{part}" for k, part in zip(numbers, after, strict=False)]
        (folder / file).write_text("".join([before, *parts]))
    shim = folder / "shim.h"
    shim.write_text(shim.read_text().replace("#include <cstring>\n", f"#include <cstring>\n{chosen}", 1))
    return folder


@pytest.fixture(scope="module")
def mistaken_libraries(tmp_path_factory) -> Callable[[str], Path]:
    """By sanitizer, "address" or "thread", the library of such kernels; made once for all mistakes."""
    folder = tmp_path_factory.mktemp("mistaken")
    kernels = mistaken(folder / "kernels")

    @functools.cache
    def made(sanitizer: str) -> Path:
        flags = ["-O0", *(ADDRESS if sanitizer == "address" else THREAD), "-include", "cstdlib"]
        return build(folder / f"{sanitizer}.so", flags, kernels=kernels, isas=("baseline",))

    return made


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ACCESSES)
def test_a_wrong_access_is_reported(mistaken_libraries, monkeypatch, mistake):
    monkeypatch.setenv("CUAUG_MISTAKE", str(MISTAKES.index(mistake)))
    status, said = run(mistaken_libraries("address"), "libasan.so", ("baseline",), every=12)
    assert status != 0 and ACCESSES[mistake][2] in said, said[-5000:]


@pytest.mark.slow
@pytest.mark.parametrize("barrier", MISSING)
def test_a_missing_barrier_is_reported(mistaken_libraries, monkeypatch, barrier):
    monkeypatch.setenv("CUAUG_MISTAKE", str(MISTAKES.index(barrier)))
    status, said = run(mistaken_libraries("thread"), "libtsan.so", ("baseline",), every=12)
    # Where the others go on without it, one reads what is not there yet, or scratch that is given back already.
    assert status != 0 and re.search("data race|heap-use-after-free|ThreadSanitizer: SEGV", said), said


@pytest.mark.slow
@pytest.mark.parametrize("mistake", SUMS)
def test_a_sum_that_is_not_atomic_is_reported(mistaken_libraries, monkeypatch, mistake):
    monkeypatch.setenv("CUAUG_MISTAKE", str(MISTAKES.index(mistake)))
    status, said = run(mistaken_libraries("thread"), "libtsan.so", ("baseline",), every=12)
    assert status != 0 and "data race" in said, said


@pytest.mark.slow
def test_no_mistake_is_no_report(mistaken_libraries, monkeypatch):
    """Where none is made, the kernels that can make all are as the others."""
    monkeypatch.setenv("CUAUG_MISTAKE", "-1")
    status, said = run(mistaken_libraries("address"), "libasan.so", ("baseline",), every=12)
    assert status == 0 and "plans" in said, said
