"""JPEG decoding alone, on one thread, from bytes in memory: milliseconds per image, wall clock and processor.

Whole pictures to RGB; the regions that RandomResizedCrop draws, by those that can decode a region, the same for all;
and pictures scaled to 1/2 and 1/4 while decoding (in the DCT), by those that can. Where the scaled rows take about as
long as the whole picture, entropy decoding binds, and a decoder that scales would gain nothing.

Each decoder has its buffers from before and reads its headers within the time. DALI runs a pipeline that neither
prefetches nor overlaps anything, with one thread. Every picture is checked against Pillow's before the clock starts.

    python benchmarks/decode.py --out benchmarks/results
"""

from __future__ import annotations

import argparse
import io
import random
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from end_to_end import SETS, prepare
from peers import CONTENDERS, random_crop_box
from PIL import Image
from report import Bar, bar_plot, circumstances, processor_seconds, spread, write_json

PICTURES = {"500x375": 96, "1920x1080": 24}
Box = tuple[int, int, int, int]  # left, top, right, bottom
Decode = Callable[[Sequence[bytes], Sequence[Box]], Iterable[np.ndarray]]


def one_by_one(decode: Callable[[bytes], np.ndarray]) -> Decode:
    """A decoder of single whole pictures."""
    return lambda pictures, boxes: (decode(data) for data in pictures)


def cuaug_decoders(pictures: Sequence[bytes]) -> dict[str, Decode]:
    """Of prepared pictures too, where jpegtran is installed."""
    from cuaug.codec import CpuDecoder, read_header
    from cuaug.commands.prepare import with_restarts

    decoder = CpuDecoder()

    def region(pictures: Sequence[bytes], boxes: Sequence[Box]) -> Iterable[np.ndarray]:
        for data, (left, top, right, bottom) in zip(pictures, boxes, strict=True):
            yield decoder.decode(read_header(data), (top, left, bottom, right))

    def whole(data: bytes) -> np.ndarray:
        return decoder.decode(read_header(data))

    found = {"cuaug": one_by_one(whole), "cuaug, region": region}
    if shutil.which("jpegtran"):
        prepared = {data: with_restarts(data) for data in pictures}
        found["cuaug-prepared"] = one_by_one(lambda data: whole(prepared[data]))
        found["cuaug-prepared, region"] = lambda some, boxes: region([prepared[data] for data in some], boxes)
    return found


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
    """libjpeg-turbo's own interface, with nothing around it."""
    from simplejpeg import decode_jpeg, decode_jpeg_header

    def scaled(data: bytes, factor: int) -> np.ndarray:
        height, width, _, _ = decode_jpeg_header(data)
        return decode_jpeg(data, min_height=-(-height // factor), min_width=-(-width // factor))

    return {
        "simplejpeg": one_by_one(decode_jpeg),
        "simplejpeg, 1/2": one_by_one(lambda data: scaled(data, 2)),
        "simplejpeg, 1/4": one_by_one(lambda data: scaled(data, 4)),
    }


def dali_decoders(pictures: Sequence[bytes], boxes: Sequence[Box]) -> dict[str, Decode]:
    """Pipelines that are fed all pictures as one batch: DALI has no call for a single one that costs less."""
    from nvidia.dali import fn, pipeline_def, types

    encoded = [np.frombuffer(data, np.uint8) for data in pictures]
    starts = [np.array([top, left], np.int32) for left, top, _, _ in boxes]
    sizes = [np.array([bottom - top, right - left], np.int32) for left, top, right, bottom in boxes]

    def decoder(regions: bool) -> Decode:
        @pipeline_def(batch_size=len(pictures), num_threads=1, device_id=None, exec_pipelined=False, exec_async=False)
        def chain():  # type: ignore[no-untyped-def]
            data = fn.external_source(source=lambda: encoded, batch=True, dtype=types.UINT8, ndim=1)
            if not regions:
                return fn.decoders.image(data)
            start = fn.external_source(source=lambda: starts, batch=True, dtype=types.INT32, ndim=1)
            size = fn.external_source(source=lambda: sizes, batch=True, dtype=types.INT32, ndim=1)
            return fn.decoders.image_slice(data, start=start, shape=size, axis_names="HW")

        pipeline = chain()
        pipeline.build()

        def decode(pictures: Sequence[bytes], boxes: Sequence[Box]) -> Iterable[np.ndarray]:
            (images,) = pipeline.run()
            return (np.asarray(images.at(i)) for i in range(len(pictures)))

        return decode

    return {"DALI": decoder(False), "DALI, region": decoder(True)}


def check(name: str, decode: Decode, pictures: Sequence[bytes], boxes: Sequence[Box]) -> None:
    """Raise unless each picture has Pillow's size and, within 3 levels, the means of its channels."""
    kind = name.partition(", ")[2]
    for data, box, pixels in zip(pictures, boxes, decode(pictures, boxes), strict=True):
        wanted = Image.open(io.BytesIO(data)).convert("RGB")
        if kind == "region":
            wanted = wanted.crop(box)
        elif kind:
            factor = int(kind[-1])
            wanted = wanted.resize((-(-wanted.width // factor), -(-wanted.height // factor)), Image.Resampling.BOX)
        expected = np.asarray(wanted)
        if pixels.shape != expected.shape:
            raise AssertionError(f"{name}: {pixels.shape}, wanted {expected.shape}")
        means, other = pixels.mean((0, 1)), expected.mean((0, 1))
        if min(np.abs(means - other).max(), np.abs(means[::-1] - other).max()) > 3:  # OpenCV's reduced ones are BGR
            raise AssertionError(f"{name}: channels' means {means}, wanted {other}")


def measure(
    decoders: dict[str, Decode], pictures: Sequence[bytes], boxes: Sequence[Box], repetitions: int
) -> dict[str, dict[str, Any]]:
    """Milliseconds per image, in turns, and how many times as fast as each cuaug decodes whole pictures."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in decoders}
    for repetition in range(repetitions + 1):
        for name, decode in decoders.items():
            before, start = processor_seconds(), time.perf_counter()
            for _ in decode(pictures, boxes):
                pass
            wall, processor = time.perf_counter() - start, processor_seconds() - before
            if repetition:  # the first is the warm-up
                seen[name].append((1e3 * wall / len(pictures), 1e3 * processor / len(pictures)))
    rows: dict[str, dict[str, Any]] = {}
    for name, times in seen.items():
        ms, cpu_ms = (list(column) for column in zip(*times, strict=True))
        ratios = [theirs / ours for (ours, _), (theirs, _) in zip(seen["cuaug"], times, strict=True)]
        rows[name] = {"ms": spread(ms), "cpu_ms": spread(cpu_ms), "cuaug_whole_to_this": spread(ratios)}
        rows[name]["images_per_second"] = spread([1e3 / value for value in ms])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="where the photo sets are or go")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--out", type=Path, help="write decode.json and a plot for each set into this folder")
    args = parser.parse_args()

    packages = [CONTENDERS[name].package for name in ("cuaug", "dali", "pillow", "opencv")]
    result: dict[str, Any] = circumstances(["nvidia-nvimgcodec-cu12", "simplejpeg", *packages])
    result["settings"] = {"threads": 1, "repetitions": args.repetitions}
    result["sets"] = {}
    for name in args.sets:
        task = prepare(args.data, name, PICTURES[name], 1, PICTURES[name])
        pictures = [Path(path).read_bytes() for path, _ in task.samples]
        random.seed(0)
        boxes = [random_crop_box(*Image.open(io.BytesIO(data)).size) for data in pictures]
        decoders = cuaug_decoders(pictures) | dali_decoders(pictures, boxes) | pillow_decoders() | opencv_decoders()
        decoders |= simplejpeg_decoders()
        for who, decode in decoders.items():
            check(who, decode, pictures, boxes)
        rows = result["sets"][name] = measure(decoders, pictures, boxes, args.repetitions)
        print(f"  {'':24}{'ms':>8}{'min - max':>16}{'CPU ms':>9}{'images/s':>10}")
        for who, row in rows.items():
            ms = row["ms"]
            print(
                f"  {who:24}{ms['median']:8.2f}{ms['min']:9.2f} -{ms['max']:5.2f}{row['cpu_ms']['median']:9.2f}"
                f"{row['images_per_second']['median']:10.0f}",
                flush=True,
            )
        if args.out:
            bars = [Bar(who, row["ms"], who.startswith("cuaug")) for who, row in rows.items()]
            bar_plot(args.out / f"decode_{name}.svg", f"JPEG decoding, {name}, one thread", "ms per image", bars)
    if args.out:
        write_json(args.out / "decode.json", result)
        print(f"\nwritten to {args.out}")


if __name__ == "__main__":
    main()
