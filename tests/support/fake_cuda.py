"""Stand-ins for all of CUDA: host memory, one stream, kernels run by the host build.

`tests/dry_run/` tests with them what is around the kernels; `benchmarks/gpu_python.py` measures it.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch

from cuaug._runtime.native import BEST_ISA, library
from cuaug.codec import CpuDecoder
from cuaug.devices import cuda, streams
from cuaug.errors import DecodeError
from cuaug.pipeline import cuda as pipeline
from cuaug.plan.layout import SAMPLE
from cuaug.profiling import cuda_events

__all__ = ["FakeDecoder", "FakeKernel", "FakeStream", "FakeTorch", "replace_cuda"]


class FakeEvent:
    """Passes when it is recorded, as on a stream where everything runs at once."""

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
    """As torch.cuda.nvtx: each thread's ranges nest."""

    def __init__(self) -> None:
        self.open: dict[int, list[str]] = {}
        self.closed: list[str] = []

    def range_push(self, name: str) -> None:
        self.open.setdefault(threading.get_ident(), []).append(name)

    def range_pop(self) -> None:
        self.closed.append(self.open[threading.get_ident()].pop())


class FakeStream:
    """As torch.cuda.Stream; `told` is whose memory it reads."""

    cuda_stream = 7

    def __init__(self) -> None:
        self.waited: list[Any] = []
        self.told: list[int] = []

    def wait_event(self, event: Any) -> None:
        self.waited.append(event)

    def synchronize(self) -> None: ...


class FakeTorch:
    """torch, with the parts of torch.cuda that cuaug uses.

    Attributes:
        asked: ("pinned" or "device", bytes) for each piece of memory that was asked for.
        consumer: the current stream.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
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
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, shape: Any, *, dtype: Any, device: Any = None, pin_memory: bool = False) -> torch.Tensor:
        memory = torch.empty(shape, dtype=dtype)
        self.asked.append(("pinned" if pin_memory else "device", memory.nbytes))
        return memory


class FakeKernel:
    """Runs each block's tile with the host build, and counts the launches."""

    def __init__(self) -> None:
        self.launches: list[tuple[int, int, int]] = []

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int, stream: Any) -> None:
        rows_at, ops_at, luts_at, statistics_at, high, wide = arguments
        assert [type(a) for a in arguments] == [np.uint64] * 4 + [np.int32] * 2
        assert stream.ptr == FakeStream.cuda_stream and block == (cuda.THREADS, 1, 1)
        assert 0 < grid[0] < 2**31 and all(0 < side <= 65535 for side in grid[1:]), f"CUDA launches no grid of {grid}"
        assert shared_mem <= 227 << 10
        self.launches.append(grid)
        memory = (ctypes.c_char * (grid[2] * SAMPLE.itemsize)).from_address(int(rows_at))
        rows = np.frombuffer(memory, dtype=SAMPLE)
        assert shared_mem >= cuda.scratch_bytes(rows, int(high), int(wide))
        for i, row in enumerate(rows):
            if not row["active"]:
                continue
            assert statistics_at or not (row["measure"] or row["measured"])
            assert grid[0] * high >= row["y"]["out"] and grid[1] * wide >= row["x"]["out"]
            tables = int(rows_at) + i * SAMPLE.itemsize, 1, 1, int(ops_at), int(luts_at), int(statistics_at)
            source, target = (int(row["source"]), int(row["pitch"]), 0, 0), int(row["target"])
            assert not library.cuaug_run(BEST_ISA, *tables, *source, target, int(high), int(wide))


class FakeEntry:
    """One of the entry points: notes its name, and has the stand-in of all run."""

    ptr = 0

    def __init__(self, fake: SimpleNamespace, name: str) -> None:
        self.fake, self.name = fake, name

    def __call__(self, *arguments: Any, **options: Any) -> None:
        self.fake.entries.append(self.name)
        self.fake.kernel(*arguments, **options)


class FakeDecoder:
    """As `CudaDecoder`, into host memory.

    Attributes:
        made: (load_hint, threads) of each.
        shared: of each, the images that the engine's share is of: those of its first call, as nvImageCodec has it.
        wrapped: how many slots were.
    """

    made: ClassVar[list[tuple[float, int]]] = []
    shared: ClassVar[list[int]] = []

    def __init__(
        self, device_id: Any, *, fancy_upsampling: bool = True, threads: int = 4, load_hint: float = 0.65
    ) -> None:
        self.host = CpuDecoder(fancy_upsampling=fancy_upsampling)
        self.made.append((load_hint, threads))
        self.called = False
        self.wrapped = 0
        self.messages: dict[int, list[str]] = {}

    def prime(self, images: int, stream: int) -> None:
        assert stream == FakeStream.cuda_stream
        self._call(images)

    def _call(self, images: int) -> None:
        if not self.called:
            self.called = True
            self.shared.append(images)

    def wrap(self, array: torch.Tensor, stream: int) -> torch.Tensor:
        assert stream == FakeStream.cuda_stream and array.shape[::2] == (1, 3)
        self.wrapped += 1
        return array

    def decode_batch(self, headers: Any, slots: Any, stream: int) -> list[Any]:
        assert len({slot.data_ptr() for slot in slots}) == len(slots) == len(headers)
        self._call(len(headers))
        outcomes: list[Any] = []
        self.messages = {}
        for place, (header, slot) in enumerate(zip(headers, slots, strict=True)):
            try:
                pixels = self.host.decode(header).copy()
            except DecodeError as error:
                outcomes.append(error)
                continue
            finally:
                if self.host.messages:
                    self.messages[place] = self.host.messages[0]
            if header._stream is None:
                outcomes.append(pixels)
            else:
                slot.view(-1)[: pixels.size] = torch.from_numpy(pixels.reshape(-1))
                outcomes.append(None)
        return outcomes


def replace_cuda(replace: Callable[[Any, str, Any], None], stand_in: FakeTorch | None = None) -> SimpleNamespace:
    """Puts the stand-ins in CUDA's place.

    Args:
        replace: setattr, or pytest's `monkeypatch.setattr`.
        stand_in: torch's; None: a new one.

    Returns:
        `torch`, `kernel`, `entries`: the names of those that were launched, and `granted`: the sizes of shared memory
        that were asked for beyond the default.
    """
    from cupy.cuda import driver, runtime

    fake = SimpleNamespace(torch=stand_in or FakeTorch(), kernel=FakeKernel(), entries=[], granted=[])
    replace(cuda, "torch", fake.torch)
    entries = cuda.Kernels(*(FakeEntry(fake, name) for name in cuda.Kernels._fields))
    replace(cuda, "kernels", lambda index: entries)
    replace(pipeline, "torch", fake.torch)
    replace(cuda_events, "torch", fake.torch)
    FakeDecoder.made.clear()
    FakeDecoder.shared.clear()
    replace(pipeline, "CudaDecoder", FakeDecoder)
    replace(streams, "take", lambda device: FakeStream())
    replace(torch.Tensor, "record_stream", lambda self, stream: stream.told.append(self.data_ptr()))
    replace(driver, "funcSetAttribute", lambda function, attribute, value: fake.granted.append(value))
    replace(runtime, "deviceGetAttribute", lambda attribute, device: 227 << 10)
    return fake
