"""Samples are the same on every processor, although the last bits of NumPy and BLAS differ."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from cuaug import transforms as T
from cuaug.plan import Layout, Plan, Type
from cuaug.plan.boxes_keypoints import BoxesKeypoints
from cuaug.sampling.rng import SampleRNG
from tests.support.transforms.cases import CASES

ROOT = Path(__file__).parent.parent.parent


def planned() -> str:
    """One line per transform: checksums of its compiled plans and of the moved boxes."""
    rng = np.random.default_rng(5)
    heights, widths = rng.integers(20, 31, (2, 64))
    lines = []
    for name, cases in CASES.items():
        for number, (transform, _) in enumerate(cases):
            plan = Plan(heights, widths)
            samples = np.arange(len(plan))
            plan.points = BoxesKeypoints(
                len(plan), [(1.0, 2.0, 17.0, 9.0)] * len(plan), samples, [(5.0, 7.0)] * len(plan), samples
            )
            T.Compose([transform]).plan(plan, SampleRNG(0, 0, samples))
            tables = plan.compile(Type.FLOAT32, Layout.HWC)
            arrays = tables.rows, tables.ops, tables.luts, plan.points.corners, plan.points.keypoints
            lines.append(f"{name} {number}: {[zlib.crc32(np.ascontiguousarray(array)) for array in arrays]}")
    return "\n".join(lines)


def planned_with(**environment: str) -> list[str]:
    command = [sys.executable, "-c", "from tests.transforms.test_processors import planned; print(planned())"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a processor of x86-64")
def test_older_processors_do_not_show():
    """Emulates the oldest processor NumPy and OpenBLAS support: no AVX, no fused multiply-add."""
    pytest.importorskip("numpy", minversion="1.26")  # it reports the detected features
    found = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    older = planned_with(OPENBLAS_CORETYPE="Nehalem", NPY_DISABLE_CPU_FEATURES=" ".join(found))
    assert older == str(planned()).splitlines()
