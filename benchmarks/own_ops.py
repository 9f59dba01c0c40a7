"""Pixel functions beside operations of the library with the same arithmetic, on one thread.

A plan of 16 uint8 images of 512 x 512 pixels runs three times: with the library's operation, with the function compiled
by the C++ compiler of this machine, and with the function in the interpreter. Contenders take turns; printed are
medians in milliseconds of CPU time per image, and the ratio of the function to the operation, with its range. Chains
crop and resize to 224, flip, and normalize; "alone" is the operation from uint8 to uint8. Where CuPy and NVRTC are
installed, a second table has the registers and bytes of machine code of the chain's kernel on sm_90. It needs no GPU.

    python benchmarks/own_ops.py --out benchmarks/results/own_ops.json
"""

from __future__ import annotations

import dataclasses
import time
from math import exp, log
from typing import Any

import numpy as np
from report import circumstances, parse, spread, write_json

import cuaug
from cuaug import transforms as T
from cuaug._runtime.native import address, library
from cuaug.devices import CpuExecutor, cpu_functions, fuse_luts, nvrtc, specialize
from cuaug.errors import DeviceError
from cuaug.ops import noise
from cuaug.plan import CompiledPlan, Layout, Plan, Type
from cuaug.sampling.rng import SampleRNG

SAMPLES, SIDE, TURN_SECONDS = 16, 512, 0.02
NORMALIZE = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


@cuaug.op
def brightness(pixel, factor):
    return pixel * factor


@cuaug.op
def saturation(pixel, factor):
    gray = 0.2989 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]
    return factor * pixel + (1 - factor) * gray


@cuaug.op
def gamma(pixel, exponent):
    return exp(exponent * log(pixel))


@cuaug.op
def gaussian_noise(pixel, sigma):
    return pixel + sigma * noise()


@cuaug.op
def vignette(pixel, x, y, strength):
    return pixel * (1 - strength * (x * x + y * y))


@cuaug.op(radius=1)
def blur(image):
    above = image[-1, -1] + 2 * image[-1, 0] + image[-1, 1]
    below = image[1, -1] + 2 * image[1, 0] + image[1, 1]
    return (above + 2 * (image[0, -1] + 2 * image[0, 0] + image[0, 1]) + below) / 16


@cuaug.op(radius=1)
def sharpen(image, factor):
    around = (image[-1, 0] + image[1, 0] + image[0, -1] + image[0, 1]) / 4
    return image[0, 0] + factor * (image[0, 0] - around)


#: The library's operation and the function; None: the library has none.
PAIRS: dict[str, tuple[Any, Any]] = {
    "brightness": (T.RandomBrightness((0.5, 1.5)), brightness(factor=cuaug.uniform(0.5, 1.5))),
    "saturation": (T.RandomSaturation((0.5, 1.5)), saturation(factor=cuaug.uniform(0.5, 1.5))),
    "gamma": (T.RandomGamma((0.5, 2.0)), gamma(exponent=cuaug.uniform(0.5, 2.0))),
    "noise": (T.GaussianNoise(sigma=0.1), gaussian_noise(sigma=0.1)),
    "blur": (T.GaussianBlur(3), blur()),
    "sharpen": (T.RandomAdjustSharpness(2.0, p=1.0), sharpen(factor=0.5)),
    "vignette": (None, vignette(strength=cuaug.uniform(0.0, 0.8))),
}


def plan_of(transform: Any, in_chain: bool) -> CompiledPlan:
    chain = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), transform, NORMALIZE] if in_chain else [transform]
    plan = Plan([SIDE] * SAMPLES, [SIDE] * SAMPLES)
    T.Compose(chain).plan(plan, SampleRNG(0, 0, np.arange(SAMPLES)))
    dtype, layout = (Type.FLOAT32, Layout.CHW) if in_chain else (Type.UINT8, Layout.HWC)
    return fuse_luts(plan.compile(dtype, layout))


class Contender:
    """Runs a plan on one photo again and again."""

    def __init__(self, plan: CompiledPlan, photo: np.ndarray) -> None:
        self._executor, self._photo = CpuExecutor(plan), photo
        self._target = np.empty(SIDE * SIDE * 3 * 4, dtype=np.uint8)
        self.milliseconds: list[float] = []

    def turn(self) -> None:
        end, runs, start = time.thread_time() + TURN_SECONDS, 0, time.thread_time()
        while time.thread_time() < end:
            for sample in range(SAMPLES):
                self._executor.run(sample, self._photo, self._target.ctypes.data)
            runs += SAMPLES
        self.milliseconds.append((time.thread_time() - start) / runs * 1e3)


def interpreted(plan: CompiledPlan) -> CompiledPlan:
    """The plan without the addresses of compiled functions."""
    ops = plan.ops.copy()
    ops["function"] = 0
    return dataclasses.replace(plan, ops=ops, functions=())


def measure(turns: int) -> list[dict[str, Any]]:
    photo = np.random.default_rng(0).integers(0, 256, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8)
    photo = photo.repeat(8, axis=0).repeat(8, axis=1)
    rows = []
    for name, (operation, function) in PAIRS.items():
        if not cpu_functions.wait_until_compiled(function._function):
            raise SystemExit("there is no C++ compiler here, or CUAUG_SPECIALIZE=0 turns it off")
        for in_chain in (False, True):
            plan = plan_of(function, in_chain)
            contenders = {"compiled": Contender(plan, photo), "interpreted": Contender(interpreted(plan), photo)}
            if operation is not None:
                contenders["library"] = Contender(plan_of(operation, in_chain), photo)
            for _ in range(turns):
                for contender in contenders.values():
                    contender.turn()
            row: dict[str, Any] = {"operation": name, "place": "chain" if in_chain else "alone"}
            row |= {key: float(np.median(contender.milliseconds)) for key, contender in contenders.items()}
            if operation is not None:
                for kind in ("compiled", "interpreted"):
                    pairs = zip(contenders[kind].milliseconds, contenders["library"].milliseconds, strict=True)
                    row[f"{kind} / library"] = spread([ours / theirs for ours, theirs in pairs])
            rows.append(row)
            print(row)
    return rows


def kernels() -> list[dict[str, Any]]:
    """Registers and bytes of machine code of the chain's kernel on sm_90."""
    rows = []
    for name, (operation, function) in PAIRS.items():
        for kind, transform in (("library", operation), ("function", function)):
            if transform is None:
                continue
            plan = plan_of(transform, True)
            signature = library.cuaug_signature(address(plan.rows[0]), SAMPLES, address(plan.ops))
            build = specialize.build_of(signature, plan.functions)
            code, log_text = nvrtc.compile(90, *build, plan.functions)
            registers = int(log_text.split("Used ")[1].split()[0])
            rows.append({"operation": name, "kind": kind, "registers": registers, "bytes": len(code)})
            print(rows[-1])
    return rows


if __name__ == "__main__":
    options = parse(__doc__, turns=41)
    results: dict[str, Any] = {"cpu": measure(options.turns)}
    try:
        results["sm_90"] = kernels()
    except DeviceError as error:
        print(f"no kernels: {error}")
    if options.out:
        write_json(options.out, circumstances(["numpy", "torch"]) | results)
