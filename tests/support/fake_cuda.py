"""Fakes for all of CUDA: host memory, one stream, and kernels of the CPU build.

`tests/dry_run/` tests the Python around the kernels with these fakes; `benchmarks/gpu_python.py` measures it.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch

from cuaug._runtime.native import BEST_ISA, library
from cuaug.codec import CpuDecoder, DecoderPaths
from cuaug.devices import cuda, kernel_loading, nvrtc, specialize, streams, tiles, workspace
from cuaug.errors import DecodeError
from cuaug.pipeline import arena, cuda_producer, label_upload, staging
from cuaug.pipeline import cuda as pipeline
from cuaug.plan.layout import SAMPLE
from cuaug.profiling import cuda_events

__all__ = ["FakeDecoder", "FakeKernel", "FakeStream", "FakeTorch", "replace_cuda"]


MACHINE_CODE = b"not machine code"


class FakeEvent:
    """An event that passes when it is recorded, as on a stream that runs all work at once."""

    def __init__(self, blocking: bool = False, enable_timing: bool = False) -> None:
        self.recorded_on: Any = None
        self.timed = enable_timing

    def record(self, stream: Any = None) -> None:
        self.recorded_on, self.passed = stream, time.perf_counter()

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: FakeEvent) -> float:
        assert self.timed and other.timed
        return 1e3 * (other.passed - self.passed)


class FakeRanges:
    """In place of torch.cuda.nvtx: ranges nest per thread."""

    def __init__(self) -> None:
        self.open: dict[int, list[str]] = {}
        self.closed: list[str] = []

    def range_push(self, name: str) -> None:
        self.open.setdefault(threading.get_ident(), []).append(name)

    def range_pop(self) -> None:
        self.closed.append(self.open[threading.get_ident()].pop())


class FakeStream:
    """In place of torch.cuda.Stream.

    Attributes:
        waited: the events that the stream waits for.
        recorded: addresses of the tensors given to `record_stream`.
    """

    cuda_stream = 7

    def __init__(self) -> None:
        self.waited: list[Any] = []
        self.recorded: list[int] = []

    def wait_event(self, event: Any) -> None:
        self.waited.append(event)

    def synchronize(self) -> None: ...


class FakeTorch:
    """torch, with fakes for the parts of torch.cuda that cuaug uses.

    Attributes:
        allocations: ("pinned" or "device", bytes) of each allocation.
        consumer: the current stream.
    """

    def __init__(self) -> None:
        self.allocations: list[tuple[str, int]] = []
        self.consumer = FakeStream()
        self.ranges = FakeRanges()
        self.cuda = SimpleNamespace(
            nvtx=self.ranges,
            Event=FakeEvent,
            current_stream=lambda device: self.consumer,
            device=lambda device: contextlib.nullcontext(),
            set_device=lambda device: None,
            stream=lambda stream: contextlib.nullcontext(),
            _is_in_bad_fork=lambda: False,
            get_device_capability=lambda device: (9, 0),
            get_device_properties=lambda device: SimpleNamespace(total_memory=80 << 30),
            get_device_name=lambda device=None: "fake GPU",
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, shape: Any, *, dtype: Any, device: Any = None, pin_memory: bool = False) -> torch.Tensor:
        memory = torch.empty(shape, dtype=dtype)
        self.allocations.append(("pinned" if pin_memory else "device", memory.nbytes))
        return memory


class FakeKernel:
    """Runs each block's tile with the CPU build, and counts the launches."""

    def __init__(self) -> None:
        self.launches: list[tuple[int, int, int]] = []

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int, stream: Any) -> None:
        rows_at, ops_at, luts_at, statistics_at, high, wide = arguments
        assert [type(a) for a in arguments] == [np.uint64] * 4 + [np.int32] * 2
        assert stream.ptr == FakeStream.cuda_stream and block == (cuda.THREADS, 1, 1)
        assert 0 < grid[0] < 2**31 and all(0 < side <= 65535 for side in grid[1:]), f"CUDA launches no grid of {grid}"
        self.launches.append(grid)
        memory = (ctypes.c_char * (grid[2] * SAMPLE.itemsize)).from_address(int(rows_at))
        rows = np.frombuffer(memory, dtype=SAMPLE)
        assert shared_mem >= tiles.scratch_bytes(rows, int(high), int(wide)).max()
        for i, row in enumerate(rows):
            if not row["active"]:
                continue
            assert statistics_at or not (row["measure"] or row["measured"])
            assert grid[0] * high >= row["y"]["out"] and grid[1] * wide >= row["x"]["out"]
            tables = int(rows_at) + i * SAMPLE.itemsize, 1, 1, int(ops_at), int(luts_at), int(statistics_at)
            source, target = (int(row["source"]), int(row["pitch"]), 0, 0), int(row["target"])
            assert not library.cuaug_run(BEST_ISA, *tables, *source, target, int(high), int(wide))


class FakeFunction:
    """In place of CuPy's RawKernel: records its name, and runs the fake kernel."""

    max_dynamic_shared_size_bytes = 48 << 10

    def __init__(self, fake: SimpleNamespace, name: str) -> None:
        self.fake, self.name = fake, name

    def __call__(self, *arguments: Any, shared_mem: int, stream: Any) -> None:
        assert shared_mem <= self.max_dynamic_shared_size_bytes, "CUDA_ERROR_INVALID_VALUE: too much shared memory"
        self.fake.entries.append(self.name)
        self.fake.kernel(*arguments, shared_mem=shared_mem, stream=stream)


class FakeModule:
    """In place of CuPy's RawModule."""

    def __init__(self, fake: SimpleNamespace, path: str) -> None:
        self.fake, self.path = fake, path

    def get_function(self, name: str) -> FakeFunction:
        assert Path(self.path).read_bytes() == MACHINE_CODE
        return FakeFunction(self.fake, name)


class FakeDecoder:
    """In place of `CudaDecoder`; decodes into host memory.

    Attributes:
        created: (load_hint, threads) of each decoder.
        first_calls: number of images in each decoder's first call; nvImageCodec fixes the engine's share there.
        wrapped: number of wrapped slots.
    """

    created: ClassVar[list[tuple[float, int]]] = []
    first_calls: ClassVar[list[int]] = []

    def __init__(self, device_id: Any, paths: DecoderPaths | None = None, *, threads: int = 4) -> None:
        self.paths = paths = paths or DecoderPaths()
        self.cpu = CpuDecoder(fancy_upsampling=paths.fancy_upsampling)
        self.created.append((paths.load_hint, threads))
        self.fallbacks: list[int] = []
        self.cause = ""
        self.called = False
        self.wrapped = 0
        self.messages: dict[int, list[str]] = {}

    def prime(self, images: int, stream: int) -> None:
        assert stream == FakeStream.cuda_stream
        self._call(images)

    def _call(self, images: int) -> None:
        if not self.called:
            self.called = True
            self.first_calls.append(images)

    def wrap(self, array: torch.Tensor, stream: int) -> torch.Tensor:
        assert stream == FakeStream.cuda_stream and array.shape[::2] == (1, 3)
        self.wrapped += 1
        return array

    def decode_batch(self, headers: Any, slots: Any, stream: int) -> list[Any]:
        used = [slot.data_ptr() for header, slot in zip(headers, slots, strict=True) if not header.for_pillow]
        assert len(set(used)) == len(used)
        self._call(len(headers))
        results: list[Any] = []
        self.messages = {}
        for i, (header, slot) in enumerate(zip(headers, slots, strict=True)):
            try:
                pixels = self.cpu.decode(header).copy()
            except DecodeError as error:
                results.append(error)
                continue
            finally:
                if self.cpu.messages:
                    self.messages[i] = self.cpu.messages[0]
            if header._stream is None:
                results.append(pixels)
            else:
                slot.view(-1)[: pixels.size] = torch.from_numpy(pixels.reshape(-1))
                results.append(None)
        return results


def replace_cuda(replace: Callable[[Any, str, Any], None], fake_torch: FakeTorch | None = None) -> SimpleNamespace:
    """Replaces CUDA by the fakes.

    Args:
        replace: setattr, or pytest's `monkeypatch.setattr`.
        fake_torch: None: a new one.

    Returns:
        `torch`, `kernel`, and `entries` (names of launched entry points).
    """
    import cupy

    fake = SimpleNamespace(torch=fake_torch or FakeTorch(), kernel=FakeKernel(), entries=[])
    replace(cuda, "torch", fake.torch)
    replace(kernel_loading, "torch", fake.torch)
    replace(workspace, "torch", fake.torch)
    replace(kernel_loading, "_kernels", {})
    replace(nvrtc, "cached", lambda arch: MACHINE_CODE)
    replace(specialize, "_kernel", lambda key: None)  # no test waits for a real compilation, or runs its result
    replace(cupy, "RawModule", lambda path: FakeModule(fake, path))
    for module in (pipeline, cuda_producer, arena, label_upload, cuda_events, staging):
        replace(module, "torch", fake.torch)
    FakeDecoder.created.clear()
    FakeDecoder.first_calls.clear()
    replace(cuda_producer, "CudaDecoder", FakeDecoder)
    replace(streams, "acquire", lambda device: FakeStream())
    replace(torch.Tensor, "record_stream", lambda self, stream: stream.recorded.append(self.data_ptr()))
    replace(cupy.cuda.runtime, "deviceGetAttribute", lambda attribute, device: 227 << 10)
    return fake
