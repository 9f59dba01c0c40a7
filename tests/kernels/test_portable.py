"""The kernels without x86-64's instructions, as other processors compile them: the same bits.

Here they are compiled for x86-64 all the same, with `char` unsigned as it is on aarch64. What such a processor does
otherwise, such as floats that no integer holds made integers, tests/kernels/test_sanitizers.py reports.
"""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuaug._runtime import native
from cuaug._runtime.native import KERNEL_DIRECTORY
from cuaug.devices import cpu
from cuaug.plan import Layout, Type
from tests.support import sanitizer_plans
from tests.support.builds import PORTABLE, build, patched
from tests.support.run_plans import assert_same, plan_for, run_one
from tests.support.strategies import chains, images, sizes, write

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere this is how they are compiled"),
]


def made(folder: Path, kernels: Path = KERNEL_DIRECTORY) -> ctypes.CDLL:
    path = build(folder / "host.so", ["-O1", *PORTABLE], kernels=kernels, isas=("baseline",))
    with mock.patch.dict("os.environ", CUAUG_KERNEL_LIBRARY=str(path)):
        return native._load()


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return made(tmp_path_factory.mktemp("portable"))


def using(library: ctypes.CDLL) -> Any:
    return mock.patch.multiple(cpu, library=library, BEST_ISA=0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from([np.uint8, np.float32]), st.sampled_from(list(Type)), st.sampled_from(list(Layout)))
def test_chains(portable, data, source, target, layout):
    image = data.draw(images(sizes(3000), source))
    plan = write(plan_for(image), data.draw(chains(image.shape[:2], turns=True)).steps)
    want = run_one(plan, image, target, layout)
    with using(portable):
        assert_same(run_one(plan, image, target, layout), want)


def run(name: str, size: tuple[int, int], source: Type, isa: str = "baseline") -> bytes:
    image = sanitizer_plans.image(*size, source)
    return sanitizer_plans.run(sanitizer_plans.ALWAYS[name], image, source, Type.FLOAT32, Layout.HWC, 3, isa, None)


@pytest.mark.parametrize("name", sanitizer_plans.ALWAYS)
@pytest.mark.parametrize("source", [Type.UINT8, Type.FLOAT32])
def test_every_operation(portable, name, source):
    for size in sanitizer_plans.SIZES:
        want = run(name, size, source, "avx512")
        with using(portable):
            assert run(name, size, source) == want


def test_a_mistake_in_what_only_others_run_shows(tmp_path):
    """Chroma that is rounded the other way round."""
    right, wrong = "sums[2 * i + 1], i));", "sums[2 * i + 1], i + 1));"
    mistaken = made(tmp_path, patched(tmp_path / "kernels", "core/jpeg_samples.h", right, wrong))
    want = run("filters", (40, 131), Type.UINT8)
    with using(mistaken):
        assert run("filters", (40, 131), Type.UINT8) != want
