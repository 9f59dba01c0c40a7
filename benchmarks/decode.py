"""JPEG decoding alone, on one thread, from bytes in memory: wall and processor milliseconds per image.

Measures whole images to RGB; the same RandomResizedCrop regions for all decoders of regions; and images scaled to 1/2
and 1/4 in the DCT, for decoders that can. If scaled decoding takes about as long as decoding the whole image, entropy
decoding is the bottleneck, and scaling would gain nothing.

Buffers are allocated before the measurement, headers are read within it. DALI runs one thread without prefetching or
overlap. Each image is compared with Pillow's first.

    python benchmarks/decode.py --out benchmarks/results

With --api: the calls that programs make, from bytes to a uint8 RGB tensor, `cuaug.decode` beside `torchvision.io`,
Pillow, OpenCV and simplejpeg. Peers that are not installed are left out. "2 threads": a list of all images; peers
decode it in a ThreadPoolExecutor.

    python benchmarks/decode.py --api --sets 500x375 --out benchmarks/results
"""

from __future__ import annotations

import argparse
import io
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from peers import CONTENDERS, random_crop_box
from PIL import Image
from report import circumstances, processor_seconds, spread, write_json
from suites import SETS, prepare

IMAGES = {"500x375": 96, "1920x1080": 24}
Box = tuple[int, int, int, int]  # left, top, right, bottom
Decode = Callable[[Sequence[bytes], Sequence[Box]], Iterable[np.ndarray]]


def one_by_one(decode: Callable[[bytes], np.ndarray]) -> Decode:
    """Makes a Decode from a decoder of single whole images."""
    return lambda encoded, boxes: (decode(data) for data in encoded)


def cuaug_decoders() -> dict[str, Decode]:
    from cuaug.codec import CpuDecoder, read_header

    decoder = CpuDecoder()

    def region(images: Sequence[bytes], boxes: Sequence[Box]) -> Iterable[np.ndarray]:
        for data, (left, top, right, bottom) in zip(images, boxes, strict=True):
            yield decoder.decode(read_header(data), (top, left, bottom, right))

    def whole(data: bytes) -> np.ndarray:
        return decoder.decode(read_header(data))

    return {"cuaug": one_by_one(whole), "cuaug, region": region}


def pillow_decoders() -> dict[str, Decode]:
    def decode(data: bytes, factor: int) -> np.ndarray:
        image = Image.open(io.BytesIO(data))
        if factor > 1:
            image.draft("RGB", (image.width // factor, image.height // factor))
        return np.asarray(image.convert("RGB"))

    return {
        "Pillow": one_by_one(lambda data: decode(data, 1)),
        "Pillow, 1/2": one_by_one(lambda data: decode(data, 2)),
        "Pillow, 1/4": one_by_one(lambda data: decode(data, 4)),
    }


def opencv_decoders() -> dict[str, Decode]:
    import cv2

    cv2.setNumThreads(1)
    flags = {
        "OpenCV": cv2.IMREAD_COLOR_RGB,
        "OpenCV, 1/2": cv2.IMREAD_REDUCED_COLOR_2,
        "OpenCV, 1/4": cv2.IMREAD_REDUCED_COLOR_4,
    }

    def decoder(flag: int) -> Decode:
        return one_by_one(lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), flag))

    return {name: decoder(flag) for name, flag in flags.items()}


def simplejpeg_decoders() -> dict[str, Decode]:
    """libjpeg-turbo's own interface."""
    from simplejpeg import decode_jpeg, decode_jpeg_header

    def scaled(data: bytes, factor: int) -> np.ndarray:
        height, width, _, _ = decode_jpeg_header(data)
        return decode_jpeg(data, min_height=-(-height // factor), min_width=-(-width // factor))

    return {
        "simplejpeg": one_by_one(decode_jpeg),
        "simplejpeg, 1/2": one_by_one(lambda data: scaled(data, 2)),
        "simplejpeg, 1/4": one_by_one(lambda data: scaled(data, 4)),
    }


def dali_decoders(images: Sequence[bytes], boxes: Sequence[Box]) -> dict[str, Decode]:
    """Pipelines on all images as one batch; DALI has no cheaper call for a single image."""
    from nvidia.dali import fn, pipeline_def, types

    encoded = [np.frombuffer(data, np.uint8) for data in images]
    starts = [np.array([top, left], np.int32) for left, top, _, _ in boxes]
    sizes = [np.array([bottom - top, right - left], np.int32) for left, top, right, bottom in boxes]

    def decoder(regions: bool) -> Decode:
        @pipeline_def(batch_size=len(images), num_threads=1, device_id=None, exec_pipelined=False, exec_async=False)
        def chain():  # type: ignore[no-untyped-def]
            data = fn.external_source(source=lambda: encoded, batch=True, dtype=types.UINT8, ndim=1)
            if not regions:
                return fn.decoders.image(data)
            start = fn.external_source(source=lambda: starts, batch=True, dtype=types.INT32, ndim=1)
            size = fn.external_source(source=lambda: sizes, batch=True, dtype=types.INT32, ndim=1)
            return fn.decoders.image_slice(data, start=start, shape=size, axis_names="HW")

        pipeline = chain()
        pipeline.build()

        def decode(images: Sequence[bytes], boxes: Sequence[Box]) -> Iterable[np.ndarray]:
            (decoded,) = pipeline.run()
            return (np.asarray(decoded.at(i)) for i in range(len(images)))

        return decode

    return {"DALI": decoder(False), "DALI, region": decoder(True)}


def check(name: str, decode: Decode, images: Sequence[bytes], boxes: Sequence[Box]) -> None:
    """Raises unless each image has the size of Pillow's and, within 3 levels, the same channel means."""
    kind = name.partition(", ")[2].removesuffix("2 threads")
    for data, box, pixels in zip(images, boxes, decode(images, boxes), strict=True):
        reference = Image.open(io.BytesIO(data)).convert("RGB")
        if kind == "region":
            reference = reference.crop(box)
        elif kind:
            factor = int(kind[-1])
            size = -(-reference.width // factor), -(-reference.height // factor)
            reference = reference.resize(size, Image.Resampling.BOX)
        expected = np.asarray(reference)
        pixels = np.moveaxis(np.asarray(pixels), 0, 2) if len(pixels) == 3 else pixels  # a tensor (3, H, W)
        if pixels.shape != expected.shape:
            raise AssertionError(f"{name}: {pixels.shape}, expected {expected.shape}")
        means, other = pixels.mean((0, 1)), expected.mean((0, 1))
        if min(np.abs(means - other).max(), np.abs(means[::-1] - other).max()) > 3:  # OpenCV's reduced images are BGR
            raise AssertionError(f"{name}: channels' means {means}, expected {other}")


def api_decoders() -> dict[str, Decode]:
    """Public calls that give a tensor; `torchvision.io` only where torchvision is installed."""
    import torch

    import cuaug

    def crop(image: torch.Tensor, box: Box) -> torch.Tensor:
        left, top, right, bottom = box
        return image[:, top:bottom, left:right]

    def to_region(box: Box) -> tuple[int, int, int, int]:
        left, top, right, bottom = box
        return top, left, bottom - top, right - left

    def planes(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).permute(2, 0, 1)

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

    pool = ThreadPoolExecutor(2)
    kinds: dict[str, Decode] = {
        "cuaug": lambda images, boxes: map(cuaug.decode, images),
        "cuaug, region": lambda images, boxes: [
            cuaug.decode(data, region=to_region(box)) for data, box in zip(images, boxes, strict=True)
        ],
        "cuaug, 2 threads": lambda images, boxes: cuaug.decode(list(images), threads=2),
    }
    for name, call in calls.items():
        kinds[name] = lambda images, boxes, call=call: map(call, images)  # type: ignore[misc]
        kinds[f"{name}, region"] = lambda images, boxes, call=call: (  # type: ignore[misc]
            crop(call(data), box) for data, box in zip(images, boxes, strict=True)
        )
        kinds[f"{name}, 2 threads"] = lambda images, boxes, call=call: list(pool.map(call, images))  # type: ignore[misc]
    return kinds


def measure(
    decoders: dict[str, Decode], images: Sequence[bytes], boxes: Sequence[Box], repetitions: int
) -> dict[str, dict[str, Any]]:
    """Milliseconds per image, in turns, and as a multiple of cuaug's time for whole images."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in decoders}
    for repetition in range(repetitions + 1):
        for name, decode in decoders.items():
            before, start = processor_seconds(), time.perf_counter()
            for _ in decode(images, boxes):
                pass
            wall, processor = time.perf_counter() - start, processor_seconds() - before
            if repetition:  # the first turn warms up
                times[name].append((1e3 * wall / len(images), 1e3 * processor / len(images)))
    rows: dict[str, dict[str, Any]] = {}
    for name, pairs in times.items():
        ms, cpu_ms = (list(column) for column in zip(*pairs, strict=True))
        ratios = [theirs / ours for (ours, _), (theirs, _) in zip(times["cuaug"], pairs, strict=True)]
        rows[name] = {"ms": spread(ms), "cpu_ms": spread(cpu_ms), "cuaug_whole_to_this": spread(ratios)}
        rows[name]["images_per_second"] = spread([1e3 / value for value in ms])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="photo directory (made if missing)")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--api", action="store_true", help="measure cuaug.decode beside other libraries' calls")
    parser.add_argument("--out", type=Path, help="write decode.json into this folder")
    args = parser.parse_args()
    name_of_result = "decode_api" if args.api else "decode"

    packages = [CONTENDERS[name].package for name in ("cuaug", "dali", "pillow", "opencv")]
    packages += ["torch", "torchvision"] if args.api else []
    result: dict[str, Any] = circumstances(["nvidia-nvimgcodec-cu12", "simplejpeg", *packages])
    result["settings"] = {"threads": 1, "repetitions": args.repetitions}
    result["sets"] = {}
    for name in args.sets:
        task = prepare(args.data, name, IMAGES[name], 1, IMAGES[name])
        images = [Path(path).read_bytes() for path, _ in task.samples]
        random.seed(0)
        boxes = [random_crop_box(*Image.open(io.BytesIO(data)).size) for data in images]
        if args.api:
            decoders = api_decoders()
        else:
            decoders = cuaug_decoders() | dali_decoders(images, boxes) | pillow_decoders() | opencv_decoders()
            decoders |= simplejpeg_decoders()
        for decoder, decode in decoders.items():
            check(decoder, decode, images, boxes)
        rows = result["sets"][name] = measure(decoders, images, boxes, args.repetitions)
        print(f"  {'':24}{'ms':>8}{'min - max':>16}{'CPU ms':>9}{'images/s':>10}")
        for decoder, row in rows.items():
            ms = row["ms"]
            print(
                f"  {decoder:24}{ms['median']:8.2f}{ms['min']:9.2f} -{ms['max']:5.2f}{row['cpu_ms']['median']:9.2f}"
                f"{row['images_per_second']['median']:10.0f}",
                flush=True,
            )
    if args.out:
        write_json(args.out / f"{name_of_result}.json", result)
        print(f"\nwritten to {args.out}")


if __name__ == "__main__":
    main()
