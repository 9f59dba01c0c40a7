"""cuaug beside DALI at equal settings: JPEG files to float16 batches on the GPU, by threads and chroma upsampling.

Both have the same number of threads, with or without fancy upsampling; DALI with three shares of the hardware engine,
cuaug with its own kernels, and once with nvImageCodec. Each run is a process of its own, as in `gpu_end_to_end.py`. The
settings that matter most come first; runs for which no time is left are named in the result.

    python benchmarks/gpu_dali.py --out benchmarks/results/gpu_dali.json
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from typing import Any

import gpu_end_to_end
from gpu_photos import origin, write_files
from report import gpu_circumstances, settings_of, write_json

VARIANTS = ("cuaug", "DALI, 1.0", "DALI, 0.9", "DALI, 0.65", "cuaug in GPU memory", "cuaug, nvImageCodec")


def runs_of(args: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """One run after the other, as arguments of `gpu_end_to_end.run`."""
    for variant, threads, fancy in itertools.product(VARIANTS, args.threads, args.fancy_upsampling):
        run = {"variant": variant, "threads": threads, "fancy_upsampling": fancy}
        yield argparse.Namespace(**vars(args) | run)


def main() -> None:
    begin = time.monotonic()
    parser = gpu_end_to_end.options_of_files(
        __doc__, epochs=2, limit=(30.0, "seconds for a run"), seconds=(200.0, "no further run begins after them")
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[6, 16])
    parser.add_argument("--fancy-upsampling", type=int, nargs="+", choices=(0, 1), default=[1, 0])
    args = parser.parse_args()
    write_files(args.data, args.files, args.height, args.width)
    result: dict[str, Any] = gpu_circumstances(["nvidia-nvjpeg-cu12", "nvidia-dali-cuda120", "nvidia-dali-cuda130"])
    result["settings"] = settings_of(args)
    result |= {"photos": origin(), "rows": [], "left_out": {}, "failed": {}}
    for run in runs_of(args):
        name = f"{run.variant}, {run.threads} threads, {'fancy' if run.fancy_upsampling else 'plain'} upsampling"
        if reason := gpu_end_to_end.missing(run.variant):
            result["left_out"][name] = reason
        elif time.monotonic() - begin > args.seconds:
            result["left_out"][name] = "no time left"
        else:
            print(name, flush=True)
            try:
                result["rows"].append({"name": name, **gpu_end_to_end.run(run.variant, run)})
            except RuntimeError as error:
                result["failed"][name] = str(error)
                print(f"  failed: {error}", flush=True)
        write_json(args.out, result)  # after each run, in case the benchmark is interrupted
    for name, reason in result["left_out"].items():
        print(f"{name} is left out: {reason}")
    if result["failed"]:
        raise SystemExit(f"failed: {', '.join(result['failed'])}")


if __name__ == "__main__":
    main()
