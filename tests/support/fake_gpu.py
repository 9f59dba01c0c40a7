"""Pretended CUDA tensors: the tests marked `cuda` run on them where there is no GPU. Nothing of it runs on a GPU.

    python -m pytest -p tests.support.fake_gpu -m cuda tests/cuda tests/loader

A test that only a GPU can run is not run by those who change it, and what is wrong in it shows on the GPU, where
minutes are dear. Here tensors "on cuda:0" lie in host memory, over the stand-ins of `fake_cuda.py`, and refuse
what CUDA tensors refuse: NumPy, pinning, and company on the CPU. So a test that passes is one that could pass on a GPU.
It says nothing of GPUs themselves: there is no second device, no stream, nothing is late, and no memory is counted.

`left_out.py` names what does not run like this, and why. `test_pretended.py` runs all the rest.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import cuaug.codec
import cuaug.device
from tests import conftest
from tests.dry_run.exclusions import LEFT_OUT
from tests.support.fake_cuda import FakeDecoder, FakeStream, FakeTorch, replace_cuda

__all__ = ["BANNER", "SKIPPED", "Pretended"]

BANNER = "PRETENDED CUDA: tensors in host memory that refuse what CUDA's refuse. Nothing here ran on a GPU."

#: What it says of each test that is left out.
SKIPPED = "not pretended: "

ROOT = Path(__file__).parents[2]
T = torch.Tensor
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


class Pretended(torch.Tensor):
    """A tensor that calls itself one of cuda:0."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})


class Pretending(TorchFunctionMode):
    """Also asks about calls that no pretended tensor takes part in, but that may make one; of the thread it is in."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What torch would do if there were a GPU, or the error that it would raise."""
    given = [x for x in leaves((args, kwargs)) if isinstance(x, T)]
    on_gpu = [x for x in given if isinstance(x, Pretended)]
    if on_gpu and func in ANSWERS:
        return ANSWERS[func](args[0])
    if func is T.pin_memory:
        return args[0].clone()
    if func in (T.cpu, T.cuda):
        func, args = T.to, (args[0], CPU if func is T.cpu else device_of(*args[1:], **kwargs), *args[2:])
        kwargs = {name: value for name, value in kwargs.items() if name != "device"}
    asked, args, kwargs = asked_device(func, args, kwargs)
    if asked is None and not on_gpu:
        return func(*args, **kwargs)
    if func not in BRIDGES:
        refuse_company(func, given)
    elif func in (T.__getitem__, T.__setitem__):
        refuse_indices(*args)
    with torch._C.DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
        if func is T.copy_:
            return args[0]
        to_gpu = bool(on_gpu) if asked is None else asked.type == "cuda"
        if isinstance(result, T) and any(isinstance(x, Pretended) != to_gpu for x in given):
            result = result.clone()  # what crosses over is a copy
        return resolve_device(result, to_gpu)


def leaves(value: Any) -> Iterator[Any]:
    """What is in nested lists, tuples and dicts."""
    if isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value


def resolve_device(value: Any, on_gpu: bool) -> Any:
    """The tensors, also of a list or a tuple, as ones that are there."""
    if isinstance(value, T):
        return value if isinstance(value, Pretended) == on_gpu else value.as_subclass(Pretended if on_gpu else T)
    if isinstance(value, (list, tuple)) and any(isinstance(part, T) for part in value):
        return type(value)(resolve_device(part, on_gpu) for part in value)
    return value


def device_of(device: Any = None, *_: Any, **__: Any) -> torch.device:
    """As `Tensor.cuda` takes it, or a factory."""
    chosen = CUDA if device is None else torch.device("cuda", device) if type(device) is int else torch.device(device)
    if chosen.type == "cuda" and (chosen.index or 0) > 0:
        raise RuntimeError("CUDA error: invalid device ordinal (one GPU is pretended)")
    return chosen


def on_host(device: torch.device) -> torch.device:
    return CPU if device.type == "cuda" else device


def asked_device(func: Any, args: Any, kwargs: Any) -> tuple[torch.device | None, Any, Any]:
    """Where the result is asked to be, if anywhere, and the arguments without a GPU."""
    if kwargs.get("device") is not None:
        asked = device_of(kwargs["device"])
        return asked, args, kwargs | {"device": on_host(asked)}
    if func is T.to and len(args) > 1:
        if isinstance(args[1], T):
            return CUDA if isinstance(args[1], Pretended) else CPU, args, kwargs
        if isinstance(args[1], (str, int, torch.device)):
            asked = device_of(args[1])
            return asked, (args[0], on_host(asked), *args[2:]), kwargs
    return None, args, kwargs


# --- what CUDA tensors refuse ----------------------------------------------------------------------------------------


def refusal(kind: type[Exception], text: str) -> Callable[[Any], Any]:
    def refuse(tensor: Any) -> Any:
        raise kind(text)

    return refuse


no_numpy = refusal(TypeError, "can't convert cuda:0 device type tensor to numpy: use Tensor.cpu() first")

#: Of a pretended tensor; all others run on its host memory.
ANSWERS: dict[Any, Callable[[Any], Any]] = {
    T.device.__get__: lambda tensor: CUDA,
    T.is_cuda.__get__: lambda tensor: True,
    T.is_cpu.__get__: lambda tensor: False,
    T.get_device: lambda tensor: 0,
    T.__deepcopy__: lambda tensor: tensor.clone(),
    T.is_pinned: lambda tensor: False,
    T.numpy: no_numpy,
    T.__array__: no_numpy,
    T.pin_memory: refusal(RuntimeError, "cannot pin a cuda tensor: only dense CPU tensors can be pinned"),
}

#: Take tensors of two devices; what may index what is `refuse_indices`' to say.
BRIDGES = {T.to, T.copy_, T.__getitem__, T.__setitem__}
#: Refuse even a CPU tensor without axes, which elsewhere counts as a number.
NO_NUMBERS = {torch.equal, T.equal, torch.cat, torch.stack}


def refuse_company(func: Any, given: list[Any]) -> None:
    """Of tensors on the CPU, beside pretended ones."""
    strangers = [x for x in given if not isinstance(x, Pretended) and (func in NO_NUMBERS or x.dim())]
    if strangers and len(strangers) < len(given):
        name = getattr(func, "__name__", func)
        raise RuntimeError(f"Expected all tensors to be on the same device, but found cuda:0 and cpu ({name})")


def refuse_indices(tensor: Any, index: Any, value: Any = None) -> None:
    """The CPU's indices are taken everywhere, the GPU's on the GPU only; so are values that are put at them."""
    indices = [x for x in leaves(index) if isinstance(x, T)]
    if not isinstance(tensor, Pretended) and any(isinstance(x, Pretended) for x in indices):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    if indices and isinstance(value, T):
        refuse_company(T.__setitem__, [tensor, value])


# --- in CUDA's place -------------------------------------------------------------------------------------------------


class PretendedStream(FakeStream):
    """As tests use streams; everything has run as soon as it is queued."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        super().__init__()

    def wait_stream(self, other: Any) -> None: ...


class PretendedTorch(FakeTorch):
    """What cuaug asks for on the GPU is pretended to be there: its own code meets the refusals, too."""

    def empty(self, shape: Any, *, dtype: Any, device: Any = None, pin_memory: bool = False) -> torch.Tensor:
        memory = super().empty(shape, dtype=dtype, device=device, pin_memory=pin_memory)
        return resolve_device(memory, device is not None and torch.device(device).type == "cuda")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CUAUG_REQUIRE_CUDA") == "1":
        raise pytest.UsageError("CUAUG_REQUIRE_CUDA=1 asks for a GPU, and here one is only pretended")
    if torch.cuda.is_available():
        raise pytest.UsageError("here is a GPU: run the tests on it, without -p tests.support.fake_gpu")
    conftest.cuda_is_missing = lambda: ""
    stand_in = PretendedTorch()
    replace_cuda(setattr, stand_in)
    vars(stand_in.cuda).update(
        Stream=PretendedStream,
        current_device=lambda: 0,
        current_stream=lambda device=None: stand_in.consumer,
        default_stream=lambda device=None: stand_in.consumer,
        device_count=lambda: 1,
        empty_cache=lambda: None,
        get_device_name=lambda device=None: "none: pretended",
        host_memory_stats=lambda device=None: {"num_host_alloc": 0},
        is_available=lambda: True,
        memory_allocated=lambda device=None: 0,
        memory_reserved=lambda device=None: 0,
        memory_stats=lambda device=None: {"num_device_alloc": 0},
        synchronize=lambda device=None: None,
        _sleep=lambda cycles: None,
    )
    stand_in.consumer = PretendedStream()
    for name, value in vars(stand_in.cuda).items():
        setattr(torch.cuda, name, value)
    cuaug.codec.CudaDecoder = FakeDecoder  # as tests import it
    cuaug.device.gpu_decodes = lambda index: (True, "")
    start = threading.Thread.start

    def start_pretending(thread: threading.Thread) -> None:
        def run() -> None:
            del thread.run  # the class's is seen again
            with Pretending():
                thread.run()

        thread.run = run
        start(thread)

    threading.Thread.start = start_pretending


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Any:
    with Pretending():
        return (yield)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return os.path.relpath(collection_path, ROOT) in LEFT_OUT or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name, reason in LEFT_OUT.items():
            if item.nodeid.startswith(name):
                item.add_marker(pytest.mark.skip(reason=f"{SKIPPED}{reason}"))


def pytest_report_header() -> str:
    return BANNER


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_sep("=", BANNER)  # also where pytest is quiet
