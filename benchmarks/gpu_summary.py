"""Prints the GPU benchmarks' figures: the fused kernel, images a second, and the slowdown of a training step.

Reads the JSON files of `gpu.sh` from one directory, or from several if it ran in parts.

    python benchmarks/gpu_summary.py OUT [OUT...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


def figures(folders: list[Path]) -> list[tuple[str, str]]:
    """(name, figure) of all results."""
    readers = {"gpu_kernels": kernel, "gpu_loader": loader, "training_step_cuda": training}
    rows = []
    for name, read in readers.items():
        for path in (folder / f"{name}.json" for folder in folders):
            try:
                rows += read(json.loads(path.read_text()))
            except (OSError, ValueError, KeyError, IndexError) as error:  # missing, or incomplete
                if path.exists():
                    rows.append((f"{name}.json", f"is incomplete: {error!r}"))
    return rows


def kernel(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    row = result["cases"]["crop, flip, normalise"]
    missed = [target for target, met in result["targets"].items() if not met]
    yield (
        f"{result['batch']}, fused, float16",
        f"{row['kernel_ms']:.3f} ms, with upload {row['upload_and_kernel_ms']:.3f}",
    )
    copy = result["copy_gigabytes_per_second"]
    yield "its share of a copy's bandwidth", f"{row['fraction_of_copy']:.1%} of {copy:.0f} GB/s"
    yield "its targets", f"MISSED: {', '.join(missed)}" if missed else f"met: {', '.join(result['targets'])}"


def loader(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    best = max(result["decoder"], key=lambda row: row["images_per_second"])
    yield "decoder alone", f"{best['images_per_second']} images/s ({split(best, 'threads')})"
    rows = [row for row in result["loader"] if not {"restart_markers", "index"} & set(row)]
    best = max(rows, key=lambda row: row["images_per_second"]["median"])
    yield "loader, JPEG files to float16", f"{rate(best)} ({split(best, 'decode_threads')})"
    for row in result["loader"]:
        if "auto" in row:
            yield "loader, load_hint auto", f"{rate(row)} ({row['auto']}: {split(row, 'decode_threads')})"
        if "restart_markers" in row:
            yield "loader, from files with restart markers", rate(row)
        if "index" in row:
            yield "loader, with a JPEG index", rate(row)
    dali = result["dali"]
    yield "loader, as a multiple of DALI's GPU pipeline", dali if isinstance(dali, str) else f"{spread(dali['ratio'])}"


def training(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, row in result["step"].items():
        times = f"{row['ms']['median']:.1f} ms, {row['images_per_second']['median']:.0f} images/s"
        yield f"training step, {name}", f"{times}, slowed by {spread(row['slower_percent'])} %"


def split(row: dict[str, Any], threads: str) -> str:
    return f"load_hint {row['load_hint']:g}, {row[threads]} threads"


def rate(row: dict[str, Any]) -> str:
    return f"{row['images_per_second']['median']:.0f} images/s"


def spread(values: dict[str, float]) -> str:
    return f"{values['median']:.2f} ({values['min']:.2f} to {values['max']:.2f})"


def output_of(*command: str) -> str | None:
    """The output of a command; None if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="OUT")
    parser.add_argument(
        "--steps",
        action="store_true",
        help="write summary.json, with the steps (name, seconds, status; tabs) from stdin",
    )
    args = parser.parse_args()
    rows = figures(args.folders)
    for name, figure in rows:
        print(f"{name:64} {figure}")
    if args.steps:
        steps = [line.rstrip("\n").split("\t") for line in sys.stdin]
        result = {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "commit": output_of("git", "rev-parse", "HEAD") or os.environ.get("CUAUG_COMMIT"),
            "device": output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
            "steps": [{"name": name, "seconds": int(seconds), "status": code} for name, seconds, code in steps],
            "figures": dict(rows),
        }
        (args.folders[0] / "summary.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
