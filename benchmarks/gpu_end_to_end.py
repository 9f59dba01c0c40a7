"""Images a second from JPEG files to float16 batches on the GPU: cuaug, torchvision with Kornia, DALI.

Each variant runs in a process of its own, so that no library, cache or thread of another one helps or harms it. A
library that is not installed is left out, and the result says why.

A first round tries every variant. Then the best of DALI and cuaug's variants take turns; a ratio is formed within a
turn. An epoch has each file several times: cuaug's begins without prefetched batches, and that start should take as
small a share as in a real epoch.

    python benchmarks/gpu_end_to_end.py --out benchmarks/results/gpu_end_to_end.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from gpu_feeds import SIZE, Cuaug, Dali, Feed, Settings, Torchvision
from gpu_photos import origin, write_files
from report import PYTHON, gpu_circumstances, options, settings_of, spread, write_json

MAX_SECONDS = 20  # no further epoch of a slow variant begins after them
LOADS = (0.65, 0.9, 1.0)
RESULT = "result: "

VARIANTS: dict[str, Callable[[Settings], Feed]] = {
    "cuaug": Cuaug,
    "cuaug in GPU memory": partial(Cuaug, device_bytes=16 << 30),
    "cuaug without the index": partial(Cuaug, index_bytes=0),
    "cuaug, nvImageCodec": partial(Cuaug, decoder="nvimgcodec"),
    "torchvision": partial(Torchvision, kornia=False),
    "torchvision and Kornia": partial(Torchvision, kornia=True),
    **{f"DALI, {load}": partial(Dali, hw_decoder_load=load, region=False) for load in LOADS},
    **{f"DALI by regions, {load}": partial(Dali, hw_decoder_load=load, region=True) for load in LOADS},
}
#: By the start of a variant's name: the modules that it needs.
NEEDS = {
    "torchvision and Kornia": ("torchvision", "kornia"),
    "torchvision": ("torchvision",),
    "DALI": ("nvidia.dali",),
}


def missing(variant: str) -> str:
    """Why a variant cannot run here; empty if it can."""
    modules = next((modules for name, modules in NEEDS.items() if variant.startswith(name)), ())
    for module in modules:
        try:
            if find_spec(module) is None:
                return f"{module} is not installed"
        except ImportError:  # its parent package is missing
            return f"{module} is not installed"
    return ""


def epoch_of(feed: Feed, batch_size: int) -> tuple[float, float]:
    """Images a second and microseconds of processor time per image, over one epoch."""
    torch.cuda.synchronize()
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    for images in feed.epoch():
        count += len(images)
    torch.cuda.synchronize()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    assert images.is_cuda and images.dtype == torch.float16 and images.shape == (batch_size, 3, SIZE, SIZE), images
    mean, std = float(images.float().mean()), float(images.float().std())
    assert -2 < mean < 2 and 0.2 < std < 2, f"implausible pixels: mean {mean}, standard deviation {std}"
    return count / seconds, 1e6 * cpu / count


def measure(variant: str, settings: Settings, epochs: int) -> dict[str, Any]:
    """Measures epochs after a first one, which starts CUDA and makes the index."""
    feed = VARIANTS[variant](settings)
    result: dict[str, Any] = {}
    first, _ = epoch_of(feed, settings.batch_size)
    results, start = [], time.perf_counter()
    while len(results) < epochs and (not results or time.perf_counter() - start < MAX_SECONDS):
        results.append(epoch_of(feed, settings.batch_size))
    if isinstance(feed, Cuaug):
        stats = feed.loader.stats()
        result = {"decoded_by": stats.decoded_by}
    feed.close()
    rates = {"first_epoch": round(first), "images_per_second": spread(rate for rate, _ in results)}
    return rates | {"cpu_us_per_image": spread(cpu for _, cpu in results)} | result


def run(variant: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measures a variant in a process of its own.

    Raises:
        RuntimeError: it failed; the text has the end of its output.
    """
    command = [*PYTHON, __file__, "--variant", variant, "--data", str(args.data)]
    for name in ("files", "passes", "height", "width", "batch_size", "threads", "fancy_upsampling", "epochs"):
        command += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"no result within {args.limit} s") from error
    lines = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if done.returncode or not lines:
        raise RuntimeError(f"exit status {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    result: dict[str, Any] = json.loads(lines[-1].removeprefix(RESULT))
    rate = result["images_per_second"]
    name = f"  {variant:28}{rate['median']:9.0f} images/s ({rate['min']:.0f} to {rate['max']:.0f})"
    print(f"{name}, {result['cpu_us_per_image']['median']:.0f} us CPU/image", flush=True)
    return result


def best_of(results: dict[str, Any], start: str) -> str | None:
    """The fastest of the variants whose names start so; None if none has run."""
    names = [name for name in results if name.startswith(start)]
    return max(names, key=lambda name: results[name]["images_per_second"]["median"], default=None)


def options_of_files(description: str | None, **numbers: Any) -> argparse.ArgumentParser:
    """`options` with the files and batches of `run`."""
    passes = (4, "uses of each file per epoch")
    return options(
        description, data="photos", files=2048, passes=passes, height=375, width=500, batch_size=256, **numbers
    )


def main() -> None:
    limit = (90.0, "seconds for a variant")
    parser = options_of_files(__doc__, threads=6, fancy_upsampling=(1, "or 0"), epochs=3, turns=3, limit=limit)
    parser.add_argument("--variant", choices=VARIANTS, help="measure only this one, in this process")
    args = parser.parse_args()
    paths = write_files(args.data, args.files, args.height, args.width)
    if args.variant:
        settings = Settings(paths * args.passes, args.batch_size, args.threads, bool(args.fancy_upsampling))
        print(RESULT + json.dumps(measure(args.variant, settings, args.epochs)))
        return
    packages = ["torchvision", "kornia", "nvidia-nvjpeg-cu12", "nvidia-dali-cuda120", "nvidia-dali-cuda130"]
    result: dict[str, Any] = gpu_circumstances(packages)
    result["settings"] = settings_of(args, "variant")
    result |= {"photos": origin(), "variants": {}, "left_out": {}, "failed": {}, "turns": []}

    def attempt(variant: str) -> dict[str, Any] | None:
        try:
            return run(variant, args)
        except RuntimeError as error:
            result["failed"][variant] = str(error)
            print(f"  {variant} failed: {error}", flush=True)
            return None

    def store() -> None:
        write_json(args.out, result)  # after each variant, in case the run is interrupted

    print(f"{result['device']}, {len(paths)} files, batches of {args.batch_size}, {args.threads} threads")
    for variant in VARIANTS:
        if reason := missing(variant):
            if reason not in result["left_out"].values():
                print(f"  {variant} is left out: {reason}", flush=True)
            result["left_out"][variant] = reason
        elif row := attempt(variant):
            result["variants"][variant] = row
        store()
    names = [name for name in result["variants"] if name.startswith("cuaug")]
    best = best_of(result["variants"], "DALI")
    result["best_dali"], result["cuaug_to_dali"] = best, {}
    for _ in range(args.turns if best else 0):
        turn = {name: row["images_per_second"]["median"] for name in [*names, str(best)] if (row := attempt(name))}
        result["turns"].append(turn)
        for name in names:
            ratios = [turn[name] / turn[best] for turn in result["turns"] if best in turn and name in turn]
            if ratios:
                result["cuaug_to_dali"][name] = spread(ratios)
        store()
    for name, ratio in result["cuaug_to_dali"].items():
        print(f"  {name} against {best}: {ratio}")
    store()
    if result["failed"]:
        raise SystemExit(f"failed: {', '.join(result['failed'])}")


if __name__ == "__main__":
    main()
