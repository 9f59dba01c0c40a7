"""Runs the GPU kernels under compute-sanitizer, with the plans that the CPU's sanitizers run.

    compute-sanitizer --tool memcheck  --error-exitcode 99 python -m tests.sanitize.sanitize_driver
    compute-sanitizer --tool racecheck --error-exitcode 99 python -m tests.sanitize.sanitize_driver --every 4

`--mistake` plants an error that the tool must report: "bounds" for memcheck, "race" for racecheck. Results are compared
with the CPU's as well.
"""

from __future__ import annotations

import argparse
import itertools
import os

import numpy as np
import torch

from cuaug.devices import nvrtc
from cuaug.devices.cpu import CpuExecutor
from cuaug.devices.cuda import CudaExecutor
from cuaug.plan import Layout, Plan, Type
from tests.support.sanitizer_plans import ALWAYS, BYTES, SIZES, geometries, image, warps

DEVICE = "cuda"


def plant_race(header: str) -> None:
    """Removes the barriers of a header from the kernels that are compiled from now on."""
    sources = nvrtc.sources

    def wrong_sources(program: str = "augment") -> tuple[str, dict[str, str]]:
        text, headers = sources(program)
        assert "block.sync();" in headers[header], f"{header} has no barrier"
        return text, headers | {header: headers[header].replace("block.sync();", "")}

    nvrtc.sources = wrong_sources


def to_device_words(source: np.ndarray) -> tuple[torch.Tensor, int]:
    """Device memory of whole 4-byte words that ends with the image, and the image's address.

    Kernels load the words around the image's bytes. A read beyond its last byte is then out of bounds.
    """
    pixels = torch.from_numpy(source.reshape(-1).view(np.uint8))
    padding = -len(pixels) % 4
    memory = torch.zeros(padding + len(pixels), dtype=torch.uint8, device=DEVICE)
    memory[padding:] = pixels
    return memory, memory.data_ptr() + padding


def run(write, source: np.ndarray, kind: Type, target: Type, layout: Layout, tile, short: int) -> bool:
    """Whether the GPU's result has the CPU's bits; the GPU's target lacks its last `short` bytes."""
    plan = Plan([source.shape[0]], [source.shape[1]], source_type=kind)
    write(plan)
    compiled = plan.compile(target, layout)
    (h,), (w,) = compiled.sizes()
    want = np.empty(int(h * w) * 3 * BYTES[target], dtype=np.uint8)
    CpuExecutor(compiled).run(0, source, want.ctypes.data)
    memory, address = to_device_words(source)
    got = torch.empty((1, len(want) - short), dtype=torch.uint8, device=memory.device)
    CudaExecutor(compiled, tile=tile).run(np.array([address], dtype=np.uint64), got)
    return bool((got.cpu().numpy()[0] == want[: got.shape[1]]).all())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="run every N-th plan")
    parser.add_argument("--mistake", choices=["bounds", "race"])
    args = parser.parse_args()
    # Every tensor is an allocation of exactly its size, so one byte too many is out of bounds.
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    if args.mistake == "race":
        plant_race("core/resample.h")
    outputs = itertools.cycle(itertools.product(Type, Layout, (None, (7, 13), (2, 64))))
    count = failures = 0
    for number, ((h, w), kind) in enumerate(itertools.product(SIZES, (Type.UINT8, Type.FLOAT32))):
        source = image(h, w, kind)
        plans = [*geometries(h, w), *warps(h, w), *ALWAYS.items()][number % args.every :: args.every]
        for name, write in plans:
            target, layout, tile = next(outputs)
            same = run(write, source, kind, target, layout, tile, short=int(args.mistake == "bounds"))
            if not same:
                failures += 1
                print(
                    f"{name} of {h} x {w} {kind.name} to {target.name} {layout.name}, tile {tile}: not the CPU's bits"
                )
            count += 1
    torch.cuda.synchronize()
    print(f"{count} plans, {failures} of them differ")
    raise SystemExit(bool(failures) and not args.mistake)


if __name__ == "__main__":
    main()
