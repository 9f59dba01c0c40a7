"""Kernels compiled for a signature: the bits of the full build, without code for anything else."""

from __future__ import annotations

import struct
from functools import partialmethod
from typing import Any

import numpy as np
import pytest

from cuaug.devices import cuda, nvrtc, specialize
from cuaug.plan import Layout, Type, operations
from cuaug.plan.layout import OpCode
from tests.kernels.test_cuda_executor import run
from tests.kernels.test_nvrtc import usage
from tests.kernels.test_scratch import EmulatedKernel, compare, compiled_passes, install
from tests.support.run_plans import plan_for
from tests.support.signatures import CHAINS, plan_chain, signatures

pytest.importorskip("cupy")


# By chain, for each pass on sm_90: (registers, machine instructions) at most. 64 registers let half of the threads of a
# multiprocessor run. `augment` for everything takes 128 and 42,000.
BUDGETS = {
    "crop": [(64, 4200)],
    "erase": [(64, 4400)],
    "color": [(64, 4400), (40, 600)],
    "pillow": [(64, 2000)],
    "rotate": [(48, 800)],
    "randaugment": [(64, 4700), (64, 3500), (64, 2700)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_registers_and_local_memory(name, record_property):
    """Without a stack no instruction loads from or stores to local memory."""
    found = []
    for signature in signatures(plan_chain(name, 375, 500, 1024)):
        program, defines = specialize.build_of(signature)
        code, log = nvrtc.compile(90, program, defines)
        ((kernel, used),) = usage(log).items()
        assert kernel == program and used.stack == used.spilled == 0, log
        found.append((used.registers, instructions(code, program)))
    record_property("usage", str(found))
    assert len(found) == len(BUDGETS[name])
    for used, budget in zip(found, BUDGETS[name], strict=True):
        assert used[0] <= budget[0] and used[1] <= budget[1], f"{found} of {BUDGETS[name]}"


def instructions(cubin: bytes, kernel: str) -> int:
    """Machine instructions of a kernel, of 16 bytes each: the size of its section in the ELF file."""
    (sections_at,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<I20xQQ", cubin, sections_at + i * size) for i in range(count)]
    (found,) = (
        length // 16
        for name, _, length in sections
        if cubin.startswith(f".text.{kernel}\0".encode(), sections[names][1] + name)
    )
    return found


class EmulatedBuilds:
    """In place of `Specializer`: compiles the kernels for each signature, for a CPU."""

    def __init__(self, folder: Any) -> None:
        self._folder = folder
        self.kernels: dict[int, EmulatedKernel] = {}

    def choose(self, device_index: int, number: int, signature: int, samples: int, functions: Any) -> EmulatedKernel:
        if signature not in self.kernels:
            program, defines = specialize.build_of(signature)
            folder = self._folder / f"{signature:x}"
            folder.mkdir()
            library = compiled_passes(folder, extra=[f"-D{define}" for define in defines])
            self.kernels[signature] = EmulatedKernel(library, program == "resample")
        return self.kernels[signature]


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """Runs every launch on a build for its own signature."""
    builds = EmulatedBuilds(tmp_path)
    full = install(None, 5, monkeypatch)
    assert full.augment._emulate is None  # the full kernels cannot run
    monkeypatch.setattr(cuda.CudaExecutor, "run", partialmethod(cuda.CudaExecutor.run, specializer=builds))
    return builds


@pytest.mark.parametrize(("name", "passes"), [("erase", 1), ("color", 2), ("rotate", 1)])
def test_the_bits_of_the_full_build(builds, name, passes):
    batch = [np.random.default_rng(i).integers(0, 256, (75, 100, 3), dtype=np.uint8) for i in range(6)]
    tables = plan_chain(name, 75, 100, len(batch))
    compare(tables, batch, 3, None)
    assert list(builds.kernels) == signatures(tables) and len(tables.rows) == passes


def test_a_build_lacks_the_code_for_other_values(builds):
    """Without SOLARIZE in its signature, a build leaves the pixels unchanged."""
    image = np.full((4, 5, 3), 200, np.uint8)
    plan, other = plan_for(image), plan_for(image)
    plan.append(operations.matrix(1, -1.0, np.eye(3, 4)))
    other.append(operations.solarize(1, 255.0, 128))
    tables, others = (p.compile(Type.UINT8, Layout.HWC) for p in (plan, other))
    run(tables, [image], 3)
    (signature,) = signatures(tables)
    assert signatures(others) == [signature ^ 1 << OpCode.MATRIX ^ 1 << OpCode.SOLARIZE]
    (builds.kernels[signatures(others)[0]],) = builds.kernels.values()
    assert (run(others, [image], 3)[1].numpy()[0, :60] == 200).all()
    builds.kernels.pop(signatures(others)[0])
    assert (run(others, [image], 3)[1].numpy()[0, :60] == 55).all()
