"""What the benchmarks share: the command line, circumstances of a run, turns, medians with their range, and JSON."""

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
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from cuaug._runtime.native import BEST_ISA, ISAS

__all__ = [
    "PYTHON",
    "circumstances",
    "gpu_circumstances",
    "in_turns",
    "milliseconds",
    "options",
    "print_spreads",
    "processor_seconds",
    "ratios",
    "settings_of",
    "spread",
    "write_json",
]

T = TypeVar("T")
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


def options(
    description: str | None, *, data: str = "", out: str = "write the result here as JSON", **numbers: Any
) -> argparse.ArgumentParser:
    """A benchmark's command line, to which it may add more.

    Args:
        data: what the folder --data has; without it there is no --data.
        out: the help of --out.
        numbers: option -> default, or (default, help); the default has the option's type.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data:
        parser.add_argument("--data", type=Path, default=Path("bench-data"), help=f"folder of {data}; made if missing")
    for name, value in numbers.items():
        default, text = value if isinstance(value, tuple) else (value, "")
        text = f"{text} (default: {default})".lstrip()
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=text)
    parser.add_argument("--out", type=Path, help=out)
    return parser


def settings_of(args: argparse.Namespace, *hidden: str) -> dict[str, Any]:
    """The arguments for JSON, without folders and `hidden` ones."""
    return {name: value for name, value in vars(args).items() if name not in ("data", "out", *hidden)}


def in_turns(
    calls: dict[str, Callable[[], T]], repetitions: int, warm_up: int = 1, show: Callable[[T], str] | None = None
) -> dict[str, list[T]]:
    """What each call returns in each turn. The calls alternate: A B C, A B C.

    Args:
        warm_up: first turns, which do not count.
        show: prints a line per turn, with this text for each value.
    """
    found: dict[str, list[T]] = {name: [] for name in calls}
    for number in range(1 - warm_up, repetitions + 1):
        for name, call in calls.items():
            found[name].append(call())
        if show and number > 0:
            line = ", ".join(f"{name} {show(values[-1])}" for name, values in found.items())
            print(f"  {number}/{repetitions}: {line}", flush=True)
    return {name: values[warm_up:] for name, values in found.items()}


def milliseconds(call: Callable[[], object], calls: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    """Milliseconds of a call: the mean of several in a row."""
    start = clock()
    for _ in range(calls):
        call()
    return 1000 * (clock() - start) / calls


def print_spreads(found: dict[str, dict[str, float]]) -> None:
    """Print a line per name: median and range."""
    for name, values in found.items():
        print(f"{name:64} {values['median']:10.3f}   {values['min']:.3f} - {values['max']:.3f}")


def spread(measured: Iterable[float]) -> dict[str, float]:
    """Median, minimum and maximum of repeated measurements."""
    values = list(measured)
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}


def ratios(values: Iterable[float], bases: Iterable[float]) -> dict[str, float]:
    """The spread of values / bases, each pair of one turn."""
    return spread(value / base for value, base in zip(values, bases, strict=True))


def write_json(path: Path | None, result: dict[str, Any], name: str = "") -> None:
    """Write a result as JSON; make its folder if needed. Without a path, do nothing.

    Args:
        name: the file's name, if the path is a folder.
    """
    if path is None:
        return
    path = path / name
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
