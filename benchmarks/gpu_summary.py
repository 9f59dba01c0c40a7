"""Prints the figures of a GPU run beside the goals, and the steps that failed or were skipped.

Reads the JSON files of `gpu.sh` from one directory, or from several if its stages ran in separate calls.

    python benchmarks/gpu_summary.py OUT [OUT...]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from report import gpu_circumstances, write_json

STAGES = "smoke", "tests", "sanitizer", "decode", "kernels", "end-to-end", "training", "memory", "clips", "dali", "jpeg"
FIRST = "crop, flip, normalize"


class Row(NamedTuple):
    """A figure. `goal` is empty, or says what it should be, and `met` whether it is."""

    name: str
    figure: str
    goal: str = ""
    met: bool = True


def smoke(result: dict[str, Any]) -> Iterator[Row]:
    for name, epoch in zip(("first", "second"), result["epochs"], strict=True):
        figure = f"{epoch['images_per_second']} images/s, first batch after {epoch['first_batch_seconds']} s"
        yield Row(f"smoke run, {name} epoch", figure)
    yield Row("smoke run, decoded by", ", ".join(f"{name} {count}" for name, count in result["decoded_by"].items()))


def kernels(result: dict[str, Any]) -> Iterator[Row]:
    row, copy = result["cases"][FIRST], result["copy_gigabytes_per_second"]
    time = f"{row['kernel_ms']:.3f} ms, with upload {row['upload_and_kernel_ms']:.3f}"
    yield Row(f"fused kernel, {result['batch']}, float16", time, "under 0.12 ms", row["kernel_ms"] < 0.12)
    yield Row("its GB/s, beside a copy's", f"{row['gigabytes_per_second']:.0f} of {copy:.0f}")
    full = result["cases"][f"{FIRST}: full kernels"]
    yield Row("the same by the full kernels", f"{full['kernel_ms']:.3f} ms")


def batches(result: dict[str, Any]) -> Iterator[Row]:
    for chain, ratios in result["cuaug_to_this"].items():
        for name, ratio in ratios.items():
            if name != "cuaug":
                yield Row(f"batch on the GPU, {chain}: cuaug as a multiple of {name}", spread(ratio))
    for name, reason in result["left_out"].items():
        yield Row(f"batch on the GPU, {name}, left out", reason)


def decode(result: dict[str, Any]) -> Iterator[Row]:
    yield Row("decoder on mixed files, fastest", result["fastest"])


def end_to_end(result: dict[str, Any]) -> Iterator[Row]:
    threads = result["settings"]["threads"]
    for name, row in result["variants"].items():
        goal, met = "", True
        if name == "cuaug":
            goal, met = "at least 8000 images/s", row["images_per_second"]["median"] >= 8000
        yield Row(f"end to end, {threads} threads, {name}", rate(row), goal, met)
    goals = {"cuaug without the index": 1.0, "cuaug": 1.3}
    for name, ratio in result["cuaug_to_dali"].items():
        goal = f"at least {goals[name]}" if name in goals else ""
        yield Row(
            f"{name}, as a multiple of {result['best_dali']}",
            spread(ratio),
            goal,
            ratio["median"] >= goals.get(name, 0),
        )
    for name, error in result["failed"].items():
        yield Row(f"end to end, {name}", f"failed: {error.strip().splitlines()[-1][:100]}")
    for reason in dict.fromkeys(result["left_out"].values()):
        yield Row("end to end, left out", reason)


def training(result: dict[str, Any]) -> Iterator[Row]:
    for name, reason in result["left_out"].items():
        yield Row(f"ResNet-50 step, {name}, left out", reason)
    for name, row in result["step"].items():
        times = f"{row['ms']['median']:.1f} ms, {row['images_per_second']['median']:.0f} images/s"
        goal, met = "", True
        if name == "cuaug, CUDA":
            goal, met = "slowed by at most 2 %", row["slower_percent"]["median"] <= 2
        yield Row(f"ResNet-50 step, {name}", f"{times}, slowed by {spread(row['slower_percent'])} %", goal, met)


def clips(result: dict[str, Any]) -> Iterator[Row]:
    for size, row in result["sizes"].items():
        for device, rates in row["clips_per_second"].items():
            yield Row(f"clips of {size}, {device}", f"{spread(rates)} clips/s")
        nvdec = row.get("nvdec", {})
        if "clips" in nvdec:
            yield Row(f"clips of {size}, FFmpeg's bits by nvdec", f"{nvdec['equal']} of {nvdec['clips']}")
        conversion = row["conversion"]
        figure = f"{conversion['ms']:.3f} ms, {conversion['gigabytes_per_second']:.0f} GB/s"
        yield Row(f"YUV to RGB of {conversion['frames']} frames of {size}", figure)


def dali(result: dict[str, Any]) -> Iterator[Row]:
    for row in result["rows"]:
        yield Row(row["name"], f"{rate(row)}, {row['cpu_us_per_image']['median']:.0f} us CPU/image")
    for name, error in result["failed"].items():
        yield Row(name, f"failed: {error.strip().splitlines()[-1][:100]}")
    for name, reason in result["left_out"].items():
        yield Row(name, f"left out: {reason}")


def jpeg(result: dict[str, Any]) -> Iterator[Row]:
    bits = result["bits"]
    figure = f"{bits['compared']} images compared, {sum(map(len, bits['wrong'].values()))} wrong"
    yield Row("JPEG kernels, Pillow's bits", figure, "all of them", result["bit_exact"])
    goals = {"kernels whole_500x375_256": 390_000, "kernels crops_500x375_256": 670_000, "first_visits": 150_000}
    for group, rates in result["images_per_second"].items():
        for name, rate in ({"": rates} if isinstance(rates, (int, float)) else rates).items():
            key = f"{group} {name}".rstrip()
            goal = f"at least {goals[key]} images/s" if key in goals else ""
            yield Row(f"JPEG, {key}", f"{rate} images/s", goal, rate >= goals.get(key, 0))
    for name, case in result["cases"].items():
        if name.startswith("chain of"):
            yield Row(
                "JPEG, from upload to a float16 batch of 256 crops",
                f"{case['ms']:.3f} ms",
                "under 0.9 ms",
                case["ms"] < 0.9,
            )
        if name.startswith("first visits of"):
            yield Row(f"JPEG, {name}", f"{case['ms']:.3f} ms; scan_jpeg alone {case['scan_jpeg_ms']:.3f} ms")


READERS: dict[str, Callable[[dict[str, Any]], Iterator[Row]]] = {
    "gpu_smoke": smoke,
    "gpu_kernels": kernels,
    "batch_augmentation": batches,
    "gpu_decode": decode,
    "gpu_end_to_end": end_to_end,
    "training_step_cuda": training,
    "gpu_clips": clips,
    "gpu_dali": dali,
    "gpu_jpeg": jpeg,
}


def rate(row: dict[str, Any]) -> str:
    return f"{row['images_per_second']['median']:.0f} images/s"


def spread(values: dict[str, float]) -> str:
    return f"{values['median']:.2f} ({values['min']:.2f} to {values['max']:.2f})"


def figures(folders: list[Path]) -> Iterator[Row]:
    """The rows of all results."""
    for name, read in READERS.items():
        for path in (folder / f"{name}.json" for folder in folders):
            if not path.exists():
                continue
            try:
                rows = list(read(json.loads(path.read_text())))
            except (ValueError, KeyError, IndexError) as error:  # an interrupted benchmark
                rows = [Row(path.name, f"is incomplete: {error!r}")]
            yield from rows


def table(folders: list[Path]) -> Iterator[str]:
    """The lines of the summary."""
    results = {path: json.loads(path.read_text()) for folder in folders for path in sorted(folder.glob("steps_*.json"))}
    yield from dict.fromkeys(
        f"{result['device']}, driver {result['driver']}, commit {result['commit']}" for result in results.values()
    )
    for row in figures(folders):
        verdict = f"  [{row.goal}: {'met' if row.met else 'MISSED'}]" if row.goal else ""
        yield f"{row.name:64} {row.figure}{verdict}"
    for result in results.values():
        passed = [step for step in result["steps"] if step["status"] == "passed"]
        seconds = sum(step["seconds"] for step in result["steps"])
        yield f"stage {result['stage']:58} {len(passed)} of {len(result['steps'])} steps passed, {seconds} s"
        for step in result["steps"]:
            if step["status"] != "passed":
                yield f"    {step['name']}: {step['status']}; {step['last_line']}"
    missing = [stage for stage in STAGES if stage not in {result["stage"] for result in results.values()}]
    if missing:
        yield f"stages that have not run: {', '.join(missing)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="OUT")
    parser.add_argument(
        "--steps",
        metavar="STAGE",
        choices=STAGES,
        help="write steps_STAGE.json from stdin (name, seconds, status, last line; tabs), and print nothing",
    )
    args = parser.parse_args()
    if args.steps:
        keys = ("name", "seconds", "status", "last_line")
        steps: list[dict[str, Any]] = [
            dict(zip(keys, line.rstrip("\n").split("\t"), strict=True)) for line in sys.stdin if line.strip()
        ]
        for step in steps:
            step["seconds"] = int(step["seconds"])
        write_json(
            args.folders[0] / f"steps_{args.steps}.json", gpu_circumstances([]) | {"stage": args.steps, "steps": steps}
        )
        return
    print(*table(args.folders), sep="\n")


if __name__ == "__main__":
    main()
