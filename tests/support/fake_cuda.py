"""Fakes for all of CUDA: host memory, streams that check the order of work, and kernels of the CPU build.

`tests/dry_run/` tests the Python around the kernels with these fakes; `benchmarks/staging.py` measures it.
"""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch

from cuaug._runtime.native import BEST_ISA, library
from cuaug.codec import CpuDecoder, DecoderPaths
from cuaug.devices import cuda, nvrtc, specialize, workspace
from cuaug.errors import DecodeError
from cuaug.pipeline.cuda import arena, batch_decoding, cuda_pipeline, producer, staging
from cuaug.plan import Type
from cuaug.plan.layout import OP, SAMPLE, YUV_IMAGE
from cuaug.plan.regions import regions
from cuaug.profiling import recorder
from tests.support.fake_streams import FakeStream, driver, new_driver

#: What CUDA grants a block without being asked, and the most that it grants; of an H100.
DEFAULT_SHARED_BYTES, MAX_SHARED_BYTES = 48 << 10, 227 << 10
MACHINE_CODE = b"not machine code"


class FakeRanges:
    """In place of torch.cuda.nvtx: ranges nest per thread."""

    def __init__(self) -> None:
        self.open: dict[int, list[str]] = {}
        self.closed: list[str] = []

    def range_push(self, name: str) -> None:
        self.open.setdefault(threading.get_ident(), []).append(name)

    def range_pop(self) -> None:
        self.closed.append(self.open[threading.get_ident()].pop())


class FakeTorch:
    """torch, with fakes for the parts of torch.cuda that cuaug uses.

    Args:
        gpu: the GPU that all work has to go to (`FakeDriver`).

    Attributes:
        allocations: ("pinned" or "device", bytes) of each allocation.
    """

    def __init__(self, gpu: int = 1) -> None:
        self.allocations: list[tuple[str, int]] = []
        self.driver = new_driver(gpu)
        self.ranges = FakeRanges()
        self.cuda = SimpleNamespace(
            **self.driver.functions(),
            nvtx=self.ranges,
            device_count=lambda: gpu + 1,
            get_device_capability=lambda device: (9, 0),
            get_device_name=lambda device=None: "fake GPU",
            get_device_properties=lambda device: SimpleNamespace(total_memory=80 << 30),
            is_available=lambda: True,
            OutOfMemoryError=torch.cuda.OutOfMemoryError,
            _is_in_bad_fork=lambda: False,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @property
    def consumer(self) -> FakeStream:
        """The stream of a consumer that chooses none."""
        return self.driver.default_stream(self.driver.gpu)

    def empty(self, shape: Any, *, dtype: Any, device: Any = None, pin_memory: bool = False) -> torch.Tensor:
        memory = torch.empty(shape, dtype=dtype)
        self.allocations.append(("pinned" if pin_memory else "device", memory.nbytes))
        self.driver.allocate(memory)
        return memory

    def replace_copies(self, replace: Callable[[Any, str, Any], None]) -> None:
        """Asynchronous copies become work on the current stream, which uses both tensors."""

        def queued(copy: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
            def run(*arguments: Any, **options: Any) -> torch.Tensor:
                result = copy(*arguments, **options)
                if options.get("non_blocking"):
                    stream = self.driver.current_stream(self.driver.gpu)
                    stream.work.append("copy")
                    for tensor in (*arguments, result):
                        if isinstance(tensor, torch.Tensor):
                            self.driver.use(tensor.data_ptr(), stream)
                return result

            return run

        for name in ("copy_", "to"):
            replace(torch.Tensor, name, queued(getattr(torch.Tensor, name)))


class FakeKernel:
    """Runs each block's tile with the CPU build, and counts the launches.

    The CPU build rounds to float16 as the GPU's conversion does, to infinity and to subnormal numbers, too:
    `tests/properties/test_store.py` tests each float16 and the midpoints.
    """

    def __init__(self) -> None:
        self.launches: list[tuple[int, int, int]] = []

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int, stream: Any) -> None:
        driver().check_device("a launch")
        queue = driver().find_stream(stream.ptr, "a launch")
        assert queue is driver().current_stream(driver().gpu), "a launch is not on torch's current stream"
        rows_at, ops_at, luts_at, statistics_at, high, wide = arguments
        assert [type(a) for a in arguments] == [np.uint64] * 4 + [np.int32] * 2
        assert block == (cuda.THREADS, 1, 1)
        assert 0 < grid[0] < 2**31 and all(0 < side <= 65535 for side in grid[1:]), f"CUDA launches no grid of {grid}"
        self.launches.append(grid)
        memory = (ctypes.c_char * (grid[2] * SAMPLE.itemsize)).from_address(int(rows_at))
        rows = np.frombuffer(memory, dtype=SAMPLE)
        assert shared_mem >= cuda.scratch_bytes(rows, int(high), int(wide)).max()
        active = rows[rows["active"] != 0]
        sources, targets = (
            {address for address in map(driver().containing, places) if address is not None}
            for places in (places_read(active), active["target"]["address"].tolist())
        )
        for address in (int(rows_at), *sources):
            driver().check_order(address, queue, "a launch")
        queue.work.append("launch")
        for address in sources | targets:
            driver().use(address, queue)
        # CUDA reads a number where the CPU reads an address.
        size = int(rows["op_end"].max()) * OP.itemsize
        ops = np.frombuffer((ctypes.c_char * size).from_address(int(ops_at)), dtype=OP).copy()
        ops["function"] = 0
        ops_at = np.uint64(ops.ctypes.data)
        for i, row in enumerate(rows):
            if not row["active"]:
                continue
            assert statistics_at or not (row["measure"]["kind"] or row["measured"]["kind"])
            assert grid[0] * high >= row["y"]["out"] and grid[1] * wide >= row["x"]["out"]
            tables = int(rows_at) + i * SAMPLE.itemsize, 1, 1, int(ops_at), int(luts_at), int(statistics_at)
            source, target = (
                (int(row["source"]["address"]), int(row["source"]["pitch"]), 0, 0),
                int(row["target"]["address"]),
            )
            assert not library.cuaug_run(BEST_ISA, *tables, *source, target, int(high), int(wide))


def places_read(rows: np.ndarray) -> list[int]:
    """Addresses of the first pixels that rows read. Their source's is where the whole image would begin.

    Of an image's part in memory, the whole image's begin may lie in any other allocation.
    """
    y0, x0, y1, x1 = regions(rows).T
    pixel = np.where(rows["source_type"] == Type.UINT8, 3, 12)
    places = (y0 - rows["y"]["held_low"]) * rows["source"]["pitch"] + (x0 - rows["x"]["held_low"]) * pixel
    places += rows["source"]["address"].astype(np.int64)
    return places[(y0 < y1) & (x0 < x1)].tolist()  # type: ignore[no-any-return]


class FakeConversion:
    """Runs `convert_yuv` with the CPU build, and counts the launches. The planes may be anywhere in an allocation."""

    def __init__(self) -> None:
        self.launches: list[tuple[int, int, int]] = []

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int, stream: Any) -> None:
        driver().check_device("a conversion")
        queue = driver().find_stream(stream.ptr, "a conversion")
        assert queue is driver().current_stream(driver().gpu), "a conversion is not on torch's current stream"
        (table,) = arguments
        assert type(table) is np.uint64 and block == (cuda.THREADS, 1, 1) and shared_mem == 0
        assert 0 < grid[0] < 2**31 and 0 < grid[1] <= 65535 and grid[2] == 1, f"CUDA launches no grid of {grid}"
        self.launches.append(grid)
        memory = (ctypes.c_char * (grid[0] * YUV_IMAGE.itemsize)).from_address(int(table))
        images = np.frombuffer(memory, dtype=YUV_IMAGE)
        images = images[images["rows"] > 0]
        planes = [planes_of(image, y) for image in images for y in (image["top"], image["top"] + image["rows"] - 1)]
        used = set(map(driver().containing, (int(table), *(address for addresses in planes for address in addresses))))
        targets = set(map(driver().containing, images["target"].tolist()))
        for address in used | targets:
            assert address is not None, "a conversion reads or writes memory that is not allocated"
            driver().check_order(address, queue, "a conversion")
        queue.work.append("convert")
        for address in used | targets:
            driver().use(address, queue)
        library.cuaug_convert_yuv(BEST_ISA, images.ctypes.data, len(images))


class FakeJpegKernels:
    """Runs the kernels of cuda/decode_jpeg.cu with the CPU build, and counts the launches by name."""

    THREADS: ClassVar[dict[str, int]] = {"build_lookups": 512, "scan_jpeg": 512, "decode_jpeg": 128, "color_jpeg": 128}

    def __init__(self) -> None:
        self.launches: Counter[str] = Counter()

    def run(self, name: str, grid: Any, block: Any, arguments: Any, *, shared_mem: int, stream: Any) -> None:
        driver().check_device("a launch")
        queue = driver().find_stream(stream.ptr, "a launch")
        assert queue is driver().current_stream(driver().gpu), "a launch is not on torch's current stream"
        assert [type(a) for a in arguments] == [np.uint64] * (1 + (name != "scan_jpeg")) and shared_mem == 0
        assert block == (self.THREADS[name], 1, 1) and 0 < grid[0] < 2**31
        self.launches[name] += 1
        addresses = list(map(int, arguments))
        for address in addresses:
            driver().check_order(address, queue, "a launch")
        queue.work.append("launch")
        for address in addresses:
            driver().use(address, queue)
        first, second = addresses[0], addresses[-1]
        if name == "scan_jpeg":
            assert grid[1:] == (1, 1)
            library.cuaug_scan_jpegs(first, grid[0], (ctypes.c_int32 * grid[0])())
        elif name == "build_lookups":
            assert grid[1:] == (4, 1)
            library.cuaug_build_lookups(first, grid[0], second)
        else:
            assert grid[1:] == (1, 1)
            run = library.cuaug_decode_jpegs if name == "decode_jpeg" else library.cuaug_color_jpegs
            run(first, second, grid[0])


def planes_of(image: Any, y: int) -> list[int]:
    """Addresses that conversion reads for row y, in each plane."""
    addresses = [int(image["y"]) + int(y) * int(image["y_pitch"])]
    if image["u"]:
        at = (int(y) >> int(image["shift_y"])) * int(image["uv_pitch"])
        addresses += [int(image["u"]) + at, int(image["v"]) + at]
    return [address % 2**64 for address in addresses]


class FakeFunction:
    """In place of CuPy's RawKernel: checks the shared memory, records its name, and runs a fake kernel."""

    max_dynamic_shared_size_bytes, shared_size_bytes = DEFAULT_SHARED_BYTES, 0

    def __init__(self, fake: SimpleNamespace, name: str) -> None:
        self.fake, self.name = fake, name

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int, stream: Any) -> None:
        limit = self.max_dynamic_shared_size_bytes
        assert shared_mem <= limit <= MAX_SHARED_BYTES, f"{shared_mem} bytes of shared memory, but {limit} are granted"
        self.fake.entries.append(self.name)
        if self.name in FakeJpegKernels.THREADS:
            self.fake.jpegs.run(self.name, grid, block, arguments, shared_mem=shared_mem, stream=stream)
            return
        kernel = self.fake.conversion if self.name == "convert_yuv" else self.fake.kernel
        kernel(grid, block, arguments, shared_mem=shared_mem, stream=stream)


class FakeModule:
    """In place of CuPy's RawModule."""

    def __init__(self, fake: SimpleNamespace, path: str) -> None:
        self.fake, self.path = fake, path

    def get_function(self, name: str) -> FakeFunction:
        driver().check_device("loading a module")
        assert Path(self.path).read_bytes() == MACHINE_CODE
        return FakeFunction(self.fake, name)


class FakeDecoder:
    """In place of `NvImageCodecDecoder`; decodes into host memory.

    Attributes:
        created: CPU threads of each decoder.
        first_calls: number of images in each decoder's first call; nvImageCodec fixes the engine's share there.
    """

    created: ClassVar[list[int]] = []
    first_calls: ClassVar[list[int]] = []

    def __init__(self, device_id: Any, paths: DecoderPaths | None = None, *, threads: int = 4) -> None:
        driver().check_device("opening a decoder")
        self.paths = paths = paths or DecoderPaths()
        self.cpu = CpuDecoder(fancy_upsampling=paths.fancy_upsampling)
        self.created.append(threads)
        self.fallbacks: list[int] = []
        self.cause = ""
        self.called = False
        self.messages: dict[int, list[str]] = {}

    def prime(self, images: int, stream: int) -> None:
        self._find_stream(stream, "priming").work.append("decode")
        self._call(images)

    def _call(self, images: int) -> None:
        if not self.called:
            self.called = True
            self.first_calls.append(images)

    def _find_stream(self, handle: int, what: str) -> FakeStream:
        assert handle, f"{what}: stream 0 is the default stream"
        return driver().find_stream(handle, what)

    def wrap(self, array: torch.Tensor, stream: int) -> torch.Tensor:
        self._find_stream(stream, "wrapping")
        assert array.shape[::2] == (1, 3)
        return array

    def decode_batch(self, headers: Any, slots: Any, stream: int) -> list[Any]:
        used = [slot.data_ptr() for header, slot in zip(headers, slots, strict=True) if not header.for_pillow]
        assert len(set(used)) == len(used)
        for address in used:  # the hardware engine may not wait for the stream
            driver().check_idle(address, "decoding into a slot")
        queue = self._find_stream(stream, "decoding")
        queue.work.append("decode")
        self._call(len(headers))
        for address in used:
            driver().use(address, queue)
        results: list[Any] = []
        self.messages = {}
        for i, (header, slot) in enumerate(zip(headers, slots, strict=True)):
            try:
                pixels = self.cpu.decode(header).copy()
            except DecodeError as error:
                results.append(error)
                continue
            finally:
                if self.cpu.lines:
                    self.messages[i] = self.cpu.lines
            if header._stream is None:
                results.append(pixels)
            else:
                slot.view(-1)[: pixels.size] = torch.from_numpy(pixels.reshape(-1))
                results.append(None)
        return results


def load_on(gpu: int, load: Callable[[int], Any]) -> Callable[[int | None], Any]:
    """`load` for the index of a device; None, the index of the fakes' device, means `gpu`."""
    return lambda index: load(gpu if index is None else index)


def replace_cuda(replace: Callable[[Any, str, Any], None], fake_torch: FakeTorch | None = None) -> SimpleNamespace:
    """Replaces CUDA by the fakes.

    Args:
        replace: setattr, or pytest's `monkeypatch.setattr`.
        fake_torch: None: a new one.

    Returns:
        `torch`, `kernel`, `conversion`, `jpegs`, and `entries` (names of launched entry points).
    """
    import cupy

    kernels = {"kernel": FakeKernel(), "conversion": FakeConversion(), "jpegs": FakeJpegKernels(), "entries": []}
    fake = SimpleNamespace(torch=fake_torch or FakeTorch(), **kernels)
    on_devices = cuda, nvrtc, specialize, workspace
    for module in (*on_devices, producer, batch_decoding, arena, cuda_pipeline, recorder, staging):
        replace(module, "torch", fake.torch)
    fake.torch.replace_copies(replace)
    for name in ("kernels", "convert_kernel", "jpeg_kernels"):
        replace(cuda, name, load_on(fake.torch.driver.gpu, getattr(cuda, name)))
    replace(nvrtc, "_loaded", {})
    replace(specialize, "_functions", {})
    replace(nvrtc, "cached", lambda arch, program="", defines=(), functions=(): MACHINE_CODE)
    replace(nvrtc, "read_cached", lambda arch, program, defines, functions=(): MACHINE_CODE)  # of chains, too
    replace(cupy, "RawModule", lambda path: FakeModule(fake, path))
    FakeDecoder.created.clear()
    FakeDecoder.first_calls.clear()
    replace(producer, "NvImageCodecDecoder", FakeDecoder)
    replace(workspace, "acquire", FakeStream)
    replace(torch.Tensor, "record_stream", lambda self, stream: stream.record(self))
    replace(cupy.cuda.runtime, "deviceGetAttribute", lambda attribute, device: MAX_SHARED_BYTES)
    replace(cupy.cuda.runtime, "deviceGetPCIBusId", lambda device: f"FFFF:{device:02X}:00.0")  # of no machine
    return fake
