"""Images a second of `Loader(device="cuda")` from JPEG files, by decode split, and of DALI on the same GPU.

RandomResizedCrop(224), flip, normalise to float16, from files of about 500 x 375 in the page cache. An epoch has each
file several times: each epoch of the loader begins without prefetched batches, unlike DALI's, and that start should
take as small a share as in a real epoch. Three parts:

- the decoder alone, over a grid of `load_hint` (the hardware engine's share) and CPU threads, with the spread over
  batches: the slowest batches, not the mean, decide whether training waits;
- the loader with `--loader-threads` threads, by `load_hint`, and with "auto"; with the best of these, also from files
  with restart markers, and with a JPEG index: it decodes them in part;
- the best of these against DALI's best over `hw_decoder_load` and crop methods; ratios within one turn.

    python benchmarks/gpu_loader.py --out benchmarks/results/gpu_loader.json
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from PIL import Image
from report import circumstances, spread, write_json

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from photos import write_photos

import cuaug
from cuaug import transforms as T
from cuaug.codec import CudaDecoder, DecoderPaths, read_header
from cuaug.codec.jpegtran import restart_interval

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SIZE, MAX_TUNING_EPOCHS = 224, 30

_INDEX_BYTES = 1 << 30


class Feed(Protocol):
    def epoch(self) -> Iterator[torch.Tensor]:
        """Batches of images on the GPU."""

    def close(self) -> None: ...


class Ours:
    def __init__(
        self,
        paths: list[str],
        batch_size: int,
        threads: int,
        load_hint: Any,
        decode_threads: int | None = None,
        index_bytes: int | None = None,
    ) -> None:
        chain = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)]
        options: dict[str, Any] = {"shuffle": True, "last_batch": "drop", "dtype": torch.float16, "prefetch": 3}
        decode = cuaug.DecodeOptions(load_hint=load_hint, decode_threads=decode_threads, index_bytes=index_bytes)
        self.loader = cuaug.Loader(
            paths, chain, batch_size=batch_size, device="cuda", threads=threads, decode=decode, **options
        )

    def epoch(self) -> Iterator[torch.Tensor]:
        return (images for images, _ in self.loader)

    def close(self) -> None:
        self.loader.close()


class Dali:
    """DALI's GPU pipeline, antialiased as cuaug's; batches arrive by DLPack without a copy."""

    def __init__(self, paths: list[str], batch_size: int, threads: int, hw_decoder_load: float, method: str) -> None:
        from nvidia.dali import fn, pipeline_def, types

        crop = {"random_area": [0.08, 1.0], "random_aspect_ratio": [3 / 4, 4 / 3]}
        decoding = {"device": "mixed", "hw_decoder_load": hw_decoder_load, "jpeg_fancy_upsampling": True}
        resizing = {"interp_type": types.DALIInterpType.INTERP_LINEAR, "antialias": True}

        @pipeline_def(
            batch_size=batch_size, num_threads=threads, device_id=0, seed=0, prefetch_queue_depth=3, exec_dynamic=True
        )
        def chain():  # type: ignore[no-untyped-def]
            encoded, _ = fn.readers.file(files=paths, random_shuffle=True, initial_fill=min(2048, len(paths)))
            if method == "whole":
                images = fn.decoders.image(encoded, **decoding)
                images = fn.random_resized_crop(images, size=[SIZE, SIZE], **crop, **resizing)
            else:
                images = fn.decoders.image_random_crop(encoded, **decoding, **crop)
                images = fn.resize(images, size=[SIZE, SIZE], **resizing)
            return fn.crop_mirror_normalize(
                images,
                dtype=types.FLOAT16,
                output_layout="CHW",
                mean=[255 * value for value in MEAN],
                std=[255 * value for value in STD],
                mirror=fn.random.coin_flip(),
            )

        self.pipeline, self.batches = chain(), len(paths) // batch_size

    def epoch(self) -> Iterator[torch.Tensor]:
        for _ in range(self.batches):
            (images,) = self.pipeline.run()
            yield torch.from_dlpack(images.as_tensor())

    def close(self) -> None:
        del self.pipeline


def missing_dali() -> str:
    """Why DALI is missing; empty if it is installed."""
    try:
        import nvidia.dali  # noqa: F401
    except ImportError as error:
        return f"DALI is not importable here ({error}): no comparison"
    return ""


def decoder_alone(paths: list[str], batch_size: int, load_hint: float, threads: int, batches: int) -> dict[str, Any]:
    """Milliseconds per batch, from bytes to device memory, over different batches."""
    stream = torch.cuda.Stream()
    decoder = CudaDecoder(torch.cuda.current_device(), DecoderPaths(load_hint=load_hint), threads=threads)
    headers = [read_header(Path(path).read_bytes()) for path in paths]
    capacity = max(header.height * header.width for header in headers)
    times = []
    with torch.cuda.stream(stream):
        memory = [torch.empty((1, capacity, 3), dtype=torch.uint8, device="cuda") for _ in range(batch_size)]
        slots = [decoder.wrap(array, stream.cuda_stream) for array in memory]
        for number in range(batches + 3):
            batch = [headers[(number * batch_size + i) % len(headers)] for i in range(batch_size)]
            stream.synchronize()
            start = time.perf_counter()
            results = decoder.decode_batch(batch, slots, stream.cuda_stream)
            stream.synchronize()
            times.append(1e3 * (time.perf_counter() - start))
            assert all(result is None for result in results), "Pillow decoded some images"
    times = sorted(times[3:])
    return {
        "load_hint": load_hint,
        "threads": threads,
        "images_per_second": round(1e3 * batch_size / statistics.median(times)),
        "batch_ms": spread(times) | {"p95": round(times[int(0.95 * (len(times) - 1))], 3)},
    }


def epoch_of(feed: Feed) -> tuple[float, float]:
    """Images a second and microseconds of processor time per image, over one epoch."""
    torch.cuda.synchronize()
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    for images in feed.epoch():
        count += len(images)
    torch.cuda.synchronize()
    return count / (time.perf_counter() - start), 1e6 * (time.process_time() - cpu) / count


def measured(feed: Feed, epochs: int) -> dict[str, Any]:
    """Measures epochs after a warm-up epoch."""
    results = [epoch_of(feed) for _ in range(epochs + 1)][1:]
    return {
        "images_per_second": spread([rate for rate, _ in results]),
        "cpu_us_per_image": spread([cpu for _, cpu in results]),
    }


def print_row(name: str, row: dict[str, Any]) -> None:
    rate, cpu = row["images_per_second"], row["cpu_us_per_image"]["median"]
    print(
        f"  {name:44}{rate['median']:9.0f} images/s ({rate['min']:.0f} to {rate['max']:.0f}), {cpu:.0f} us CPU/image",
        flush=True,
    )


def sweep_loader(paths: list[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures the loader by load_hint, and autotuned."""
    rows = []
    for hint in args.load_hints:
        feed = Ours(paths, args.batch_size, args.loader_threads, hint)
        rows.append({"load_hint": hint, "decode_threads": args.loader_threads} | measured(feed, args.epochs))
        feed.close()
        print_row(f"load_hint {hint}", rows[-1])
    feed = Ours(paths, args.batch_size, args.loader_threads, "auto")
    epochs = 0
    while feed.loader.stats().setup.split_because != "autotuned" and epochs < MAX_TUNING_EPOCHS:
        epoch_of(feed)
        epochs += 1
    setup = feed.loader.stats().setup
    picked = {"load_hint": setup.load_hint, "decode_threads": setup.decode_threads}
    rows.append({"auto": setup.split_because, "tuning_epochs": epochs} | picked | measured(feed, args.epochs))
    feed.close()
    print_row(f"auto: {setup.load_hint:g}, {setup.decode_threads} threads, {setup.split_because}", rows[-1])
    return rows


def add_restart_markers(paths: list[str], folder: Path) -> list[str]:
    """The photos with restart markers as from `cuaug prepare`, but by Pillow, as jpegtran may be missing.

    Pillow encodes the pixels again with the same quality: nearly the same images, in files of the same size.
    """
    folder.mkdir(parents=True, exist_ok=True)
    targets = [folder / Path(path).name for path in paths]
    for path, target in zip(paths, targets, strict=True):
        if not target.exists():
            image: Any = Image.open(path)
            image.save(target, quality="keep", optimize=True, restart_marker_blocks=restart_interval(image))
    return [str(target) for target in targets]


def against_dali(paths: list[str], args: argparse.Namespace, best: dict[str, Any]) -> dict[str, Any]:
    """Measures both loaders at their best, in turns."""
    tried = []
    for method in ("whole", "region"):
        for load in args.dali_loads:
            feed: Feed = Dali(paths, args.batch_size, args.loader_threads, load, method)
            tried.append({"hw_decoder_load": load, "method": method} | measured(feed, 1))
            feed.close()
            print_row(f"DALI, {method}, hw_decoder_load {load}", tried[-1])
    top = max(tried, key=lambda row: row["images_per_second"]["median"])
    feeds: dict[str, Feed] = {
        "cuaug": Ours(
            paths, args.batch_size, args.loader_threads, best["load_hint"], decode_threads=best["decode_threads"]
        ),
        "DALI": Dali(paths, args.batch_size, args.loader_threads, top["hw_decoder_load"], top["method"]),
    }
    rates: dict[str, list[float]] = {name: [] for name in feeds}
    for turn in range(args.turns + 1):
        for name, feed in feeds.items():
            epoch_of(feed)  # uses up batches prefetched during the other's turn
            rate, _ = epoch_of(feed)
            if turn:
                rates[name].append(rate)
    for feed in feeds.values():
        feed.close()
    ratio = spread([ours / theirs for ours, theirs in zip(rates["cuaug"], rates["DALI"], strict=True)])
    print(f"  cuaug against DALI: {ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})")
    return {
        "tried": tried,
        "cuaug": {"load_hint": best["load_hint"], "decode_threads": best["decode_threads"]} | spread(rates["cuaug"]),
        "DALI": {"hw_decoder_load": top["hw_decoder_load"], "method": top["method"]} | spread(rates["DALI"]),
        "ratio": ratio,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="photo directory (made if missing)")
    parser.add_argument("--files", type=int, default=2048)
    parser.add_argument("--passes", type=int, default=4, help="uses of each file per epoch")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--load-hints", nargs="+", type=float, default=[0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    parser.add_argument("--threads", nargs="+", type=int, default=[2, 4, 8, 16], help="for the decoder alone")
    parser.add_argument("--loader-threads", type=int, default=6)
    parser.add_argument("--dali-loads", nargs="+", type=float, default=[0.5, 0.65, 0.8, 0.9])
    parser.add_argument("--batches", type=int, default=15, help="for the decoder alone")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()
    packages = ["torch", "nvidia-nvimgcodec-cu12", "nvidia-nvjpeg-cu12", "nvidia-dali-cuda120", "nvidia-dali-cuda130"]
    result: dict[str, Any] = circumstances(packages)
    result["device"] = torch.cuda.get_device_name()  # fails without a GPU, before any photo is made
    folder = write_photos(args.data / f"500x375-{args.files}", args.files, 375, 500)
    paths = [str(path) for path in sorted(folder.glob("*.jpg"))]
    result["settings"] = {key: value for key, value in vars(args).items() if key not in ("data", "out")}

    def store(**results: Any) -> None:
        result.update(results)
        if args.out:  # after each part, in case the run is interrupted
            write_json(args.out, result)

    print(f"{result['device']}, {len(paths)} files, batches of {args.batch_size}; the decoder alone:")
    grid: list[dict[str, Any]] = []
    for threads in args.threads:
        for hint in args.load_hints:
            grid.append(decoder_alone(paths, args.batch_size, hint, threads, args.batches))
            rate, late = grid[-1]["images_per_second"], grid[-1]["batch_ms"]["p95"]
            print(f"  {threads:2} threads, load_hint {hint:4}: {rate:6} images/s (p95 {late:.1f} ms)", flush=True)
        store(decoder=grid)
    print(f"the loader, {args.loader_threads} threads:")
    epoch = paths * args.passes
    rows = sweep_loader(epoch, args)
    best = max(rows, key=lambda row: row["images_per_second"]["median"])
    split = {"load_hint": best["load_hint"], "decode_threads": best["decode_threads"]}
    with_markers = add_restart_markers(paths, folder.with_name(folder.name + "-marked")) * args.passes
    feed = Ours(with_markers, args.batch_size, args.loader_threads, **split)
    rows.append({"restart_markers": True} | split | measured(feed, args.epochs))
    feed.close()
    print_row(f"restart markers, load_hint {split['load_hint']:g}", rows[-1])
    feed = Ours(epoch, args.batch_size, args.loader_threads, index_bytes=_INDEX_BYTES, **split)
    epoch_of(feed)  # indexes each file at its second use
    rows.append({"index": True} | split | measured(feed, args.epochs))
    feed.close()
    print_row(f"JPEG index, load_hint {split['load_hint']:g}", rows[-1])
    store(loader=rows)
    if reason := missing_dali():
        print(reason)
        store(dali=reason)
    else:
        store(dali=against_dali(epoch, args, best))


if __name__ == "__main__":
    main()
