"""Pixel functions on a GPU give the CPU's bits: in the full kernel's interpreter, and in a kernel of their own."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from cuaug.devices import CpuExecutor, nvrtc, specialize
from cuaug.devices.cuda import CudaExecutor
from cuaug.devices.nvrtc import load_functions
from cuaug.plan import CompiledPlan, Type
from tests.ops.test_bits import images, operations_of, plan_with

pytestmark = pytest.mark.cuda


class Builds:
    """In place of `Specializer`: a kernel for each launch, compiled at once."""

    def choose(self, device: int, number: int, signature: int, samples: int, functions: Any) -> Any:
        entry, defines = specialize.build_of(signature, functions)
        arch = "{}{}".format(*torch.cuda.get_device_capability(device))
        return load_functions(nvrtc.cached(arch, entry, defines, functions), [entry], device)[0]


def run_on_gpu(tables: CompiledPlan, image: np.ndarray, specializer: Any) -> np.ndarray:
    source = torch.from_numpy(np.ascontiguousarray(image)).cuda()
    target = torch.zeros(1, image.size, dtype=torch.float32, device="cuda")
    CudaExecutor(tables).run(np.array([source.data_ptr()], dtype=np.uint64), target, specializer=specializer)
    return target[0].cpu().numpy()


@pytest.mark.parametrize("specializer", [None, Builds()], ids=["interpreted", "compiled"])
def test_random_programs(specializer, monkeypatch):
    monkeypatch.setenv("CUAUG_SPECIALIZE", "0")  # the CPU interprets
    choices = random.Random(3)
    for source, operation in operations_of(4 if specializer else 40, seed=11):
        image = images(choices, choices.choice([np.uint8, np.float32]))
        tables = plan_with(operation, image).compile(Type.FLOAT32)
        want = np.empty(image.size, np.float32)
        CpuExecutor(tables).run(0, np.ascontiguousarray(image), want.ctypes.data)
        got = run_on_gpu(tables, image, specializer)
        assert (got.view(np.uint32) == want.view(np.uint32)).all(), source
