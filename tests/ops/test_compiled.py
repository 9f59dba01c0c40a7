"""Compiled pixel functions: on the CPU by the user's compiler, on CUDA inside a chain's kernel."""

from __future__ import annotations

import functools
import logging
import operator
import os
import runpy
import signal
import subprocess
import sys
from functools import partialmethod
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from cuaug import ops
from cuaug import transforms as T
from cuaug.devices import cpu_functions, cuda, cxx_program, nvrtc, specialize
from cuaug.plan import Layout, Plan, Type
from cuaug.sampling.rng import SampleRNG
from tests.kernels.test_nvrtc import ARCHITECTURES
from tests.kernels.test_scratch import EmulatedKernel, compare, compiled_passes, install
from tests.ops.test_bits import operations_of
from tests.support.pixel_programs import make_operation
from tests.support.signatures import NORMALIZE, signatures
from tests.support.started_processes import started_processes
from tests.support.waiting import eventually

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
    assert eventually(lambda: address(first)) and eventually(lambda: address(second))
    assert address(first) != 0 != address(second) != address(first) and len(compiler) == 2
    reset(monkeypatch)
    assert address(first) != 0 and len(compiler) == 2, "another run loads the code from the disk"


def test_equal_functions_share_their_code(compiler):
    copies = [make_operation("def f(pixel):\n    return pixel * 0.25\n", "f") for _ in range(2)]
    assert eventually(lambda: address(copies[0])) and address(copies[1]) and len(compiler) == 1


def test_damaged_code_on_the_disk_is_not_loaded(compiler, monkeypatch, tmp_path):
    operation = brighter(factor=0.5)
    assert eventually(lambda: address(operation))
    (file,) = (tmp_path / "cache").glob("pixel_function_*.so")
    file.write_bytes(file.read_bytes()[:-40])
    reset(monkeypatch)
    assert address(operation) == 0 and len(compiler) == 2


def test_a_failure_is_warned_of_once(compiler, monkeypatch, caplog):
    monkeypatch.setenv("CXX", "g++ --no-such-option")
    reset(monkeypatch)
    operation = brighter(factor=0.5)
    assert eventually(lambda: address(operation) or caplog.records)
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


def make_compiler(path: Path, commands: str) -> str:
    path.write_text(f"#!/bin/sh\n{commands}\n")
    path.chmod(0o700)
    return str(path)


def test_where_sigchld_is_ignored_a_failure_is_noticed(compiler, monkeypatch, caplog, tmp_path):
    """The exit status of a process is lost there."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        operation = brighter(factor=0.5)
        assert eventually(lambda: address(operation))
        monkeypatch.setenv("CXX", make_compiler(tmp_path / "failing", "echo no memory >&2; exit 1"))
        reset(monkeypatch)
        operation = vignette(strength=1)
        assert eventually(lambda: address(operation) or caplog.records)
        assert address(operation) == 0
    finally:
        signal.signal(signal.SIGCHLD, before)
    (record,) = caplog.records
    assert "no memory" in record.getMessage() and len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("written", ["", "no library"])
def test_code_that_does_not_load_is_not_kept(compiler, monkeypatch, caplog, tmp_path, written):
    monkeypatch.setenv("CXX", make_compiler(tmp_path / "careless", f"for last; do :; done; printf '{written}' > $last"))
    reset(monkeypatch)
    operation = brighter(factor=0.5)
    assert eventually(lambda: address(operation) or caplog.records)
    assert address(operation) == 0
    assert len(caplog.records) == 1 and not (tmp_path / "cache").exists()


def test_a_signal_while_the_folder_is_removed_leaves_nothing_of_it(tmp_path):
    (tmp_path / "temporary").mkdir()
    command = [make_compiler(tmp_path / "compiler", "for last; do :; done; echo code > $last")]
    program = """
import os, runpy, shutil, signal, sys
remove = shutil.rmtree
shutil.rmtree = lambda *a, **o: (os.kill(os.getpid(), signal.SIGTERM), remove(*a, **o))
runpy.run_path(sys.argv[1], run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, cxx_program.__file__],
        input=cxx_program.make_request("", command),
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
    )
    assert done.stdout.startswith(b"code\n"), done.stderr
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("blocked", [(), (signal.SIGTERM,)])
def test_exit_ends_a_compilation_whole(tmp_path, blocked):
    """No compiler runs on, and no folder stays, even if the training blocks the signal."""
    number, started = tmp_path / "number", tmp_path / "started"
    compiler = make_compiler(
        tmp_path / "compiler", f"trap '' TERM; echo $$ > {number}; mv {number} {started}; exec sleep 600"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    script = f"""
import signal, time
from pathlib import Path
signal.pthread_sigmask(signal.SIG_BLOCK, {[int(number) for number in blocked]})
from cuaug.devices import cpu_functions
from tests.ops.test_compiled import address, brighter

address(brighter(factor=0.5))
while not Path({str(started)!r}).exists():
    assert cpu_functions._running is not None
    time.sleep(0.01)
"""
    environment = {"CXX": compiler, "TMPDIR": str(temporary), "CUAUG_CACHE_DIR": str(tmp_path / "cache")}
    environment["CUAUG_SPECIALIZE"] = "1"
    subprocess.run([sys.executable, "-c", script], env=os.environ | environment, cwd=ROOT, check=True)
    process = int(started.read_text())
    assert not Path(f"/proc/{process}").exists() and not list(temporary.iterdir())


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
    return plan.compile(dtype, Layout.CHW)


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


@pytest.mark.long
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_random_programs_compile(arch):
    pytest.importorskip("cupy")
    chain = [T.RandomResizedCrop(24), *(operation for _, operation in operations_of(8, seed=arch)), NORMALIZE]
    tables = plan_of(chain, 35, 40, 2)
    signature = functools.reduce(operator.or_, signatures(tables))
    functions = sorted(tables.functions, key=lambda function: function.number)
    code, _ = nvrtc.compile(arch, *specialize.build_of(signature, functions), functions)
    assert b"augment" in code and len(functions) > 5
