"""The kernels under Nsight Compute: time, occupancy, throughput and stalls of RandomResizedCrop, flip, Normalize.

Three kernels: the one compiled for the chain, and both entry points of the full kernels. Without `ncu`, or without the
right to read the GPU's counters, the result says so, and nothing fails.

    python benchmarks/gpu_ncu.py --out benchmarks/results/gpu_ncu.json
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from report import PYTHON, gpu_circumstances, write_json

SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats", "MemoryWorkloadAnalysis", "WarpStateStats", "SchedulerStats")
SHOWN = ("Duration", "Registers Per Thread", "Achieved Occupancy", "DRAM Throughput", "Compute (SM) Throughput")


def parse(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The launches in ncu's CSV: kernel, grid, block, and each metric as [number or text, unit]."""
    rows = csv.DictReader(line for line in lines if line.startswith('"'))
    launches: dict[str, dict[str, Any]] = {}
    for row in rows:
        about = {"kernel": row["Kernel Name"], "grid": row["Grid Size"], "block": row["Block Size"], "metrics": {}}
        metrics = launches.setdefault(row["ID"], about)["metrics"]
        if row["Metric Name"]:  # rules have none
            metrics[row["Metric Name"]] = [number_of(row["Metric Value"]), row["Metric Unit"]]
    return list(launches.values())


def number_of(text: str) -> float | str:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return text


def profile(images: int) -> list[dict[str, Any]] | str:
    """The launches, or why there are none.

    Raises:
        SystemExit: ncu or the program failed.
    """
    if shutil.which("ncu") is None:
        return "ncu is not installed"
    command = ["ncu", "--csv", "--page", "details", "--kernel-name", "regex:^(augment|resample)$"]
    for section in SECTIONS:
        command += ["--section", section]
    command += [*PYTHON, str(Path(__file__).with_name("gpu_kernels.py")), "--launch-only", "--images", str(images)]
    done = subprocess.run(command, capture_output=True, text=True)
    output = done.stdout + done.stderr
    if "ERR_NVGPUCTRPERM" in output:
        return "this user may not read the GPU's counters (ERR_NVGPUCTRPERM)"
    if done.returncode:
        raise SystemExit(f"ncu ended with status {done.returncode}: {output[-3000:]}")
    launches = parse(done.stdout.splitlines())
    if not launches:
        raise SystemExit(f"ncu's output has no launches: {output[-3000:]}")
    return launches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256, help="in a batch")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()
    result: dict[str, Any] = gpu_circumstances([])
    found = profile(args.images)
    if isinstance(found, str):
        result["left_out"] = found
        print(f"left out: {found}")
    else:
        result["launches"] = found
        for launch in found:
            values = [f"{name} {launch['metrics'][name]}" for name in SHOWN if name in launch["metrics"]]
            print(f"{launch['kernel']} {launch['grid']}: {', '.join(values)}")
    if args.out:
        write_json(args.out, result)


if __name__ == "__main__":
    main()
