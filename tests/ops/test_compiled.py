"""Compiled pixel functions: on the CPU by the user's compiler, on CUDA inside a chain's kernel."""

from __future__ import annotations

import functools
import logging
import operator
import os
import runpy
from functools import partialmethod
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from cuaug import ops
from cuaug import transforms as T
from cuaug.devices import cpu_functions, cuda, fuse_luts, nvrtc, specialize
from cuaug.plan import Layout, Plan, Type
from cuaug.sampling.rng import SampleRNG
from tests.kernels.test_nvrtc import ARCHITECTURES, usage
from tests.kernels.test_scratch import EmulatedKernel, compare, compiled_passes, install
from tests.kernels.test_signatures import instructions
from tests.ops.test_bits import operations_of
from tests.support.pixel_programs import make_operation
from tests.support.signatures import NORMALIZE, signatures
from tests.support.started_processes import started_processes

ROOT = Path(__file__).parents[2]


@ops.op
def brighter(pixel, factor):
    return pixel * factor


@ops.op
def vignette(pixel, x, y, strength):
    return pixel * (1 - strength * (x * x + y * y))


@ops.op
def grainy(pixel, amount):
    return pixel + amount * ops.noise()


@ops.op(radius=1)
def sharpened(image):
    return 2 * image[0, 0] - (image[-1, 0] + image[1, 0] + image[0, -1] + image[0, 1]) / 4


# --- the CPU ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """A process that has compiled nothing yet. Lists the processes that it starts."""
    monkeypatch.delenv("CUAUG_SPECIALIZE")
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "cache"))
    reset(monkeypatch)
    if cpu_functions._compiler() is None:
        pytest.skip("no C++ compiler")
    with started_processes(monkeypatch) as processes:
        yield processes
    cpu_functions._compiler.cache_clear()


def reset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_addresses", {}), ("_running", None), ("_failed", False)):
        monkeypatch.setattr(cpu_functions, name, value)
    cpu_functions._compiler.cache_clear()


def address(operation: Any) -> int:
    """The address that the next plan's operation gets."""
    plan = Plan([4], [4])
    operation.write(plan, None)
    plan_on_cpu = cpu_functions.with_compiled_functions(plan.compile(Type.UINT8))
    return int(plan_on_cpu.ops["function"][0])


def test_a_process_compiles_and_the_disk_keeps_the_code(compiler, monkeypatch):
    first, second = brighter(factor=0.5), vignette(strength=0.5)
    assert address(first) == 0 and address(second) == 0 and len(compiler) == 1, "one at a time; nothing waits"
    assert cpu_functions.wait_until_compiled(first._function) and cpu_functions.wait_until_compiled(second._function)
    assert address(first) != 0 != address(second) != address(first) and len(compiler) == 2
    reset(monkeypatch)
    assert address(first) != 0 and len(compiler) == 2, "another run loads the code from the disk"


def test_equal_functions_share_their_code(compiler):
    copies = [make_operation("def f(pixel):\n    return pixel * 0.25\n", "f") for _ in range(2)]
    assert cpu_functions.wait_until_compiled(copies[0]._function) and address(copies[1]) and len(compiler) == 1


def test_damaged_code_on_the_disk_is_not_loaded(compiler, monkeypatch, tmp_path):
    operation = brighter(factor=0.5)
    assert cpu_functions.wait_until_compiled(operation._function)
    (file,) = (tmp_path / "cache").glob("pixel_function_*.so")
    file.write_bytes(file.read_bytes()[:-40])
    reset(monkeypatch)
    assert address(operation) == 0 and len(compiler) == 2


def test_a_failure_is_warned_of_once(compiler, monkeypatch, caplog):
    monkeypatch.setenv("CXX", "g++ --no-such-option")
    reset(monkeypatch)
    operation = brighter(factor=0.5)
    assert not cpu_functions.wait_until_compiled(operation._function)
    assert address(operation) == address(vignette(strength=1)) == 0 and len(compiler) == 1
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "no-such-option" in record.getMessage()


def test_without_a_compiler_the_interpreter_stays(compiler, monkeypatch, caplog):
    monkeypatch.setenv("CXX", "no-such-compiler")
    reset(monkeypatch)
    read, reads = cpu_functions._read_cached, []
    monkeypatch.setattr(cpu_functions, "_read_cached", lambda function: reads.append(function) or read(function))
    assert [address(brighter(factor=0.5)) for _ in range(3)] == [0] * 3 and not compiler and not caplog.records
    assert len(reads) == 1, "the disk is asked once"


def test_the_environment_turns_it_off(compiler, monkeypatch):
    monkeypatch.setenv("CUAUG_SPECIALIZE", "0")
    assert address(brighter(factor=0.5)) == 0 and not compiler


def test_a_forked_child_starts_anew(compiler):
    assert address(brighter(factor=0.5)) == 0
    child = os.fork()
    if child == 0:
        os._exit(0 if cpu_functions._running is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_options_are_those_of_the_library():
    with mock.patch("setuptools.setup"):
        names = runpy.run_path(str(ROOT / "setup.py"))
    # Threads and the limit on inlining are matters of the whole library.
    whole = {"-pthread", "--param", "inline-unit-growth=100"}
    assert [flag for flag in names["FLAGS"] if flag not in whole] == cpu_functions.FLAGS
    assert {"baseline": [], **names["X86_ISAS"]} == cpu_functions.ISA_FLAGS


# --- CUDA -------------------------------------------------------------------------------------------------------------


def plan_of(chain: list[Any], height: int, width: int, samples: int, dtype: Type = Type.FLOAT16) -> Any:
    plan = Plan([height] * samples, [width] * samples, source_type=Type.UINT8)
    T.Compose(chain).plan(plan, SampleRNG(0, 0, np.arange(samples)))
    return fuse_luts(plan.compile(dtype, Layout.CHW))


class EmulatedBuilds:
    """In place of `Specializer`: compiles a kernel for each launch, for a CPU."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.functions: list[int] = []

    def choose(self, device: int, number: int, signature: int, samples: int, functions: Any) -> EmulatedKernel:
        values = specialize.Values(signature, frozenset(functions))
        entry, defines = specialize.build_of(*values)
        self.functions.append(len(functions))
        folder = self._folder / f"{signature:x}"
        folder.mkdir()
        if functions:
            (folder / "pixel_functions.h").write_text(nvrtc._functions_header(values.sorted_functions()))
        library = compiled_passes(folder, extra=[f"-D{define}" for define in defines] + [f"-I{folder}"])
        return EmulatedKernel(library, entry == "resample")


def test_a_chains_kernel_gives_the_bits_of_the_interpreter(tmp_path, monkeypatch):
    """Functions become part of the passes that call them; others lack them."""
    pytest.importorskip("cupy")
    builds = EmulatedBuilds(tmp_path)
    install(None, 5, monkeypatch)
    monkeypatch.setattr(cuda.CudaExecutor, "run", partialmethod(cuda.CudaExecutor.run, specializer=builds))
    chain = [
        T.RandomResizedCrop(24),
        vignette(strength=ops.uniform(0, 1), p=0.5),
        grainy(amount=0.1),
        sharpened(),
        T.RandomVerticalFlip(),
        NORMALIZE,
    ]
    batch = [np.random.default_rng(i).integers(0, 256, (35, 40, 3), dtype=np.uint8) for i in range(4)]
    compare(plan_of(chain, 35, 40, 4), batch, 3, None)
    assert builds.functions == [3, 3, 0]


def test_the_full_kernel_interprets(monkeypatch, tmp_path):
    pytest.importorskip("cupy")
    install(compiled_passes(tmp_path), 5, monkeypatch)
    image = np.random.default_rng(0).integers(0, 256, (9, 50, 3), dtype=np.uint8)
    for _, operation in operations_of(10, seed=5):
        compare(plan_of([operation], 9, 50, 1, Type.FLOAT32), [image], 3, None)


def test_values_of_a_pass_include_its_functions(monkeypatch):
    monkeypatch.delenv("CUAUG_SPECIALIZE")
    one, two = brighter(factor=1)._function, vignette(strength=1)._function
    monkeypatch.setattr(specialize, "_kernel", lambda key: key[1])
    specializer = specialize.Specializer()
    stable = specialize.STABLE_SAMPLES
    assert [specializer.choose(0, 0, 1, stable, [one]) for _ in range(2)][1] == (1, {one})
    assert specializer.choose(0, 0, 1, stable, [two]) is None, "the kernel lacks this function"
    assert specializer.choose(0, 0, 1, stable, [one]) == (1, {one, two})
    assert specializer.choose(0, 0, 1, 1, []) == (1, {one, two})


@pytest.mark.parametrize(
    "arch", [pytest.param(arch, marks=pytest.mark.slow if arch == 90 else pytest.mark.long) for arch in ARCHITECTURES]
)
def test_random_programs_compile(arch):
    pytest.importorskip("cupy")
    chain = [T.RandomResizedCrop(24), *(operation for _, operation in operations_of(8, seed=arch)), NORMALIZE]
    tables = plan_of(chain, 35, 40, 2)
    signature = functools.reduce(operator.or_, signatures(tables))
    functions = sorted(tables.functions, key=lambda function: function.number)
    code, _ = nvrtc.compile(arch, *specialize.build_of(signature, functions), functions)
    assert b"augment" in code and len(functions) > 5


#: By chain: registers and instructions at most, on sm_90.
BUDGETS: dict[str, tuple[list[Any], int, int]] = {
    "brightness of the library": ([T.RandomBrightness(0.5)], 64, 3200),
    "brightness": ([brighter(factor=ops.uniform(0.5, 1.5))], 64, 3300),
    "noise of the library": ([T.GaussianNoise()], 64, 3500),
    "noise": ([grainy(amount=0.1)], 64, 3500),
    "vignette": ([vignette(strength=ops.uniform(0.0, 0.8))], 80, 3100),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUDGETS)
def test_registers_and_instructions(name, record_property):
    """Within a crop, resize, flip and Normalize, without a stack."""
    pytest.importorskip("cupy")
    chain, registers, most = BUDGETS[name]
    tables = plan_of([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *chain, NORMALIZE], 375, 500, 64)
    (signature,) = signatures(tables)
    entry, defines = specialize.build_of(signature, tables.functions)
    code, log = nvrtc.compile(90, entry, defines, tables.functions)
    used = usage(log)[entry]
    record_property("usage", f"{used} {instructions(code, entry)}")
    assert used.stack == used.spilled == 0 and used.registers <= registers and instructions(code, entry) <= most
