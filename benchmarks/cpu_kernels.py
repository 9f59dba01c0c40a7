"""The augmentation alone, on one thread: a crop resized to 224 x 224, flipped and normalized, beside OpenCV and Pillow.

Contenders take turns; cuaug runs with each instruction set of the processor, with and without antialiasing. Printed are
medians and ranges in milliseconds. OpenCV does not antialias. It runs in two ways: its fastest known here, by planes
into reused memory as cuaug does; and the common (image / 255 - mean) / std in NumPy, whose temporary arrays take most
of the time. For cuaug three more figures are printed: bytes per second, of the crop it reads and the tensor it writes;
that rate as a fraction of a copy's in the same turn; and its speed as a multiple of OpenCV's fastest way.

It also times a batch's memory, fresh from the system and reused: the reason for cuaug/pipeline/pipeline.py.

    python benchmarks/cpu_kernels.py --out benchmarks/results/cpu_kernels.json
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import torch
from PIL import Image
from report import circumstances, parse, print_spreads, spread, take_turns, write_json

from cuaug._runtime.native import BEST_ISA, ISAS
from cuaug.devices import CpuExecutor
from cuaug.pipeline.pipeline import BufferPool
from cuaug.plan import Plan

TOP, LEFT, HEIGHT, WIDTH, SIZE = 50, 60, 262, 350, 224
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
BATCH = (128, 3, SIZE, SIZE)
#: Bytes of the uint8 crop and of the float32 tensor.
BYTES = 3 * HEIGHT * WIDTH + 4 * 3 * SIZE * SIZE
OPENCV, PLAIN = (
    "cv2: resize, flip, split; planes by NumPy, in place",
    "cv2: resize; flip, normalize, transpose by NumPy",
)
COPY = "copy as many bytes"


def cuaug_on(isa: str, antialias: bool, image: np.ndarray) -> Callable[[], object]:
    plan = Plan([image.shape[0]], [image.shape[1]])
    plan.crop(TOP, LEFT, HEIGHT, WIDTH)
    plan.resize(SIZE, SIZE, antialias=antialias)
    plan.flip()
    plan.normalize(MEAN, STD)
    executor = CpuExecutor(plan.compile(), isa=isa)
    target = np.empty((3, SIZE, SIZE), np.float32)
    return lambda: executor.run(0, image, target.ctypes.data)


def opencv(image: np.ndarray, planes: np.ndarray) -> np.ndarray:
    resized = cv2.resize(image[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH], (SIZE, SIZE))
    for plane, channel, mean, std in zip(planes, cv2.split(cv2.flip(resized, 1)), MEAN, STD, strict=True):
        np.multiply(channel, np.float32(1 / (255 * std)), out=plane)
        plane -= mean / std
    return planes


def opencv_plainly(image: np.ndarray) -> np.ndarray:
    resized = cv2.resize(image[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH], (SIZE, SIZE))[:, ::-1]
    return np.ascontiguousarray(((resized.astype(np.float32) / 255 - MEAN) / STD).transpose(2, 0, 1))


def contenders(image: np.ndarray) -> dict[str, tuple[int, Callable[[], object]]]:
    """Name -> (calls a turn, the call)."""
    pool, pil_image, planes = BufferPool(keep=1), Image.fromarray(image), np.empty((3, SIZE, SIZE), np.float32)
    if np.abs(opencv(image, planes) - opencv_plainly(image)).max() > 1e-5:
        raise AssertionError("OpenCV's two ways differ")
    box = (LEFT, TOP, LEFT + WIDTH, TOP + HEIGHT)
    # A copy reads half of the bytes and writes half.
    read, written = np.ones(BYTES // 2, np.uint8), np.ones(BYTES // 2, np.uint8)
    return {
        **{
            f"cuaug, {isa}{'' if antialias else ', not antialiased'}": (20, cuaug_on(isa, antialias, image))
            for isa, number in ISAS.items()
            if number <= BEST_ISA
            for antialias in (True, False)
        },
        COPY: (100, lambda: np.copyto(written, read)),
        OPENCV: (20, lambda: opencv(image, planes)),
        PLAIN: (20, lambda: opencv_plainly(image)),
        "Pillow: crop and resize alone": (
            20,
            lambda: pil_image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box),
        ),
        "write a batch of 128 into fresh memory": (1, lambda: torch.empty(BATCH).fill_(1.0)),
        "write a batch of 128 into memory used before": (
            1,
            lambda: pool.empty([BATCH], torch.float32)[0].fill_(1.0),
        ),
    }


def bandwidth(times: dict[str, list[float]]) -> dict[str, dict[str, dict[str, float]]]:
    """For each cuaug contender: GB/s, the fraction of a copy's rate, and the speed-up over OpenCV's fastest way."""
    result = {}
    for name in (name for name in times if name.startswith("cuaug")):
        pairs = list(zip(times[name], times[COPY], times[OPENCV], strict=True))
        result[name] = {
            "gigabytes_a_second": spread([BYTES / own / 1e6 for own, _, _ in pairs]),
            "part_of_a_copy": spread([copy / own for own, copy, _ in pairs]),
            "times_opencv": spread([opencv / own for own, _, opencv in pairs]),
        }
    return result


def main() -> None:
    arguments = parse(__doc__, repetitions=30)
    cv2.setNumThreads(0)
    torch.set_num_threads(1)

    result = circumstances(["cuaug", "numpy", "opencv-python-headless", "pillow", "torch"])
    image = np.random.default_rng(0).integers(0, 256, (375, 500, 3), dtype=np.uint8)
    times = take_turns(contenders(image), arguments.repetitions)
    result["milliseconds"] = {name: spread(values) for name, values in times.items()}
    result["bandwidth"] = bandwidth(times)
    print_spreads(result["milliseconds"])
    for name, figures in result["bandwidth"].items():
        print_spreads({f"{name}: {key.replace('_', ' ')}": value for key, value in figures.items()})
    if arguments.out:
        write_json(arguments.out, result)


if __name__ == "__main__":
    main()
