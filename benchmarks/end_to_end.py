"""From JPEG files to a normalised float32 batch: cuaug against DALI, Pillow and OpenCV in one run.

RandomResizedCrop(224), horizontal flip and normalising, NCHW, on two threads (or two worker processes), at two image
sizes. What is timed, and how, is in README.md next to this file.

    python benchmarks/end_to_end.py --out benchmarks/results/end_to_end_cpu.json
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

# `peers` comes first: it makes the examples importable.
from peers import CONTENDERS, IMAGENET_MEAN, IMAGENET_STD, Contender, Task
from photos import write_photos
from report import circumstances, spread, write_json

SETS = {"500x375": (500, 375, 2048), "1920x1080": (1920, 1080, 512)}  # width, height, files


def prepare(root: Path, name: str, batch_size: int, threads: int, limit: int | None) -> Task:
    """Write the set unless it is there, read it once so that its pages are warm, and make the task."""
    width, height, count = SETS[name]
    folder = write_photos(root / f"{name}-{count}", count, height, width)
    files = sorted(folder.glob("*.jpg"))[:limit]
    files = files[: len(files) // batch_size * batch_size]
    size = sum(len(file.read_bytes()) for file in files)
    print(f"\n{name}: {len(files)} files, {size / max(1, len(files)) / 1000:.0f} kB each", flush=True)
    return Task(tuple((str(file), index) for index, file in enumerate(files)), batch_size, threads=threads)


def check(contender: Contender) -> None:
    """Run one epoch (the warm-up) and raise unless it delivers what the task asks for."""
    task = contender.task
    shape = (task.batch_size, 3, task.size, task.size)
    seen: list[int] = []
    for images, labels in contender.epoch():
        if tuple(images.shape) != shape or images.dtype != torch.float32 or not images.is_contiguous():
            raise AssertionError(f"{contender.name}: {tuple(images.shape)} {images.dtype}, wanted {shape} float32")
        mean, std, low, high = (float(value) for value in (images.mean(), images.std(), images.min(), images.max()))
        floor, ceiling = -max(IMAGENET_MEAN) / min(IMAGENET_STD), (1 - min(IMAGENET_MEAN)) / min(IMAGENET_STD)
        # NaN fails every comparison, so this also asks for finite values.
        if not (-1.5 < mean < 1.5 and 0.5 < std < 2 and low >= floor - 0.05 and high <= ceiling + 0.05):
            raise AssertionError(f"{contender.name}: mean {mean:.2f}, std {std:.2f}, range {low:.2f} to {high:.2f}")
        seen += labels.tolist()
    if sorted(seen) != list(range(len(task.samples))):
        raise AssertionError(f"{contender.name}: {len(set(seen))} of {len(task.samples)} files came exactly once")


def throughput(contender: Contender, epochs: int) -> float:
    """Images per second over `epochs` whole epochs, back to back, after one that is not timed."""
    for _ in contender.epoch():
        pass
    images = 0
    start = time.perf_counter()
    for _ in range(epochs):
        for batch, _ in contender.epoch():
            images += len(batch)
    return images / (time.perf_counter() - start)


def measure(task: Task, names: list[str], repetitions: int, epochs: int) -> dict[str, list[float]]:
    """Images per second of each contender, one value per repetition, taken in turns: A B C D, A B C D, ..."""
    contenders: dict[str, Contender] = {}
    rates: dict[str, list[float]] = {name: [] for name in names}
    try:
        for name in names:
            contenders[name] = CONTENDERS[name](task)
            check(contenders[name])
        for repetition in range(repetitions):
            for name, contender in contenders.items():
                rates[name].append(throughput(contender, epochs))
            turn = ", ".join(f"{name} {values[-1]:.0f}" for name, values in rates.items())
            print(f"  {repetition + 1}/{repetitions}: {turn}", flush=True)
    finally:
        for contender in contenders.values():
            contender.close()
    return rates


def summarise(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, ranges, and cuaug's ratio to each peer: per repetition, then the median of those."""
    summary: dict[str, Any] = {}
    for name, values in rates.items():
        summary[name] = {"images_per_second": spread(values) | {"all": [round(value, 1) for value in values]}}
        if "cuaug" in rates and name != "cuaug":
            ratios = [ours / theirs for ours, theirs in zip(rates["cuaug"], values, strict=True)]
            summary[name]["cuaug_to_this"] = spread(ratios) | {"all": [round(ratio, 3) for ratio in ratios]}
    return summary


def table(summary: dict[str, Any]) -> str:
    """The summary as text."""
    lines = [f"  {'':10}{'images/s':>10}{'min - max':>16}{'cuaug':>12}{'min - max':>15}"]
    for name, row in summary.items():
        rate, ratio = row["images_per_second"], row.get("cuaug_to_this")
        line = f"  {name:10}{rate['median']:10.0f}{rate['min']:9.0f} -{rate['max']:5.0f}"
        if ratio:
            line += f"{ratio['median']:11.2f}x{ratio['min']:8.2f} -{ratio['max']:5.2f}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="where the photo sets are or go")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2, help="threads, or worker processes of a DataLoader")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=1, help="timed epochs per turn")
    parser.add_argument("--limit", type=int, help="use only this many files of each set")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()

    packages = ["torch", "numpy", *(CONTENDERS[name].package for name in args.contenders)]
    result: dict[str, Any] = circumstances(packages)
    result["settings"] = {key: value for key, value in vars(args).items() if key not in ("data", "out")}
    print(f"{result['machine']['cpu']}, {result['machine']['cores']} cores, commit {result['commit']}")
    result["sets"] = {}
    for name in args.sets:
        task = prepare(args.data, name, args.batch_size, args.threads, args.limit)
        rates = measure(task, args.contenders, args.repetitions, args.epochs)
        result["sets"][name] = {"files": len(task.samples), "contenders": summarise(rates)}
        print(table(result["sets"][name]["contenders"]), flush=True)
    if args.out:
        write_json(args.out, result)
        print(f"\nwritten to {args.out}")


if __name__ == "__main__":
    main()
