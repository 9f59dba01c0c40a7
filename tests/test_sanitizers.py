"""The kernels under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer.

Each sanitizer gets the kernels as they are, which must be clean, and copies with one deliberate mistake, which must be
reported: otherwise the clean run would prove nothing. For ThreadSanitizer every block runs on four real threads with a
real barrier, so that it sees the barriers that a GPU needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuaug._native import ISAS
from tests.builds import build, patched

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a runtime")]

ROOT = Path(__file__).parent.parent
ADDRESS = ["-O1", "-g", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
THREAD = ["-O1", "-g", "-fsanitize=thread", "-DCUAUG_BLOCK_THREADS=4"]


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


def test_addresses_and_undefined_behaviour(tmp_path):
    library = build(tmp_path / "host.so", ADDRESS)
    status, said = run(library, "libasan.so", tuple(ISAS))
    assert status == 0 and "plans" in said, said


def test_threads(tmp_path):
    library = build(tmp_path / "host.so", THREAD, isas=("baseline",))
    # Starting four threads for each tile is slow, and every plan passes the same barriers.
    status, said = run(library, "libtsan.so", ("baseline",), every=5)
    assert status == 0 and "plans" in said and "WARNING: ThreadSanitizer" not in said, said


@pytest.mark.parametrize(
    ("file", "right", "wrong", "report"),
    [
        ("sampling.h", "const int n = 3 * (high - low);", "const int n = 3 * (high - low) + 1;", "READ of size"),
        ("store.h", "plane = int64(sample.y.out) * sample.x.out;", "plane = int64(sample.y.out) * sample.x.out + 1;",
         "WRITE of size"),
        ("sampling.h", "border == EDGE || n == 1", "border == EDGE", "division by zero"),
        ("pixelops.h", "table[int(clamp(v[c][p] * op.a[0] + 0.5f, 255.0f))]",
         "table[int(clamp(v[c][p] * op.a[0] + 0.5f, 255.0f)) + 0 * int(v[c][p] * 1e12f)]", "outside the range"),
    ],
    ids=["read", "write", "division", "conversion"],
)  # fmt: skip
def test_a_wrong_access_is_reported(tmp_path, file, right, wrong, report):
    kernels = patched(tmp_path / "kernels", file, right, wrong)
    library = build(tmp_path / "host.so", ADDRESS, kernels=kernels, isas=("baseline",))
    status, said = run(library, "libasan.so", ("baseline",))
    assert status != 0 and report in said, said[-5000:]


BARRIERS = {"augment.h": 3, "jpeg.h": 4}


@pytest.mark.parametrize(("file", "barrier"), [(file, k) for file, count in BARRIERS.items() for k in range(count)])
def test_a_missing_barrier_is_reported(tmp_path, file, barrier):
    text = (ROOT / "kernels" / file).read_text()
    lines = [line for line in text.splitlines(keepends=True) if "block.sync();" in line]
    assert len(lines) == BARRIERS[file], f"adapt this test to the barriers of {file}"
    parts = text.split("block.sync();")
    without = "block.sync();".join(parts[: barrier + 1]) + "block.sync();".join(["", *parts[barrier + 1 :]])[13:]
    kernels = patched(tmp_path / "kernels", file, text, without)
    library = build(tmp_path / "host.so", THREAD, kernels=kernels, isas=("baseline",))
    status, said = run(library, "libtsan.so", ("baseline",))
    assert status != 0 and "data race" in said, said


def test_a_sum_that_is_not_atomic_is_reported(tmp_path):
    kernels = patched(
        tmp_path / "kernels", "shim.h", "__atomic_fetch_add(sum, value, __ATOMIC_RELAXED);", "*sum += value;"
    )
    library = build(tmp_path / "host.so", THREAD, kernels=kernels, isas=("baseline",))
    status, said = run(library, "libtsan.so", ("baseline",))
    assert status != 0 and "data race" in said, said
