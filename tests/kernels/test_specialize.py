"""Kernels for a chain: when they are compiled, in which process, and which launches they run."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from functools import partialmethod
from typing import Any

import numpy as np
import pytest

from cuaug.devices import cuda, nvrtc, specialize
from cuaug.devices.specialize import MAX_COMPILATIONS, STABLE_SAMPLES, Specializer, Values
from cuaug.plan import Layout, Type, operations
from tests.kernels.test_cuda_executor import run
from tests.support.fake_cuda import replace_cuda
from tests.support.run_plans import plan_for
from tests.support.signatures import plan_chain, signatures
from tests.support.started_processes import started_processes

pytest.importorskip("cupy")


@pytest.fixture
def ready(monkeypatch):
    """Replaces the compiler: lists the requests; a kernel is its signature, and ready at once."""
    requests: list[int] = []

    def kernel(key: tuple[int, Values]) -> int:
        requests.append(key[1].signature)
        return key[1].signature

    monkeypatch.setattr(specialize, "_kernel", kernel)
    return requests


def test_a_pass_is_compiled_once_its_values_are_known(ready):
    specializer = Specializer()
    batches = STABLE_SAMPLES // 256
    assert [specializer.choose(0, 0, 0b01, 256) for _ in range(batches)] == [None] * batches
    assert specializer.choose(0, 0, 0b11, 256) is None, "a new value: the wait begins anew"
    assert [specializer.choose(0, 0, 0b01, 256) for _ in range(batches)] == [None] * (batches - 1) + [0b11]
    assert [specializer.choose(0, 0, s, 256) for s in (0b10, 0b11, 0b01)] == [0b11] * 3
    assert specializer.choose(0, 1, 0b01, STABLE_SAMPLES) is None, "another pass has its own values"
    assert ready == [0b11] and specializer.take_launches() == {"specialized": 4, "full": 2 * batches + 1}
    assert not specializer.take_launches()


def test_launches_with_other_values_run_on_the_full_kernels(ready):
    specializer = Specializer()
    specializer.choose(0, 0, 0b001, 1)
    assert specializer.choose(0, 0, 0b001, STABLE_SAMPLES) == 0b001
    assert specializer.choose(0, 0, 0b101, 256) is None
    assert specializer.choose(0, 0, 0b001, 256) == 0b001, "the kernel stays while the union grows"
    assert specializer.choose(0, 0, 0b100, STABLE_SAMPLES) == 0b101


def test_a_pass_is_compiled_a_few_times_at_most(ready):
    specializer = Specializer()
    for value in range(10):
        for _ in range(2):
            specializer.choose(0, 0, 1 << value, STABLE_SAMPLES)
    assert ready == [(2 << value) - 1 for value in range(MAX_COMPILATIONS)]
    assert specializer.choose(0, 0, 1 << 9, 256) is None and specializer.choose(0, 0, 1, 256) == ready[-1]


def test_the_environment_turns_it_off(ready, monkeypatch):
    monkeypatch.setenv("CUAUG_SPECIALIZE", "0")
    specializer = Specializer()
    assert [specializer.choose(0, 0, 1, STABLE_SAMPLES) for _ in range(9)] == [None] * 9
    assert not ready and specializer.take_launches() == {"full": 9}


class RecordedKernel:
    def __init__(self, fake: Any, signature: int) -> None:
        self.fake, self.signature = fake, signature

    def __call__(self, *arguments: Any, **options: Any) -> None:
        self.fake.entries.append(self.signature)
        self.fake.kernel(*arguments, **options)


def test_the_executor_launches_the_chosen_kernels(monkeypatch):
    fake = replace_cuda(monkeypatch.setattr)
    monkeypatch.setattr(specialize, "_kernel", lambda key: RecordedKernel(fake, key[1].signature))
    monkeypatch.setattr(specialize, "STABLE_SAMPLES", 8)
    batch = [np.random.default_rng(i).integers(0, 256, (75, 100, 3), dtype=np.uint8) for i in range(4)]
    tables, specializer = plan_chain("color", 75, 100, 4), Specializer()
    results = [run_with(specializer, tables, batch) for _ in range(4)]
    first, second = signatures(tables)
    assert fake.entries == ["augment"] * 4 + [first, second] * 2
    assert all((result == results[0]).all() for result in results[1:])

    plan = plan_for(*batch)
    plan.resize(224, 224)
    plan.append(operations.solarize(4, 255.0, 128))
    run_with(specializer, plan.compile(Type.FLOAT16, Layout.CHW), batch)
    assert fake.entries[8:] == ["augment"]


def run_with(specializer: Specializer, tables: Any, batch: list[np.ndarray]) -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda.CudaExecutor, "run", partialmethod(cuda.CudaExecutor.run, specializer=specializer))
        return run(tables, batch, 3)[1].numpy()


# --- the process that compiles ---------------------------------------------------------------------------------------

KEYS = [(0, Values(0x0844218221000001)), (0, Values(0x0884218281000013))]  # run by `resample` and by `augment`


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Small kernels; a kernel is (its code, its entry point). Lists the processes."""
    text = 'extern "C" __global__ void %s(unsigned long long* x) { *x = CUAUG_SIGNATURE; }'
    monkeypatch.setattr(nvrtc, "sources", lambda program, *_: (text % program, {}))
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(specialize, "_architecture", lambda key: "90")
    monkeypatch.setattr(specialize, "load_functions", lambda code, names, device: [(code, *names)])
    reset(monkeypatch)
    with started_processes(monkeypatch) as processes:
        yield processes


def reset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_functions", {}), ("_code", {}), ("_running", None), ("_failed", False)):
        monkeypatch.setattr(specialize, name, value)


def wait_for(key: tuple[int, Values]) -> Any:
    end = time.monotonic() + 60
    while (kernel := specialize._kernel(key)) is None and time.monotonic() < end:
        time.sleep(0.02)
    return kernel


def test_a_process_compiles_and_the_disk_keeps_the_code(compiler, monkeypatch):
    assert specialize._kernel(KEYS[0]) is None
    assert specialize._kernel(KEYS[1]) is None, "one at a time"
    assert len(compiler) == 1
    for key, entry in zip(KEYS, ("resample", "augment"), strict=True):
        assert wait_for(key) == (nvrtc.compile(90, *specialize.build_of(*key[1]))[0], entry)
        assert specialize._kernel(key) is specialize._kernel(key)
    assert len(compiler) == 2 and all(process.wait() == 0 for process in compiler)
    first = specialize._kernel(KEYS[0])
    reset(monkeypatch)
    assert specialize._kernel(KEYS[0]) == first and len(compiler) == 2, "another run loads the code from the disk"


def test_the_code_is_taken_even_if_nobody_waits_for_it(compiler):
    """As after the loader that has requested it is closed."""
    assert specialize._kernel(KEYS[0]) is None
    assert wait_for(KEYS[1])[1] == "augment" and specialize._kernel(KEYS[0])[1] == "resample"


def test_a_failure_is_warned_of_once(compiler, monkeypatch, caplog):
    monkeypatch.setattr(nvrtc, "sources", lambda *_, **__: ("int oops = nonsense;", {}))
    assert wait_for_failure() and [specialize._kernel(key) for key in KEYS] == [None, None]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and 'identifier "nonsense" is undefined' in record.getMessage()
    assert "the slower full kernels run" in record.getMessage() and len(compiler) == 1


def wait_for_failure() -> bool:
    end = time.monotonic() + 60
    while not specialize._failed and time.monotonic() < end:
        assert specialize._kernel(KEYS[0]) is None
        time.sleep(0.02)
    return specialize._failed


@pytest.mark.parametrize("missing", [None, "", "/nonexistent/python"])
def test_without_a_python_to_start_the_full_kernels_stay(compiler, monkeypatch, caplog, missing):
    monkeypatch.setattr(sys, "executable", missing)
    assert [specialize._kernel(KEYS[0]) for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1


def test_a_forked_child_starts_anew(compiler):
    assert wait_for(KEYS[0]) and specialize._kernel(KEYS[1]) is None
    with specialize._lock:
        child = os.fork()
        if child == 0:
            clean = specialize._running is None and not specialize._functions and not specialize._lock.locked()
            os._exit(0 if clean else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert wait_for(KEYS[1])[1] == "augment", "the parent's goes on"


def test_exit_waits_for_no_compilation():
    """The real kernels take many seconds; the process ends with the interpreter."""
    script = f"""
from cuaug.devices import specialize
specialize._architecture = lambda key: "90"
assert specialize._kernel((0, specialize.Values({KEYS[1][1].signature}))) is None
process = specialize._running[1]._process
print(process.pid, process.poll())
"""
    env = os.environ | {"CUAUG_CACHE_DIR": "/nonexistent"}
    ended = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert ended.returncode == 0 and not ended.stderr, ended.stderr
    process, status = ended.stdout.split()
    assert status == "None", "it was compiling"
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)
