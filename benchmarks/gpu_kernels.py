"""The fused kernel on a GPU: 256 images of 500 x 375 to 224 x 224, beside a device copy in the same run.

It times three things, as medians over repetitions:
    - the kernel alone: a batch's launches repeated with the same arguments, the L2 cache flushed before each;
    - a whole `CudaExecutor.run` on the device: upload and launches;
    - the CPU time to queue it.
GB/s count each byte of the regions read and of the results once. Targets for the first chain on an H200: under 0.15 ms,
and over half of a copy's bandwidth. Both entry points of cuda/augment.cu run that chain: `resample`, as shipped, and
`augment`.

    python benchmarks/gpu_kernels.py --out benchmarks/results/gpu_kernels.json
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from report import circumstances, write_json

from cuaug import transforms as T
from cuaug.devices import cuda
from cuaug.interop import dtype_of
from cuaug.plan import CompiledPlan, Layout, Plan, Type
from cuaug.sampling.rng import SampleRNG

N, HEIGHT, WIDTH, SIZE = 256, 375, 500, 224
NORMALIZE = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CROP = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()]
CHAINS = {
    "crop, flip, normalise": [*CROP, NORMALIZE],
    "... without antialiasing": [T.RandomResizedCrop(SIZE, antialias=False), CROP[1], NORMALIZE],
    "... bicubic": [T.RandomResizedCrop(SIZE, interpolation="bicubic"), CROP[1], NORMALIZE],
    "... and erasing": [*CROP, NORMALIZE, T.RandomErasing(p=0.25)],
    "... and jitter (a barrier)": [*CROP, T.ColorJitter(0.4, 0.4, 0.4, 0.1), NORMALIZE],
    "resize, normalise": [T.Resize((SIZE, SIZE)), NORMALIZE],
    "centre crop, normalise": [T.CenterCrop(SIZE), NORMALIZE],
}
# Targets for the first chain on an H200.
MAX_MILLISECONDS, MIN_COPY_FRACTION = 0.15, 0.5
# Keeps the device waiting until the CPU has queued the work to time.
_WAIT_CYCLES = 4_000_000
# Busy time before a measurement: an idle device runs at a fraction of its full clock.
_WARM_UP_SECONDS = 0.2


def milliseconds(work: Callable[[], Any], repetitions: int) -> list[float]:
    """Device time of `work`, queued while the device is kept busy, with a cold L2 cache.

    The flush fills the cache with dirty lines. Writing them back is timed, and makes up for the lines of `work` that
    stay in the cache.
    """
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def once() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        torch.cuda._sleep(_WAIT_CYCLES)
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    once()  # loading and allocation do not warm the device up
    until = time.perf_counter() + _WARM_UP_SECONDS
    while time.perf_counter() < until:
        once()
    return [once() for _ in range(repetitions)]


def copy_gigabytes_per_second(repetitions: int) -> float:
    """Rate of a device-to-device copy; bytes read and bytes written both count."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nelement() / statistics.median(milliseconds(lambda: target.copy_(source), repetitions)) / 1e6


class Batch:
    """A planned batch in device memory."""

    def __init__(self, chain: list[Any], dtype: Type, layout: Layout, tile: tuple[int, int] | None = None) -> None:
        plan = Plan(np.full(N, HEIGHT), np.full(N, WIDTH))
        T.Compose(chain).plan(plan, SampleRNG(0, 0, np.arange(N)))
        self.compiled: CompiledPlan = plan.compile(dtype, layout)
        self.executor = cuda.CudaExecutor(self.compiled, tile=tile)
        noise = torch.randint(0, 256, (N, HEIGHT, WIDTH, 3), dtype=torch.uint8, device="cuda")
        self.images = noise
        self.addresses = np.array([image.data_ptr() for image in noise], dtype=np.uint64)
        shape = (N, 3, SIZE, SIZE) if layout == Layout.CHW else (N, SIZE, SIZE, 3)
        self.target = torch.empty(shape, dtype=dtype_of(dtype), device="cuda")
        y0, x0, y1, x1 = self.compiled.regions().T
        self.bytes = int(((y1 - y0) * (x1 - x0)).sum()) * 3 + self.target.nelement() * self.target.element_size()

    def run(self) -> None:
        """Uploads and launches, in new memory each time, so that it does not wait for the run before."""
        self.executor.run(self.addresses, self.target)

    def launches(self) -> Callable[[], None]:
        """A function that repeats the launches of one run."""
        recorded = []

        class Recording:
            def __init__(self, function: Any) -> None:
                self.function = function

            def __call__(self, *arguments: Any, **options: Any) -> None:
                recorded.append((self.function, arguments, options))
                self.function(*arguments, **options)

        recording = cuda.Kernels(*map(Recording, cuda.kernels(self.target.device.index)))
        self.workspace = cuda.Workspace(self.target.device)  # keeps the memory that the arguments point to
        with mock.patch.object(cuda, "kernels", lambda index: recording):
            self.executor.run(self.addresses, self.target, workspace=self.workspace)
        return lambda: [function(*arguments, **options) for function, arguments, options in recorded] and None


def measure(batch: Batch, repetitions: int, copy: float) -> dict[str, Any]:
    kernel = statistics.median(milliseconds(batch.launches(), repetitions))
    whole = statistics.median(milliseconds(batch.run, repetitions))
    torch.cuda.synchronize()
    queued = []
    for _ in range(repetitions):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--require-targets", action="store_true", help="fail if the first chain misses a target")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()
    copy = copy_gigabytes_per_second(args.repetitions)
    result: dict[str, Any] = circumstances(["torch", "numpy", "cupy-cuda12x", "cupy-cuda13x"])
    result["device"] = torch.cuda.get_device_name()
    result["batch"] = f"{N} images of {HEIGHT} x {WIDTH} to {SIZE} x {SIZE} (height x width)"
    result["copy_gigabytes_per_second"] = round(copy, 1)
    print(f"{result['device']}: a copy moves {copy:.0f} GB/s; {result['batch']}")
    print(f"  {'':40}{'kernel ms':>10}{'+ upload':>10}{'CPU ms':>8}{'GB/s':>8}{'of copy':>9}")

    cases: dict[str, Callable[[], Batch]] = {
        name: lambda chain=chain: Batch(chain, Type.FLOAT16, Layout.CHW) for name, chain in CHAINS.items()
    }
    first = CHAINS["crop, flip, normalise"]
    cases["to float32"] = lambda: Batch(first, Type.FLOAT32, Layout.CHW)
    cases["to channels last"] = lambda: Batch(first, Type.FLOAT16, Layout.HWC)
    cases["to uint8, not normalised"] = lambda: Batch(CROP, Type.UINT8, Layout.CHW)
    for tile in ((8, 32), (16, 32), (16, 64), (32, 64), (4, 128), (8, 128), (16, 128), (32, 128), (56, 128), (8, 224)):
        cases[f"tile {tile[0]} x {tile[1]}"] = lambda tile=tile: Batch(first, Type.FLOAT16, Layout.CHW, tile)
    result["cases"] = {}

    def record(name: str, make: Callable[[], Batch]) -> None:
        row = result["cases"][name] = measure(make(), args.repetitions, copy)
        print(
            f"  {name:40}{row['kernel_ms']:10.3f}{row['upload_and_kernel_ms']:10.3f}{row['cpu_ms']:8.2f}"
            f"{row['gigabytes_per_second']:8.0f}{row['fraction_of_copy']:9.1%}",
            flush=True,
        )
        if len(result["cases"]) == 1:
            result["targets"] = {
                f"under {MAX_MILLISECONDS} ms": row["kernel_ms"] < MAX_MILLISECONDS,
                f"over {MIN_COPY_FRACTION:.0%} of a copy's bandwidth": row["fraction_of_copy"] > MIN_COPY_FRACTION,
            }
        if args.out:  # after each case: an interrupted run keeps its results
            write_json(args.out, result)

    for name, make in cases.items():
        record(name, make)
    threads = cuda.THREADS
    for cuda.THREADS in (32, 64, 128, 192, 256):
        record(f"{cuda.THREADS} threads per block", lambda: Batch(first, Type.FLOAT16, Layout.CHW))
    cuda.THREADS = threads
    by_augment(first, record)
    for target, met in result["targets"].items():
        print(f"  crop, flip, normalise {target}: {'met' if met else 'MISSED'}")
    if args.out:
        print(f"written to {args.out}")
    if args.require_targets and not all(result["targets"].values()):
        raise SystemExit("a target was missed")


def by_augment(chain: list[Any], record: Callable[[str, Callable[[], Batch]], None]) -> None:
    """Runs the chain by the general entry point, after a check that its results are equal."""
    batch = Batch(chain, Type.FLOAT16, Layout.CHW)
    batch.run()
    want = batch.target.clone()
    general = cuda.kernels(torch.cuda.current_device()).augment
    with mock.patch.object(cuda, "kernels", lambda index: cuda.Kernels(general, general)):
        batch.target.zero_()
        batch.run()
        if not torch.equal(batch.target.view(torch.uint8), want.view(torch.uint8)):
            raise SystemExit("augment and resample differ")
        record("by `augment`", lambda: batch)


if __name__ == "__main__":
    main()
