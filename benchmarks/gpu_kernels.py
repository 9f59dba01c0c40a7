"""The fused kernel on a GPU: 256 images of 500 x 375 to 224 x 224, beside a device copy in the same run.

It times three things, as medians over repetitions:
    - the kernel alone: a batch's launches repeated with the same arguments, the L2 cache flushed before each;
    - a whole `CudaExecutor.run` on the device: upload and launches;
    - the CPU time to queue it.
GB/s count each byte of the regions read and of the results once. Kernels are the ones that are compiled for the chain,
unless a row says "full kernels".

    python benchmarks/gpu_kernels.py --out benchmarks/results/gpu_kernels.json
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from report import gpu_circumstances, options, write_json

from cuaug import transforms as T
from cuaug.devices import cuda, nvrtc, specialize
from cuaug.images.interop import dtype_of
from cuaug.plan import CompiledPlan, Layout, Plan, Type
from cuaug.sampling.rng import SampleRNG

HEIGHT, WIDTH, SIZE = 375, 500, 224
FIRST = "crop, flip, normalize"
NORMALIZE = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CROP = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()]
CHAINS = {
    "crop, flip, normalize": [*CROP, NORMALIZE],
    "... without antialiasing": [T.RandomResizedCrop(SIZE, antialias=False), CROP[1], NORMALIZE],
    "... bicubic": [T.RandomResizedCrop(SIZE, interpolation="bicubic"), CROP[1], NORMALIZE],
    "... and erasing": [*CROP, NORMALIZE, T.RandomErasing(p=0.25)],
    "... and jitter (a barrier)": [*CROP, T.ColorJitter(0.4, 0.4, 0.4, 0.1), NORMALIZE],
    "resize, normalize": [T.Resize((SIZE, SIZE)), NORMALIZE],
    "center crop, normalize": [T.CenterCrop(SIZE), NORMALIZE],
}
_COMPILE_SECONDS = 90


@dataclass(frozen=True)
class Clock:
    """Measures device time.

    Args:
        repetitions: number of measurements.
        warm_up_seconds: busy time before them: an idle device runs at a fraction of its full clock.
        flush_bytes: memory that is written before each, to empty the L2 cache.
        wait_cycles: keep the device waiting until the CPU has queued the work to time.
    """

    repetitions: int
    warm_up_seconds: float
    flush_bytes: int
    wait_cycles: int = 4_000_000

    def milliseconds(self, work: Callable[[], Any]) -> float:
        """Median time of `work`, queued while the device is kept busy, with a cold L2 cache.

        The flush fills the cache with dirty lines. Writing them back is timed, and makes up for the lines of `work`
        that stay in the cache.
        """
        flush = torch.empty(self.flush_bytes, dtype=torch.uint8, device="cuda")

        def once() -> float:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            torch.cuda._sleep(self.wait_cycles)
            begin.record()
            work()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end)

        once()  # loading and allocation do not warm the device up
        until = time.perf_counter() + self.warm_up_seconds
        while time.perf_counter() < until:
            once()
        return statistics.median(once() for _ in range(self.repetitions))

    def copy_gigabytes_per_second(self, size: int) -> float:
        """Rate of a device-to-device copy of `size` bytes; bytes read and bytes written both count."""
        source = torch.empty(size, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        return 2 * size / self.milliseconds(lambda: target.copy_(source)) / 1e6


def specializer_for(run: Callable[[specialize.Specializer], Any]) -> specialize.Specializer:
    """Compiles the kernels for the chain of a run, and waits for them."""
    specializer, end = specialize.Specializer(), time.perf_counter() + _COMPILE_SECONDS
    with mock.patch.object(specialize, "STABLE_SAMPLES", 1):
        full = 1
        while full:
            before = specializer.launches["full"]
            run(specializer)
            torch.cuda.synchronize()
            full = specializer.launches["full"] - before
            if time.perf_counter() > end:
                raise SystemExit(f"the kernels for a chain were not compiled within {_COMPILE_SECONDS} s")
    return specializer


class Batch:
    """A planned batch in device memory.

    Args:
        images: number of images.
        full: run the full kernels, not the ones compiled for the chain.
    """

    def __init__(
        self,
        images: int,
        chain: list[Any],
        dtype: Type = Type.FLOAT16,
        layout: Layout = Layout.CHW,
        tile: tuple[int, int] | None = None,
        full: bool = False,
    ) -> None:
        plan = Plan(np.full(images, HEIGHT), np.full(images, WIDTH))
        T.Compose(chain).plan(plan, SampleRNG(0, 0, np.arange(images)))
        self.compiled: CompiledPlan = plan.compile(dtype, layout)
        self.executor = cuda.CudaExecutor(self.compiled, tile=tile)
        noise = torch.randint(0, 256, (images, HEIGHT, WIDTH, 3), dtype=torch.uint8, device="cuda")
        self.images = noise
        self.addresses = np.array([image.data_ptr() for image in noise], dtype=np.uint64)
        shape = (images, 3, SIZE, SIZE) if layout == Layout.CHW else (images, SIZE, SIZE, 3)
        self.target = torch.empty(shape, dtype=dtype_of(dtype), device="cuda")
        y0, x0, y1, x1 = self.compiled.regions().T
        self.bytes = int(((y1 - y0) * (x1 - x0)).sum()) * 3 + self.target.nelement() * self.target.element_size()
        self.specializer = None if full else specializer_for(self._run)

    def run(self) -> None:
        """Uploads and launches, in new memory each time, so that it does not wait for the run before."""
        self._run(self.specializer)

    def _run(self, specializer: specialize.Specializer | None) -> None:
        self.executor.run(self.addresses, self.target, specializer=specializer)

    def launches(self) -> Callable[[], None]:
        """A function that repeats the launches of one run."""
        recorded = []

        class Recording:
            def __init__(self, function: Any) -> None:
                self.function = function

            def __call__(self, *arguments: Any, **options: Any) -> None:
                recorded.append((self.function, arguments, options))
                self.function(*arguments, **options)

        recording = nvrtc.Kernels(*map(Recording, cuda.kernels(self.target.device.index)))
        self.workspace = cuda.Workspace(self.target.device)  # keeps the memory that the arguments point to

        class RecordingSpecializer(specialize.Specializer):
            def choose(self, *arguments: Any) -> Any:
                function = chosen(*arguments)
                return None if function is None else Recording(function)

        chosen = self.specializer.choose if self.specializer else lambda *arguments: None
        with mock.patch.object(cuda, "kernels", lambda index: recording):
            self.executor.run(self.addresses, self.target, workspace=self.workspace, specializer=RecordingSpecializer())
        return lambda: [function(*arguments, **options) for function, arguments, options in recorded] and None


def measure(batch: Batch, clock: Clock, copy: float) -> dict[str, Any]:
    kernel, whole = clock.milliseconds(batch.launches()), clock.milliseconds(batch.run)
    torch.cuda.synchronize()
    queued = []
    for _ in range(clock.repetitions):
        start = time.perf_counter()
        batch.run()
        queued.append(1e3 * (time.perf_counter() - start))
        torch.cuda.synchronize()
    rate = batch.bytes / kernel / 1e6
    return {
        "launches": batch.compiled.launches,
        "kernel_ms": round(kernel, 4),
        "upload_and_kernel_ms": round(whole, 4),
        "cpu_ms": round(statistics.median(queued), 4),
        "gigabytes_per_second": round(rate, 1),
        "fraction_of_copy": round(rate / copy, 3),
    }


def cases(images: int) -> Iterator[tuple[str, Callable[[], Batch]]]:
    """(name, what makes its batch) of all rows but the last."""
    first = CHAINS[FIRST]
    for name, chain in CHAINS.items():
        yield name, lambda chain=chain: Batch(images, chain)
        yield f"{name}: full kernels", lambda chain=chain: Batch(images, chain, full=True)
    yield "to float32", lambda: Batch(images, first, Type.FLOAT32)
    yield "to channels last", lambda: Batch(images, first, layout=Layout.HWC)
    yield "to uint8, not normalized", lambda: Batch(images, CROP, Type.UINT8)
    tiles = ((8, 32), (16, 32), (16, 64), (32, 64), (4, 128), (8, 128), (16, 128), (32, 128), (56, 128), (8, 224))
    # Tall tiles tabulate the weights of each column 4 or 2 times, not 7: docs/decisions/0018-shared-vertical-sums.md.
    for tile in (*tiles, (64, 128), (112, 128)):
        yield f"tile {tile[0]} x {tile[1]}", lambda tile=tile: Batch(images, first, tile=tile)


def main() -> None:
    parser = options(
        __doc__,
        images=(256, "in a batch"),
        copy_bytes=(1 << 30, "size of the copy to compare with"),
        repetitions=20,
        warm_up=(0.2, "seconds before a measurement"),
        flush_bytes=(256 << 20, "written before each measurement"),
    )
    args = parser.parse_args()
    clock = Clock(args.repetitions, args.warm_up, args.flush_bytes)
    copy = clock.copy_gigabytes_per_second(args.copy_bytes)
    result: dict[str, Any] = gpu_circumstances([])
    result["batch"] = f"{args.images} images of {HEIGHT} x {WIDTH} to {SIZE} x {SIZE} (height x width)"
    result["copy_gigabytes_per_second"] = round(copy, 1)
    print(f"{result['device']}: a copy moves {copy:.0f} GB/s; {result['batch']}")
    print(f"  {'':40}{'kernel ms':>10}{'+ upload':>10}{'CPU ms':>8}{'GB/s':>8}{'of copy':>9}")
    result["cases"] = {}

    def record(name: str, make: Callable[[], Batch]) -> None:
        row = result["cases"][name] = measure(make(), clock, copy)
        print(
            f"  {name:40}{row['kernel_ms']:10.3f}{row['upload_and_kernel_ms']:10.3f}{row['cpu_ms']:8.2f}"
            f"{row['gigabytes_per_second']:8.0f}{row['fraction_of_copy']:9.1%}",
            flush=True,
        )
        write_json(args.out, result)  # after each case: an interrupted run keeps its results

    for name, make in cases(args.images):
        record(name, make)
    threads = cuda.THREADS
    for cuda.THREADS in (32, 64, 128, 192, 256):
        record(f"{cuda.THREADS} threads per block", lambda: Batch(args.images, CHAINS[FIRST]))
    cuda.THREADS = 256
    for tile in ((32, 224), (64, 224)):
        record(
            f"256 threads, tile {tile[0]} x {tile[1]}", lambda tile=tile: Batch(args.images, CHAINS[FIRST], tile=tile)
        )
    cuda.THREADS = threads


if __name__ == "__main__":
    main()
