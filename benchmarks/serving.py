"""Inference servers: the bytes of one JPEG, or of 32, to a model's input: latency and processor time of a call.

Resize(256), CenterCrop(224), Normalize, with Pillow's pixels. Each is compared first, with Pillow and NumPy or with the
chain of cuaug.transformers.

    cuaug           cuaug.decode(requests, chain), one thread
    Pillow, NumPy   the same chain by hand
    Transformers    its processor on PIL images, where it is installed

"4 callers": four threads of one process call at once, as a server's threads do.

    python benchmarks/serving.py --out benchmarks/results/serving.json
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import IMAGENET_MEAN, IMAGENET_STD
from PIL import Image
from report import circumstances, in_turns, options, ratios, spread, write_json
from suites import SETS, prepare

import cuaug
from cuaug import transforms as T

IMAGES = 64
CALLERS = 4
SETTINGS = {"one image": (1, 1), "32 images": (32, 1), f"one image, {CALLERS} callers": (1, CALLERS)}
Call = Callable[[Sequence[bytes]], torch.Tensor]


def contenders() -> Iterator[tuple[str, Call]]:
    """(name, function from files to a float32 batch (N, 3, 224, 224))."""
    chain = T.Compose([T.Resize(256), T.CenterCrop(224), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)], pillow=True)
    yield "cuaug", lambda files: cuaug.decode(list(files), chain, device="cpu", threads=1)
    yield "Pillow, NumPy", lambda files: torch.from_numpy(np.stack(list(map(by_hand, files))))
    if not find_spec("transformers"):
        return
    from transformers import ConvNextImageProcessor

    settings = {"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 2, "return_tensors": "pt"}
    settings |= {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD}
    processor = ConvNextImageProcessor(**settings)
    own = cuaug.transformers.processor(processor)  # it rounds the crop's place down, the chain above to the nearest
    files = [by_size(height) for height in (375, 600)]
    assert torch.equal(
        processor([Image.open(io.BytesIO(data)) for data in files], return_tensors="pt").pixel_values,
        cuaug.decode(files, own, device="cpu"),
    )
    yield (
        "Transformers, PIL",
        lambda files: processor([Image.open(io.BytesIO(data)) for data in files], return_tensors="pt").pixel_values,
    )


def by_size(height: int) -> bytes:
    """A JPEG of noise."""
    noise = np.random.default_rng(0).integers(0, 256, (height, 500, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file := io.BytesIO(), "JPEG")
    return file.getvalue()


def by_hand(data: bytes) -> np.ndarray:
    """(3, 224, 224) float32."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    scale = 256 / min(image.size)
    image = image.resize([int(side * scale) for side in image.size], Image.Resampling.BILINEAR)
    left, top = (round((side - 224) / 2) for side in image.size)
    levels = np.asarray(image.crop((left, top, left + 224, top + 224)), dtype=np.float32)
    mean, std = (np.asarray(values, dtype=np.float32) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return np.ascontiguousarray(((levels / np.float32(255) - mean) / std).transpose(2, 0, 1))


def measure(call: Call, files: Sequence[bytes], count: int, callers: int, seconds: float) -> dict[str, float]:
    """Latency of a call and processor time of an image, in milliseconds, over calls with `count` files each."""
    batches = [files[i : i + count] for i in range(0, len(files), count)]

    def serve(caller: int) -> list[float]:
        times: list[float] = []
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            call(batches[(len(times) + caller) % len(batches)])
            times.append(1e3 * (time.perf_counter() - start))
        return times

    with ThreadPoolExecutor(callers) as pool:
        before, start = time.process_time(), time.perf_counter()
        times = [ms for each in pool.map(serve, range(callers)) for ms in each]
        processor, wall = time.process_time() - before, time.perf_counter() - start
    images = len(times) * count
    return {
        "p50_ms": statistics.median(times),
        "p99_ms": sorted(times)[len(times) * 99 // 100],
        "cpu_ms_per_image": 1e3 * processor / images,
        "images_per_second": images / wall,
    }


def main() -> None:
    parser = options(__doc__, data="photos", turns=5, seconds=(1.0, "of each contender in a turn"))
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    args = parser.parse_args()
    torch.set_num_threads(1)

    result: dict[str, Any] = circumstances(["cuaug", "torch", "numpy", "pillow", "transformers"])
    result["sets"] = {}
    calls = dict(contenders())
    for name in args.sets:
        files = [Path(path).read_bytes() for path, _ in prepare(args.data, name, IMAGES, 1, IMAGES).samples]
        want = calls["Pillow, NumPy"](files[:8])
        for contender, call in calls.items():
            if contender != "Transformers, PIL":
                assert torch.equal(call(files[:8]), want), contender
        rows = result["sets"][name] = {}
        for setting, (count, callers) in SETTINGS.items():
            timed = {key: partial(measure, call, files, count, callers, args.seconds) for key, call in calls.items()}
            found = in_turns(timed, args.turns, warm_up=0)
            cpu = {key: [turn["cpu_ms_per_image"] for turn in turns] for key, turns in found.items()}
            for contender, turns in found.items():
                row = {key: spread(turn[key] for turn in turns) for key in turns[0]}
                row["cpu_to_cuaug"] = ratios(cpu[contender], cpu["cuaug"])
                rows[f"{contender}, {setting}"] = row
                figures = "".join(f"{row[key]['median']:10.2f}" for key in row)
                print(f"  {contender + ', ' + setting:44}{figures}", flush=True)
    write_json(args.out, result)


if __name__ == "__main__":
    main()
