"""Calls that decode a JPEG, from bytes to a uint8 RGB tensor: wall and CPU milliseconds per image, on one thread.

`cuaug.decode` beside `torchvision.io`, Pillow, OpenCV and simplejpeg: whole images, regions of RandomResizedCrop (the
peers decode all and slice), and a list of all images on two threads (peers: a ThreadPoolExecutor). Each image is
compared with Pillow's first. Peers that are not installed are left out.

    python benchmarks/decode.py --out benchmarks/results
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import CONTENDERS, random_crop_box
from PIL import Image
from report import circumstances, in_turns, options, processor_seconds, ratios, spread, write_json
from suites import SETS, prepare

import cuaug

IMAGES = {"500x375": 96, "1920x1080": 24}
Box = tuple[int, int, int, int]  # left, top, right, bottom
Decode = Callable[[Sequence[bytes], Sequence[Box]], Iterable[torch.Tensor]]


def planes(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).permute(2, 0, 1)


def by_peers() -> dict[str, Callable[[bytes], torch.Tensor]]:
    """Decoders of a whole image."""
    calls: dict[str, Callable[[bytes], torch.Tensor]] = {}
    if find_spec("torchvision"):
        from torchvision.io import ImageReadMode, decode_image

        calls["torchvision.io"] = lambda data: decode_image(
            torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB
        )
    calls["Pillow"] = lambda data: planes(np.array(Image.open(io.BytesIO(data)).convert("RGB")))
    if find_spec("cv2"):
        import cv2

        cv2.setNumThreads(1)
        calls["OpenCV"] = lambda data: planes(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB))
    if find_spec("simplejpeg"):
        from simplejpeg import decode_jpeg

        calls["simplejpeg"] = lambda data: planes(decode_jpeg(data))
    return calls


def decoders() -> dict[str, Decode]:
    def region(data: bytes, box: Box) -> torch.Tensor:
        left, top, right, bottom = box
        return cuaug.decode(data, region=(top, left, bottom - top, right - left))

    def crop(call: Callable[[bytes], torch.Tensor], data: bytes, box: Box) -> torch.Tensor:
        left, top, right, bottom = box
        return call(data)[:, top:bottom, left:right]

    pool = ThreadPoolExecutor(2)
    found: dict[str, Decode] = {
        "cuaug": lambda images, boxes: map(cuaug.decode, images),
        "cuaug, region": lambda images, boxes: map(region, images, boxes),
        "cuaug, 2 threads": lambda images, boxes: cuaug.decode(list(images), threads=2),
    }
    for name, call in by_peers().items():
        found[name] = lambda images, boxes, call=call: map(call, images)  # type: ignore[misc]
        found[f"{name}, region"] = lambda images, boxes, call=call: map(partial(crop, call), images, boxes)  # type: ignore[misc]
        found[f"{name}, 2 threads"] = lambda images, boxes, call=call: pool.map(call, images)  # type: ignore[misc]
    return found


def check(name: str, decode: Decode, images: Sequence[bytes], boxes: Sequence[Box]) -> None:
    """Raises unless each image has the size of Pillow's and, within 3 levels, the same channel means."""
    for data, box, pixels in zip(images, boxes, decode(images, boxes), strict=True):
        reference = Image.open(io.BytesIO(data)).convert("RGB")
        if name.endswith("region"):
            reference = reference.crop(box)
        expected = planes(np.array(reference)).float()
        if pixels.shape != expected.shape:
            raise AssertionError(f"{name}: {pixels.shape}, expected {expected.shape}")
        means, others = pixels.float().mean((1, 2)), expected.mean((1, 2))
        if (means - others).abs().max() > 3:
            raise AssertionError(f"{name}: channels' means {means}, expected {others}")


def seconds(decode: Decode, images: Sequence[bytes], boxes: Sequence[Box]) -> tuple[float, float]:
    """Of the clock and of the CPU, for all images."""
    before, start = processor_seconds(), time.perf_counter()
    for _ in decode(images, boxes):
        pass
    return time.perf_counter() - start, processor_seconds() - before


def measure(
    calls: dict[str, Decode], images: Sequence[bytes], boxes: Sequence[Box], repetitions: int
) -> dict[str, dict[str, Any]]:
    """Milliseconds per image, in turns, and as a multiple of cuaug's time for whole images."""
    times = in_turns({name: partial(seconds, call, images, boxes) for name, call in calls.items()}, repetitions)
    ours = [wall for wall, _ in times["cuaug"]]
    return {
        name: {
            "ms": spread(1e3 * wall / len(images) for wall, _ in pairs),
            "cpu_ms": spread(1e3 * processor / len(images) for _, processor in pairs),
            "cuaug_whole_to_this": ratios([wall for wall, _ in pairs], ours),
            "images_per_second": spread(len(images) / wall for wall, _ in pairs),
        }
        for name, pairs in times.items()
    }


def main() -> None:
    parser = options(__doc__, data="photos", out="write decode_api.json into this folder", repetitions=9)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    args = parser.parse_args()
    packages = [CONTENDERS[name].package for name in ("cuaug", "pillow", "opencv")]
    result: dict[str, Any] = circumstances(["nvidia-nvimgcodec-cu12", "simplejpeg", "torch", "torchvision", *packages])
    result |= {"settings": {"threads": 1, "repetitions": args.repetitions}, "sets": {}}
    calls = decoders()
    for name in args.sets:
        task = prepare(args.data, name, IMAGES[name], 1, IMAGES[name])
        images = [Path(path).read_bytes() for path, _ in task.samples]
        random.seed(0)
        boxes = [random_crop_box(*Image.open(io.BytesIO(data)).size) for data in images]
        for decoder, decode in calls.items():
            check(decoder, decode, images, boxes)
        rows = result["sets"][name] = measure(calls, images, boxes, args.repetitions)
        print(f"  {'':24}{'ms':>8}{'min - max':>16}{'CPU ms':>9}{'images/s':>10}")
        for decoder, row in rows.items():
            ms, rate = row["ms"], row["images_per_second"]["median"]
            figures = f"{ms['median']:8.2f}{ms['min']:9.2f} -{ms['max']:5.2f}{row['cpu_ms']['median']:9.2f}{rate:10.0f}"
            print(f"  {decoder:24}{figures}", flush=True)
    write_json(args.out, result, "decode_api.json")


if __name__ == "__main__":
    main()
