"""A fake GPU: runs the tests marked `cuda` on a machine without a GPU.

    python -m pytest -p tests.support.fake_gpu -m cuda tests/cuda tests/loader

A mistake in a test that needs a GPU would otherwise show on the GPU, where minutes are expensive. Here tensors "on
cuda:0" are in host memory, with the fakes of `fake_cuda.py`. They refuse the same operations as CUDA tensors: NumPy,
pinning, and CPU tensors as operands. A test that passes here could pass on a GPU. It shows nothing of GPUs themselves:
there is no second device, work is never late, and memory is not measured.

`tests/support/dry_run/exclusions.py` lists the excluded tests with reasons; `test_fake_gpu.py` runs all others.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import cuaug.codec
import cuaug.pipeline.resolve_device
from tests import conftest
from tests.support.dry_run.exclusions import EXCLUDED
from tests.support.fake_cuda import FakeDecoder, FakeTorch, replace_cuda
from tests.support.fake_nvdec import replace_nvdec

BANNER = "FAKE GPU: tensors in host memory that behave as CUDA tensors. Nothing here ran on a GPU."

#: Starts the reason of each skipped test.
SKIPPED = "not on the fake GPU: "

ROOT = Path(__file__).parents[2]
T = torch.Tensor
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


class FakeCudaTensor(torch.Tensor):
    """A tensor in host memory that reports cuda:0 as its device."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})


class FakeGpuMode(TorchFunctionMode):
    """Handles this thread's calls without FakeCudaTensor arguments, too: they may create one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Does what torch does with a GPU, or raises torch's error."""
    tensors = [x for x in leaves((args, kwargs)) if isinstance(x, T)]
    on_gpu = [x for x in tensors if isinstance(x, FakeCudaTensor)]
    if on_gpu and func in ANSWERS:
        return ANSWERS[func](args[0])
    if func is T.pin_memory:
        return args[0].clone()
    if func in (T.cpu, T.cuda):
        func, args = T.to, (args[0], CPU if func is T.cpu else device_of(*args[1:], **kwargs), *args[2:])
        kwargs = {name: value for name, value in kwargs.items() if name != "device"}
    device, args, kwargs = requested_device(func, args, kwargs)
    if device is None and not on_gpu:
        return func(*args, **kwargs)
    if func not in BRIDGES:
        refuse_mixed_devices(func, tensors)
    elif func in (T.__getitem__, T.__setitem__):
        refuse_indices(*args)
    with torch._C.DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
        if func is T.copy_:
            return args[0]
        to_gpu = bool(on_gpu) if device is None else device.type == "cuda"
        if isinstance(result, T) and any(isinstance(x, FakeCudaTensor) != to_gpu for x in tensors):
            result = result.clone()  # a copy between devices
        return to_device(result, to_gpu)


def leaves(value: Any) -> Iterator[Any]:
    """Yields the leaves of nested lists, tuples and dicts."""
    if isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value


def to_device(value: Any, on_gpu: bool) -> Any:
    """A tensor, or the tensors in a list or tuple, on the fake GPU or on the CPU; shares memory."""
    if isinstance(value, T):
        return (
            value if isinstance(value, FakeCudaTensor) == on_gpu else value.as_subclass(FakeCudaTensor if on_gpu else T)
        )
    if isinstance(value, (list, tuple)) and any(isinstance(part, T) for part in value):
        return type(value)(to_device(part, on_gpu) for part in value)
    return value


def device_of(device: Any = None, *_: Any, **__: Any) -> torch.device:
    """The device for an argument of `Tensor.cuda` or of a factory function."""
    chosen = CUDA if device is None else torch.device("cuda", device) if type(device) is int else torch.device(device)
    if chosen.type == "cuda" and (chosen.index or 0) > 0:
        raise RuntimeError("CUDA error: invalid device ordinal (there is one fake GPU)")
    return chosen


def storage_device(device: torch.device) -> torch.device:
    return CPU if device.type == "cuda" else device


def requested_device(func: Any, args: Any, kwargs: Any) -> tuple[torch.device | None, Any, Any]:
    """The device that the call requests for its result, and the arguments without a GPU."""
    if kwargs.get("device") is not None:
        device = device_of(kwargs["device"])
        return device, args, kwargs | {"device": storage_device(device)}
    if func is T.to and len(args) > 1:
        if isinstance(args[1], T):
            return CUDA if isinstance(args[1], FakeCudaTensor) else CPU, args, kwargs
        if isinstance(args[1], (str, int, torch.device)):
            device = device_of(args[1])
            return device, (args[0], storage_device(device), *args[2:]), kwargs
    return None, args, kwargs


# --- operations that CUDA tensors refuse -----------------------------------------------------------------------------


def refusal(kind: type[Exception], text: str) -> Callable[[Any], Any]:
    def refuse(tensor: Any) -> Any:
        raise kind(text)

    return refuse


no_numpy = refusal(TypeError, "can't convert cuda:0 device type tensor to numpy: use Tensor.cpu() first")

#: Functions of a FakeCudaTensor with their own answers; all others run on its host memory.
ANSWERS: dict[Any, Callable[[Any], Any]] = {
    T.device.__get__: lambda tensor: CUDA,
    T.is_cuda.__get__: lambda tensor: True,
    T.is_cpu.__get__: lambda tensor: False,
    T.get_device: lambda tensor: 0,
    T.__deepcopy__: lambda tensor: tensor.clone(),
    T.is_pinned: lambda tensor: False,
    torch._has_compatible_shallow_copy_type: lambda tensor: False,  # modules get new parameters, of this class
    T.numpy: no_numpy,
    T.__array__: no_numpy,
    T.pin_memory: refusal(RuntimeError, "cannot pin a cuda tensor: only dense CPU tensors can be pinned"),
}

#: Functions that take tensors of two devices; `refuse_indices` checks indices.
BRIDGES = {T.to, T.copy_, T.__getitem__, T.__setitem__}
#: Functions that refuse even a zero-dimensional CPU tensor, which other functions take as a number.
NO_NUMBERS = {torch.equal, T.equal, torch.cat, torch.stack}


def refuse_mixed_devices(func: Any, tensors: list[Any]) -> None:
    """Raises if CPU tensors meet CUDA tensors."""
    on_cpu = [x for x in tensors if not isinstance(x, FakeCudaTensor) and (func in NO_NUMBERS or x.dim())]
    if on_cpu and len(on_cpu) < len(tensors):
        name = getattr(func, "__name__", func)
        raise RuntimeError(f"Expected all tensors to be on the same device, but found cuda:0 and cpu ({name})")


def refuse_indices(tensor: Any, index: Any, value: Any = None) -> None:
    """Raises for CUDA indices of a CPU tensor, and for values on another device."""
    indices = [x for x in leaves(index) if isinstance(x, T)]
    if not isinstance(tensor, FakeCudaTensor) and any(isinstance(x, FakeCudaTensor) for x in indices):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    if indices and isinstance(value, T):
        refuse_mixed_devices(T.__setitem__, [tensor, value])


# --- fakes for torch.cuda --------------------------------------------------------------------------------------------


class FakeGpuTorch(FakeTorch):
    """Puts cuaug's own device memory on the fake GPU, so that its code meets the refusals."""

    def empty(self, shape: Any, *, dtype: Any, device: Any = None, pin_memory: bool = False) -> torch.Tensor:
        memory = super().empty(shape, dtype=dtype, device=device, pin_memory=pin_memory)
        return to_device(memory, device is not None and torch.device(device).type == "cuda")

    def replace_copies(self, replace: Any) -> None: ...  # FakeGpuMode needs torch's own


def install() -> FakeGpuMode:
    """Replaces CUDA in this process; the caller's thread has a GPU inside the returned context."""
    if os.environ.get("CUAUG_REQUIRE_CUDA") == "1":
        raise RuntimeError("CUAUG_REQUIRE_CUDA=1 needs a GPU, not the fake GPU")
    if torch.cuda.is_available():
        raise RuntimeError("this machine has a GPU: use it, without the fake GPU")
    fake_torch = FakeGpuTorch(gpu=0)
    replace_cuda(setattr, fake_torch)
    replace_nvdec(setattr, operator.setitem, fake_torch)
    vars(fake_torch.cuda).update(
        empty_cache=lambda: None,
        host_memory_stats=lambda device=None: {"num_host_alloc": 0},
        is_current_stream_capturing=lambda: False,
        mem_get_info=lambda device=None: (128 << 20, 80 << 30),
        memory_allocated=lambda device=None: 0,
        memory_reserved=lambda device=None: 0,
        memory_stats=lambda device=None: {"num_device_alloc": 0},
        _sleep=lambda cycles: None,
    )
    for name, value in vars(fake_torch.cuda).items():
        setattr(torch.cuda, name, value)
    cuaug.codec.NvImageCodecDecoder = FakeDecoder  # the name that tests import
    cuaug.pipeline.resolve_device.gpu_decodes = lambda index: (True, "")
    start = threading.Thread.start

    def start_with_mode(thread: threading.Thread) -> None:
        def run() -> None:
            del thread.run  # uncovers the class's
            with FakeGpuMode():
                thread.run()

        thread.run = run
        start(thread)

    threading.Thread.start = start_with_mode
    return FakeGpuMode()


def pytest_configure(config: pytest.Config) -> None:
    try:
        install()
    except RuntimeError as error:
        raise pytest.UsageError(str(error)) from error
    conftest.cuda_is_missing = lambda: ""


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Any:
    with FakeGpuMode():
        return (yield)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return os.path.relpath(collection_path, ROOT) in EXCLUDED or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name, reason in EXCLUDED.items():
            if item.nodeid.startswith(name):
                item.add_marker(pytest.mark.skip(reason=f"{SKIPPED}{reason}"))


def pytest_report_header() -> str:
    return BANNER


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_sep("=", BANNER)  # also with pytest -q
