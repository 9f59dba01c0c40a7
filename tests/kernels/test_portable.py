"""The portable kernels, which other processors than x86-64 compile, give the same bits.

They are compiled for x86-64 here, with `char` unsigned as on aarch64. tests/kernels/test_sanitizers.py reports
behavior that differs between processors, such as the conversion of floats that no integer can hold.
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
from tests.support.builds import PORTABLE, build
from tests.support.run_plans import assert_same, plan_for, run_one
from tests.support.strategies import chains, images, sizes, write

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors always compile the portable kernels"),
]


def load_build(folder: Path, kernels: Path = KERNEL_DIRECTORY) -> ctypes.CDLL:
    path = build(folder / "kernels.so", ["-O1", *PORTABLE], kernels=kernels, isas=("baseline",))
    with mock.patch.dict("os.environ", CUAUG_KERNEL_LIBRARY=str(path)):
        return native._load()


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return load_build(tmp_path_factory.mktemp("portable"))


def use_library(library: ctypes.CDLL) -> Any:
    return mock.patch.multiple(cpu, library=library, BEST_ISA=0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from([np.uint8, np.float32]), st.sampled_from(list(Type)), st.sampled_from(list(Layout)))
def test_chains(portable, data, source, target, layout):
    image = data.draw(images(sizes(3000), source))
    plan = write(plan_for(image), data.draw(chains(image.shape[:2], turns=True)).steps)
    expected = run_one(plan, image, target, layout)
    with use_library(portable):
        assert_same(run_one(plan, image, target, layout), expected)


def run(name: str, size: tuple[int, int], source: Type, isa: str = "baseline") -> bytes:
    image = sanitizer_plans.image(*size, source)
    return sanitizer_plans.run(sanitizer_plans.ALWAYS[name], image, source, Type.FLOAT32, Layout.HWC, 3, isa, None)


@pytest.mark.parametrize("name", sanitizer_plans.ALWAYS)
@pytest.mark.parametrize("source", [Type.UINT8, Type.FLOAT32])
def test_every_operation(portable, name, source):
    for size in sanitizer_plans.SIZES:
        expected = run(name, size, source, "avx512")
        with use_library(portable):
            assert run(name, size, source) == expected
