"""Shared output of the benchmarks: circumstances of a run, medians with their range, JSON and plots."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cuaug._runtime.native import BEST_ISA, ISAS

__all__ = [
    "PYTHON",
    "Bar",
    "bar_plot",
    "circumstances",
    "gpu_circumstances",
    "parse",
    "print_spreads",
    "processor_seconds",
    "spread",
    "take_turns",
    "write_json",
]

ROOT = Path(__file__).resolve().parents[1]
#: The command that runs Python for another process of a benchmark; dry_run.py adds itself.
PYTHON = [sys.executable]


def circumstances(packages: Iterable[str]) -> dict[str, Any]:
    """Commit, machine, versions, date and command line of this run."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["python", os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]]),
        # CUAUG_COMMIT names the commit of a copy without its history.
        "commit": os.environ.get("CUAUG_COMMIT") or _git("rev-parse", "HEAD"),
        # Results do not count: the same command may just have written some.
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no", ":!benchmarks/results")),
        "machine": {
            "cpu": _cpu_model(),
            "kernels": next(name for name, value in ISAS.items() if value == BEST_ISA),  # the CPU model may be hidden
            "cores": len(os.sched_getaffinity(0)),
            "system": platform.system(),
            "load_average_before": os.getloadavg()[0],
        },
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in packages},
    }


def gpu_circumstances(packages: Iterable[str]) -> dict[str, Any]:
    """`circumstances`, with the names of the GPU and of its driver."""
    import torch

    query = "nvidia-smi", "--format=csv,noheader"
    name, driver = (_output(*query, f"--query-gpu={field}") for field in ("name", "driver_version"))
    found = circumstances(["torch", "numpy", "cupy-cuda12x", "cupy-cuda13x", "nvidia-nvimgcodec-cu12", *packages])
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else name
    return {"device": device, "driver": driver} | found


def parse(description: str | None, **numbers: int) -> argparse.Namespace:
    """Parse a benchmark's command line: --out, and integers with these defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    return parser.parse_args()


def take_turns(contenders: dict[str, tuple[int, Callable[[], object]]], repetitions: int) -> dict[str, list[float]]:
    """Milliseconds per call of each contender in each turn. Contenders alternate; the first turn warms up.

    contenders: name -> (calls in a turn, the call).
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions + 1):
        for name, (count, call) in contenders.items():
            start = time.perf_counter()
            for _ in range(count):
                call()
            times[name].append((time.perf_counter() - start) / count * 1000)
    return {name: values[1:] for name, values in times.items()}


def print_spreads(found: dict[str, dict[str, float]]) -> None:
    """Print a line per name: median and range."""
    for name, values in found.items():
        print(f"{name:64} {values['median']:10.3f}   {values['min']:.3f} - {values['max']:.3f}")


def spread(values: list[float]) -> dict[str, float]:
    """Median, minimum and maximum of repeated measurements."""
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Write a result as JSON; make its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")


def processor_seconds() -> float:
    """CPU seconds, user and system, of this process and all its descendants, ended ones included."""
    import psutil

    this = psutil.Process()
    total = sum(this.cpu_times()[:4])  # user and system, of itself and of its reaped children
    for child in this.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.NoSuchProcess:  # it ended meanwhile
            continue
    return total


@dataclass(frozen=True)
class Bar:
    """One bar of a plot. `values` comes from `spread`; `ours` marks cuaug."""

    name: str
    values: dict[str, float]
    ours: bool = False


def bar_plot(path: Path, title: str, unit: str, bars: Sequence[Bar]) -> None:
    """Write horizontal bars of medians, with lines from minimum to maximum, as SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cuaug"})
    figure, axes = pyplot.subplots(figsize=(6.4, 0.8 + 0.36 * len(bars)), layout="constrained")
    medians = [bar.values["median"] for bar in bars]
    error_bars = [
        [bar.values["median"] - bar.values["min"] for bar in bars],
        [bar.values["max"] - bar.values["median"] for bar in bars],
    ]
    colors = ["#2a7f62" if bar.ours else "#a9b4bd" for bar in bars]
    drawn = axes.barh(
        [bar.name for bar in bars], medians, xerr=error_bars, color=colors, ecolor="#44505a", capsize=2, height=0.7
    )
    axes.bar_label(drawn, labels=[f"{value:,.{0 if value >= 100 else 1}f}" for value in medians], padding=4)
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize="medium", loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _git(*arguments: str) -> str | None:
    return _output("git", "-C", str(ROOT), *arguments)


def _output(*command: str) -> str | None:
    """The output of a command; None if it is not installed or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
