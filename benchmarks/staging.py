"""Processor time per sample on the way from files to a GPU, in microseconds by stage, without a GPU.

The pipeline is the loader's own: reading, parsing, planning, staging, filling tables, queueing, collating. Stubs
replace the driver, the uploads and the kernels; memory is host memory. Everything runs on one thread. The JPEG index
has all files, and an epoch has made them known.

"all" is the time of Python, which mostly holds the GIL; the stages are its parts. "free" is extra: native work without
the GIL, which reads files and parses them, and copies what the kernels need of them to pinned memory. The JSON has
`cpu_us_per_image`, both together for crops of files. Labels stay on the CPU.

RandomResizedCrop(224), flip, normalize to float16, over JPEG files of about 500 x 375. Medians over batches.

    python benchmarks/staging.py --out benchmarks/results/staging.json    # --profile prints a profile instead
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import pstats
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from gpu_photos import index_files, origin, write_files
from report import gpu_circumstances, spread, write_json

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cuaug
from cuaug import transforms as T
from cuaug._runtime.native import library
from cuaug.devices.cuda import CudaExecutor
from cuaug.pipeline import part
from cuaug.pipeline.cuda.batch_decoding import BatchDecoding
from cuaug.pipeline.cuda.staging import StagedBatch
from cuaug.pipeline.native_work import FileReads
from cuaug.pipeline.reader import Reader
from cuaug.pipeline.samples import Samples
from cuaug.pipeline.thread_pool import NativeWork
from tests.support.fake_cuda import FakeTorch, replace_cuda

CHAINS = {
    "crop": [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.2)],
    "heavy": [
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.RandAugment(),
        T.RandomErasing(p=0.25),
        T.Normalize(0.5, 0.2),
    ],
}
#: (stage, its function).
FUNCTIONS: list[tuple[str, tuple[Any, str]]] = [
    ("read", (Reader, "fetch")),
    ("read", (FileReads, "__init__")),
    ("parse", (FileReads, "finish")),
    ("parse", (Reader, "add_jpegs")),
    ("plan", (part, "plan_samples")),
    ("stage", (StagedBatch, "__init__")),
    ("stage", (StagedBatch, "finish_kernel_staging")),
    ("decode", (BatchDecoding, "launch_kernels")),
    ("decode", (BatchDecoding, "decode_others")),
    ("decode", (BatchDecoding, "replace_damaged")),
    ("launch", (CudaExecutor, "run")),
    ("finish", (Samples, "make_batch")),
]
STAGES = list(dict.fromkeys(name for name, _ in FUNCTIONS))
TURNS = 5
#: Larger copies are uploads, which a GPU makes; a smaller one is of statuses, which come back.
MAX_COPIED_BYTES = 16 << 10


class InlinePool:
    """In place of ThreadPool: runs tasks at once, on the calling thread; tasks are as large as for six threads."""

    stopping, threads, name = False, 6, "inline"

    def __init__(self) -> None:
        self._native = library.cuaug_pool_new()

    def submit(
        self, task: Callable[[], None], priority: int = 0, native: NativeWork | None = None, *, not_before: int = 0
    ) -> None:
        if native is not None:
            self.run_native(native)
        task()

    def run_native(self, native: NativeWork) -> None:
        library.cuaug_pool_add(self._native, 0, 0, native.kind, ctypes.byref(native.table), native.items, 0)
        library.cuaug_pool_next(self._native, 0)

    def track(self, *arguments: Any) -> None: ...

    def activities(self) -> list[Any]:
        return []

    def check(self) -> None: ...

    def hurry(self) -> None: ...

    def close(self) -> None: ...


#: (stage, a function in it that releases the GIL); native work is in no stage.
FREE: list[tuple[str, tuple[Any, str]]] = [("native work", (InlinePool, "run_native"))]


def timed(
    totals: dict[str, float], name: str, work: Callable[..., Any], calls: dict[str, int] | None = None
) -> Callable[..., Any]:
    """Wraps `work`: adds its seconds of processor time to `totals`, and its calls to `calls`."""

    def run(*arguments: Any, **options: Any) -> Any:
        start = time.thread_time()
        try:
            return work(*arguments, **options)
        finally:
            totals[name] += time.thread_time() - start
            if calls is not None:
                calls[name] += 1

    return run


def replace_gpu(launch: Callable[..., None]) -> None:
    """Replaces the GPU: `launch` is called for each launch, and nothing is uploaded."""
    fake = replace_cuda(setattr, FakeTorch(gpu=0))
    fake.kernel, fake.jpegs = launch, SimpleNamespace(run=launch)
    # As by torch's caching allocator, and without the checks of tests: output images have the memory of the last ones.
    images: dict[Any, torch.Tensor] = {}

    def empty(shape: Any, *, dtype: torch.dtype, **_: Any) -> torch.Tensor:
        if dtype == torch.uint8:
            return torch.empty(shape, dtype=dtype)
        if shape not in images:
            images[shape] = torch.empty(shape, dtype=dtype)
        return images[shape]

    fake.torch.empty = empty
    # The kernels' statuses come back as zeros.
    torch.Tensor.copy_ = (  # type: ignore[method-assign]
        lambda self, source, **_: self if source.nbytes > MAX_COPIED_BYTES else self.zero_()
    )


def loader_of(source: Any, chain: list[Any], batch_size: int) -> cuaug.Loader:
    with mock.patch("cuaug.loader.resolve_device", lambda device: torch.device("cuda", 0)):
        loader = cuaug.Loader(
            source,
            chain,
            batch_size=batch_size,
            shuffle=True,
            last_batch="drop",
            dtype=torch.float16,
            prefetch=1,
            labels_device="cpu",
        )
    loader._pipeline.workers = loader._pipeline.producer_thread = InlinePool()  # type: ignore[attr-defined,assignment]
    return loader


class Clocks:
    """A context manager that times functions.

    Attributes:
        inside: seconds that a clock adds to its own measurement.
        around: seconds that a clock takes in all.
    """

    def __init__(self, functions: list[tuple[str, tuple[Any, str]]]) -> None:
        self._functions = functions
        self.totals, self.calls = defaultdict(float), defaultdict(int)  # type: ignore[var-annotated]
        empty = timed(self.totals, "empty", lambda: None)
        start = time.thread_time()
        for _ in range(20_000):
            empty()
        self.around = (time.thread_time() - start) / 20_000
        self.inside = self.totals["empty"] / 20_000

    def __enter__(self) -> Clocks:
        self._stack = ExitStack()
        for name, (owner, function) in self._functions:
            work = timed(self.totals, name, getattr(owner, function), self.calls)
            self._stack.enter_context(mock.patch.object(owner, function, work))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def take(self) -> dict[str, tuple[float, float]]:
        """Returns and resets the seconds of each function: without its clock, and with all of its clock."""
        seconds = {
            name: (
                self.totals[name] - self.inside * self.calls[name],
                self.totals[name] + (self.around - self.inside) * self.calls[name],
            )
            for name, _ in self._functions
        }
        self.totals.clear()
        self.calls.clear()
        return seconds


def batches_of(loader: cuaug.Loader, count: int, clocks: Clocks) -> Iterator[float]:
    """Seconds of each batch, after an epoch that fills the JPEG index, and a warm-up."""
    if len(loader) < 3:
        raise SystemExit(f"an epoch of {len(loader)} batches is too short: give at least three times as many files")
    list(loader)
    measured = -3  # three batches warm up
    while measured < count:
        batches = iter(loader)
        next(batches)  # it also starts the prefetched one; from now on each `next` starts one batch
        for _ in range(min(len(loader) - 2, count - measured)):
            clocks.take()
            start = time.thread_time()
            next(batches)
            seconds = time.thread_time() - start
            measured += 1
            if measured > 0:
                yield seconds
        batches.close()


def measure(source: Any, chain: list[Any], batch_size: int, batches: int) -> dict[str, dict[str, float]]:
    """Microseconds a sample by stage; the total comes from separate runs without stage clocks, in turns."""
    free = [(f"free in {stage}", place) for stage, place in FREE]
    names = list(dict.fromkeys(name for name, _ in free))
    rows: dict[str, list[float]] = {name: [] for name in (*STAGES, "free", "all")}
    with loader_of(source, chain, batch_size) as loader:
        for _ in range(TURNS):
            with Clocks(free) as clocks:
                for seconds in batches_of(loader, -(-batches // TURNS), clocks):
                    taken = clocks.take()
                    rows["all"].append(seconds - sum(taken[name][1] for name in names))
            with Clocks([*FUNCTIONS, *free]) as clocks:
                for _ in batches_of(loader, -(-batches // TURNS), clocks):
                    taken = clocks.take()
                    for name in STAGES:
                        rows[name].append(taken[name][0] - taken.get(f"free in {name}", (0, 0))[1])
                    rows["free"].append(sum(taken[name][0] for name in names))
    found = {name: spread([1e6 * value / batch_size for value in values]) for name, values in rows.items()}
    stages = sum(found[name]["median"] for name in STAGES)
    everything = found.pop("all")
    rest = {name: value - stages for name, value in everything.items()}
    return found | {"rest": rest, "all": everything}


def profile(source: Any, chain: list[Any], batch_size: int, lines: int) -> None:
    with loader_of(source, chain, batch_size) as loader:
        list(loader)
        profiler = cProfile.Profile()
        profiler.runcall(lambda: list(loader))
    pstats.Stats(profiler).sort_stats("tottime").print_stats(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="photo directory (made if missing)")
    parser.add_argument("--files", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--profile", type=int, nargs="?", const=25, help="print this many lines of a profile instead")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()
    paths = write_files(args.data, args.files)
    index_files(paths)
    samples = [(path, i) for i, path in enumerate(paths)]
    replace_gpu(lambda *_, **__: None)
    if args.profile:
        profile(samples, CHAINS["crop"], args.batch_size, args.profile)
        return
    result: dict[str, Any] = gpu_circumstances(["cuaug"])
    result |= {"batch_size": args.batch_size, "batches": args.batches, "photos": origin()}
    result["us_per_sample"] = {}
    print(f"microseconds of Python a sample, batches of {args.batch_size}, medians of {args.batches}")
    print(f"  {'':16}" + "".join(f"{name:>9}" for name in (*STAGES, "free", "rest", "all")))
    for chain, transforms in CHAINS.items():
        row = result["us_per_sample"][chain] = measure(samples, transforms, args.batch_size, args.batches)
        print(f"  {chain:16}" + "".join(f"{value['median']:9.2f}" for value in row.values()))
    crop = result["us_per_sample"]["crop"]
    result["cpu_us_per_image"] = round(crop["all"]["median"] + crop["free"]["median"], 2)
    result["python_us_per_image"] = round(crop["all"]["median"], 2)
    if args.out:
        write_json(args.out, result)


if __name__ == "__main__":
    main()
