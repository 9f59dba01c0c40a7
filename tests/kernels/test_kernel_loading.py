"""Loading of the compiled kernels by CuPy's RawModule, which is replaced here where it needs a GPU."""

from __future__ import annotations

import contextlib
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cuaug.devices import nvrtc
from cuaug.devices import nvrtc as kernel_loading
from cuaug.errors import DeviceError

cupy = pytest.importorskip("cupy")

LIMIT = 99 << 10
STATIC = 100  # bytes of shared memory that a kernel declares


class RecordingModule:
    """Records the file and the current device of each call."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.code, self.device = self.path.read_bytes(), current_device[-1]
        assert self.path.parent.stat().st_mode & 0o077 == 0, "other users could replace the file"

    def get_function(self, name: str) -> Any:
        return RecordingFunction(self, name)


class RecordingFunction(SimpleNamespace):
    def __init__(self, module: RecordingModule, name: str) -> None:
        super().__init__(module=module, name=name, device=current_device[-1], granted=[], shared_size_bytes=STATIC)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "max_dynamic_shared_size_bytes":
            self.granted.append((current_device[-1], value))
        super().__setattr__(name, value)


current_device = [0]


@contextlib.contextmanager
def device(index: int) -> Any:
    current_device.append(index)
    yield
    current_device.pop()


@pytest.fixture
def gpus(monkeypatch):
    cuda = SimpleNamespace(device=device, get_device_capability=lambda index: (9, index))
    monkeypatch.setattr(kernel_loading, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(kernel_loading, "_loaded", {})
    monkeypatch.setattr(nvrtc, "cached", lambda arch, program: f"{program} for {arch}".encode())


def test_kernels_are_loaded_on_their_device(gpus, monkeypatch):
    """From a private file with the code's digest in its name, and with all shared memory granted."""
    monkeypatch.setattr(cupy, "RawModule", RecordingModule)
    monkeypatch.setattr(cupy.cuda.runtime, "deviceGetAttribute", lambda attribute, index: LIMIT + index)
    for index in (1, 0):
        loaded = kernel_loading.kernels(index)
        assert kernel_loading.kernels(index) == loaded
        assert [function.name for function in loaded] == ["augment", "resample"]
        for function in loaded:
            code = f"{function.name} for 9{index}".encode()
            assert function.device == function.module.device == index
            assert function.granted == [(index, LIMIT + index - STATIC)]
            assert function.module.code == code
            assert function.module.path.name == hashlib.sha256(code).hexdigest()
            assert not function.module.path.parent.exists()
    assert current_device == [0]


def test_code_that_cupy_does_not_load_is_a_device_error(gpus):
    """Without a driver CuPy says so; with one, the file holds no machine code."""
    with pytest.raises(DeviceError, match=r"the kernels do not load on CUDA device 0: (CUDA_ERROR|cudaError)"):
        kernel_loading.kernels(0)


def test_raw_kernels_launch_on_the_stream_that_they_are_given():
    """CuPy documents `shared_mem` alone, and passes `stream` on."""
    launches = []

    class Kernel(cupy.RawKernel):
        @property
        def kernel(self) -> Any:
            return lambda *arguments, **options: launches.append((arguments, options))

    Kernel("", "augment")((2, 3, 4), (128, 1, 1), (5,), shared_mem=6, stream=7)
    (arguments, options) = launches[0]
    assert arguments == ((2, 3, 4), (128, 1, 1), (5,))
    assert (options["shared_mem"], options["stream"]) == (6, 7)


def test_concurrent_threads_load_each_module_once(gpus, monkeypatch):
    """A second module would replace the first, which would be unloaded while its kernels are queued."""
    loads = []

    def slowly(code: bytes, names: Any, device_index: int) -> list[object]:
        loads.append((device_index, *names))
        time.sleep(0.05)
        return [object() for _ in names]

    monkeypatch.setattr(kernel_loading, "load_functions", slowly)
    with ThreadPoolExecutor(8) as pool:
        got = set(pool.map(kernel_loading.kernels, [0] * 8))
    assert loads == [(0, "augment"), (0, "resample")] and len(got) == 1 and kernel_loading.kernels(0) in got
    assert kernel_loading.kernels(1) not in got and len(loads) == 4
