"""Kernels for a chain: when they are compiled, in which process, and which launches they run."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from cuaug.devices import nvrtc, specialize
from cuaug.devices.specialize import STABLE_SAMPLES, Specializer, Values
from tests.support.started_processes import started_processes
from tests.support.waiting import eventually

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


def test_launches_with_other_values_run_on_the_full_kernels(ready):
    specializer = Specializer()
    specializer.choose(0, 0, 0b001, 1)
    assert specializer.choose(0, 0, 0b001, STABLE_SAMPLES) == 0b001
    assert specializer.choose(0, 0, 0b101, 256) is None
    assert specializer.choose(0, 0, 0b001, 256) == 0b001, "the kernel stays while the union grows"
    assert specializer.choose(0, 0, 0b100, STABLE_SAMPLES) == 0b101


# --- the process that compiles ---------------------------------------------------------------------------------------

KEYS = [(0, Values(0x0844214111000001)), (0, Values(0x0884214141000025))]  # run by `resample` and by `augment`


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
    for name, value in (("_functions", {}), ("_running", None), ("_failed", False)):
        monkeypatch.setattr(specialize, name, value)


def wait_for(key: tuple[int, Values]) -> Any:
    assert eventually(lambda: specialize._kernel(key) is not None)
    return specialize._kernel(key)


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


def test_a_failure_is_warned_of_once(compiler, monkeypatch, caplog):
    monkeypatch.setattr(nvrtc, "sources", lambda *_, **__: ("int oops = nonsense;", {}))
    assert eventually(lambda: specialize._kernel(KEYS[0]) is not None or specialize._failed)
    assert specialize._failed and [specialize._kernel(key) for key in KEYS] == [None, None]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and 'identifier "nonsense" is undefined' in record.getMessage()
    assert "the slower full kernels run" in record.getMessage() and len(compiler) == 1


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
