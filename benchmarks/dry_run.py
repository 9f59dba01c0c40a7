"""Runs a benchmark or a module on the fake GPU, so that `gpu.sh --dry-run` needs no GPU. Its figures mean nothing.

    python benchmarks/dry_run.py benchmarks/gpu_kernels.py --images 2 --repetitions 1
    python benchmarks/dry_run.py -m tests.sanitize.sanitize_driver --every 50

Processes that the benchmark starts by `report.PYTHON` have the fake GPU, too.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this folder is there as the script's

import gpu_feeds
import report
from peers.dali import DaliOnGpu

from cuaug.devices import specialize
from cuaug.devices.nvrtc import kernels
from tests.support.fake_gpu import BANNER, install


def kernel_for_chain(key: tuple[int, specialize.Values]) -> Any:
    """A full kernel, instead of compiling one for a device and a chain."""
    device_index, values = key
    return getattr(kernels(device_index), specialize.build_of(*values)[0])


def main() -> None:
    print(BANNER, file=sys.stderr)
    report.PYTHON += [str(Path(__file__).resolve())]
    with install():
        specialize._kernel = kernel_for_chain
        gpu_feeds.Dali.device = DaliOnGpu.device = "cpu"
        if sys.argv[1] == "-m":
            sys.argv[:] = sys.argv[2:]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv[:] = sys.argv[1:]
            runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
