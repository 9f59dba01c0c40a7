"""Images per second from JPEG files to float32 batches, cuaug beside its peers, by epoch.

    classification   RandomResizedCrop(224), flip, Normalize; 500 x 375
    1080p            the same from 1920 x 1080
    heavy            with ColorJitter, RandAugment(2, 9) and RandomErasing; 500 x 375
    detection        Resize to 800 x 800, flip, Normalize; 1920 x 1080
    views            two crops to 224 and six to 96 of each image, flip, Normalize; 500 x 375

Every contender runs on two threads or two worker processes. cuaug's first epoch of a run that makes the JPEG index,
and of a run that finds a kept one, are contenders of their own. "classification" and "1080p" then simulate 1, 2, 4 and
8 ranks (ranks.py): three epochs each without an index, of a first run and of a later one. README.md in this folder
explains the timing; tables.py writes the documents' tables. All suites take about twelve minutes.

    python benchmarks/end_to_end.py --suite all --out benchmarks/results
    python benchmarks/end_to_end.py --quick    # two minutes with few files, to try the program; figures mean nothing
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import torch
from peers import CONTENDERS, IMAGENET_MEAN, IMAGENET_STD, VIEWS, Contender, Task, installed
from ranks import epoch_rows, measure_runs, print_epochs
from report import circumstances, options, processor_seconds, spread, write_json
from suites import SUITES, Suite, prepare
from tables import FIRST_EPOCH, KEPT_INDEX

#: cuaug's contenders, and the JSON key of their ratio to each peer. "cuaug" is timed from the third epoch on.
OWN = {
    "cuaug": "cuaug_to_this",
    FIRST_EPOCH: "cuaug_first_epoch_to_this",
    KEPT_INDEX: "cuaug_kept_index_to_this",
}


def tensors_of(images: torch.Tensor | Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """The image tensors of a batch: one, or one per view size."""
    return [images] if isinstance(images, torch.Tensor) else images


def is_dense(images: torch.Tensor) -> bool:
    return images.is_contiguous() or (images.ndim == 4 and images.is_contiguous(memory_format=torch.channels_last))


def check(contender: Contender) -> None:
    """Run one epoch as warm-up and check its output.

    Raises:
        AssertionError: a file is missing or repeated, or a batch has the wrong shape, dtype or values.
    """
    task = contender.task
    sides = [(task.size, 1)] if task.chain != "views" else [(view.size, view.count) for view in VIEWS]
    expected_values = sum(task.batch_size * count * 3 * side * side for side, count in sides)
    seen: list[int] = []
    for batch, labels in contender.epoch():
        tensors = tensors_of(batch)
        shapes = [tuple(tensor.shape) for tensor in tensors]
        fits = all(shape[0] == task.batch_size and shape[-1] == shape[-2] for shape in shapes)
        fits &= {shape[-1] for shape in shapes} == {side for side, _ in sides}
        fits &= all(shape[-3] == 3 for shape in shapes) and sum(map(math.prod, shapes)) == expected_values
        fits &= all(tensor.dtype == torch.float32 and is_dense(tensor) for tensor in tensors)
        if not fits:
            raise AssertionError(f"{contender.name}: batch of {shapes} {tensors[0].dtype} does not fit {task}")
        images = torch.cat([tensor.reshape(-1) for tensor in tensors])
        mean, std, low, high = (float(value) for value in (images.mean(), images.std(), images.min(), images.max()))
        floor, ceiling = -max(IMAGENET_MEAN) / min(IMAGENET_STD), (1 - min(IMAGENET_MEAN)) / min(IMAGENET_STD)
        # NaN fails every comparison, so this rejects non-finite values too.
        if not (-1.5 < mean < 1.5 and 0.5 < std < 2 and low >= floor - 0.05 and high <= ceiling + 0.05):
            raise AssertionError(f"{contender.name}: mean {mean:.2f}, std {std:.2f}, range {low:.2f} to {high:.2f}")
        seen += labels.tolist()
    if sorted(seen) != list(range(len(task.samples))):
        counts = f"{len(seen)} samples of {len(set(seen))} files"
        raise AssertionError(f"{contender.name}: expected {len(task.samples)} files once each, got {counts}")


class Turn(NamedTuple):
    """Result of one turn of a contender."""

    images_per_second: float
    cpu_seconds_per_1000_images: float


def settle(interval: float = 0.25, share: float = 0.1, limit: float = 60.0) -> None:
    """Wait until this process and its children are idle, so that no contender still prefetches.

    Raises:
        TimeoutError: CPU use stayed above `share` of every `interval` for `limit` seconds.
    """
    deadline, before = time.monotonic() + limit, processor_seconds()
    while time.monotonic() < deadline:
        time.sleep(interval)
        now = processor_seconds()
        if now - before < share * interval:
            return
        before = now
    raise TimeoutError(f"other contenders still use the CPU after {limit:g} s")


def turn(contender: Contender, epochs: int) -> Turn:
    """Time `epochs` whole epochs, after untimed ones that use up all prefetched batches."""
    settle()
    used = 0
    while used <= contender.ahead:
        used += sum(1 for _ in contender.epoch())
    images = 0
    before, start = processor_seconds(), time.perf_counter()
    for _ in range(epochs):
        for batch, _ in contender.epoch():
            images += len(tensors_of(batch)[0])
    elapsed = time.perf_counter() - start
    return Turn(images / elapsed, 1000 * (processor_seconds() - before) / images)


def measure(task: Task, names: list[str], repetitions: int, epochs: int) -> dict[str, list[Turn]]:
    """Turns of each contender; contenders alternate: A B C D, A B C D, ...

    For chains that crop, "cuaug" has a second turn, on new loaders: its first epochs without and with a kept index.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    with ExitStack() as stack:
        contenders = {name: stack.enter_context(closing(CONTENDERS[name](task))) for name in names}
        for contender in contenders.values():
            check(contender)
        for repetition in range(repetitions):
            for name, contender in contenders.items():
                turns[name].append(turn(contender, epochs))
            if "cuaug" in names and task.chain != "detection":
                settle()
                runs = measure_runs(task, epochs=1)
                for name, run in ((FIRST_EPOCH, "first run"), (KEPT_INDEX, "later run")):
                    (epoch,) = runs[run]
                    turns.setdefault(name, []).append(Turn(epoch.images_per_second, epoch.cpu_seconds_per_1000_images))
            line = ", ".join(f"{name} {values[-1].images_per_second:.0f}" for name, values in turns.items())
            print(f"  {repetition + 1}/{repetitions}: {line}", flush=True)
    return turns


def simulate_ranks(suite: Suite, args: argparse.Namespace) -> dict[str, Any]:
    """Number of ranks -> run -> a row per epoch."""
    task = prepare(
        args.data, suite.pictures, suite.rank_batch_size, args.threads, None, suite.chain, suite.size, args.quick
    )
    print(f"  simulated ranks, batches of {task.batch_size}: images/s (times no index, crops from part of the file)")
    print(f"  {'':20}" + "".join(f"{f'epoch {epoch}':>24}" for epoch in (1, 2, 3)))
    found = {}
    for ranks in suite.ranks:
        settle()
        runs = epoch_rows(measure_runs(task, ranks))
        print_epochs(runs, f"{ranks} rank{'s' if ranks > 1 else ''}")
        found[str(ranks)] = runs
    return found


def summarize(turns: dict[str, list[Turn]]) -> dict[str, Any]:
    """Medians and ranges of each contender, and of cuaug's ratio to it per repetition."""
    rates = {name: [value.images_per_second for value in values] for name, values in turns.items()}
    summary: dict[str, Any] = {}
    for name, values in rates.items():
        processor = [value.cpu_seconds_per_1000_images for value in turns[name]]
        summary[name] = {
            "images_per_second": spread(values) | {"all": [round(value, 1) for value in values]},
            "cpu_seconds_per_1000_images": spread(processor) | {"all": [round(value, 3) for value in processor]},
        }
        for own, key in OWN.items():
            if own in rates and name not in OWN:
                ratios = [ours / theirs for ours, theirs in zip(rates[own], values, strict=True)]
                summary[name][key] = spread(ratios) | {"all": [round(ratio, 3) for ratio in ratios]}
    return summary


def table(summary: dict[str, Any]) -> str:
    """Format the summary as text: rates, then each peer's ratios by cuaug's contenders."""
    width = max(map(len, summary))
    lines = [f"  {'':{width}}{'images/s':>10}{'min - max':>16}{'CPU s / 1000':>15}"]
    for name, row in summary.items():
        rate = row["images_per_second"]
        line = f"  {name:{width}}{rate['median']:10.0f}{rate['min']:9.0f} -{rate['max']:5.0f}"
        lines.append(line + f"{row['cpu_seconds_per_1000_images']['median']:15.2f}")
    for own, key in OWN.items():
        ratios = {name: row[key] for name, row in summary.items() if key in row}
        for name, ratio in ratios.items():
            lines.append(f"  {own} / {name}: {ratio['median']:.2f} ({ratio['min']:.2f} - {ratio['max']:.2f})")
    return "\n".join(lines)


def select(requested: list[str] | None, chain: str) -> tuple[list[str], dict[str, str]]:
    """Names of the contenders to run, and the reason for each that is left out. Requested ones are not left out."""
    supported = {name: kind for name, kind in CONTENDERS.items() if chain in kind.chains}
    if requested is not None:
        return [name for name in requested if name in supported], {}
    found, left_out = installed(supported)
    return list(found), left_out


def run(name: str, args: argparse.Namespace) -> None:
    """Measure one suite, print it, and write its JSON."""
    suite = SUITES[name].quick() if args.quick else SUITES[name]
    names, left_out = select(args.contenders, suite.chain)
    result: dict[str, Any] = circumstances(["torch", "numpy", *(CONTENDERS[contender].package for contender in names)])
    batch_size, limit = args.batch_size or suite.batch_size, args.limit or suite.limit
    task = prepare(args.data, suite.pictures, batch_size, args.threads, limit, suite.chain, suite.size, args.quick)
    print(f"{name}: {suite.title}")
    result["suite"] = {"name": name, "title": suite.title, "pictures": suite.pictures, "files": len(task.samples)}
    result["settings"] = {"batch_size": batch_size, "size": suite.size, "rank_batch_size": suite.rank_batch_size}
    result["settings"] |= {key: getattr(args, key) for key in ("threads", "epochs", "quick")}
    result["left_out"] = left_out
    result["contenders"] = summarize(measure(task, names, args.repetitions or suite.repetitions, args.epochs))
    print(table(result["contenders"]), flush=True)
    if suite.ranks and "cuaug" in names:
        result["ranks"] = simulate_ranks(suite, args)
    write_json(args.out, result, f"end_to_end_{name}.json")


def main() -> None:
    parser = options(
        __doc__,
        data="photos",
        out="write a JSON for each suite into this folder",
        threads=(2, "threads, or worker processes of a DataLoader"),
        epochs=(1, "timed epochs per turn"),
    )
    parser.add_argument("--suite", choices=[*SUITES, "all"], default="all")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), help="default: all that are installed")
    parser.add_argument("--batch-size", type=int, help="default: the suite's")
    parser.add_argument("--repetitions", type=int, help="default: the suite's")
    parser.add_argument("--limit", type=int, help="use only the first files of each set, but for ranks")
    parser.add_argument("--quick", action="store_true", help="few files and one repetition, to try the program")
    args = parser.parse_args()
    for name in SUITES if args.suite == "all" else [args.suite]:
        run(name, args)


if __name__ == "__main__":
    main()
