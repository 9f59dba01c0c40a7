"""nvImageCodec's decoder on a GPU: mixed JPEGs, from encoded bytes to device memory, by CPU threads.

Real data sets mix three chroma subsamplings, gray, EXIF orientations, and 0.2 to 12 megapixels, and a GPU's decoders
choose their path by them (docs/cuda.md). The fastest number of threads is also measured without fancy upsampling.

    python benchmarks/gpu_decode.py --out benchmarks/results/gpu_decode.json
"""

from __future__ import annotations

import io
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from gpu_photos import draw_photo
from numpy.typing import NDArray
from PIL import Image
from report import gpu_circumstances, options, settings_of, spread, write_json

from cuaug import codec
from cuaug.codec import DecoderPaths, EncodedImage, read_header

#: Sizes of the files in turn; half of them have less than one megapixel.
MEGAPIXELS = (0.2, 0.4, 0.2, 1.5, 0.7, 3.0, 0.2, 12.0)
_SUBSAMPLINGS = ("4:2:0", "4:2:0", "4:2:2", "4:4:4", "gray")
_ORIENTATIONS = (1, 1, 1, 6, 1, 8, 1)
_BASE_SIDE = 1024
_WARM_UP_BATCHES = 2


def mixed_files(count: int, scale: float) -> list[bytes]:
    """`count` encoded files; `scale` multiplies their megapixels. The seed of file i is i."""
    base = draw_photo(0, _BASE_SIDE, _BASE_SIDE)
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda i: _encode(base, i, MEGAPIXELS[i % len(MEGAPIXELS)] * scale), range(count)))


def _encode(base: NDArray[np.uint8], i: int, megapixels: float) -> bytes:
    rng = np.random.default_rng(i)
    height = max(16, round((megapixels * 1e6 * 3 / 4) ** 0.5) + int(rng.integers(-7, 8)))
    width = max(16, round(megapixels * 1e6 / height))
    view = np.roll(base, rng.integers(0, _BASE_SIDE, 2), axis=(0, 1))
    image = np.asarray(Image.fromarray(view).resize((width, height), Image.Resampling.BILINEAR))
    grain = rng.normal(0, 6, (height, width, 1)).astype(np.float32)
    picture: Any = Image.fromarray((image + grain).clip(0, 255).astype(np.uint8))
    subsampling, exif = _SUBSAMPLINGS[i % len(_SUBSAMPLINGS)], Image.Exif()
    exif[0x0112] = _ORIENTATIONS[i % len(_ORIENTATIONS)]
    encoded = io.BytesIO()
    if subsampling == "gray":
        picture.convert("L").save(encoded, "JPEG", quality=90, exif=exif)
    else:
        picture.save(encoded, "JPEG", quality=90, subsampling=subsampling, exif=exif)
    return encoded.getvalue()


class Batches:
    """The same batches for all combinations, and the device memory that they are decoded into."""

    def __init__(self, files: list[bytes], batch_size: int) -> None:
        headers = [read_header(data) for data in files]
        self.batches = [headers[i : i + batch_size] for i in range(0, len(headers) - batch_size + 1, batch_size)]
        self.stream = torch.cuda.Stream()
        self.batch_size = batch_size
        self.megapixels = sum(header.height * header.width for header in headers) / len(headers) / 1e6
        # The largest images of each batch take the same slots.
        sizes = [sorted((header.height * header.width for header in batch), reverse=True) for batch in self.batches]
        capacities = [max(column) for column in zip(*sizes, strict=True)]
        self.memory = [torch.empty((1, pixels, 3), dtype=torch.uint8, device="cuda") for pixels in capacities]
        torch.cuda.synchronize()

    def decode(self, paths: DecoderPaths, threads: int, repetitions: int) -> dict[str, Any]:
        """Milliseconds per batch, CPU microseconds per image, and how many images the GPU failed to decode."""
        decoder = codec.NvImageCodecDecoder(torch.cuda.current_device(), paths, threads=threads)
        handle = self.stream.cuda_stream
        decoder.prime(self.batch_size, handle)
        slots = [decoder.wrap(array, handle) for array in self.memory]
        times, fallbacks, cpu = [], 0, 0.0
        for number in range(_WARM_UP_BATCHES + repetitions * len(self.batches)):
            if number == _WARM_UP_BATCHES:
                cpu = time.process_time()
            batch = self.batches[number % len(self.batches)]
            ordered = self._slots(batch, slots)
            start = time.perf_counter()
            results = decoder.decode_batch(batch, ordered, handle)
            self.stream.synchronize()
            times.append(1e3 * (time.perf_counter() - start))
            fallbacks += len(decoder.fallbacks)
            failed = [result for result in results if isinstance(result, Exception)]
            if failed:
                raise SystemExit(f"a file of the benchmark is damaged: {failed[0]}")
        times = times[_WARM_UP_BATCHES:]
        cpu_us = 1e6 * (time.process_time() - cpu) / len(times) / self.batch_size
        late = sorted(times)[int(0.95 * (len(times) - 1))]
        return {
            "batch_ms": spread(times) | {"p95": round(late, 3)},
            "images_per_second": round(1e3 * self.batch_size / statistics.median(times)),
            "cpu_us_per_image": round(cpu_us, 1),
            "cpu_fallbacks": fallbacks,
        }

    @staticmethod
    def _slots(batch: list[EncodedImage], slots: list[Any]) -> list[Any]:
        """The slot of each image: the i-th largest takes the i-th slot."""
        order = sorted(range(len(batch)), key=lambda i: -batch[i].height * batch[i].width)
        ordered = [None] * len(batch)
        for slot, i in zip(slots, order, strict=True):
            ordered[i] = slot
        return ordered


def main() -> None:
    scale, repetitions = (1.0, "multiplies the files' megapixels"), (6, "passes over the files")
    parser = options(__doc__, files=256, scale=scale, batch_size=64, repetitions=repetitions)
    parser.add_argument("--threads", nargs="+", type=int, default=[2, 4, 8, 16], help="CPU threads")
    args = parser.parse_args()
    result: dict[str, Any] = gpu_circumstances(["nvidia-nvjpeg-cu12"])
    batches = Batches(mixed_files(args.files, args.scale), args.batch_size)
    result["settings"] = settings_of(args)
    result |= {"mean_megapixels": round(batches.megapixels, 2), "rows": []}
    print(f"{result['device']}: batches of {args.batch_size}, {batches.megapixels:.1f} megapixels on average")

    def measure(threads: int, paths: DecoderPaths) -> dict[str, Any]:
        row = {"threads": threads} | batches.decode(paths, threads, args.repetitions)
        line = f"{row['images_per_second']} images/s, {threads} threads"
        more = f"p95 {row['batch_ms']['p95']:.1f} ms, {row['cpu_us_per_image']:.0f} us CPU/image: {paths}"
        print(f"  {line}, {more}", flush=True)
        return row | {"line": line}

    for threads in args.threads:
        result["rows"].append(measure(threads, DecoderPaths()))
        write_json(args.out, result)  # in case the run is interrupted
    best = min(result["rows"], key=lambda row: (row["cpu_fallbacks"], -row["images_per_second"]))
    result["fastest"] = best["line"]
    result["without_fancy_upsampling"] = measure(best["threads"], DecoderPaths(fancy_upsampling=False))
    write_json(args.out, result)


if __name__ == "__main__":
    main()
