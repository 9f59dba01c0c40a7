"""Fakes of CUDA's streams and events, and of each thread's current device and stream.

Work runs as soon as it is queued, so a missing wait changes no result. Instead the fakes remember the order that CUDA
guarantees: a stream counts its work, an event remembers its stream and the work before it, and memory remembers the
last work that used it. They raise an AssertionError for code that relies on any other order.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

_drivers: list[FakeDriver] = []


def new_driver(gpu: int) -> FakeDriver:
    """A new CUDA state, which streams and events use from now on."""
    _drivers[:] = [FakeDriver(gpu)]
    return _drivers[0]


def driver() -> FakeDriver:
    return _drivers[0]


class Use(NamedTuple):
    """The last work that used some memory."""

    stream: int
    position: int
    work: str


class FakeDriver:
    """The CUDA state of the process.

    It has GPU 0, which is current in every new thread as in CUDA, and `gpu`, where all work has to go. With `gpu=1`,
    code that forgets to make its device current fails.

    Attributes:
        gpu: the index of the loader's GPU. Tensors of fakes are in host memory, so "cpu" means this GPU, too.
        memory: the last use of each allocation, by its address; None before the first use.
        sizes: bytes of each allocation, by its address.
        freed: addresses of allocations that no tensor holds; memory of other libraries may lie there now.
        finished: how much work of each stream the CPU knows to be finished, by the stream's handle.
    """

    def __init__(self, gpu: int) -> None:
        self.gpu = gpu
        self.default_streams: dict[int, FakeStream] = {}
        self.streams: weakref.WeakValueDictionary[int, FakeStream] = weakref.WeakValueDictionary()
        self.handles = itertools.count(1)
        self.memory: dict[int, Use | None] = {}
        self.sizes: dict[int, int] = {}
        self.lock = threading.Lock()
        self.freed: set[int] = set()
        self.finished: Counter[int] = Counter()
        self.thread = threading.local()

    def index(self, device: Any) -> int:
        """The GPU for an argument of torch.cuda; None is the current one."""
        if device is None or isinstance(device, int):
            return self.current_device() if device is None else device
        device = torch.device(device)
        return self.gpu if device.type == "cpu" else self.current_device() if device.index is None else device.index

    # --- torch.cuda's functions -------------------------------------------------------------------------------------

    def current_device(self) -> int:
        return getattr(self.thread, "device", 0)

    def set_device(self, device: Any) -> None:
        self.thread.device = self.index(device)

    def default_stream(self, device: Any = None) -> FakeStream:
        index = self.index(device)
        if index not in self.default_streams:
            self.default_streams[index] = FakeStream(torch.device("cuda", index), handle=0)
        return self.default_streams[index]

    def current_stream(self, device: Any = None) -> FakeStream:
        index = self.index(device)
        current: dict[int, FakeStream] = vars(self.thread).get("streams", {})
        return current.get(index) or self.default_stream(index)

    @contextlib.contextmanager
    def device(self, device: Any) -> Iterator[None]:
        before = self.current_device()
        self.set_device(device)
        try:
            yield
        finally:
            self.thread.device = before

    @contextlib.contextmanager
    def stream(self, stream: FakeStream | None) -> Iterator[None]:
        """Makes the stream current, and its device."""
        if stream is None:
            yield
            return
        streams = vars(self.thread).setdefault("streams", {})
        with self.device(stream.device):
            before = self.current_stream()
            streams[stream.device.index] = stream
            try:
                yield
            finally:
                streams[stream.device.index] = before

    def synchronize(self, device: Any = None) -> None:
        for stream in (*self.streams.values(), *self.default_streams.values()):
            if stream.device.index == self.index(device):
                stream.synchronize()

    def functions(self) -> dict[str, Any]:
        """These functions, by their names in torch.cuda."""
        names = ("current_device", "set_device", "default_stream", "current_stream", "device", "stream", "synchronize")
        return {name: getattr(self, name) for name in names} | {"Event": FakeEvent, "Stream": FakeStream}

    # --- checks -----------------------------------------------------------------------------------------------------

    def check_device(self, what: str) -> None:
        current = self.current_device()
        assert current == self.gpu, f"{what}: GPU {current} is current in this thread, not GPU {self.gpu}"

    def find_stream(self, handle: int, what: str) -> FakeStream:
        """The stream with this handle, on the loader's GPU."""
        stream = self.streams.get(handle) if handle else self.default_stream(self.gpu)
        assert stream is not None and stream.device.index == self.gpu, f"{what}: GPU {self.gpu} has no stream {handle}"
        return stream

    def allocate(self, tensor: torch.Tensor) -> None:
        """Forgets the uses of a former allocation. torch's allocator reuses its memory on the same stream alone."""
        address = tensor.data_ptr()
        use = self.memory.get(address)
        if use is None or use.stream != self.current_stream(self.gpu).cuda_stream:
            self.memory[address] = None
        with self.lock:
            self.sizes[address] = tensor.nbytes
            self.freed.discard(address)
        weakref.finalize(tensor.untyped_storage(), self.freed.add, address)

    def last_use(self, address: int) -> Use | None:
        return None if address in self.freed else self.memory.get(address)

    def containing(self, address: int) -> int | None:
        """The address of the allocation that contains an address; None: there is none."""
        with self.lock:
            live = [begin for begin in self.sizes if begin <= address and begin not in self.freed]
        begin = max(live, default=None)
        return begin if begin is not None and address < begin + self.sizes[begin] else None

    def use(self, address: int, stream: FakeStream) -> None:
        """The work queued last on the stream uses an allocation; other addresses are ignored."""
        if address in self.memory and address not in self.freed:
            self.memory[address] = Use(stream.cuda_stream, len(stream.work), stream.work[-1])

    def check_order(self, address: int, stream: FakeStream, what: str) -> None:
        """Raises unless the stream's next work comes after the allocation's last use."""
        if (use := self.last_use(address)) is None or use.stream == stream.cuda_stream:
            return
        assert max(stream.follows[use.stream], self.finished[use.stream]) >= use.position, (
            f"{what} on stream {stream.cuda_stream} does not wait for the {use.work} on stream {use.stream}"
        )

    def check_idle(self, address: int, what: str) -> None:
        """Raises unless the CPU has waited for the allocation's last use."""
        if (use := self.last_use(address)) is not None:
            finished = self.finished[use.stream] >= use.position
            assert finished, f"{what}: the CPU has not waited for the {use.work} on stream {use.stream}"


class FakeStream:
    """In place of torch.cuda.Stream.

    Attributes:
        cuda_stream: the handle; 0 is a default stream.
        work: names of all queued work.
        follows: how much work of other streams comes before the stream's next work, by their handles.
        waited: the events that the stream waits for.
        recorded: addresses of the tensors given to `record_stream`.
    """

    def __init__(self, device: Any = None, priority: int = 0, *, handle: int | None = None) -> None:
        now = driver()
        self.device = torch.device("cuda", now.index(device))
        self.cuda_stream: int = next(now.handles) if handle is None else handle
        if self.cuda_stream:
            now.streams[self.cuda_stream] = self
        self.work: list[str] = []
        self.follows: Counter[int] = Counter()
        self.waited: list[FakeEvent] = []
        self.recorded: list[int] = []

    def wait_event(self, event: FakeEvent) -> None:
        assert event.recorded_on is not None, "a wait for an event that was never recorded waits for nothing"
        self.waited.append(event)
        self.follows[event.recorded_on] = max(self.follows[event.recorded_on], event.position)

    def wait_stream(self, other: FakeStream) -> None:
        self.follows[other.cuda_stream] = len(other.work)

    def synchronize(self) -> None:
        driver().finished[self.cuda_stream] = len(self.work)

    def record(self, tensor: torch.Tensor) -> None:
        """As `tensor.record_stream(self)`."""
        address = tensor.data_ptr()
        use = driver().last_use(address)
        made_here = use is not None and use.stream == self.cuda_stream
        assert not made_here, f"record_stream on stream {self.cuda_stream}, which made the tensor, tells nothing"
        driver().check_order(address, self, "a consumer")
        self.recorded.append(address)


class FakeEvent:
    """An event that passes when it is recorded, as on a stream that runs all work at once.

    Attributes:
        recorded_on: the stream's handle.
        position: the stream's amount of work before the event.
    """

    def __init__(self, blocking: bool = False, enable_timing: bool = False) -> None:
        self.timed = enable_timing
        self.recorded_on: int | None = None
        self.position = 0

    def record(self, stream: FakeStream | None = None) -> None:
        stream = stream or driver().current_stream()
        self.recorded_on, self.position, self.passed = stream.cuda_stream, len(stream.work), time.perf_counter()

    def synchronize(self) -> None:
        if self.recorded_on is not None:
            finished = driver().finished
            finished[self.recorded_on] = max(finished[self.recorded_on], self.position)

    def elapsed_time(self, other: FakeEvent) -> float:
        assert self.timed and other.timed
        return 1e3 * (other.passed - self.passed)
