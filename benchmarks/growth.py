"""Growth of cost with batch size, image size, threads, data set, operations, views and boxes.

Samples are synthetic and lie in memory, so only cuaug is measured. Each axis gives a table of CPU time and the slope of
its logarithm over the upper half of the points, by least squares. A slope of 1 means cost in proportion; less means
shrinking overhead; more means super-linear growth. Points take turns. Threads are also timed by the clock.

    python benchmarks/growth.py --out benchmarks/results          # growth.json, and growth_<axis>.svg
    python benchmarks/growth.py --axis dataset
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from report import circumstances, write_json

import cuaug
from cuaug import transforms as T

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CHAIN = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)]


class Synthetic:
    """A source of `count` samples, all the same file, that counts its reads."""

    def __init__(self, count: int, data: bytes, label: Any = 0) -> None:
        self.count, self.data, self.label = count, data, label
        self.reads = 0

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> tuple[bytes, Any]:
        self.reads += 1
        return self.data, self.label


@dataclass
class Measured:
    """Result of one axis.

    Attributes:
        axis: its name.
        points: positions on the axis.
        seconds: name -> median seconds of the whole work, per point.
        facts: name -> a counted number, per point.
    """

    axis: str
    points: list[float]
    seconds: dict[str, list[float]]
    facts: dict[str, list[float]]

    def slopes(self) -> dict[str, float]:
        half = len(self.points) // 2
        x = np.log(self.points[half:])
        return {name: round(float(np.polyfit(x, np.log(y[half:]), 1)[0]), 3) for name, y in self.seconds.items()}


def photo(height: int, width: int) -> bytes:
    """A JPEG with about as many bytes per pixel as a photo."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (-(-height // 16), -(-width // 16), 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
    noisy = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(noisy).save(out, "JPEG", quality=90)
    return out.getvalue()


def median_epochs(
    loaders: list[cuaug.Loader], rounds: int, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Median seconds of an epoch of each loader. Loaders take turns; the first round warms up."""
    times: list[list[float]] = [[] for _ in loaders]
    for _ in range(rounds + 1):
        for seconds, loader in zip(times, loaders, strict=True):
            start = clock()
            for _ in loader:
                pass
            seconds.append(clock() - start)
    return [statistics.median(seconds[1:]) for seconds in times]


def time_epochs(loaders: Iterable[cuaug.Loader], rounds: int) -> list[float]:
    """Median CPU seconds of an epoch of each loader; closes the loaders."""
    opened = list(loaders)
    try:
        return median_epochs(opened, rounds)
    finally:
        for loader in opened:
            loader.close()


def batch(rounds: int) -> Measured:
    sizes = [4**k for k in range(6)]  # 1 ... 1024
    data = photo(64, 64)  # small, so that the cost of a batch shows beside that of its samples
    chain = [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)]
    loaders = (cuaug.Loader(Synthetic(8 * n, data), chain, batch_size=n, threads=1, device="cpu") for n in sizes)
    return Measured("batch", list(map(float, sizes)), {"epoch": time_epochs(loaders, rounds)}, {})


def image(rounds: int) -> Measured:
    megapixels = [0.1, 0.3, 1.0, 3.0, 10.0, 20.0]
    sizes = [(round((m * 0.75e6) ** 0.5), round((m / 0.75 * 1e6) ** 0.5)) for m in megapixels]
    loaders = (
        cuaug.Loader(Synthetic(4, photo(*size)), CHAIN, batch_size=2, threads=1, prefetch=1, device="cpu")
        for size in sizes
    )
    return Measured("image", megapixels, {"epoch": time_epochs(loaders, rounds)}, {})


def threads(rounds: int) -> Measured:
    """Fixed work, by the clock and in CPU time: more threads than cores should cost nothing."""
    counts = [1, 2, 4, 8]
    data = photo(375, 500)
    loaders = [cuaug.Loader(Synthetic(256, data), CHAIN, batch_size=32, threads=n, device="cpu") for n in counts]
    try:
        clock = median_epochs(loaders, rounds, time.perf_counter)
        seconds = {"clock": clock, "processors": median_epochs(loaders, rounds)}
    finally:
        for loader in loaders:
            loader.close()
    return Measured("threads", list(map(float, counts)), seconds, {})


def dataset(rounds: int) -> Measured:
    """Construction, order and first batch, later batches; reads at construction and memory per entry."""
    counts = [10**k for k in range(3, 8)]
    data = photo(64, 64)
    names = ("construction", "order and first batch", "8 later batches")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    facts: dict[str, list[float]] = {"reads at construction": [], "bytes an entry at the peak": []}
    for count in counts:
        times: list[list[float]] = [[] for _ in names]
        for turn in range(rounds + 1):
            source = Synthetic(count, data)
            clocks = [time.process_time()]
            loader = cuaug.Loader(source, CHAIN, batch_size=32, threads=1, prefetch=1, shuffle=True, device="cpu")
            clocks.append(time.process_time())
            if turn == 0:
                facts["reads at construction"].append(source.reads)
            batches = iter(loader)
            next(batches)
            clocks.append(time.process_time())
            for _ in range(8):
                next(batches)
            clocks.append(time.process_time())
            batches.close()  # type: ignore[attr-defined]
            loader.close()
            for i in range(len(names)):
                if turn:
                    times[i].append(clocks[i + 1] - clocks[i])
        for name, values in zip(names, times, strict=True):
            seconds[name].append(statistics.median(values))
        facts["bytes an entry at the peak"].append(round(_peak(count, data) / count, 1))
    return Measured("dataset", list(map(float, counts)), seconds, facts)


def _peak(count: int, data: bytes) -> int:
    """Peak bytes of construction and an epoch's order."""
    tracemalloc.start()
    loader = cuaug.Loader(Synthetic(count, data), CHAIN, shuffle=True, device="cpu")
    loader._progress.order_of(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    loader.close()
    return peak


def operations(rounds: int) -> Measured:
    counts = [1, 2, 4, 8, 16, 32]
    data = photo(64, 64)
    loaders = (
        cuaug.Loader(
            Synthetic(128, data),
            [T.Resize((64, 64)), *(T.RandomSolarize(128 + k, p=1.0) for k in range(n))],
            batch_size=32,
            threads=1,
            device="cpu",
        )
        for n in counts
    )
    return Measured("operations", list(map(float, counts)), {"epoch": time_epochs(loaders, rounds)}, {})


def views(rounds: int) -> Measured:
    """Small views as floats and large ones as uint8: batches below and far above the CPU's cache."""
    counts = [2, 4, 8, 16, 32, 64]
    data = photo(256, 256)
    kinds = {
        "96 x 96 floats": T.Compose([T.RandomResizedCrop(96), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)]),
        "200 x 200 bytes": T.RandomCrop(200),
    }
    seconds = {}
    for name, chain in kinds.items():
        chains = [[T.MultiView([chain] * n)] for n in counts]
        loaders = (
            cuaug.Loader(Synthetic(64, data), views_chain, batch_size=16, threads=1, device="cpu")
            for views_chain in chains
        )
        seconds[name] = time_epochs(loaders, rounds)
    return Measured("views", list(map(float, counts)), seconds, {})


def boxes(rounds: int) -> Measured:
    counts = [1, 4, 16, 64, 256, 1024]
    data = photo(64, 64)
    rng = np.random.default_rng(0)
    chain = [T.Resize((64, 64)), T.RandomHorizontalFlip(), T.RandomRotation(10), T.SanitizeBoundingBoxes()]

    def label(n: int) -> dict[str, Any]:
        corner = rng.uniform(0, 40, (n, 2))
        xyxy = np.concatenate([corner, corner + rng.uniform(4, 20, (n, 2))], axis=1).astype(np.float32)
        return {"boxes": xyxy, "labels": np.zeros(n, dtype=np.int64)}

    sources = (Synthetic(64, data, label(n)) for n in counts)
    loaders = (cuaug.Loader(source, chain, batch_size=16, threads=1, device="cpu") for source in sources)
    return Measured("boxes", list(map(float, counts)), {"epoch": time_epochs(loaders, rounds)}, {})


AXES: dict[str, Callable[[int], Measured]] = {
    axis.__name__: axis for axis in (batch, image, threads, dataset, operations, views, boxes)
}


def table(found: Measured) -> str:
    """A line per point: milliseconds of the whole work, microseconds per unit of the axis, counted numbers."""
    lines = [f"\n{found.axis:>12}" + "".join(f"{name:>30}" for name in (*found.seconds, *found.facts))]
    for i, point in enumerate(found.points):
        cells = [f"{y[i] * 1e3:.2f} ms, {y[i] / point * 1e6:.2f} us each" for y in found.seconds.values()]
        cells += [f"{values[i]:g}" for values in found.facts.values()]
        lines.append(f"{point:12g}" + "".join(f"{cell:>30}" for cell in cells))
    lines.append("slopes of the upper half: " + ", ".join(f"{name} {s:.2f}" for name, s in found.slopes().items()))
    return "\n".join(lines)


def plot(path: Path, found: Measured) -> None:
    """Plot seconds against the axis, both logarithmic, with a line of slope 1."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for name, seconds in found.seconds.items():
        axes.loglog(found.points, seconds, "o-", label=f"{name}: slope {found.slopes()[name]:.2f}")
    last = max(seconds[-1] for seconds in found.seconds.values())
    axes.loglog(found.points, [last * p / found.points[-1] for p in found.points], ":", color="gray", label="slope 1")
    axes.set(xlabel=found.axis, ylabel="seconds")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axis", nargs="+", choices=[*AXES, "all"], default=["all"])
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds; the median is reported")
    parser.add_argument("--out", type=Path, help="write growth.json and a plot for each axis into this folder")
    args = parser.parse_args()
    result: dict[str, Any] = circumstances(["torch", "numpy", "cuaug"])
    print(f"{result['machine']['cpu']}, {len(os.sched_getaffinity(0))} cores, commit {result['commit']}")
    result["axes"] = {}
    for axis in AXES if "all" in args.axis else args.axis:
        found = AXES[axis](args.rounds)
        print(table(found), flush=True)
        result["axes"][axis] = {
            "points": found.points, "seconds": found.seconds, "facts": found.facts, "slopes": found.slopes()
        }  # fmt: skip
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            plot(args.out / f"growth_{axis}.svg", found)
    if args.out:
        write_json(args.out / "growth.json", result)
        print(f"\nwritten to {args.out}")


if __name__ == "__main__":
    main()
